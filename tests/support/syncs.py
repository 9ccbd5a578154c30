"""What a program makes durable, and when: the system calls of all its threads, as strace tells them.

Data is on the disk before the name that shows it: a file that is renamed or linked to where it is seen has been synced
since it was last written, and so has every directory that comes with it. And the name is on the disk before the program
ends: the directory is synced after it. Directories that are made on the way do not count.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.command import Result, run
from support.generation import find
from support.victim import Outcome, Victim

CALLS = "openat,write,pwrite64,copy_file_range,sendfile,ioctl,fsync,fdatasync,link,linkat,symlink,symlinkat,rename"
HIDDEN = (".staging", ".locks")  # what nobody looks at after a crash but to remove it
_LINE = re.compile(r"(\d+\.\d+) (\w+)\((.*)\) += (\S.*)")
_NAMES = re.compile(r'(?:(?:\d+|AT_FDCWD)<(/[^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_FILE = re.compile(r"^\d+<(/[^>]*)>")


def traced(
    directory: Path, args: Sequence[str | Path], env: Mapping[str, str], *options: str
) -> tuple[Result, list[str]]:
    """Run `args`, and give the lines of its threads in the order of their beginnings; `options` are strace's."""
    directory.mkdir()
    result = run((*_strace(directory, *options), *args), env=env)
    return result, _lines(directory.iterdir())


@dataclass(frozen=True)
class Tracing:
    """A victim that strace follows, so that the start of an interpreter is traced once for many commands."""

    victim: Victim
    directory: Path

    def run(self, words: Sequence[str | Path], env: Mapping[str, str]) -> tuple[Outcome, list[str]]:
        """One command line, typed in the HOME of `env`, and the lines of its processes.

        They are whole: strace has ended the files of a process before it lets the victim write its answer.
        """
        before = {*self.directory.iterdir()}
        outcome = self.victim.run(words, env=env)
        return outcome, _lines({*self.directory.iterdir()} - before)


@contextmanager
def tracing(directory: Path, env: Mapping[str, str], warm: Sequence[str | Path]) -> Iterator[Tracing]:
    """The server; `warm` is a command line that changes nothing."""
    with Victim(env, *map(str, _strace(directory))) as victim:
        assert victim.warm(warm).code == 0
        yield Tracing(victim, directory)


def _strace(directory: Path, *options: str) -> tuple[str | Path, ...]:
    calls = f"trace={CALLS},?renameat,?renameat2"
    output = ("-ff", "-ttt", "-y", "-qqq", "-o", directory / "trace", "-e", calls)
    return find("strace"), *output, *options, "--seccomp-bpf"


def _lines(files: Iterable[Path]) -> list[str]:
    return sorted(line for file in files for line in file.read_text().splitlines())


def mistakes(lines: Sequence[str], top: Path, ignored: Sequence[Path] = ()) -> list[str]:
    """What was not durable when it should have been, below `top` but for those that are `ignored`."""
    found: list[str] = []
    data: set[str] = set()
    names: set[str] = set()
    for call, paths, text in calls(lines):
        if call in ("fsync", "fdatasync"):
            data.discard(paths[0])
            names.discard(paths[0])
        elif call == "openat":
            if "O_CREAT" in text and "O_EXCL" in text:
                names.add(_parent(paths[-1]))
        elif call.startswith(("rename", "link")):
            old, new = paths[-2:]
            if _seen(new, top, ignored):
                early = [path for path in (*data, *names) if path == old or path.startswith(f"{old}/")]
                if Path(new).exists():  # what was removed before it got a name needs no sync
                    early = [path for path in early if os.path.lexists(_moved(path, old, new))]
                found += [f"{path} was not synced when it became {new}" for path in sorted(early)]
            if call.startswith("rename"):
                data, names = ({_moved(path, old, new) for path in paths_} for paths_ in (data, names))
                names.add(_parent(old))
            names.add(_parent(new))
        elif call.startswith("symlink"):
            names.add(_parent(paths[-1]))
        elif paths:
            data.add(paths[0])
    left = sorted(path for path in names if _seen(path, top, ignored) and Path(path).is_dir())
    return found + [f"names in {path} were not synced" for path in left]


def calls(lines: Sequence[str]) -> Iterator[tuple[str, list[str], str]]:
    """Name, paths (of an open file first) and text of each call that succeeded."""
    for line in lines:
        if (match := _LINE.match(line)) is None or match[4].startswith("-1"):
            continue
        call, text = match[2], match[3]
        file = _FILE.match(text)
        if call in ("copy_file_range", "sendfile") and file:
            target = text.split(", ")[2 if call == "copy_file_range" else 0]
            file = _FILE.match(target)
        if call == "ioctl" and "FICLONE" not in text:
            continue
        named = _NAMES.findall(text) if call not in ("write", "pwrite64") else []
        names = [str(Path(directory, name)) for directory, name in named]
        yield call, ([file[1]] if file else []) + names, text


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _moved(path: str, old: str, new: str) -> str:
    return new + path.removeprefix(old) if path == old or path.startswith(f"{old}/") else path


def _seen(path: str, top: Path, ignored: Sequence[Path]) -> bool:
    place = Path(path)
    inside = place.is_relative_to(top) and not any(part in HIDDEN for part in place.relative_to(top).parts)
    return inside and not any(place.is_relative_to(other) for other in ignored)
