"""Images from a real registry: anonymous, with a password, with tokens, through mirrors, for every architecture."""

import base64
import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from sifmod.errors import FetchError, ImageError
from sifmod.image.oci.manifest import Manifest
from sifmod.image.registry.mirrors import Place, places
from sifmod.image.registry.network import RetryPolicy
from sifmod.image.registry.registry import Registry as Client
from sifmod.image.settings import Settings
from sifmod.image.sources.source_kinds import parse
from support.images import Images
from support.oci_index import write_multi
from support.registry import PASSWORD, USER, Registry, mirror_of, with_password, with_tokens
from support.tokens import TokenServer

LOGIN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
Mirrors = tuple[tuple[str, tuple[str, ...]], ...]
Start = Callable[[Registry], Registry]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start more registries, which end with the test."""
    running: list[Registry] = []

    def start(server: Registry) -> Registry:
        running.append(server)
        server.start()
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def token_server(tmp_path: Path) -> Iterator[TokenServer]:
    server = TokenServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def multi(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image for two architectures, in the registry."""
    layout = write_multi(tmp_path_factory.mktemp("multi") / "layout", ("arm64", "amd64"))
    return registry.push_layout(layout, "group/multi:1.0")


@pytest.fixture
def tiny(registry: Registry, images: Images) -> str:
    return registry.push_layout(images.tiny_layout(), "group/tiny:1.0")


def client(source: str, mirrors: Mirrors = (), arch: str = "amd64") -> Client:
    return Client(parse(source), Settings(mirrors=mirrors), arch, RetryPolicy(attempts=2, delay=0.01))


def whole(opened: Client, found: Manifest) -> None:
    """Read the config and every layer, and compare each with its digest."""
    assert f"sha256:{hashlib.sha256(found.raw).hexdigest()}" == found.digest
    config = opened.config(found)
    assert f"sha256:{hashlib.sha256(config.raw).hexdigest()}" == found.config.digest
    assert len(config.diff_ids) == len(found.layers)
    for layer in found.layers:
        with opened.blob(layer)({}) as response:
            content = response.content
        assert (f"sha256:{hashlib.sha256(content).hexdigest()}", len(content)) == (layer.digest, layer.size)


def refused(source: str, mirrors: Mirrors = ()) -> FetchError:
    with pytest.raises(FetchError) as caught:
        client(source, mirrors).manifest()
    return caught.value


def log_in(home: Path, host: str, login: str = LOGIN) -> None:
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": login}}}))


def at(server: Registry, source: str) -> str:
    """The same source from another server."""
    return f"docker://{server.address}/{source.removeprefix('docker://').partition('/')[2]}"


def test_an_image_is_read_by_its_tag_and_by_its_digest(tiny: str) -> None:
    opened = client(tiny)
    found = opened.manifest()
    whole(opened, found)
    assert client(f"{tiny.rpartition(':')[0]}@{found.digest}").manifest() == found
    assert client(f"{tiny}@{found.digest}").manifest() == found


def test_a_range_of_a_blob_is_read(tiny: str) -> None:
    opened = client(tiny)
    (layer,) = opened.manifest().layers
    with opened.blob(layer)({}) as response:
        content = response.content
    with opened.blob(layer)({"Range": "bytes=100-299"}) as response:
        assert (response.status_code, response.content) == (206, content[100:300])
    with opened.blob(layer)({"Range": f"bytes={layer.size}-"}) as response:
        assert response.status_code == 416


def test_the_wanted_architecture_is_chosen_from_an_index(multi: str) -> None:
    found = {}
    for arch in ("amd64", "arm64"):
        opened = client(multi, arch=arch)
        found[arch] = opened.manifest()
        assert opened.config(found[arch]).arch == arch
        whole(opened, found[arch])
    assert found["amd64"].digest != found["arm64"].digest
    assert found["amd64"].index_digest == found["arm64"].index_digest != ""
    by_index = client(f"{multi}@{found['amd64'].index_digest}").manifest()
    assert by_index == found["amd64"]


def test_an_architecture_that_is_missing_is_told_with_those_there(multi: str) -> None:
    with pytest.raises(ImageError) as caught:
        client(multi, arch="s390x").manifest()
    assert "does not exist for linux/s390x; it has: linux/amd64, linux/arm64" in caught.value.message


def test_an_index_in_an_index_is_followed_and_too_many_are_not(registry: Registry, images: Images) -> None:
    place = f"http://{registry.address}/v2/group/tiny/manifests"
    registry.push_layout(images.tiny_layout(), "group/tiny:1.0")
    inner = requests.get(f"{place}/1.0", headers={"Accept": "application/vnd.oci.image.manifest.v1+json"}, timeout=10)
    kind = inner.headers["Content-Type"]
    descriptor = {"mediaType": kind, "digest": inner.headers["Docker-Content-Digest"], "size": len(inner.content)}
    digests = [str(descriptor["digest"])]
    kind = "application/vnd.oci.image.index.v1+json"
    for depth in range(1, 7):
        content = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": [descriptor]}).encode()
        headers = {"Content-Type": kind}
        requests.put(f"{place}/deep{depth}", content, headers=headers, timeout=10).raise_for_status()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        descriptor = {"mediaType": kind, "digest": digest, "size": len(content)}
        digests.append(digest)
    found = client(f"docker://{registry.address}/group/tiny:deep4").manifest()
    assert (found.digest, found.index_digest) == (digests[0], digests[4])
    error = refused(f"docker://{registry.address}/group/tiny:deep6")
    assert isinstance(error, ImageError)
    assert "indexes inside indexes, more than 4 deep" in error.message


def test_a_tag_that_does_not_exist_is_told_with_those_like_it(registry: Registry, images: Images) -> None:
    for tag in ("2.2.0-rocm", "2.3.0-rocm", "unlike"):
        registry.push_layout(images.tiny_layout(), f"group/tags:{tag}")
    error = refused(f"docker://{registry.address}/group/tags:2.2.0-rcom")
    assert f"{registry.address} answered 404 Not Found: manifest unknown" in error.message
    assert f"not in group/tags on {registry.address}; it has: 2.2.0-rocm, 2.3.0-rocm" in error.hint
    error = refused(f"docker://{registry.address}/group/none:1.0")
    assert "answered 404" in error.message
    assert "correct the name or the tag" in error.hint


def test_a_password_is_sent_when_it_is_asked_for(
    registry: Registry, tiny: str, tmp_path: Path, start: Start, own_home: Path
) -> None:
    closed = start(with_password(tmp_path / "closed", registry.storage))
    error = refused(at(closed, tiny))
    assert f"{closed.address} answered 401 Unauthorized: authentication required" in error.message
    assert f"apptainer registry login --username USER docker://{closed.address}" in error.hint
    log_in(own_home, closed.address, base64.b64encode(b"someone:wrong").decode())
    error = refused(at(closed, tiny))
    assert f"it did not accept the login in {own_home}/.docker/config.json" in error.hint
    assert "wrong" not in error.hint
    log_in(own_home, closed.address)
    opened = client(at(closed, tiny))
    whole(opened, opened.manifest())


def test_variables_are_credentials_too(
    registry: Registry, tiny: str, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = start(with_password(tmp_path / "closed", registry.storage))
    monkeypatch.setenv("SINGULARITY_DOCKER_USERNAME", USER)
    monkeypatch.setenv("SINGULARITY_DOCKER_PASSWORD", PASSWORD)
    opened = client(at(closed, tiny))
    whole(opened, opened.manifest())


@pytest.mark.parametrize("login", ["", f"{USER}:{PASSWORD}"])
def test_a_token_is_got_and_kept(
    registry: Registry, tiny: str, tmp_path: Path, start: Start, token_server: TokenServer, own_home: Path, login: str
) -> None:
    closed = start(with_tokens(tmp_path / "closed", registry.storage, token_server.realm, token_server.certificate))
    token_server.login = login
    log_in(own_home, closed.address)
    opened = client(at(closed, tiny))
    whole(opened, opened.manifest())
    assert token_server.asked == [
        (f"Basic {LOGIN}", {"service": ["tests"], "scope": ["repository:group/tiny:pull"]}),
    ]


def test_an_expired_token_is_renewed(
    registry: Registry, tiny: str, tmp_path: Path, start: Start, token_server: TokenServer
) -> None:
    closed = start(with_tokens(tmp_path / "closed", registry.storage, token_server.realm, token_server.certificate))
    token_server.lifetimes = [-3600]
    opened = client(at(closed, tiny))
    whole(opened, opened.manifest())
    assert [header for header, _ in token_server.asked] == ["", ""]
    token_server.lifetimes = [-3600] * 9
    error = refused(at(closed, tiny))
    assert "answered 401" in error.message
    assert len(token_server.asked) == 4  # it does not ask for ever


def test_a_stale_login_does_not_stand_in_the_way_of_a_public_image(
    registry: Registry, tiny: str, tmp_path: Path, start: Start, own_home: Path
) -> None:
    class Lenient(TokenServer):
        """Nobody's token is for everybody, a wrong login's for nobody; as Docker Hub does it."""

        def _answer(self, header: str, scopes: list[str]):  # type: ignore[no-untyped-def]
            self.login = "right:one" if header else ""
            return super()._answer(header, scopes)

    server = Lenient(tmp_path)
    server.start()
    try:
        closed = start(with_tokens(tmp_path / "closed", registry.storage, server.realm, server.certificate))
        log_in(own_home, closed.address)
        opened = client(at(closed, tiny))
        whole(opened, opened.manifest())
        assert [header for header, _ in server.asked] == [f"Basic {LOGIN}", ""]
    finally:
        server.stop()


def test_a_login_that_the_token_server_refuses_is_told(
    registry: Registry, tiny: str, tmp_path: Path, start: Start, token_server: TokenServer, own_home: Path
) -> None:
    closed = start(with_tokens(tmp_path / "closed", registry.storage, token_server.realm, token_server.certificate))
    token_server.login = "right:one"
    log_in(own_home, closed.address)
    error = refused(at(closed, tiny))
    assert "answered 401 Unauthorized: incorrect username or password" in error.message
    assert f"it did not accept the login in {own_home}/.docker/config.json" in error.hint


def test_a_mirror_is_asked_first_and_only_for_what_it_covers(
    registry: Registry, tiny: str, tmp_path: Path, start: Start
) -> None:
    mirror = start(mirror_of(tmp_path / "mirror", registry.address))
    opened = client(tiny, ((f"{registry.address}/group", (f"{mirror.address}/group",)),))
    found = opened.manifest()
    whole(opened, found)
    assert list((mirror.storage / "docker/registry/v2/repositories").glob("*/tiny"))
    empty = start(mirror_of(tmp_path / "empty", registry.address))
    opened = client(tiny, ((f"{registry.address}/gro", (f"{empty.address}/gro",)), ("docker.io", (empty.address,))))
    assert opened.manifest() == found
    assert not (empty.storage / "docker").exists()


def test_mirrors_that_fail_are_passed_over_in_order(
    registry: Registry, tiny: str, tmp_path: Path, start: Start
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{taken.getsockname()[1]}"
        closed = start(with_password(tmp_path / "closed", registry.storage))
        other = start(Registry(tmp_path / "other"))
        prefix = f"{registry.address}/group"
        mirrors = ((prefix, (f"{gone}/x", f"{other.address}/none")), (registry.address, (closed.address,)))
        opened = client(tiny, mirrors)
        whole(opened, opened.manifest())
        error = refused(f"docker://{registry.address}/group/none:1.0", mirrors)
    lines = error.message.splitlines()
    assert f"{registry.address} answered 404" in lines[0]
    assert [line.partition(": ")[0] for line in lines[1:]] == [
        f"    mirror {gone}/x/none",
        f"    mirror {other.address}/none/none",
        f"    mirror {closed.address}/group/none",
    ]
    assert "Connection refused" in lines[1]
    assert "answered 404" in lines[2]
    assert "answered 401" in lines[3]


def test_a_mirror_gets_its_own_login_and_no_other(
    registry: Registry, images: Images, tmp_path: Path, start: Start, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.push_layout(images.tiny_layout(), "group/tiny:1.0")
    closed = start(with_password(tmp_path / "closed", registry.storage))
    monkeypatch.setenv("APPTAINER_DOCKER_USERNAME", USER)
    monkeypatch.setenv("APPTAINER_DOCKER_PASSWORD", PASSWORD)
    mirrors = ((f"{registry.address}/gone", (f"{closed.address}/group",)),)
    error = refused(f"docker://{registry.address}/gone/tiny:1.0", mirrors)
    assert "answered 401" in error.message.splitlines()[1]
    log_in(own_home, closed.address)
    opened = client(f"docker://{registry.address}/gone/tiny:1.0", mirrors)
    whole(opened, opened.manifest())


def test_a_mirror_that_ends_in_the_middle_is_replaced(
    registry: Registry, tiny: str, tmp_path: Path, start: Start
) -> None:
    mirror = start(Registry(tmp_path / "mirror", storage=registry.storage))
    opened = client(tiny, ((registry.address, (mirror.address,)),))
    found = opened.manifest()
    mirror.stop()
    whole(opened, found)


@pytest.mark.parametrize(
    ("source", "mirrors", "expected"),
    [
        ("docker://debian:12", (), [Place("docker.io", "library/debian", True)]),
        ("docker://docker.io/debian", (), [Place("docker.io", "library/debian", True)]),
        ("docker://index.docker.io/a/b", (), [Place("docker.io", "a/b", True)]),
        ("docker://localhost:5000/a", (), [Place("localhost:5000", "a", True)]),
        (
            "docker://debian",
            (("docker.io", ("m.site/hub", "n.site:5000")),),
            [
                Place("m.site", "hub/library/debian"),
                Place("n.site:5000", "library/debian"),
                Place("docker.io", "library/debian", True),
            ],
        ),
        (
            "docker://a/b",
            (("docker.io/a/", ("m.site/x/",)), ("index.docker.io", ("docker.io", "n.site"))),
            [Place("m.site", "x/b"), Place("n.site", "a/b"), Place("docker.io", "a/b", True)],
        ),
        ("docker://docker.iox/a", (("docker.io", ("m.site",)),), [Place("docker.iox", "a", True)]),
    ],
)
def test_where_an_image_may_be_had(source: str, mirrors: Mirrors, expected: list[Place]) -> None:
    assert list(places(parse(source), mirrors)) == expected


def test_a_name_that_no_registry_has_is_refused() -> None:
    with pytest.raises(FetchError) as caught:
        places(parse("docker://ghcr.io/Group/Name:1.0"), ())
    assert "'Group/Name' is not a valid repository name" in caught.value.message
    assert "lower-case" in caught.value.hint


def test_a_sif_is_told_from_an_image(registry: Registry, images: Images) -> None:
    reference = registry.push_sif(images.tiny_sif, "group/sif:1.0")
    found = client(reference).manifest()
    assert found.layers[0].media_type == "application/vnd.sylabs.sif.layer.v1.sif"
    assert found.layers[0].size == images.tiny_sif.stat().st_size


def test_many_threads_read_at_once_with_one_token(
    registry: Registry, tiny: str, tmp_path: Path, start: Start, token_server: TokenServer
) -> None:
    closed = start(with_tokens(tmp_path / "closed", registry.storage, token_server.realm, token_server.certificate))
    digest = client(tiny).manifest()
    opened = client(at(closed, tiny))

    def read(_: int) -> str:
        with opened.blob(digest.layers[0])({}) as response:
            return hashlib.sha256(response.content).hexdigest()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(32))) == {digest.layers[0].digest.removeprefix("sha256:")}
    assert len(token_server.asked) == 1


def test_no_credentials_are_written_anywhere(
    registry: Registry, tiny: str, tmp_path: Path, start: Start, own_home: Path
) -> None:
    closed = start(with_password(tmp_path / "closed", registry.storage))
    log_in(own_home, closed.address)
    before = {path: path.read_bytes() for path in own_home.rglob("*") if path.is_file()}
    client(at(closed, tiny)).manifest()
    assert {path: path.read_bytes() for path in own_home.rglob("*") if path.is_file()} == before
    assert not any(PASSWORD in value for value in os.environ.values())
