"""make: the packages of a layer installed by uv, compiled, and packed into one file, in a directory of its own."""

import os
import re
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from sifmod.actions.layer.bytecode import bytecode
from sifmod.actions.layer.inside import Inside
from sifmod.actions.layer.start import command, start_file
from sifmod.config.site import Site
from sifmod.digest import sha256_file
from sifmod.errors import InstallError
from sifmod.image.convert.budget import threads
from sifmod.image.convert.packed import More, pack
from sifmod.image.inspect.host_commands import HOST_COMMANDS
from sifmod.image.packages.added import LEFT_BY_UV, check_hides_nothing
from sifmod.image.packages.image_python import ImagePython
from sifmod.image.packages.resolve import pinned
from sifmod.image.packages.wanted import Wanted
from sifmod.image.program import Program
from sifmod.image.startable import reads
from sifmod.tree.layer import IMAGE, LOCK, TREE, Layer

_NO_COMPILER = re.compile(r"No such file or directory: '[^']*(?:cc|\+\+)'|unable to execute '[^']*(?:cc|\+\+)'")
_NO_COMPILER_HINT = (
    "the image has no compiler: ask for a version of the package that has a wheel,"
    " or take a module whose image has one, as NVIDIA's and those called devel"
)
_NO_HINT = "hint: Build failures"  # uv's own, after which ours would be a second one


def make(
    layer: Layer, lock: str, inside: Inside, wanted: Wanted, here: tuple[ImagePython, Program | None, Site]
) -> Layer:
    """Fill the directory of `inside` with a generation of the layer; gives the layer with its size and digest.

    Raises InstallError with what uv said where it cannot install, OptionError where that hides what the image keeps,
    OSError as the file system does.
    """
    python, program, site = here
    jobs, directory = threads(site.processors, site.memory), inside.directory
    with ExitStack() as held:
        place = inside.linked(held) if layer.packed else directory
        tree = place / TREE
        (place / "lib").mkdir()
        _install(inside, python, layer, lock, wanted)
        check_hides_nothing(place / "lib", python)
        more = bytecode(inside, jobs, held)
        shutil.rmtree(directory / "work")
        _arrange(place, python)
        _commands(directory, tree, layer)
        (directory / LOCK).write_text(lock)
        if not layer.packed:
            files, size = _unpacked(tree, more)
            return replace(layer, files=files, size=size)
        (directory / "lib").unlink()
        chosen = site.compression if site.compression != "auto" else "zstd" if reads("zstd", program) else "gzip"
        files, size = pack(tree, directory / IMAGE, chosen, jobs, more)
        return replace(layer, files=files, size=size, digest=sha256_file(directory / IMAGE))


def _arrange(place: Path, python: ImagePython) -> None:
    """Make the tree of a layer of what uv has put into `lib`."""
    lib, tree = place / "lib", place / TREE
    tree.mkdir()
    for pattern in LEFT_BY_UV:  # which say when and where it was
        for left in lib.glob(pattern):
            _forget(left)
    if (lib / "bin").is_dir():
        (lib / "bin").rename(tree / "bin")
    lib.rename(tree / "lib")
    (tree / "start").mkdir()
    jupyter = (tree / "lib" / "share" / "jupyter").is_dir()
    (tree / "start" / "sitecustomize.py").write_text(start_file(python, jupyter=jupyter))


def _unpacked(tree: Path, more: More) -> tuple[int, int]:
    for path, read in more.items():
        (tree / path).parent.mkdir(exist_ok=True)
        (tree / path).write_bytes(read())
    found = [Path(top, name) for top, _, names in os.walk(tree) for name in names]
    return len(found), sum(path.lstat().st_size for path in found)


def _install(inside: Inside, python: ImagePython, layer: Layer, lock: str, wanted: Wanted) -> None:
    # a lock says where each file is, and uv goes there; where other places are named only the digests count
    name, text = ("pinned.txt", pinned(lock)) if wanted.places else (LOCK, lock)
    (inside.directory / "work" / name).write_text(text)
    words = (
        "pip",
        "install",
        "--python",
        python.executable,
        "--target",
        f"{inside.target}/lib",
        "--no-deps",
        "--quiet",
        "--link-mode",
        "hardlink" if layer.packed else "copy",
    )
    calls = [("--requirements", f"{inside.target}/work/{name}")] if layer.added else []
    calls += [("--editable", path) for path in layer.editable]
    for call in calls:
        ended = inside.uv(*words, *wanted.words, *call)
        if ended.code != 0:
            said = [line for line in ended.lines if not line.startswith(_NO_HINT)]
            hint = _NO_COMPILER_HINT if any(map(_NO_COMPILER.search, said)) else ""
            raise InstallError("the packages could not be installed:\n" + "\n".join(said[-12:]), hint)


def _forget(left: Path) -> None:
    """Remove a file of uv's own, and the line about it in its distribution's RECORD."""
    left.unlink()
    if (record := left.parent / "RECORD").is_file():
        lines = record.read_text("utf-8").splitlines(keepends=True)
        record.unlink()  # it may be a link to uv's own
        record.write_text("".join(line for line in lines if f"/{left.name}," not in line), "utf-8")


def _commands(directory: Path, tree: Path, layer: Layer) -> None:
    """The layer's commands for the host, but for those that would hide a command of the host."""
    (directory / "bin").mkdir()
    programs = sorted((tree / "bin").iterdir()) if (tree / "bin").is_dir() else []
    for program in programs:
        if program.name not in HOST_COMMANDS and program.is_file() and os.access(program, os.X_OK):
            place = directory / "bin" / program.name
            place.write_text(command(program.name, layer.name))
            mode = place.stat().st_mode
            place.chmod(mode | (mode & 0o444) >> 2)  # for who may read it
