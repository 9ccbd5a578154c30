"""The Python of a module: its path, and the distributions of its image."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from packaging.markers import Marker, UndefinedComparison
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from sifmod.errors import ImageError
from sifmod.image.inspect.python_environments import normalized

# run by the image's own Python, since only that one knows its path, its `.pth` files and its markers
# if it cannot write its answer, a full disk say, the file is there and the exit code is the errno
PROBE = """
import importlib.metadata, importlib.util, json, os, sys
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
bytecode = "%s %s %d" % (sys.implementation.cache_tag, importlib.util.MAGIC_NUMBER.hex(), sys.flags.optimize)
try:
    with open(sys.argv[1], "w") as file:
        json.dump([sys.executable, sys.prefix, list(sys.version_info[:3]), bytecode, list(found.values())], file)
except OSError as error:
    sys.exit(error.errno)
"""


@dataclass(frozen=True)
class Distribution:
    """A distribution in the image, from its own metadata; `pure`: without compiled code."""

    name: str
    version: str
    pure: bool
    requires: tuple[str, ...]  # its Requires-Dist, unchanged
    extras: tuple[str, ...]
    place: str  # the path of its metadata in the image, which has the version in its name
    modules: tuple[str, ...]  # its top-level import names

    @property
    def key(self) -> str:
        """The distribution's name, normalized as in PEP 503."""
        return normalized(self.name)

    @property
    def needs(self) -> frozenset[str]:
        """The names of the distribution's requirements, without those of its extras."""
        names = (re.match("[A-Za-z0-9._-]+", text) for text in self.requires if "extra ==" not in text)
        return frozenset(normalized(name[0]) for name in names if name)


@dataclass(frozen=True)
class ImagePython:
    """A Python inside an image: paths inside, version as (3, 11, 2), and its distributions by normalized name."""

    executable: str
    prefix: str
    version: tuple[int, int, int]
    bytecode: str  # its kind: equal for interpreters whose bytecode is equal; "" if the interpreter was not asked
    distributions: dict[str, Distribution]
    names: tuple[str, ...]  # of protected distributions; with a `*` at the end, a prefix of names

    @property
    def short(self) -> str:
        """The version as in directory names: 3.11."""
        return ".".join(map(str, self.version[:2]))

    def is_protected_name(self, key: str) -> bool:
        """Whether a normalized name is protected."""
        return is_among(key, self.names)

    @cached_property
    def protected(self) -> dict[str, Distribution]:
        """The protected distributions: those with one of the names, and all compiled ones that need one of them."""
        kept = {key: one for key, one in self.distributions.items() if self.is_protected_name(key)}
        while more := {
            key: one
            for key, one in self.distributions.items()
            if key not in kept and not one.pure and one.needs & kept.keys()
        }:
            kept |= more
        return kept

    @property
    def first(self) -> Distribution | None:
        """The main package of the image: torch, else another protected one; None without one."""
        return self.protected.get("torch") or next(iter(self.protected.values()), None)

    @cached_property
    def own_modules(self) -> dict[str, Distribution]:
        """The distributions by import name, for names that only one distribution has, unlike `nvidia`."""
        count = Counter(name for one in self.distributions.values() for name in one.modules)
        return {name: one for one in self.distributions.values() for name in one.modules if count[name] == 1}

    @cached_property
    def kept_modules(self) -> dict[str, Distribution]:
        """The protected ones of `own_modules`."""
        return {name: one for name, one in self.own_modules.items() if one.key in self.protected}

    def broken_by(self, added: dict[str, str]) -> tuple[str, ...]:
        """A text for each requirement that the image's distributions meet, but not with `added` (name → version)."""
        unmet = []
        for one in self.distributions.values():
            for need in filter(None, map(read_requirement, one.requires)):
                key = normalized(need.name)
                if one.key in added or not added.get(key) or not self._applies(need):
                    continue
                before = self.distributions.get(key)
                if need.specifier.contains(added[key], prereleases=True):
                    continue
                if before and need.specifier.contains(before.version, prereleases=True):
                    unmet.append(f"{one.name} {one.version} of the image needs {need.name}{need.specifier}")
        return tuple(unmet)

    def _applies(self, need: Requirement) -> bool:
        """Whether the marker of a requirement holds for this Python; not if its comparison has no meaning."""
        try:
            return need.marker is None or self.meets(need.marker)
        except UndefinedComparison:
            return False

    def meets(self, marker: Marker) -> bool:
        """Whether a marker holds for this Python, without extras and groups. Raises UndefinedComparison."""
        nothing = frozenset[str]()
        own = {"python_version": self.short, "python_full_version": ".".join(map(str, self.version))}
        return marker.evaluate({"extra": "", "extras": nothing, "dependency_groups": nothing, **own})


def is_among(key: str, names: tuple[str, ...]) -> bool:
    """Whether a normalized name is one of `names`; those with a `*` at the end are prefixes."""
    return any(key.startswith(one[:-1]) if one.endswith("*") else key == one for one in names)


def image_python(text: str, names: tuple[str, ...]) -> ImagePython:
    """Parse the text that PROBE wrote. Raises ImageError if it is invalid: a program of the image wrote it."""
    try:
        executable, prefix, version, bytecode, found = json.loads(text)
        distributions = [_distribution(fields) for fields in found if has_valid_name(*fields[:2])]
        major, minor, micro = map(int, version)
    except (ValueError, TypeError, RecursionError) as error:
        raise ImageError("the image's Python cannot list its packages") from error
    by_key = {one.key: one for one in reversed(distributions)}
    held = dict(sorted(by_key.items()))
    return ImagePython(str(executable), str(prefix), (major, minor, micro), str(bytecode), held, names)


_NAME = re.compile("[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_TOO_LONG = re.compile("[0-9]{600}")  # 4300 digits are too many for Python, and 640 where its user says so


def _distribution(fields: list[Any]) -> Distribution:
    name, version, pure, requires, extras, place, modules = fields
    needs, given, own = (tuple(map(str, one)) for one in (requires, extras, modules))
    return Distribution(str(name), str(version), bool(pure), needs, given, str(place), own)


def has_valid_name(name: Any, version: Any) -> bool:
    """Whether the name and the version are valid, since an image may have any text there."""
    try:
        return bool(_NAME.fullmatch(str(name)) and Version(str(version)))
    except ValueError:  # InvalidVersion, and numbers of 5000 digits
        return False


def read_requirement(text: str) -> Requirement | None:
    """A requirement; None if it is invalid, as in older packages, or has a number that Python does not convert."""
    try:
        return None if _TOO_LONG.search(text) else Requirement(text)
    except InvalidRequirement:
        return None
