"""What must be added to an image for some requirements: resolved by uv, which is told what the image holds.

uv does not look at what is installed elsewhere (astral-sh/uv#2500), and the image's torch may be on no index. So the
protected distributions, and those in a version of the image's own, are wheels of metadata alone, in a directory for
`--find-links`. The protected ones are constraints, all others preferences: an earlier lock, which uv keeps to where it
can. The rest comes from an index, because uv builds with what is in that directory too: a setuptools that is metadata
alone would break each build. Without an index, or where nothing is built, it is all of them.
"""

import json
import re
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from sifmod.config.shown import without_logins
from sifmod.errors import FetchError, NoWheelError, OptionError
from sifmod.image.inspect.python_environments import normalized
from sifmod.image.packages.image_python import Distribution, ImagePython, read_requirement
from sifmod.image.packages.uv import Uv
from sifmod.image.packages.wanted import LOCK_AGAIN, Wanted, name_of

LOCK = "pylock.toml"  # PEP 751
_NO_DIGEST = "0" * 64
_STRONG = frozenset({"sha256", "sha384", "sha512"})
_NEEDS = re.compile(
    r"(?:all versions of )?(?P<who>[\w.-]+)(?P<version>[<>=!~]\S+)? depends? on"
    r" (?P<needs>[\w.-]+)(?P<bound>[<>=!~][^\s,]*(?:,[<>=!~][^\s,]*)*)"
)
_NO_WHEEL = re.compile(r"([\w.-]+(?:==[^\s,]+)?) has no (?:usable wheels|wheels with a matching)")
_UNKNOWN = re.compile(r"Because ([\w.-]+) was not found in the (?:package registry|provided package locations)")


@dataclass(frozen=True)
class Resolved:
    """What is added: the lock of it as text, and its versions by normalized name."""

    lock: str
    added: Mapping[str, str]
    requirements: tuple[str, ...]  # that it follows from


def resolve(python: ImagePython, wanted: Wanted, earlier: str, uv: Uv) -> Resolved:
    """The distributions to add, in versions that go with the image's own; `earlier` is a lock to keep to, or "".

    Raises OptionError where there are none, with the reason, and FetchError where an index cannot be asked.
    """
    work, place, kept = uv.directory, uv.place, python.protected
    in_image = python.distributions.values()
    all_as_metadata = not {"--no-index", "--only-binary"}.isdisjoint(wanted.words)
    told = [one for one in in_image if all_as_metadata or one.key in kept or "+" in one.version]
    _write_metadata_wheels(told, work / "in_image")
    (work / LOCK).write_text(_preferences(python, earlier))
    (work / "kept.txt").write_text("".join(f"{key}=={one.version}\n" for key, one in kept.items()))
    lines = (*wanted.requirements, *(f"-e {path}" for path in wanted.editable))
    (work / "wanted.in").write_text("".join(f"{line}\n" for line in lines))
    words = ("pip", "compile", f"{place}/wanted.in", *wanted.words, "--no-header", "--quiet")
    words += ("--constraints", f"{place}/kept.txt", "--find-links", f"{place}/in_image")
    ended = uv.run(*words, "--format", LOCK, "--output-file", f"{place}/{LOCK}")
    if ended.code != 0:
        raise _explained(ended.lines, kept)
    # uv writes down what a variable of an index says
    return _without(python, without_logins((work / LOCK).read_text()), wanted.requirements)


def _write_metadata_wheels(distributions: Iterable[Distribution], directory: Path) -> None:
    directory.mkdir()
    for one in distributions:
        stem = f"{one.key.replace('-', '_')}-{one.version}"
        metadata = [("Metadata-Version", "2.1"), ("Name", one.name), ("Version", one.version)]
        metadata += [("Provides-Extra", name) for name in one.extras]
        # uv takes no version whose needs it cannot read, and none that names a place; this one is there
        needs = ((text, read_requirement(text)) for text in one.requires)
        metadata += [("Requires-Dist", text) for text, need in needs if need and not need.url]
        with zipfile.ZipFile(directory / f"{stem}-py3-none-any.whl", "w") as wheel:
            text = "".join(f"{name}: {' '.join(value.split())}\n" for name, value in metadata)
            wheel.writestr(f"{stem}.dist-info/METADATA", text)
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")


def _preferences(python: ImagePython, earlier: str) -> str:
    """A lock of what the image holds, and of what an earlier lock names."""
    versions = {key: one.version for key, one in python.distributions.items()} | versions_of(earlier)
    blocks = (
        f'[[packages]]\nname = "{name}"\nversion = "{version}"\n'
        f'wheels = [{{ url = "https://image.invalid/{name.replace("-", "_")}-{version}-py3-none-any.whl",'
        f' hashes = {{ sha256 = "{_NO_DIGEST}" }} }}]\n'
        for name, version in versions.items()
    )
    return "\n".join(('lock-version = "1.0"\ncreated-by = "sifmod"\n', *(blocks if versions else ("packages = []\n",))))


def versions_of(lock: str) -> dict[str, str]:
    """The versions that a lock names, by normalized name; those of directories have none and are left out.

    Raises OptionError for a text that is no lock.
    """
    try:
        packages = tomllib.loads(lock).get("packages", [])
        return {normalized(one["name"]): str(Version(one["version"])) for one in packages if "version" in one}
    except (tomllib.TOMLDecodeError, InvalidVersion, KeyError, TypeError, AttributeError) as error:
        raise OptionError(f"this is no lock of PEP 751: {error}", LOCK_AGAIN) from error


def pinned(lock: str) -> str:
    """A lock as requirements with the digests of all files, which pip and uv hold what they find to."""
    lines = []
    for one in tomllib.loads(lock).get("packages", []):
        files = [*one.get("wheels", []), *(one[kind] for kind in ("sdist", "archive") if kind in one)]
        digests = sorted(f"{kind}:{value}" for file in files for kind, value in file.get("hashes", {}).items())
        what = f"{one['name']} @ {one['archive']['url']}" if "archive" in one else f"{one['name']}=={one['version']}"
        lines.append(" ".join((what, *(f"--hash={digest}" for digest in digests))))
    return "".join(f"{line}\n" for line in lines)


def _without(python: ImagePython, lock: str, requirements: tuple[str, ...]) -> Resolved:
    """The lock without what the image holds in the same version, and with what was asked for in its table for tools."""
    lock = lock.partition("\n[tool.sifmod]\n")[0].rstrip("\n") + "\n"
    head, *blocks = re.split(r"^(?=\[\[packages\]\])", lock, flags=re.MULTILINE)
    versions, added, left = versions_of(lock), dict[str, str](), []
    if len(blocks) != len(tomllib.loads(lock).get("packages", [])):
        raise OptionError("the lock does not have its packages as [[packages]], one after the other, as uv writes them")
    for block in blocks:
        (package,) = tomllib.loads(block)["packages"]
        key = normalized(package["name"])
        own = python.distributions.get(key)
        if "directory" not in package and not (own and key in versions and _same(own.version, versions[key])):
            added[key] = versions.get(key, "")
            left.append(block)
    told = "".join(f"    {json.dumps(text)},\n" for text in requirements)
    tail = f"\n[tool.sifmod]\nrequirements = [\n{told}]\n"
    return Resolved("".join((head, *left)).rstrip("\n") + "\n" + tail, added, requirements)


def followed(python: ImagePython, lock: str) -> Resolved:
    """A lock that was made elsewhere.

    Raises OptionError where it has another version of what the image keeps, or a file without a digest.
    """
    kept = python.protected
    if not (versions := versions_of(lock)) or any("directory" in one for one in tomllib.loads(lock)["packages"]):
        raise OptionError(
            "the lock names no packages, or one by its directory",
            "lock packages that an index has; `sifmod add -e` adds a directory to a layer",
        )
    for key, version in versions.items():
        if (own := kept.get(key)) and not _same(own.version, version):
            raise OptionError(
                f"the lock has {own.name} {version}; the image has {own.name} {own.version}, which stays",
                "resolve what was asked for again: `sifmod add --onto` does so for a layer, `pip` for a recipe",
            )
    try:
        told = [name_of(text) and text for text in tomllib.loads(lock)["tool"]["sifmod"]["requirements"]]
    except (KeyError, TypeError):
        told = [f"{key}=={version}" for key, version in versions.items()]
    resolved = _without(python, lock, tuple(told))
    _check_digests(resolved.lock)
    return resolved


def _check_digests(lock: str) -> None:
    """Raise OptionError for a package whose files are not named by digests: what answers for them could give any."""
    for one in tomllib.loads(lock).get("packages", []):
        files = [*one.get("wheels", []), *(one[kind] for kind in ("sdist", "archive") if kind in one)]
        if not (files or "vcs" in one) or not all(map(_has_digest, files)):
            raise OptionError(
                f"the lock has no SHA-256 for a file of {one['name']}, so another one could come in its place",
                LOCK_AGAIN,
            )


def _has_digest(file: object) -> bool:
    """Whether a file in a lock has a digest that nobody makes another file for, as pip has it, too."""
    found = file.get("hashes") if isinstance(file, dict) else None
    return isinstance(found, dict) and not _STRONG.isdisjoint(found)


def _same(one: str, other: str) -> bool:
    return Version(one) == Version(other)


def _explained(lines: Sequence[str], kept: Mapping[str, Distribution]) -> OptionError | FetchError:
    text = " ".join(line.strip() for line in lines)
    for found in _NEEDS.finditer(text):
        if own := kept.get(normalized(found["needs"])):
            who = f"{found['who']} {_spoken(found['version'] or '')}".strip()
            return OptionError(
                f"{who} needs {found['needs']} {_spoken(found['bound'])}; the image has {own.name} {own.version}",
                f"leave the version open for the newest one that goes with {own.name} {own.version}, if there is any",
            )
    if compiled := _NO_WHEEL.search(text):
        return NoWheelError(f"{compiled[1]} has no wheel for this image, and would have to be compiled")
    if unknown := _UNKNOWN.search(text):
        return OptionError(
            f"there is no package {unknown[1]} where packages are looked for",
            "look at its spelling; UV_INDEX and UV_FIND_LINKS name more places",
        )
    for key, own in kept.items():
        if asked := re.search(rf"you require {re.escape(key)}([<>=!~][^\s,]*)", text):
            return OptionError(
                f"{own.name}{asked[1]} is asked for; the image has {own.name} {own.version}, which stays",
                "leave it out, or take an image that has this version",
            )
    told = "\n".join(lines[-12:])
    if "No solution found" in text:
        return OptionError(f"no versions fit together:\n{told}")
    hint = "for a certificate of your site's own authority name its file in SSL_CERT_FILE, or set UV_SYSTEM_CERTS=1"
    return FetchError(f"uv could not resolve this:\n{told}", hint if "certificate" in text else "")


def _spoken(bound: str) -> str:
    return bound.removeprefix("==") if bound.startswith("==") else bound
