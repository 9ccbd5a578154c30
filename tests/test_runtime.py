"""The installed runtime as a source: what it gives, what it says when it fails, and where it writes."""

import base64
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image.runtime import runtime_environment
from sifmod.image.sif import read_sif
from sifmod.module.plan import Runtime
from support.command import run
from support.daemon import Daemon, free_ports, listens
from support.disk_state import disk_state
from support.fetching import Prefix, plan
from support.identity import call_as, call_on_small_disk
from support.images import Images
from support.oci import Entry
from support.processes import marked, wait_until, with_mark
from support.registry import CONFIGURATION, Registry
from support.user import OrdinaryUser
from support.web import Web, raw

# htpasswd -Bbn me secret
HTPASSWD = "me:$2b$12$4x7XZVdyhCAwaWGo.mITxeHw1xOS6GW59BFfWdSatQHj42UsLLROS\n"
LOGIN = base64.b64encode(b"me:secret").decode()


@pytest.fixture(params=["prefix", "a prefix @ü+"])
def prefix(tmp_path: Path, request: pytest.FixtureRequest) -> Prefix:
    return Prefix(tmp_path / request.param)


@pytest.fixture
def one_prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


@pytest.fixture(scope="session")
def private_registry(tmp_path_factory: pytest.TempPathFactory, images: Images) -> Iterator[str]:
    """A registry that wants a login; it has the image `tiny:1`. Its address."""
    directory, (port,) = tmp_path_factory.mktemp("private"), free_ports(1)
    (directory / "htpasswd").write_text(HTPASSWD)
    login = f"auth: {{htpasswd: {{realm: private, path: {directory}/htpasswd}}}}\n"
    (directory / "config.yaml").write_text(CONFIGURATION.format(directory=directory, port=port) + login)
    daemon = Daemon(("docker-registry", "serve", directory / "config.yaml"), directory / "log")
    daemon.wait_until(lambda: listens(port))
    target = f"docker://127.0.0.1:{port}/tiny:1"
    options = ("--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", "--dest-creds=me:secret")
    run(("skopeo", *options, f"oci:{images.tiny_layout()}", target)).ok()
    yield f"127.0.0.1:{port}"
    daemon.stop()


def variant(sif: Path) -> str:
    """Which of the tiny images it is; the real runtime looks inside, with a home of its own."""
    return inside(sif, "cat", "/etc/variant").strip()


def inside(sif: Path, *command: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        return run(("apptainer", "exec", sif, *command), env={**os.environ, "HOME": home}).ok().stdout


def copy(source: str, target: str) -> None:
    run(("skopeo", "--insecure-policy", "copy", "--quiet", source, target)).ok()


def refused(prefix: Prefix, wanted: object) -> FetchError:
    """The error, asserting that the disk is as before."""
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(wanted)  # type: ignore[arg-type]
    assert prefix.state() == before
    return caught.value


def test_a_layout_becomes_a_sif_in_the_store(images: Images, prefix: Prefix, own_home: Path) -> None:
    layout = images.tiny_layout("first")
    before = disk_state(layout)
    told: list[str] = []
    artifact = prefix.fetch(plan(f"oci:{layout}"), lambda what, *_: told.append(what))
    assert artifact.path == prefix.layout.image(artifact.sha256)
    assert run(("sha256sum", artifact.path)).ok().stdout.split()[0].lstrip("\\") == artifact.sha256
    assert read_sif(artifact.path).arch == artifact.arch == "amd64"
    assert artifact.size == artifact.path.stat().st_size
    assert artifact.notes == ()
    assert variant(artifact.path) == "first"
    assert told[0] == f"apptainer pull oci:{layout}"
    assert disk_state(layout) == before
    assert list(own_home.iterdir()) == []
    assert prefix.images() == [artifact.path.name]


@pytest.mark.parametrize("tag", ["one", "two"])
def test_a_tag_chooses_the_image_of_a_layout(images: Images, one_prefix: Prefix, tmp_path: Path, tag: str) -> None:
    layout = tmp_path / "a layout: with @ signs"
    for name in ("one", "two"):
        copy(f"oci:{images.tiny_layout(name)}", f"oci:{tmp_path / 'layout'}:{name}")
    (tmp_path / "layout").rename(layout)
    assert variant(one_prefix.fetch(plan(f"oci:{layout}:{tag}")).path) == tag


@pytest.mark.parametrize("kind", ["oci-archive", "docker-archive"])
def test_archives_are_sources(images: Images, one_prefix: Prefix, tmp_path: Path, kind: str) -> None:
    archive = tmp_path / "an archive.tar"
    name = {"oci-archive": "one", "docker-archive": "some/name:1.0"}[kind]
    copy(f"oci:{images.tiny_layout('one')}", f"{kind}:{tmp_path}/x.tar:{name}")
    (tmp_path / "x.tar").rename(archive)
    assert variant(one_prefix.fetch(plan(f"{kind}:{archive}")).path) == "one"
    assert variant(one_prefix.fetch(plan(f"{kind}:{archive}:{name}")).path) == "one"
    assert "no" in refused(one_prefix, plan(f"{kind}:{archive}:other")).message


def test_a_registry_is_a_source(
    images: Images, one_prefix: Prefix, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = registry.push_layout(images.tiny_layout("pushed"), "tiny:1.0")
    inspect = ("skopeo", "inspect", "--tls-verify=false", "--format={{.Digest}}", reference)
    pinned = f"{reference}@{run(inspect).ok().stdout.strip()}"
    home = tmp_path / "a home that skopeo has not written to"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for source in (reference, pinned):
        artifact = one_prefix.fetch(plan(source))
        assert (variant(artifact.path), artifact.source) == ("pushed", source)
    assert list(home.iterdir()) == []


def test_a_sif_in_a_registry_comes_as_it_is(
    images: Images, one_prefix: Prefix, registry: Registry, own_home: Path
) -> None:
    reference = registry.push_sif(images.tiny_sif, "sif:1.0")
    artifact = one_prefix.fetch(plan(reference))
    assert artifact.path.read_bytes() == images.tiny_sif.read_bytes()
    assert artifact.notes[0].endswith(f"sha256: {artifact.sha256}")
    assert one_prefix.fetch(plan(reference, sha256=artifact.sha256)).notes == ()
    assert list(own_home.iterdir()) == []


def test_a_digest_that_does_not_exist_is_told(images: Images, one_prefix: Prefix, registry: Registry) -> None:
    reference = registry.push_layout(images.tiny_layout("pushed"), "tiny:1.0")
    error = refused(one_prefix, plan(f"{reference}@sha256:{'0' * 64}"))
    assert "manifest unknown" in error.message
    assert "correct the name or the tag" in error.hint


def test_a_promise_about_a_converted_image_cannot_be_kept(images: Images, one_prefix: Prefix) -> None:
    error = refused(one_prefix, plan(f"oci:{images.tiny_layout()}", sha256="0" * 64))
    assert f"expected {'0' * 64}" in error.message
    assert "promise the image's manifest digest in the source instead" in error.hint


@pytest.mark.parametrize(
    "source", ["oci:{}/nothing", "oci:{}", "oci-archive:{}/x", "docker-archive:{}/x", "library://a/b/c:d"]
)
def test_what_is_not_there_is_told(one_prefix: Prefix, tmp_path: Path, source: str) -> None:
    source = source.format(tmp_path)
    assert f"  {source}: " in refused(one_prefix, plan(source)).message


def test_the_runtimes_own_messages_are_shown(images: Images, one_prefix: Prefix, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    run(("cp", "-r", images.tiny_layout(), layout)).ok()
    largest = max((layout / "blobs" / "sha256").iterdir(), key=lambda blob: blob.stat().st_size)
    largest.write_bytes(b"damaged")
    error = refused(one_prefix, plan(f"oci:{layout}"))
    assert f"`apptainer pull oci:{layout}` failed with exit code 255:\n    FATAL: " in error.message
    assert "INFO" not in error.message


def test_without_a_runtime_the_way_out_is_told(images: Images, one_prefix: Prefix, tmp_path: Path) -> None:
    for path, message in (("", "neither apptainer nor singularity was found"), ("/no/such", "/no/such is no program")):
        wanted = replace(plan(f"oci:{images.tiny_layout()}"), runtime=Runtime("apptainer", path))
        error = refused(one_prefix, wanted)
        assert message in error.message
        assert "give a source that is a SIF already" in error.hint
    assert list(tmp_path.glob("home/*")) == []


@pytest.mark.parametrize("place", [".docker/config.json", ".apptainer/docker-config.json", "variables"])
def test_a_login_is_found_where_users_keep_it(
    one_prefix: Prefix, private_registry: str, own_home: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    wanted = plan(f"docker://{private_registry}/tiny:1")
    assert "log in" in refused(one_prefix, wanted).hint
    if place == "variables":
        monkeypatch.setenv("SINGULARITY_DOCKER_USERNAME", "me")
        monkeypatch.setenv("SINGULARITY_DOCKER_PASSWORD", "secret")
    else:
        file = own_home / place
        file.parent.mkdir()
        file.write_text(json.dumps({"auths": {private_registry: {"auth": LOGIN}}}))
    before = disk_state(own_home)
    assert variant(one_prefix.fetch(wanted).path) == "tiny"
    assert disk_state(own_home) == before
    kept = [path for path in one_prefix.path.rglob("*") if path.is_file() and path.suffix != ".sif"]
    assert all(b"secret" not in path.read_bytes() and LOGIN.encode() not in path.read_bytes() for path in kept)


def test_an_ordinary_user_whose_home_cannot_be_written(
    images: Images, ordinary_user: OrdinaryUser, shared_tmp: Path
) -> None:
    layout = shared_tmp / "layout"
    run(("cp", "-r", images.tiny_layout("first"), layout)).ok()
    home = shared_tmp / "locked"
    home.mkdir(mode=0o500)
    ordinary_user.own(home)

    def fetch() -> tuple[Path, int]:
        os.environ.update(HOME=str(home))
        os.environ.pop("APPTAINER_USERNS", None)
        artifact = Prefix(ordinary_user.home / "prefix").fetch(plan(f"oci:{layout}"))
        return artifact.path, artifact.size

    path, size = call_as(ordinary_user.user, fetch)
    assert (path.stat().st_size, path.stat().st_uid) == (size, ordinary_user.user.uid)
    assert variant(path) == "first"
    assert list(home.iterdir()) == []


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
  mkdir -p "$APPTAINER_ROOTFS/bin"
  cp /bin/busybox "$APPTAINER_ROOTFS/bin/cat"
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
    monkeypatch.setenv("APPTAINER_BINDPATH", "/no/such/directory")
    file = definition(tmp_path / "a definition")
    before = disk_state(file.parent)
    artifact = one_prefix.fetch(plan(build=file))
    monkeypatch.delenv("APPTAINER_BINDPATH")
    assert inside(artifact.path, "/bin/cat", "/note.txt") == "from the definition's directory"
    assert (artifact.source, artifact.notes) == (str(file), ())
    assert disk_state(file.parent) == before
    assert list(own_home.iterdir()) == []


def test_a_build_that_fails_shows_why(one_prefix: Prefix, tmp_path: Path) -> None:
    file = definition(tmp_path / "definition", "echo something is wrong; exit 3")
    error = refused(one_prefix, plan(build=file))
    assert f"`apptainer build {file}` failed with exit code 255:" in error.message
    assert "    something is wrong\n" in error.message
    assert "no definition file" in refused(one_prefix, plan(build=tmp_path / "none.def")).message


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(images: Images, tmp_path: Path) -> None:
    noise = Entry("opt/noise", random.Random(1).randbytes(5_000_000), mode=0o644)
    layout = images.tiny_layout("big", entries=(noise,))

    def fetch() -> None:
        error = refused(Prefix(tmp_path / "disk" / "prefix"), plan(f"oci:{layout}"))
        assert "no space left on device" in error.message.lower()
        assert "free some space" in error.hint

    call_on_small_disk(tmp_path / "disk", 4 << 20, fetch)


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
@pytest.mark.parametrize("during", ["pull", "build"])
def test_nothing_is_left_when_we_are_stopped(
    one_prefix: Prefix, tmp_path: Path, number: signal.Signals, during: str
) -> None:
    web = Web()
    web.start()
    answers = raw(hang=True)
    for path in ("/v2/", "/"):
        web.answers[path] = answers
    marker = tmp_path / "building"
    file = definition(tmp_path / "definition", f"touch '{marker}'; sleep 98765")
    source = f"docker://127.0.0.1:{web.server_address[1]}/x:1"
    wanted = f"plan({source!r})" if during == "pull" else f"plan(build={str(file)!r})"
    before = one_prefix.state()
    script = (sys.executable, "-c", INSTALLER, str(one_prefix.path), wanted)
    env = with_mark(str(tmp_path), {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    installer = subprocess.Popen(script, env=env, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: bool(web.asked) or marker.exists())
        assert len(marked(str(tmp_path))) > 1
        installer.send_signal(number)
        assert installer.wait() != 0
        wait_until(lambda: not marked(str(tmp_path)))
    finally:
        installer.kill()
        web.stop()
    if number == signal.SIGKILL:
        with one_prefix.store():
            pass  # the next run cleans up
    assert one_prefix.state() == before
