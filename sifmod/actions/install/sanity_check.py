"""The sanity check: whether a generation works as its easyconfig requires.

It looks into the image, whether the module's commands and paths exist there, and whether they belong to the image.
Files of the image itself do not change, so they need not be checked again. Files behind a bind path or in the home
directory may go at any time.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.install.past_checks import PastChecks
from sifmod.config.limits import limits, raised
from sifmod.config.redact import without_values
from sifmod.digest import sha256_bytes
from sifmod.errors import SanityCheckError
from sifmod.image.child import Ended, run_child
from sifmod.image.program import probe_runtime
from sifmod.module.plan import RUNSCRIPTS_TARGET, Activation, Plan
from sifmod.secret import without_secrets
from sifmod.system import starts_programs
from sifmod.tree.receipt import ImageRecord, Installation

# variables that users may set for their own runs
USERS = tuple(f"{prefix}_{name}" for prefix in ("SINGULARITY", "APPTAINER") for name in ("BIND", "NO_EVAL"))
_OTHERS = 4096  # arguments for other modules per start, because command lines have a limit
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


@dataclass(frozen=True)
class _Image:
    """The image of a generation, and how to start it."""

    directory: Path  # of the generation
    record: ImageRecord
    plan: Plan
    environment: Mapping[str, str]
    limit: float  # seconds

    def run(self, environment: Mapping[str, str], *words: str) -> Ended:
        image = str(self.directory / self.record.filename)
        start = (self.plan.runtime.path, "-q", self.plan.verb, image, *self.plan.activation.activated(words))
        return run_child(start, cwd=Path("/"), env=environment, limit=self.limit, kept=ANSWER, whole=True)


def sanity_check(
    installation: Installation,
    plan: Plan,
    workspace: Path,
    say: Callable[[str], None],
    limit: float | None = None,
    known: PastChecks | None = None,
) -> None:
    """Look for every wrapper's command and every path, and run the easyconfig's commands inside the image.

    The generation is in place and need not be published; `workspace` is for the runtime's own files; `limit` is the
    time for each command in seconds, by default that of the site. Commands run in `/`, where Python imports no user
    files. Without a runtime nothing is run, and `say` reports skipped commands. If the image does not start, `say`
    reports it, and only the easyconfig's commands fail the check. Raises SanityCheckError.
    """
    directory = Path(installation.root)
    if not starts_programs(directory):
        raise SanityCheckError(
            f"sanity check of {plan.module}: {installation.prefix} is mounted noexec, so no command of a module starts",
            "choose another directory with --prefix or SIFMOD_PREFIX; if the users' machines mount it otherwise, add "
            "--skip-sanity-check",
        )
    missing = [path for path in plan.sanity_check.paths if not path.startswith("/") and not (directory / path).exists()]
    if missing:
        raise SanityCheckError(f"sanity check of {plan.module}: the module has no {', '.join(missing)}")
    if not plan.runtime.path:
        if plan.sanity_check.commands:
            say(f"{plan.runtime.kind} was not found, so the commands were not run")
        return
    seconds, how = (limits().sanity_check_time, raised("sanity_check_time")) if limit is None else (limit, "")
    image = _Image(directory, installation.required_image, plan, _environment(directory, workspace, plan), seconds)
    _look(image, say, known)
    # never cached, because they may depend on anything: a network, a GPU, a file
    for command in plan.sanity_check.commands:
        result = image.run(image.environment, SHELL, "-c", command)
        if result.code != 0:
            said = without_values(result.said.decode(errors="replace"), os.environ)
            output = without_secrets(said.strip())[-2000:].split("\n")
            code = f"failed with exit code {result.code}"
            came = f"did not finish within {seconds:.0f} s{how}" if result.late else code
            raise SanityCheckError(
                f"sanity check of {plan.module}: `{command}` {came}",
                "correct the easyconfig, or install without the check: --skip-sanity-check",
                output,
            )


def _look(image: _Image, say: Callable[[str], None], known: PastChecks | None) -> None:
    words = words_of(image.plan)
    if not words:
        return
    environment = without_session(image.environment)

    def asked() -> str:
        return question(image.plan, image.record, image.directory, environment) if known else ""

    before = asked()
    if not known or not before:
        _judge(image, image.run(image.environment, SHELL, "-c", LOOK, "sh", *words), say)
        return
    if is_known(words, known.found(before), image.directory):
        return
    with known.alone(before):
        if is_known(words, known.found(before), image.directory):  # another process may have checked meanwhile
            return
        needed = look_inputs(image.plan.activation)
        more = [word for word in dict.fromkeys((*needed, *known.others[:_OTHERS])) if word not in words]
        result = image.run(environment, SHELL, "-c", LOOK, "sh", *words, *more)
        found = words_in_image(result, (*words, *more))
        if result.code == 0 and found.issuperset(needed) and asked() == before:
            known.keep(before, found)
    _judge(image, result, say, more)


def _judge(image: _Image, result: Ended, say: Callable[[str], None], others: Sequence[str] = ()) -> None:
    """Report an image that did not start; raise SanityCheckError if a word is missing that is not among `others`."""
    lines = result.lines
    if result.code != 0:
        why = lines[-1:] or (f"exit code {result.code}",)
        say(f"the image did not start here, so its commands were not checked ({why[0]})")
        return
    lacking = (line.removeprefix(MISSING) for line in lines if line.startswith(MISSING))
    if missing := [name for name in lacking if name not in others]:
        raise SanityCheckError(
            f"sanity check of {image.plan.module}: not in the image: {', '.join(missing)}",
            "remove them from `wrappers` or `sanity_check.paths`, or correct `conda`, `venv`, `activate` or `path`",
        )


def _environment(directory: Path, workspace: Path, plan: Plan) -> dict[str, str]:
    """The environment of a command: the user's and the module's, with the binds whose source exists here."""
    bound = [bind for bind in plan.binds_of(str(directory)) if os.path.exists(bind.source)]  # noqa: PTH110 (closed)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SINGULARITYENV_", "APPTAINERENV_", *USERS))
        and name not in ("PYTHONPATH", "LD_PRELOAD")
    }
    evaluated = plan.verb == "exec"
    path, variables = (plan.prepend_path, plan.container_env) if evaluated else (plan.path, plan.plain_env)
    for prefix in plan.runtime.prefixes:
        environment |= {f"{prefix}_{name}": str(workspace) for name in ("CONFIGDIR", "CACHEDIR", "TMPDIR")}
        environment[f"{prefix}_BINDPATH"] = ",".join(map(str, bound))
        if not evaluated:  # see launch.sh
            environment[f"{prefix}_NO_EVAL"] = "1"
        environment[f"{prefix}ENV_PREPEND_PATH"] = ":".join(path)
        environment |= {f"{prefix}ENV_{name}": value for name, value in variables}
    return environment


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
