"""Resolve requirements with uv, given the image's packages, to those that must be added.

uv ignores packages that are installed elsewhere (astral-sh/uv#2500), and the image's torch may be on no index. So the
protected distributions, and those with a local version (`2.6.0+cu126`), are wheels with only metadata, in a directory
for `--find-links`. The protected ones are constraints, all others preferences: an earlier lock, which uv follows if
possible. The rest comes from an index, because uv also builds with packages from that directory: a setuptools with only
metadata would break each build. Without an index, or if nothing is built, that directory has all distributions.
"""

import json
import os
import re
import signal
import tomllib
import zipfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote, unquote

from packaging.version import Version

from sifmod.config.redact import without_logins
from sifmod.errors import FetchError, OptionError
from sifmod.image.inspect.python_environments import normalized
from sifmod.image.packages.git_tree import GitSource, git_source
from sifmod.image.packages.image_python import Distribution, ImagePython, read_requirement
from sifmod.image.packages.package_lock import (
    LOCK,
    as_before,
    block_of,
    blocks,
    check_digests,
    check_python,
    held_block,
    one_digest_each,
    repositories,
    vcs_of,
    versions_of,
    without_others,
    without_queries,
)
from sifmod.image.packages.request import LOCK_AGAIN, PackageRequest, check_login, name_of, path_of, project
from sifmod.image.packages.uv import Uv
from sifmod.image.packages.uv_error import uv_error
from sifmod.image.packages.uv_settings import check_indexes, closed_to_others

_NO_DIGEST = "0" * 64
Trees = Mapping[GitSource, tuple[GitSource, str]]  # by requested source: the one with its commit, its directory for uv
_CRASHED = (-signal.SIGABRT, -signal.SIGSEGV, 128 + signal.SIGABRT, 128 + signal.SIGSEGV)  # also as a shell says it
_REQUIRED = re.compile(r'^archive = \{ url = "([^"]*)"', re.MULTILINE)
_CHOSEN = re.compile(r"DEBUG Selecting: ([\w.-]+)==(\S+)")


@dataclass(frozen=True)
class Resolved:
    """The packages to add: their lock as text, and their versions by normalized name."""

    lock: str
    added: Mapping[str, str]  # "" for the version of a project here or in a repository
    requirements: tuple[str, ...]  # that the lock was resolved from
    repositories: tuple[tuple[str, GitSource], ...] = ()  # of packages in the lock, by normalized name
    fetched: str = ""  # the lock to install from, with the queries of its URLs; others must not read it


def resolve(
    python: ImagePython,
    wanted: PackageRequest,
    earlier: str,
    uv: Uv,
    trees: Trees = MappingProxyType({}),
    named: Collection[str] = (),
) -> Resolved:
    """The distributions to add, in versions compatible with the image's own; `earlier` is a lock to follow, or "".

    Except for those `named`, a distribution in the same version as in the earlier lock has the same files. `trees`: the
    project of each requested repository, and its directory for uv. Raises OptionError, with the reason, if there are no
    such distributions, or none with the required digests, and FetchError if an index cannot be asked, a package would
    have to be compiled (NoWheelError), or uv crashes.
    """
    place = uv.place
    trees_here = (Path(tree.replace(place, str(uv.directory), 1)) for _, tree in trees.values())
    for directory in (
        *trees_here,
        *map(Path, dict(wanted.projects).values()),
        *map(Path, map(project, wanted.editable)),
    ):
        check_indexes(directory)
    with closed_to_others(uv.directory):
        try:
            written = _compiled(python, wanted, earlier, uv, trees)
        finally:
            (uv.directory / LOCK).unlink(missing_ok=True)  # its URLs may be signed
    for url in _REQUIRED.findall(written):  # by a package, whose metadata would have the login too
        check_login(url, "the URL of a required package")
    _check_named(written, wanted, trees, place)
    lock = without_logins(written)  # uv writes the URLs of its variables into the lock, with their logins
    sources = {name_of(text): trees[source][0] for text in wanted.requirements if (source := git_source(text))}
    resolved = _held_to(wanted, _without(python, lock, wanted, sources))
    lock = as_before(resolved.lock, earlier, named)
    return replace(resolved, lock=without_queries(lock), fetched=lock)


def _compiled(python: ImagePython, wanted: PackageRequest, earlier: str, uv: Uv, trees: Trees) -> str:
    """The lock that uv writes. Raises as `resolve`."""
    work, place, kept = uv.directory, uv.place, python.protected
    in_image = python.distributions.values()
    all_as_metadata = not {"--no-index", "--only-binary"}.isdisjoint(wanted.words)
    visible = [one for one in in_image if all_as_metadata or one.key in kept or "+" in one.version]
    _write_metadata_wheels(visible, work / "in_image")
    (work / LOCK).write_text(_preferences(python, earlier))
    (work / "kept.txt").write_text("".join(f"{key}=={one.version}\n" for key, one in kept.items()))
    (work / "constraints.txt").write_text("".join(f"{line}\n" for line in wanted.constraints or ()))
    lines = (*(_as_read(text, trees) for text in wanted.requirements), *(f"-e {path}" for path in wanted.editable))
    (work / "wanted.in").write_text("".join(f"{line}\n" for line in lines))
    words = ("pip", "compile", f"{place}/wanted.in", *wanted.words, "--no-header", "--quiet")
    words += ("--constraints", f"{place}/kept.txt", "--constraints", f"{place}/constraints.txt")
    words += ("--find-links", f"{place}/in_image", *(f"--refresh-package={name}" for name, _ in wanted.projects))
    ended = uv.run(*words, "--format", LOCK, "--output-file", f"{place}/{LOCK}")
    if ended.code in _CRASHED:  # without a word about the package
        loud = uv.run(*(word for word in words if word != "--quiet"), "--verbose", "--format", LOCK)
        chosen = [found.groups() for found in map(_CHOSEN.search, loud.lines) if found]
        last = f"; the last package that it chose was {' '.join(chosen[-1])}" if chosen else ""
        raise FetchError(f"uv crashed{last}", "use another version of this package, or leave it out" if last else "")
    if ended.code != 0:
        raise uv_error(ended.lines, python, wanted)
    return (work / LOCK).read_text()


def _check_named(lock: str, wanted: PackageRequest, trees: Trees, place: str) -> None:
    """Raise OptionError for a repository or directory that only a package names: nothing would install it.

    Nor may a package name a file here: the layer would show it to all who read the layer.
    """
    named = (*map(project, wanted.editable), *dict(wanted.projects).values())
    known = set(map(os.path.realpath, (*named, *(tree for _, tree in trees.values()))))
    known |= {os.path.realpath(path) for path in map(path_of, wanted.requirements) if path}
    for package in tomllib.loads(lock).get("packages", []):
        if "vcs" in package:
            raise OptionError(
                f"{package['name']} is required from a repository by another package",
                "a dependency must be in an index: use a version of that package that requires it from there",
            )
        if "directory" in package and os.path.realpath(Path(place, package["directory"]["path"])) not in known:
            raise OptionError(
                f"{package['name']} is required from a directory by another package", "name that directory as well"
            )
        archive = package.get("archive", {})
        file = archive.get("path") or unquote(archive.get("url", "").partition("file://")[2])
        if file and os.path.realpath(Path(place, file)) not in known:
            raise OptionError(
                f"{package['name']} is required from a file here by another package", "name that file as well"
            )


def _as_read(requirement: str, trees: Trees) -> str:
    """A requirement, with the path of its tree if it names a repository."""
    if (source := git_source(requirement)) is None:
        return requirement
    name, _, rest = requirement.partition("@ git+")
    _, separator, marker = rest.partition(" ;")
    return f"{name}@ file://{quote(trees[source][1])}{separator}{marker}"


def _write_metadata_wheels(distributions: Iterable[Distribution], directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    for one in distributions:
        stem = f"{one.key.replace('-', '_')}-{one.version}"
        metadata = [("Metadata-Version", "2.1"), ("Name", one.name), ("Version", one.version)]
        metadata += [("Provides-Extra", name) for name in one.extras]
        # uv refuses a version with an invalid requirement, or one with a location; but the image has it already
        needs = ((text, read_requirement(text)) for text in one.requires)
        metadata += [("Requires-Dist", text) for text, need in needs if need and not need.url]
        with zipfile.ZipFile(directory / f"{stem}-py3-none-any.whl", "w") as wheel:
            text = "".join(f"{name}: {' '.join(value.split())}\n" for name, value in metadata)
            wheel.writestr(f"{stem}.dist-info/METADATA", text)
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")


def _preferences(python: ImagePython, earlier: str) -> str:
    """A lock of the image's packages, and those of an earlier lock."""
    versions = {key: one.version for key, one in python.distributions.items()} | versions_of(earlier)
    blocks = (
        f'[[packages]]\nname = "{name}"\nversion = "{version}"\n'
        f'wheels = [{{ url = "https://image.invalid/{name.replace("-", "_")}-{version}-py3-none-any.whl",'
        f' hashes = {{ sha256 = "{_NO_DIGEST}" }} }}]\n'
        for name, version in versions.items()
    )
    return "\n".join(('lock-version = "1.0"\ncreated-by = "sifmod"\n', *(blocks if versions else ("packages = []\n",))))


def _without(python: ImagePython, lock: str, wanted: PackageRequest, sources: Mapping[str, GitSource]) -> Resolved:
    """The lock without packages that the image has in the same version, and with the request in its table for tools.

    A tree of `sources` is replaced by its repository and commit; local projects are left out. Raises OptionError.
    """
    count = len(tomllib.loads(lock).get("packages", []))
    lock = lock.partition("\n[tool.sifmod]\n")[0].rstrip("\n") + "\n"
    head, *packages = blocks(lock)
    versions, added, left = versions_of(lock), dict[str, str](), []
    tool = tomllib.loads(lock).get("tool", {})
    if len(packages) != count or not isinstance(tool, dict) or "sifmod" in tool:
        raise OptionError("the lock does not list its packages as [[packages]], one after the other, as uv writes them")
    projects = dict(wanted.projects)
    for block in packages:
        (package,) = tomllib.loads(block)["packages"]
        key = normalized(package["name"])
        own = python.distributions.get(key)
        if "directory" in package:
            if source := sources.get(key):
                left.append(block_of({"name": package["name"], "vcs": vcs_of(source)}))
            if source or key in projects:
                added[key] = ""
        elif not (own and key in versions and Version(own.version) == Version(versions[key])):
            added[key] = versions.get(key, "")
            left.append(block)
    portable = (_portable(text, versions) for text in wanted.requirements)
    array = "".join(f"    {json.dumps(text)},\n" for text in portable if text)
    tail = f"\n[tool.sifmod]\nrequirements = [\n{array}]\n"
    lock = "".join((head, *left)).rstrip("\n") + "\n" + tail
    return Resolved(lock, added, wanted.requirements, tuple(sources.items()), lock)


def _portable(requirement: str, versions: Mapping[str, str]) -> str:
    """A requirement for other machines: a local file by its version; "" for a local project."""
    if path_of(requirement) is None:
        return requirement
    version = versions.get(name_of(requirement))
    return f"{requirement.partition(' @ ')[0]}=={version}" if version else ""


def _held_to(wanted: PackageRequest, resolved: Resolved) -> Resolved:
    """`resolved` with only the files that have the required digests.

    As with pip, if all requirements have digests, dependencies must have them too. Raises OptionError.
    """
    if not wanted.digests:
        return resolved
    digests = dict(wanted.digests)
    all_named = not wanted.editable and {name_of(text) for text in wanted.requirements} <= digests.keys()
    head, *packages = blocks(resolved.lock.partition("\n[tool.sifmod]\n")[0] + "\n")
    held = [held_block(block, digests, all_named=all_named) for block in packages]
    tail = resolved.lock[resolved.lock.index("\n[tool.sifmod]\n") :]
    return replace(resolved, lock="".join((head, *held)).rstrip("\n") + "\n" + tail)


def followed(python: ImagePython, lock: str) -> Resolved:
    """The packages to add by a `lock` that was made elsewhere, without those whose marker does not hold.

    Raises OptionError if it is for another Python, and if it has no packages, a directory, another version of a
    protected package, or a file without a digest.
    """
    kept = python.protected
    lock = without_others(lock, python.meets)
    check_python(lock, python.short)
    versions = versions_of(lock)
    sources = repositories(lock)
    if not (versions or sources) or any("directory" in one for one in tomllib.loads(lock)["packages"]):
        raise OptionError(
            "the lock has no packages, or one with a directory",
            "only lock packages from an index; `sifmod add -e` adds a directory to a layer",
        )
    for key, version in versions.items():
        if (own := kept.get(key)) and Version(own.version) != Version(version):
            raise OptionError(
                f"the lock has {own.name} {version}; the image has {own.name} {own.version}, which stays",
                "resolve the requirements again: with `sifmod add --onto` for a layer, with `pip` for a recipe",
            )
    try:
        wanted = [name_of(text) and text for text in tomllib.loads(lock)["tool"]["sifmod"]["requirements"]]
    except (KeyError, TypeError):
        wanted = [f"{key}=={version}" for key, version in versions.items()]
        wanted += [f"{key} @ {source.spelled}" for key, source in sources.items()]
    resolved = _without(python, lock, PackageRequest(tuple(wanted)), sources)
    try:
        check_digests(resolved.lock)
        one_digest_each(resolved.lock)
    except (ValueError, TypeError) as error:  # also `tool = {}`, which cannot have a table [tool.sifmod] as well
        raise OptionError(f"this is not a PEP 751 lock: {error}", LOCK_AGAIN) from error
    return resolved
