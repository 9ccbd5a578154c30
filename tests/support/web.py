"""A web server on the loopback address, with or without TLS, that also misbehaves in every way asked for."""

import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from support.command import run

NAMES = "subjectAltName=DNS:localhost,DNS:registry.test,IP:127.0.0.1"


class Handler(BaseHTTPRequestHandler):
    """One request; an answer writes to `wfile`, raw where it wants to be wrong."""

    protocol_version = "HTTP/1.1"
    server: "Web"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append((path, {name.lower(): value for name, value in self.headers.items()}))
        self.close_connection = True
        self.server.answers.get(path, answer(404))(self)

    def do_HEAD(self) -> None:
        """As for GET; the connection ends with what belongs to the body."""
        self.do_GET()

    def do_POST(self) -> None:
        """As for GET, with what was posted after a `?`."""
        self.path += "?" + self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.do_GET()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


Answer = Callable[[Handler], None]


class Web(ThreadingHTTPServer):
    """Start with `start`, end with `stop`; `answers` by path, `asked` are the requests so far with their headers.

    With `client` only who shows that certificate is answered.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, certificate: Path | None = None, client: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.scheme = "http" if certificate is None else "https"
        self.ended = threading.Event()
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            if client is not None:
                context.load_verify_locations(client)
                context.verify_mode = ssl.CERT_REQUIRED
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def url(self, path: str, host: str = "localhost") -> str:
        return f"{self.scheme}://{host}:{self.server_address[1]}{path}"

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.ended.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what some tests are about."""


def answer(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
    """A correct answer."""

    def send(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {
            "Content-Length": str(len(body)),
            **({"Connection": "close"} if handler.close_connection else {}),
            **(headers or {}),
        }.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return send


def raw(*parts: bytes, hang: bool = False) -> Answer:
    """Exactly these bytes; with `hang` then nothing, until the server is stopped."""

    def send(handler: Handler) -> None:
        for part in parts:
            handler.wfile.write(part)
        handler.wfile.flush()
        if hang:
            handler.server.ended.wait(60)

    return send


def make_certificate(directory: Path) -> Path:
    """A new self-signed certificate with its key, in one file, for localhost, 127.0.0.1 and registry.test."""
    key, certificate, both = (directory / name for name in ("key.pem", "certificate.pem", "both.pem"))
    subject = ("-subj", "/CN=localhost", "-addext", NAMES, "-days", "2")
    files = ("-keyout", key, "-out", certificate)
    new = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    run(("openssl", "req", *new, *subject, *files)).ok()
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both
