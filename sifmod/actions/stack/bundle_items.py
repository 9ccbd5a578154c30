"""The content of a bundle: its files, from where they are, and their paths in it; the settings that its modules need.

Others may be able to write into the tree: its layers and images are opened through no link there.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from sifmod.actions.layer.locked_layers import check_packed
from sifmod.actions.layer_commands import command, commands_of, contents, lock_of
from sifmod.actions.lock import Lock, LockedModule, files_of, lock_beside, read_lock
from sifmod.config.expand import names_in
from sifmod.config.find import SUFFIXES, shipped
from sifmod.config.load_site import LoadedSite
from sifmod.config.name import ModuleName
from sifmod.config.prefix import settings_directories
from sifmod.config.redact import has_login, has_token, is_secret, secret_parameter
from sifmod.config.site import DECIDING, Site
from sifmod.config.stack import Stack, bounds
from sifmod.config.yaml.node import Node, Number
from sifmod.config.yaml.parse import load_yaml
from sifmod.config.yaml.validate import plain
from sifmod.digest import sha256_file
from sifmod.errors import InstallError
from sifmod.result import in_json
from sifmod.tree.durable import read, regular
from sifmod.tree.explain import reported
from sifmod.tree.layer import IMAGE as LAYER
from sifmod.tree.layer import LOCK as LAYER_LOCK
from sifmod.tree.layer import RECEIPT, Layer, all_layers
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live
from sifmod.tree.stored_image import has_its_size, read_stored

HEAD, STACK, LOCK = "bundle.json", "stack.yaml", "stack.lock"
IMAGES = "images/sha256"
IMAGE = re.compile(rf"{IMAGES}/([0-9a-f]{{64}})\.sif")
_OTHERS = ("images/", "settings/", "wheels/")  # not the stack's own directories
_DIGEST = re.compile("[0-9a-f]{64}")
NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")  # of a bundle's stack, a directory in any tree
_VALUE = re.compile(r"[A-Za-z0-9._~+,:/@ -]*")
_LOGIN = re.compile("//[^/]*@|^[^/]*:[^/@]*@(?!sha(256|512):)")  # also without the // that the easyconfig has
# a header, as of curl -H; a password behind -p; `-u me:password`, but no numbers of a user and a group
_IN_COMMANDS = re.compile(
    r"(?i:\bauthorization['\"]?\s*[:=]\s*['\"]?\w+)\s+[\w.~+/=-]{6}"
    r"|(?i:\b(bearer|basic))\s+(?=\S*[0-9=+/]|\S+[A-Z])[\w.~+/=-]{6}"
    r"|\b((mysql|mariadb)\S*\s(.*\s)?-p|sshpass\s+-p\s*)[^\s'\"$/;|&]"
    r"|(?<!\S)(-u|--user)[ =]?['\"]?[^\s:/'\"$]+:(?![0-9]+\b)[^\s'\"$]"
)
_NAMES = re.compile(r"\$\{\w+\}(:\$\{\w+\})?@?")  # variables, also as a login: see `_variables`
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
_WRITTEN = "put logins into docker's configuration or .netrc, then apply and lock the stack again"


class Own(NamedTuple):
    """The sifmod that made a bundle."""

    version: str
    sha256: str  # of its files


class Head(NamedTuple):
    """The metadata of a bundle."""

    stack: str
    sifmod: Own
    settings: Mapping[str, Any]
    variables: Mapping[str, str]
    format: Literal[1] = 1


class Item(NamedTuple):
    """A file of a bundle: its path in the bundle, and its source path or content.

    `sha256`: of its content, where that is known. `top`: below it, others may be able to replace the source.
    """

    name: str
    source: Path | bytes
    size: int  # bytes
    sha256: str = ""
    top: Path | None = None

    def open(self) -> IO[bytes]:
        """The content, open for reading. Raises OSError; InstallError below `top`, also for a link or a pipe."""
        if isinstance(self.source, bytes):
            return BytesIO(self.source)
        if self.top is None:
            return self.source.open("rb")
        with reported("cannot read a file of the bundle"), regular(self.source, self.top) as descriptor:
            return open(os.dup(descriptor), "rb")  # noqa: PTH123 (a descriptor)


def _data(name: str, data: bytes) -> Item:
    return Item(name, data, len(data))


def _number(value: Number) -> int | str:
    """A number whose spelling JSON keeps, else its text: a variable has the spelling of the settings."""
    return int(value.text) if re.fullmatch("0|[1-9][0-9]{0,17}", value.text) else value.text


def _file(name: str, path: Path) -> Item:
    return Item(name, path, path.stat().st_size)


def items(head: Head, stack: Stack, site: Site, wheels: Path | None, there: str) -> Iterator[Item]:
    """The files of the bundle of a locked stack, without the images whose digests are in `there`.

    Raises OptionError if there is no lock, InstallError if a file differs from the lock, an image is gone, or a file of
    the stack has a name that the bundle needs.
    """
    lock, layout = read_lock(lock_beside(stack.path)), Layout(site.prefix)
    yield _data(HEAD, (json.dumps(in_json(head), default=_number) + "\n").encode())
    included = _of_stack(stack) - {stack.path}
    files = {str(path.relative_to(stack.path.parent)): path for path in sorted(included)}
    files |= {name: path for name, path in sorted(files_of(lock, site.robot_paths).items()) if path != stack.path}
    yield _file(STACK, stack.path)
    yield _file(LOCK, lock.path)
    yield from (_file(name, path) for name, path in _placed(files, site.robot_paths).items())
    if wheels:
        yield from (_file(f"wheels/{path.name}", path) for path in sorted(wheels.glob("*.whl")))
    for module in lock.modules.values():
        yield from _layers(layout, module)
    known = set(_DIGEST.findall(there))
    wanted = {one.digest: one.module for one in lock.modules.values() if one.image and one.digest not in known}
    yield from (_image(layout, sha256, wanted[sha256]) for sha256 in sorted(wanted))


def _image(layout: Layout, sha256: str, module: ModuleName) -> Item:
    """The image of a module, from the store or where a reference leads: others may have written its receipt."""
    name, stored = f"{IMAGES}/{sha256}.sif", read_stored(layout, sha256)
    if stored and has_its_size(stored):
        return Item(name, stored.path, stored.size, sha256, layout.prefix)
    found = live(layout, module)
    path = Path(found.image.path) if found and found.image else None
    if path and path.is_file() and sha256_file(path) == sha256:
        return Item(name, path, path.stat().st_size, sha256)
    raise InstallError(f"the image {sha256[:12]}… of the lock is not in {layout.images}", "apply the stack first")


def _placed(files: Mapping[str, Path], robot_paths: tuple[Path, ...]) -> dict[str, Path]:
    """The files by their paths in a bundle, also where it looks for those that are found by name."""
    found: dict[str, Path] = {}
    for name, path in files.items():
        place = re.sub("^(robot|settings):", r"\1/", name)
        if place in (HEAD, STACK, LOCK) or place in found or name.startswith(_OTHERS):
            raise InstallError(
                f"{path} cannot be {place} in a bundle, which needs that name for something else",
                "rename it or its directory, then apply and lock the stack again",
            )
        found[place] = path
    for root in robot_paths:
        for path in (path for path in files.values() if path.is_relative_to(root)):
            found.setdefault(f"robot/{path.relative_to(root)}", path)
    return found


def _layers(layout: Layout, locked: LockedModule) -> Iterator[Item]:
    """The locked layers of a module, at their paths in a tree.

    Raises InstallError for one that differs or is gone, and errors of `check_packed`.
    """
    check_packed(layout, locked.module, locked.digest)
    found = all_layers(layout.prefix / "layers", locked.module) if locked.layers else ()
    here = {layer.name: layer for layer in found if layer.image == locked.digest}
    for name, digest in locked.layers.items():
        layer = here.get(name)
        if layer is None or (made := _locked_files(layer, layout.prefix, digest, locked.contents[name])) is None:
            raise InstallError(
                f"the layer {name} of {locked.module} in {layout.prefix / 'layers'} does not match the lock",
                "apply the stack first, or lock it as it is now",
            )
        yield from made


def _locked_files(layer: Layer, prefix: Path, digest: str, whole: str) -> tuple[Item, ...] | None:
    """The files of a layer; None if it is another one than was locked. Its commands are made from their names."""
    root = Path(layer.root)
    place, image = root.relative_to(prefix), root / LAYER
    try:
        receipt, lock, commands = read(root / RECEIPT, top=prefix), lock_of(layer, prefix), commands_of(layer)
        with regular(image, prefix) as descriptor:
            size = os.fstat(descriptor).st_size
    except OSError:
        return None
    if (layer.digest, layer.size, contents(layer, lock, commands)) != (digest, size, whole):
        return None
    scripts = (_data(f"{place}/bin/{name}", command(name, layer.name).encode()) for name in commands)
    beside = (_data(f"{place}/{RECEIPT}", receipt), _data(f"{place}/{LAYER_LOCK}", lock))
    return (*beside, *scripts, Item(f"{place}/{LAYER}", image, size, digest, prefix))


def deciding_settings(
    site: LoadedSite, lock: Lock, stack: Stack, environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings and variables that decide about the modules of a lock.

    The settings by key, and `site`; then the variables that easyconfigs use, with their values.

    Raises InstallError for a variable that may hold a secret or whose value is no path, host or repository, for a login
    or token in a file, and for a site file that other machines would not find.
    """
    settings = {key: plain(node) for key, node in site.said.entries.items()}
    for key in ("env", "host_env", "runscript_env"):
        for name, value in getattr(site.site, key):
            _refuse_secret(f"{key} of the site or the settings", name, value)
    for word, path in files_of(lock, site.site.robot_paths).items():
        if path.suffix in SUFFIXES:
            for name, value in _values(load_yaml(path, bounds()).node):
                _refuse_secret(word, name, value)
    found = {"accelerator": site.site.accelerator, "arch": site.site.arch}
    syntax = "both" if len(site.site.module_syntax) > 1 else site.site.module_syntax[0]
    settings |= {**found, "module_syntax": syntax, "site": _site(Path(site.file), stack.path.parent, environ)}
    variables = dict(sorted(_variables(lock, site.site.robot_paths, environ)))
    for path in {*_of_stack(stack), *files_of(lock, site.site.robot_paths).values()}:
        if path.suffix in SUFFIXES:
            _refuse_written(path)
    return settings, variables


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
    if secret or has_login(value) or secret_parameter(value) or has_token(value) or _has_password(value):
        problem = f"{where} sets {name}, which a bundle must not contain"
        why = "its name looks like a secret" if secret else "its value has a login or token"
        hint = "set it where the module is used, because others can read bundles and modules"
        raise InstallError(f"{problem}: {why}", hint)


def _has_password(text: str) -> bool:
    """Whether a header has a login, or an option or parameter with a secret's name a value.

    A path, a number or the like is none.
    """
    if _IN_COMMANDS.search(text):
        return True
    found = re.findall(r"(?:(?<![\w-])([\w-]+)=|(?<!\S)(--[\w-]+)\s+)['\"]?([^\s'\"$][^\s'\"]*)", text)
    names = ((re.sub("(?i)tokeniz", "", f"{left}{right}"), value) for left, right, value in found)
    return any(is_secret(name) and not _PLAIN.fullmatch(value) for name, value in names)


def _of_stack(stack: Stack) -> set[Path]:
    """The files of a stack: its own, and those that it includes."""
    return {stack.path, *(Path(seen.path) for seen in stack.inputs if seen.path.startswith("/"))}


def _refuse_written(path: Path) -> None:
    """Raise InstallError for a login or token that the file spells out, also in a comment."""
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        literal = _NAMES.sub("", line)
        if has_login(literal) or secret_parameter(literal) or has_token(literal) or _IN_COMMANDS.search(line):
            raise InstallError(f"{path}:{number} has a login or token, which a bundle must not contain", _WRITTEN)


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
            before = re.findall(rf"(?:([\w-]+)[=:]|(-[\w-]+|\bbearer))\s*['\"]?{inside}", text, re.IGNORECASE)
            if is_secret(name) or has_token(value) or _has_password(value):
                why = f"its {'name' if is_secret(name) else 'value'} looks like a secret"
            elif re.search(rf"\?[^\s'\"]*{inside}", text) or re.search(rf"//[^/\s'\"@]*{inside}[^/\s'\"@]*@", text):
                why = "it is used in the login or query of a URL"
            elif not _PLAIN.fullmatch(value) and any(map(is_secret, (word for words in before for word in words))):
                why = "it is used as a password or token"
            elif not _VALUE.fullmatch(value) or _LOGIN.search(value):
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
