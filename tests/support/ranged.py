"""A file on the tests' web server that is given in ranges, and keeps a log of what was asked for and what was sent."""

import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from support.web import Handler

Span = tuple[int, int]


@dataclass
class Asked:
    """One request: the range (None without one), If-Range, and how many bytes were sent."""

    span: Span | None
    if_range: str
    sent: int = 0


Fault = Callable[["Ranged", Handler, Asked], bool]
"""May answer a request in its own way; then it gives True."""


@dataclass
class Ranged:
    """An Answer. `faults` are asked first, in order; each may answer instead."""

    content: bytes
    etag: str = '"one"'
    faults: list[Fault] = field(default_factory=list)
    log: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, handler: Handler) -> None:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        span = (int(found[1]), int(found[2]) + 1) if found else None
        asked = Asked(span, handler.headers.get("If-Range", ""))
        with self.lock:
            self.log.append(asked)
        if not any(fault(self, handler, asked) for fault in tuple(self.faults)):
            self.answer(handler, asked)

    def answer(self, handler: Handler, asked: Asked, limit: int | None = None) -> None:
        """What a good server says; with `limit` a body that ends after so many bytes."""
        start, end = self.span(asked)
        ranged = asked.span is not None and asked.if_range in ("", self.etag)
        if not ranged:
            start, end = 0, len(self.content)
        elif start >= len(self.content):
            self.head(handler, 416, 0, {"Content-Range": f"bytes */{len(self.content)}"})
            return
        extra = {"Content-Range": f"bytes {start}-{end - 1}/{len(self.content)}"} if ranged else {}
        self.head(handler, 206 if ranged else 200, end - start, extra)
        self.send(handler, asked, self.content[start:end][:limit])

    def span(self, asked: Asked) -> Span:
        start, end = asked.span or (0, len(self.content))
        return start, min(end, len(self.content))

    def head(self, handler: Handler, status: int, length: int | None, extra: dict[str, str]) -> None:
        handler.send_response(status)
        headers = {"ETag": self.etag, **({"Content-Length": str(length)} if length is not None else {}), **extra}
        for name, value in headers.items():
            if value:
                handler.send_header(name, value)
        handler.end_headers()

    def send(self, handler: Handler, asked: Asked, data: bytes) -> None:
        view = memoryview(data)
        while view:
            handler.wfile.write(view[: 1 << 16])
            asked.sent += len(view[: 1 << 16])
            view = view[1 << 16 :]

    @property
    def spans(self) -> list[Span | None]:
        """What was asked for, sorted."""
        with self.lock:
            return sorted((asked.span for asked in self.log), key=lambda span: span or (-1, -1))

    @property
    def sent(self) -> int:
        """Bytes of bodies in all."""
        with self.lock:
            return sum(asked.sent for asked in self.log)


def once(fault: Fault, times: int = 1) -> Fault:
    """`fault`, the first so many times that it has something to say."""
    left = [times]
    lock = threading.Lock()

    def limited(file: Ranged, handler: Handler, asked: Asked) -> bool:
        with lock:
            if not left[0]:
                return False
            left[0] -= 1
        if fault(file, handler, asked):
            return True
        with lock:
            left[0] += 1
        return False

    return limited


def reset(handler: Handler) -> None:
    """End the connection as a crash or a firewall does: with an RST."""
    handler.wfile.flush()
    connection = handler.connection
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket(fileno=connection.detach()).close()


def resets_at(offset: int) -> Fault:
    """The request that covers this byte gets everything before it, and then a reset."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        start, end = file.span(asked)
        if not start <= offset < end:
            return False
        file.answer(handler, asked, offset - start)
        reset(handler)
        return True

    return once(fault)


def says(status: int, headers: dict[str, str] | None = None, at: int = 0) -> Fault:
    """An answer without a file to every request from byte `at` on."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        if file.span(asked)[0] < at:
            return False
        file.head(handler, status, 0, headers or {})
        return True

    return fault


def hangs(after: int) -> Fault:
    """So many bytes of the answer, and then silence."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        file.answer(handler, asked, after)
        handler.wfile.flush()
        handler.server.ended.wait(60)
        return True

    return fault


def ignores_ranges(file: Ranged, handler: Handler, asked: Asked) -> bool:
    """The whole file, whatever is asked for."""
    file.head(handler, 200, len(file.content), {})
    file.send(handler, asked, file.content)
    return True


def other_headers(**headers: str) -> Fault:
    """The right bytes under these headers (`_` for `-`) instead of the right ones."""

    def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
        start, end = file.span(asked)
        right = {"Content-Range": f"bytes {start}-{end - 1}/{len(file.content)}", "Content-Length": str(end - start)}
        wrong = {name.replace("_", "-"): value for name, value in headers.items()}
        file.head(handler, 206, None, {**right, **wrong})
        file.send(handler, asked, file.content[start:end])
        return True

    return fault
