"""What jobs a stack becomes, what Slurm says of them, and what is kept of that."""

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.actions.slurm import State, states
from sifmod.actions.stack.job import elements_of
from sifmod.actions.stack.stack_plan import StackOptions, plan_stack, read_stack
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.errors import OptionError
from sifmod.tree.layout import Layout
from sifmod.tree.life import read_life
from sifmod.tree.stack_record import Submission, read_submissions
from support.answer import answer
from support.command import SIFMOD
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.oci import Entry, layer, write_layout
from support.registry import Registry
from support.user import OrdinaryUser

Program = Callable[[str, str], None]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack of five modules over three images that are nowhere."""
    here = tmp_path / "a stack"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("SIFMOD_PREFIX", str(here / "prefix"))
    for name, image in (("A-1", "a"), ("A-2", "a"), ("A-3", "a"), ("B-1", "b"), ("C-1", "c")):
        module, _, version = name.partition("-")
        text = f"name: {module}\nversion: '{version}'\nimage: {{sources: ['docker://127.0.0.1:9/{image}:1']}}\n"
        write(here / f"{name}.yaml", text)
    write(here / "stack.yaml", "easyconfigs: [A-1.yaml, B-1.yaml, A-2.yaml, C-1.yaml, A-3.yaml]\n")
    return here


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Puts a script in the place of one of Slurm's programs: no cluster of the tests keeps accounts, or is too busy."""
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")

    def put(name: str, script: str) -> None:
        write(directory / name, f"#!/bin/sh\n{script}\n").chmod(0o755)

    return put


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (100, ["A/1 A/2 A/3", "B/1", "C/1"]),
        (2, ["A/1 A/2 A/3 C/1", "B/1"]),
        (1, ["A/1 A/2 A/3 B/1 C/1"]),
    ],
)
def test_an_element_has_all_modules_of_an_image(here: Path, most: int, expected: list[str]) -> None:
    plan = plan_stack(read_stack(here / "stack.yaml", StackOptions()))
    elements = elements_of(plan.steps, most)
    assert [" ".join(map(str, element.modules)) for element in elements] == expected
    assert all(element.fetches for element in elements)
    assert elements_of((), most) == ()
    images = [step.todo.image for step in plan.steps if step.todo]
    shared = elements_of(plan.steps, 100, [frozenset(images[1::2])])
    assert [" ".join(map(str, element.modules)) for element in shared] == ["A/1 A/2 A/3", "B/1 C/1"]


def test_what_the_controller_has_forgotten_is_in_the_accounts(program: Program) -> None:
    program("squeue", "echo 'squeue: warning'; echo '7_0|RUNNING|None'; echo '7_1|PENDING|Resources'")
    program("sacct", "printf '%s\\n' '6_0|NODE_FAIL' '6_1|CANCELLED by 1000' '6_2|COMPLETED' '6_[3-9]|PENDING'")
    known = states(("6", "7"))
    assert known == {
        "7_0": State("RUNNING", "None"),
        "7_1": State("PENDING", "Resources"),
        "6_0": State("NODE_FAIL"),
        "6_1": State("CANCELLED"),
        "6_2": State("COMPLETED"),
    }
    assert [str(state) for state in known.values()][:2] == ["RUNNING", "PENDING (Resources)"]
    assert {number for number, state in known.items() if state.over} == {"6_0", "6_1", "6_2"}
    program("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    program("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert states(("6",)) == {}
    program("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert states(("6",)) is None


def test_nothing_is_submitted_while_slurm_cannot_tell_what_is(
    here: Path, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    program("squeue", "exit 1")
    program("sbatch", "touch submitted; echo 9")
    jobs = [{"job": "8", "what": "apply", "logs": "/", "elements": [["B/1"]]}]
    record = write(here / "prefix/stacks/jobs/stack.json", json.dumps({"format": 1, "jobs": jobs}))
    assert run(["stack", "apply", "stack.yaml", "--job"]) == 2
    assert "squeue does not answer" in capfd.readouterr().err
    assert not (here / "submitted").exists()
    program("squeue", "echo '8_0|PENDING|Priority'")
    assert run(["stack", "apply", "stack.yaml", "--job", "--job-max-jobs", "1", "--job-account", "mine"]) == 0
    assert read_submissions(Layout(here / "prefix"), "stack") == (
        Submission("8", "apply", "/", ((ModuleName("B", "1"),),), True),
        Submission("9", "apply", str(here), (tuple(ModuleName(*each) for each in ("A1", "A2", "A3", "C1")),), True),
    )
    record.write_text("{}")  # as nobody has written it
    assert read_submissions(Layout(here / "prefix"), "stack") == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 2, "jobs": []}',
        '{"format": 1, "jobs": [{}]}',
        '{"format": 1, "jobs": [{"job": "1;x", "what": "apply", "logs": "", "elements": []}]}',
        '{"format": 1, "jobs": [{"job": "1", "what": "apply", "logs": "", "elements": [["../x"]]}]}',
        '{"format": 1, "jobs": [{"job": "1", "what": "apply", "logs": "", "elements": [1]}]}',
    ],
)
def test_a_record_that_others_have_spoilt_is_none(tmp_path: Path, text: str) -> None:
    write(tmp_path / "stacks/jobs/x.json", text)
    assert read_submissions(Layout(tmp_path), "x") == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--wait",), "--wait is for --job"),
        (("--job-cores", "4"), "--job-cores is for --job"),
        (("--job", "--job-output-dir", "none"), "there is no directory "),
        (("--job", "--job-test-partition", "gpu"), "--job-test-partition needs --job-test"),
        (("--job", "--bundle", "x"), "--job cannot be used with --bundle"),
        (("--job",), "sbatch rejected the job: sbatch: error: invalid account"),
        (("--job", "--only", "none"), "no module is called `none`\n\nhint: `sifmod stack plan` shows"),
    ],
)
def test_what_cannot_be_submitted(
    here: Path, program: Program, words: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program("sbatch", "echo 'sbatch: error: invalid account' >&2; exit 1")
    (here / "prefix").mkdir()
    before = disk_state(here)
    assert run(["stack", "apply", "stack.yaml", *words]) == (24 if "--only" in words else 2)
    assert message in capfd.readouterr().err
    assert disk_state(here) == before


def test_a_path_that_slurm_cannot_write_to_is_refused(
    here: Path, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    """A backslash ends sbatch's replacements, so that each element would fail without a log."""
    program("sbatch", "touch submitted; echo 9")
    (here / "a\\b").mkdir()
    assert run(["stack", "apply", "stack.yaml", "--job", "--job-output-dir", "a\\b"]) == 2
    assert "there is a backslash in the path" in capfd.readouterr().err
    assert not (here / "submitted").exists()


def test_a_directory_that_is_closed_to_the_user_gets_no_logs(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    write(shared_tmp / "stack.yaml", "easyconfigs: [A-1.yaml]\n")
    (shared_tmp / "closed").mkdir(mode=0o555)
    apply = (*SIFMOD, "stack", "apply", shared_tmp / "stack.yaml", "--job")
    done = ordinary_user.run(apply, cwd=shared_tmp / "closed")
    assert done.code == 2
    assert f"--job-output-dir: you cannot write in {shared_tmp}/closed" in done.stderr


@pytest.mark.usefixtures("needs_root")
def test_a_directory_where_others_can_plant_links_gets_no_logs(
    here: Path, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    """Slurm writes through a link under the log's name, which a member can guess."""
    program("sbatch", "touch submitted; echo 9")
    logs = here / "logs"
    logs.mkdir()
    for mode in (0o1777, 0o2775, 0o757):
        logs.chmod(mode)
        os.chown(logs, -1, os.getegid() if mode == 0o757 else 12)
        before = disk_state(here)
        assert run(["stack", "apply", "stack.yaml", "--job", "--job-output-dir", "logs"]) == 2
        assert f"other users can write in {logs}, and could lead the job's output" in capfd.readouterr().err
        assert disk_state(here) == before
    logs.chmod(0o2775)
    os.chown(logs, -1, os.getegid())  # root's own group, as users of a private group have one
    assert run(["stack", "apply", "stack.yaml", "--job", "--job-output-dir", "logs"]) == 0
    assert (here / "submitted").exists()


def test_a_view_waits_for_the_modules_that_it_loads(here: Path, program: Program) -> None:
    write(here / "V-1.yaml", "name: V\nversion: '1'\nmodules: [A/1, B/1]\n")
    write(here / "stack.yaml", "easyconfigs: [V-1.yaml, A-1.yaml, B-1.yaml]\n")
    program("sbatch", 'echo "$*" >>words; wc -l <words')
    program("squeue", "echo '1_0|PENDING|Priority'; echo '1_1|RUNNING|None'")
    asked = ("stack", "apply", "stack.yaml", "--job", "--job-test")
    assert run([*asked, "--only", "A/1"]) == 0
    assert run(list(asked)) == 0
    install, test, *others = (here / "words").read_text().splitlines()
    assert "--dependency" not in install
    assert "--dependency=afterany:1 " in test
    assert len(others) == 3
    assert "--dependency" not in others[0]
    assert "--dependency=afterany:1:3 " in others[1]  # the view
    assert "--dependency=afterany:3 " in others[2]
    kept = read_submissions(Layout(here / "prefix"), "stack")
    assert [" ".join(str(module) for element in one.elements for module in element) for one in kept] == [
        *("A/1", "B/1", "V/1", "B/1")
    ]


def test_a_test_that_waits_for_the_last_element_does_not_make_it_another(
    here: Path, images: Images, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs of --job-test are in the queue as long as an element installs."""
    write(here / "A-1.yaml", f"name: A\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\n")
    write(here / "stack.yaml", "easyconfigs: [{easyconfig: A-1.yaml, default: true}]\n")
    program("sbatch", "echo x >>jobs; wc -l <jobs")
    program("squeue", "echo '1_0|RUNNING|None'; echo '2_0|PENDING|Dependency'")
    assert run(["stack", "apply", "stack.yaml", "--job", "--job-test"]) == 0
    layout = Layout(here / "prefix")
    assert [one.what for one in read_submissions(layout, "stack")] == ["apply", "test"]
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "1")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    assert run(["stack", "apply", "stack.yaml", "--only", "A/1", "--skip-sanity-check"]) == 0
    assert read_life(layout, "A").default == "1"


@pytest.mark.parametrize("both", [False, True])
def test_the_last_element_decides_though_it_was_submitted_for_a_part(
    both: bool, here: Path, images: Images, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job for a part of the stack decides nothing by itself; a later submission of the whole expects it to."""
    write(here / "A-1.yaml", f"name: A\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\n")
    write(here / "stack.yaml", "easyconfigs: [{easyconfig: A-1.yaml, default: true}]\n")
    program("sbatch", "echo 1")
    program("squeue", "echo '1_0|RUNNING|None'")
    assert run(["stack", "apply", "stack.yaml", "--job", "--only", "A/1"]) == 0
    if both:
        assert run(["stack", "apply", "stack.yaml", "--job"]) == 0
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "1")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    assert run(["stack", "apply", "stack.yaml", "--only", "A/1", "--skip-sanity-check"]) == 0
    assert read_life(Layout(here / "prefix"), "A").default == ("1" if both else None)


def test_what_the_last_element_decided_before_an_error_is_the_stacks(
    here: Path, images: Images, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "AB":
        write(here / f"{name}-1.yaml", f"name: {name}\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\n")
    hook = write(here / "hook", "#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    write(here.parent / "etc-sifmod.d/x.yaml", f"hooks: {{before_retire: ['{hook}']}}\n")
    retired = "{easyconfig: B-1.yaml, retired: {since: 2026-01-01}}"
    write(here / "stack.yaml", f"easyconfigs: [{{easyconfig: A-1.yaml, default: true}}, {retired}]\n")
    program("sbatch", "echo 1")
    program("squeue", "echo '1_0|RUNNING|None'")
    assert run(["stack", "apply", "stack.yaml", "--job"]) == 0
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "1")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    assert run(["stack", "apply", "stack.yaml", "--only", "A/1", "--only", "B/1", "--skip-sanity-check"]) == 18
    assert read_life(Layout(here / "prefix"), "A").default == "1"
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID")
    write(here / "stack.yaml", "easyconfigs: [A-1.yaml, B-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", "--skip-sanity-check"]) == 0
    assert read_life(Layout(here / "prefix"), "A").default is None


LOG = """{"what": "installed", "text": "", "generation": 1, "exit_code": 0, "job": "9_2"}
{"what": "failed", "text": "the disk is full", "generation": 0, "exit_code": 18, "job": "9_2"}
{"what": "said", "text": "failed (7): a sentence is no fact", "job": "9_2"}
{"what": "installed", "text": "", "generation": 2, "exit_code": 0, "job": "8_2"}
{"what": "installed", "text": "", "generation": 3, "exit_code": 0}

x
"""


def test_why_a_module_is_not_there(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sifmod.actions.stack.watch.LAG", 0.0)
    program("sbatch", "echo killed >sifmod-stack-9_0.log; echo 9")
    program("squeue", "echo '9_0|NODE_FAIL|NodeDown'; echo '9_1|COMPLETED|None'; echo '9_2|FAILED|NonZeroExitCode'")
    log = write(here / "prefix/log/stacks/stack/C@1.log", LOG)
    assert run(["stack", "apply", "stack.yaml", "--job", "--wait"]) == 18
    err = capfd.readouterr().err
    assert f"A/1: its job 9_0 ended NODE_FAIL; {here}/sifmod-stack-9_0.log is its log" in err
    assert f"B/1: its job 9_1 installed it, but {here}/prefix does not show it on this node" in err
    assert "hint: choose a prefix that all nodes share" in err
    assert "== 0 of 5 modules match " in err
    assert "==   C/1: failed (18): the disk is full\n" in err
    log.write_text("\n")
    program("squeue", "exit 0")
    program("sacct", "exit 0")
    assert run(["stack", "apply", "stack.yaml", "--job", "--wait", "-q"]) == 1
    assert "C/1: its job 9_2 ended and Slurm does not know how\n" in capfd.readouterr().err
    program("squeue", "echo '9_0|NODE_FAIL|NodeDown'")  # the others are forgotten already
    program("sacct", "echo '9_2|TIMEOUT'")
    assert run(["stack", "apply", "stack.yaml", "--job", "--wait", "-q"]) == 1
    assert "C/1: its job 9_2 ended TIMEOUT\n" in capfd.readouterr().err


def test_what_an_element_has_found_to_be_held(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its exit code is that of success: the module's log says that it was skipped."""
    monkeypatch.setattr("sifmod.actions.stack.watch.LAG", 0.0)
    program("sbatch", "echo 9")
    program("squeue", "echo '9_0|COMPLETED|None'")
    line = {"what": "held", "text": "B/1 was rolled back", "generation": 0, "exit_code": 0, "job": "9_0"}
    write(here / "prefix/log/stacks/stack/B@1.log", json.dumps(line))
    words = ["stack", "apply", "stack.yaml", "--job", "--wait", "--only", "B/1"]
    assert run(words) == 0
    err = capfd.readouterr().err
    assert "== B/1: B/1 was rolled back\n" in err
    assert "== 0 of 1 modules match " in err
    assert "==   B/1: held; " in err
    assert run([*words, "--fail-on-held"]) == 1


def test_what_an_earlier_job_installed_from_older_files_does_not_match(
    here: Path, images: Images, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    text = f"name: A\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\n"
    write(here / "A-1.yaml", text)
    write(here / "stack.yaml", "easyconfigs: [A-1.yaml]\n")
    program("sbatch", "echo 1")
    program("squeue", "[ -e asked ] && echo '1_0|COMPLETED|None' || echo '1_0|RUNNING|None'; touch asked")
    words = ["stack", "apply", "stack.yaml", "--skip-sanity-check"]
    assert run([*words, "--job"]) == 0
    assert run(words) == 0  # as its element has done, which still runs
    write(here / "A-1.yaml", f"{text}env: {{A: b}}\n")
    capfd.readouterr()
    assert run([*words, "--job", "--wait"]) == 1
    err = capfd.readouterr().err
    assert "A/1: an earlier job installed it, and its files have changed since" in err
    assert "== 0 of 1 modules match " in err


def test_how_a_test_has_ended(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where Slurm knows nothing of it any more its log tells: the one of a test that has passed is removed."""
    monkeypatch.setattr("sifmod.actions.stack.watch.LAG", 0.0)
    program("sbatch", "echo x >>jobs; wc -l <jobs")
    program("squeue", "exit 0")
    program("sacct", "printf '%s\\n' '2_2|COMPLETED' '2_3|NODE_FAIL'")
    for number in (0, 2):
        write(here / f"sifmod-stack-2_{number}.log", "")
    words = ("stack", "apply", "stack.yaml", "--job", "--job-test", "--wait")
    tests = answer(capfd, words, 22)["tests"]
    assert [(test["names"], test["passed"]) for test in tests] == [
        *((["A/1"], False), (["A/2"], True), (["A/3"], True), (["B/1"], False), (["C/1"], True))
    ]


def test_what_an_element_is_told(here: Path, program: Program) -> None:
    """The options that say what is installed, with paths in full; the job script is what sbatch is given last."""
    program("sbatch", 'for word; do echo "$word"; done >words; cat "$word" >script; echo 3')
    words = (
        "--only",
        "B",
        "--robot-paths",
        "own",
        "--skip-sanity-check",
        "--job-cores",
        "2",
        "--job-max-walltime",
        "3",
    )
    assert run(["stack", "apply", "stack.yaml", "--job", *words, "--job-partition", "small"]) == 0
    script = (here / "script").read_text()
    line = next(line for line in script.splitlines() if "stack apply" in line)
    told = ("--jobs=1", f"--robot-paths={here}/own", "--skip-sanity-check", "--only=B/1")
    assert shlex.split(line) == ["sifmod", "stack", "apply", f"{here}/stack.yaml", *told]
    asked = (here / "words").read_text().splitlines()
    assert {"--array=0-0", "--cpus-per-task=2", "--time=180", "--partition=small", "--requeue"} <= set(asked)


@pytest.mark.parametrize("words", [(), ("--job-test-partition", "gpu")])
def test_where_tests_run(here: Path, program: Program, words: tuple[str, ...]) -> None:
    """In a partition of their own where one is named, by the same account."""
    program("sbatch", 'echo "$*" >>words; wc -l <words')
    asked = ("--job", "--job-test", "--job-partition", "small", "--job-account", "ours", *words)
    assert run(["stack", "apply", "stack.yaml", "--only", "A/1", *asked]) == 0
    partitions, accounts = (
        [re.findall(f"--{option}=([a-z]+)", line) for line in (here / "words").read_text().splitlines()]
        for option in ("partition", "account")
    )
    assert partitions == [["small"], ["gpu" if words else "small"]]
    assert accounts == [["ours"], ["ours"]]


def test_options_of_sbatch_in_the_environment_count(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program("sbatch", 'for word; do echo "$word"; done >>words; echo 3')
    for name in ("SBATCH_TIMELIMIT", "SBATCH_CPUS_PER_TASK", "SBATCH_NO_REQUEUE"):
        monkeypatch.setenv(name, "5")
    assert run(["stack", "apply", "stack.yaml", "--job"]) == 0
    asked = (here / "words").read_text()
    assert not any(option in asked for option in ("--time", "--cpus-per-task", "--requeue"))
    assert "== job 3, 3 elements to install 5 modules: submitted" in capfd.readouterr().err


def test_there_is_no_slurm(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(here))
    with pytest.raises(OptionError, match="--job needs Slurm, and squeue was not found"):
        states(("1",))


def test_a_test_of_several_modules_has_time_for_each(here: Path, program: Program) -> None:
    program("sbatch", 'echo "$*" >>words; wc -l <words')
    for most in ("5", "2"):
        words = ("--job", "--job-test", "--job-max-jobs", most, "--prefix", str(here / f"prefix {most}"))
        assert run(["stack", "apply", "stack.yaml", *words]) == 0
    lines = (here / "words").read_text().splitlines()
    apart, together = (int(re.findall("--time=([0-9]+)", line)[0]) for line in lines[1::2])
    assert together == 3 * apart  # five modules in two elements


def test_what_slurm_has_taken_is_known_where_it_refuses_the_next(
    here: Path, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    program("sbatch", '[ ! -e words ] || { echo refused >&2; exit 1; }; echo "$*" >>words; echo 7')
    program("squeue", 'for number in 0 1 2; do echo "7_$number|PENDING|Priority"; done')
    words = ["stack", "apply", "stack.yaml", "--job", "--job-test"]
    assert run(words) == 2
    assert "refused" in capfd.readouterr().err
    taken = [one.job for one in read_submissions(Layout(here / "prefix"), "stack")]
    assert taken == ["7"]
    assert run(["stack", "apply", "stack.yaml", "--job"]) == 0
    assert len((here / "words").read_text().splitlines()) == 1  # nothing is submitted again


def test_images_that_share_most_of_the_smaller_one_are_fetched_by_one_element(
    here: Path, program: Program, registry: Registry
) -> None:
    """Also where the larger one is much larger: what the smaller one shares need not be fetched again."""
    program("sbatch", 'for word; do echo "$word"; done >words; echo 3')
    shared, small, large = (layer([Entry(f"file-{size}", os.urandom(size))]) for size in (200_000, 20_000, 5_000_000))
    for name, own in (("A", small), ("B", large)):
        tagged = registry.push_layout(write_layout(here / f"layout-{name}", (shared, own)), f"unequal:{name.lower()}")
        write(here / f"{name}-1.yaml", f"name: {name}\nversion: '1'\nimage: {{sources: ['{tagged}']}}\n")
    write(here / "two.yaml", "easyconfigs: [A-1.yaml, B-1.yaml]\n")
    assert run(["stack", "apply", "two.yaml", "--job"]) == 0
    assert "--array=0-0" in (here / "words").read_text().splitlines()
