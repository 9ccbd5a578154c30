"""The look into an image: whether the commands and paths that a module names are there, and whether it is the image's.

What lies in the image's own files stays there as long as nothing of the question changes, and need not be looked for
again. What lies behind a bind path or in the home directory may go at any time.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sifmod.digest import sha256_bytes
from sifmod.image.child import Ended
from sifmod.image.program import ask
from sifmod.module.plan import RUNSCRIPTS_TARGET, Activation, Plan
from sifmod.tree.receipt import ImageRecord

MISSING = "not there: "
_MOUNT, _THERE = "mount: ", re.compile(r"there: ([0-9]{1,6}) (.*)")
_POINT, _OCTAL = 4, re.compile(r"\\([0-7]{3})")  # of a line of mountinfo
SHELL = "/bin/sh"  # by its path: an environment inside may have a `sh` of its own
# The words after it are commands and paths. It names what is missing, and where the rest lies: nothing for what the
# shell does itself, else each link on the way too, since one that lies behind a bind path may go. Before them it names
# the mounts, since of a long answer the end is kept.
LOOK = (
    'if [ -r /proc/self/mountinfo ]; then while IFS= read -r m; do echo "mount: $m"; done </proc/self/mountinfo; fi; '
    'i=0; for c; do i=$((i+1)); case $c in /*) p=$c; [ -e "$c" ] ;; *) p=$(command -v "$c") ;; esac || '
    f'{{ echo "{MISSING}$c"; continue; }}; case $p in /*) ;; *) echo "there: $i "; continue ;; esac; '
    'while d=$(readlink -f "${p%/*}/" 2>/dev/null) || d=unknown; echo "there: $i ${d%/}/${p##*/}"; '
    '[ -L "$p" ] && t=$(readlink "$p"); do case $t in /*) p=$t ;; *) p=${p%/*}/$t ;; esac; done; '
    'case $p in /) ;; *) echo "there: $i $(readlink -f "$p" 2>/dev/null || echo unknown)" ;; esac; done; :'
)
ANSWER = 1 << 22  # bytes of an answer, at most
# variables that name a session and say nothing of an image; a look is made without them
_SESSION = re.compile(
    r"_|(OLD)?PWD|SHLVL|LINES|COLUMNS|(COLOR)?TERM|TERM_\w*|WINDOWID|STY|TMUX\w*|VSCODE_\w*|SSH_\w*|XDG_SESSION_\w*"
    r"|SLURM\w*|SBATCH_\w*"
)
_OVERLAYS = {"SINGULARITY_OVERLAY", "APPTAINER_OVERLAY"}  # files of the user's among those of the image
_WORKSPACE = ("CONFIGDIR", "CACHEDIR", "TMPDIR")  # of the runtime, a new one for each check
# what can forbid the start of a container while a machine runs
_LIMITS = (
    "user/max_user_namespaces",
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
)
_PATH = re.compile(r"/[^\s;&|'\"()<>=:]*")  # in a command
_REPLACED = re.compile(r"[$`~*?\[\\]")  # the shell puts something else there


def words_of(plan: Plan) -> tuple[str, ...]:
    """The commands and the paths that must be in the image, each once."""
    commands = [wrapper.command[0] for wrapper in plan.wrappers]
    return tuple(dict.fromkeys((*commands, *(path for path in plan.sanity_check.paths if path.startswith("/")))))


def beside(activation: Activation) -> tuple[str, ...]:
    """What a look depends on beside the question: it counts for later only where all of these are the image's own.

    The directory of runscripts is the module's; that it can be bound is seen here.
    """
    paths = [path for path in _PATH.findall(activation.command) if path != os.devnull]
    return (RUNSCRIPTS_TARGET, SHELL, *(("bash", *paths) if activation.command else ()))


def own_words(ended: Ended, words: Sequence[str]) -> frozenset[str]:
    """The words after LOOK that it has found in the image's own files, or that its shell does itself."""
    own: set[str] = set()
    others: set[str] = set()  # of which a part of the way to them is not the image's
    mounts: list[_Mount] = []
    for line in ended.said.decode("utf-8", "surrogateescape").split("\n"):
        if line.startswith(_MOUNT):
            mounts += _mount(line.removeprefix(_MOUNT))
        elif found := _THERE.fullmatch(line):
            number, place = int(found[1]) - 1, found[2]
            if number in range(len(words)):
                (own if _is_own(place, words[number], mounts) else others).add(words[number])
    return frozenset(own - others)


def is_known(words: Sequence[str], found: frozenset[str], directory: Path) -> bool:
    """Whether all of these were found before; runscripts are not in the image but in the generation."""
    scripts = [word for word in words if word.startswith(f"{RUNSCRIPTS_TARGET}/")]
    there = all((directory / word[1:]).is_file() for word in scripts)
    asked = set(words).difference(scripts) | {RUNSCRIPTS_TARGET, SHELL}
    return there and asked <= found


class _Mount(NamedTuple):
    point: str
    kind: str  # of its file system


def _mount(line: str) -> Iterator[_Mount]:
    """A line of mountinfo (proc(5)); nothing of what is none."""
    before, _, after = line.partition(" - ")
    fields, kind = before.split(" "), after.partition(" ")[0]
    if len(fields) > _POINT and kind:
        yield _Mount(_OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[_POINT]), kind)


def _is_own(place: str, word: str, mounts: Sequence[_Mount]) -> bool:
    """Whether what was found at this place is the image's own: "" for what its shell does itself.

    That is what lies behind no mount but the root. Where the root is a tmpfs, each directory of the image is a mount
    of its own, and nothing is known.
    """
    if not place:
        return True
    above = [one for one in mounts if place == one.point or place.startswith(f"{one.point.rstrip('/')}/")]
    if not above:
        return False
    nearest = max(reversed(above), key=lambda one: len(one.point))  # the last one of a point covers the others
    if word == RUNSCRIPTS_TARGET:
        return nearest.point == RUNSCRIPTS_TARGET
    return nearest.point == "/" and nearest.kind != "tmpfs"


def without_session(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables of a session."""
    return {name: value for name, value in environment.items() if not _SESSION.fullmatch(name)}


def question(plan: Plan, image: ImageRecord, directory: Path, environment: Mapping[str, str]) -> str:
    """All that decides what a look finds, as a text; "" where more decides than is known.

    `environment` is that of the look; `directory` is the generation's, which changes nothing: what is bound of it is
    the runscripts alone. Of a bound directory only its identity is in it, since `own_words` leaves out what lies there.
    """
    if _OVERLAYS & environment.keys() or _REPLACED.search(plan.activation.command):
        return ""
    variables = dict(environment)
    for prefix in plan.runtime.prefixes:
        variables |= {f"{prefix}_{name}": "" for name in _WORKSPACE}
        variables[f"{prefix}_BINDPATH"] = variables[f"{prefix}_BINDPATH"].replace(f"{directory}/", "")
    program = ask(plan.runtime.path)  # as it says itself
    configuration = program.configuration if program else ""
    binds = [(str(bind), _identity(bind.source)) for bind in plan.binds]
    decides = (
        *(LOOK, plan.verb, plan.activation.activated(("",)), image.sha256, _identity(directory / image.filename)),
        *(plan.runtime.path, _identity(plan.runtime.path), repr(program), _content(configuration)),
        *(binds, sorted(variables.items()), _machine(), os.geteuid(), os.getgroups()),
    )
    return json.dumps(decides)


@cache
def _machine() -> tuple[str, ...]:
    """The machine, its kernel, and since when it runs."""
    said = []
    for name in ("kernel/random/boot_id", *_LIMITS):
        with suppress(OSError):
            said.append(f"{name} {Path('/proc/sys', name).read_text('ascii').strip()}")
    return (*os.uname(), *said)


def _identity(path: Path | str) -> tuple[str | int, ...]:
    """What changes where another file is there, or it was written to; of a directory nothing of what is in it."""
    try:
        status = os.stat(path)  # noqa: PTH116 (a text too)
    except OSError:
        return ()
    if stat.S_ISDIR(status.st_mode):
        return (os.path.realpath(path), status.st_ino)
    return (os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _content(path: str) -> str:
    """A digest of a small file, else what is known of it."""
    try:
        return sha256_bytes(Path(path).read_bytes())
    except OSError:
        return repr(_identity(path))
