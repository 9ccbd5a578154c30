"""Package locks (PEP 751) as uv writes them: their packages and digests."""

import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from sifmod.errors import OptionError
from sifmod.image.inspect.python_environments import normalized
from sifmod.image.packages.git_tree import GitSource
from sifmod.image.packages.request import LOCK_AGAIN
from sifmod.image.packages.uv_settings import has_own_login, toml_value
from sifmod.secret import cut

LOCK = "pylock.toml"
_CHOSEN = re.compile(r"^(?!archive = |vcs = ).*$", re.MULTILINE)  # the lines without URLs that a user typed
_QUERY = re.compile(r'\b((?:url|index)"? = "[^"?#]*)[?#][^"]*')
_URL = re.compile(r'\b(?:url|index)"? = "([^"]*)"')
_SHOWN = 300  # characters of a reason, which may repeat the text
_RELEASES = 64  # more than any X.Y of Python has had
_VERSIONLESS = frozenset({"vcs", "directory", "archive"})
_STRONG = frozenset({"sha256", "sha384", "sha512"})


def versions_of(lock: str) -> dict[str, str]:
    """The versions in a lock, by normalized name, without packages that need none, such as directories.

    Raises OptionError for a text that is not a lock.
    """
    try:
        packages = tomllib.loads(lock).get("packages", [])
        if not isinstance(packages, list) or not all(isinstance(one.get("wheels", []), list) for one in packages):
            raise TypeError("its packages, or the wheels of one, are not a list")
        versions = {normalized(one["name"]): _version(one) for one in packages}
        return {key: version for key, version in versions.items() if version is not None}
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # ValueError: also a number of 5000 digits
        raise OptionError(f"this is not a PEP 751 lock: {cut(str(error), _SHOWN)}", LOCK_AGAIN) from error


def _version(package: Mapping[str, Any]) -> str | None:
    if "version" not in package and not _VERSIONLESS.isdisjoint(package):
        return None
    return str(Version(package["version"]))


def pinned(lock: str, *, here: bool = False) -> str:
    """A lock, without its repositories, as requirements with the digests of all files, which pip and uv enforce.

    `here`: a file of this machine is named by its path, which otherwise counts only by its version and digest.
    """
    lines = []
    for one in tomllib.loads(lock).get("packages", []):
        if "vcs" in one:
            continue
        digests = sorted(f"{kind}:{value}" for file in _files(one) for kind, value in file.get("hashes", {}).items())
        url = one.get("archive", {}).get("url")
        path = next((path for file in _files(one) if Path(path := str(file.get("path", ""))).is_file()), "")
        if here and path.startswith("/"):
            url = Path(path).as_uri()
        what = f"{one['name']} @ {url}" if url else f"{one['name']}=={one['version']}"
        lines.append(" ".join((what, *(f"--hash={digest}" for digest in digests))))
    return "".join(f"{line}\n" for line in lines)


def without_repositories(lock: str) -> str:
    """The lock without the packages from repositories; "" if no other is left."""
    head, *packages = blocks(lock)
    kept = [block for block in packages if "vcs" not in tomllib.loads(block)["packages"][0]]
    return "".join((head, *kept)) if kept else ""


def repositories(lock: str) -> dict[str, GitSource]:
    """The packages of a lock that are from repositories, by normalized name.

    Raises OptionError for one that is not in git, or without its commit.
    """
    found = {}
    for one in tomllib.loads(lock).get("packages", []):
        if vcs := one.get("vcs"):
            said = {str(key): str(value) for key, value in vcs.items()} if isinstance(vcs, dict) else {}
            if said.get("type") != "git" or not said.get("commit-id"):
                raise OptionError(f"the lock has no git commit for {one['name']}", LOCK_AGAIN)
            where = (said.get("url", ""), said.get("requested-revision", ""), said.get("subdirectory", ""))
            found[normalized(one["name"])] = GitSource(*where, said["commit-id"])
    return found


def without_queries(lock: str) -> str:
    """A lock without the queries and fragments of an index's URLs: maybe signatures. URLs that a user typed stay.

    Raises OptionError if the path of one contains a login of this user.
    """
    kept = _CHOSEN.sub(lambda line: _QUERY.sub(r"\1", line[0]), lock)
    if any(map(has_own_login, _URL.findall(kept))):
        raise OptionError(
            "a link of an index contains your login for it, which would be stored where other users can read it",
            "ask the index for links without it; or download the files, and name their directory with --find-links",
        )
    return kept


def blocks(lock: str) -> list[str]:
    """The head of a lock, then each package."""
    return re.split(r"^(?=\[\[packages\]\])", lock, flags=re.MULTILINE)


def block_of(package: Mapping[str, object]) -> str:
    """A package as a block of a lock."""
    return "".join(("[[packages]]\n", *(f"{key} = {toml_value(value)}\n" for key, value in package.items()), "\n"))


def vcs_of(source: GitSource) -> dict[str, str]:
    """The table `vcs` of a lock for a repository."""
    said = {"type": "git", "url": source.url, "requested-revision": source.revision, "commit-id": source.commit}
    return {key: value for key, value in {**said, "subdirectory": source.subdirectory}.items() if value}


def held_block(block: str, digests: Mapping[str, tuple[str, ...]], *, all_named: bool) -> str:
    """The block of a package, without the files that have none of the `digests` for its name.

    A package without `digests` is unchanged, unless `all_named`. Raises OptionError then, and if no file remains.
    """
    (package,) = tomllib.loads(block)["packages"]
    said = f"{package['name']} {package.get('version', '')}".strip()
    if (asked := digests.get(normalized(package["name"]))) is None:
        if all_named:
            raise OptionError(
                f"{said} is a dependency without a digest, but all requirements have digests",
                "`uv pip compile --generate-hashes` writes a file with all digests",
            )
        return block

    def good(file: dict[str, Any]) -> bool:
        file.pop("upload-time", None)  # `block_of` cannot write a time
        return file.get("hashes", {}).get("sha256") in asked

    wheels = {"wheels": [file for file in package.pop("wheels", []) if good(file)]}
    others = {kind: package.pop(kind) for kind in ("sdist", "archive") if kind in package}
    left = {kind: file for kind, file in {**wheels, **others}.items() if file and (kind == "wheels" or good(file))}
    if not left:
        raise OptionError(
            f"no file of {said} with a required digest was found",
            "ask the author of the requirements; a file that was replaced since has another digest",
        )
    return block_of({**package, **left})


def as_before(lock: str, earlier: str, named: Collection[str]) -> str:
    """The lock with only the files of the `earlier` one, for each package in the same version that is not `named`.

    Another index may have something else under the same name. Raises OptionError if none of the files is left.
    """
    before, changed = _digests_of(earlier), lock
    for block in blocks(lock.partition("\n[tool.sifmod]\n")[0] + "\n")[1:]:
        ((key, (version, found)),) = _digests_of(block).items()
        old, known = before.get(key, ("", frozenset[str]()))
        if key in named or version != old or not known or found <= known:
            continue
        if not found & known:
            raise OptionError(
                f"{key} {version} has other files than when it was added to the layer",
                f"give the index or directory that it came from; --upgrade, or naming {key}, accepts the other files",
            )
        changed = changed.replace(block.rstrip("\n"), held_block(block, {key: tuple(known)}, all_named=False).rstrip())
    return changed


def _digests_of(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """The version of each package in a lock, "" for none, and the SHA-256 of its files, by normalized name."""
    return {
        normalized(one["name"]): (
            str(one.get("version", "")),
            frozenset(str(file["hashes"].get("sha256")) for file in _files(one) if _strong(file)),
        )
        for one in tomllib.loads(lock).get("packages", [])
    }


def without_others(lock: str, meets: Callable[[Marker], bool]) -> str:
    """The lock without the packages whose marker does not hold, such as those for another system.

    Raises OptionError for an invalid marker, and for a text that is not a lock.
    """
    versions_of(lock)
    head, *packages = blocks(lock)
    kept = [head]
    for block in packages:
        text, begin, tail = block.partition("\n[tool.sifmod]\n")
        try:
            (package,) = tomllib.loads(text)["packages"]
        except ValueError as error:
            raise OptionError("the lock has [[packages]] within a text", LOCK_AGAIN) from error
        try:
            marker = package.get("marker")
            fits = marker is None or meets(Marker(marker))
        except (ValueError, TypeError, RecursionError) as error:  # InvalidMarker, and numbers of 5000 digits
            raise OptionError(f"this is not a PEP 751 lock: marker: {cut(str(error), _SHOWN)}", LOCK_AGAIN) from error
        kept.append(block if fits else begin + tail)
    return "".join(kept)


def with_absolute_paths(lock: str, directory: Path) -> tuple[str, tuple[str, ...]]:
    """The lock with the paths of its files from `directory`, where it is; and those paths that exist.

    Raises OptionError for a text that is not a lock.
    """
    versions_of(lock)
    head, *packages = blocks(lock)
    kept, there = [head], list[str]()
    for block in packages:
        text, begin, tail = block.partition("\n[tool.sifmod]\n")
        try:
            (package,) = tomllib.loads(text)["packages"]
            files = [file for file in _files(package) if "path" in file]
        except (ValueError, TypeError):  # reported by those that follow the lock
            files = []
        for file in files:
            file["path"] = os.path.normpath(directory.absolute() / str(file["path"]))
        there += [file["path"] for file in files if os.path.isfile(file["path"])]  # noqa: PTH113 (no error)
        kept.append("".join((block_of(package), begin, tail)) if files else block)
    return "".join(kept), tuple(there)


def check_python(lock: str, short: str) -> None:
    """Raise OptionError if the lock's `requires-python` is invalid or allows no release of `short`, such as 3.11."""
    try:
        asked = SpecifierSet(tomllib.loads(lock).get("requires-python", ""))
        fits = any(asked.contains(f"{short}.{release}") for release in range(_RELEASES))
    except (ValueError, TypeError, AttributeError) as error:  # InvalidSpecifier, and numbers of 5000 digits
        raise OptionError(
            f"this is not a PEP 751 lock: requires-python: {cut(str(error), _SHOWN)}", LOCK_AGAIN
        ) from error
    if not fits:
        raise OptionError(
            f"the lock is for Python {asked}; the image has {short}", f"create it again for Python {short}"
        )


def one_digest_each(lock: str) -> list[str]:
    """The lock, once for each strong digest of a file, so that all must hold: of several, uv compares any one.

    MD5 and the like stay only beside no strong digest. Raises ValueError or TypeError for what is not a lock.
    """
    files = (file for one in tomllib.loads(lock).get("packages", []) for file in _files(one))
    return [_with_digest(lock, number) for number in range(max([1, *map(len, map(_strong, files))]))]


def _with_digest(lock: str, number: int) -> str:
    """The lock with one strong digest of each file that has any: that of this number, or its last one."""
    head, *packages = blocks(lock)
    for index, block in enumerate(packages):
        text, tool, rest = block.partition("\n[tool.")
        (package,) = tomllib.loads(text)["packages"]
        if all(len(file["hashes"]) == 1 for file in _files(package) if _strong(file)):
            continue
        for file in _files(package):
            file.pop("upload-time", None)  # `block_of` cannot write a time
            if kinds := _strong(file):
                kind = kinds[min(number, len(kinds) - 1)]
                file["hashes"] = {kind: file["hashes"][kind]}
        packages[index] = f"{block_of(package)}{tool.lstrip()}{rest}"
    return "".join((head, *packages))


def check_digests(lock: str) -> None:
    """Raise OptionError for a package with a file without a strong digest: a server could then send any file.

    Strong are SHA-256, SHA-384 and SHA-512. A package from a repository needs no file; any other does.
    """
    for one in tomllib.loads(lock).get("packages", []):
        files = _files(one)
        if not (files or "vcs" in one) or not all(map(_strong, files)):
            raise OptionError(
                f"the lock has no file of {one['name']}, or one without SHA-256, -384 or -512, so it could be replaced",
                LOCK_AGAIN,
            )


def _files(package: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*package.get("wheels", []), *(package[kind] for kind in ("sdist", "archive") if kind in package)]


def _strong(file: object) -> list[str]:
    """The kinds of the collision-resistant digests that a file in a lock has, those of pip."""
    found = file.get("hashes") if isinstance(file, dict) else None
    return sorted(_STRONG.intersection(found)) if isinstance(found, dict) else []
