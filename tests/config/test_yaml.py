"""YAML files to Nodes: what PyYAML's own safe loader reads, with places, and refusals for everything else."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sifmod.config.yaml.node import Mark, Node, Number
from sifmod.config.yaml.parse import MAX_BYTES, MAX_DEPTH, MAX_KEY, MAX_NODES, load_yaml, parse_yaml
from sifmod.errors import ConfigError
from sifmod.system import one_line


def refusal(text: str | bytes) -> str:
    """The one problem of a text, as the user sees it."""
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text.encode() if isinstance(text, str) else text, "f.yaml")
    (problem,) = caught.value.problems
    return str(problem)


def problems(text: str) -> list[str]:
    return [str(problem) for problem in parse_yaml(text.encode(), "f.yaml")[1]]


def read(text: str) -> Node:
    node, found = parse_yaml(text.encode(), "f.yaml")
    assert not found
    return node


def values(node: Node) -> object:
    """What PyYAML's safe loader would give, numbers and dates aside, which stay text."""
    if isinstance(node.value, dict):
        return {key: values(value) for key, value in node.value.items()}
    if isinstance(node.value, tuple):
        return [values(item) for item in node.value]
    return node.value.text if isinstance(node.value, Number) else node.value


def test_every_value_knows_its_place_and_the_place_of_its_key() -> None:
    node = read("name: PyTorch\nimage:\n  sources:\n    - a.sif\n    - 'b.sif'\n")
    image = node.entries["image"]
    sources = image.entries["sources"]
    assert node.entries["name"].mark == Mark("f.yaml", 1, 7)
    assert node.entries["name"].key == Mark("f.yaml", 1, 1)
    assert (sources.mark, sources.key) == (Mark("f.yaml", 4, 5), Mark("f.yaml", 3, 3))
    assert [item.mark for item in sources.items] == [Mark("f.yaml", 4, 7), Mark("f.yaml", 5, 7)]


@pytest.mark.parametrize(
    "written", ["2.20", "1", "0x1F", "017", "1:30", "1.0e+3", ".inf", "1_000", "-7", "0b_", "9" * 5000]
)
def test_a_number_keeps_its_spelling(written: str) -> None:
    assert read(f"a: {written}").entries["a"].value == Number(written)


def test_a_date_keeps_its_spelling() -> None:
    assert read("a: 2024-02-09").entries["a"].value == Number("2024-02-09", "date")


@pytest.mark.parametrize("written", ["'2.20'", '"2.20"', "!!str 2.20", "! 2.20"])
def test_what_is_quoted_is_text(written: str) -> None:
    assert read(f"a: {written}").entries["a"].value == "2.20"


def test_booleans_and_null_are_those_of_yaml_1_1() -> None:
    node = read("a: yes\nb: Off\nc: TRUE\nd: ~\ne:\nf: y\n")
    assert [node.entries[key].value for key in "abcdef"] == [True, False, True, None, None, "y"]


def test_keys_are_text_as_they_are_written() -> None:
    assert set(read("2.20: a\nno: b\nnull: c\n'': d").entries) == {"2.20", "no", "null", ""}


def test_an_alias_stands_for_its_value_and_has_a_key_of_its_own() -> None:
    node = read("a: &x {b: 1}\nc: *x\n")
    assert node.entries["c"].value == node.entries["a"].value
    assert node.entries["c"].key == Mark("f.yaml", 2, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml:1:1: the file is empty: expected keys and values such as `name: PyTorch`"),
        ("# nothing\n", "f.yaml:1:1: the file is empty: expected keys and values such as `name: PyTorch`"),
        ("---\n", "f.yaml:1:1: the file is empty: expected keys and values such as `name: PyTorch`"),
        ("- a\n", "f.yaml:1:1: expected keys and values such as `name: PyTorch`, got a list"),
        ("\n  7", "f.yaml:2:3: expected keys and values such as `name: PyTorch`, got the number 7"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document starts here: a file must have only one"),
        ("a: 1\n...\nb: 2\n", "f.yaml:3:1: a second document starts here: a file must have only one"),
        ("a:\n\tb: 1\n", "f.yaml:2:1: a tab cannot be used here: indent with spaces"),
        ("a: @b\n", "f.yaml:1:4: a text that starts with @ must be quoted"),
        ("a: `b`\n", "f.yaml:1:4: a text that starts with ` must be quoted"),
        ("a: b: c\n", "f.yaml:1:5: a second ': ' in one value: quote the text, or check the indentation"),
        ("a: *b\n", "f.yaml:1:4: *b refers to no earlier &b"),
        ("a: &b [*b]\n", "f.yaml:1:8: *b refers to a value that contains it"),
        ("? [a]\n: b\n", "f.yaml:1:3: a key must be text, got a list"),
        ("a: \x01\n", "f.yaml:1:4: the character '\\x01' is not allowed in YAML"),
        ("é: 1\nb: \x7f\n", "f.yaml:2:4: the character '\\x7f' is not allowed in YAML"),
        (b"a: 1\nb: \xff\n", "f.yaml:2:4: not UTF-8 text: save the file as UTF-8"),
        ("a: 1".encode("utf-16"), "f.yaml:1:1: not UTF-8 text: save the file as UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_place(text: str | bytes, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize("text", ["a: [1, 2", "a: 'b", "- a\nb: c", "%YAML 3.0\n---\na: 1", 'a: "\\ud800"', 'a: "\\q"'])
def test_broken_yaml_says_so(text: str) -> None:
    assert ": not YAML: " in refusal(text)


def test_what_does_not_stop_the_reading_is_all_reported() -> None:
    text = "a: 1\na: 2\nb: {c: 1, d: [{e: 1, e: 2}]}\nf: !!python/object:os.system x\n<<: {g: 1}\nh: !!int '3'\n"
    assert problems(text) == [
        "f.yaml:2:1: a: duplicate key, first given in line 1",
        "f.yaml:3:22: b.d[0].e: duplicate key, first given in line 3",
        "f.yaml:4:4: f: the tag '!!python/object:os.system' is not allowed: only plain values are read",
        "f.yaml:5:1: <<: YAML merge keys are not supported: use extends, a preset or variants",
        "f.yaml:6:4: h: the tag '!!int' is not allowed: only plain values are read",
    ]


def test_all_the_words_for_true_and_false() -> None:
    words = ("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
    assert [item.value for item in read(f"a: [{', '.join(words)}]").entries["a"].items] == [True] * len(words)
    words = ("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
    assert [item.value for item in read(f"a: [{', '.join(words)}]").entries["a"].items] == [False] * len(words)


def test_tags_of_lists_and_maps() -> None:
    assert values(read("a: !!seq [1]\nb: !!map {c: d}\ne: ! [2]\nf: ! {}\ng: !!str 1\n")) == {
        "a": ["1"],
        "b": {"c": "d"},
        "e": ["2"],
        "f": {},
        "g": "1",
    }
    assert problems("a: !x [1]\nb: !!set {c}\nd: [!y {e: f}]\n!z g: h\ni: {!w j: k}\n") == [
        "f.yaml:1:4: a: the tag '!x' is not allowed: only plain values are read",
        "f.yaml:2:4: b: the tag '!!set' is not allowed: only plain values are read",
        "f.yaml:3:5: d[0]: the tag '!y' is not allowed: only plain values are read",
        "f.yaml:4:1: the tag '!z' is not allowed: only plain values are read",
        "f.yaml:5:5: i: the tag '!w' is not allowed: only plain values are read",
    ]


def test_a_long_tag_is_cut() -> None:
    assert problems(f"a: !{'x' * 70} b") == [
        f"f.yaml:1:4: a: the tag '!{'x' * 59}' is not allowed: only plain values are read"
    ]


def test_what_follows_a_merge_key_is_read() -> None:
    node, found = parse_yaml(b"a: {<<: {b: 1}, c: 2}\nd: 3\n", "f.yaml")
    assert values(node) == {"a": {"c": "2"}, "d": "3"}
    assert [str(problem) for problem in found] == [
        "f.yaml:1:5: a.<<: YAML merge keys are not supported: use extends, a preset or variants"
    ]


def test_the_deepest_that_is_read() -> None:
    assert read(f"a: {'[' * (MAX_DEPTH - 1)}{']' * (MAX_DEPTH - 1)}").size == MAX_DEPTH + 1
    assert refusal(f"a: {'[' * MAX_DEPTH}{']' * MAX_DEPTH}") == (
        f"f.yaml:1:{MAX_DEPTH + 3}: nested more than {MAX_DEPTH} deep"
    )


def test_values_are_counted_with_every_alias_followed() -> None:
    """The key, the list and what is in it: a hundred and two; each alias is that many again."""
    text = f"a: &a [{', '.join('x' * 100)}]\n"
    aliases = (MAX_NODES - 104) // 102
    assert read(f"{text}b: [{', '.join(['*a'] * (aliases - 1))}]").entries["b"].size == (aliases - 1) * 101 + 1
    assert "more than" in refusal(f"{text}b: [{', '.join(['*a'] * (aliases + 2))}]")


def test_places_of_items_and_of_aliases() -> None:
    node = read("a: &x 1\nb: [*x, {c: *x}]\n")
    first, second = node.entries["b"].items
    assert (first.mark, first.key) == (Mark("f.yaml", 1, 4), Mark("f.yaml", 2, 5))
    assert second.entries["c"].key == Mark("f.yaml", 2, 10)


def test_an_anchor_may_be_given_again() -> None:
    assert values(read("a: &x 1\nb: *x\nc: &x [2]\nd: *x\n")) == {"a": "1", "b": "1", "c": ["2"], "d": ["2"]}


@pytest.mark.parametrize("half", ["\\ud800", "\\udbff", "\\udc00", "\\udfff"])
def test_half_a_surrogate_pair_is_refused_by_either_parser(monkeypatch: pytest.MonkeyPatch, half: str) -> None:
    assert "f.yaml:1:" in refusal(f'a: "{half}"')
    monkeypatch.setattr("sifmod.config.yaml.parse._LOADER", yaml.SafeLoader)
    assert refusal(f'a: "x{half}"') == "f.yaml:1:4: half of a surrogate pair is not a character"


@pytest.mark.parametrize("letter", ["\\ud7ff", "\\ue000"])
def test_what_is_beside_the_surrogates_is_text(monkeypatch: pytest.MonkeyPatch, letter: str) -> None:
    monkeypatch.setattr("sifmod.config.yaml.parse._LOADER", yaml.SafeLoader)
    assert len(read(f'a: "{letter}"').entries["a"].text) == 1


def test_an_escape_beyond_unicode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sifmod.config.yaml.parse._LOADER", yaml.SafeLoader)
    assert refusal('a: "\\U00ffffff"').startswith("f.yaml:1:1: not YAML: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 'b", "f.yaml:1:6: not YAML: found unexpected end of stream while scanning a quoted scalar"),
        ("a: 1\nb: 'c\n", "f.yaml:3:1: not YAML: found unexpected end of stream while scanning a quoted scalar"),
        ("a: %b", "f.yaml:1:4: a text that starts with % must be quoted"),
        ("null", "f.yaml:1:1: expected keys and values such as `name: PyTorch`, got nothing"),
        ("''", "f.yaml:1:1: expected keys and values such as `name: PyTorch`, got the text ''"),
        ("? {a: b}\n: c", "f.yaml:1:3: a key must be text, got keys and values"),
        ("a: 1\nb: \x00", "f.yaml:2:4: the character '\\x00' is not allowed in YAML"),
        ("a: \ufffe", "f.yaml:1:4: the character '\\ufffe' is not allowed in YAML"),
    ],
)
def test_where_reading_stops(text: str, message: str) -> None:
    assert refusal(text) == message


def test_a_quoted_merge_key_is_a_key() -> None:
    assert values(read("'<<': {a: b}")) == {"<<": {"a": "b"}}


def test_the_first_of_two_equal_keys_is_kept_and_both_are_reported() -> None:
    node, found = parse_yaml(b"a: 1\n'a': 2\n", "f.yaml")
    assert node.entries["a"].raw == "1"
    assert len(found) == 1


def test_problems_before_a_fatal_one_are_not_lost() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(b"a: 1\na: 2\nb: [", "f.yaml")
    assert [problem.line for problem in caught.value.problems] == [2, 3]


def test_an_alias_bomb_is_refused() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert refusal("\n".join(rows)).endswith(f"more than {MAX_NODES} values when every alias is followed")


def test_the_limit_counts_values_without_aliases_too() -> None:
    assert len(read(f"a: [{'x, ' * (MAX_NODES - 3)}]").entries["a"].items) == MAX_NODES - 3
    assert "more than" in refusal(f"a: [{'x, ' * (MAX_NODES - 1)}]")


def test_a_key_that_is_too_long() -> None:
    """Each problem below it had the key in its path: 9 000 took a minute."""
    assert refusal(f"? {'k' * (MAX_KEY + 1)}\n: 1") == f"f.yaml:1:3: a key of more than {MAX_KEY} characters"
    assert list(read(f"? {'k' * MAX_KEY}\n: 1").entries) == ["k" * MAX_KEY]


def test_deep_nesting_is_refused_and_exhausts_nothing() -> None:
    for deep in (MAX_DEPTH + 1, 100_000):  # libyaml of PyYAML 6.0.4 refuses the second itself, further along the line
        assert re.fullmatch(rf"f\.yaml:1:[0-9]+: nested more than {MAX_DEPTH} deep", refusal("a: " + "[" * deep))


def test_a_file_is_read_with_its_digest(tmp_path: Path) -> None:
    import hashlib

    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    document = load_yaml(path)
    assert document.node.entries["a"].mark == Mark(str(path), 1, 4)
    assert (document.input.path, document.input.sha256) == (str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def file_refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_yaml(path)
    return caught.value.message.removeprefix(f"{one_line(str(path))}:1:1: ")


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert file_refusal(tmp_path) == "is a directory, expected a YAML file"
    assert file_refusal(tmp_path / "absent.yaml") == "cannot be read: no such file or directory"
    assert file_refusal(tmp_path / "fifo") == "is not a regular file, expected a YAML file"
    assert file_refusal(tmp_path / ("x" * 300)) == "cannot be read: file name too long"
    assert file_refusal(Path(f"{tmp_path}/a\0b")).startswith("cannot be read: ")


def test_a_file_without_permission_is_refused(shared_tmp: Path) -> None:
    path = shared_tmp / "secret.yaml"
    path.write_text("a: 1")
    assert as_nobody(path) == ""
    path.chmod(0)
    assert as_nobody(path) == f"{path}:1:1: cannot be read: permission denied"


def as_nobody(path: Path) -> str:
    """What somebody who is not root is told about the file; nothing when it can be read."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            load_yaml(path)
        except ConfigError as error:
            os.write(writer, error.message.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        told = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return told


def test_a_large_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"a: 1\n".ljust(MAX_BYTES, b"#"))
    assert load_yaml(path).node.entries["a"].raw == "1"
    path.write_bytes(b"[" * (MAX_BYTES + 1))
    assert file_refusal(path) == "has more than 1048576 bytes, the limit for a configuration file"


PIECES = st.sampled_from(
    [
        *("a", "b", ": ", ":", "\n", "  ", "- ", "[", "]", "{", "}", ", ", "&x ", "*x", "!t ", "!!str ", "|", ">", "'"),
        *('"', "#", "---\n", "...", "? ", "<<", "~", "1.5", "yes", "\t", "%", "@", "\\", "\\ud800", "\\U00ffffff"),
        *("\x85", "\u2028", "é", "\x07", "\ufeff"),
    ]
)


@pytest.mark.parametrize("loader", [yaml.CSafeLoader, yaml.SafeLoader])
@given(text=st.one_of(st.text(), st.lists(PIECES).map("".join)))
def test_any_text_is_a_mapping_or_a_refusal_with_a_place_in_it(loader: type, text: str) -> None:
    """With libyaml and without."""
    data = text.encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sifmod.config.yaml.parse._LOADER", loader)
        try:
            node, found = parse_yaml(data, "f.yaml")
        except ConfigError as error:
            found = error.problems
            assert found
        else:
            assert isinstance(node.value, dict)
    lines = len(text.splitlines()) + 1
    for problem in found:
        assert problem.file == "f.yaml"
        assert 1 <= problem.line <= lines
        assert 1 <= problem.column <= len(text) + 1
        assert "\n" not in str(problem)


@given(st.binary())
def test_any_bytes_are_a_mapping_or_a_refusal(data: bytes) -> None:
    try:
        assert isinstance(parse_yaml(data, "f.yaml")[0].value, dict)
    except ConfigError as error:
        assert error.problems


PRINTABLE = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
TREES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), PRINTABLE),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(PRINTABLE, inner, max_size=4)),
    max_leaves=20,
)


@given(st.dictionaries(PRINTABLE, TREES, min_size=1))
def test_what_pyyaml_writes_is_read_as_pyyaml_reads_it(data: dict[str, object]) -> None:
    """PyYAML's safe loader is the yardstick."""
    text = yaml.safe_dump(data, allow_unicode=True)
    assert values(read(text)) == yaml.safe_load(text)
