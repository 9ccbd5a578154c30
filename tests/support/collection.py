"""What ships: every easyconfig, its modules, and every site with its accelerator and architecture."""

from functools import cache
from pathlib import Path

from sifmod.config.find import shipped
from sifmod.config.load_easyconfig import LoadedEasyconfig, all_variants
from support.config import Configuration

OTHERS = ("presets", "sites", "quirks", "mpi")
FILES = sorted(path for path in shipped().glob("*/*.yaml") if path.parent.name not in OTHERS)
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


@cache
def modules() -> tuple[LoadedEasyconfig, ...]:
    """Every variant of every file, on LUMI, where all quirks can apply; loaded once for all tests of a process."""
    configuration = Configuration(Path("/nonexistent"))
    site = configuration.site(site="lumi-g")
    return tuple(each for path in FILES for each in all_variants(path, site, configuration.environ))
