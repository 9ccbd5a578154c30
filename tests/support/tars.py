"""Tars by GNU tar, and headers by hand, good and bad."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sifmod.errors import ImageError
from support.command import run
from support.layers import Memory, Seen, Stored, merged, seen


def read(*tars: bytes) -> dict[bytes, Seen]:
    data = Memory()
    return seen(merged([Stored(each) for each in tars], data).root, data)


def refused(data: bytes) -> str:
    """The message, which names the layer."""
    blob = Stored(data)
    with pytest.raises(ImageError) as caught:
        merged([blob])
    assert blob.digest in caught.value.message
    return caught.value.message


def gnu_tar(directory: Path, *options: str) -> bytes:
    archive = directory.parent / "archive.tar"
    run(("tar", "-C", directory, "--sort=name", *options, "-cf", archive, ".")).ok()
    return archive.read_bytes()


def header(**fields: bytes) -> bytes:
    """A ustar header of a file `f` with some fields as given, and the right checksum."""
    places = {"name": (0, 100), "mode": (100, 8), "uid": (108, 8), "gid": (116, 8), "size": (124, 12)}
    places |= {"mtime": (136, 12), "kind": (156, 1), "target": (157, 100), "magic": (257, 8), "prefix": (345, 155)}
    places |= {"major": (329, 8), "minor": (337, 8), "star": (508, 4)}
    defaults = {"name": b"f", "mode": b"0000644\0", "size": b"00000000000\0", "kind": b"0", "magic": b"ustar\x0000"}
    block = bytearray(512)
    for name, value in {**defaults, **fields}.items():
        offset, length = places[name]
        block[offset : offset + len(value)] = value
        assert len(value) <= length
    return summed(block)


def summed(block: bytearray) -> bytes:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def records(values: Mapping[str, str | bytes], kind: bytes = b"x") -> bytes:
    """A PAX header by hand."""
    text = b""
    for key, value in values.items():
        body = b" " + key.encode() + b"=" + (value.encode() if isinstance(value, str) else value) + b"\n"
        length = len(body)
        while length != len(body) + len(str(length)):
            length = len(body) + len(str(length))
        text += str(length).encode() + body
    return extended(text, kind)


def extended(data: bytes, kind: bytes) -> bytes:
    return header(kind=kind, name=b"header", size=b"%011o\0" % len(data)) + padded(data)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)
