"""What may stand between a client and a registry: it counts, ends connections, and refuses what it is told to."""

import threading
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_PIECE = 1 << 16


class Between(ThreadingHTTPServer):
    """Passes on to the registry at `address`. Start with `start`, end with `stop`.

    `received` are the bytes of bodies so far. Where they come to the first of `cuts` the connection ends. What had
    come of that request is kept back, or passed on where `streams`. A body of more than `largest` bytes is refused.
    `refuse` gives a status for a method and a path, 0 to pass it on. `lose` are methods whose next answer is lost.
    Where `whole` it knows no ranges, and gives all of what a part is asked of.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, *, streams: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = address
        self.streams = streams
        self.received = 0
        self.cuts: list[int] = []
        self.largest = 1 << 62
        self.refuse: Callable[[str, str], int] = lambda _method, _path: 0
        self.lose: list[str] = []
        self.asked: list[tuple[str, str, str]] = []  # method, path, Authorization
        self.whole = False
        self.elsewhere = ""  # the host that uploads are sent to
        self.address = f"127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no matter."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Between

    def pass_on(self) -> None:
        server = self.server
        server.asked.append((self.command, self.path, self.headers.get("Authorization", "")))
        length = int(self.headers.get("Content-Length", "0"))
        body, cut = self._body(length)
        status = 413 if length > server.largest else server.refuse(self.command, self.path.partition("?")[0])
        if (cut and not server.streams) or self._answered(status):
            self.close_connection = cut
            return
        upstream = HTTPConnection(server.behind, timeout=60)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if not (server.whole and name == "Range"):
                upstream.putheader(name, value)
        upstream.endheaders()
        upstream.send(body)
        if cut:
            upstream.close()
            self.close_connection = True
            return
        answer = upstream.getresponse()
        content = answer.read()
        if self.command in server.lose:
            server.lose.remove(self.command)
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            moved = value.replace(server.address, server.elsewhere or server.address)
            self.send_header(name, moved if name == "Location" else value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_GET(self) -> None:
        self.pass_on()

    def do_HEAD(self) -> None:
        self.pass_on()

    def do_POST(self) -> None:
        self.pass_on()

    def do_PUT(self) -> None:
        self.pass_on()

    def do_PATCH(self) -> None:
        self.pass_on()

    def _body(self, length: int) -> tuple[bytes, bool]:
        """What came, and whether the connection is to end."""
        server, body = self.server, bytearray()
        while len(body) < length:
            most = min(_PIECE, length - len(body), *(cut - server.received for cut in server.cuts[:1]))
            piece = self.rfile.read(most)
            body += piece
            server.received += len(piece)
            if server.cuts and server.received >= server.cuts[0]:
                server.cuts.pop(0)
                return bytes(body), True
        return bytes(body), False

    def _answered(self, status: int) -> bool:
        if status:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
        return bool(status)

    def log_message(self, *args: object) -> None:
        """Say nothing."""
