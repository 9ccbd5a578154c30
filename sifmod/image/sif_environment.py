"""The environment of a SIF for an OCI image: the config's, or the result of a definition's scripts in the shell.

A SIF whose scripts do more than its config is started twice, contained: without the host's variables, home and network,
with different homes, PATHs, directories, host names, process numbers and, if possible, users. A variable that differs
between the two is not the image's.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sifmod.image.child import run_child
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.inspect.environment_scripts import LONGEST, ScriptedEnvironment
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.image.inspect.sif import Documents
from sifmod.module.plan import Runtime
from sifmod.system import one_line, scratch_directory

_TIME = 60.0  # seconds for one start
_MOST_SAID = 1 << 24  # bytes
_PLACES = ("CONFIGDIR", "CACHEDIR", "TMPDIR")
_PROGRAMS = (("/bin/cat",), ("/usr/bin/cat",), ("/bin/busybox", "cat"))
_FILES = ("/proc/self/cmdline", "/proc/self/environ", "/proc/self/cmdline")  # the first and last are marks around it
_CONTAINED = ["--contain", "--ipc", "--net", "--network", "none", "--no-home"]
_OF_THE_RUNTIME = re.compile(
    "PWD|OLDPWD|SHLVL|_|USER_PATH|PROMPT_COMMAND|__script__|e|key|SINGULARITY_SHELL"
    "|(APPTAINER|SINGULARITY)_(APPNAME|BIND|COMMAND|CONTAINER|ENVIRONMENT|INSTANCE|NAME)"
)
_PROMPT = re.compile("(Apptainer|Singularity)> ")
_LIBRARIES = "/.singularity.d/libs"  # where --nv puts them
_HALF = re.compile("[\ud800-\udfff]")  # a byte that is not UTF-8


@dataclass(frozen=True)
class SifEnvironment:
    """Variables by name, and notes about variables that were left out or computed."""

    variables: dict[str, str]
    notes: tuple[str, ...]


class _CannotStartError(Exception):
    """The reason why the runtime could not report the environment."""


def sif_environment(path: Path, documents: Documents, runtime: Runtime) -> SifEnvironment:
    """The environment of the SIF at `path`: by its `documents`, or by two starts. Raises ImageError for damage."""
    scripted = documents.environment
    read = dict(scripted.variables)
    config = dict(text.partition("=")[::2] for text in (documents.config.env if documents.config else ()))
    if not scripted.notes and (scripted.does_nothing or read == config):
        return SifEnvironment(read, ())
    try:
        one, two = _of_two_starts(path, runtime)
    except _CannotStartError as error:
        return SifEnvironment(read, (*scripted.notes, f"{error}: the environment is read from its scripts"))
    return _agreed(one, two, config, scripted)


def _agreed(
    one: dict[str, str], two: dict[str, str], config: dict[str, str], scripted: ScriptedEnvironment
) -> SifEnvironment:
    names = sorted(name for name in {*one, *two} if not _OF_THE_RUNTIME.fullmatch(name))
    differ = [name for name in names if one.get(name) != two.get(name)]
    found = {name: one[name] for name in names if name not in differ and not _is_the_base_s(name, one[name])}
    if "LD_LIBRARY_PATH" in found:
        found["LD_LIBRARY_PATH"] = found["LD_LIBRARY_PATH"].removesuffix(f":{_LIBRARIES}")
    if "HOME" in differ:  # a runtime sets the caller's; an OCI config keeps its own
        differ.remove("HOME")
        found |= {"HOME": config["HOME"]} if "HOME" in config else {}
    odd = [name for name, value in found.items() if len(value) > LONGEST or _HALF.search(f"{name}{value}")]
    found = {name: value for name, value in found.items() if name not in odd}
    computed = sorted(scripted.computed & found.keys())
    notes = (("differs between two starts, as by user or host", differ), ("not UTF-8, or too long", odd))
    left = tuple(f"left out of the environment: {_named(named)} ({why})" for why, named in notes if named)
    kept = f"computed once, on this machine, by commands of the image: {_named(computed)}"
    return SifEnvironment(found, (*left, kept) if computed else left)


def _named(names: list[str]) -> str:
    return ", ".join(one_line(name) for name in names)


def _is_the_base_s(name: str, value: str) -> bool:
    return (name == "PS1" and bool(_PROMPT.fullmatch(value))) or (name == "LD_LIBRARY_PATH" and value == _LIBRARIES)


def _of_two_starts(path: Path, runtime: Runtime) -> tuple[dict[str, str], dict[str, str]]:
    """The variables in two containers of the image, with different hosts and, if possible, users."""
    if not runtime.path:
        raise _CannotStartError("no runtime was found")
    with open_rootfs(path, read_sif(path)) as rootfs:
        program = next((words for words in _PROGRAMS if rootfs.is_program(words[0])), None)
    if program is None:
        raise _CannotStartError("the image has no program `cat`")
    command = (*program, *_FILES)
    search = os.environ.get("PATH", os.defpath)
    first = ("--pid", "--home", "/home/one", "--hostname", "one", "--pwd", "/")  # as process 1, unlike below
    second = ("--home", "/srv/two", "--hostname", "two", "--pwd", "/proc")
    other = ("--userns", "--security", "uid:65534")
    one = _started(path, runtime, first, search, command)
    try:
        two = _started(path, runtime, (*second, *other), f"{search}:/sifmod/two", command)
    except _CannotStartError:
        two = _started(path, runtime, second, f"{search}:/sifmod/two", command)
    return one, two


def _started(
    path: Path, runtime: Runtime, words: tuple[str, ...], search: str, command: tuple[str, ...]
) -> dict[str, str]:
    """The variables in one container; if it does not start, as where root lacks capabilities, in a user namespace."""
    try:
        return _said(path, runtime, words, search, command)
    except _CannotStartError as error:
        try:
            return _said(path, runtime, ("--userns", *words), search, command)
        except _CannotStartError:
            raise error from None


def _said(
    path: Path, runtime: Runtime, words: tuple[str, ...], search: str, command: tuple[str, ...]
) -> dict[str, str]:
    with scratch_directory() as scratch:
        own = {f"{prefix}_{name}": str(scratch) for prefix in runtime.prefixes for name in _PLACES}
        kept = {name: os.environ[name] for name in ("APPTAINER_USERNS", "SINGULARITY_USERNS") if name in os.environ}
        environment = {"PATH": search, "HOME": str(scratch), **own, **kept}
        started = (runtime.path, "exec", *_CONTAINED, *words, str(path.resolve()), *command)
        ended = run_child(started, cwd=scratch, env=environment, limit=_TIME, kept=_MOST_SAID, whole=True)
    mark = b"".join(os.fsencode(word) + b"\0" for word in command)
    _, before, rest = ended.said.partition(mark)
    said, after, _ = rest.rpartition(mark)
    if ended.code != 0 or not before or not after:
        why = next((text for text in reversed(ended.lines) if "\0" not in text), "it says nothing")
        raise _CannotStartError(f"{runtime.kind} did not start the image ({one_line(why)})")
    texts = (os.fsdecode(text) for text in said.split(b"\0") if text)
    return dict(text.partition("=")[::2] for text in texts)
