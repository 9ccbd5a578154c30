"""A module's generation on disk, with nothing but its scripts and its image, and shells to run it in."""

import os
from pathlib import Path

from sifmod.module.launch import binds, container_env, prepend_path
from sifmod.module.plan import Plan
from sifmod.module.scripts import scripts

SHELLS = (("dash",), ("bash", "--posix"), ("busybox", "sh"))


def make_generation(plan: Plan, image: Path | None) -> Path:
    """Write the plan's scripts below its prefix as installing does, and return the path that stays the same.

    `image` becomes the target of the generation's link; without one there is no image.
    """
    switch = Path(plan.prefix, "software", str(plan.module))
    root = switch.parent / ".generations" / plan.module.version / "1"
    for file in scripts(plan, str(root)):
        target = root / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.text)
        target.chmod(0o555 if file.executable else 0o444)
    if image is not None:
        (root / plan.image.filename).symlink_to(image)
    switch.symlink_to(os.path.relpath(root, switch.parent))
    return switch


def loaded(plan: Plan, switch: Path) -> dict[str, str]:
    root = switch.resolve()
    own = {"_BINDPATH": ",".join(str(bind) for bind in binds(plan, str(root)))}
    own |= {"ENV_PREPEND_PATH": ":".join(prepend_path(plan))}
    own |= {f"ENV_{name}": value for name, value in container_env(plan)}
    return {"SIF": str(root / plan.image.filename)} | {
        f"{prefix}{name}": value for prefix in ("SINGULARITY", "APPTAINER") for name, value in own.items()
    }
