"""The runscript get-master gives the host that Slurm itself names first."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans import plan
from sifmod.module.scripts import scripts
from support.command import Result, run
from support.generation import SHELLS


def get_master(*args: str, shell: tuple[str, ...] = ("dash",), env: dict[str, str] | None = None) -> Result:
    files = scripts(plan(wrappers=(), runscripts=("get-master",)), 1)  # here, so that each test is known to run it
    text = next(file.text for file in files if file.path.endswith("get-master"))
    return run((*shell, "-c", text, "get-master", *args), env={"PATH": "/usr/bin:/bin", **(env or {})})


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("nid[005001-005004,005010]", "nid005001"),
        ("nid[005001,005007-005009]", "nid005001"),
        ("nid[005001]", "nid005001"),
        ("gpu-[01-04]", "gpu-01"),
        ("gpu[01,03]-ib", "gpu01-ib"),
        ("gpu[01,03]-ib.example.org,login", "gpu01-ib.example.org"),
        ("rack[1-2]n[01-04]", "rack1n01"),
        ("login,nid[000001-000002]", "login"),
        ("a-1,b[1-2]", "a-1"),
    ],
)
def test_every_form_of_a_node_list(shell: tuple[str, ...], nodes: str, first: str) -> None:
    result = get_master(nodes, shell=shell)
    assert (result.code, result.stdout, result.stderr) == (0, f"{first}\n", "")


@st.composite
def _brackets(draw: st.DrawFn) -> str:
    width = draw(st.integers(1, 6))
    numbers = sorted(draw(st.sets(st.integers(0, min(10**width, 10**5) - 1), min_size=1, max_size=6)))
    parts, left = [], [f"{number:0{width}}" for number in numbers]
    while left:
        low = left.pop(0)
        joined: bool = draw(st.booleans())
        parts.append(f"{low}-{left.pop(0)}" if joined and left and int(left[0]) - int(low) < 50 else low)
    return f"[{','.join(parts)}]"


_name = st.from_regex(r"[a-z]([a-z0-9-]{0,6}[a-z-])?", fullmatch=True)
# Text after the last bracket is legal in Slurm's configuration, but scontrol does not take it apart.
_host = _name | st.builds("".join, st.lists(st.builds(str.__add__, _name, _brackets()), min_size=1, max_size=3))


@pytest.fixture(scope="module")
def slurm_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that scontrol needs to take a node list apart: no cluster."""
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=none\nSlurmctldHost=localhost\n")
    assert shutil.which("scontrol"), "scontrol is missing: run scripts/provision"
    return path


@given(hosts=st.lists(_host, min_size=1, max_size=3))
def test_the_first_host_is_slurms(hosts: list[str], slurm_conf: Path) -> None:
    nodes = ",".join(hosts)
    env = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(slurm_conf)}
    known = run(("scontrol", "show", "hostnames", nodes), env=env).ok()
    assert get_master(nodes).ok().stdout == known.stdout.splitlines()[0] + "\n"


def test_the_list_comes_from_the_step_then_from_the_job() -> None:
    env = {"SLURM_NODELIST": "old", "SLURM_JOB_NODELIST": "job[1-2]", "SLURM_STEP_NODELIST": "step[3-4]"}
    for expected in ("step3", "job1", "old"):
        assert get_master(env=env).ok().stdout == f"{expected}\n"
        env.popitem()
    assert get_master("mine", env={"SLURM_STEP_NODELIST": "step"}).ok().stdout == "mine\n"


@pytest.mark.parametrize("nodes", ["", "[", "n[", "n[1-2", "n]", "n[]", ",", "a b", "$(touch x)", "n\n", "n[1;id]"])
def test_what_is_no_node_list_is_refused(nodes: str) -> None:
    result = get_master(nodes)
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr == f'get-master: expected a Slurm node list, got "{nodes}"\n'
