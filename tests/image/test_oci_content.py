"""JSON that somebody else wrote: each value by its type, and what is said of one of another type."""

from collections.abc import Callable

import pytest

from sifmod.errors import ImageError
from sifmod.image.oci.content import Content, plain, read_content

CONTENT = Content(
    "x",
    {
        "null": None,
        "empty": "",
        "zero": 0,
        "none": [],
        "nothing": {},
        "text": "a",
        "half": "a\ud800b",
        "number": 7,
        "yes": True,
        "float": 1.0,
        "texts": ["b", "", "a"],
        "mixed": ["a", 1],
        "child": {"b": "2", "a": "1", "half\ud800": "\ud800"},
        "children": [{"a": "1"}, {"a": "2"}],
    },
)


def refused(ask: Callable[[], object]) -> str:
    with pytest.raises(ImageError) as caught:
        ask()
    return caught.value.message


def test_what_is_null_is_not_there() -> None:
    assert "null" not in CONTENT
    assert "missing" not in CONTENT
    assert all(key in CONTENT for key in ("empty", "zero", "none", "nothing", "text"))
    assert next(iter(CONTENT)) == "null"


@pytest.mark.parametrize("key", ["null", "missing"])
def test_what_is_not_there_is_empty(key: str) -> None:
    assert (CONTENT.text(key), CONTENT.number(key)) == ("", -1)
    assert (CONTENT.texts(key), CONTENT.children(key), CONTENT.pairs(key)) == ((), (), ())
    assert list(CONTENT.child(key)) == []


def test_values_are_as_they_are() -> None:
    assert [CONTENT.text(key) for key in ("empty", "text", "half")] == ["", "a", "a\ufffdb"]
    assert [CONTENT.number(key) for key in ("zero", "number")] == [0, 7]
    assert CONTENT.texts("texts") == ("b", "", "a")
    assert (CONTENT.texts("none"), CONTENT.children("none"), CONTENT.pairs("nothing")) == ((), (), ())
    assert CONTENT.pairs("child") == (("a", "1"), ("b", "2"), ("half\ufffd", "\ufffd"))
    assert CONTENT.child("child").text("b") == "2"
    assert [child.text("a") for child in CONTENT.children("children")] == ["1", "2"]


def test_what_is_of_another_type_is_told_with_its_place() -> None:
    assert refused(lambda: CONTENT.text("number")) == "x: number is not a string"
    assert refused(lambda: CONTENT.text("zero")) == "x: zero is not a string"
    assert refused(lambda: CONTENT.number("text")) == "x: text is not a whole number"
    assert refused(lambda: CONTENT.number("yes")) == "x: yes is not a whole number"
    assert refused(lambda: CONTENT.number("float")) == "x: float is not a whole number"
    assert refused(lambda: CONTENT.child("none")) == "x: none is not an object"
    assert refused(lambda: CONTENT.texts("nothing")) == "x: nothing is not a list"
    assert refused(lambda: CONTENT.texts("mixed")) == "x: mixed[1] is not a string"
    assert refused(lambda: CONTENT.children("mixed")) == "x: mixed[0] is not an object"
    assert refused(lambda: CONTENT.pairs("text")) == "x: text is not an object"
    assert refused(lambda: CONTENT.children("children")[1].number("a")) == "x: children[1]: a is not a whole number"
    assert refused(lambda: CONTENT.child("child").number("b")) == "x: child: b is not a whole number"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\r\n two\t\tthree ", "one two three"),
        ("\x1b[2Jx\x00y\u200ez", "[2Jx y z"),
        ("x" * 300, "x" * 200),
        (" " * 16383 + "xy", "x"),
        ("é", "é"),
        ("", ""),
    ],
)
def test_what_others_wrote_cannot_steer_a_terminal(text: str, expected: str) -> None:
    assert plain(text) == expected


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "x is not JSON: it is empty"),
        (b"{" + b"a" * 50, f"x is not JSON: it starts with '{{{'a' * 39}'"),
        (b"\xff", "x is not JSON: it starts with '\ufffd'"),
        (b'"text"', "x is not a JSON object: it starts with '\"text\"'"),
        (b"null", "x is not a JSON object: it starts with 'null'"),
    ],
)
def test_what_is_no_object_is_told_with_its_beginning(raw: bytes, said: str) -> None:
    assert refused(lambda: read_content(raw, "x")) == said
