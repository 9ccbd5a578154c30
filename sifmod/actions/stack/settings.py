"""The settings that a bundle's modules depend on, and the differences on the machine where it is applied."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sifmod.actions.lock import Lock, files_of
from sifmod.config.expand import names_in
from sifmod.config.find import SUFFIXES, shipped
from sifmod.config.load_site import LoadedSite
from sifmod.config.prefix import settings_directories
from sifmod.config.redact import has_login, is_secret, secret_parameter
from sifmod.config.site import DECIDING
from sifmod.config.stack import bounds
from sifmod.config.yaml.node import Node, Number
from sifmod.config.yaml.parse import load_yaml
from sifmod.errors import InstallError

_VALUE = re.compile(r"[A-Za-z0-9._~+,:/@ -]*")
_ENVIRONMENTS = ("env", "host_env", "default_env", "runscript_env")
_PLAIN = re.compile("(?i)|true|false|yes|no|on|off|[0-9]+|0x[0-9a-f]+|/.*")  # TOKENIZERS_PARALLELISM and the like
_OF_THE_USER = (
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "PATH",
    "SHELL",
    "LANG",
    "BASH_ENV",
    "ENV",
)  # and XDG variables: they have the same meaning on each machine
_HINT = (
    "write the value into the easyconfig, or keep it out of the source: put logins into docker's configuration or "
    ".netrc"
)


class DecidingSettings(NamedTuple):
    """The recorded settings of a bundle."""

    settings: Mapping[str, Any]  # settings by key, and `site`
    variables: Mapping[str, str]  # variables that easyconfigs use, with their values


def deciding_settings(site: LoadedSite, lock: Lock, directory: Path, environ: Mapping[str, str]) -> DecidingSettings:
    """The settings and variables that decide about the modules of a lock.

    Raises InstallError for a variable that may hold a secret or whose value is no path, host or repository, and for a
    site file that other machines would not find.
    """
    settings = {key: _plain(node) for key, node in site.said.entries.items()}
    for key in ("env", "host_env", "runscript_env"):
        for name, value in getattr(site.site, key):
            _refuse_secret(f"{key} of the site or the settings", name, value)
    for word, path in files_of(lock, site.site.robot_paths).items():
        if path.suffix in SUFFIXES:
            for name, value in _values(load_yaml(path, bounds()).node):
                _refuse_secret(word, name, value)
    found = {"accelerator": site.site.accelerator, "arch": site.site.arch}
    syntax = "both" if len(site.site.module_syntax) > 1 else site.site.module_syntax[0]
    return DecidingSettings(
        {**settings, **found, "module_syntax": syntax, "site": _site(Path(site.file), directory, environ)},
        dict(sorted(_variables(lock, site.site.robot_paths, environ))),
    )


def is_taken(name: str) -> bool:
    """Whether a bundle may set this variable: not one that programs use, and not a secret."""
    known = ("XDG_", "SLURM_", "SIFMOD_", "LD_", "PYTHON", "APPTAINER", "SINGULARITY", "LC_", "GIT_", "SSL_")
    return not (name in _OF_THE_USER or name.startswith(known) or is_secret(name))


def _values(node: Node) -> Iterator[tuple[str, str]]:
    """The variables that a file of the lock sets, in each variant and recipe, with their values."""
    for key, inner in node.entries.items():
        if key in _ENVIRONMENTS:
            yield from ((name, value.text) for name, value in inner.entries.items())
        else:
            yield from _values(inner)
    for inner in node.items:
        yield from _values(inner)


def _refuse_secret(where: str, name: str, value: str) -> None:
    secret = is_secret(name) and not _PLAIN.fullmatch(value)
    if secret or has_login(value) or secret_parameter(value):
        problem = f"{where} sets {name}, which a bundle must not contain"
        why = "its name looks like a secret" if secret else "its value has a login or token"
        hint = "set it where the module is used, because others can read bundles and modules"
        raise InstallError(f"{problem}: {why}", hint)


def _site(file: Path, directory: Path, environ: Mapping[str, str]) -> str:
    known = [places / "sites" for places in (*settings_directories(environ), shipped())]
    if file.parent in known:
        return file.stem
    if file.is_relative_to(directory):
        return f"${{SIFMOD_BUNDLE}}/{file.relative_to(directory)}"
    raise InstallError(
        f"the site file {file} is neither beside the stack nor in `sites/` of a settings directory",
        "move it beside the stack",
    )


def _plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {key: _plain(one) for key, one in node.value.items()}
    if isinstance(node.value, tuple):
        return [_plain(one) for one in node.value]
    if isinstance(node.value, Number):
        return float(node.value.text) if "." in node.value.text else int(node.value.text)
    return node.value


def _variables(lock: Lock, robot_paths: tuple[Path, ...], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for word, path in files_of(lock, robot_paths).items():
        text = path.read_text("utf-8", "replace")
        for name in dict.fromkeys(names_in(text)):
            value = environ.get(name, "")
            if not value and is_taken(name):
                yield name, ""  # its default applies there too, whatever the environment
            if not value or not (is_taken(name) or is_secret(name)):
                continue
            inside = rf"\$\{{{name}(:-[^}}]*)?\}}"
            if is_secret(name):
                why = "its name looks like a secret"
            elif re.search(rf"\?[^\s'\"]*{inside}", text) or re.search(rf"//[^/\s'\"@]*{inside}[^/\s'\"@]*@", text):
                why = "it is used in the login or query of a URL"
            elif not _VALUE.fullmatch(value) or re.search("//[^/]*@", value):
                why = "its value is not a path, host or repository"
            else:
                yield name, value
                continue
            raise InstallError(f"{word} uses the variable {name}, which a bundle cannot include: {why}", _HINT)


def differing(its: LoadedSite, local: LoadedSite) -> tuple[str, ...]:
    """The differing settings, each with the bundle's and the local value."""
    pairs = ((key, _value(its, key), _value(local, key)) for key in DECIDING)
    return tuple(f"{key}: {ours} in the bundle, {here} here" for key, ours, here in pairs if ours != here)


def _value(site: LoadedSite, key: str) -> str:
    value = getattr(site.site, key)
    return (", ".join(map(str, value)) if isinstance(value, tuple) else str(value)) or "(none)"
