"""What a server may answer in place of the right bytes."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.ranged import Asked, Fault, Ranged, reset
from support.web import Handler


def head(handler: Handler, status: int, body: bytes, **headers: str) -> None:
    """An answer whose headers may say anything; an empty one is left out."""
    said = {"Content-Length": str(len(body)), "ETag": '"one"', **{n.replace("_", "-"): v for n, v in headers.items()}}
    handler.send_response(status)
    for name, value in said.items():
        if value:
            handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def piece(file: Ranged, asked: Asked) -> tuple[int, bytes]:
    start, end = file.span(asked)
    return start, file.content[start:end]


def faults(source: random.Random) -> dict[str, Fault]:
    """Each answers in its own way, in place of the right one."""
    number = source.randrange(1, 1 << 30)

    def by(answer: Callable[[Ranged, Handler, Asked], object]) -> Fault:
        def fault(file: Ranged, handler: Handler, asked: Asked) -> bool:
            answer(file, handler, asked)
            return True

        return fault

    def all_but(file: Ranged) -> int:
        return number % max(1, len(file.content))

    def flipped(file: Ranged, handler: Handler, asked: Asked) -> None:
        start, data = piece(file, asked)
        changed = bytearray(data)
        if changed:
            changed[number % len(changed)] ^= 1
        total = {"Content_Range": f"bytes {start}-{start + len(data) - 1}/{len(file.content)}"} if asked.span else {}
        head(handler, 206 if asked.span else 200, bytes(changed), **total)

    def drips(file: Ranged, handler: Handler, _asked: Asked) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(file.content)))
        handler.end_headers()
        for at in range(0, len(file.content), 10):
            handler.wfile.write(file.content[at : at + 10])
            handler.wfile.flush()
            if handler.server.ended.wait(0.05):
                return

    def resets(file: Ranged, handler: Handler, asked: Asked) -> None:
        file.answer(handler, asked, all_but(file))
        reset(handler)

    def garbage(_file: Ranged, handler: Handler, _asked: Asked) -> None:
        handler.wfile.write(random.Random(number).randbytes(300))

    def other_range(file: Ranged, handler: Handler, asked: Asked) -> None:
        start, data = piece(file, asked)
        said = f"bytes {start + 1}-{start + len(data)}/{len(file.content)}"
        head(handler, 206, data, Content_Range=said)

    def without_range(file: Ranged, handler: Handler, asked: Asked) -> None:
        head(handler, 206, piece(file, asked)[1])

    def changing(file: Ranged, handler: Handler, asked: Asked) -> None:
        start, data = piece(file, asked)
        said = {"Content_Range": f"bytes {start}-{start + len(data) - 1}/{len(file.content)}"} if asked.span else {}
        head(handler, 206 if asked.span else 200, data, ETag=f'"{random.random()}"', **said)

    def length(by_how_much: int) -> Fault:
        return by(lambda f, h, _a: head(h, 200, f.content, Content_Length=str(max(0, len(f.content) + by_how_much))))

    def chunked(_file: Ranged, handler: Handler, _asked: Asked) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"400\r\nshort")

    return {
        "a circle of redirects": by(lambda _f, h, _a: head(h, 302, b"", Location=h.path)),
        "a redirect to nothing": by(lambda _f, h, _a: head(h, 307, b"", Location="http://127.0.0.1:9/x")),
        "a redirect to a file": by(lambda _f, h, _a: head(h, 302, b"", Location="file:///etc/passwd")),
        "cut": by(lambda f, h, a: f.answer(h, a, all_but(f))),
        "reset": by(resets),
        "longer than it says": length(-(1 + number % 5000)),
        "shorter than it says": length(1 + number % 5000),
        "one byte is another": by(flipped),
        "empty": by(lambda _f, h, _a: head(h, 200, b"")),
        "no content": by(lambda _f, h, _a: head(h, 204, b"", Content_Length="")),
        "a page": by(lambda _f, h, _a: head(h, 200, b"<html>log in</html>", Content_Type="text/html")),
        "not found": by(lambda _f, h, _a: head(h, 404, b"")),
        "forbidden": by(lambda _f, h, _a: head(h, 403, b"")),
        "who are you": by(lambda _f, h, _a: head(h, 401, b"")),
        "too many requests": by(lambda _f, h, _a: head(h, 429, b"", Retry_After="0")),
        "come back tomorrow": by(lambda _f, h, _a: head(h, 429, b"", Retry_After="86400")),
        "unavailable": by(lambda _f, h, _a: head(h, 503, b"", Retry_After="never")),
        "broken": by(lambda _f, h, _a: head(h, 500, b"\x1b[31mno")),
        "no range": by(lambda f, h, _a: head(h, 200, f.content)),
        "another range": by(other_range),
        "a range without its place": by(without_range),
        "no such range": by(lambda _f, h, _a: head(h, 416, b"", Content_Range="bytes */3")),
        "another ETag each time": by(changing),
        "slow": by(drips),
        "silent": by(lambda _f, h, _a: h.server.ended.wait(5)),
        "no HTTP": by(garbage),
        "a chunk that breaks off": by(chunked),
        "no gzip that says it is": by(lambda f, h, _a: head(h, 200, f.content, Content_Encoding="gzip")),
    }
