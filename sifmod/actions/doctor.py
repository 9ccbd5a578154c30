"""doctor: check this machine and report what works, what is missing and what to do about it. Changes nothing."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sifmod.actions import sharing
from sifmod.actions.author.check import DIRECTORIES, check_settings
from sifmod.actions.disk_usage import disk_usage
from sifmod.actions.layer.places import found_layers, is_stale, known, layouts_of
from sifmod.actions.start import unreadable
from sifmod.config.input import module_tools
from sifmod.config.kinds import module_tool
from sifmod.config.prefix import settings_directories
from sifmod.config.site import Site
from sifmod.errors import ConfigError, FetchError, RuntimeMissingError, SifmodError
from sifmod.image.builder import build_method, dockerfile_builder
from sifmod.image.program import limits, probe_runtime
from sifmod.image.trial_start import cannot_start
from sifmod.module.quote import shell
from sifmod.result import Hint, OrNull
from sifmod.system import size_text
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live_modules

Status = Literal["ok", "note", "missing"]
GB = 10**9
_FORM = {"lua": "Lua", "tcl": "Tcl"}
_BOTH = "`module_syntax: both` in ~/.config/sifmod/config.yaml gives later installs both"
_HANDED_ON = ("APPTAINER_BIND", "APPTAINER_BINDPATH")  # by the wrappers, to SingularityCE


@dataclass(frozen=True)
class Finding:
    """One check of `doctor`: the result, and the next step if one is needed."""

    subject: str
    status: Status
    text: str
    hint: OrNull[Hint] = ""


def diagnose(site: Site, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """Check this machine before an install; the runtime is started once, with a program that ends at once."""
    return tuple(
        finding
        for part in (
            _runtime(site),
            _user_namespaces(),
            _builders(site),
            _squashfs(),
            _accelerators(site),
            _home(environ),
            _module_tool(environ),
            _modulefiles(site, environ),
            _slurm(),
            _space(site),
            _disk_usage(site),
            _trees(site),
            _stale_layers(site, environ),
            _sharing(site),
            _spellings(site, environ),
        )
        for finding in part
    )


def _first_line(*command: str) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be run: {error}"
    return (result.stdout or result.stderr).strip().partition("\n")[0]


def _runtime(site: Site) -> Iterator[Finding]:
    program = probe_runtime(site.runtime_path)
    if program is None:
        missing = (
            f"{site.runtime_path} is not a program"
            if site.runtime_path
            else "neither apptainer nor singularity is on PATH"
        )
        hint = "modules can be installed from a SIF but not run; install Apptainer, or load the site's module for it"
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
        hint = "install squashfs-tools 4.5 or later to convert registry images; a SIF needs no conversion"
        yield Finding("mksquashfs", "missing", "not on PATH", hint)
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


def _modulefiles(site: Site, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report modules that a module tool of this machine does not see."""
    layout = Layout(site.prefix)
    try:
        modules = [module for module, _ in live_modules(layout)]
        for syntax in module_tools(environ):
            tool = module_tool(syntax)
            if unseen := sum(not layout.module_file(module, syntax).exists() for module in modules):
                text = f"{tool} does not see {unseen} of {len(modules)} modules in {site.prefix}"
                own = f" --prefix {shell(str(site.prefix))}" if not site.prefix_is_default else ""
                again = f"sifmod install --module-only --installed --module-syntax both{own}"
                why = f"{text}: no {_FORM[syntax]} modulefile"
                yield Finding("modulefiles", "note", why, f"`{again}` adds it; {_BOTH}")
            elif syntax not in site.module_syntax:
                yield Finding(
                    "modulefiles",
                    "note",
                    f"{tool} is on this machine too, and will not see the modules that you install",
                    _BOTH,
                )
    except OSError as error:
        yield Finding("modulefiles", "note", f"{site.prefix} cannot be read: {error}")


def _slurm() -> Iterator[Finding]:
    srun = shutil.which("srun")
    version = _first_line(srun, "--version") if srun else "not on PATH"
    if srun and "error" in version:
        hint = "normal on a machine outside a cluster; on a cluster, ask for its slurm.conf"
        yield Finding("Slurm", "note", f"installed, but not configured here ({version})", hint)
    else:
        yield Finding("Slurm", "ok" if srun else "note", version)


def _space(site: Site) -> Iterator[Finding]:
    prefix = Path(site.prefix)
    place = next(folder for folder in (prefix, *prefix.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    chosen = "default; sifmod asks before it fetches images over 2 GB" if site.prefix_is_default else "configured"
    text = f"{prefix} ({chosen}), {free / GB:.1f} GB free"
    if not os.access(place, os.W_OK):
        yield Finding("prefix", "missing", f"{text}, not writable", "choose your own: export SIFMOD_PREFIX=DIR")
    elif free < 10 * GB:
        yield Finding(
            "prefix", "note", text, "PyTorch images are 5 to 20 GB: export SIFMOD_PREFIX=DIR on a larger disk"
        )
    else:
        yield Finding("prefix", "ok", text)


def _disk_usage(site: Site) -> Iterator[Finding]:
    """Report the size of caches and temporary files, and the commands that free it."""
    found = disk_usage(site)
    for room in found:
        if room.kind == "cache":
            text = f"{room.path} takes {room.text}: {room.why}"
            yield Finding(room.name, "note", text, f"`{room.command}` frees it")
    if temporary := [room for room in found if room.kind == "temporary files"]:
        size = size_text(sum(room.size for room in temporary))
        what = f"{len(temporary)} directories of jobs and commands, such as {temporary[0].path}, take {size}"
        yield Finding("temporary files", "note", what, "`sifmod gc` lists them, with the commands that free them")


def _trees(site: Site) -> Iterator[Finding]:
    """Report the trees that are only read."""
    others = tuple(map(Layout, site.trees))
    closed = unreadable(others)
    for one in others:
        if one in closed:
            yield Finding("trees", "missing", closed[one], "correct `trees`; `sifmod config show` says where it is set")
        else:
            yield Finding("trees", "ok", f"{one.prefix}, {len(live_modules(one))} modules, only read")


def _stale_layers(site: Site, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report the size of layers that match no installed image."""
    try:
        trees = layouts_of(site, environ)
        modules = known(trees)
        stale = [layer for layer in found_layers(trees, environ) if is_stale(layer, modules)]
    except (SifmodError, OSError):  # a tree that this user cannot read, which another line reports
        return
    if stale:
        size = size_text(sum(layer.size for layer in stale))
        text = f"{len(stale)} layers for images that are no longer installed take {size}"
        yield Finding(
            "stale layers",
            "note",
            text,
            "`sifmod layer list` lists them, with the commands that remove them; then run `sifmod gc --yes --now`",
        )


def _sharing(site: Site) -> Iterator[Finding]:
    if site.sharing is None:
        return
    try:
        oddities = (*sharing.sharing_warnings(site), *sharing.closed(site))
    except SifmodError as error:  # an unknown group, or a prefix that this user cannot read
        oddities = (error.message,)
    for oddity in oddities:
        yield Finding("sharing", "missing", oddity)
    if not oddities:
        group = f", group {site.group}" if site.group else ""
        yield Finding("sharing", "ok", f"`{site.sharing}`{group}: its intended users can reach {site.prefix}")


def _spellings(site: Site, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Apptainer ignores the SINGULARITY_ form of a variable if the APPTAINER_ form differs.

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


def diagnose_settings(environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """A finding for each file that `sifmod check` rejects, with its problems, or one that all are valid."""
    hint = "`install`, `show` and `check` of an easyconfig stop at it: correct it, or move it away"
    found, looked_at = list[Finding](), 0
    for directory in settings_directories(environ):
        for name, kind in DIRECTORIES.items():
            for path in sorted((directory / name).glob("*.yaml")):
                looked_at += 1
                try:
                    check_settings(path, kind, environ)
                except ConfigError as error:
                    found.append(Finding("settings", "missing", "; ".join(map(str, error.problems)), hint))
    well = f"{looked_at} site files, quirks and MPI profiles beside the shipped ones"
    return tuple(found) or (Finding("settings", "ok", well),)
