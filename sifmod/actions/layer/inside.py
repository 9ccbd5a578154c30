"""Inside: a module's own Python, what it holds, and uv beside it; and what is wanted of a layer, as people write it."""

import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from sifmod.errors import ImageError, OptionError
from sifmod.image.child import Ended, run_child
from sifmod.image.inspect.python import normalized
from sifmod.module.plan import LAYER_TARGET
from sifmod.tree.receipt import Installation

FIND_LINKS = "--find-links="
_LARGEST = 1 << 24  # bytes


@dataclass(frozen=True)
class Wanted:
    """What is asked for: requirements as people write them, directories of projects, and where packages are looked for.

    `words` are uv's: --no-index, --find-links=PLACE, --no-build-isolation.
    """

    requirements: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()  # absolute paths
    words: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The directories and pages in which wheels are looked for, beside the index or in its place."""
        return tuple(word.removeprefix(FIND_LINKS) for word in self.words if word.startswith(FIND_LINKS))


def words_of(find_links: Iterable[str] = (), **options: bool) -> tuple[str, ...]:
    """The words of uv for places to look in, as they were typed, and for the options that are set (`no_index`)."""
    named = (f"--{name.replace('_', '-')}" for name, given in options.items() if given)
    places = (place if "://" in place else directory(place, "--find-links") for place in find_links)
    return (*named, *(f"{FIND_LINKS}{place}" for place in places))


def directory(text: str, option: str) -> str:
    """The absolute path of a directory that is there, and can be bound. Raises OptionError."""
    path = Path(text).absolute()
    if not path.is_dir():
        raise OptionError(f"{option}: there is no directory {path}")
    if set(str(path)) & set(",:"):
        raise OptionError(f"{option}: {path} holds a comma or a colon, which bind paths cannot express")
    return str(path)


def name_of(requirement: str) -> str:
    """The normalized name of what a requirement asks for. Raises OptionError for what is none."""
    try:
        return normalized(Requirement(requirement).name)
    except InvalidRequirement as error:
        raise OptionError(
            f"{requirement!r} is no requirement", "write it as for pip: transformers==4.57.1, or 'torchmetrics>=1.4'"
        ) from error


def read_requirements(path: Path) -> tuple[str, ...]:
    """The requirements of a requirements.txt, and of those that it names; OptionError for other options."""
    found: list[str] = []
    _take(path, found, 0)
    return tuple(found)


def _take(path: Path, found: list[str], depth: int) -> None:
    if depth > 10:
        raise OptionError(f"{path}: files of requirements name each other")
    for number, line in enumerate(_read(path).replace("\\\n", " ").splitlines(), 1):
        text = re.split(r"\s#", line)[0].strip()
        if not text or text.startswith("#"):
            continue
        option, _, rest = text.partition(" ")
        if option in ("-r", "--requirement"):
            _take(path.parent / rest.strip(), found, depth + 1)
        elif option.startswith("-"):
            raise OptionError(
                f"{path}:{number}: {option} is not read here", "uv's own settings (uv.toml, UV_…) say where to look"
            )
        else:
            if "--hash" in text:
                raise OptionError(
                    f"{path}:{number}: digests are not read here", "`sifmod sync` takes a lock, which has them"
                )
            found.append(text)


def read_lock(path: Path) -> str:
    return _read(path)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise OptionError(f"{path} has more than {_LARGEST} bytes")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise OptionError(f"there is no file {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from error


# run by the image's own Python, since only that one knows its path, its `.pth` files and its markers
PROBE = """
import importlib.metadata, json, os, sys
found = {}
def modules(one):
    names = (one.read_text("top_level.txt") or "").split() or (one.read_text("RECORD") or "").splitlines()
    names = (name.partition(",")[0].partition("/")[0] for name in names)
    return sorted({name.partition(".")[0] for name in names if not name.endswith("-info")} - {"", "__pycache__"})
for one in importlib.metadata.distributions():
    name = one.metadata["Name"]
    if name and name not in found:
        pure = "Root-Is-Purelib: false" not in (one.read_text("WHEEL") or "")
        extras = one.metadata.get_all("Provides-Extra") or []
        place = os.path.abspath(str(getattr(one, "_path", "")))
        place = place if os.path.exists(place) else sys.prefix
        found[name] = [name, one.version, pure, one.requires or [], extras, place, modules(one)]
with open(sys.argv[1], "w") as file:
    json.dump([sys.executable, sys.prefix, list(sys.version_info[:3]), list(found.values())], file)
"""


@dataclass(frozen=True)
class Distribution:
    """One that the image holds, as it says itself; `pure`: without compiled code."""

    name: str
    version: str
    pure: bool
    requires: tuple[str, ...]  # as its Requires-Dist say
    extras: tuple[str, ...]
    place: str  # of its metadata, a path inside, which has the version in its name
    modules: tuple[str, ...]  # what can be imported of it, without what is in packages

    @property
    def key(self) -> str:
        """Its name as PEP 503 spells it."""
        return normalized(self.name)

    @property
    def needs(self) -> frozenset[str]:
        """The names of what it needs, without what its extras do."""
        names = (re.match("[A-Za-z0-9._-]+", text) for text in self.requires if "extra ==" not in text)
        return frozenset(normalized(name[0]) for name in names if name)


@dataclass(frozen=True)
class ImagePython:
    """A Python inside an image: paths there, version as (3, 11, 2), and its distributions by normalized name."""

    executable: str
    prefix: str
    version: tuple[int, int, int]
    distributions: dict[str, Distribution]
    names: tuple[str, ...]  # of what stays as it is, `*` at the end for all that begin so

    @property
    def short(self) -> str:
        """Its version as directories spell it: 3.11."""
        return ".".join(map(str, self.version[:2]))

    def is_named(self, key: str) -> bool:
        return any(key.startswith(one[:-1]) if one.endswith("*") else key == one for one in self.names)

    @cached_property
    def protected(self) -> dict[str, Distribution]:
        """The distributions that stay: those with one of the names, and all compiled ones that need one of them."""
        kept = {key: one for key, one in self.distributions.items() if self.is_named(key)}
        while more := {
            key: one
            for key, one in self.distributions.items()
            if key not in kept and not one.pure and one.needs & kept.keys()
        }:
            kept |= more
        return kept

    @property
    def first(self) -> Distribution | None:
        """What the image is built around, for short: torch, else another one that stays, if there is any."""
        return self.protected.get("torch") or next(iter(self.protected.values()), None)

    @cached_property
    def kept_modules(self) -> dict[str, Distribution]:
        """What can be imported of distributions that stay, and of one alone: of `nvidia` many have a part."""
        count = Counter(name for one in self.distributions.values() for name in one.modules)
        return {name: one for one in self.protected.values() for name in one.modules if count[name] == 1}

    def broken_by(self, added: dict[str, str]) -> tuple[str, ...]:
        """What distributions of the image ask of others that these (name → version) do not give, and the image did."""
        told = []
        for one in self.distributions.values():
            for need in filter(None, map(_requirement, one.requires)):
                key = normalized(need.name)
                if one.key in added or key not in added or (need.marker and not need.marker.evaluate({"extra": ""})):
                    continue
                before = self.distributions.get(key)
                if need.specifier.contains(added[key], prereleases=True):
                    continue
                if before and need.specifier.contains(before.version, prereleases=True):
                    told.append(f"{one.name} {one.version} of the image needs {need.name}{need.specifier}")
        return tuple(told)


def image_python(text: str, names: tuple[str, ...]) -> ImagePython:
    """What PROBE wrote. Raises ImageError for anything else: it comes from a program of the image."""
    try:
        executable, prefix, version, found = json.loads(text)
        distributions = [_distribution(fields) for fields in found if _is_named(*fields[:2])]
        major, minor, micro = map(int, version)
    except (ValueError, TypeError, RecursionError) as error:
        raise ImageError("the image's Python does not say what it holds") from error
    by_key = {one.key: one for one in reversed(distributions)}
    return ImagePython(str(executable), str(prefix), (major, minor, micro), dict(sorted(by_key.items())), names)


_NAME = re.compile("[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def _distribution(fields: list[Any]) -> Distribution:
    name, version, pure, requires, extras, place, modules = fields
    needs, given, own = (tuple(map(str, one)) for one in (requires, extras, modules))
    return Distribution(str(name), str(version), bool(pure), needs, given, str(place), own)


def _is_named(name: Any, version: Any) -> bool:
    try:
        return bool(_NAME.fullmatch(str(name)) and Version(str(version)))
    except InvalidVersion:
        return False


def _requirement(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


_WRAPPERS = ("python", "python3")
_EXEC = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
_LINKED = "sifmod-linked"
_DAY = 86400  # seconds
_LEFT_OUT = ("PIP_", "PYTHON", "VIRTUAL_ENV", "CONDA_", "UV_PYTHON", "UV_PROJECT", "UV_TARGET", "SIFMOD_LAYER")


@dataclass(frozen=True)
class Inside:
    """Starts the wrapper of a module's Python, as its user does, so that the environment is the module's own.

    `directory` of the host is `target` inside, and may be written there.
    """

    wrapper: Path
    directory: Path
    visible: tuple[str, ...] = ()  # other absolute paths of the host that must be there inside

    target = LAYER_TARGET

    def python(self, *words: str) -> Ended:
        return run_child((str(self.wrapper), *words), cwd=self.directory, env=self._environment())

    def uv(self, *words: str) -> Ended:
        return self.python("-I", "-c", _EXEC, f"{self.target}/work/uv", *words, "--color", "never", "--no-progress")

    def look(self, names: tuple[str, ...]) -> ImagePython:
        """What the image's Python is and holds; `names`: what of it stays. Raises ImageError where it cannot start."""
        answer = self.directory / "work" / "held.json"
        ended = self.python("-c", PROBE, f"{self.target}/work/{answer.name}")
        if ended.code != 0 or not answer.is_file():
            raise ImageError(f"the Python of the image cannot be started: {' '.join(ended.lines[-3:])}")
        return image_python(answer.read_text(), names)

    def check_seen(self, projects: tuple[str, ...]) -> None:
        """Raise OptionError for a directory that is there inside only because it is bound now."""
        code = "import os, sys; sys.exit(not all(map(os.path.isdir, sys.argv[1:])))"
        if projects and replace(self, visible=()).python("-c", code, *projects).code != 0:
            raise OptionError(
                f"{' or '.join(projects)} is not there in the container",
                "keep projects below your home directory, or bind their place: `binds` in the easyconfig or the site",
            )

    def linked(self, held: ExitStack) -> Path:
        """A directory for `lib` that lasts as long as `held`, where uv can link its files instead of copying them.

        A link stays within a mount, so it is in uv's cache. What a killed run left there goes a day later.
        """
        top = uv_cache() / _LINKED
        top.mkdir(exist_ok=True)
        with suppress(OSError):  # another run may be at it
            for old in top.iterdir():
                if time.time() - old.stat().st_mtime > _DAY:
                    shutil.rmtree(old)
        made = Path(tempfile.mkdtemp(dir=top))
        held.callback(shutil.rmtree, made, ignore_errors=True)
        (self.directory / "lib").symlink_to(f"{self.target}/work/cache/{_LINKED}/{made.name}/lib")
        return made

    def _environment(self) -> Mapping[str, str]:
        from uv import find_uv_bin

        work = self.directory / "work"
        cache = uv_cache()
        cache.mkdir(parents=True, exist_ok=True)
        (work / "uv").touch()
        (work / "cache").mkdir(exist_ok=True)
        binds = [
            f"{self.directory}:{self.target}",
            f"{find_uv_bin()}:{self.target}/work/uv:ro",
            f"{cache}:{self.target}/work/cache",
        ]
        places = (*self.visible, *re.split("[ ,]", os.environ.get("UV_FIND_LINKS", "")))
        binds += [path for path in dict.fromkeys(places) if path.startswith("/")]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_LEFT_OUT)}
        if (certificates := environment.get("SSL_CERT_FILE")) and Path(certificates).is_file():
            (work / "certificates.pem").touch()
            binds.append(f"{certificates}:{self.target}/work/certificates.pem:ro")
            environment["SSL_CERT_FILE"] = f"{self.target}/work/certificates.pem"
        environment.pop("SSL_CERT_DIR", None)
        environment |= {"UV_CACHE_DIR": f"{self.target}/work/cache", "SIFMOD_LAYER": ""}
        for prefix in ("SINGULARITY", "APPTAINER"):
            environment[f"{prefix}ENV_PYTHONHASHSEED"] = "0"  # before 3.11 it decides about the bytes of a frozenset
            users = environment.get(f"{prefix}_BIND", "")
            environment[f"{prefix}_BIND"] = ",".join(filter(None, (users, *binds)))
        return environment


def python_wrapper(installation: Installation) -> Path:
    """The command of the module that runs its Python, which it has where `add.check` says so."""
    return next(place for name in _WRAPPERS if (place := Path(installation.root, "bin", name)).is_file())


def uv_cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return Path(os.environ.get("UV_CACHE_DIR") or home / "uv")
