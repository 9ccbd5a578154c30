"""Random layer stacks: merged, they are what applying them one by one to a directory gives."""

import os
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, example, given, settings

from sifmod.errors import ImageError
from support.layers import Entry, Memory, Seen, directory, hard_link, merged, packed, seen, symlink, tar
from support.one_by_one import LoopError, NothingThereError, OneByOne

NAMES = ("a", "b", "c")
TARGETS = ("a", "b", "c/a", "/a", "/b/c", "../a", "..", "../../b/a", "c/../b", "/", "missing/x", ".")
KINDS = (tarfile.REGTYPE, tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE)
AS_ROOT = os.geteuid() == 0

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
spelled = st.tuples(st.sampled_from(("", "", "", "./", "/", "c/../", "../")), paths).map("".join)
whiteouts = st.tuples(paths, st.booleans()).map(lambda drawn: Entry(whiteout(*drawn)))
roots = st.sampled_from(("./", ".", "/")).map(directory)


def whiteout(path: str, opaque: bool) -> str:
    head, slash, name = path.rpartition("/")
    return f"{path}/.wh..wh..opq" if opaque else f"{head}{slash}.wh.{name}"


def open_to_owner(kind: bytes) -> int:
    """Bits without which a user could not read their own directories back."""
    return 0o700 if kind == tarfile.DIRTYPE and not AS_ROOT else 0


@st.composite
def entries(draw: st.DrawFn, symlinks: bool = True) -> Entry:
    kind = draw(st.sampled_from(KINDS if symlinks else KINDS[:4]))
    number = draw(st.integers(0, 7))
    entry = Entry(
        draw(spelled),
        kind,
        content=b"%d" % number * number if kind == tarfile.REGTYPE else b"",
        mode=(0o644, 0o755, 0o4755, 0o2711, 0o600, 0o700, 0o555, 0o1777)[number] | open_to_owner(kind),
        uid=number * 1000 if AS_ROOT else 0,
        gid=number if AS_ROOT else 0,
        mtime=1_400_000_000 + number,
    )
    if kind == tarfile.SYMTYPE:
        return replace(entry, target=draw(st.sampled_from(TARGETS)), mode=0o777)
    return replace(entry, target=draw(paths)) if kind == tarfile.LNKTYPE else entry


def stacks(symlinks: bool = True) -> st.SearchStrategy[list[list[Entry]]]:
    anything = st.one_of(entries(symlinks), entries(symlinks), entries(symlinks), whiteouts, roots)
    return st.lists(st.lists(anything, max_size=7), min_size=1, max_size=4)


def applied(stack: Sequence[Sequence[Entry]], *, tolerant: bool) -> dict[bytes, Seen]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as base:
        root = OneByOne(Path(base, "root"), tolerant=tolerant)
        Path(base, "root").mkdir()
        for layer in stack:
            root.layer(layer)
        return without_owners(root.finish())


def without_owners(tree: dict[bytes, Seen]) -> dict[bytes, Seen]:
    """Owners as root alone can give them; a directory's attributes are no part of its links."""
    return tree if AS_ROOT else {path: replace(each, owner=(0, 0)) for path, each in tree.items()}


def check(stack: Sequence[Sequence[Entry]]) -> None:
    data = Memory()
    blobs = [packed(tar(layer), ("gzip", "zstd", "plain")[number % 3]) for number, layer in enumerate(stack)]
    refused = None
    try:
        tree = seen(merged(blobs, data).root, data)
    except ImageError as error:
        refused = error
    try:
        expected = applied(stack, tolerant=False)
    except LoopError:
        assert refused is not None
        return
    except NothingThereError:
        if refused is not None:
            return
        expected = applied(stack, tolerant=True)  # a link that upper layers hide, or their own, is not followed
    assert refused is None, refused
    assert tree == expected


@given(stacks())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@example([[symlink("a", "b"), directory("b")], [Entry("a/c", content=b"x")]])
@example([[Entry("a", content=b"x")], [hard_link("b", "a")]])
def test_layers_merged_are_layers_applied_one_by_one(stack: list[list[Entry]]) -> None:
    check(stack)


@given(stacks(symlinks=False))
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_without_links_too(stack: list[list[Entry]]) -> None:
    check(stack)
