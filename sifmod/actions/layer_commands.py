"""A layer's commands on the host: their valid names, their scripts, and their digest for locks."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from sifmod.digest import sha256_bytes
from sifmod.errors import InstallError
from sifmod.image.inspect.host_commands import is_host_command
from sifmod.module.plan import LAYER_TARGET
from sifmod.module.quote import shell
from sifmod.tree.durable import read
from sifmod.tree.layer import LOCK, Layer

_PLAIN = re.compile("[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_COMMAND = """#!/bin/sh
# Runs a command of a layer, in the container of the module that it was made for, or else of the loaded one.
here=$0
if [ -L "$here" ]; then here=$(readlink -f "$here"); fi
case $here in /*) ;; *) here=$PWD/$here ;; esac # a relative place of layers is not searched
export SIFMOD_LAYER={layer} SIFMOD_LAYERS="${{here%/*}}/../../../../../..${{SIFMOD_LAYERS:+:$SIFMOD_LAYERS}}"
sifmod_bin=${{here%/*}}/../module/bin
if [ ! -r "$sifmod_bin/../share/launch.sh" ]; then # a colleague's tree, closed to others: the same module, if loaded
  sifmod_version=${{here%/*/*/*/*/*}} # …/NAME/VERSION, before LAYER/KEY/live/bin/COMMAND
  sifmod_name=${{sifmod_version%/*}}
  case ${{CONTAINERROOT-}} in
    */"${{sifmod_name##*/}}/.generations/${{sifmod_version##*/}}"/*) sifmod_bin=$CONTAINERROOT/bin ;;
  esac
fi
if [ ! -r "$sifmod_bin/../share/launch.sh" ]; then
  printf '%s: its module is not installed\n\nhint: %s\n' "$0" '`sifmod layer list` lists the modules of layers' >&2
  exit 127
fi
. "$sifmod_bin/../share/launch.sh"
launch_active {path} "$@"
"""


def is_command(name: str) -> bool:
    """Whether a layer may have a host command of this name: a plain name that hides no host program."""
    return _PLAIN.fullmatch(name) is not None and not is_host_command(name)


def command(name: str, layer: str) -> str:
    """The script that starts the layer's command `name` from the host."""
    return _COMMAND.format(layer=shell(layer), path=shell(f"{LAYER_TARGET}/bin/{name}"))


def write_commands(directory: Path, commands: Iterable[str], layer: str) -> None:
    """Create `directory`, the `bin/` of a layer, with a script for each command."""
    directory.mkdir()
    for name in commands:
        place = directory / name
        place.write_text(command(name, layer))
        mode = place.stat().st_mode
        place.chmod(mode | (mode & 0o444) >> 2)  # for readers without write permission


def commands_of(layer: Layer) -> list[str]:
    """The names of the layer's commands, from its receipt. Raises InstallError for an invalid name."""
    found = sorted(path.removeprefix("bin/") for path, _ in layer.made if path.startswith("bin/"))
    if wrong := [name for name in found if not is_command(name)]:
        raise InstallError(
            f"{wrong[0]!r} is not a valid command name in the layer {layer.name} of {layer.module}",
            f"`sifmod layer sync {layer.module} {shell(f'{layer.root}/{LOCK}')} --layer {layer.name}` rebuilds it",
        )
    return found


def lock_of(layer: Layer, top: Path) -> bytes:
    """The bytes of the layer's lock, without following links below `top`. Raises OSError."""
    return read(Path(layer.root, LOCK), top=top)


def contents(layer: Layer, lock: bytes, commands: Iterable[str]) -> str:
    """The SHA-256 of a whole layer for a stack's lock: receipt, lock and commands."""
    said = (layer.image, layer.python, layer.version, layer.requirements, layer.editable, layer.places, layer.added)
    rest = (layer.kept, layer.packed, layer.files, layer.size, layer.digest, sha256_bytes(lock), sorted(commands))
    asked = (layer.words, layer.constraints, layer.digests)
    return sha256_bytes(json.dumps([*said, *rest, *asked]).encode())
