"""The budget of a conversion: the limits of control groups are files, written here as the kernel shows them."""

import os
from pathlib import Path

import pytest

from sifmod.image.budget import BASE, LEAST, MOST, PER_THREAD, memory, threads

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
