"""A module on disk as it is after an install, whose image is real."""

import os
from pathlib import Path

from plans import publish
from sifmod.module.plan import Plan

SHELLS = (("dash",), ("bash", "--posix"), ("busybox", "sh"))


def make_generation(plan: Plan, image: Path | None) -> Path:
    """Publish the plan with a link to `image` (None: without one); returns the path that every reinstall keeps."""
    root = publish(plan, image=False).root
    if image is not None:
        (root / plan.required_image.filename).symlink_to(image)
    return Path(plan.prefix, "software", str(plan.module))


def find(program: str) -> str:
    """The program's path."""
    for directory in os.environ["PATH"].split(":"):
        if os.access(path := f"{directory}/{program}", os.X_OK):
            return path
    raise AssertionError(f"{program} is missing: run scripts/provision")
