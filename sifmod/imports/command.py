"""Command lines of other tools' wrappers: `singularity run --nv -B a:b IMAGE prog --flag "$@"`, taken apart."""

import re
import shlex
from dataclasses import dataclass, replace

from sifmod.config.text import is_root
from sifmod.imports.budget import Value

MOST = 4096  # letters of a command line
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_SHELL = re.compile(r"[$`;&|<>()*?\n]|\\$")
_BIND = re.compile(r"/[^,:\"\\$`\x00-\x1f\x7f\ue000-\uf8ff]*(:/[^,:\"\\$`\x00-\x1f\x7f\ue000-\uf8ff]*(:(ro|rw))?)?")
_BINDS = ("-B", "--bind")
_WITH_VALUE = ("-H", "--home", "--env", "--pwd", "--cwd", "-W", "--workdir", "-o", "--overlay", "-S", "--scratch")
_TAKES_VALUE = (*_WITH_VALUE, "--mount", "--env-file", "--hostname", "--network", "--app")


@dataclass(frozen=True)
class WithOptions:
    """What options of singularity or apptainer mean."""

    binds: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # of cuda, rocm
    env: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    count: int = 0  # words that were options


def is_for_a_shell(command: str) -> bool:
    """Whether a command line holds more than words, outside single quotes."""
    return bool(_SHELL.search(re.sub(r"'[^']*'", "", command)))


def without_arguments(command: str) -> str:
    """A command line without the user's own words (`"$@"` or `$*`) at its end."""
    command = command.strip()
    ending = next((words for words in ('"$@"', "$@", '"$*"', "$*") if command.endswith(words)), "")
    return command.removesuffix(ending).rstrip()


def wrapper(name: str, command: str) -> Value:
    """The item of `wrappers`; raises ValueError for a command line with a quotation mark that is not closed."""
    words = shlex.split(command)
    if not words or not words[0] or words[0].startswith("-"):
        raise ValueError("it does not begin with a command")
    return name if words == [name] else {name: " ".join(command.split()) if "'" not in command else command}


def binds_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The bind paths of `a,b:c,d`, and the parts that cannot be one."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    good = [part for part in parts if _BIND.fullmatch(part) and not is_root((*part.split(":"), part)[1])]
    return tuple(good), tuple(part for part in parts if part not in good)


def options(words: list[str], where: str, before: WithOptions | None = None) -> WithOptions:
    """The options at the head of `words`, added to those `before`."""
    found = replace(before or WithOptions(), count=0)
    rest = list(words)
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        taken = 1
        if not equals and (name in _BINDS or name in _TAKES_VALUE) and rest:
            value, taken = rest.pop(0), 2
        found = replace(_option(found, name, value, where), count=found.count + taken)
    return found


def _option(found: WithOptions, name: str, value: str, where: str) -> WithOptions:
    if name in ("--nv", "--nvccli", "--rocm"):
        return replace(found, gpus=_with(found.gpus, "rocm" if name == "--rocm" else "cuda"))
    if name in _BINDS:
        good, bad = binds_of(value)
        for bind in good:
            found = replace(found, binds=_with(found.binds, bind))
        return _noted(found, f"{where}: the bind path {bad[0][:80]!r} depends on the user") if bad else found
    key, equals, text = value.partition("=")
    if name == "--env" and equals and not re.search("[$`,\ue000-\uf8ff]", text):
        return replace(found, env=(*found.env, (key, text)))
    return _noted(found, f"{where}: the option {name[:40]} is not carried over")


def _with(items: tuple[str, ...], item: str) -> tuple[str, ...]:
    return items if item in items else (*items, item)


def _noted(found: WithOptions, note: str) -> WithOptions:
    return replace(found, notes=_with(found.notes, note))
