"""Images that need a builder: commands upon a base, what is built once, and what is said where nothing can build."""

import grp
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sifmod.errors import SifmodError
from sifmod.image.artifact import Artifact, FetchRequest, no_progress
from sifmod.image.builder import build_method, dockerfile_builder
from sifmod.image.fetch import announced_size, fetch_image
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.program import probe_runtime
from sifmod.image.sources.build import bases, inputs, remote_digests
from sifmod.image.sources.source_kinds import local_files, parse
from sifmod.module.plan import BuildPlan, ImagePlan, Runtime
from sifmod.tree.locking import closed_remains
from support.command import User, run
from support.config import write
from support.disk_state import State, disk_state
from support.extending import base_of
from support.fetching import Prefix, plan
from support.identity import call_as
from support.images import Images
from support.package_index import Index, serving
from support.processes import marked, wait_until, with_mark
from support.recipes import base, contents, recipe
from support.registry import Registry
from support.runtime import RUNTIME
from support.user import NAME, OrdinaryUser
from support.web import Handler, Web, answer
from support.wheels import wheel

PROGRAMS = ("sh", "cat", "cp", "echo", "env", "ls", "mkdir", "mv", "rm", "stat", "test", "touch", "true")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with a shell, a file of another user's, and a Python that notes how it was called."""
    directory = tmp_path_factory.mktemp("shell")
    base(directory)  # its tree
    top = directory / "base"
    for name in ("bin", "tmp", "etc", "root", "proc", "sys", "dev", "var/tmp", "srv"):
        (top / name).mkdir(parents=True, exist_ok=True)
    (top / "bin/busybox").write_bytes(Path("/bin/busybox").read_bytes())
    (top / "bin/busybox").chmod(0o755)
    for name in PROGRAMS:
        (top / "bin" / name).symlink_to("busybox")
    (top / "etc/resolv.conf").touch()
    (top / "etc/hosts").touch()
    (top / "lib/x86_64-linux-gnu/libc.so.6").unlink()  # the shell is static, and the fakeroot of this machine is not
    write(top / "lib/ld-musl-x86_64.so.1", "")
    write(
        top / "opt/env/bin/python3", '#!/bin/sh\necho "python $*" >>/srv/pip; [ "$3" != install ] || env >/srv/env\n'
    ).chmod(0o755)
    write(top / "srv/theirs", "of user 33\n")
    if os.geteuid() == 0:
        os.chown(top / "srv/theirs", 33, 33)
    return base_of(top, directory / "shell.sif")


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


def made(prefix: Prefix, image: ImagePlan) -> Artifact:
    with prefix.store() as store:
        return fetch_image(image, RUNTIME.plan, store)


def refused(prefix: Prefix, image: ImagePlan) -> SifmodError:
    """The error, asserting that the disk is as before but for the base, which is referred to."""
    before = prefix.state()
    with pytest.raises(SifmodError) as caught:
        made(prefix, image)
    assert prefix.state() == before
    return caught.value


def test_commands_run_inside_upon_all_else_of_the_recipe(tmp_path: Path, shell: Path, prefix: Prefix) -> None:
    file = write(tmp_path / "a.txt", "a file\n")
    image = recipe(
        shell,
        files=((str(file), "/opt/a.txt"),),
        env=(("GREETING", "it's $HOME"),),
        labels=(("maintainer", "me"),),
        post='cat /opt/a.txt >/made\necho "$GREETING $PATH" >>/made\nrm /srv/pip || true',
        test='test "$(cat /opt/a.txt)" = "a file"',
    )
    artifact = made(prefix, image)
    after = contents(artifact.path)
    assert after["/made"].decode().startswith("a file\nit's $HOME /opt/env/bin:")
    assert after["/srv/theirs"] == b"of user 33\n"
    said = describe_sif(artifact.path)
    assert {"maintainer": "me", "of": "the base"}.items() <= dict(said.config.labels).items()
    assert {"LANG": "C", "GREETING": "it's $HOME"}.items() <= dict(said.config.environment).items()
    assert "From: base.sif" in said.definition
    assert str(tmp_path) not in said.definition
    assert json.loads(after["/.singularity.d/build/1/recipe.json"])["post"] == image.build.post  # type: ignore[union-attr]
    assert any(note.startswith("the recipe's commands ran ") for note in artifact.notes)
    again = made(prefix, replace(image, filename="other.sif"))
    assert (again.sha256, again.notes) == (artifact.sha256, ("an earlier build of the same recipe is used",))


@pytest.mark.parametrize(
    "commands", [{"post": "echo is wrong; false"}, {"post": "true", "test": "echo is wrong; false"}]
)
def test_commands_that_fail_end_the_build(shell: Path, prefix: Prefix, commands: dict[str, Any]) -> None:
    assert "is wrong" in refused(prefix, recipe(shell, **commands)).message


HASHES = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Setting up ca-certificates (20230311)", ""),
        (f"Could not fetch URL https://x/: There was a problem confirming the ssl certificate: x\n{HASHES}", "digest"),
        (f"Updating certificates in /etc/ssl/certs...\n{HASHES}", "digest"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "SSL_CERT_FILE"),
        ("curl: (60) SSL certificate problem: self-signed certificate in certificate chain", "SSL_CERT_FILE"),
        ("ERROR: cannot verify example.org's certificate, issued by 'CN=x':", "SSL_CERT_FILE"),
        ("server certificate verification failed. CAfile: none CRLfile: none", "SSL_CERT_FILE"),
        ("There was a problem confirming the ssl certificate: [SSL: CERTIFICATE_VERIFY_FAILED] x", "SSL_CERT_FILE"),
    ],
)
def test_only_a_certificate_that_fails_is_a_matter_of_certificates(
    said: str, hint: str, shell: Path, prefix: Prefix
) -> None:
    text = said.replace("'", "")
    found = refused(prefix, recipe(shell, post=f"echo '{text}'; false")).hint
    assert hint in found if hint else not found
    assert "SSL_CERT_FILE" not in found or hint == "SSL_CERT_FILE"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The user's own index, of which uv has no wheel for the base."""
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels", "demo").rename(tmp_path / "wheels/demo-1.0-cp27-cp27m-win32.whl")
    for name in (name for name in os.environ if name.startswith("UV_")):
        monkeypatch.delenv(name)
    for name in ("HOME", "UV_CACHE_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    with serving(tmp_path / "wheels") as served:
        monkeypatch.setenv("UV_DEFAULT_INDEX", served.url)
        yield served


def test_what_has_no_wheel_is_compiled_inside_from_the_index_of_the_user(
    shell: Path, prefix: Prefix, index: Index
) -> None:
    """pip asked its own default index: the package of that name there came into the image, and its build ran."""
    image = recipe(shell, pip=("demo",), env=(("PIP_EXTRA_INDEX_URL", "http://no.one"),), post="echo more >>/srv/pip")
    artifact = made(prefix, image)
    after = contents(artifact.path)
    place = "/.singularity.d/build/1"
    install = f"--no-cache-dir --no-input --constraint {place}/kept.txt --requirement {place}/requirements.txt"
    assert after["/srv/pip"].decode() == f"python -m pip install {install}\npython -m pip freeze\nmore\n"
    places = f"--index-url {index.url}\n--trusted-host 127.0.0.1:{index.port}\n"
    assert after[f"{place}/requirements.txt"].decode() == f"{places}demo\n"
    assert b"torch==2.0\n" in after[f"{place}/kept.txt"]
    assert f"{place}/installed.txt" in after
    assert any("has no wheel for this image" in note for note in artifact.notes)


def test_pip_gets_only_the_places_of_uv(
    shell: Path, prefix: Prefix, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an index that the image names, nor that of pip; and all that the recipe itself names."""
    place, settings = "/.singularity.d/build/1/requirements.txt", tmp_path / "home/uv/uv.toml"
    trusted = f"--trusted-host 127.0.0.1:{index.port}\n"
    given = write(tmp_path / "r.txt", f"--extra-index-url {index.url}\n--only-binary index-x\n--pre\ndemo\n")
    strange = (("PIP_EXTRA_INDEX_URL", "http://no.one"),)
    with monkeypatch.context() as changed:
        changed.setenv("UV_NO_INDEX", "1")
        write(settings, f'find-links = ["{index.url}demo/"]\n')
        after = contents(made(prefix, recipe(shell, pip=("demo",), env=strange)).path)
    assert after[place].decode() == f"--find-links {index.url}demo/\n--no-index\n{trusted}demo\n"
    assert b"no.one" not in after["/srv/env"]
    assert b"\nPIP_CONFIG_FILE=/dev/null\n" in after["/srv/env"]
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    write(settings, f'[[index]]\nurl = "{index.url}"\ndefault = true\n')
    after = contents(made(prefix, recipe(shell, requirements=str(given))).path)
    indexes = f"--index-url {index.url}\n--extra-index-url {index.url}\n"
    assert after[place].decode() == f"{indexes}{trusted}--only-binary=index-x\n--pre\ndemo\n"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"UV_DEFAULT_INDEX": "http://me:s3cret@{0}/simple/"}, "does not get your login for {0}"),
        ({"UV_DEFAULT_INDEX": "own=http://{0}/simple/", "UV_INDEX_OWN_PASSWORD": "s3cret"}, "your login for {0}"),
        ({"netrc": "machine 127.0.0.1 login me password s3cret\n"}, "your login for {0}"),
        ({"uv/credentials/credentials.toml": 'service = "http://{0}"\npassword = "s3cret"\n'}, "your login for {0}"),
        ({"UV_INDEX": "http://{0}/simple"}, "the newest from http://{0}/simple/, http://{0}/simple, unlike uv"),
        ({"UV_FIND_LINKS": "{1}/wheels"}, "cannot read {1}/wheels, where uv searches"),
    ],
)
def test_pip_asks_no_other_index_than_uv_where_it_cannot_do_as_uv(
    settings: dict[str, str], why: str, shell: Path, prefix: Prefix, index: Index, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    server = f"127.0.0.1:{index.port}"
    monkeypatch.setenv("NETRC", str(tmp_path / "home/netrc"))
    for name, value in settings.items():
        text = value.replace("{0}", server).replace("{1}", str(tmp_path))
        if name.startswith("UV_"):
            monkeypatch.setenv(name, text)
        else:
            write(tmp_path / "home" / name, text)
    error = refused(prefix, recipe(shell, pip=("demo",)))
    assert "has no wheel for this image" in error.message
    assert why.replace("{0}", server).replace("{1}", str(tmp_path)) in error.message
    assert "UV_FIND_LINKS" in error.hint
    assert "s3cret" not in f"{error.message}{error.hint}"


def test_where_nothing_can_build_the_way_out_is_told(tmp_path: Path, shell: Path, prefix: Prefix) -> None:
    before = prefix.state()
    for build in (
        recipe(shell, post="true"),
        plan(build=write(tmp_path / "x.def", "Bootstrap: scratch\n")).required_image,
    ):
        with prefix.store() as store, pytest.raises(SifmodError) as caught:
            fetch_image(build, Runtime("apptainer", ""), store)
        assert "building needs apptainer or singularity" in caught.value.message
        assert all(way in caught.value.hint for way in ("sifmod push", "sifmod stack bundle", "image.sources"))
        assert prefix.state() == before


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize(("kind", "lacks"), [("apptainer", "user namespaces"), ("singularity-ce", "proot")])
def test_what_a_user_lacks_is_found_out_beforehand(
    shared_tmp: Path, ordinary_user: OrdinaryUser, kind: str, lacks: str
) -> None:
    """With an `unshare` that fails as it does where namespaces are closed, and a runtime that has no setuid."""
    for name, text in {"unshare": "exit 1", "runtime": f"echo {kind} version 4.1.0"}.items():
        write(shared_tmp / "bin" / name, f"#!/bin/sh\n{text}\n").chmod(0o755)
    path = f"{shared_tmp}/bin:{RUNTIME.search_path}"

    def said() -> str:
        os.environ["PATH"] = path
        try:
            return build_method(probe_runtime(str(shared_tmp / "bin/runtime"))).said
        except SifmodError as error:
            return error.message

    before = call_as(ordinary_user.user, said)
    assert f"/etc/subuid is unreadable, or has no line for the user {NAME}" in before
    assert lacks in before
    write(shared_tmp / "bin/proot", "#!/bin/sh\n").chmod(0o755)
    write(shared_tmp / "bin/unshare", "#!/bin/sh\n").chmod(0o755)
    assert call_as(ordinary_user.user, said) in ("in a user namespace whose only user is root", "with proot")


DEFINITION = """\
Bootstrap: scratch
%arguments
    who=nobody
%files
    {{ who }}.txt /note
%setup
    mkdir -p "$SINGULARITY_ROOTFS/bin"
    echo "{{ who }}" >"$SINGULARITY_ROOTFS/who"
"""


def test_arguments_of_a_definition_are_a_part_of_what_it_is(tmp_path: Path, prefix: Prefix) -> None:
    write(tmp_path / "me.txt", "mine\n")
    definition = write(tmp_path / "x.def", DEFINITION)
    assert tmp_path / "nobody.txt" in inputs(definition)
    image = replace(recipe(tmp_path), build=BuildPlan(definition=str(definition), arguments=(("who", "me"),)))
    artifact = made(prefix, image)
    assert contents(artifact.path, "/note") == {"/note": b"mine\n"}
    assert contents(artifact.path, "/who") == {"/who": b"me\n"}
    assert made(prefix, image).notes[0].startswith("an earlier build of the same files is used")
    assert "exit code" in refused(prefix, replace(image, build=BuildPlan(definition=str(definition)))).message


def test_a_moved_tag_is_another_base(tmp_path: Path, prefix: Prefix, registry: Registry, images: Images) -> None:
    text = "Bootstrap: docker\nRegistry: {}\nFrom: {{{{ name }}}}\n%post\n  true\nBootstrap: localimage\nFrom: x.sif\n"
    definition = write(tmp_path / "x.def", text.format(registry.address))
    sources = bases(definition, (("name", "moving:1"),))
    assert sources == (f"docker://{registry.address}/moving:1",)
    found = []
    with prefix.store() as store:
        request = FetchRequest(parse(sources[0]), recipe(tmp_path), RUNTIME.plan, store, no_progress)
        for value in ("one", "one", "two"):
            registry.push_layout(images.tiny_layout("moved", labels={"is": value}), "moving:1")
            found.append(remote_digests(request, sources))
        assert remote_digests(request, ("docker://127.0.0.1:1/none",)) == ""
        assert remote_digests(replace(request, image=replace(request.image, offline=True)), sources) == ""
    assert found[0] == found[1] != found[2]


DOCKERFILE = """\
ARG BASE=none
FROM {}/base:1 AS one
ARG WHO=nobody
COPY . /context
RUN echo "hello $WHO" >/note
FROM $BASE
COPY --from=one /note /context /
ENV GREETING=hi
RUN echo more >>/note
"""


@pytest.fixture
def dockerfile(tmp_path: Path, registry: Registry, images: Images) -> ImagePlan:
    reference = registry.push_layout(images.tiny_layout(), "base:1")
    context = tmp_path / "context"
    for name in ("kept.txt", "left.log", "deep/other.log", "deep/kept.log"):
        write(context / name, name)
    write(context / ".dockerignore", "# none\n**/*.log\n!deep/kept.log\n")
    write(context / "Dockerfile", DOCKERFILE.format(registry.address))
    arguments = (("WHO", "me"), ("BASE", reference.removeprefix("docker://")))
    return replace(recipe(tmp_path), build=BuildPlan(dockerfile=f"{context}/", arguments=arguments))


def test_a_dockerfile_of_two_stages_is_built_once(tmp_path: Path, prefix: Prefix, dockerfile: ImagePlan) -> None:
    context = tmp_path / "context"
    request = image_key(dockerfile)
    there = disk_state(context)
    artifact = made(prefix, dockerfile)
    assert disk_state(context) == there
    after = contents(artifact.path)
    assert after["/note"] == b"hello me\nmore\n"
    assert {path for path in after if path.endswith((".txt", ".log"))} == {"/kept.txt", "/deep/kept.log"}
    assert dict(describe_sif(artifact.path).config.environment)["GREETING"] == "hi"

    write(context / "left.log", "not looked at")
    assert image_key(dockerfile) == request
    again = made(prefix, replace(dockerfile, filename="other.sif"))
    assert again.sha256 == artifact.sha256
    assert again.notes == ("an earlier build of the same files is used",)

    write(context / "deep/kept.log", "new")
    assert image_key(dockerfile) != request
    write(context / "Dockerfile", "FROM scratch\nCOPY deep/kept.log /\n")
    assert contents(made(prefix, dockerfile).path, "/kept") == {"/kept.log": b"new"}
    write(context / "Dockerfile", "FROM scratch\nRUN no such thing\n")
    assert "build" in refused(prefix, dockerfile).message
    (context / "Dockerfile").unlink()
    assert "there is no Dockerfile" in refused(prefix, dockerfile).message


@pytest.mark.skipif(not shutil.which("buildah"), reason="needs buildah, which scripts/provision installs")
def test_a_registry_that_a_dockerfile_names_gets_no_login_of_variables(
    tmp_path: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """buildah sends it none, but sifmod did, when it looked up the images behind FROM."""
    logins, registry = list[str](), Web()

    def closed(handler: Handler) -> None:
        logins.append(handler.headers.get("Authorization", ""))
        answer(401, b"", {"WWW-Authenticate": "Basic realm=x"})(handler)

    registry.answers["/v2/"] = registry.answers["/v2/base/manifests/1"] = closed
    registry.start()
    try:
        for name, value in (("USERNAME", "me"), ("PASSWORD", "s3cret")):
            monkeypatch.setenv(f"APPTAINER_DOCKER_{name}", value)
        write(tmp_path / "context/Dockerfile", f"FROM 127.0.0.1:{registry.server_address[1]}/base:1\n")
        image = replace(recipe(tmp_path), build=BuildPlan(dockerfile=f"{tmp_path}/context/"))
        with prefix.store() as store:
            announced_size(image, RUNTIME.plan, store)
        asked = len(logins)
        with pytest.raises(SifmodError, match="failed with exit code"):
            made(prefix, image)
    finally:
        registry.stop()
    assert asked
    assert len(logins) > asked
    assert set(logins) <= {"", "Basic Og=="}  # which buildah sends for no login


def test_a_context_that_changes_while_it_is_built_is_built_again(
    tmp_path: Path, prefix: Prefix, dockerfile: ImagePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program before buildah changes a file once the build has ended."""
    kept = tmp_path / "context/deep/kept.log"
    later = f'case " $* " in *" build "*) printf later >"{kept}" ;; esac'
    script = f'#!/bin/sh\n{shutil.which("buildah")} "$@" || exit\n{later}\n'
    write(tmp_path / "programs/buildah", script).chmod(0o755)
    with monkeypatch.context() as changed:
        changed.setenv("PATH", f"{tmp_path}/programs:{os.environ['PATH']}")
        assert contents(made(prefix, dockerfile).path)["/deep/kept.log"] == b"deep/kept.log"
    kept.write_text("deep/kept.log")  # as it was built
    again = made(prefix, replace(dockerfile, filename="other.sif"))
    kept.write_text("later")  # as it was when the first build ended
    found = made(prefix, replace(dockerfile, filename="third.sif"))
    assert contents(found.path)["/deep/kept.log"] == b"later"
    assert "not built again" not in " ".join((*again.notes, *found.notes))


@pytest.mark.usefixtures("needs_root")
def test_a_user_without_ids_cannot_build_a_dockerfile(ordinary_user: OrdinaryUser) -> None:
    def said() -> str:
        with pytest.raises(SifmodError) as caught:
            dockerfile_builder()
        return caught.value.message

    found = call_as(ordinary_user.user, said)
    assert found == f"buildah cannot build here: /etc/subuid is unreadable, or has no line for the user {NAME}"


def _lines_of(name: str, file: str) -> list[str]:
    return [line for line in Path(file).read_text().splitlines() if line.startswith(f"{name}:")]


@pytest.fixture
def user_with_ids() -> User:
    """An ordinary user with ids for user namespaces, made once on the machine."""
    if os.geteuid() != 0 or not shutil.which("buildah"):
        pytest.skip("only root makes another user, and buildah gives files to other ids")
    name = "sifmod-builder"
    assert run(("useradd", "--create-home", "--shell", "/bin/bash", name)).code in (0, 9)
    for kind in ("uid", "gid"):
        if not _lines_of(name, f"/etc/sub{kind}"):
            run(("usermod", f"--add-sub{kind}s", "500000000-500065535", name)).ok()
    entry = pwd.getpwnam(name)
    return User(entry.pw_uid, entry.pw_gid)


def test_what_a_killed_builder_has_left_to_other_ids_goes_with_the_next_run(
    shared_tmp: Path, user_with_ids: User
) -> None:
    """As after `RUN chown` of a Dockerfile: an ordinary user can remove that in a user namespace alone."""
    prefix = Prefix(shared_tmp / "prefix")
    OrdinaryUser(user_with_ids, shared_tmp).own(shared_tmp)
    given = f"{pwd.getpwuid(user_with_ids.uid).pw_dir}"

    def killed() -> None:
        os.environ["HOME"] = given
        with prefix.store() as store, store.workspace() as workspace:
            commands = "mkdir -p root/a/b && touch root/a/b/c && chmod 700 root/a/b && chown -R 33:33 root/a"
            run(("buildah", "unshare", "sh", "-ec", commands), cwd=workspace).ok()
            os.kill(os.getpid(), signal.SIGKILL)

    def next_run() -> tuple[State, tuple[Path, ...]]:
        os.environ["HOME"] = given
        with prefix.store():
            pass
        return prefix.state(), closed_remains(prefix.layout)

    before = prefix.state()
    with pytest.raises(EOFError):
        call_as(user_with_ids, killed)
    (left,) = shared_tmp.glob("prefix/.staging/**/root/a")
    assert left.stat().st_uid not in (user_with_ids.uid, 0)
    assert call_as(user_with_ids, next_run) == (before, ())
    assert not left.exists()


def test_commands_run_in_a_tree_of_a_group(shared_tmp: Path, shell: Path, user_with_ids: User) -> None:
    """ "failed to create staging file": new directories had its group, which the user namespace does not know."""
    tree, source = shared_tmp / "tree", shared_tmp / "base.sif"
    shutil.copy(shell, source)
    source.chmod(0o644)
    tree.mkdir()
    os.chown(tree, user_with_ids.uid, grp.getgrnam("games").gr_gid)
    tree.chmod(0o2775)
    home = pwd.getpwuid(user_with_ids.uid).pw_dir

    def built() -> bytes:
        os.environ["HOME"] = home
        return contents(made(Prefix(tree), recipe(source, post="echo made >/srv/made")).path, "/srv")["/srv/made"]

    assert call_as(user_with_ids, built) == b"made\n"


def image_key(image: ImagePlan) -> str:
    return "".join(f"{path} {Path(path).read_text()}\n" for path in local_files(image) if Path(path).is_file())


INSTALLER = """
import sys
from pathlib import Path
from sifmod.image.fetch import announced_size, fetch_image
from support.fetching import Prefix
from support.recipes import recipe
from support.runtime import RUNTIME

with Prefix(Path(sys.argv[1])).store() as store:
    image = recipe(Path(sys.argv[2]), post=f"touch {sys.argv[3]}; exec cat {sys.argv[3]}.pipe")
    fetch_image(image, RUNTIME.plan, store)
"""


def test_a_build_that_is_killed_leaves_nothing_to_the_next_run(
    shared_tmp: Path, shell: Path, prefix: Prefix, tmp_path: Path
) -> None:
    marker = shared_tmp / "building"
    os.mkfifo(f"{marker}.pipe")
    before = prefix.state()
    env = with_mark(str(tmp_path), {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    words = (sys.executable, "-c", INSTALLER, str(prefix.path), str(shell), str(marker))
    installer = subprocess.Popen(words, env=env)
    try:
        wait_until(lambda: marker.exists() or installer.poll() is not None)
        assert installer.poll() is None
        installer.kill()
        installer.wait()
        wait_until(lambda: not marked(str(tmp_path)))
    finally:
        installer.kill()
    with prefix.store():
        pass  # the next run
    assert prefix.state() == before
