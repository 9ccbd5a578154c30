"""`sifmod doctor`: every finding, on machines that are made up of a few files, programs and variables."""

import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sifmod.actions import doctor
from sifmod.actions import machine as of_machine
from sifmod.actions.doctor import diagnose, diagnose_settings
from sifmod.actions.machine import Finding
from sifmod.cli.machine import in_order_of_need
from sifmod.cli.main import run
from sifmod.config.site import Site
from sifmod.image.program import Program
from sifmod.image.trial_start import NOT_RUN, NoStart, cannot_start
from support.config import Configuration, write
from support.images import Images
from support.runtime import RUNTIME

APPTAINER = Program("apptainer", (1, 4), "apptainer version 1.4.2", setuid=True, kernel_zstd=True)
GB = 10**9
NO_CLUSTER = "normal on a machine outside a cluster; on a cluster, ask for its slurm.conf"


class Machine:
    """One with no program on PATH, no devices, and nothing in /proc; a test adds what it wants to be found."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.free = root / "machine", 100 * GB
        self.closed: dict[str, int] = {}  # a path, and the rights that this user lacks there
        self.asked: list[Path] = []  # how much is free there
        self.program: Program | None = None
        (root / "bin").mkdir()
        monkeypatch.setenv("PATH", str(root / "bin"))
        monkeypatch.setattr(doctor, "Path", self._path)
        monkeypatch.setattr(of_machine, "Path", self._path)
        self.no_start: NoStart | None = None
        monkeypatch.setattr(of_machine, "cannot_start", lambda *_: self.no_start)
        monkeypatch.setattr(of_machine, "probe_runtime", lambda path: self.program if path else None)
        monkeypatch.setattr(os, "access", self._access)
        monkeypatch.setattr(shutil, "disk_usage", self._usage)
        self.site: Site = replace(
            Configuration(root).site(site="generic").site, runtime_path="/usr/bin/apptainer", prefix=root / "tree" / "x"
        )
        (root / "tree").mkdir()

    def _path(self, path: str | Path) -> Path:
        of_the_machine = str(path).startswith(("/dev", "/proc", "/sys")) and not str(path).startswith(
            f"{self.root.parent}/"
        )
        return Path(f"{self.root}{path}") if of_the_machine else Path(path)

    def _access(self, path: str | Path, mode: int, **_: object) -> bool:
        return not mode & self.closed.get(str(path), 0)

    def _usage(self, path: Path) -> SimpleNamespace:
        self.asked.append(path)
        return SimpleNamespace(free=self.free)

    def has(self, path: str, text: str | bytes = "") -> None:
        place = Path(f"{self.root}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())

    def runs(self, name: str, script: str) -> str:
        program = self.root.parent / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return str(program)

    def findings(self, environ: Mapping[str, str] | None = None) -> dict[str, Finding]:
        """By subject, each of which is found once."""
        found = diagnose(self.site, environ or {})
        assert len({one.subject for one in found}) == len(found)
        return {one.subject: one for one in found}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def without_builders(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """All but what the real machine can build, and has in /tmp."""
    return tuple(one for one in findings if one.subject not in ("builds", "Dockerfiles", "temporary files"))


def test_what_can_build_here(machine: Machine) -> None:
    machine.program = APPTAINER
    machine.runs("buildah", "true")
    assert "buildah" in machine.findings()["Dockerfiles"].text
    machine.program = None
    machine.site = replace(machine.site, runtime_path="")
    found = machine.findings()["builds"]
    assert found.status == "note"
    assert "building needs apptainer or singularity" in found.text
    assert "sifmod push" in found.hint


def test_a_machine_on_which_all_is_well(machine: Machine) -> None:
    machine.program = APPTAINER
    machine.runs("mksquashfs", "echo; echo 'mksquashfs version 4.6'; echo 'more words'; printf '\\351'; echo noise >&2")
    machine.runs("srun", "echo slurm 23.11; exit 1")
    for device in ("nvidia0", "nvidia1", "nvidiactl", "dri/renderD128", "dri/card0", "kfd"):
        machine.has(f"/dev/{device}")
    machine.has("/proc/driver/nvidia/version", "NVRM version: 550\nGCC version: 12\n")
    machine.has("/sys/module/amdgpu/version", b"6.7\xff\n")
    assert without_builders(diagnose(machine.site, {"LMOD_VERSION": "8.7", "MODULESHOME": "/m"})) == (
        Finding("runtime", "ok", "apptainer version 1.4.2, with setuid (/usr/bin/apptainer); it starts a container"),
        Finding("user namespaces", "ok", "available to ordinary users"),
        Finding("mksquashfs", "ok", "mksquashfs version 4.6"),
        Finding("NVIDIA GPUs", "ok", "2 (NVRM version: 550)"),
        Finding("AMD GPUs", "ok", "1 (amdgpu 6.7\ufffd)"),
        Finding("accelerator", "ok", "none (site generic)"),
        Finding("module tool", "ok", "Lmod 8.7"),
        Finding("Slurm", "ok", "slurm 23.11"),
        Finding(
            "prefix",
            "ok",
            f"{machine.site.prefix} (default), 100.0 GB free",
        ),
    )
    assert machine.asked == [machine.site.prefix.parent]


def test_a_machine_on_which_nothing_is(machine: Machine) -> None:
    machine.site = replace(machine.site, runtime_path="", accelerator="cuda", prefix_is_default=False)
    assert without_builders(diagnose(machine.site, {})) == (
        Finding(
            "runtime",
            "missing",
            "the site's runtime, apptainer or singularity, is not on PATH",
            "modules can be installed but not run; install Apptainer, or load the site's module for it",
        ),
        Finding("user namespaces", "ok", "available to ordinary users"),
        Finding(
            "mksquashfs",
            "note",
            "not on PATH",
            "install squashfs-tools: `make-squashfs` of a loaded module uses it; sifmod itself does not",
        ),
        Finding("GPUs", "note", "none on this node, as usual on a login node"),
        Finding("accelerator", "ok", "cuda (site generic)"),
        Finding(
            "module tool",
            "missing",
            "`module` is not set up in this shell",
            "set up Lmod or Environment Modules and log in again; the wrappers work without either",
        ),
        Finding("Slurm", "note", "not on PATH"),
        Finding("prefix", "ok", f"{machine.site.prefix} (configured), 100.0 GB free"),
    )


def test_a_runtime_that_the_site_names_and_that_is_none(machine: Machine) -> None:
    assert machine.findings()["runtime"].text == "/usr/bin/apptainer is not a program"


@pytest.mark.parametrize(
    ("setuid", "zstd", "said"),
    [
        (True, True, ""),
        (True, False, "has no zstd for squashfs"),
        (True, None, "has unknown support for zstd in squashfs"),
        (False, False, ""),
        (False, None, ""),
    ],
)
def test_a_kernel_that_may_not_mount_what_a_setuid_runtime_gives_it(
    machine: Machine, setuid: bool, zstd: bool | None, said: str
) -> None:
    machine.program = replace(APPTAINER, setuid=setuid, kernel_zstd=zstd)
    hint = "sifmod converts images with gzip here, unless `compression` is set"
    text = f"the kernel mounts images here, and {said}"
    assert machine.findings().get("kernel") == (Finding("kernel", "note", text, hint) if said else None)


def test_what_a_version_of_the_runtime_cannot_do(machine: Machine) -> None:
    machine.program = Program("apptainer", (1, 3), "apptainer version 1.3.9")
    first, second = (one for one in diagnose(machine.site, {}) if one.subject == "runtime")
    assert first == Finding(
        "runtime", "ok", "apptainer version 1.3.9, without setuid (/usr/bin/apptainer); it starts a container"
    )
    assert (second.status, second.text) == (
        "note",
        "Apptainer 1.3 without setuid refuses an image whose squashfs is compressed with zstd",
    )
    assert second.hint.startswith("sifmod converts images with gzip here")


@pytest.mark.parametrize(
    ("name", "closed", "open_"),
    [
        ("kernel/unprivileged_userns_clone", "0", "1"),
        ("user/max_user_namespaces", "0", "100"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ],
)
def test_user_namespaces_that_are_closed(machine: Machine, name: str, closed: str, open_: str) -> None:
    machine.has(f"/proc/sys/{name}", f"{open_}\n")
    assert machine.findings()["user namespaces"] == Finding("user namespaces", "ok", "available to ordinary users")
    machine.has(f"/proc/sys/{name}", f"{closed}\n")
    found = machine.findings()["user namespaces"]
    assert (found.status, found.text) == ("note", f"not available to ordinary users (/proc/sys/{name})")
    assert found.hint.startswith("a runtime installed with its setuid starter works without them")


def test_a_configuration_that_forbids_binds(machine: Machine) -> None:
    machine.program = replace(APPTAINER, forbids=("enable overlay = no", "enable underlay = no"))
    text = (
        "its configuration has `enable overlay = no` and `enable underlay = no`: paths that do not exist in the image, "
    )
    assert machine.findings()["binds"].text == f"{text}such as the physical path of a linked home, are not bound"
    machine.program = APPTAINER
    assert "binds" not in machine.findings()


def test_a_program_that_cannot_be_started(machine: Machine) -> None:
    program = Path(machine.runs("mksquashfs", ""))
    program.write_text("#!/no/such/interpreter\n")
    found = machine.findings()["mksquashfs"]
    assert found.status == "ok"
    assert found.text.startswith("cannot be run: [Errno 2] No such file or directory")


def test_what_is_said_on_standard_error_alone(machine: Machine) -> None:
    machine.runs("srun", "echo 'srun: error: no slurm.conf' >&2; echo more >&2; exit 1")
    assert machine.findings()["Slurm"] == Finding(
        "Slurm", "note", "installed, but not configured here (srun: error: no slurm.conf)", NO_CLUSTER
    )


@pytest.mark.parametrize("lacking", [os.R_OK, os.W_OK])
def test_fuse_has_to_be_open_for_reading_and_writing(machine: Machine, lacking: int) -> None:
    assert "/dev/fuse" not in machine.findings()
    machine.closed["/dev/fuse"] = lacking
    hint = "a runtime without setuid mounts images through FUSE"
    assert machine.findings()["/dev/fuse"] == Finding("/dev/fuse", "note", "not accessible to this user", hint)


def test_gpus_without_a_version(machine: Machine) -> None:
    machine.has("/dev/nvidia0")
    found = machine.findings()
    assert found["NVIDIA GPUs"].text == "1 (driver version unknown)"
    assert not {"AMD GPUs", "GPUs"} & found.keys()


def test_amd_gpus_are_those_with_a_driver_for_computing(machine: Machine) -> None:
    machine.has("/dev/dri/renderD128")
    assert machine.findings()["GPUs"].status == "note"
    machine.has("/dev/kfd")
    found = machine.findings()
    assert found["AMD GPUs"].text == "1 (amdgpu version unknown)"
    assert not {"NVIDIA GPUs", "GPUs"} & found.keys()


@pytest.mark.parametrize(
    ("variables", "named"),
    [({"MODULESHOME": "/m"}, "/m"), ({"MODULES_CMD": "/c"}, "/c"), ({"MODULES_CMD": "/c", "MODULESHOME": "/m"}, "/m")],
)
def test_environment_modules(machine: Machine, variables: dict[str, str], named: str) -> None:
    found = machine.findings(variables)["module tool"]
    assert (found.status, found.text) == ("ok", f"Environment Modules ({named})")


def test_a_second_module_tool_that_does_not_see_the_modules(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Installed under Lmod, looked at under Environment Modules; then for both."""
    text = "name: App\nversion: '{}'\nimage: {{sources: ['{}']}}\nwrappers: [sh]\n"
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "pre fix"))
    monkeypatch.setenv("LMOD_CMD", "/x")
    for version, more in (("1", []), ("2", []), ("3", ["--module-syntax", "both"])):
        path = write(tmp_path / f"App-{version}.yaml", text.format(version, images.tiny_sif))
        assert run(["install", str(path), "--skip-sanity-check", *more]) == 0
    monkeypatch.delenv("LMOD_CMD")
    monkeypatch.setenv("MODULES_CMD", "/y")

    def told() -> list[tuple[str, str]]:
        capfd.readouterr()
        run(["doctor", "--json"])
        return [
            (row["text"], row["hint"]) for row in json.loads(capfd.readouterr().out) if row["subject"] == "modulefiles"
        ]

    found = told()[0]
    assert found[0] == f"Environment Modules does not see 2 of 3 modules in {tmp_path}/pre fix: no Tcl modulefile"
    command = found[1].split("`")[1]
    assert command == f"sifmod install --module-only --installed --module-syntax both --prefix '{tmp_path}/pre fix'"
    assert run([*shlex.split(command)[1:], "--yes"]) == 0
    assert not any("does not see 2" in text for text, _ in told())
    monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", "both")
    assert told() == []


def test_an_install_says_which_module_tool_will_not_see_it(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = f"name: App\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    path = write(tmp_path / "App-1.yaml", text)
    monkeypatch.setenv("MODULES_CMD", "/y")
    words = ["install", str(path), "--skip-sanity-check", "--prefix", str(tmp_path / "prefix")]
    assert run([*words, "--module-syntax", "lua"]) == 0
    said = "does not see App/1: `--module-syntax both`, or `module_syntax: both` in the settings"
    assert f"Environment Modules, which is on this machine too, {said}" in capfd.readouterr().err
    assert run([*words, "--module-syntax", "both"]) == 0
    assert "does not see" not in capfd.readouterr().err


def test_the_room_for_images(machine: Machine) -> None:
    machine.free = 10 * GB
    assert machine.findings()["prefix"].status == "ok"
    machine.free -= 1
    found = machine.findings()["prefix"]
    assert (found.status, found.text.rpartition(", ")[2]) == ("note", "10.0 GB free")
    assert found.hint == "PyTorch images are 5 to 20 GB: export SIFMOD_PREFIX=DIR on a larger disk"
    machine.closed[str(machine.site.prefix.parent)] = os.W_OK
    found = machine.findings()["prefix"]
    assert (found.status, found.text.partition("), ")[2]) == ("missing", "10.0 GB free, not writable")
    assert found.hint == "choose your own: export SIFMOD_PREFIX=DIR"


def of_variables(machine: Machine, environ: Mapping[str, str]) -> list[str]:
    found = [one for one in diagnose(machine.site, environ) if one.subject == "environment"]
    assert {one.status for one in found} <= {"note"}
    return [f"{one.text}; {one.hint}" for one in found]


def test_two_spellings_of_a_variable(machine: Machine) -> None:
    variables = {
        "SINGULARITY_TMPDIR": "/a",
        "SINGULARITYENV_X": "1",
        "SINGULARITY_BIND": "/a",
        "SINGULARITY_QUIET": "1",
        "SINGULARITY": "/a",
        "APPTAINER_TMPDIR": "/b",
        "APPTAINERENV_X": "2",
        "APPTAINER_BIND": "/a",
        "APPTAINER": "/b",
    }
    hint = "and ignores the other: set both to the same value, or only one"
    assert of_variables(machine, variables) == [
        f"SINGULARITYENV_X and APPTAINERENV_X are set differently; Apptainer uses APPTAINERENV_X {hint}",
        f"SINGULARITY_TMPDIR and APPTAINER_TMPDIR are set differently; Apptainer uses APPTAINER_TMPDIR {hint}",
    ]


def test_variables_that_singularity_does_not_read(machine: Machine) -> None:
    names = ("_TMPDIR", "ENV_X", "_BIND", "_BINDPATH", "_QUIET", "")
    variables = {f"APPTAINER{name}": "1" for name in names} | {"SINGULARITY_QUIET": "1", "OTHER": "1"}
    assert of_variables(machine, variables) == []
    machine.site = replace(machine.site, runtime_kind="singularity")
    assert of_variables(machine, variables) == [
        "APPTAINERENV_X is set, which this runtime does not read; set SINGULARITYENV_X",
        "APPTAINER_TMPDIR is set, which this runtime does not read; set SINGULARITY_TMPDIR",
    ]


def test_site_files_and_quirks_that_cannot_be_used(tmp_path: Path) -> None:
    configuration = Configuration(tmp_path)
    environ = configuration.environ
    own = tmp_path / "home/.config/sifmod"
    head = "description: d\nreason: r\nlink: l\nmatch: {name: A}\n"
    write(own / "sites/good.yaml", "accelerator: rocm\n")
    write(tmp_path / "etc/quirks/good.yaml", f"{head}env: {{B: '1'}}\n")
    write(own / "sites/other.text", "acelerator: rocm\n")
    assert diagnose_settings(environ) == (
        Finding("settings", "ok", "2 site files, quirks and MPI profiles beside the shipped ones"),
    )
    bad = write(own / "sites/bad.yaml", "acelerator: rocm\numsk: '22'\n")
    worse = write(own / "quirks/a.yaml", f"{head}envs: {{}}\n")
    of_the_machine = write(tmp_path / "etc/sites/z.yaml", "acelerator: rocm\n")
    first, second, third = diagnose_settings(environ)
    assert {(one.subject, one.status, one.hint) for one in (first, second, third)} == {
        (
            "settings",
            "missing",
            "`install`, `show` and `check` of an easyconfig may stop at it: correct it, or move it away",
        )
    }
    assert first.text.startswith(f"{of_the_machine}:1:1: acelerator: unknown key")
    of_bad, of_bad_too = second.text.split("; " + str(bad))
    assert of_bad.startswith(f"{bad}:1:1: acelerator: unknown key")
    assert of_bad_too.startswith(":2:1: umsk: unknown key")
    assert third.text.startswith(f"{worse}:5:1: envs: unknown key")


def test_a_runtime_that_starts_no_container(machine: Machine) -> None:
    machine.program, machine.no_start = APPTAINER, NoStart("FATAL: no", "try this")
    found = machine.findings()["runtime"]
    assert (found.status, found.hint) == ("missing", "try this")
    assert found.text.endswith("(/usr/bin/apptainer) starts no container: FATAL: no")


def test_what_is_missing_is_printed_first_with_hanging_indents(machine: Machine) -> None:
    """On a terminal of 60 columns; words stay whole."""
    machine.program, machine.no_start = APPTAINER, NoStart("FATAL: " + "because " * 20, "do " * 20)
    rows = diagnose(machine.site, {})
    lines = list(in_order_of_need(rows, 60))
    marks = [line[:4] for line in lines if line.startswith("[")]
    assert marks == sorted(marks, key=["[!!]", "[--]", "[ok]"].index)
    assert len(marks) == len(rows)
    below = " " * (lines[0].index("apptainer version"))
    assert lines[1].startswith(f"{below}container: FATAL: because ") or lines[1].startswith(below)
    assert lines[[line.strip().startswith("=> do do") for line in lines].index(True)].startswith(f"{below}=> do do ")
    assert all(len(line) <= 60 or "/" in line for line in lines)
    told = "".join("".join(lines).split())
    assert all("".join(row.text.split()) in told for row in rows)
    assert [line[:4] for line in in_order_of_need(rows, 0) if line.startswith("[")] == marks


def test_the_runtime_is_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime of this machine; then programs in its place that do not start anything, or only in one way."""
    for name, value in RUNTIME.userns.items():
        monkeypatch.setenv(name, value)
    arch = Configuration(tmp_path).site(site="generic").site.arch
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert cannot_start(RUNTIME.path, arch) is None
    program = write(
        tmp_path / "apptainer", f"#!/bin/sh\necho 'FATAL:   no way' >&2\necho run >>{tmp_path}/runs\nexit 255\n"
    )
    program.chmod(0o755)
    assert cannot_start(str(program), arch) == NoStart("FATAL:   no way", NOT_RUN)
    assert len((tmp_path / "runs").read_text().split()) == 1  # the variables are set already
    for name in RUNTIME.userns:
        monkeypatch.delenv(name)
    wants = f'[ "${{APPTAINER_USERNS-}}" = 1 ] && exec {RUNTIME.path} "$@"'
    program.write_text(f"#!/bin/sh\n{wants}\nexit 3\n")
    found = cannot_start(str(program), arch)
    assert found == NoStart("exit code 3", "it starts in a user namespace: export APPTAINER_USERNS=1")
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("well", [True, False])
def test_what_is_printed(
    machine: Machine, well: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A mark, the subjects in a column, hints below; the exit code says whether anything is missing."""
    machine.program = APPTAINER
    machine.runs("apptainer", "echo apptainer version 1.4.2")
    machine.runs("srun", "echo 'srun: error: no slurm.conf'")
    if well:
        machine.runs("mksquashfs", "echo mksquashfs version 4.6")
        monkeypatch.setenv("LMOD_VERSION", "8.7")
    assert run(["doctor"]) == (0 if well else 1)
    lines = capfd.readouterr().out.splitlines()
    blank = " " * len("user namespaces")
    assert "[ok] user namespaces  available to ordinary users" in lines
    at = lines.index("[--] Slurm            installed, but not configured here (srun: error: no slurm.conf)")
    assert lines[at + 1] == f"     {blank}  => {NO_CLUSTER}"
    assert ("[ok] module tool      Lmod 8.7" in lines) == well
    assert ("[!!] module tool      `module` is not set up in this shell" in lines) != well
    assert lines[-1] == "[ok] settings         0 site files, quirks and MPI profiles beside the shipped ones"


def test_a_home_that_is_a_link(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = machine.findings({"HOME": f"{tmp_path}/link"})["home"]
    said = f"{tmp_path}/link links to {tmp_path}/real; containers see both paths"
    assert (found.status, found.text) == ("ok", said)
    assert "home" not in machine.findings({"HOME": f"{tmp_path}/real"})
