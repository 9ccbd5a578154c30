"""test: steps that show whether an installed module works here, in this process or in a Slurm job."""

import json
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from sifmod.actions.changing_prefix import check_group, site_umask
from sifmod.actions.install.reapply import planned
from sifmod.actions.install.sanity_check import sanity_check
from sifmod.actions.log import record
from sifmod.actions.reporter import Reporter
from sifmod.actions.slurm import LAG, SIFMOD, Resources, cancel, check_output_directory, states, submit
from sifmod.actions.test.collective import Bandwidth, Found, Place, check_ended, look, measured, perf, run_collective
from sifmod.actions.test.nccl_log import Network, read_log
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.errors import SanityCheckError, SifmodError
from sifmod.image.child import Ended
from sifmod.result import Described, Hint, PathText
from sifmod.system import scratch_directory
from sifmod.tree.generation import module_lock
from sifmod.tree.layout import Layout
from sifmod.tree.log import TEST_FAILED, TEST_PASSED, Done
from sifmod.tree.receipt import Installation

_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}
_LOOKS = "conda-python-simple"  # the runscript that asks Python for PyTorch


@dataclass(frozen=True)
class Step:
    """One thing that was tried."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    text: str  # one line
    seconds: float
    said: Annotated[tuple[str, ...], Described("the last lines of the failed command")] = ()
    hint: Hint | None = None


@dataclass(frozen=True)
class Tested:
    """A tested module; the exit code is 22 if it failed."""

    module: ModuleName
    path: Annotated[PathText | None, Described("directory of the generation; null if not installed")]
    nodes: Annotated[tuple[str, ...], Described("the nodes, as they call themselves")]
    steps: tuple[Step, ...]
    bandwidth: Bandwidth | None
    network: Network | None

    @property
    def passed(self) -> Annotated[bool, Described("whether no step failed")]:
        """Whether no step failed; a skipped step has not failed."""
        return all(step.outcome != "failed" for step in self.steps)


@dataclass(frozen=True)
class Wanted:
    nodes: int | None = None  # nodes of the current allocation; None: this node, without srun
    network: bool = False
    minimum: float | None = None  # required bus bandwidth in GB/s
    limit: float = 600.0  # seconds for each command


def test(installation: Installation, site: Site, wanted: Wanted, say: Callable[[str], None]) -> Tested:
    """Run every wanted step, even after a failure; the steps have the results.

    `site` is used if the module's own is no longer known. Writes nothing into the module's tree.
    """
    run = _Run(installation, site, wanted, say)
    run.step("sanity check", run.check)
    run.step("start", run.look)
    run.step("gpu-check", run.gpu_check)
    if wanted.nodes is not None:
        run.step("collective, srun", lambda: run.collective("conda-python-distributed"))
    run.step("collective, torchrun", lambda: run.collective("torchrun-distributed"))
    run.step("bandwidth", run.measure)
    if wanted.network:
        run.step("network", run.see_network)
    nodes = run.found.nodes if run.found else ()
    return Tested(installation.module, installation.root, nodes, tuple(run.steps), run.bandwidth, run.network)


class _SkippedError(Exception):
    """A step is skipped for this reason."""


@dataclass
class _Run:
    """A running test: each step reports its result, and keeps what later steps need."""

    installation: Installation
    site: Site
    wanted: Wanted
    say: Callable[[str], None]
    steps: list[Step] = field(default_factory=list)
    found: Found | None = None
    ended: Ended | None = None  # the first collective, whose log names the network
    bandwidth: Bandwidth | None = None
    network: Network | None = None

    def __post_init__(self) -> None:
        self.place = Place(Path(self.installation.root), self.wanted.nodes, self.wanted.limit)
        self.accelerator = self.installation.provenance.accelerator
        self.backend = "gloo" if self.accelerator == "none" else "nccl"

    def step(self, name: str, do: Callable[[], str]) -> None:
        self.say(f"{name} …")
        began = time.monotonic()
        try:
            step = Step(name, "passed", do(), 0)
        except _SkippedError as why:
            step = Step(name, "skipped", str(why), 0)
        except SifmodError as error:
            output = error.output if isinstance(error, SanityCheckError) else ()
            step = Step(name, "failed", error.short, 0, tuple(filter(None, output)), error.hint or None)
        except OSError as error:
            step = Step(name, "failed", str(error), 0)
        self.steps.append(replace(step, seconds=round(time.monotonic() - began, 3)))

    def check(self) -> str:
        try:
            plan, self.site = planned(self.installation)
        except (SifmodError, OSError) as error:
            why = error.short if isinstance(error, SifmodError) else error
            raise _SkippedError(f"its checks are not known: {why}") from error
        if not Path(self.installation.root, self.installation.required_image.filename).exists():
            raise _SkippedError("the module has no image of its own")  # `start` checks the site's copy
        said: list[str] = []
        with scratch_directory() as workspace:
            try:
                sanity_check(self.installation, plan, workspace, said.append, self.wanted.limit)
            except SanityCheckError as error:  # the hint is for an install, not for a test
                raise SanityCheckError(error.short, output=error.output) from error
        if said:
            raise _SkippedError(said[0])
        checks = plan.sanity_check
        counts = (("wrapper", plan.wrappers), ("path", checks.paths), ("command", checks.commands))
        texts = [f"{len(of)} {word}{'' if len(of) == 1 else 's'}" for word, of in counts if of]
        return ", ".join(texts) or "the easyconfig has none"

    def look(self) -> str:
        self.found = found = look(self.place, self.accelerator)
        gpus = "" if self.accelerator == "none" else f", {found.gpus} GPUs"
        lacks = "no PyTorch" if self._has(_LOOKS) else f"without {_LOOKS} nothing asks for PyTorch"
        return f"{', '.join(found.nodes)}: {f'PyTorch{gpus}' if found.torch else lacks}"

    def gpu_check(self) -> str:
        if self.accelerator == "none":
            raise _SkippedError("the module is for CPUs")
        self._needs("gpu-check")
        check_ended(self.place.run("gpu-check"), self.wanted.limit)
        return "the GPUs of every node are usable" if self.wanted.nodes else "usable"

    def collective(self, launcher: str) -> str:
        if self.found is None or not self.found.torch:
            if self.found:
                self._needs(_LOOKS)
            raise _SkippedError("the image has no PyTorch" if self.found else "the image did not start")
        if self.backend == "nccl" and self.found.gpus == 0:
            raise _SkippedError("no GPU is visible")
        self._needs(launcher)
        nodes = self.wanted.nodes or 1
        tasks = self.found.gpus if self.backend == "nccl" else 2 if nodes == 1 else 1
        ended = run_collective(self.place, self.backend, tasks, launcher, _LOG if self.wanted.network else {})
        self.ended = self.ended or ended
        check_ended(ended, self.wanted.limit)
        result = measured(ended, self.backend, tasks * nodes)
        self.bandwidth = self.bandwidth or result
        return f"{result.ranks} rank{'' if result.ranks == 1 else 's'} over {self.backend}, the sum is right"

    def measure(self) -> str:
        try:
            return self._measured()
        except _SkippedError as why:
            if self.wanted.minimum is None:
                raise
            raise SanityCheckError(f"{why}, and --minimum requires {self.wanted.minimum:g} GB/s") from why

    def _measured(self) -> str:
        if self.found is None or self.bandwidth is None:
            raise _SkippedError("no collective succeeded")
        if self.bandwidth.ranks == 1:
            self.bandwidth = None
            raise _SkippedError("there is only one rank")
        if self.found.all_reduce_perf and self.found.gpus and self.wanted.nodes is None:
            self.bandwidth = perf(self.place, self.found.gpus)
        found, least = self.bandwidth, self.wanted.minimum
        text = f"{found.algorithm:.2f} GB/s, bus {found.bus:.2f} GB/s ({found.size >> 20} MiB, {found.tool})"
        if least is not None and not found.bus >= least:
            raise SanityCheckError(f"{text}, less than {least:g}", "`--network` shows which network is used")
        return text

    def see_network(self) -> str:
        if self.backend == "gloo":
            raise _SkippedError("gloo, PyTorch's backend for CPUs, uses TCP by design")
        if self.ended is None:
            raise _SkippedError("no collective was run")
        network = read_log(self.ended.lines)
        advice = "\n".join(network.reasons)
        if not network.name:
            raise SanityCheckError("no network was chosen", advice, self.ended.lines[-20:])
        self.network = network
        # a site has a fabric if it sets NCCL_NET to something other than TCP
        fabric = dict((*self.site.host_env, *self.site.env, *self.site.runscript_env)).get("NCCL_NET", "Socket")
        if network.transport == "TCP" and fabric not in ("", "Socket"):
            hosts = f" on {', '.join(network.tcp_hosts[:8])}" if network.tcp_hosts else ""
            raise SanityCheckError(f"{network.text}{hosts}, though site {self.site.name} has {fabric}", advice)
        return network.text if (self.wanted.nodes or 1) > 1 else f"{network.text}; chosen but not used on a single node"

    def _has(self, runscript: str) -> bool:
        return (self.place.root / "runscripts" / runscript).is_file()

    def _needs(self, runscript: str) -> None:
        """Skip a step if the module lacks this runscript."""
        if not self._has(runscript):
            raise _SkippedError(f"the module has no runscript {runscript}")


def record_test(installation: Installation, site: Site, reporter: Reporter, *, passed: bool) -> None:
    """Log the result of a test. A user without write permission writes nothing, which is fine."""
    layout = Layout(installation.prefix)
    if not os.access(layout.prefix, os.W_OK):
        return
    if site.prefix != layout.prefix:  # another tree, whose rights the site does not know
        site = replace(site, prefix=layout.prefix, sharing=None, group=None, umask=None)
    module, number, what = installation.module, installation.generation, TEST_PASSED if passed else TEST_FAILED
    try:
        check_group(site)
        with site_umask(site), module_lock(reporter.tree(site), module) as mine:
            record(layout, Done(what, module, number, number, installation.image_sha256 or None), mine.held, reporter)
    except SifmodError as error:
        reporter.warn_once("the log", f"the test was not logged: {error.message}")


_POLL = 3.0  # seconds


def run_job(resources: Resources, test: Sequence[str], say: Callable[[str], None]) -> tuple[Tested, ...]:
    """Submit `sifmod test …` and wait for its output. If the wait is interrupted, the job is cancelled.

    The job's files go to the current directory, as with sbatch; the log stays if the test failed. Raises OptionError if
    others can write there or the job is rejected, SanityCheckError if it ends without an answer or with an error.
    """
    check_output_directory(Path.cwd(), "change to a directory of your own; the job's files go to the current one")
    wrap = shlex.join((*SIFMOD, "test", *test, "--json"))
    files = ("--output=sifmod-test-%j.json", "--error=sifmod-test-%j.log")
    number = submit("--job-name=sifmod-test", *resources.words, *files, f"--wrap=exec {wrap}")
    file = Path(f"sifmod-test-{number}.json")
    try:
        before = ""
        while state := _state(number):
            if state != before:
                say(f"job {number}: {state}")
            before = state
            time.sleep(_POLL)
    except BaseException:
        cancel(number)
        until = time.monotonic() + LAG  # a job that has just started creates its files anyway
        while _state(number) and time.monotonic() < until:
            time.sleep(0.2)
        file.unlink(missing_ok=True)
        raise
    return _answer(file, file.with_suffix(".log"), number)


def _state(number: str) -> str:
    if (known := states((number,))) is None:
        return "squeue does not answer"
    state = known.get(number)
    return "" if state is None or state.over else str(state)


def _answer(file: Path, log: Path, number: str) -> tuple[Tested, ...]:
    until = time.monotonic() + LAG
    while not (file.exists() and file.stat().st_size) and time.monotonic() < until:
        time.sleep(0.2)
    try:
        data: Any = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        why = f"job {number} ended without an answer"
        if not log.exists():
            raise SanityCheckError(
                why, "it wrote no log: it was cancelled, or its node does not see this directory"
            ) from error
        lines = log.read_text(errors="replace").splitlines()[-20:]
        raise SanityCheckError(f"{why}; see its log {log.absolute()}", output=lines) from error
    finally:
        file.unlink(missing_ok=True)
    if "error" in data:
        raise SanityCheckError(f"job {number}: {data['error']}", data["hint"] or "")
    from pydantic import TypeAdapter

    found = TypeAdapter(tuple[Tested, ...]).validate_python(data if isinstance(data, list) else [data])
    if all(one.passed for one in found):
        log.unlink(missing_ok=True)
    return found
