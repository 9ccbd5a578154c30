"""What a user adds to a module, at the place that an install links to."""

import os
from pathlib import Path

from support.command import run
from support.generation import find


class Place:
    """A module's own links to the place of the user's software, as an install leaves them."""

    def __init__(self, root: Path, place: Path) -> None:
        place.mkdir()
        place.chmod(0o755)
        self.directory = place / "user-software"
        self.squashfs = place / "user-software.squashfs"
        for target in (self.directory, self.squashfs):
            (root / target.name).symlink_to(os.path.relpath(target, os.path.realpath(root)))

    def fill_directory(self) -> None:
        self.directory.mkdir()
        (self.directory / "file").write_text("directory\n")

    def fill_squashfs(self, scratch: Path) -> None:
        (scratch / "squash").mkdir()
        (scratch / "squash" / "file").write_text("squashfs\n")
        run((find("mksquashfs"), scratch / "squash", self.squashfs, "-quiet", "-no-progress")).ok()
