"""What must be added to an image for some requirements: resolved by uv, which is told what the image holds.

uv does not look at what is installed elsewhere (astral-sh/uv#2500), and the image's torch may be on no index. So each
distribution of the image is a wheel of metadata alone, in a directory for `--find-links`; the protected ones are
constraints, and the others preferences: an earlier lock, which uv keeps to where it can.
"""

import re
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sifmod.actions.layer.image_python import Distribution, ImagePython
from sifmod.actions.layer.inside import Inside
from sifmod.errors import FetchError, OptionError
from sifmod.image.inspect.python import normalized

LOCK = "pylock.toml"  # PEP 751
_NO_DIGEST = "0" * 64
_NEEDS = re.compile(
    r"(?P<who>[\w.-]+)==(?P<version>\S+) depends on (?P<needs>[\w.-]+)(?P<bound>[<>=!~][^\s,]*(?:,[<>=!~][^\s,]*)*)"
)
_UNKNOWN = re.compile(r"Because ([\w.-]+) was not found in the package registry")


@dataclass(frozen=True)
class Resolved:
    """What is added: the lock of it as text, and its versions by normalized name."""

    lock: str
    added: Mapping[str, str]


@dataclass(frozen=True)
class Wanted:
    """What is asked for: requirements as people write them, directories of projects, and where wheels are found."""

    requirements: tuple[str, ...]
    editable: tuple[str, ...] = ()  # absolute paths
    find_links: tuple[str, ...] = ()  # absolute paths, or URLs
    options: tuple[str, ...] = ()  # for uv: --no-index, --no-build-isolation


def resolve(
    python: ImagePython, kept: Mapping[str, Distribution], wanted: Wanted, earlier: str, inside: Inside
) -> Resolved:
    """The distributions to add, in versions that go with the image's own; `earlier` is a lock to keep to, or "".

    Raises OptionError where there are none, with the reason, and FetchError where an index cannot be asked.
    """
    work = inside.directory / "work"
    _write_stubs(python, work / "held")
    (work / LOCK).write_text(_preferences(python, earlier))
    (work / "kept.txt").write_text("".join(f"{key}=={one.version}\n" for key, one in kept.items()))
    lines = (*wanted.requirements, *(f"-e {path}" for path in wanted.editable))
    (work / "wanted.in").write_text("".join(f"{line}\n" for line in lines))
    place = f"{inside.target}/work"
    words = (
        "pip",
        "compile",
        f"{place}/wanted.in",
        "--constraints",
        f"{place}/kept.txt",
        "--find-links",
        f"{place}/held",
    )
    options = (*wanted.options, *(word for link in wanted.find_links for word in ("--find-links", link)))
    ended = inside.uv(*words, *options, "--format", LOCK, "--output-file", f"{place}/{LOCK}", "--no-header", "--quiet")
    if ended.code != 0:
        raise _explained(ended.lines, kept)
    return _without(python, (work / LOCK).read_text())


def _write_stubs(python: ImagePython, directory: Path) -> None:
    """A wheel of metadata for each distribution of the image."""
    directory.mkdir()
    for key, one in python.distributions.items():
        stem = f"{key.replace('-', '_')}-{one.version}"
        metadata = [("Metadata-Version", "2.1"), ("Name", one.name), ("Version", one.version)]
        metadata += [("Provides-Extra", name) for name in one.extras] + [
            ("Requires-Dist", need) for need in one.requires
        ]
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
        f'wheels = [{{ url = "https://held.invalid/{name.replace("-", "_")}-{version}-py3-none-any.whl",'
        f' hashes = {{ sha256 = "{_NO_DIGEST}" }} }}]\n'
        for name, version in versions.items()
    )
    return "\n".join(('lock-version = "1.0"\ncreated-by = "sifmod"\n', *blocks))


def versions_of(lock: str) -> dict[str, str]:
    """The versions that a lock names, by normalized name; those of directories have none and are left out.

    Raises OptionError for a text that is no lock.
    """
    try:
        packages = tomllib.loads(lock).get("packages", [])
        return {normalized(one["name"]): one["version"] for one in packages if "version" in one}
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise OptionError(f"this is no lock of PEP 751: {error}") from error


def _without(python: ImagePython, lock: str) -> Resolved:
    """The lock without what the image holds in the same version."""
    head, *blocks = re.split(r"^(?=\[\[packages\]\])", lock, flags=re.MULTILINE)
    added: dict[str, str] = {}
    left = []
    for block in blocks:
        (package,) = tomllib.loads(block)["packages"]
        key, version = normalized(package["name"]), package.get("version", "")
        held = python.distributions.get(key)
        if (held is None or held.version != version) and "directory" not in package:
            added[key] = version
            left.append(block)
    return Resolved("".join((head, *left)), added)


def _explained(lines: Sequence[str], kept: Mapping[str, Distribution]) -> OptionError | FetchError:
    text = " ".join(line.strip() for line in lines)
    for found in _NEEDS.finditer(text):
        if held := kept.get(normalized(found["needs"])):
            return OptionError(
                f"{found['who']} {found['version']} needs {found['needs']} {_spoken(found['bound'])};"
                f" the image has {held.name} {held.version}",
                f"ask for another version, or leave the version open: the newest that goes with {held.name}"
                f" {held.version} is then taken",
            )
    if found := _UNKNOWN.search(text):
        return OptionError(f"there is no package {found[1]} on the index", "look at its spelling on https://pypi.org")
    for key, held in kept.items():
        if found := re.search(rf"you require {re.escape(key)}(\S+)", text):
            return OptionError(
                f"{held.name}{found[1]} is asked for; the image has {held.name} {held.version}, which stays"
            )
    told = "\n".join(lines[-12:])
    if "No solution found" in text:
        return OptionError(f"no versions fit together:\n{told}")
    return FetchError(f"uv could not resolve this:\n{told}")


def _spoken(bound: str) -> str:
    return bound.removeprefix("==") if bound.startswith("==") else bound


def given_lock(python: ImagePython, kept: Mapping[str, Distribution], lock: str, inside: Inside) -> Resolved:
    """The lock that was made elsewhere. Raises OptionError where it names another version of what the image keeps."""
    for key, version in versions_of(lock).items():
        if (held := kept.get(key)) and held.version != version:
            raise OptionError(
                f"the lock has {held.name} {version}; the image has {held.name} {held.version}, which stays",
                "`sifmod add --onto` resolves what was asked for on this image",
            )
    del inside
    return _without(python, lock)
