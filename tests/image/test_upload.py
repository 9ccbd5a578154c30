"""Blobs that go to a registry which takes less of each part than it is sent, and says so in every way it may."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat

import pytest

from sifmod.errors import FetchError
from sifmod.image.oci.manifest import Descriptor
from sifmod.image.registry import upload as uploads
from sifmod.image.registry.http import Http
from sifmod.image.registry.mirrors import Place
from sifmod.image.registry.network import RetryPolicy
from sifmod.image.registry.registry import Repository
from sifmod.image.registry.upload import Blob, upload
from support.misbehaving import digest

CONTENT = bytes(range(256)) * 400
BLOBS = "/v2/group/name/blobs/"
FORMS = {"plain": "0-{}", "with unit": "bytes=0-{}"}


class Sparing(ThreadingHTTPServer):
    """Takes at most `most` bytes of each part; `form` is how its Range says how far it is.

    With `lost` the answer to the part with this number never comes, and whoever asks is told the position.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, most: int, form: str = "0-{}", lost: int | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.most, self.form, self.lost = most, form, lost
        self.has = bytearray()
        self.blobs: dict[str, bytes] = {}
        self.parts = 0
        self.received = 0
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that this server has closed itself."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Sparing

    def say(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Location", f"{BLOBS}uploads/1")
        # as Docker's registry: 0-0 where it has nothing
        self.send_header("Range", self.server.form.format(max(0, len(self.server.has) - 1)))
        self.end_headers()

    def do_HEAD(self) -> None:
        self.say(200 if self.path.removeprefix(BLOBS) in self.server.blobs else 404)

    def do_GET(self) -> None:
        self.say(204)

    def do_POST(self) -> None:
        self.server.has.clear()
        self.say(202)

    def do_PATCH(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        server.received += len(data)
        begins = re.fullmatch(r"(\d+)-(\d+)", self.headers["Content-Range"])
        assert begins is not None
        if (int(begins[1]), int(begins[2]) + 1 - int(begins[1])) != (len(server.has), len(data)):
            self.say(416)
            return
        server.has += data[: server.most]
        server.parts += 1
        if server.parts - 1 == server.lost:
            self.close_connection = True
            return
        self.say(202)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        name = self.path.partition("digest=")[2].replace("%3A", ":")
        if digest(bytes(self.server.has)) == name:
            self.server.blobs[name] = bytes(self.server.has)
        self.say(201 if name in self.server.blobs else 400)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def servers() -> Iterator[list[Sparing]]:
    made: list[Sparing] = []
    yield made
    for one in made:
        one.shutdown()
        one.server_close()


def sent(server: Sparing, reports: list[int], content: bytes = CONTENT) -> int:
    place = Place(f"127.0.0.1:{server.server_address[1]}", "group/name", named=True)
    wanted = Descriptor("application/octet-stream", digest(content), len(content))
    blob = Blob(wanted, lambda start: iter((content[start : start + 70_000], content[start + 70_000 :])))
    return upload(Repository(Http(), place, (), "pull,push"), blob, reports.append)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("most", [2, len(CONTENT) // 2, len(CONTENT) - 1, len(CONTENT)])
def test_what_a_registry_did_not_take_is_sent_again(servers: list[Sparing], most: int, form: str) -> None:
    """From just where it says that it is: nothing is left out, and what is reported is what it has."""
    servers.append(server := Sparing(max(most, len(CONTENT) // 50), form) if most == 2 else Sparing(most, form))
    reports: list[int] = []
    assert sent(server, reports) == server.received
    assert server.blobs == {digest(CONTENT): CONTENT}
    positions = [*range(server.most, len(CONTENT), server.most), len(CONTENT)]
    assert reports == positions
    assert server.parts == len(positions)


def test_no_later_part_follows_one_that_was_not_taken_whole(servers: list[Sparing]) -> None:
    """A blob of several parts, each of which begins where the registry is."""
    content = CONTENT * 200
    servers.append(server := Sparing(len(content) // 3 + 1))
    reports: list[int] = []
    assert sent(server, reports, content) == server.received
    assert server.blobs == {digest(content): content}
    assert reports == [server.most, 2 * server.most, len(content)]


def test_a_registry_that_takes_two_bytes_of_each_part_is_given_up(
    servers: list[Sparing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_PATIENCE", RetryPolicy(attempts=3, delay=0.05))
    content = CONTENT * 200
    servers.append(server := Sparing(2))
    with pytest.raises(FetchError, match=r"accepted 2 of \d+ bytes \(3 attempts\)"):
        sent(server, [], content)
    assert server.received < 6 * len(content)  # it went on, for years


@pytest.mark.parametrize("lost", [0, 1])
def test_where_an_answer_is_lost_it_goes_on_where_the_registry_is(servers: list[Sparing], lost: int) -> None:
    """Which has taken a part of what was sent, and not what was meant to follow."""
    servers.append(server := Sparing(len(CONTENT) // 3, lost=lost))
    reports: list[int] = []
    assert sent(server, reports) == server.received
    assert server.blobs == {digest(CONTENT): CONTENT}
    assert reports[-1] == len(CONTENT)
    assert sorted(reports) == reports
    assert server.parts == 4


def test_no_more_is_sent_than_the_blob_has(servers: list[Sparing]) -> None:
    """As from the registry of another image's layer that never ends."""
    servers.append(Sparing(len(CONTENT)))
    place = Place(f"127.0.0.1:{servers[0].server_address[1]}", "group/name", named=True)
    wanted = Descriptor("application/octet-stream", digest(CONTENT), len(CONTENT))
    with pytest.raises(FetchError, match=f"has more than {len(CONTENT)} bytes"):
        upload(Repository(Http(), place, (), "pull,push"), Blob(wanted, lambda _start: repeat(CONTENT)), print)
    assert servers[0].received <= len(CONTENT)
