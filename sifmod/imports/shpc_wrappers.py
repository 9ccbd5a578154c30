"""Aliases to wrappers: a map or a list in a container.yaml, each with a command line and perhaps options."""

import shlex

from sifmod.config.yaml.node import Node
from sifmod.imports.command import MOST, NAME, WithOptions, is_for_a_shell, options, without_arguments, wrapper
from sifmod.imports.imported import Value


def wrappers(aliases: Node | None, notes: list[str]) -> tuple[tuple[Value, ...], tuple[str, ...]]:
    """The wrappers of the aliases, and the binds that their options ask for; notes are added to."""
    made: dict[str, Value] = {}
    found = WithOptions()
    for name, command, more in _listed(aliases, notes):
        if not NAME.fullmatch(name) or ".." in name or not command.split() or len(command) + len(more) > MOST:
            notes.append(f"alias {name[:60]!r}: cannot be a wrapper")
            continue
        try:
            made[name] = wrapper(name, _for_sh(name, command, notes))
            found = options(shlex.split(more), f"alias {name}", found)
        except ValueError as error:
            notes.append(f"alias {name}: {command[:80]!r} is no command line: {error}")
    notes.extend(found.notes)
    return tuple(made.values()), found.binds


def _listed(aliases: Node | None, notes: list[str]) -> list[tuple[str, str, str]]:
    """Each alias as name, command and singularity's options."""
    if aliases is None:
        return []
    listed = [(name, node.raw, "") for name, node in aliases.entries.items()]
    for item in aliases.items:
        entries = {key: node.raw for key, node in item.entries.items()}
        name = entries.get("name", "")
        listed.append((name, entries.get("command", ""), entries.get("singularity_options", "")))
        unknown = [key for key in entries if key not in ("name", "command", "singularity_options")]
        notes.extend(f"alias {name[:60]}: {key[:60]} is not carried over" for key in unknown)
    return listed


def _for_sh(name: str, command: str, notes: list[str]) -> str:
    """A command line that needs a shell (`$(…)`, `&&`, a variable) as one that starts one inside the container."""
    command = without_arguments(command)
    if not is_for_a_shell(command):
        return command
    notes.append(f"alias {name}: its command line is for a shell; sh inside the container expands it")
    script = f'{command} "$@"'
    return f"sh -c {shlex.quote(script)} {name}"
