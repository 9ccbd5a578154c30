"""What a user sees of the module Tiny/1.0 in a tree, read without any of sifmod's own code."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Content = dict[str, tuple[str, int, str]]
VERSION = "1.0"
LEFT_BY_LOCKS = re.compile(r"[^/]+(/(\d+\.(lease|beat)|[^/]+\.lock(\.soft)?))?")


@dataclass(frozen=True)
class Known:
    """What an undisturbed command left: the module's content under a name, the stub, every path."""

    contents: dict[str, Content]
    stub: bytes


def generation(prefix: Path, number: str) -> Content:
    """All of one generation, with its own place and number taken out, so that equal installs are equal."""
    place = f"/software/Tiny/.generations/{VERSION}/{number}"
    root = Path(f"{prefix}{place}")
    content: Content = {}
    for path in root.rglob("*"):
        mode = path.lstat().st_mode & 0o777
        if path.is_symlink():
            held = f"link to {os.readlink(path)}"
            if path.suffix == ".sif":
                held += f" with {_digest(path)}"
        elif path.is_dir():
            held = "directory"
        elif path.name == "receipt.json":
            held = _receipt(path)
        else:
            # the key of a runscript's caches is a digest of the number among others
            held = re.sub(r"(JOB_ID-\})[0-9a-f]{12}$", r"\1KEY", path.read_text().replace(place, "PLACE"), flags=re.M)
        content[str(path.relative_to(root))] = ("link" if path.is_symlink() else "", mode, held)
    return content


def _receipt(path: Path) -> str:
    """A receipt without its own number, and without what it says of files and facts outside the tree."""
    fields = json.loads(path.read_text())
    for key in ("inputs", "facts", "asked", "image"):
        del fields["provenance"][key]
    for record in fields["files"]:
        # The digest is another in every generation, because its number is in the text.
        record[1] = record[1] == _digest(path.parent / record[0])
    return json.dumps({key: value for key, value in fields.items() if key != "generation"})


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def live_number(prefix: Path) -> str | None:
    """The generation that the switch leads to."""
    switch = prefix / "software" / "Tiny" / VERSION
    if not os.path.lexists(switch):
        return None
    target = os.readlink(switch)
    assert target.startswith(f".generations/{VERSION}/"), target
    return target.rpartition("/")[2]


def seen(prefix: Path, known: Known) -> str:
    """`none`, or the name of the content that a load would use; anything else is a failure of the test."""
    stub = prefix / "modules" / "Tiny" / f"{VERSION}.lua"
    if not stub.exists():
        return "none"
    assert stub.read_bytes() == known.stub
    number = live_number(prefix)
    assert number is not None, "there is a modulefile and nothing behind it"
    content = generation(prefix, number)
    for name, wanted in known.contents.items():
        if content == wanted:
            return name
    raise AssertionError(f"generation {number} is a mixture; " + "; ".join(_differences(content, known)))


def _differences(content: Content, known: Known) -> Iterator[str]:
    for name, wanted in known.contents.items():
        for path in sorted(content.keys() | wanted.keys()):
            if content.get(path) != wanted.get(path):
                yield f"{path}: {content.get(path)}, in {name}: {wanted.get(path)}"


def published_are_whole(prefix: Path, known: Known) -> None:
    """Every generation in its place is one of those known: none is half there."""
    directory = prefix / "software" / "Tiny" / ".generations" / VERSION
    if directory.is_dir():
        for path in directory.iterdir():
            if path.name.isdecimal():
                assert generation(prefix, path.name) in known.contents.values(), path


def paths(prefix: Path) -> set[str]:
    """Every path in the tree but the log, which differs; of the locks only what is not a lock's own."""
    found = {str(path.relative_to(prefix)) for path in prefix.rglob("*")} - {".locks", ".staging"}
    found = {path for path in found if path.partition("/")[0] != "log"}
    locks = {path for path in found if path.startswith(".locks/")}
    return found - {path for path in locks if LEFT_BY_LOCKS.fullmatch(path.removeprefix(".locks/"))}


def copy(source: Path, target: Path) -> None:
    """A tree as it was, links and modes included; an empty place when there is no source."""
    if target.exists():
        for directory, _, _ in os.walk(target):
            Path(directory).chmod(0o700)
        shutil.rmtree(target)
    if source.exists():
        shutil.copytree(source, target, symlinks=True)
