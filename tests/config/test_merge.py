"""The one merge rule (docs/design.md, section 1), by example and by its laws."""

from hypothesis import given
from hypothesis import strategies as st

from sifmod.config.yaml.node import Mark, Node, leaves, merge, tree
from sifmod.config.yaml.parse import parse_yaml

START = Mark("result", 1, 1)
LAYER = Mark("layer", 1, 1)


def layer(text: str, file: str) -> Node:
    return parse_yaml(text.encode(), file)[0]


def merged(*texts: str) -> Node:
    return merge(tuple(layer(text, f"{number}.yaml") for number, text in enumerate(texts)), START)


def plain(node: Node) -> object:
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    return [plain(item) for item in node.items] if isinstance(node.value, tuple) else node.raw


def test_scalars_and_lists_replace() -> None:
    assert plain(merged("{a: x, b: [1, 2]}", "{a: y, b: [3]}")) == {"a": "y", "b": ["3"]}


def test_maps_merge_by_key_at_any_depth() -> None:
    assert plain(merged("{a: {b: {c: 1}, d: 2}}", "{a: {b: {e: 3}}}")) == {"a": {"b": {"c": "1", "e": "3"}, "d": "2"}}


def test_null_removes_also_inside_a_map_and_of_what_was_never_there() -> None:
    assert plain(merged("{a: 1, b: {c: 1, d: 2}, e: [1]}", "{a: null, b: {c: null, x: null}, e: null}")) == {
        "b": {"d": "2"}
    }


def test_what_was_removed_can_come_back() -> None:
    assert plain(merged("{a: {b: 1}}", "{a: null}", "{a: {c: 2}}")) == {"a": {"c": "2"}}


def test_plus_appends_to_a_list_and_makes_one() -> None:
    layers = ("a: [1]", "{a+: [2], b+: [3]}", "{a+: [4], b+: [5]}")
    assert plain(merged(*layers)) == {"a": ["1", "2", "4"], "b": ["3", "5"]}


def test_plus_with_null_removes_the_list() -> None:
    assert plain(merged("a: [1]", "a+: null")) == {}


def test_plus_works_inside_maps_and_in_the_first_layer() -> None:
    assert plain(merged("i: {s+: [1]}", "i: {s+: [2]}")) == {"i": {"s": ["1", "2"]}}


def test_a_map_and_something_else_replace_each_other() -> None:
    assert plain(merged("{a: {b: 1}, c: 1}", "{a: 2, c: {d: 3}}")) == {"a": "2", "c": {"d": "3"}}


def test_every_value_keeps_the_place_it_came_from() -> None:
    node = merged("{a: 1, b: [1]}", "{b+: [2], c: {d: 3}}")
    assert node.mark == START
    assert [(path, leaf.mark.file) for path, leaf in leaves(node)] == [
        ("a", "0.yaml"),
        ("b[0]", "0.yaml"),
        ("b[1]", "1.yaml"),
        ("c.d", "1.yaml"),
    ]


def test_empty_containers_are_leaves_too() -> None:
    assert [path for path, _ in leaves(merged("{a: [], b: {}, c: ''}"))] == ["a", "b", "c"]


KEYS = st.sampled_from(["a", "b", "c"])
LISTS = st.lists(st.text(max_size=3), max_size=3).map(tuple)
VALUES = st.recursive(
    st.one_of(st.none(), st.text(max_size=3), LISTS),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)
LAYERS = st.builds(
    lambda values, appended: tree({**values, **{f"{key}+": items for key, items in appended.items()}}, LAYER),
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.dictionaries(KEYS, LISTS, max_size=2),
)


def no_null_and_no_plus(node: Node) -> bool:
    inner = (*node.entries.values(), *node.items)
    plus = any("+" in key for key in node.entries)
    return node.value is not None and not plus and all(map(no_null_and_no_plus, inner))


@given(st.lists(LAYERS, max_size=4).map(tuple))
def test_the_result_holds_no_null_and_no_plus(layers: tuple[Node, ...]) -> None:
    assert no_null_and_no_plus(merge(layers, START))


@given(st.lists(LAYERS, max_size=3).map(tuple), st.lists(LAYERS, max_size=3).map(tuple))
def test_merging_in_two_steps_is_merging_in_one(first: tuple[Node, ...], second: tuple[Node, ...]) -> None:
    assert merge((merge(first, START), *second), START) == merge((*first, *second), START)


@given(LAYERS)
def test_merging_with_nothing_and_with_itself_changes_nothing(layer: Node) -> None:
    once = merge((layer,), START)
    empty = Node({}, START, START)
    assert merge((empty, once, empty, once), START) == once
