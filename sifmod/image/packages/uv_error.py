"""Errors for a failed resolution: uv's output, read for what the user can change."""

import os
import re
from collections.abc import Sequence

from sifmod.errors import FetchError, NoPackageError, NoPageError, NoWheelError, OptionError
from sifmod.image.inspect.python_environments import normalized
from sifmod.image.packages.image_python import ImagePython
from sifmod.image.packages.request import KEEP_LOGIN, PackageRequest, name_of, path_of

_LONGEST = 2000  # characters of a line of uv in which a name is looked for: more take quadratic time
_NEEDS = re.compile(
    r"(?:all versions of )?(?P<who>[\w.-]+)(?P<version>[<>=!~]\S+)? depends? on"
    r" (?P<needs>[\w.-]+)(?P<bound>[<>=!~][^\s,]*(?:,[<>=!~][^\s,]*)*)"
)
_NO_WHEEL = re.compile(r"([\w.-]+(?:==[^\s,]+)?) has no (?:usable wheels|wheels with a matching)")
_NO_PAGE = re.compile(r"Failed to read `--find-links` URL: (\S+).*HTTP status client error \((?:403|404|410)\b")
_REFUSED = re.compile(r"An index(?: URL)? \(([^\s)]+)\) .*?(401 Unauthorized|403 Forbidden)")
_UNKNOWN = re.compile(r"Because ([\w.-]+) was not found in the (?:package registry|provided package locations)")


def uv_error(lines: Sequence[str], python: ImagePython, wanted: PackageRequest) -> OptionError | FetchError:
    """The error for the output `lines` of a `uv pip compile` that failed, with the cause in terms of the image."""
    text, kept = " ".join(line.strip()[:_LONGEST] for line in lines), python.protected
    for found in _NEEDS.finditer(text):
        if own := kept.get(normalized(found["needs"])):
            who = f"{found['who']} {(found['version'] or '').removeprefix('==')}".strip()
            bound = found["bound"].removeprefix("==")
            return OptionError(
                f"{who} needs {found['needs']} {bound}; the image has {own.name} {own.version}",
                f"remove the version to get the newest one that is compatible with {own.name} {own.version}, if "
                "there is any",
            )
    if compiled := _NO_WHEEL.search(text):
        return NoWheelError(f"{compiled[1]} has no wheel for this image, so it would have to be compiled")
    unknown = _UNKNOWN.search(text)
    if unknown and (refused := _REFUSED.search(text)):
        return FetchError(
            f"the index {refused[1]} answered {refused[2]}, and was not searched for {unknown[1]}",
            f"check the login: {KEEP_LOGIN}" + "; or the spelling of the package" * refused[2].startswith("403"),
        )
    if unknown:
        return _not_found(unknown[1], python, wanted)
    for key, own in kept.items():
        if asked := re.search(rf"you require {re.escape(key)}([<>=!~][^\s,]*)", text):
            return OptionError(
                f"{own.name}{asked[1]} is required; the image has {own.name} {own.version}, which stays",
                "remove the requirement, or use an image with this version",
            )
    output = "\n".join(lines[-12:])
    if missing := _NO_PAGE.search(text):
        return NoPageError(f"uv could not resolve this:\n{output}", missing[1])
    if "No solution found" in text:
        return OptionError(f"no versions are compatible:\n{output}")
    hint = "set SSL_CERT_FILE to the certificates of your site, such as /etc/ssl/certs/ca-certificates.crt"
    return FetchError(f"uv could not resolve this:\n{output}", hint if "certificate" in text else "")


def _not_found(name: str, python: ImagePython, wanted: PackageRequest) -> NoPackageError:
    if "--no-index" not in wanted.words:
        hint = "check its spelling; UV_INDEX and UV_FIND_LINKS add indexes and directories"
        return NoPackageError(f"the package {name} was not found", hint, (name,))
    names: tuple[str, ...] = (name,)
    where = f"and {', '.join(wanted.places) or 'UV_FIND_LINKS'} has no such file"
    if not (wanted.places or os.environ.get("UV_FIND_LINKS")):  # uv names only one of them
        asked = (name_of(text) for text in wanted.requirements if path_of(text) is None)
        names = tuple(one for one in asked if one not in python.distributions) or names
        where = "and no --find-links is given"
    packages = f"the package {names[0]} was" if len(names) == 1 else f"the packages {', '.join(names)} were"
    hint = "name the directory of the wheels (--find-links DIR), or an index (--index-url URL) instead of --no-index"
    return NoPackageError(f"{packages} not found: --no-index searches no index, {where}", hint, names)
