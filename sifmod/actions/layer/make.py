"""make: install a layer's packages with uv, compile them, and pack them into one file."""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from sifmod.actions.layer.bytecode import Bytecode
from sifmod.actions.layer.inside import Inside
from sifmod.actions.layer_commands import is_command, write_commands
from sifmod.config.limits import bound, limits
from sifmod.config.site import Site
from sifmod.digest import sha256_file
from sifmod.errors import InstallError
from sifmod.image.convert.budget import threads
from sifmod.image.convert.packed import pack
from sifmod.image.packages.added import LEFT_BY_UV, check_hides_nothing
from sifmod.image.packages.image_python import ImagePython
from sifmod.image.packages.package_lock import one_digest_each, pinned, without_repositories
from sifmod.image.packages.request import PackageRequest, project
from sifmod.image.packages.resolve import Resolved
from sifmod.image.packages.uv_settings import write_private
from sifmod.image.program import Program
from sifmod.image.startable import can_start
from sifmod.module.plan import LAYER_TARGET
from sifmod.tree.layer import IMAGE, LOCK, TREE, Layer
from sifmod.tree.rights import Rights
from sifmod.tree.umask import umask

_NO_COMPILER = re.compile(r"No such file or directory: '[^']*(?:cc|\+\+)'|unable to execute '[^']*(?:cc|\+\+)'")
_NO_COMPILER_HINT = (
    "the image has no compiler: choose a version of the package that has a wheel, or use a module whose image has "
    "one, such as NVIDIA's or a devel image"
)
_NO_HINT = "hint: Build failures"  # uv's own hint, which is left out


def make(
    layer: Layer,
    resolved: Resolved,
    inside: Inside,
    wanted: PackageRequest,
    here: tuple[ImagePython, Program | None, Site],
    built: tuple[tuple[str, str], ...],
    tried: Callable[[Path], None],
) -> Layer:
    """Fill the directory of `inside` with a generation of the layer; returns it with its size and, if packed, digest.

    `built`: the normalized name and the path inside of each source project. `tried` is called with `lib`, once the
    packages are there, and may reject them.

    Raises InstallError with uv's output if it cannot install, OptionError if the layer would hide a protected package,
    OSError from the file system.
    """
    python, program, site = here
    jobs, directory = threads(site.processors, site.memory), inside.directory
    with ExitStack() as held:
        place = inside.linked(held) if layer.packed else directory
        tree = place if layer.packed else directory / TREE
        (place / "lib").mkdir()
        _install(inside, python, layer, resolved.fetched, wanted, built)
        check_hides_nothing(place / "lib", python)
        tried(place / "lib")
        inside.end()
        bytecode = Bytecode(inside, python, jobs)
        if not layer.packed:
            _compile(place, bytecode)
        _arrange(place / "lib", tree, python)
        write_commands(directory / "bin", _commands(tree), layer.name)
        (directory / LOCK).write_text(resolved.lock)
        if layer.packed:
            chosen = site.compression
            if chosen == "auto":
                chosen = "zstd" if can_start("zstd", program) else "gzip"
            files, size = pack(tree, directory / IMAGE, chosen, jobs, bytecode)
            layer = replace(layer, files=files, size=size, digest=sha256_file(directory / IMAGE))
            (directory / "lib").unlink()
        else:
            _set_modes(tree)
            sizes = [Path(top, name).lstat().st_size for top, _, names in os.walk(tree) for name in names]
            layer = replace(layer, files=len(sizes), size=sum(sizes))
        shutil.rmtree(directory / "work")
        return layer


def _compile(place: Path, bytecode: Bytecode) -> None:
    """Write the bytecode of the modules in `lib`."""
    for path in (place / "lib").rglob("*.py"):
        if path.is_file() and (read := bytecode.reader(str(path.relative_to(place)))):
            read(path.read_bytes())
    for name, content in bytecode.files():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(content)


def _set_modes(tree: Path) -> None:
    """Open each file as a new one here: wheels have modes of their own, and uv's cache those of an earlier umask."""
    with umask(tree, None) as mask:
        rights = Rights(mask, None)
    for top, _, names in os.walk(tree):
        for path in (Path(top, name) for name in (".", *names)):
            if not path.is_symlink():
                path.chmod(rights.mode(path.stat().st_mode))


def _arrange(lib: Path, tree: Path, python: ImagePython) -> None:
    """Build the layer's tree from the packages in `lib`."""
    tree.mkdir(exist_ok=True)
    for pattern in LEFT_BY_UV:  # records of when and where a package was installed
        for left in lib.glob(pattern):
            _forget(left)
    for left in lib.glob("*.dist-info/direct_url.json"):
        if f"{LAYER_TARGET}/work/" in left.read_text("utf-8", "replace"):  # a tree checked out by git
            _forget(left)
    if (lib / "bin").is_dir():
        (lib / "bin").rename(tree / "bin")
    if lib.parent != tree:
        lib.rename(tree / "lib")
    (tree / "start").mkdir()
    jupyter = (tree / "lib" / "share" / "jupyter").is_dir()
    (tree / "start" / "sitecustomize.py").write_text(start_file(python, jupyter=jupyter))


def _install(
    inside: Inside,
    python: ImagePython,
    layer: Layer,
    lock: str,
    wanted: PackageRequest,
    built: tuple[tuple[str, str], ...],
) -> None:
    lock, calls = without_repositories(lock), list[tuple[str, ...]]()
    for number, text in enumerate(one_digest_each(lock) if lock else ()):
        name = f"pylock.{number}.toml"
        if wanted.places:  # uv fetches from the places in the lock; if other places are given, only the digests count
            name, text = f"pinned.{number}.txt", pinned(text, here=True)
        write_private(inside.directory / "work" / name, text)
        calls.append((*("--reinstall",) * bool(number), "--requirements", f"{inside.target}/work/{name}"))
    words = ["pip", "install", "--python", python.executable, "--target", f"{inside.target}/lib"]
    words += ["--no-deps", "--quiet", "--link-mode", "hardlink" if layer.packed else "copy"]
    calls += [("--editable", path) for path in map(project, layer.editable)]
    # uv would reuse an earlier build of a directory with an older pyproject.toml
    calls += [(f"--refresh-package={key}", path) for key, path in built]
    for call in calls:
        ended = inside.uv(*words, *wanted.words, *call)
        if ended.code != 0:
            said = [line for line in ended.lines if not line.startswith(_NO_HINT)]
            hint = _NO_COMPILER_HINT if any(map(_NO_COMPILER.search, said)) else ""
            raise InstallError("the packages could not be installed:\n" + "\n".join(said[-12:]), hint)


def _forget(left: Path) -> None:
    """Remove a file that uv added, and its line in the distribution's RECORD."""
    left.unlink()
    if (record := left.parent / "RECORD").is_file():
        lines = record.read_bytes().splitlines(keepends=True)
        record.unlink()  # it may be a hard link to uv's cache
        record.write_bytes(b"".join(line for line in lines if f"/{left.name},".encode() not in line))


def _commands(tree: Path) -> list[str]:
    """The layer's commands for the host, except those that would hide a host command.

    Raises InstallError beyond the limit: each becomes a file in the tree.
    """
    programs = sorted((tree / "bin").iterdir()) if (tree / "bin").is_dir() else []
    runnable = (program for program in programs if program.is_file() and os.access(program, os.X_OK))
    found = [program.name for program in runnable if is_command(program.name)]
    if len(found) > limits().wrappers:
        raise InstallError(f"the packages have {len(found)} commands, more than {bound('wrappers')}")
    return found


_START = '''"""Puts a layer in front of the image's own packages, for the one Python that it was made for."""

import os
import sys


def _layer():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if place != here]
    if sys.prefix == {prefix!r} and sys.version_info[:2] == {version!r} and os.path.exists({mark!r}):
        import site

        before = list(sys.path)
        site.addsitedir(os.path.join(os.path.dirname(here), "lib"))
        added = [place for place in sys.path if place not in before]
        packages = [index for index, place in enumerate(before) if place.endswith(("site-packages", "dist-packages"))]
        first = packages[0] if packages else len(before)
        sys.path[:] = before[:first] + added + before[first:]
{jupyter}

_layer()
del sys.modules["sitecustomize"]
try:  # the image's own, which this one hides
    import sitecustomize  # noqa: F401
except ImportError:
    sys.modules["sitecustomize"] = type(sys)("sitecustomize")
'''
# Jupyter looks below sys.prefix for its pages, extensions and kernels
_JUPYTER = """
        lib = os.path.join(os.path.dirname(here), "lib")
        for name, place in (("JUPYTER_PATH", "share/jupyter"), ("JUPYTER_CONFIG_PATH", "etc/jupyter")):
            places = [one for one in os.environ.get(name, "").split(":") if one]
            os.environ[name] = ":".join(dict.fromkeys([*places, os.path.join(lib, place)]))
        if os.path.isdir(os.path.join(lib, "share/jupyter/lab/static")):
            os.environ.setdefault("JUPYTERLAB_DIR", os.path.join(lib, "share/jupyter/lab"))
"""


def start_file(python: ImagePython, *, jupyter: bool) -> str:
    """The sitecustomize.py of a layer; `jupyter`: the layer has files for Jupyter.

    With it the layer's `.pth` files work, unlike those in a PYTHONPATH directory. With another module loaded whose
    image has its Python at the same path, a bare `exec` may see this layer over that image: the metadata directory of a
    protected package, which has the version in its name, distinguishes the images.
    """
    mark = python.first.place if python.first else python.prefix
    jupyter_too = _JUPYTER if jupyter else ""
    return _START.format(prefix=python.prefix, version=python.version[:2], mark=mark, jupyter=jupyter_too)
