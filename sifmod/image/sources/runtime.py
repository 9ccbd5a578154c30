"""The site's apptainer or singularity, which builds or pulls the image of a source."""

import base64
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sifmod.errors import FetchError, RuntimeMissingError
from sifmod.image.artifact import Fetched, Fetching
from sifmod.image.child import run_child
from sifmod.image.disk import writing
from sifmod.image.sources.file import hashed
from sifmod.module.plan import Runtime

# of the user's <PREFIX>_… variables only these reach the runtime: credentials, and how it may run at all
_KEPT = ("DOCKER_USERNAME", "DOCKER_PASSWORD", "DOCKER_HOST", "AUTH_FILE", "AUTHFILE", "LIBRARY", "NOHTTPS", "USERNS")
_ADVICE = (
    (
        "do not match the hashes",
        "the index sent a file without the digest of the requirements: ask who runs it, or who wrote them",
    ),
    (
        "no space left on device|quota exceeded",
        "free some space where the image is written, or choose another place: --prefix PATH, or -o FILE for a file",
    ),
    (
        "toomanyrequests|too many requests|429",
        "the registry limits anonymous pulls: log in to it, or use a SIF made elsewhere with --source PATH",
    ),
    (
        "authentication required|unauthorized|denied|forbidden",
        "log in (`apptainer registry login`), or correct the name: a missing repository often gives this error",
    ),
    ("manifest unknown|name unknown|not found", "correct the name or the tag of the source"),
    ("no default remote with library", "select a library: `apptainer remote add`, or the variable APPTAINER_LIBRARY"),
    ("no image found in .*index for arch", "the image does not exist for this architecture"),
    (
        "--fakeroot, or the proot command",
        "an ordinary user's SingularityCE needs proot on PATH to build; or build the SIF with Apptainer or as root, "
        "and use it with --source PATH",
    ),
    (
        "x509: |bad certificate|certificate (verif|problem|is not|has)|(verify|confirming) .{0,200}certificate",
        "for a certificate of your site's own authority set SSL_CERT_FILE to its file",
    ),
    ("dial tcp|no such host|timeout|connection re", "check whether this node has a network"),
)
_LOGINS, _REMOTES = "docker-config.json", "remote.yaml"
_SECRET = re.compile(r"""(?i)"?(?:auth|password|[a-z]*token)"?: *"?([^\s",]{6,})""")  # in both of them
SHOWN = 20  # lines of the runtime's messages


def runtime_environment(environ: Mapping[str, str], runtime: Runtime, workspace: Path) -> dict[str, str]:
    """`environ` for a runtime that pulls or builds, with its directories in `workspace`.

    Settings of a module or a user for running containers (binds, GPU flags, PYTHONPATH, LD_PRELOAD…) are removed.
    """
    kept = {f"{prefix}_{name}" for prefix in ("SINGULARITY", "APPTAINER") for name in _KEPT}
    clean = {
        name: value
        for name, value in environ.items()
        if name in kept or not name.startswith(("SINGULARITY", "APPTAINER", "PYTHONPATH", "LD_PRELOAD"))
    }
    places = {"CACHEDIR": "cache", "TMPDIR": "tmp", "CONFIGDIR": "config"}
    for prefix in runtime.prefixes:
        clean.update({f"{prefix}_{name}": str(workspace / place) for name, place in places.items()})
    return {**clean, "TMPDIR": str(workspace / "tmp")}


def run_runtime(
    request: Fetching, command: tuple[str, ...], workspace: Path, cwd: Path, before: tuple[str, ...] = ()
) -> Fetched:
    """Run a command of the runtime, prefixed by `before`, which writes the SIF `request.incoming`.

    Temporary files are in `workspace`, and nothing is written to $HOME. Raises RuntimeMissingError without a runtime,
    FetchError with the runtime's own messages if it fails.
    """
    program = request.runtime.path
    shown = f"{request.runtime.kind} {command[0]} {request.reference.shown}"
    with writing(workspace):
        for name in ("cache", "tmp", "config"):
            (workspace / name).mkdir(mode=0o700)
            # in a group's tree they would pass on a group that a fakeroot's user namespace does not know
            os.chown(workspace / name, -1, os.getegid())
            (workspace / name).chmod(0o700)
        _link_credentials(os.environ, request.runtime, workspace / "config")
    request.progress(shown, 0, None)
    try:
        environment = runtime_environment(os.environ, request.runtime, workspace)
        ended = run_child((*before, program, *command), cwd=cwd, env=environment)
    except FileNotFoundError:
        missing = f"{program} is not a program" if program else "neither apptainer nor singularity was found"
        raise RuntimeMissingError(
            f"{missing}, and `{shown}` needs one",
            "install apptainer or load the site's module for it, or use a source that is a SIF",
        ) from None
    if ended.code != 0 or not request.incoming.exists():
        output = _without_logins("\n".join(ended.lines), workspace / "config")
        levels = ("INFO:", "DEBUG", "VERBOSE")  # of the runtime's messages
        lines = [line for line in output.splitlines() if not line.startswith(levels)][-SHOWN:]
        how = f"was ended by signal {-ended.code}" if ended.code < 0 else f"failed with exit code {ended.code}"
        advice = next((hint for pattern, hint in _ADVICE if re.search(pattern, output, re.IGNORECASE)), "")
        raise FetchError("\n".join((f"`{shown}` {how}:", *(f"    {line}" for line in lines))), advice)
    return hashed(request.incoming, request)


def _without_logins(text: str, config: Path) -> str:
    """The text without the logins in the files of `config`, which a server may repeat."""
    for path in filter(Path.is_file, (config / _LOGINS, config / _REMOTES)):
        for secret in _SECRET.findall(path.read_text("utf-8", "replace")):
            password = b""
            with suppress(ValueError):
                password = base64.b64decode(secret, validate=True).partition(b":")[2]
            for part in filter(None, (secret, password.decode("utf-8", "replace"))):
                text = text.replace(part, "...")
    return text


def _link_credentials(environ: Mapping[str, str], runtime: Runtime, config: Path) -> None:
    home = Path(environ.get("HOME", "/"))
    own = [Path(environ[name]) for prefix in runtime.prefixes if (name := f"{prefix}_CONFIGDIR") in environ]
    directories = (*own, home / f".{runtime.kind}", home / ".apptainer", home / ".singularity")
    docker = Path(environ.get("DOCKER_CONFIG", home / ".docker")) / "config.json"
    logins = (*(directory / _LOGINS for directory in directories), docker)
    remotes = tuple(directory / _REMOTES for directory in directories)
    for name, candidates in ((_LOGINS, logins), (_REMOTES, remotes)):
        if found := next((path for path in candidates if path.is_file()), None):
            (config / name).symlink_to(found.absolute())
