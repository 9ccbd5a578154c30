"""A Python interpreter of an image: its version, prefix and package directories, read from files only.

CPython finds its prefix by the place of the program, links followed, or by a `pyvenv.cfg` beside it; see its
Modules/getpath.py. Its `site` decides the rest. Debian's has `dist-packages`, and `/usr/local` in front; Red Hat's has
`/usr/local` in front, unless PYTHONNOUSERSITE is set; upstream's has `site-packages` below `lib`, and below the
`platlibdir` that it was built with.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from posixpath import basename, dirname, join, normpath

from sifmod.image.inspect.rootfs import Rootfs

_NAME = re.compile(r"python(3\.[0-9]{1,2})")
_SAID = re.compile(rb"python(3\.[0-9]{1,2})")
_LARGEST = 32 << 20  # bytes of a program or of site.py
_SETTING = re.compile(r"^[ \t]*+([a-z-]++)[ \t]*+=(.*)$", re.MULTILINE)
_MOST_PATHS = 1000  # lines of a .pth file


@dataclass(frozen=True)
class Interpreter:
    """A Python. `version` is like 3.11, "" if unknown; `libraries` are as in its `sys.path`.

    `library` is the one where pip installs packages, "" if unknown. Only `library` need not exist.
    """

    program: str  # links followed
    prefix: str
    version: str
    libraries: tuple[str, ...]
    library: str


def read_interpreter(rootfs: Rootfs, program: str, first: Iterable[str] = ()) -> Interpreter:
    """The interpreter that `program`, perhaps a link, starts; `first` are the directories in PYTHONPATH.

    Raises ImageError for a damaged image.
    """
    real = rootfs.resolved(program) or program
    settings, prefix = _venv(rootfs, program)
    if not prefix:
        above = dirname(dirname(real))
        prefix = above if _stdlibs(rootfs, above) else dirname(dirname(program))
    version = _version(rootfs, real, prefix, settings)
    places = [f"{prefix}/{lib}/python{version}/site-packages" for lib in ("lib", "lib64")]
    if settings:
        creators = (f"{settings.get('home', '')}/{name}" for name in (basename(real), "python3", "python"))
        base = read_interpreter(rootfs, next(filter(rootfs.is_program, creators), real))
        if settings.get("include-system-site-packages", "").lower() == "true":
            places += base.libraries
        version = version or base.version
        library = places[0]
    else:
        places, library = _site(rootfs, prefix, version) or (
            [*places, *(place.replace("/site-", "/dist-") for place in places)],
            "",
        )
    there = _distinct(rootfs, (*first, *places), library)
    library = library and there[rootfs.resolved(library) or library]
    libraries = tuple(there.values())
    return Interpreter(real, prefix, version, libraries, (library or next(iter(libraries), "")) if version else "")


def _venv(rootfs: Rootfs, program: str) -> tuple[dict[str, str], str]:
    """The `pyvenv.cfg` above or beside the program, and the directory of the venv; ({}, "") outside of one."""
    for directory in (dirname(dirname(program)), dirname(program)):
        if text := rootfs.read(f"{directory}/pyvenv.cfg", 1 << 16):
            return {key.lower(): value.strip() for key, value in _SETTING.findall(text)}, directory
    return {}, ""


def _stdlibs(rootfs: Rootfs, prefix: str) -> dict[str, str]:
    """The directories with a standard library below a prefix, by version."""
    found: dict[str, str] = {}
    for lib in ("lib64", "lib"):
        for name in rootfs.entries(f"{prefix}/{lib}"):
            if (match := _NAME.fullmatch(name)) and rootfs.is_file(f"{prefix}/{lib}/{name}/os.py"):
                found[match[1]] = f"{prefix}/{lib}"
    return found


def _version(rootfs: Rootfs, real: str, prefix: str, settings: dict[str, str]) -> str:
    if named := _NAME.fullmatch(basename(real)):
        return str(named[1])
    said = settings.get("version") or settings.get("version_info") or ""
    if match := re.match(r"3\.[0-9]{1,2}", said):
        return str(match[0])
    names = (name for lib in ("lib", "lib64") for name in rootfs.entries(f"{prefix}/{lib}"))
    there = [str(match[1]) for name in names if (match := _NAME.fullmatch(name))]
    versions = list(_stdlibs(rootfs, prefix)) or there
    if len(set(versions)) < 2:
        return next(iter(versions), "")
    programs = {version: rootfs.reader.lookup(f"{dirname(real)}/python{version}") for version in versions}
    own = rootfs.reader.lookup(real)
    for version, program in programs.items():
        if own and program and program.number == own.number:
            return version
    spoken: Counter[str] = Counter(text.decode() for text in _SAID.findall(rootfs.data(real, _LARGEST)))
    if known := [version for version, _ in spoken.most_common() if version in versions]:
        return known[0]
    own_name = [version for version, program in programs.items() if program] or versions
    return max(own_name, key=lambda text: int(text.partition(".")[2]))


def _site(rootfs: Rootfs, prefix: str, version: str) -> tuple[list[str], str] | None:
    """The directories of `site`, and the one where pip installs; None (unknown) without a standard library."""
    above = _stdlibs(rootfs, prefix).get(version)
    text = rootfs.read(f"{above}/python{version}/site.py", _LARGEST) if above else ""
    if not text:  # it may be in a zip, or compiled; these directories are Debian's alone
        debians = ("/usr/lib/python3/dist-packages", f"/usr/local/lib/python{version}/dist-packages")
        text = "dist-packages" if prefix == "/usr" and any(map(rootfs.is_directory, debians)) else ""
    if not (above or text):
        return None
    if "dist-packages" in text:
        local = f"{prefix}/local/lib/python{version}/dist-packages"
        return [local, f"{prefix}/lib/python3/dist-packages", f"{prefix}/lib/python{version}/dist-packages"], local
    prefixes = ["/usr/local", prefix] if "RPM_BUILD_ROOT" in text and prefix == "/usr" else [prefix]
    libs = ["lib64", "lib"] if above and above.endswith("64") else ["lib"]
    # pip uses the last: Red Hat's Python omits /usr/local if PYTHONNOUSERSITE is set, and sifmod sets it
    places = [f"{each}/{lib}/python{version}/site-packages" for each in prefixes for lib in libs]
    return places, places[-1]


def _distinct(rootfs: Rootfs, places: Iterable[str], library: str) -> dict[str, str]:
    """The existing directories in `places` and in their `.pth` files, and `library`; by path with links followed."""
    found: dict[str, str] = {}
    for place in places:
        for each in (place, *_paths(rootfs, place)):
            if each == library or rootfs.is_directory(each):
                found.setdefault(rootfs.resolved(each) or each, each)
    return found


def _paths(rootfs: Rootfs, library: str) -> Iterator[str]:
    """The directories in the `.pth` files of a package directory."""
    for name in rootfs.entries(library):
        if name.endswith(".pth"):
            for line in rootfs.read(f"{library}/{name}", 1 << 20).splitlines()[:_MOST_PATHS]:
                if (text := line.rstrip()) and not text.startswith(("#", "import ", "import\t")) and "\0" not in text:
                    yield normpath(join(library, text))
