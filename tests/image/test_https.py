"""A SIF from a web server that does what it should, and from one that does not."""

import gzip
import hashlib
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image.artifact import Fetching, no_progress
from sifmod.image.convert.sif.header import HEADER
from sifmod.image.disk import NoSpaceError
from sifmod.image.sources import https
from sifmod.image.sources.source_kinds import parse
from sifmod.module.plan import Runtime
from support.downloading import IMPATIENT, SHORT
from support.fetching import Prefix, plan
from support.identity import call_on_small_disk
from support.images import Images
from support.oci import Entry
from support.ranged import Asked, Ranged, says
from support.web import Answer, Handler, Web, answer, make_certificate, raw

NO_RUNTIME = Runtime("apptainer", "")


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def start() -> Iterator[Callable[[Path | None], Web]]:
    servers: list[Web] = []

    def start(certificate: Path | None) -> Web:
        servers.append(Web(certificate))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def web(start: Callable[[Path | None], Web], certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Web:
    """A server with a certificate that is trusted."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    return start(certificate)


@pytest.fixture(scope="session")
def sif(images: Images) -> bytes:
    """About 6 MB, so that it comes in several steps."""
    noise = Entry("opt/noise", random.Random(1).randbytes(5_000_000), mode=0o644)
    return images.tiny("big", entries=(noise,)).read_bytes()


def refused(prefix: Prefix, url: str) -> FetchError:
    """The error for `url`, asserting that the disk is as before: nothing arrived that another run could go on with."""
    before = prefix.state()
    with prefix.store() as store, store.partial("0" * 32) as partial, store.incoming() as incoming:
        wanted = plan(url).required_image
        asked = (parse(url), wanted, NO_RUNTIME, store, no_progress)
        request = Fetching(*asked, incoming=incoming, partial=partial)
        with pytest.raises(FetchError) as caught:
            https.download(request, SHORT, IMPATIENT)
    assert prefix.state() == before
    return caught.value


def test_a_file_is_streamed_into_the_store(web: Web, prefix: Prefix, sif: bytes) -> None:
    web.answers["/a/x.sif"] = answer(200, sif)
    told: list[tuple[str, int, int | None]] = []
    url = web.url("/a/x.sif?token=1")
    artifact = prefix.fetch(plan(url), lambda *what: told.append(what))
    digest = hashlib.sha256(sif).hexdigest()
    assert artifact.path == prefix.layout.image(digest)
    assert artifact.path.read_bytes() == sif
    assert (artifact.sha256, artifact.size, artifact.source) == (digest, len(sif), web.url("/a/x.sif"))
    assert artifact.notes == (f"no digest is pinned; to pin this image add to `image:`  sha256: {digest}",)
    seen = [done for _, done, _ in told]
    assert seen == sorted(seen)
    assert told[-1] == ("downloading tiny.sif", len(sif), len(sif))
    assert web.asked[0][1]["user-agent"].startswith("sifmod/")
    assert web.asked[0][1]["accept-encoding"] == "identity"


def test_a_length_that_is_not_announced_is_no_trouble(web: Web, prefix: Prefix, sif: bytes) -> None:
    web.answers["/x.sif"] = raw(b"HTTP/1.1 200 OK\r\n\r\n", sif)
    told: list[int | None] = []
    assert prefix.fetch(plan(web.url("/x.sif")), lambda *what: told.append(what[2])).size == len(sif)
    assert set(told) <= {None, len(sif)}  # it is known at the end


def endless(sif: bytes, part: int, sent: list[int]) -> Answer:
    """The image and then zeros without end, in chunks; the image's own come `part` bytes at a time."""

    def send(handler: Handler) -> None:
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")(handler)
        parts = (sif[at : at + part] for at in range(0, len(sif), part))
        for data in chain(parts, repeat(bytes(1 << 20))):
            raw(f"{len(data):x}\r\n".encode(), data, b"\r\n")(handler)
            sent.append(len(data))

    return send


@pytest.mark.parametrize("part", [3_000, 1 << 20])
@pytest.mark.parametrize("pinned", [False, True])
def test_a_body_without_a_length_ends_where_the_images_header_says(
    web: Web, prefix: Prefix, sif: bytes, part: int, pinned: bool
) -> None:
    sent: list[int] = []
    web.answers["/x.sif"] = endless(sif, part, sent)
    before, received = prefix.state(), [0]
    sha256 = hashlib.sha256(sif).hexdigest() if pinned else ""
    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan(web.url("/x.sif"), sha256=sha256), lambda *what: received.append(what[1]))
    assert f"the server sent more than the {len(sif)} bytes that the header of the SIF describes" in str(caught.value)
    assert max(received) <= len(sif)
    assert prefix.state() == before


@pytest.mark.parametrize(
    ("number", "value", "message"),
    [
        (4, 1 << 50, f"its header has 48 descriptors at {1 << 50}"),  # where the table begins
        (7, (1 << 63) - 1, " is a damaged SIF: its header describes 92233720368"),  # the length of the data
        (7, 1 << 59, ""),
    ],
)
def test_a_header_of_impossible_lengths_is_refused(
    web: Web, prefix: Prefix, sif: bytes, number: int, value: int, message: str
) -> None:
    wrong = bytearray(sif)
    at = HEADER.size - 64 + number * 8
    wrong[at : at + 8] = value.to_bytes(8, "little")
    web.answers["/x.sif"] = endless(bytes(wrong), 1 << 20, [])
    assert message in refused(prefix, web.url("/x.sif")).message


def test_a_body_that_is_compressed_on_its_way_is_unpacked(web: Web, prefix: Prefix, sif: bytes) -> None:
    web.answers["/x.sif"] = answer(200, gzip.compress(sif, 1), {"Content-Encoding": "gzip"})
    assert prefix.fetch(plan(web.url("/x.sif"))).sha256 == hashlib.sha256(sif).hexdigest()


def test_what_arrived_before_a_failure_is_gone_on_with(web: Web, prefix: Prefix, images: Images) -> None:
    """Another source, or a later run of the same: what is there is kept in the prefix, and not asked for again."""
    noise = Entry("opt/noise", random.Random(2).randbytes(20_000_000), mode=0o644)
    big = images.tiny("bigger", entries=(noise,)).read_bytes()

    def gone(file: Ranged, handler: Handler, asked: Asked) -> bool:
        late = file.span(asked)[0] >= 8 << 20
        if late:
            time.sleep(0.5)  # meanwhile the first piece arrives
        return late and says(404)(file, handler, asked)

    web.answers["/x.sif"] = file = Ranged(big, faults=[gone])
    with pytest.raises(FetchError, match="answered 404"):
        prefix.fetch(plan(web.url("/x.sif")))
    (partial,) = prefix.layout.partials.iterdir()
    assert sorted(path.name for path in partial.iterdir()) == ["image.sif", "image.sif.journal"]
    assert prefix.images() == []
    file.faults.clear()
    file.log.clear()
    assert prefix.fetch(plan(web.url("/x.sif"))).path.read_bytes() == big
    (start, _), *_ = (span for span in file.spans if span)
    assert 0 < start <= 8 << 20
    assert file.sent == len(big) - start
    assert not prefix.layout.partials.exists() or list(prefix.layout.partials.iterdir()) == []


def test_a_broken_promise_changes_nothing(web: Web, prefix: Prefix, sif: bytes) -> None:
    web.answers["/x.sif"] = answer(200, sif)
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan(web.url("/x.sif"), sha256="0" * 64))
    assert f"expected {'0' * 64}\n    got      {hashlib.sha256(sif).hexdigest()}" in caught.value.message
    assert "replaced at its source or damaged in transit" in caught.value.hint
    assert prefix.state() == before


def test_a_certificate_that_is_not_trusted_is_refused(
    start: Callable[[Path | None], Web], certificate: Path, prefix: Prefix, sif: bytes
) -> None:
    server = start(certificate)
    server.answers["/x.sif"] = answer(200, sif)
    error = refused(prefix, server.url("/x.sif"))
    assert "its certificate or its TLS cannot be trusted" in error.message
    assert "SSL_CERT_FILE" in error.hint
    assert server.asked == []


def test_a_redirect_is_followed(web: Web, prefix: Prefix, sif: bytes) -> None:
    web.answers["/old"] = answer(302, headers={"Location": "/new/x.sif"})
    web.answers["/new/x.sif"] = answer(307, headers={"Location": web.url("/x.sif", "127.0.0.1")})
    web.answers["/x.sif"] = answer(200, sif)
    artifact = prefix.fetch(plan(web.url("/old")))
    assert (artifact.size, artifact.source) == (len(sif), web.url("/old"))
    assert [path for path, _ in web.asked] == ["/old", "/new/x.sif", "/x.sif"]


def test_a_redirect_to_http_is_refused(
    web: Web, start: Callable[[Path | None], Web], prefix: Prefix, sif: bytes
) -> None:
    plain = start(None)
    plain.answers["/x.sif"] = answer(200, sif)
    web.answers["/x.sif"] = answer(301, headers={"Location": plain.url("/x.sif?secret=1")})
    error = refused(prefix, web.url("/x.sif"))
    assert f"redirects to {plain.url('/x.sif')}, which is not https" in error.message
    assert plain.asked == []


@pytest.mark.parametrize("location", ["", "file:///etc/passwd", "http://example.org/x.sif", "http://[", "ftp://x/y"])
def test_an_odd_redirect_is_refused(start: Callable[[Path | None], Web], prefix: Prefix, location: str) -> None:
    plain = start(None)
    plain.answers["/x.sif"] = answer(302, headers={"Location": location})
    assert " redirects " in refused(prefix, plain.url("/x.sif")).message


def test_a_redirect_in_a_circle_ends(web: Web, prefix: Prefix) -> None:
    web.answers["/x.sif"] = answer(302, headers={"Location": "/x.sif?again=1"})
    assert "more than 10 redirects" in refused(prefix, web.url("/x.sif")).message


def test_plain_http_from_this_machine_is_accepted(
    start: Callable[[Path | None], Web], prefix: Prefix, sif: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    plain = start(None)
    plain.answers["/x.sif"] = answer(200, sif)
    assert prefix.fetch(plan(plain.url("/x.sif"))).size == len(sif)


def test_credentials_come_from_netrc_and_stay_with_their_host(
    web: Web, prefix: Prefix, sif: bytes, own_home: Path
) -> None:
    netrc = own_home / ".netrc"
    netrc.write_text("machine localhost login me password secret\n")
    netrc.chmod(0o600)
    web.answers["/private"] = answer(302, headers={"Location": web.url("/x.sif", "127.0.0.1")})
    web.answers["/x.sif"] = answer(200, sif)
    prefix.fetch(plan(web.url("/private")))
    (_, first), (_, second) = web.asked
    assert first["authorization"] == "Basic bWU6c2VjcmV0"
    assert "authorization" not in second


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("machine localhost login me password s3crét\n".encode("latin-1"), "it is not UTF-8"),
        (b"machine localhost login me\n  passwrd s3cret\n", "line 2 is invalid"),
    ],
)
def test_a_netrc_that_cannot_be_read_is_told(web: Web, prefix: Prefix, own_home: Path, text: bytes, why: str) -> None:
    (own_home / ".netrc").write_bytes(text)
    (own_home / ".netrc").chmod(0o600)
    web.answers["/private"] = answer(401)
    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan(web.url("/private")))
    assert f"~/.netrc was not used: {why}" in caught.value.hint
    assert "s3cr" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("status", "headers", "advice"),
    [
        (401, {"WWW-Authenticate": "Basic"}, "~/.netrc"),
        (403, {}, "ask the owner for access"),
        (404, {}, "check whether the file has moved"),
        (410, {}, "the file was withdrawn"),
        (429, {"Retry-After": "777"}, "limits the request rate"),
        (429, {"Retry-After": "777"}, "retry in 777 seconds"),
        (500, {}, "the server has a problem"),
        (503, {"Retry-After": "0"}, "retry in 0 seconds"),
        (204, {}, "check the URL"),
        (418, {}, "check the URL"),
    ],
)
def test_an_answer_without_a_file_is_explained(
    web: Web, prefix: Prefix, status: int, headers: dict[str, str], advice: str
) -> None:
    web.answers["/x.sif"] = answer(status, b"" if status == 204 else b"<html>no</html>", headers)
    error = refused(prefix, web.url("/x.sif"))
    assert f"answered {status} " in error.message
    assert advice in error.hint


def test_a_page_is_no_sif(web: Web, prefix: Prefix) -> None:
    page = b"<!doctype html><html><head><title>Log\x1b[2J in</title></head></html>"
    web.answers["/x.sif"] = answer(200, page, {"Content-Type": "text/html"})
    error = refused(prefix, web.url("/x.sif"))
    assert "the server sent an HTML page ('Log\\x1b[2J in') instead of a SIF" in error.message
    assert "a login or a download page" in error.hint


@pytest.mark.parametrize(("body", "what"), [(b"", "an empty file"), (b"PK\x03\x04zip", "a zip file"), (b"x", "a text")])
def test_other_things_are_no_sif_either(web: Web, prefix: Prefix, body: bytes, what: str) -> None:
    web.answers["/x.sif"] = answer(200, body)
    assert f"the server sent {what}" in refused(prefix, web.url("/x.sif")).message


def test_a_truncated_file_is_refused(web: Web, prefix: Prefix, sif: bytes) -> None:
    web.answers["/x.sif"] = answer(200, sif[:-5000])
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(plan(web.url("/x.sif")))
    assert f"is truncated: {len(sif) - 5000} bytes" in caught.value.message
    assert prefix.state() == before


def test_a_short_body_is_refused(web: Web, prefix: Prefix, sif: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(sif)}\r\n\r\n".encode()
    web.answers["/x.sif"] = raw(head, sif[: 3 << 20])
    error = refused(prefix, web.url("/x.sif"))
    assert error.message == f"the connection ended at byte {3 << 20} of {len(sif)} bytes (4 attempts)"


def test_what_comes_after_the_announced_length_is_not_taken(web: Web, prefix: Prefix, sif: bytes) -> None:
    web.answers["/x.sif"] = raw(f"HTTP/1.1 200 OK\r\nContent-Length: {len(sif)}\r\n\r\n".encode(), sif, b"more")
    assert prefix.fetch(plan(web.url("/x.sif"))).path.read_bytes() == sif


def test_a_longer_body_than_announced_is_refused(web: Web, prefix: Prefix, sif: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\nTransfer-Encoding: chunked\r\n\r\n"
    web.answers["/x.sif"] = raw(head, f"{len(sif):x}\r\n".encode(), sif, b"\r\n0\r\n\r\n")
    assert "the server sent more than the 999 bytes" in refused(prefix, web.url("/x.sif")).message


def test_a_chunk_that_breaks_off_is_refused(web: Web, prefix: Prefix, sif: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    web.answers["/x.sif"] = raw(head, f"{len(sif):x}\r\n".encode(), sif[: 2 << 20])
    assert "closed the connection" in refused(prefix, web.url("/x.sif")).message


def test_an_answer_that_is_no_http_is_refused(web: Web, prefix: Prefix) -> None:
    web.answers["/x.sif"] = raw(b"\0\1\2 hello\r\n\r\n")
    error = refused(prefix, web.url("/x.sif"))
    assert "cannot be reached or closed the connection" in error.message
    assert error.message.isprintable()


@pytest.mark.parametrize("sent", ["nothing", "half"])
def test_a_server_that_hangs_is_given_up(web: Web, prefix: Prefix, sif: bytes, sent: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(sif)}\r\n\r\n".encode()
    web.answers["/x.sif"] = raw(*((head, sif[: 3 << 20]) if sent == "half" else ()), hang=True)
    assert "stopped responding" in refused(prefix, web.url("/x.sif")).message


def test_a_server_that_is_not_there_is_told(prefix: Prefix) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        error = refused(prefix, f"https://{address}/x.sif")
    assert error.message == f"{address} cannot be reached or closed the connection: Connection refused (2 attempts)"
    assert "network" in error.hint


def test_a_name_that_does_not_exist_is_told(prefix: Prefix) -> None:
    assert "no-such-host.invalid cannot be reached" in refused(prefix, "https://no-such-host.invalid/x.sif").message


def test_no_space_is_told_before_anything_is_written(web: Web, tmp_path: Path, sif: bytes) -> None:
    web.answers["/x.sif"] = answer(200, sif)

    def fetch() -> None:
        prefix = Prefix(tmp_path / "disk" / "prefix")
        before = prefix.state()
        with pytest.raises(NoSpaceError) as caught:
            prefix.fetch(plan(web.url("/x.sif")))
        assert "not enough space in" in caught.value.message
        assert prefix.state() == before

    call_on_small_disk(tmp_path / "disk", 4 << 20, fetch)


def test_no_space_for_what_the_header_describes_leaves_nothing(web: Web, tmp_path: Path, sif: bytes) -> None:
    web.answers["/x.sif"] = raw(b"HTTP/1.1 200 OK\r\n\r\n", sif)

    def fetch() -> None:
        prefix = Prefix(tmp_path / "disk" / "prefix")
        before = prefix.state()
        with pytest.raises(NoSpaceError) as caught:
            prefix.fetch(plan(web.url("/x.sif"), web.url("/x.sif")))
        assert "not enough space in" in caught.value.message
        assert prefix.state() == before
        free = os.statvfs(tmp_path / "disk")
        assert free.f_bavail * free.f_frsize > 3 << 20

    call_on_small_disk(tmp_path / "disk", 4 << 20, fetch)
    assert len(web.asked) == 1
