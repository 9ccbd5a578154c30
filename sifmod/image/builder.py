"""How this user can run commands in an image during a build on this machine."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sifmod.errors import FetchError, RuntimeMissingError
from sifmod.image.program import Program
from sifmod.system import login_name, subordinate_ids

ELSEWHERE = (
    "build the image on a machine that can, for example your own, and bring the SIF here: `sifmod push` it to a "
    "registry, put it into a bundle (`sifmod stack bundle`), or copy it and name its path in `image.sources`"
)


@dataclass(frozen=True)
class BuildMethod:
    """One way to build. On the command line `before` precedes the runtime, and `options` follow its `build`."""

    said: str
    before: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    one_user: bool = False  # every file belongs to root, the only user inside


def build_method(program: Program | None) -> BuildMethod:
    """The build method of the runtime `program` on this machine, without a trial build.

    Raises RuntimeMissingError without a runtime, and FetchError with the missing requirements if there is no method.
    """
    if program is None:
        raise RuntimeMissingError("building needs apptainer or singularity", ELSEWHERE)
    why_closed = why_no_namespace()
    if os.geteuid() == 0:
        if why_closed or _has_all_capabilities():
            return BuildMethod("as root")
        return BuildMethod("as root, in a user namespace", (_found("unshare"), "--map-root-user"), one_user=True)
    if program.kind == "unknown":
        return BuildMethod(f"as {program.said} does it")
    no_ranges = why_no_ranges()
    if not no_ranges and (program.setuid or not why_closed):
        return BuildMethod("with --fakeroot and the ids of /etc/subuid", options=("--fakeroot",))
    missing = [no_ranges or why_closed]
    if program.kind == "apptainer":
        if not why_closed:
            return BuildMethod("in a user namespace whose only user is root", one_user=True)
        missing.append(why_closed)
    else:
        if _found("proot"):
            return BuildMethod("with proot", one_user=True)
        missing.append("proot is not on PATH")
    raise FetchError(f"{program.name} cannot build here: {', and '.join(dict.fromkeys(missing))}", ELSEWHERE)


def dockerfile_builder() -> str:
    """The path of buildah or podman for Dockerfiles. Raises FetchError with the missing requirements."""
    program = _found("buildah") or _found("podman")
    if not program:
        raise FetchError("a Dockerfile needs buildah or podman, and neither is on PATH", ELSEWHERE)
    if os.geteuid() != 0 and (missing := why_no_ranges() or why_no_namespace()):
        raise FetchError(f"{Path(program).name} cannot build here: {missing}", ELSEWHERE)
    return program


def why_no_ranges() -> str:
    """What this user lacks to use subordinate ids for builds; "" if nothing is missing."""
    for file in ("/etc/subuid", "/etc/subgid"):
        if not subordinate_ids(file):
            return f"{file} is unreadable, or has no line for the user {login_name(os.geteuid())}"
    return "" if _found("newuidmap") and _found("newgidmap") else "newuidmap or newgidmap is not on PATH"


def why_no_namespace() -> str:
    """Why this user cannot create a user namespace, found by trying; "" if it works."""
    if not (unshare := _found("unshare")):
        return "unshare, which tests user namespaces, is not on PATH"
    tried = subprocess.run((unshare, "--map-root-user", "true"), capture_output=True, check=False)
    return "" if tried.returncode == 0 else "this user cannot create user namespaces"


def _found(program: str) -> str:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/sbin") or ""


def _has_all_capabilities() -> bool:
    """Whether this process has all capabilities, unlike root in most containers; true if unknown."""
    try:
        last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
        held = re.search(r"(?m)^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text())
    except (OSError, ValueError):
        return True
    return held is None or int(held[1], 16) == (1 << (last + 1)) - 1
