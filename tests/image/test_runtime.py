"""The installed runtime as a source: what it gives, what it says when it fails, and where it writes."""

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.actions.install.decision import image_request
from sifmod.errors import FetchError
from sifmod.image.sources.runtime import runtime_environment
from sifmod.module.plan import Runtime
from support.command import run
from support.config import write
from support.disk_state import disk_state
from support.fetching import Prefix, plan
from support.processes import marked, wait_until, with_mark
from support.runtime import RUNTIME
from support.web import Web, answer, make_certificate


@pytest.fixture
def one_prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


def inside(sif: Path, *command: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        return run((RUNTIME.path, "-q", "exec", sif, *command), env={**os.environ, "HOME": home}).ok().stdout


def refused(prefix: Prefix, wanted: object) -> FetchError:
    """The error, asserting that the disk is as before."""
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(wanted)  # type: ignore[arg-type]
    assert prefix.state() == before
    return caught.value


def test_a_library_without_an_address_shows_the_runtimes_own_words(one_prefix: Prefix) -> None:
    error = refused(one_prefix, plan("library://a/b/c:d"))
    assert f"`{RUNTIME.kind} pull library://a/b/c:d` failed with exit code 255:\n    FATAL: " in error.message
    assert "INFO" not in error.message
    # SingularityCE has a library by default, which it does not reach here
    assert ("select a library" if RUNTIME.kind == "apptainer" else "has a network") in error.hint


def test_a_login_that_a_library_repeats_is_not_shown(
    one_prefix: Prefix, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, auth = make_certificate(tmp_path), base64.b64encode(b"me:S3CRET-password").decode()
    server = Web(certificate)
    host = server.url("", "127.0.0.1")
    said = {"error": {"code": 403, "message": f"no S3CRET-token, {auth}, S3CRET-password"}}
    services = {name: {"uri": host} for name in ("libraryAPI", "keystoreAPI")}
    server.answers["/assets/config/config.prod.json"] = answer(200, json.dumps(services).encode())
    server.answers["/v1/images/a/b/c:1"] = answer(403, json.dumps(said).encode())
    own = own_home / f".{RUNTIME.kind}"
    remotes = f"Active: mine\nRemotes:\n  mine:\n    URI: {host}\n    Token: S3CRET-token\n    System: false\n"
    write(own / "remote.yaml", remotes).chmod(0o600)
    write(own / "docker-config.json", json.dumps({"auths": {"host.invalid": {"auth": auth}}}))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server.start()
    try:
        message = refused(one_prefix, plan("library://a/b/c:1")).message
    finally:
        server.stop()
    assert "Bearer S3CRET-token" in [sent.get("authorization") for _, sent in server.asked]
    assert "403 Forbidden" in message
    assert ("S3CRET" in message, auth in message) == (False, False), message


def test_without_a_runtime_the_way_out_is_told(one_prefix: Prefix, tmp_path: Path) -> None:
    for path, message in (
        ("", "neither apptainer nor singularity was found"),
        ("/no/such", "/no/such is not a program"),
    ):
        error = refused(one_prefix, replace(plan("library://a/b/c:d"), runtime=Runtime("apptainer", path)))
        assert message in error.message
        assert "use a source that is a SIF" in error.hint
    assert list(tmp_path.glob("home/*")) == []


def test_what_is_set_for_running_containers_does_not_reach_the_runtime(tmp_path: Path) -> None:
    user = {
        "PATH": "/bin",
        "HOME": "/home/me",
        "APPTAINER_BINDPATH": "/x",
        "SINGULARITY_NV": "1",
        "SINGULARITYENV_X": "1",
        "APPTAINER_CACHEDIR": "/home/me/cache",
        "LD_PRELOAD": "x.so",
        "PYTHONPATH": "/x",
        "TMPDIR": "/tmp",
        "APPTAINER_DOCKER_PASSWORD": "secret",
        "https_proxy": "http://proxy",
    }
    kept = {name: user[name] for name in ("PATH", "HOME", "APPTAINER_DOCKER_PASSWORD", "https_proxy")}
    own = {"CACHEDIR": f"{tmp_path}/cache", "TMPDIR": f"{tmp_path}/tmp", "CONFIGDIR": f"{tmp_path}/config"}
    singularity = {**kept, "TMPDIR": f"{tmp_path}/tmp", **{f"SINGULARITY_{name}": path for name, path in own.items()}}
    apptainer = {**singularity, **{f"APPTAINER_{name}": path for name, path in own.items()}}
    assert runtime_environment(user, Runtime("singularity", "/x"), tmp_path) == singularity
    assert runtime_environment(user, Runtime("apptainer", "/x"), tmp_path) == apptainer


DEFINITION = """\
Bootstrap: scratch
%files
  note.txt /note.txt
%setup
  mkdir -p "$SINGULARITY_ROOTFS/bin"
  cp /bin/busybox "$SINGULARITY_ROOTFS/bin/cat"
  {}
"""


def definition(directory: Path, command: str = ":") -> Path:
    directory.mkdir()
    (directory / "note.txt").write_text("from the definition's directory")
    (directory / "image.def").write_text(DEFINITION.format(command))
    return directory / "image.def"


def test_a_definition_file_is_built(
    one_prefix: Prefix, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{RUNTIME.prefix}_BINDPATH", "/no/such/directory")
    file = definition(tmp_path / "a definition")
    before = disk_state(file.parent)
    artifact = one_prefix.fetch(plan(build=file))
    monkeypatch.delenv(f"{RUNTIME.prefix}_BINDPATH")
    assert inside(artifact.path, "/bin/cat", "/note.txt") == "from the definition's directory"
    assert (artifact.source, artifact.notes) == (str(file), ())
    assert disk_state(file.parent) == before
    assert list(own_home.iterdir()) == []


def test_the_same_definition_is_built_once_and_a_changed_file_is_noticed(one_prefix: Prefix, tmp_path: Path) -> None:
    """In another directory too; what it was built from says so, and not when the files were written."""
    log = tmp_path / "builds"
    command = f"echo built >>'{log}'; date +%s%N >$SINGULARITY_ROOTFS/when"
    first, second = (definition(tmp_path / name, command) for name in ("first", "second"))
    request = image_request(plan(build=first))
    built = one_prefix.fetch(plan(build=first))
    again = one_prefix.fetch(plan(build=second))
    assert (again.sha256, again.notes) == (
        built.sha256,
        ("an earlier build of the same files is used",),
    )
    assert log.read_text() == "built\n"
    (first.parent / "note.txt").write_text("something else")
    assert image_request(plan(build=first)) != request
    assert one_prefix.fetch(plan(build=first)).sha256 != built.sha256
    assert one_prefix.fetch(plan(build=second)).sha256 == built.sha256
    assert log.read_text() == "built\n" * 2
    (first.parent / "note.txt").unlink()
    assert "exit code" in refused(one_prefix, plan(build=first)).message


def test_a_build_that_fails_shows_why(one_prefix: Prefix, tmp_path: Path) -> None:
    file = definition(tmp_path / "definition", "echo something is wrong; exit 3")
    error = refused(one_prefix, plan(build=file))
    assert f"`{RUNTIME.kind} build {file}` failed with exit code 255:" in error.message
    assert "    something is wrong\n" in error.message
    assert "no definition file" in refused(one_prefix, plan(build=tmp_path / "none.def")).message


INSTALLER = """
import signal, sys
from pathlib import Path
from support.fetching import Prefix, plan

def stop(number, frame):
    sys.exit(128 + number)

signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, signal.default_int_handler)
Prefix(Path(sys.argv[1])).fetch(eval(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
def test_nothing_is_left_when_we_are_stopped(one_prefix: Prefix, tmp_path: Path, number: signal.Signals) -> None:
    marker = tmp_path / "building"
    file = definition(tmp_path / "definition", f"touch '{marker}'; sleep 98765")
    wanted = f"plan(build={str(file)!r})"
    before = one_prefix.state()
    script = (sys.executable, "-c", INSTALLER, str(one_prefix.path), wanted)
    env = with_mark(str(tmp_path), {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    installer = subprocess.Popen(script, env=env, stderr=subprocess.DEVNULL)
    try:
        wait_until(marker.exists)
        assert len(marked(str(tmp_path))) > 1
        installer.send_signal(number)
        assert installer.wait() != 0
        wait_until(lambda: not marked(str(tmp_path)))
    finally:
        installer.kill()
    if number == signal.SIGKILL:
        with one_prefix.store():
            pass  # the next run cleans up
    assert one_prefix.state() == before
