"""Credential helpers: docker's programs that know the logins of registries.

https://github.com/docker/docker-credential-helpers. A helper is the user's, but what it prints may be anything: it is
read up to a limit of bytes and of time.
"""

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, NamedTuple

from sifmod.image.oci.content import plain

_PATIENCE = 60.0  # seconds
_LARGEST = 1 << 20  # bytes of each of its outputs; a login has some hundred
_PART = 1 << 16


class HelperError(Exception):
    """A helper cannot be used; the text says why, behind its name."""


class _Answer(NamedTuple):
    code: int
    output: bytes
    errors: bytes


def ask(program: str, key: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The user name and the secret that a helper keeps under `key`; None if it keeps none. Raises HelperError."""
    try:
        answer = _run(program, key, environ)
    except OSError as error:
        raise HelperError(f"could not be run: {error.strerror}") from error
    if answer.code:
        if b"credentials not found" in answer.output + answer.errors:
            return None
        said = plain(answer.errors.decode("utf-8", "replace"))  # what it prints on its output may be a secret
        raise HelperError(f"failed{f': {said}' if said else ''}")
    try:
        found = json.loads(answer.output)
        return str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HelperError("gave an invalid login") from error


def _run(program: str, key: str, environ: Mapping[str, str]) -> _Answer:
    pipe, end = subprocess.PIPE, time.monotonic() + _PATIENCE
    with subprocess.Popen((program, "get"), stdin=pipe, stdout=pipe, stderr=pipe, env=dict(environ)) as process:
        try:
            if process.stdin is None or process.stdout is None or process.stderr is None:
                raise HelperError("could not be run")
            with suppress(BrokenPipeError):  # it need not read the key
                process.stdin.write(key.encode())
                process.stdin.close()
            output, errors = _read((process.stdout, process.stderr), end)
            return _Answer(process.wait(max(0.0, end - time.monotonic())), output, errors)
        except subprocess.TimeoutExpired as error:
            raise HelperError("gave no answer") from error
        finally:
            process.kill()  # which does nothing once it has ended


def _read(streams: tuple[IO[bytes], IO[bytes]], end: float) -> tuple[bytes, bytes]:
    found = {stream.fileno(): bytearray() for stream in streams}
    with selectors.DefaultSelector() as waiting:
        for stream in streams:
            waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map():
            left = end - time.monotonic()
            if left <= 0 or not (ready := waiting.select(left)):
                raise HelperError("gave no answer")
            for key, _ in ready:
                if not (data := os.read(key.fd, _PART)):
                    waiting.unregister(key.fileobj)
                found[key.fd] += data
                if len(found[key.fd]) > _LARGEST:
                    raise HelperError(f"wrote more than {_LARGEST} bytes, and was stopped")
    output, errors = found.values()
    return bytes(output), bytes(errors)
