"""The sanity check: whether a generation works as its easyconfig requires, and the modules of a view exist."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sifmod.actions.install.decision import Decision
from sifmod.actions.install.look import (
    ANSWER,
    LOOK,
    MISSING,
    SHELL,
    is_known,
    look_inputs,
    question,
    without_session,
    words_in_image,
    words_of,
)
from sifmod.actions.install.past_checks import PastChecks
from sifmod.actions.start import is_readable
from sifmod.config.limits import limits, raised
from sifmod.config.redact import without_values
from sifmod.errors import ModuleError, SanityCheckError
from sifmod.image.child import Ended, run_child
from sifmod.module.plan import Plan
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import ImageRecord, Installation, live_modules, matches

# variables that users may set for their own runs
USERS = tuple(f"{prefix}_{name}" for prefix in ("SINGULARITY", "APPTAINER") for name in ("BIND", "NO_EVAL"))
_OTHERS = 4096  # arguments for other modules per start, because command lines have a limit


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
        return run_child(start, cwd=Path("/"), env=environment, limit=self.limit, kept=ANSWER)


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
            output = said.strip()[-2000:].split("\n")
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
    bound = [bind for bind in plan.binds_of(str(directory)) if Path(bind.source).exists()]
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


_SHOWN = 3  # commands


def check_modules(decision: Decision, layout: Layout, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings about each module of a view that is neither in the prefix or another tree of the site nor on MODULEPATH.

    Raises ModuleError for modules that these trees have in another version, or that an easyconfig here can install.
    """
    trees = (layout, *filter(is_readable, map(Layout, decision.site.site.trees)))
    plan, here = decision.plan, [str(one) for tree in trees for one, _ in live_modules(tree)]
    problems: list[str] = []
    hints: list[str] = []
    doubts: list[str] = []
    for wanted in plan.modules:
        if any(matches(wanted, module) for module in here) or _is_on_path(wanted, environ):
            continue
        name = wanted.partition("/")[0]
        others = [module for module in here if module.startswith(f"{name}/")]
        if (commands := decision.offered[wanted]) or others:
            problems.append(f"{wanted} is not installed" + (f" ({', '.join(others)} is)" if others else ""))
            hints += commands[:_SHOWN]
        else:
            doubts.append(f"warning: {wanted}, which {plan.module} loads, is not in {layout.prefix} or on MODULEPATH")
    if problems:
        hint = "; ".join(hints) or "correct `modules`; `sifmod list` shows what is installed"
        raise ModuleError(f"{plan.module} cannot be installed: {'; '.join(problems)}", hint)
    return tuple(doubts)


def _is_on_path(wanted: str, environ: Mapping[str, str]) -> bool:
    """Whether a directory on MODULEPATH has the module, in this version or one with this prefix."""
    name, _, version = wanted.rpartition("/")
    for directory in filter(None, environ.get("MODULEPATH", "").split(":")):
        try:
            names = os.listdir(f"{directory}/{name}")  # noqa: PTH208 (plain names)
        except OSError:
            continue
        if any(matches(f"/{version}", f"/{file.removesuffix('.lua')}") for file in names):
            return True
    return False
