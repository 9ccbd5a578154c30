"""The machine as `doctor` finds it: the runtime, what it needs, GPUs, the module tool and Slurm."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sifmod.config.site import Site
from sifmod.errors import FetchError, RuntimeMissingError
from sifmod.image.builder import build_method, dockerfile_builder
from sifmod.image.program import limits, probe_runtime
from sifmod.image.trial_start import cannot_start
from sifmod.result import Hint, OrNull

Status = Literal["ok", "note", "missing"]
_HANDED_ON = ("APPTAINER_BIND", "APPTAINER_BINDPATH")  # the wrappers pass these on to SingularityCE


@dataclass(frozen=True)
class Finding:
    """One check of `doctor`: the result, and the next step if one is needed."""

    subject: str
    status: Status
    text: str
    hint: OrNull[Hint] = ""


def machine_findings(site: Site, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check the machine; one container is started, with a program that ends at once."""
    yield from _runtime(site)
    yield from _user_namespaces()
    yield from _builders(site)
    yield from _squashfs()
    yield from _accelerators(site)
    yield from _home(environ)
    yield from _module_tool(environ)
    yield from _slurm()
    yield from _spellings(site, environ)


def _first_line(*command: str) -> str:
    try:
        result = subprocess.run(command, capture_output=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be run: {error}"
    return (result.stdout or result.stderr).strip().partition("\n")[0]


def _runtime(site: Site) -> Iterator[Finding]:
    program = probe_runtime(site.runtime_path)
    if program is None:
        missing = (
            f"{site.runtime_path} is not a program"
            if site.runtime_path
            else "the site's runtime, apptainer or singularity, is not on PATH"
        )
        hint = "modules can be installed but not run; install Apptainer, or load the site's module for it"
        yield Finding("runtime", "missing", missing, hint)
        return
    what = f"{program.said}, {program.installed} ({site.runtime_path})"
    if why := cannot_start(site.runtime_path, site.arch):
        yield Finding("runtime", "missing", f"{what} starts no container: {why.text}", why.hint)
    else:
        yield Finding("runtime", "ok", f"{what}; it starts a container")
    if program.unbound:
        yield Finding("binds", "note", program.unbound, "ask the administrator to enable it")
    for limit in limits(program):
        yield Finding("runtime", "note", f"{program.name} {limit.text}", limit.hint)
    if program.setuid and program.kernel_zstd is not True:
        known = (
            "has no zstd for squashfs" if program.kernel_zstd is False else "has unknown support for zstd in squashfs"
        )
        hint = "sifmod converts images with gzip here, unless `compression` is set"
        yield Finding("kernel", "note", f"the kernel mounts images here, and {known}", hint)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _user_namespaces() -> Iterator[Finding]:
    closed = [
        name
        for name, off in (
            ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
            ("/proc/sys/user/max_user_namespaces", "0"),
            ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
        )
        if _read(name) == off
    ]
    if closed:
        hint = "a runtime installed with its setuid starter works without them; else ask the administrator"
        yield Finding("user namespaces", "note", f"not available to ordinary users ({', '.join(closed)})", hint)
    else:
        yield Finding("user namespaces", "ok", "available to ordinary users")


def _builders(site: Site) -> Iterator[Finding]:
    try:
        yield Finding("builds", "ok", build_method(probe_runtime(site.runtime_path)).said)
    except (FetchError, RuntimeMissingError) as error:
        yield Finding("builds", "note", error.message, error.hint)
    try:
        yield Finding("Dockerfiles", "ok", f"built by {dockerfile_builder()}")
    except FetchError as error:
        yield Finding("Dockerfiles", "note", error.message)


def _squashfs() -> Iterator[Finding]:
    mksquashfs = shutil.which("mksquashfs")
    if mksquashfs:
        yield Finding("mksquashfs", "ok", _first_line(mksquashfs, "-version"))
    else:
        hint = "install squashfs-tools: `make-squashfs` of a loaded module uses it; sifmod itself does not"
        yield Finding("mksquashfs", "note", "not on PATH", hint)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        yield Finding(
            "/dev/fuse", "note", "not accessible to this user", "a runtime without setuid mounts images through FUSE"
        )


def _accelerators(site: Site) -> Iterator[Finding]:
    nvidia = sorted(Path("/dev").glob("nvidia[0-9]*"))
    driver = _read("/proc/driver/nvidia/version").partition("\n")[0]
    if nvidia:
        yield Finding("NVIDIA GPUs", "ok", f"{len(nvidia)} ({driver or 'driver version unknown'})")
    render = sorted(Path("/dev/dri").glob("renderD*")) if Path("/dev/kfd").exists() else []
    if render:
        version = _read("/sys/module/amdgpu/version")
        yield Finding("AMD GPUs", "ok", f"{len(render)} (amdgpu {version or 'version unknown'})")
    if not nvidia and not render:
        yield Finding("GPUs", "note", "none on this node, as usual on a login node")
    yield Finding("accelerator", "ok", f"{site.accelerator} (site {site.name})")


def _home(environ: Mapping[str, str]) -> Iterator[Finding]:
    home = environ.get("HOME", "")
    if home.startswith("/") and (real := os.path.realpath(home)) != os.path.normpath(home):
        if Path(real).is_dir() and Path(real).stat().st_uid == os.geteuid():
            yield Finding("home", "ok", f"{home} links to {real}; containers see both paths")
        else:
            yield Finding("home", "note", f"{home} links to {real}, which is not your directory and is not bound")


def _module_tool(environ: Mapping[str, str]) -> Iterator[Finding]:
    if version := environ.get("LMOD_VERSION"):
        yield Finding("module tool", "ok", f"Lmod {version}")
    elif environ.get("MODULESHOME") or environ.get("MODULES_CMD"):
        yield Finding(
            "module tool", "ok", f"Environment Modules ({environ.get('MODULESHOME', environ.get('MODULES_CMD'))})"
        )
    else:
        hint = "set up Lmod or Environment Modules and log in again; the wrappers work without either"
        yield Finding("module tool", "missing", "`module` is not set up in this shell", hint)


def _slurm() -> Iterator[Finding]:
    srun = shutil.which("srun")
    version = _first_line(srun, "--version") if srun else "not on PATH"
    if srun and "error" in version:
        hint = "normal on a machine outside a cluster; on a cluster, ask for its slurm.conf"
        yield Finding("Slurm", "note", f"installed, but not configured here ({version})", hint)
    else:
        yield Finding("Slurm", "ok" if srun else "note", version)


def _spellings(site: Site, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report variables that have no effect. If both forms of a variable differ, Apptainer reads the APPTAINER_ form.

    SingularityCE reads no APPTAINER_ variables; the wrappers pass only the binds on.
    """
    for name, value in sorted(environ.items()):
        if name.startswith(("SINGULARITY_", "SINGULARITYENV_")):
            twin = name.replace("SINGULARITY", "APPTAINER", 1)
            if twin in environ and environ[twin] != value:
                hint = f"Apptainer uses {twin} and ignores the other: set both to the same value, or only one"
                yield Finding("environment", "note", f"{name} and {twin} are set differently", hint)
    if site.runtime_kind == "apptainer":
        return
    for name in sorted(environ):
        twin = name.replace("APPTAINER", "SINGULARITY", 1)
        unread = name.startswith(("APPTAINER_", "APPTAINERENV_")) and name not in _HANDED_ON
        if unread and twin not in environ:
            yield Finding("environment", "note", f"{name} is set, which this runtime does not read", f"set {twin}")
