"""Wheels of the running sifmod and its dependencies, made from their installed files without network or checkout.

A distribution's files are those in its RECORD. If sifmod is imported from elsewhere (an editable install, a checkout),
the imported files go into the wheel.
"""

import base64
import hashlib
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sifmod
from sifmod import __version__
from sifmod.config.find import shipped
from sifmod.digest import sha256_bytes, sha256_file
from sifmod.errors import InstallError

_NOT_PACKED = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD")  # files of one installation only
_OWN = "sifmod"
_HINT = "reinstall it, or leave sifmod out with --no-wheels"


def own_digest() -> str:
    """The SHA-256 of the names and digests of all files of the running sifmod."""
    lines = [f"{name} {sha256_file(path)}\n" for name, path in sorted(_imported().items())]
    return sha256_bytes("".join(lines).encode())


def write_own_wheels(directory: Path) -> None:
    """Write a wheel of sifmod and one of each dependency; the same files give the same bytes.

    Raises InstallError for a missing or incomplete distribution.
    """
    for found in _needed():
        _write_wheel(found, directory)


def _imported() -> dict[str, Path]:
    package = Path(sifmod.__file__).parent
    trees = ((_OWN, package), (f"{_OWN}/easyconfigs", shipped()))
    files = {f"{name}/{path.relative_to(top)}": path for name, top in trees for path in top.rglob("*") if _packed(path)}
    return files | {"sifmod_command.py": package.parent / "sifmod_command.py"}


def _packed(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def _needed() -> list[Distribution]:
    """The distributions of sifmod and of its requirements on this machine. Raises InstallError for a missing one."""
    found: dict[str, Distribution] = {}
    wanted = [(Requirement(_OWN), "")]
    asked = set()
    while wanted:
        requirement, by = wanted.pop()
        name = canonicalize_name(requirement.name)
        if (name, *sorted(requirement.extras)) in asked:
            continue
        asked.add((name, *sorted(requirement.extras)))
        try:
            found[name] = distribution(requirement.name)
        except PackageNotFoundError as error:
            needs = f", which {by} needs," if by else ""
            raise InstallError(
                f"{requirement.name}{needs} is not installed, so a bundle cannot include it", _HINT
            ) from error
        for text in found[name].requires or ():
            one = Requirement(text)
            extras = ("", *requirement.extras)
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras):
                wanted.append((one, name))
    return [found[name] for name in sorted(found)]


def _write_wheel(found: Distribution, directory: Path) -> None:
    own = canonicalize_name(found.name) == _OWN
    version = __version__ if own else found.version
    stem = f"{found.name.replace('-', '_')}-{version}"
    files = dict(_files(found, stem))
    if own:
        kept = {name: data for name, data in files.items() if name.startswith(f"{stem}.")}
        files = kept | {name: path.read_bytes() for name, path in _imported().items()}
        metadata = (
            files[f"{stem}.dist-info/METADATA"]
            .decode()
            .replace(f"\nVersion: {found.version}\n", f"\nVersion: {version}\n", 1)
        )
        files[f"{stem}.dist-info/METADATA"] = metadata.encode()
    record = "".join(f"{name},sha256={_sha256(data)},{len(data)}\n" for name, data in sorted(files.items()))
    files[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n".encode()
    with ZipFile(directory / f"{stem}-{_tag(found)}.whl", "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in sorted(files.items()):
            entry = ZipInfo(name)
            entry.compress_type = ZIP_DEFLATED
            entry.external_attr = (0o100755 if ".data/scripts/" in name else 0o100644) << 16
            archive.writestr(entry, data)


def _files(found: Distribution, stem: str) -> Iterator[tuple[str, bytes]]:
    """The files of an installed distribution, by their names in a wheel. Raises InstallError if it cannot be packed."""
    if not found.files or found.read_text("WHEEL") is None:
        raise InstallError(f"{found.name} was not installed from a wheel, so a bundle cannot include it", _HINT)
    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the names as written
    parser.read_string(found.read_text("entry_points.txt") or "")
    commands = {
        name
        for section in ("console_scripts", "gui_scripts")
        if parser.has_section(section)
        for name in parser[section]
    }
    top = Path(str(found.locate_file(""))).resolve()
    for file in found.files:
        path = Path(str(found.locate_file(file))).resolve().parent / file.name
        name = str(file)
        info = file.parts[0].endswith(".dist-info")
        if "__pycache__" in file.parts or (info and file.name in _NOT_PACKED) or name.startswith("_editable_impl_"):
            continue
        if not path.is_relative_to(top):
            inside = (
                path.relative_to(Path(sys.prefix).resolve())
                if path.is_relative_to(Path(sys.prefix).resolve())
                else None
            )
            if inside is None:
                raise InstallError(f"{found.name} has {path}, outside {sys.prefix}", _HINT)
            if inside.parts[0] == "bin" and file.name in commands:
                continue  # written by the installer
            scripts = inside.parts[0] == "bin"
            name = f"{stem}.data/scripts/{file.name}" if scripts else f"{stem}.data/data/{inside}"
        elif info:
            name = "/".join((f"{stem}.dist-info", *file.parts[1:]))
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InstallError(f"{found.name} is incomplete: {path} cannot be read", _HINT) from error
        if ".data/scripts/" in name and data.startswith(b"#!") and b"python" in data.partition(b"\n")[0]:
            data = b"#!python\n" + data.partition(b"\n")[2]
        yield name, data


def _tag(found: Distribution) -> str:
    """The wheel's platform tags, for its file name."""
    lines = (found.read_text("WHEEL") or "").splitlines()
    tags = [line.partition(":")[2].strip().split("-") for line in lines if line.startswith("Tag:")]
    return "-".join(".".join(dict.fromkeys(column)) for column in zip(*tags, strict=True))


def _sha256(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
