"""An index of packages on this machine, as PEP 503 has it, that keeps what it was asked for."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

from packaging.utils import canonicalize_name


@dataclass
class Index:
    """It has the wheels of a directory, as they are when they are asked for; `asked`: every path of a request.

    With `digests` it answers in JSON (PEP 691), and says that each file has these.
    """

    wheels: Path
    port: int = 0
    asked: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/simple/"

    def answer(self, path: str) -> bytes | None:
        self.asked.append(path)
        _, kind, *rest = unquote(path).split("/")
        if kind == "files" and (file := self.wheels / rest[0]).is_file():
            return file.read_bytes()
        if self.digests:
            found = [
                {"filename": file.name, "url": f"/files/{file.name}", "hashes": self.digests}
                for file in sorted(self.wheels.glob("*.whl"))
            ]
            return json.dumps({"meta": {"api-version": "1.0"}, "name": rest[0], "files": found}).encode()
        links = [
            f'<a href="/files/{file.name}#sha256={hashlib.sha256(file.read_bytes()).hexdigest()}">{file.name}</a>\n'
            for file in sorted(self.wheels.glob("*.whl"))
            if kind == "simple" and canonicalize_name(file.name.split("-")[0]) == rest[0]
        ]
        return "".join(("<!DOCTYPE html><html><body>\n", *links, "</body></html>\n")).encode() if links else None


@contextmanager
def serving(wheels: Path) -> Iterator[Index]:
    """Serve these wheels on a port of the loopback."""
    index = Index(wheels)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = index.answer(self.path)
            self.send_response(404 if content is None else 200)
            page = "application/vnd.pypi.simple.v1+json" if index.digests else "text/html"
            self.send_header("Content-Type", page if "/simple/" in self.path else "application/octet-stream")
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content or b"")

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        index.port = server.server_address[1]
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield index
        finally:
            server.shutdown()
            thread.join()
