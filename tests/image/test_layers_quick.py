"""Layers that merge by their names, and those whose links lead elsewhere: the same rules hold."""

import pytest
from test_layers_merge import OPAQUE, file, stack, whiteout

from support.layers import Entry, directory, hard_link, symlink

Stack = tuple[list[Entry], ...]

# the lowest layer first, and what there is in the end
QUICK: dict[str, tuple[Stack, str]] = {
    "a removed directory": (
        ([directory("d"), file("d/x"), file("d/e/y")], [whiteout(".wh.d")]),
        "",
    ),
    "a directory that is made again": (
        ([directory("d"), file("d/x"), file("d/e/y")], [whiteout(".wh.d"), file("d/new")]),
        "d d/new",
    ),
    "made again over two layers": (
        ([file("d/e/low")], [file("d/x"), file("d/e/y")], [whiteout(".wh.d"), file("d/e/new")]),
        "d d/e d/e/new",
    ),
    "an opaque directory over two layers": (
        ([file("d/e/low")], [file("d/x")], [file("d/new"), whiteout(f"d/{OPAQUE}")]),
        "d d/new",
    ),
    "an opaque directory between": (
        ([file("d/e/low")], [file("d/x"), whiteout(f"d/{OPAQUE}")], [file("d/new")]),
        "d d/new d/x",
    ),
    "an opaque root": (([file("a")], [whiteout(OPAQUE), file("b")]), "b"),
    "a file over a directory": (([file("d/x"), file("d/y/z")], [file("d")]), "d"),
    "a directory over a file": (([file("d")], [file("d/x")]), "d d/x"),
    "a directory over a file over a directory": (([file("d/low")], [file("d")], [file("d/x")]), "d d/x"),
    "a file and a directory in a layer": (([file("d")], [file("d"), directory("d"), file("d/x")]), "d d/x"),
    "a directory and a file in a layer": (([file("d/low")], [directory("d"), file("d/x"), file("d")]), "d"),
    "whiteouts below whiteouts": (
        ([file("a/b/c"), file("a/k")], [whiteout("a/b/.wh.c"), whiteout("a/.wh.b")], [whiteout("a/b/.wh.x")]),
        "a a/k",
    ),
    "names that come twice": (([file("a", b"1"), file("a", b"2")], [file("b"), file("b")]), "a b"),
    "links within layers": (
        ([file("a"), hard_link("b", "a")], [file("c"), hard_link("d", "c"), hard_link("e", "d")]),
        "a b c d e",
    ),
    "a link to a symlink": (([symlink("s", "t"), hard_link("l", "s")], [file("x")]), "l s x"),
    "a link to a symlink that is hidden": (([symlink("s", "t"), hard_link("l", "s")], [whiteout(".wh.s")]), "l"),
    "a file over a symlink": (([symlink("s", "t"), file("t/x")], [file("s")]), "s t t/x"),
    "a symlink over a directory": (([directory("s"), file("s/x")], [symlink("s", "t")]), "s"),
    "a directory where a symlink was removed": (
        ([symlink("s", "t")], [whiteout(".wh.s")], [file("s/x")]),
        "s s/x",
    ),
    "a symlink in a closed directory": (
        ([symlink("d/s", "t")], [directory("d"), whiteout(f"d/{OPAQUE}"), file("d/s/x")]),
        "d d/s d/s/x",
    ),
    "a marker of another tool": (([symlink("d", "t")], [whiteout("d/.wh..wh.plnk")]), "d"),
    "a directory instead of a symlink, removed and made again": (
        (
            [symlink("d/e", "/t"), file("t/q")],
            [directory("d/e"), file("d/e/x"), whiteout("d/.wh.e")],
            [file("d/e/up")],
        ),
        "d d/e d/e/up d/e/x t t/q",
    ),
    "attributes in several layers": (
        ([directory("d", 0o700)], [directory("d", 0o711), file("d/x")], [file("d/y")]),
        "d d/x d/y",
    ),
}

ELSEWHERE: dict[str, tuple[Stack, str]] = {
    "a file behind a symlink": (([symlink("s", "t")], [file("s/x")]), "s t t/x"),
    "a file behind a symlink over a directory": (
        ([directory("s")], [symlink("s", "t")], [file("s/x")]),
        "s t t/x",
    ),
    "a whiteout behind a symlink": (([symlink("s", "t"), file("t/x"), file("t/y")], [whiteout("s/.wh.x")]), "s t t/y"),
    "an opaque directory behind a symlink": (([symlink("s", "t"), file("t/x")], [whiteout(f"s/{OPAQUE}")]), "s t"),
    "a link to a lower layer": (([file("a")], [hard_link("b", "a")]), "a b"),
    "a directory in place of its layer's file": (([file("x")], [file("a"), file("a/b")]), "a a/b x"),
    "a symlink and what is behind it in one layer": (([directory("t")], [symlink("s", "t"), file("s/x")]), "s t t/x"),
    "a symlink in place of its layer's directory": (([directory("t")], [file("s/x"), symlink("s", "t")]), "s t"),
    "what is put behind a symlink that is then removed": (
        ([symlink("d", "t"), file("t/q")], [file("d/x"), whiteout(".wh.d")]),
        "t t/q t/x",
    ),
    "the same over a layer between": (
        (
            [symlink("d", "t"), file("t/q")],
            [file("z")],
            [file("d/e/x"), whiteout("d/.wh.e"), whiteout(".wh.d")],
        ),
        "t t/e t/e/x t/q z",
    ),
    "the same below a directory of an upper layer": (
        ([symlink("d/e", "/t"), file("t/q")], [file("d/e/x"), whiteout("d/.wh.e")], [file("d/e/up")]),
        "d d/e d/e/up t t/q t/x",
    ),
    "what is put behind a symlink that is then hidden": (
        ([symlink("d/e", "/t"), file("t/q")], [file("d/e/x"), whiteout(f"d/{OPAQUE}")], [file("d/up")]),
        "d d/up t t/q t/x",
    ),
    "what is behind a symlink that an upper layer removes": (
        ([symlink("d", "t")], [file("d/x")], [whiteout(".wh.d")]),
        "t t/x",
    ),
    "what is behind a symlink that an upper layer replaces": (
        ([symlink("d", "t")], [file("d/x")], [file("d")]),
        "d t t/x",
    ),
}


@pytest.mark.parametrize("name", QUICK)
def test_layers_that_names_merge_are_read_once(name: str) -> None:
    layers, expected = QUICK[name]
    read = stack(*layers)
    assert read.names() == expected.split()
    assert read.opened == [1] * len(layers)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_layers_whose_links_lead_elsewhere_are_read_twice_at_most(name: str) -> None:
    layers, expected = ELSEWHERE[name]
    read = stack(*layers)
    assert read.names() == expected.split()
    assert max(read.opened) <= 2


@pytest.mark.parametrize("name", [name for name in (*QUICK, *ELSEWHERE) if name != "an opaque root"])
def test_a_link_to_a_lower_layer_changes_nothing_else(name: str) -> None:
    layers, expected = {**QUICK, **ELSEWHERE}[name]
    read = stack([file("!target")], *layers, [hard_link("!link", "!target")])
    assert read.names() == ["!link", "!target", *expected.split()]
    assert max(read.opened) <= 2
