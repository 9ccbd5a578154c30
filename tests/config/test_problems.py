"""How mistakes are told: the order, the keys, the words for what was expected."""

import pytest

from sifmod.config.bind import BindSpec
from sifmod.config.easyconfig import Easyconfig, EasyconfigFile
from sifmod.config.origin import Origin, of_default, of_tree
from sifmod.config.site import Accelerators, Signatures, SiteFile
from sifmod.config.yaml.node import Mark, Node, Number, join_key, kind, printable_text, tree
from sifmod.config.yaml.parse import parse_yaml
from sifmod.config.yaml.validate import build, check_layer, did_you_mean


def problems(text: str) -> list[str]:
    found = check_layer(EasyconfigFile, parse_yaml(text.encode(), "f.yaml")[0])
    return [str(problem).removeprefix("f.yaml:") for problem in found]


def test_problems_are_in_the_order_of_the_file() -> None:
    assert problems("nmae: x\ndocurls+: y\nsanity_check: {commands+: z, path: []}\n") == [
        "1:1: nmae: unknown key; did you mean name?",
        "2:11: docurls+: expected a list to append, got the text 'y'",
        "3:27: sanity_check.commands+: expected a list to append, got the text 'z'",
        "3:30: sanity_check.path: unknown key; did you mean paths?",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("verb: 3", "1:7: verb: expected exec or run, got the number 3"),
        ("user_software: 3", "1:16: user_software: expected true or false, got the number 3"),
        ("image: 3", "1:8: image: expected keys and values, got the number 3"),
        ("docurls: [no]", "1:11: docurls[0]: expected text, got no, which YAML reads as false; write 'no'"),
        ("docurls: [[a]]", "1:11: docurls[0]: expected text, got a list"),
        ("runscripts: x", "1:13: runscripts: expected a list of conda-python-simple, conda-python-distributed, "
         "torchrun-distributed, get-master, gpu-check, init-conda-venv, list-packages or start-shell, got the text "
         "'x'"),
        ("runscripts: [gpu_check]", "1:14: runscripts[0]: expected conda-python-simple, conda-python-distributed, "
         "torchrun-distributed, get-master, gpu-check, init-conda-venv, list-packages or start-shell, got the text "
         "'gpu_check'; did you mean gpu-check?"),
        ("binds: [{source: /a, sorce: /b}]", "1:22: binds[0].sorce: unknown key; did you mean source?"),
        ("binds: [{source: /a, options: 3}]", "1:31: binds[0].options: expected text, got the number 3; write "
         "options: '3'"),
        ("conda: {env: base}\nimage: {arch: AMD64}", "2:15: image.arch: expected amd64 or arm64, got the text 'AMD64'; "
         "did you mean amd64?"),
        ("variants: {a: {image: {arch: [x]}}}", "1:30: variants.a.image.arch: expected amd64 or arm64, got a list"),
        ("variants: [a]", "1:11: variants: expected keys and values, got a list"),
        ("env: {A: [x]}", "1:10: env.A: expected text, got a list"),
        ("contents: {'a b': '1'}", "1:12: contents.a b: 'a b' cannot be used: use letters, digits and . _ + -, "
                                   "starting with a letter or digit, without '..'"),
        ("name: 7", "1:7: name: expected text, got the number 7; write name: '7'"),
    ],
)  # fmt: skip
def test_what_was_expected_is_said(text: str, problem: str) -> None:
    assert problems(text) == [problem]


def test_a_whole_easyconfig_lacks_what_no_layer_has_given() -> None:
    found = build(Easyconfig, parse_yaml(b"name: A\nimage: {arch: amd64}\nbinds: [{target: /x}]\n", "f.yaml")[0])
    assert isinstance(found, tuple)
    assert [str(problem) for problem in found] == [
        "f.yaml:1:1: version: is missing",
        "f.yaml:1:1: accelerator: is missing",
        "f.yaml:2:8: image.filename: is missing",
        "f.yaml:3:9: binds[0].source: is missing",
    ]


def test_a_layer_may_hold_half_of_what_belongs_together() -> None:
    assert problems("image: {build: a, sources: [b]}\nactivate: x\nvenv: /y\n") == []
    assert problems("image: {conversion: {tree: x}}\n") == [
        "1:28: image.conversion.tree: 'x' cannot be used: expected 64 lower-case hexadecimal digits, as sha256sum "
        "prints"
    ]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("NAME", "; did you mean Name?"),
        ("nane", "; did you mean Name?"),
        ("versions", "; did you mean VERSION?"),
        ("q", ""),
    ],
)
def test_what_was_meant_is_found_in_any_case(wrong: str, meant: str) -> None:
    assert did_you_mean(wrong, ("Name", "VERSION", "other")) == meant


def test_a_long_text_is_cut_in_a_message() -> None:
    assert printable_text("x" * 60) == repr("x" * 60)
    assert printable_text("x" * 61) == repr("x" * 57 + "...")
    assert join_key("a", "x" * 60) == f"a.{'x' * 60}"
    assert join_key("a", "x" * 61) == f"a.'{'x' * 57}...'"
    assert join_key("a", "b\n") == "a.'b\\n'"
    assert (join_key("", "b"), join_key("a", "b"), join_key("a", 0)) == ("b", "a.b", "a[0]")


def test_what_a_node_is() -> None:
    node = parse_yaml(b"a: {}\nb: []\nc:\nd: yes\ne: 2.20\nf: 2024-01-01\ng: x\nh: off\n", "f.yaml")[0]
    assert [kind(value) for value in node.entries.values()] == [
        "keys and values", "a list", "nothing", "yes, which YAML reads as true", "the number 2.20",
        "the date 2024-01-01", "the text 'x'", "off, which YAML reads as false",
    ]  # fmt: skip
    assert [(value.entries, value.items, value.text) for value in node.entries.values()] == [
        ({}, (), ""), ({}, (), ""), ({}, (), ""), ({}, (), ""), ({}, (), ""), ({}, (), ""), ({}, (), "x"), ({}, (), ""),
    ]  # fmt: skip


def test_plain_values_as_nodes() -> None:
    mark = Mark("option", 0, 0)
    node = tree({"a": ("x", None), "b": 3}, mark)
    assert node == Node(
        {"a": Node((Node("x", mark, mark, "x"), Node(None, mark, mark)), mark, mark), "b": Node("3", mark, mark, "3")},
        mark,
        mark,
    )
    assert (str(mark), str(Mark("f.yaml", 3, 4))) == ("option", "f.yaml:3")


def test_the_origin_of_each_value() -> None:
    node = parse_yaml(b"a: {b: 1.50, c: yes, d: off}\ne: [x, []]\nf: {}\n", "f.yaml")[0]
    assert of_tree(node, "k") == (
        Origin("k.a.b", "1.50", "f.yaml:1"),
        Origin("k.a.c", "true", "f.yaml:1"),
        Origin("k.a.d", "false", "f.yaml:1"),
        Origin("k.e[0]", "x", "f.yaml:2"),
        Origin("k.e[1]", "(empty)", "f.yaml:2"),
        Origin("k.f", "(empty)", "f.yaml:3"),
    )


@pytest.mark.parametrize("value", [None, "", ()])
def test_an_empty_default_is_not_told(value: object) -> None:
    assert of_default("k", value) == ()


def test_defaults_are_told() -> None:
    assert of_default("k", 30.0) == (Origin("k", "30", "default"),)
    assert of_default("k", 2.5) == (Origin("k", "2.5", "default"),)
    assert of_default("k", 4) == (Origin("k", "4", "default"),)
    assert of_default("k", False) == (Origin("k", "false", "default"),)
    assert of_default("k", ("a", True)) == (Origin("k[0]", "a", "default"), Origin("k[1]", "true", "default"))
    assert of_default("k", None) == of_default("k", "") == of_default("k", ()) == ()
    assert of_default("signatures", Signatures()) == (Origin("signatures.policy", "off", "default"),)
    assert of_default("k", Accelerators()) == (Origin("k.rocm", "rocm", "default"), Origin("k.cuda", "nv", "default"))


def test_a_model_is_closed_frozen_and_takes_no_number_for_text() -> None:
    assert isinstance(build(SiteFile, tree({}, Mark("", 0, 0))), SiteFile)
    with pytest.raises(ValueError, match="frozen"):
        BindSpec(source="/a").source = "/b"  # type: ignore[misc]
    with pytest.raises(ValueError, match="extra_forbidden"):
        BindSpec(source="/a", other=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="bool_type"):
        BindSpec(source="/a", optional=1)  # type: ignore[arg-type]
    assert Number("1") == Number("1", "number")
