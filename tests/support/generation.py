"""A module's generation on disk, with nothing but its scripts and its image, and shells to run it in."""

import os
from pathlib import Path

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
