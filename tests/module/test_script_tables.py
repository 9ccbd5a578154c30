"""The tables and small functions within runscripts, each row of them, run by a plain sh."""

import subprocess
from pathlib import Path

import pytest

from plans import plan
from support.command import run
from support.runscripts import Runscripts

PARTS = Path(__file__).parents[2] / "sifmod/module/templates/runscripts/parts"
LEAST = {
    "13.0": "580.65.06", "13.9": "580.65.06", "12.0": "525.60.13", "12.9.1": "525.60.13", "11.0": "450.36.06",
    "11.0.3": "450.36.06", "11.1": "450.80.02", "11.8.0": "450.80.02", "10.2": "440.33", "10.1.243": "418.39",
    "10.0.130": "410.48", "9.2": "396.26", "9.1": "390.46", "9.0": "384.81", "8.0.61": "367.48", "14.0": "616",
    "7.5": "", "": "",
}  # fmt: skip
CAME_WITH = """
611 13.3  610 13.3  609 13.2  595 13.2  594 13.1  590 13.1  589 13.0  580 13.0  579 12.9  575 12.9  574 12.8  570 12.8
569 12.7  565 12.7  564 12.6  560 12.6  559 12.5  555 12.5  554 12.4  550 12.4  549 12.3  545 12.3  544 12.2  535 12.2
534 12.1  530 12.1  529 12.0  525 12.0  524 11.8  520 11.8  519 11.7  515 11.7  514 11.6  510 11.6  509 11.5  495 11.5
494 11.4  470 11.4  469 11.3  465 11.3  464 11.2  460 11.2  459 11.1  455 11.1  454 11.0  450 11.0  449 10.2  440 10.2
439 10.1  418 10.1  417 10.0  410 10.0
""".split()  # noqa: SIM905


def sh(part: str, *lines: str) -> list[str]:
    """What the lines print after a part of the runscripts."""
    text = "\n".join((f". '{PARTS / part}'", *lines))
    return subprocess.run(("dash", "-euf", "-c", text), capture_output=True, text=True, check=True).stdout.splitlines()


def test_drivers_and_versions_of_cuda() -> None:
    asked = [f'echo "$(least_driver {cuda!r})"' for cuda in LEAST] + [f"cuda_of {one}.1.2" for one in CAME_WITH[::2]]
    assert sh("versions.sh", *asked) == [*LEAST.values(), *CAME_WITH[1::2]]


def test_which_version_is_older() -> None:
    pairs = ("1.2 1.2", "1.2 1.10", "1.10 1.2", "1 1.0.1", "1.0.0 1", "525.60.13 525.60.13", "525.60.12 525.60.13")
    lines = [f"if (older {pair}); then echo yes; else echo no; fi" for pair in pairs]
    assert sh("versions.sh", *lines) == ["no", "yes", "no", "yes", "no", "no", "yes"]


def test_how_many_tasks_a_node_has() -> None:
    asked = [f"tasks_on {node} '3(x2),1,2(x3)'" for node in range(6)]
    assert sh("step.sh", *asked) == ["3", "3", "1", "2", "2", "2"]


@pytest.mark.parametrize(
    ("handed_out", "first"),
    [
        ("32768 60999", 24577),
        ("9215 60999", 1024),  # below it
        ("9214 57343", 57344),  # too low for 8191 below it: above it
        ("1024 57000", 57001),
        ("9214 57344", 24577),  # neither: where it is usual
        ("15000 65000", 6809),
    ],
)
def test_ports_lie_outside_what_the_kernel_hands_out(handed_out: str, first: int, tmp_path: Path) -> None:
    table = tmp_path / "range"
    table.write_text(f"{handed_out}\n")
    (tmp_path / "step.sh").write_text(
        (PARTS / "step.sh").read_text().replace("/proc/sys/net/ipv4/ip_local_port_range", str(table))
    )
    pairs = ((0, 0), (0, 1), (1, 0), (1, 5), (84, 42), (84, 43), (4711, 7))
    lines = "\n".join(f"port {job} {step}" for job, step in pairs)
    done = subprocess.run(
        ("dash", "-euf", "-c", f". '{tmp_path}/step.sh'\n{lines}"), capture_output=True, text=True, check=True
    )
    assert [int(port) for port in done.stdout.split()] == [first + (job * 97 + step) % 8191 for job, step in pairs]
    low, high = map(int, handed_out.split())
    assert first != 24577 or first > low or first + 8190 < low or first > high


def test_two_processes_outside_of_jobs_have_two_ports(tmp_path: Path) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator="none"))
    assert len({runscripts.environment()["MASTER_PORT"] for _ in range(3)}) > 1


def test_packages_are_listed_whatever_case_they_begin_with(tmp_path: Path) -> None:
    """Of an image without pip."""
    library = tmp_path / "lib"
    for name, version in (("Zope", "1"), ("alpha", "2"), ("Beta", "3"), ("gamma", "4")):
        info = library / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    program = tmp_path / "python"
    python = subprocess.run(
        ("python3", "-c", "import sys; print(sys.executable)"), capture_output=True, text=True, check=True
    )
    program.write_text(f'#!/bin/sh\nPYTHONPATH={library} exec {python.stdout.strip()} -S "$@"\n')
    program.chmod(0o755)
    runscripts = Runscripts(tmp_path / "tree", plan(accelerator="none"))
    listed = runscripts.run("list-packages", env={"PATH": f"{tmp_path}:/usr/bin:/bin"}).ok().stdout
    ours = [line.split() for line in listed.splitlines() if line.split()[0] in ("Zope", "alpha", "Beta", "gamma")]
    assert ours == [["alpha", "2"], ["Beta", "3"], ["gamma", "4"], ["Zope", "1"]]


def test_which_of_the_users_venvs_is_activated(tmp_path: Path) -> None:
    """The one that is named, below the user's own place; the image's where there is none."""
    runscripts = Runscripts(tmp_path, plan(accelerator="none", user_software=True))
    text = (runscripts.directory / "init-conda-venv").read_text()
    here = tmp_path / "user-software"
    for name in ("a", "b"):
        (here / "venv" / name / "bin").mkdir(parents=True)
        (here / "venv" / name / "bin" / "activate").write_text(f"echo {name}\n")
    image = tmp_path / "image"
    (image / "bin").mkdir(parents=True)
    (image / "bin" / "activate").write_text("echo image\n")
    script = tmp_path / "init"
    script.write_text(text.replace("/user-software", str(here)))
    for named, said in (
        (here / "venv/b", "b"),
        ("", "a"),
        (here / "venv/none", "a"),
        (image, "a"),
        (tmp_path / "x", "a"),
    ):
        done = run(("bash", "-c", f". '{script}'; echo ${{sifmod_named-gone}}"), env={"VIRTUAL_ENV": str(named)}).ok()
        assert done.stdout.split() == [said, "gone"], named


REMOTE = (
    "lustre",
    "nfs",
    "nfs4",
    "gpfs",
    "beegfs_nodev",
    "ceph",
    "panfs",
    "wekafs",
    "pvfs2",
    "cifs",
    "smb3",
    "afs",
    "fuse.sshfs",
)


@pytest.mark.parametrize("kind", [*REMOTE, "tmpfs", "ext4", "xfs", "overlay", "btrfs"])
def test_which_places_are_the_nodes_own(kind: str, tmp_path: Path) -> None:
    """By the mount that is nearest, wherever it stands in the table; and none that is no directory."""
    beside = tmp_path.resolve() / "beside"
    beside.mkdir()
    other = "ext4" if kind in REMOTE else "lustre"
    table = f"x / {other} rw 0 0\nx {beside} {kind} rw 0 0\nx {beside}s lustre rw 0 0\nx /proc proc rw 0 0\n"
    (tmp_path / "mounts").write_text(table)
    function = (
        (PARTS / "caches.sh").read_text().partition("# is_local")[2].partition("\n")[2].partition("# own_directory")[0]
    )
    script = function.replace("/proc/self/mounts", f"{tmp_path}/mounts")
    asked = (str(beside), "relative", str(beside / "none"))
    lines = "\n".join(f"if is_local '{place}'; then echo yes; else echo no; fi" for place in asked)
    done = subprocess.run(
        ("dash", "-uf", "-c", f"{script}\n{lines}"), capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["no" if kind in REMOTE else "yes", "no", "no"]
