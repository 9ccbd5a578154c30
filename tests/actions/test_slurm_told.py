"""What Slurm's programs are asked and what their answers are taken for; each value differs from its neighbours."""

from pathlib import Path

import pytest

from sifmod.actions.slurm import Jobs, Resources, State, ask_slurm, states, submit
from sifmod.errors import OptionError

ALL = Resources(minutes=7, nodes=3, cores=5, gpus_per_node=2, account="acc", partition="part")
NAMED = ("--nodes=3", "--account=acc", "--partition=part", "--cpus-per-task=5", "--time=7")
GPUS = ("--exclusive", "--gpus-per-node=2")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only programs there are, but for those of the system."""
    place = tmp_path / "slurm's programs"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    return place


def program(place: Path, name: str, says: str, code: int = 0) -> None:
    (place / name).write_text(f'#!/bin/sh\nfor word; do echo "$word"; done >"$0.words"\n{says}\nexit {code}\n')
    (place / name).chmod(0o755)


def asked(place: Path, name: str) -> list[str]:
    return (place / f"{name}.words").read_text().splitlines()


@pytest.mark.parametrize(
    ("asks", "given", "words"),
    [
        (ALL, "", (*NAMED, *GPUS)),
        (ALL, "SBATCH_TIMELIMIT", (*NAMED, *GPUS)),  # what is named goes first
        (Resources(nodes=4, usual_minutes=45), "", ("--nodes=4", "--time=45")),
        (Resources(nodes=4, usual_minutes=45), "SBATCH_TIMELIMIT", ("--nodes=4",)),
        *((ALL, name, NAMED) for name in ("SBATCH_GRES", "SBATCH_GPUS", "SBATCH_GPUS_PER_NODE")),
        (Resources(account="a"), "", ("--nodes=1", "--account=a", "--time=30")),
        (Resources(partition="p"), "", ("--nodes=1", "--partition=p", "--time=30")),
    ],
)
def test_what_a_job_asks_for(
    asks: Resources, given: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TIMELIMIT", "GRES", "GPUS", "GPUS_PER_NODE"):
        monkeypatch.delenv(f"SBATCH_{name}", raising=False)
    if given:
        monkeypatch.setenv(given, "x")
    assert asks.words == words


def test_the_number_of_a_job(programs: Path) -> None:
    program(programs, "sbatch", "echo 'sbatch: lua: a note'; echo '42;hill'")
    assert submit("--wrap=a b", "--nodes=2") == "42"
    assert asked(programs, "sbatch") == ["--parsable", "--wrap=a b", "--nodes=2"]
    for says, code in (("echo 42", 1), ("echo none", 0), ("", 0)):
        program(programs, "sbatch", says, code)
        with pytest.raises(OptionError, match="sbatch rejected the job"):
            submit()


def test_which_variables_sbatch_gets(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("SBATCH_QOS", "SBATCH_WAIT4SWITCH", "SBATCH_WAIT", "SBATCH_ARRAY_INX")
    for name in names:
        monkeypatch.setenv(name, "1")
    program(programs, "sbatch", 'env >"$0.env"; echo 42')
    submit()
    there = {line.partition("=")[0] for line in (programs / "sbatch.env").read_text().splitlines()}
    assert there & set(names) == set(names[:2])


def test_which_jobs_are_asked_of_the_accounts(programs: Path) -> None:
    """Those of which the controller knows no element; one that the accounts do not know to have ended is not told."""
    program(
        programs, "squeue", "echo '12_3|RUNNING|None'; echo ' 13|PENDING|Priority'; echo 'a|b'; echo 'slurm: x|y|z|w'"
    )
    program(programs, "sacct", "echo '14|TIMEOUT'; echo '15|RUNNING'; echo '16|CANCELLED by 7'; echo '17|COMPLETED|0'")
    found = states(("12", "13", "14", "15", "16"))
    assert found == {
        "12_3": State("RUNNING", "None"), "13": State("PENDING", "Priority"),
        "14": State("TIMEOUT"), "16": State("CANCELLED"),
    }  # fmt: skip
    assert "--jobs=14,15,16" in asked(programs, "sacct")
    assert "--jobs=12,13,14,15,16" in asked(programs, "squeue")
    assert [str(state) for state in found.values()] == ["RUNNING", "PENDING (Priority)", "TIMEOUT", "CANCELLED"]


@pytest.mark.parametrize("says", ["Unknown host", "none"])
@pytest.mark.parametrize("name", ["", "SLURM_CONF", "SLURM_CONF_SERVER"])
def test_programs_without_a_cluster(says: str, name: str, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in use only where no file and no server is named, and none is known."""
    message = f"squeue: fatal: Could not establish a configuration source: {says}"
    program(programs, "squeue", f"echo '{message}' >&2", 1)
    if name:
        monkeypatch.setenv(name, "/hill")
    nothing = says == "Unknown host" and not name
    assert ask_slurm(programs) == (Jobs(None) if nothing else Jobs(None, f"squeue failed: {message}"))


@pytest.mark.parametrize(("mode", "only"), [(0o700, True), (0o710, False), (0o701, False), (0o766, True)])
def test_whose_jobs_may_use_a_tree(mode: int, only: bool, programs: Path, shared_tmp: Path) -> None:
    """Those of its owner alone where nobody else can get into it; and what the oldest of them is."""
    program(programs, "squeue", "echo 2026-03-04T10:00:00; echo; echo 2025-01-02T03:04:05; echo 2026-01-01T00:00:00")
    place = shared_tmp / "above" / "tree"
    place.mkdir(parents=True)
    place.parent.chmod(0o755)
    place.chmod(mode)
    found = ask_slurm(place)
    assert (f"--user={place.stat().st_uid}" in asked(programs, "squeue")) == only
    assert found.unknown == ""
    assert found.earliest is not None
    program(programs, "squeue", "echo 2025-01-02T03:04:05")
    assert ask_slurm(place).earliest == found.earliest  # the oldest of all
    for nothing in ("N/A", r"\351"):  # the second one is not UTF-8
        program(programs, "squeue", f"printf '{nothing}'")
        assert "printed an invalid time" in ask_slurm(place).unknown
