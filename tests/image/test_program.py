"""The runtime as it is installed: what it is asked, what its kernel mounts, and what each version cannot do."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.image.program import Program, limits, mounts_zstd, probe_runtime
from sifmod.image.startable import can_start, refusal_reason, slow_start_cost
from support.command import SIFMOD, run
from support.fetching import Prefix, plan
from support.images import Images
from support.runtime import RUNTIME

CE = Program("singularity-ce", (4, 3))
APPTAINER = Program("apptainer", (1, 4))
WITH, WITHOUT = "CONFIG_SQUASHFS=m\nCONFIG_SQUASHFS_ZSTD=y\n", "CONFIG_SQUASHFS=m\n# CONFIG_SQUASHFS_ZSTD is not set\n"


def configured(system: Path, where: str, text: str) -> Path:
    """A machine whose kernel's configuration is there."""
    path = system / where.format(os.uname().release)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if where.endswith(".gz") else text.encode())
    return system


@pytest.mark.parametrize("where", ["proc/config.gz", "boot/config-{}", "lib/modules/{}/config"])
def test_the_kernel_says_what_it_mounts(tmp_path: Path, where: str) -> None:
    assert mounts_zstd(tmp_path) is None
    assert mounts_zstd(configured(tmp_path, where, WITHOUT)) is False
    assert mounts_zstd(configured(tmp_path, where, WITH)) is True


def test_a_configuration_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    configured(tmp_path, "proc/config.gz", WITH)
    (tmp_path / "proc" / "config.gz").write_bytes(b"\x1f\x8bnonsense")
    assert mounts_zstd(tmp_path) is None
    assert mounts_zstd(configured(tmp_path, "boot/config-{}", WITH)) is True


def installed(directory: Path, version: str, setuid: bool = False, allowed: str = "yes") -> str:
    """A program that answers as a runtime of this version that is installed in this way."""
    name = version.split()[0].partition("-")[0]
    starter = directory / "libexec" / name / "bin" / "starter-suid"
    starter.parent.mkdir(parents=True, exist_ok=True)
    starter.write_text("")
    starter.chmod(0o4755 if setuid else 0o755)
    (directory / "the.conf").write_text(f"# allow setuid = maybe\nallow setuid = {allowed}\n")
    said = f"PACKAGE_NAME={version.split()[0]}\nLIBEXECDIR={directory}/libexec\n"
    said += f"{name.upper()}_CONF_FILE={directory}/the.conf"
    program = directory / "program"
    program.write_text(f"#!/bin/sh\ncase $1 in --version) echo '{version}' ;; buildcfg) echo '{said}' ;; esac\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("says", "setuid", "forbids"),
    [
        ("enable overlay = no\nenable underlay = no\n", False, ("enable overlay = no", "enable underlay = no")),
        ("enable overlay = no\nenable underlay = yes\n", False, ()),
        ("# enable overlay = no\nenable underlay = no\n", False, ()),
        ("user bind control = no\n", True, ("user bind control = no",)),
        ("user bind control = no\n", False, ()),  # which counts with setuid alone
    ],
)
def test_a_configuration_that_forbids_binds(tmp_path: Path, says: str, setuid: bool, forbids: tuple[str, ...]) -> None:
    path = installed(tmp_path, "apptainer version 1.4.2", setuid)
    with (tmp_path / "the.conf").open("a") as file:
        file.write(says)
    program = probe_runtime(path, tmp_path)
    assert program
    root = os.geteuid() == 0  # whose starter alone counts as setuid
    assert (program.setuid, program.forbids) == (setuid and root, forbids if root or not setuid else ())


def found(directory: Path, *how: object, kernel: str = "") -> Program:
    directory.mkdir()
    system = configured(directory, "proc/config.gz", kernel) if kernel else directory
    program = probe_runtime(installed(directory, *how), system)  # type: ignore[arg-type]
    assert program is not None
    return program


def test_what_a_program_is(tmp_path: Path) -> None:
    """A setuid starter counts where it is root's, and allowed."""
    root = os.geteuid() == 0
    assert (
        probe_runtime("") is None
        and probe_runtime(str(tmp_path)) is not None
        and probe_runtime(str(tmp_path / "none")) is None
    )
    plain = found(tmp_path / "1", "apptainer version 1.4.2-1.el9", kernel=WITHOUT)
    assert plain == Program(
        "apptainer", (1, 4), "apptainer version 1.4.2-1.el9", False, False, (), f"{tmp_path}/1/the.conf"
    )
    assert found(tmp_path / "2", "singularity-ce version 4.3.7", True) == Program(
        "singularity-ce", (4, 3), "singularity-ce version 4.3.7", root, None, (), f"{tmp_path}/2/the.conf"
    )
    assert found(tmp_path / "3", "singularity-ce version 3.11.4-focal", True, "no").setuid is False
    assert found(tmp_path / "4", "apptainer version 1.10.0", True, kernel=WITH).setuid is root
    assert found(tmp_path / "5", "singularity-pro version 4.1.3-1").kind == "singularity-pro"
    assert found(tmp_path / "6", "docker version 25.0").kind == "unknown"
    warned = found(tmp_path / "7", "ERROR: ld.so: object '/x.so' from LD_PRELOAD\napptainer version 1.4.2")
    assert (warned.kind, warned.said) == ("apptainer", "apptainer version 1.4.2")  # LD_PRELOAD chose gzip


def test_an_upgrade_is_noticed(tmp_path: Path) -> None:
    assert found(tmp_path / "a", "apptainer version 1.3.6").version == (1, 3)
    now = probe_runtime(installed(tmp_path / "a", "apptainer version 1.4.0"))
    assert now is not None and now.version == (1, 4)


def test_asking_leaves_nothing_at_home(own_home: Path) -> None:
    assert probe_runtime(RUNTIME.path, own_home / "elsewhere") is not None
    assert list(own_home.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (APPTAINER, True),
        (replace(APPTAINER, version=(1, 3)), False),
        (replace(APPTAINER, setuid=True, kernel_zstd=True), True),
        (replace(APPTAINER, setuid=True, kernel_zstd=False), False),
        (replace(APPTAINER, setuid=True), None),
        (replace(APPTAINER, kernel_zstd=False), True),  # it is not the kernel that mounts
        (CE, False),
        (replace(CE, setuid=True, kernel_zstd=True), False),
        (Program("singularity", (3, 8)), False),
        (Program("singularity-pro", (4, 1)), None),
        (Program("unknown", (0, 0)), None),
        (None, None),
    ],
)
def test_who_starts_an_image_with_zstd(program: Program | None, expected: bool | None) -> None:
    assert can_start("zstd", program) is expected
    assert can_start("gzip", program) is True or program is None
    assert bool(refusal_reason("zstd", program)) is (expected is False)
    assert refusal_reason("gzip", program) == "" == refusal_reason("", program)


def test_the_kernels_part_is_named() -> None:
    old = replace(APPTAINER, setuid=True, kernel_zstd=False)
    assert (
        refusal_reason("zstd", old) == "Apptainer 1.4 with setuid mounts with the kernel, which does not support zstd"
    )


@pytest.mark.parametrize(
    ("kernel", "expected"), [(WITH, True), (WITHOUT, False), ("", None)], ids=["with", "without", "silent"]
)
def test_a_setuid_apptainer_leaves_images_to_the_kernel(tmp_path: Path, kernel: str, expected: bool | None) -> None:
    """E17. Only root can make a setuid starter that counts."""
    program = found(tmp_path / "machine", "apptainer version 1.4.2", True, kernel=kernel)
    assert can_start("zstd", program) is (expected if os.geteuid() == 0 else True)


def test_auto_takes_what_this_kernel_mounts(images: Images, tmp_path: Path) -> None:
    """The same, end to end: `auto` with a setuid Apptainer on the machine that runs this (E17)."""
    path = installed(tmp_path, "apptainer version 1.4.2", True)
    wanted = plan(f"oci:{images.tiny_layout()}")
    artifact = Prefix(tmp_path / "prefix").fetch(replace(wanted, runtime=replace(wanted.runtime, path=path)))
    by_kernel = os.geteuid() == 0 and mounts_zstd() is not True
    assert artifact.origin.compression == ("gzip:2" if by_kernel else "zstd:3")


# the kernel's configuration, $0, where this machine has its own; then what follows
CONFIGURED = """
if [ -e /proc/config.gz ]; then mount --bind "$0" /proc/config.gz; else
  mount -t tmpfs none /boot && zcat "$0" >"/boot/config-$(uname -r)"
fi && exec "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a setuid starter that counts")
@pytest.mark.parametrize(("kernel", "expected"), [(WITH, "zstd:3"), (WITHOUT, "gzip:2")], ids=["with", "without"])
def test_auto_asks_the_kernel_of_the_machine(images: Images, tmp_path: Path, kernel: str, expected: str) -> None:
    """Of a machine like this one with another kernel, from the command line (E17)."""
    config = tmp_path / "config.gz"
    config.write_bytes(gzip.compress(kernel.encode()))
    runtime = installed(tmp_path, "apptainer version 1.4.2", True)
    command = (*SIFMOD, "fetch", "-q", "--json", f"oci:{images.tiny_layout()}", "-o", tmp_path / "x.sif")
    env = {**os.environ, "SIFMOD_PREFIX": str(tmp_path / "prefix"), "SIFMOD_RUNTIME": runtime}
    found = run(("unshare", "--mount", "sh", "-c", CONFIGURED, config, *command), env=env).ok()
    assert json.loads(found.stdout)["made_from"]["compression"] == expected


@pytest.mark.parametrize(
    ("program", "subjects"),
    [
        (APPTAINER, set()),
        (replace(APPTAINER, version=(1, 3)), {"zstd"}),
        (CE, {"zstd", "lz4", "image bind", "nvccli", "variables"}),
        (replace(CE, version=(3, 11)), {"zstd", "lz4", "mount", "image bind", "nvccli", "variables"}),
        (replace(CE, setuid=True), {"zstd", "variables"}),
    ],
)
def test_what_a_version_cannot_do(program: Program, subjects: set[str]) -> None:
    assert {limit.subject for limit in limits(program)} == subjects
    assert bool(slow_start_cost("lz4", program)) is ("lz4" in subjects)
    assert slow_start_cost("gzip", program) == ""
