"""What ships: every easyconfig, and every site with its accelerator and architecture."""

from sifmod.config.find import shipped

FILES = sorted(path for path in shipped().glob("*/*.yaml") if path.parent.name not in ("presets", "sites", "quirks"))
SITES = {
    "aws-efa": ("cuda", "auto"),
    "frontera": ("cuda", "amd64"),
    "generic": ("none", "auto"),
    "generic-cuda": ("cuda", "auto"),
    "generic-cuda-ib": ("cuda", "auto"),
    "generic-rocm": ("rocm", "auto"),
    "lumi-c": ("none", "amd64"),
    "lumi-g": ("rocm", "amd64"),
    "slingshot-gh200": ("cuda", "arm64"),
    "vista": ("cuda", "arm64"),
}
