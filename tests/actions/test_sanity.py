"""The sanity check with a runtime that does what a test says, and keeps what it was asked."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from plans import plan
from sifmod.actions.install.sanity_check import LOOK, sanity_check
from sifmod.config.easyconfig import SanityCheck
from sifmod.config.limits import Limits, use_limits
from sifmod.errors import SanityCheckError
from sifmod.module.plan import Activation, Bind, Plan, Runtime, Wrapper
from sifmod.tree.layout import Layout
from support.tree import install

ASKED = """#!/bin/sh
{ printf '<%s>' "$@"; echo; } >>"$0.asked"
env >"$0.env"
. "$0.does"
"""


@dataclass
class Check:
    """A generation, and a runtime that is a shell script."""

    directory: Path
    does: str = ""
    kind: str = "apptainer"

    def __post_init__(self) -> None:
        self.installation = install(Layout(self.directory / "prefix"), "a")
        self.program = self.directory / "runtime"
        self.program.write_text(ASKED)
        self.program.chmod(0o755)
        self.root = Path(self.installation.root)

    def plan(self, commands: tuple[str, ...] = (), paths: tuple[str, ...] = (), **changes: object) -> Plan:
        usual: dict[str, object] = {
            "runtime": Runtime(self.kind, str(self.program)),  # type: ignore[arg-type]
            "activation": Activation("true", ""),
            "wrappers": (),
            "sanity_check": SanityCheck(commands=commands, paths=paths),
        }
        return plan(**{**usual, **changes})

    def run(self, wanted: Plan) -> list[str]:
        """What is said."""
        Path(f"{self.program}.does").write_text(self.does)
        said: list[str] = []
        sanity_check(self.installation, wanted, self.directory / "work", said.append)
        return said

    @property
    def asked(self) -> list[str]:
        path = Path(f"{self.program}.asked")
        return path.read_text().splitlines() if path.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        lines = Path(f"{self.program}.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture
def check(tmp_path: Path) -> Check:
    return Check(tmp_path)


def test_without_anything_to_look_for_the_image_is_not_started(check: Check) -> None:
    assert check.run(check.plan()) == []
    assert check.asked == []


def test_paths_of_the_module_are_looked_for_first(check: Check) -> None:
    wanted = check.plan(paths=("bin/python", "bin/none", "lib", "/etc"), commands=("true",))
    with pytest.raises(SanityCheckError) as caught:
        check.run(wanted)
    assert caught.value.message == "sanity check of PyTorch/2.2.0-rocm-5.6.1: the module has no bin/none, lib"
    assert check.asked == []


@pytest.mark.parametrize("kind", ["apptainer", "singularity"])
def test_without_a_runtime_it_is_said_what_was_not_run(check: Check, kind: str) -> None:
    runtime = Runtime(kind, "")  # type: ignore[arg-type]
    assert check.run(check.plan(paths=("/etc",), runtime=runtime)) == []
    said = check.run(check.plan(commands=("true",), runtime=runtime))
    assert said == [f"{kind} was not found, so the commands were not run"]


def test_files_of_the_current_directory_are_out_of_reach(check: Check) -> None:
    check.does = 'pwd >"$0.where"; pwd -P >>"$0.where"'
    assert check.run(check.plan(commands=("true",))) == []
    assert Path(f"{check.program}.where").read_text() == "/\n/\n"


def test_commands_and_paths_are_looked_for_at_once(check: Check) -> None:
    wrappers = (Wrapper("python", ("python3", "-u")), Wrapper("x", ("/opt/x",)))
    wanted = check.plan(wrappers=wrappers, paths=("/etc", "bin/python"), commands=("a 'b c'", "d"))
    assert check.run(wanted) == []
    start = f"<-q><exec><{check.root}/tiny.sif></bin/sh><-c>"
    assert check.asked == [f"{start}<{LOOK}><sh><python3></opt/x></etc>", f"{start}<a 'b c'>", f"{start}<d>"]


def test_the_look_names_what_is_missing() -> None:
    words = ("sh", "no-such", "/etc", "/no/such", "sh")
    done = subprocess.run(("/bin/sh", "-c", LOOK, "sh", *words), capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("mount: ")]
    shell = Path("/bin/sh").resolve()
    assert [line for line in lines if line.startswith("not there: ")] == ["not there: no-such", "not there: /no/such"]
    assert {f"there: 1 {shell}", "there: 3 /etc", f"there: 5 {shell}"} <= set(lines)
    assert any(line.startswith("mount: ") for line in done.stdout.splitlines())
    assert done.stderr == ""


def test_what_is_not_in_the_image(check: Check) -> None:
    check.does = "echo 'WARNING: x'; echo 'not there: python'; echo 'not there: /opt/x'"
    with pytest.raises(SanityCheckError) as caught:
        check.run(check.plan(paths=("/opt/x",), commands=("true",)))
    assert caught.value.message == "sanity check of PyTorch/2.2.0-rocm-5.6.1: not in the image: python, /opt/x"
    assert caught.value.hint.startswith("remove them from `wrappers` or `sanity_check.paths`, or correct")
    assert len(check.asked) == 1


@pytest.mark.parametrize(("does", "why"), [("echo first; echo last >&2; exit 3", "last"), ("exit 3", "exit code 3")])
def test_an_image_that_cannot_be_started(check: Check, does: str, why: str) -> None:
    check.does = does
    assert check.run(check.plan(paths=("/etc",))) == [
        f"the image did not start here, so its commands were not checked ({why})"
    ]


def test_a_command_that_fails_says_how(check: Check) -> None:
    check.does = "echo; echo short; exit 7"
    with pytest.raises(SanityCheckError) as caught:
        check.run(check.plan(commands=("false", "never")))
    head = "sanity check of PyTorch/2.2.0-rocm-5.6.1: `false` failed with exit code 7\n"
    assert caught.value.message == f"{head}short"
    assert caught.value.hint == "correct the easyconfig, or install without the check: --skip-sanity-check"
    check.does = "printf '%02000d\\377' 0; echo last; exit 1"
    with pytest.raises(SanityCheckError) as caught:
        check.run(check.plan(commands=("false",)))
    assert caught.value.message.endswith(f": `false` failed with exit code 1\n{'0' * 1995}\ufffdlast")
    assert check.asked[-1].endswith("<false>")


def test_a_command_that_does_not_end_is_ended(check: Check, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: use_limits(Limits()))
    use_limits(Limits(sanity_check_time=1))
    check.does = "sleep 60"
    with pytest.raises(SanityCheckError) as caught:
        check.run(check.plan(commands=("wait",)))
    assert caught.value.short == (
        "sanity check of PyTorch/2.2.0-rocm-5.6.1: `wait` did not finish within 1 s (`limits: {sanity_check_time: N}` "
        "in the settings raises the limit)"
    )
    check.does = "exit 124"  # as timeout(1) says it in the command itself
    with pytest.raises(SanityCheckError, match="failed with exit code 124"):
        check.run(check.plan(commands=("timeout",)))


def test_what_a_command_leaves_running_is_ended(check: Check) -> None:
    check.does = "sleep 4321 & echo $! >>$0.left"
    check.run(check.plan(commands=("a", "b")))
    left = Path(f"{check.program}.left").read_text().split()
    assert len(left) == 2
    assert not [
        number
        for number in left
        if b"4321" in subprocess.run(["ps", "-o", "args=", number], capture_output=True).stdout
    ]


def test_the_environment_is_the_modules_own(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user has set for his own runs is not in it, and no bind whose source is missing here.

    os.stat fails for too long a name with another error than for a missing file, as it does in a closed directory.
    """
    dropped = (
        *("SINGULARITYENV_MINE", "APPTAINERENV_MINE", "SINGULARITY_BIND", "APPTAINER_BIND", "SINGULARITY_NO_EVAL"),
        *("APPTAINER_NO_EVAL", "PYTHONPATH", "LD_PRELOAD", "SINGULARITY_BINDPATH"),
    )
    for name in (*dropped, "SINGULARITY_MINE", "OTHER"):
        monkeypatch.setenv(name, "" if name == "LD_PRELOAD" else "mine")
    long = f"/{'a' * 300}"
    binds = (Bind("/usr", "/usr/host"), Bind("/no/such", "/no/such"), Bind(long, long), Bind("/etc", "/e", ("ro",)))
    wanted = check.plan(commands=("true",), binds=binds, runscripts=(), env=(("A", "1"), ("B", "$HOME")))
    assert check.run(wanted) == []
    found = check.environment
    for prefix in ("SINGULARITY", "APPTAINER"):
        assert {found[f"{prefix}_{name}"] for name in ("CONFIGDIR", "CACHEDIR", "TMPDIR")} == {
            str(check.directory / "work")
        }
        assert found[f"{prefix}_BINDPATH"] == "/usr:/usr/host,/etc:/e:ro"
        assert found[f"{prefix}ENV_PREPEND_PATH"].endswith("/runscripts:/opt/miniconda3/envs/pytorch/bin")
        assert found[f"{prefix}ENV_A"] == "1"
        assert f"{prefix}_NO_EVAL" not in found
    assert (found["SINGULARITY_MINE"], found["OTHER"]) == ("mine", "mine")
    gone = set(dropped) - {"SINGULARITY_BINDPATH"}
    assert not gone & found.keys()


def test_an_image_that_is_run_takes_words_as_they_are(check: Check) -> None:
    wanted = check.plan(commands=("true",), verb="run", env=(("B", "$HOME"),))
    assert check.run(wanted) == []
    assert check.asked == [f"<-q><run><{check.root}/tiny.sif></bin/sh><-c><true>"]
    for prefix in ("SINGULARITY", "APPTAINER"):
        assert check.environment[f"{prefix}_NO_EVAL"] == "1"
        assert check.environment[f"{prefix}ENV_B"] == "$HOME"
    evaluated = check.plan(commands=("true",), env=(("B", "$HOME"),))
    assert check.run(evaluated) == []
    assert check.environment["APPTAINERENV_B"] != "$HOME"
