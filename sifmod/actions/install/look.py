"""Look into an image: whether the module's commands and paths exist there, and whether they belong to the image.

Files of the image itself do not change, so they need not be checked again. Files behind a bind path or in the home
directory may go at any time.
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
from sifmod.image.program import probe_runtime
from sifmod.module.plan import RUNSCRIPTS_TARGET, Activation, Plan
from sifmod.tree.receipt import ImageRecord

MISSING = "not there: "
_MOUNT, _THERE = "mount: ", re.compile(r"there: ([0-9]{1,6}) (.*)")
_POINT, _OCTAL = 4, re.compile(r"\\([0-7]{3})")  # separator in a line of mountinfo
SHELL = "/bin/sh"  # by its path: an environment in the image may have its own `sh`
# Its arguments are commands and paths. It prints which are missing, and where the others are: an empty path for a
# builtin of the shell, else the file and each link on the way to it, since a link behind a bind path may go. It prints
# the mounts first, because only the end of a long answer is kept: without mounts no result is kept.
LOOK = (
    'if [ -r /proc/self/mountinfo ]; then while IFS= read -r m; do echo "mount: $m"; done </proc/self/mountinfo; fi; '
    'i=0; for c; do i=$((i+1)); case $c in /*) p=$c; [ -e "$c" ] ;; *) p=$(command -v "$c") ;; esac || '
    f'{{ echo "{MISSING}$c"; continue; }}; case $p in /*) ;; *) echo "there: $i "; continue ;; esac; '
    'while d=$(readlink -f "${p%/*}/" 2>/dev/null) || d=unknown; echo "there: $i ${d%/}/${p##*/}"; '
    '[ -L "$p" ] && t=$(readlink "$p"); do case $t in /*) p=$t ;; *) p=${p%/*}/$t ;; esac; done; '
    'case $p in /) ;; *) echo "there: $i $(readlink -f "$p" 2>/dev/null || echo unknown)" ;; esac; done; :'
)
ANSWER = 1 << 22  # largest answer in bytes
# variables of the session, which do not affect the image; they are removed
_SESSION = re.compile(
    r"_|(OLD)?PWD|SHLVL|LINES|COLUMNS|(COLOR)?TERM|TERM_\w*|WINDOWID|STY|TMUX\w*|VSCODE_\w*|SSH_\w*|XDG_SESSION_\w*"
    r"|SLURM\w*|SBATCH_\w*"
)
_OVERLAYS = {"SINGULARITY_OVERLAY", "APPTAINER_OVERLAY"}  # mounts that put the user's files among the image's
_WORKSPACE = ("CONFIGDIR", "CACHEDIR", "TMPDIR")  # the runtime's directories, new for each check
# settings that can forbid containers while the machine runs
_LIMITS = (
    "user/max_user_namespaces",
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
)
_PATH = re.compile(r"/[^\s;&|'\"()<>=:]*")  # in a command
_REPLACED = re.compile(r"[$`~*?\[\\]")  # the shell expands these


def words_of(plan: Plan) -> tuple[str, ...]:
    """The commands and paths that must be in the image, without duplicates."""
    commands = [wrapper.command[0] for wrapper in plan.wrappers]
    return tuple(dict.fromkeys((*commands, *(path for path in plan.sanity_check.paths if path.startswith("/")))))


def look_inputs(activation: Activation) -> tuple[str, ...]:
    """Commands and paths that a look depends on; its result can be cached only if all of them belong to the image.

    The runscripts' directory is the module's; the check shows that it can be bound.
    """
    paths = [path for path in _PATH.findall(activation.command) if path != os.devnull]
    return (RUNSCRIPTS_TARGET, SHELL, *(("bash", *paths) if activation.command else ()))


def words_in_image(ended: Ended, words: Sequence[str]) -> frozenset[str]:
    """The arguments of LOOK found in the image's own files, or built into its shell."""
    own: set[str] = set()
    others: set[str] = set()  # part of the path to these is not the image's
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
    """Whether all words were `found` before; runscripts are in the generation's `directory`, not in the image."""
    scripts = [word for word in words if word.startswith(f"{RUNSCRIPTS_TARGET}/")]
    there = all((directory / word[1:]).is_file() for word in scripts)
    asked = set(words).difference(scripts) | {RUNSCRIPTS_TARGET, SHELL}
    return there and asked <= found


class _Mount(NamedTuple):
    point: str
    kind: str  # type of its file system


def _mount(line: str) -> Iterator[_Mount]:
    """Parse a line of mountinfo (proc(5)); yields nothing for any other line."""
    before, _, after = line.partition(" - ")
    fields, kind = before.split(" "), after.partition(" ")[0]
    if len(fields) > _POINT and kind:
        yield _Mount(_OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[_POINT]), kind)


def _is_own(place: str, word: str, mounts: Sequence[_Mount]) -> bool:
    """Whether the file at this place is the image's own; a builtin of the shell, whose place is "", is.

    A file is the image's own if no mount but the root covers it. If the root is a tmpfs, each directory of the image is
    a mount, and nothing is known.
    """
    if not place:
        return True
    above = [one for one in mounts if place == one.point or place.startswith(f"{one.point.rstrip('/')}/")]
    if not above:
        return False
    nearest = max(reversed(above), key=lambda one: len(one.point))  # the last mount at a mount point hides the others
    if word == RUNSCRIPTS_TARGET:
        return nearest.point == RUNSCRIPTS_TARGET
    return nearest.point == "/" and nearest.kind != "tmpfs"


def without_session(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables of a session."""
    return {name: value for name, value in environment.items() if not _SESSION.fullmatch(name)}


def question(plan: Plan, image: ImageRecord, directory: Path, environment: Mapping[str, str]) -> str:
    """Everything that decides the result, as a text; "" if something unknown decides too.

    `environment` is the one used for the look. The generation's `directory` is left out, because only its runscripts
    are bound. A bound directory counts with its identity only, because `words_in_image` skips its files.
    """
    if _OVERLAYS & environment.keys() or _REPLACED.search(plan.activation.command):
        return ""
    variables = dict(environment)
    for prefix in plan.runtime.prefixes:
        variables |= {f"{prefix}_{name}": "" for name in _WORKSPACE}
        variables[f"{prefix}_BINDPATH"] = variables[f"{prefix}_BINDPATH"].replace(f"{directory}/", "")
    program = probe_runtime(plan.runtime.path)  # as the runtime reports it
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
    """The machine, its kernel, its present boot, and the limits that it sets for containers."""
    said = []
    for name in ("kernel/random/boot_id", *_LIMITS):
        with suppress(OSError):
            said.append(f"{name} {Path('/proc/sys', name).read_text('ascii').strip()}")
    return (*os.uname(), *said)


def _identity(path: Path | str) -> tuple[str | int, ...]:
    """Values that change when the file is replaced or written to; for a directory they ignore the contents."""
    try:
        status = os.stat(path)  # noqa: PTH116 (also takes a str)
    except OSError:
        return ()
    if stat.S_ISDIR(status.st_mode):
        return (os.path.realpath(path), status.st_ino)
    return (os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _content(path: str) -> str:
    """The digest of a file; its identity if it cannot be read."""
    try:
        return sha256_bytes(Path(path).read_bytes())
    except OSError:
        return repr(_identity(path))
