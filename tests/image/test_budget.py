"""The budget of a conversion: the limits of control groups are files, written here as the kernel shows them."""

import os
from pathlib import Path

import pytest

from sifmod.image.convert.budget import BASE, LEAST, MOST, PER_THREAD, memory, threads

HERE = len(os.sched_getaffinity(0))
LARGE = "MemTotal:       1000000000 kB\n"


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": LARGE, "proc/self/cgroup": "0::/user/job\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_limits_all_processors_up_to_the_most(tmp_path: Path) -> None:
    assert threads(None, None, system(tmp_path, {})) == min(HERE, MOST)


def test_on_this_machine_it_is_at_least_one_and_no_more_than_there_are() -> None:
    assert 1 <= threads(None, None) <= HERE


def test_the_site_decides(tmp_path: Path) -> None:
    assert threads(1, None, system(tmp_path, {})) == 1
    assert threads(500, None, system(tmp_path, {})) == HERE


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/user/job/cpu.max": "100000 100000\n"},
        {"sys/fs/cgroup/user/cpu.max": "50000 100000\n", "sys/fs/cgroup/user/job/cpu.max": "max 100000\n"},
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/job\n3:memory:/job\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "60000\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
        },
        {"sys/fs/cgroup/user/job/memory.max": f"{4 * (BASE + PER_THREAD)}\n"},
        {"proc/meminfo": f"MemTotal: {4 * (BASE + PER_THREAD) >> 10} kB\n"},
        {"sys/fs/cgroup/user/job/memory.max": "1000\n"},
    ],
    ids=["quota", "quota of the parent", "version 1", "memory of the group", "memory of the machine", "hardly any"],
)
def test_each_limit_counts(tmp_path: Path, files: dict[str, str]) -> None:
    assert threads(None, None, system(tmp_path, files)) == 1


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:cpu,cpuacct:/\n3:memory:/\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert threads(None, None, system(tmp_path, files)) == min(HERE, MOST)


def test_the_sites_memory_wins_over_the_quarter(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/user/job/memory.max": f"{4 * (BASE + PER_THREAD)}\n"}
    assert threads(None, BASE + 64 * PER_THREAD, system(tmp_path, files)) == min(HERE, MOST)


def test_memory_is_the_sites_or_a_quarter_of_what_there_is(tmp_path: Path) -> None:
    group = system(tmp_path, {"sys/fs/cgroup/user/job/memory.max": f"{8 << 30}\n"})
    assert memory(None, group) == 2 << 30
    assert memory(5 << 30, group) == 5 << 30
    assert memory(64 << 20, group) == LEAST


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))


CPU, MEMORY = "sys/fs/cgroup/user/job/cpu.max", "sys/fs/cgroup/user/job/memory.max"
OLD = {"proc/self/cgroup": "5:cpuset:/job\n4:cpu,cpuacct:/job/step\n3:memory:/job/step\n"}


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 64),
        ({CPU: "300000 100000\n"}, 3),
        ({CPU: "250000 100000\n"}, 3),
        ({CPU: "0 100000\n"}, 1),
        ({CPU: "200000 0\n"}, 64),
        ({CPU: "200000\n"}, 64),
        ({CPU: "max 100000\n"}, 64),
        ({CPU: "200000 max\n"}, 64),
        ({CPU: "500000 100000\n", "sys/fs/cgroup/user/cpu.max": "300000 100000 x\n"}, 3),
        ({CPU: "500000 100000\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
        ({"sys/fs/cpu.max": "300000 100000\n", "sys/fs/cgroup/other/cpu.max": "100000 100000\n"}, 64),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/../../x\n"}, 64),
        (
            {
                **OLD,
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "700000\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/job/step/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/job/step/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpuset/job/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpuset/job/cpu.cfs_period_us": "100000\n",
            },
            7,
        ),
    ],
)
def test_how_many_processors_a_group_has(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert threads(500, None, system(tmp_path, files)) == expected


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("files", "quarters"),
    [
        ({MEMORY: "{}"}, True),
        ({"sys/fs/cgroup/user/memory.high": "{}"}, True),
        ({MEMORY: "max", "sys/fs/cgroup/memory.high": "{}"}, True),
        ({**OLD, "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "{}"}, True),
        ({**OLD, "sys/fs/cgroup/cpu/job/memory.limit_in_bytes": "{}"}, False),
        ({"sys/fs/memory.max": "{}"}, False),
        ({"proc/meminfo": "MemFree: 1 kB\nMemTotal: 1000000000 kB\n", MEMORY: "{}"}, True),
        ({"proc/meminfo": ""}, False),
    ],
)
def test_how_many_threads_a_groups_memory_is_for(tmp_path: Path, files: dict[str, str], quarters: bool) -> None:
    limit = 4 * (BASE + 5 * PER_THREAD) + 7
    root = system(tmp_path, {name: text.replace("{}", str(limit)) for name, text in files.items()})
    assert threads(None, None, root) == (5 if quarters else MOST)
    if quarters:
        assert memory(None, root) == BASE + 5 * PER_THREAD + 1


@pytest.mark.usefixtures("many")
def test_what_cannot_be_read_is_no_limit(tmp_path: Path) -> None:
    assert threads(None, None, tmp_path) == MOST
    root = system(tmp_path, {"proc/self/cgroup": "0::/user/job\n"})
    (root / "sys" / "fs" / "cgroup" / "user" / "job" / "cpu.max").mkdir(parents=True)
    (root / "proc" / "meminfo").write_bytes(b"\xff: 1 kB\nMemTotal: 1000000000 kB\n")
    assert threads(None, None, root) == MOST
    assert threads(None, BASE + 3 * PER_THREAD, root) == 3
    assert threads(None, BASE, root) == threads(0, None, root) == 1
