"""The constants of a file in Python's syntax: the value of each expression and statement, and why another has none."""

import warnings

import pytest

from sifmod.imports.python import evaluate
from sifmod.imports.python_text import Python
from sifmod.imports.result import CannotImportError

LARGEST = 2**63 - 1

VALUES: dict[str, Python] = {
    "'a' 'b'": "ab",
    "None": None,
    "True": True,
    "1.5": 1.5,
    "-1.5": -1.5,
    "[1, ('a',), []]": (1, ("a",), ()),
    "[*[1, 2], *(), 3]": (1, 2, 3),
    "{'a': 1, 2: ['b']}": {"a": 1, 2: ("b",)},
    "'a' + 'b'": "ab",
    "(1,) + [2]": (1, 2),
    "1 + 2.5": 3.5,
    "5 - 7": -2,
    "1.5 - 1": 0.5,
    "2 * 2.5": 5.0,
    "'ab' * 2": "abab",
    "[1] * 3": (1, 1, 1),
    "'a' * -1": "",
    f"{LARGEST} + 0": LARGEST,
    f"-{LARGEST} - 0": -LARGEST,
    "1 if 0 else 2": 2,
    "1 if 'a' else 2": 1,
    "not ''": True,
    "not 'a'": False,
    "'a' or 'b'": "a",
    "'' or 'b' or 'c'": "b",
    "0 or '' or None": None,
    "'' and 'b'": "",
    "'a' and 'b' and 'c'": "c",
    "'b' in 'abc'": True,
    "'x' in 'abc'": False,
    "'x' not in 'abc'": True,
    "'b' not in 'abc'": False,
    "1 in [1, 2]": True,
    "3 not in (1, 2)": True,
    "2 not in (1, 2)": False,
    "'k' in {'k': 1}": True,
    "1 == 1.0": True,
    "'a' == 'b'": False,
    "'a' != 'b'": True,
    "1 != 1": False,
    "'abc'[0]": "a",
    "'abc'[-1]": "c",
    "'abcdef'[1:5:2]": "bd",
    "'abc'[:2]": "ab",
    "[1, 2, 3][1:]": (2, 3),
    "[1, 2, 3][::-1]": (3, 2, 1),
    "{'a': 'b'}['a']": "b",
    "[x + '!' for x in ['a', 'b'] if x != 'a']": ("b!",),
    "[x for x in (1, 2, 3) if x in (1, 2) if x in (2, 3)]": (2,),
    "','.join(x for x in ('a', 'b'))": "a,b",
    "len('abc')": 3,
    "len([1, 2])": 2,
    "len({1: 2})": 1,
    "str(3)": "3",
    "str('abc')": "abc",
    'f\'{1}-{2.5:.2f}-{"x":>3}-{"y"!r:5}|{"z"!s:<2}|{{}}\'': "1-2.50-  x-'y'  |z |{}",
    "f'{255:x}{7:03d}{1:+d}{2: d}{3:^3}{1.5:g}'": "ff007+1 2 3 1.5",
    "'%s-%d-%5.2f-%r-%x%%' % ('a', 3, 2, 'b', 255)": "a-3- 2.00-'b'-ff%",
    "'%s' % 'a'": "a",
    "'%(a)s %(b)03d' % {'a': 'x', 'b': 7}": "x 007",
    "'%%' % ()": "%",
    "'none' % {}": "none",
    "'{} {}'.format('a', 1)": "a 1",
    "'{1}{0}{1}'.format('a', 'b')": "bab",
    "'{x!r:>4}{{}}{y}'.format(x='a', y=None)": " 'a'{}None",
    "'abc'.format()": "abc",
    "'a-b-c'.replace('-', '+')": "a+b+c",
    "'ab'.replace('', '.')": ".a.b.",
    "', '.join(['a', 'b'])": "a, b",
    "'a-b-c'.split('-')": ("a", "b", "c"),
    "'a b  c'.split()": ("a", "b", "c"),
    "'a-b-c'.rsplit('-', 1)": ("a-b", "c"),
    "'a\\nb'.splitlines()": ("a", "b"),
    "'a-b-c'.partition('-')": ("a", "-", "b-c"),
    "'a-b-c'.rpartition('-')": ("a-b", "-", "c"),
    "' a '.strip() + '|' + ' b '.lstrip() + '|' + ' c '.rstrip()": "a|b | c",
    "'aBc'.lower() + 'aBc'.upper() + 'a bC'.title() + 'aBC'.capitalize()": "abcABCA BcAbc",
    "'abc'.removeprefix('a') + 'abc'.removesuffix('c')": "bcab",
    "'abc'.startswith('a')": True,
    "'abc'.endswith('a')": False,
    "'abcb'.count('b') + 'abcb'.find('c')": 4,
}

TYPES = "a list or a map where a text or a number is needed is not evaluated"
UNKNOWN = {
    "b'a'": "`Constant` is not evaluated",
    "lambda: 1": "`Lambda` is not evaluated",
    "{1}": "`Set` is not evaluated",
    "{**{}}": "** in a map is not evaluated",
    "[*'ab']": "* of anything but a list is not evaluated",
    "~1": "`UnaryOp` is not evaluated",
    "-'a'": "`UnaryOp` is not evaluated",
    "1 < 2": "the comparison Lt is not evaluated",
    "1 in 1": "the comparison In is not evaluated",
    "1 == 1 == 1": "`Compare` is not evaluated",
    "[1] == [1]": TYPES,
    "[1] != 1": TYPES,
    "[1] in [[1]]": TYPES,
    "'a' / 'b'": "the operator Div is not evaluated here",
    "'a' - 'b'": "the operator Sub is not evaluated here",
    "'a' * 2.5": "the operator Mult is not evaluated here",
    "1 % 2": "the operator Mod is not evaluated here",
    "'a' + 1": "+ of these values is not evaluated",
    "1 + 'a'": "+ of these values is not evaluated",
    "[1] + 1": "+ of these values is not evaluated",
    f"{LARGEST} + 1": "a number this large is not evaluated",
    f"-{LARGEST} - 1": "a number this large is not evaluated",
    f"{LARGEST} * 2": "a number this large is not evaluated",
    "[a for a in 'ab']": "this comprehension is not evaluated",
    "[a for a, b in [(1, 2)]]": "this comprehension is not evaluated",
    "[a for a in [1] for b in [2]]": "`ListComp` is not evaluated",
    "[a for a in [1] if a < 1]": "the comparison Lt is not evaluated",
    "'abc'['a']": "this index is not evaluated",
    "'abc'['a':]": "this index is not evaluated",
    "3[0]": "this index is not evaluated",
    "{'a': 1}['b']": "KeyError: 'b'",
    "{[1]: 2}": TYPES,
    "{'a': 1}[[1]]": TYPES,
    "[1][9]": "IndexError: tuple index out of range",
    "'abc'[::0]": "ValueError: slice step cannot be zero",
    "'abc'.split('')": "ValueError: empty separator",
    "'abc'.count(1)": "TypeError: must be str, not int",
    "'abc'.encode()": "the call of 'abc'.encode is not evaluated",
    "'abc'.split(sep='b')": "the call of 'abc'.split is not evaluated",
    "[1].count(1)": "the call of [1].count is not evaluated",
    "str(1, 2)": "the call of str is not evaluated",
    "str(object=1)": "the call of str is not evaluated",
    "str([1])": TYPES,
    "int('1')": "the call of int is not evaluated",
    "f" + "o" * 80 + "()": "the call of f" + "o" * 59 + " is not evaluated",
    "f'{[1]}'": TYPES,
    "f'{1:,}'": "the format ':,' is not evaluated",
    "f'{1!a}'": "the format '!a:' is not evaluated",
    "'{0!a}'.format(1)": "the format '!a:' is not evaluated",
    "'{a.b}'.format(a=1)": "the field {a.b} is not evaluated",
    "'{0[a]}'.format('a')": "the field {0[a]} is not evaluated",
    "'{}'.format()": "IndexError: tuple index out of range",
    "'{a}'.format()": "KeyError: 'a'",
    "'{}'.format([1])": TYPES,
    "'{a}'.format(a=[1])": TYPES,
    "'%c' % 1": "this % format is not evaluated",
    "'%*d' % (1, 2)": "this % format is not evaluated",
    "'%s' % [[1]]": TYPES,
    "'%(a)s' % {'a': [1]}": TYPES,
    "'%d' % 'a'": "TypeError: %d format: a real number is required, not str",
    "', '.join('ab')": "join of anything but a list is not evaluated",
    "', '.join([1])": "TypeError: object of type 'int' has no len()",
    "other": "other is not defined in this file",
    "before": "before is unknown (line 1: the call of open is not evaluated)",
    "(n := 1)": "`NamedExpr` is not evaluated",
}

# a file, what is known of it, and why the rest is not
FILES: dict[str, tuple[dict[str, Python], dict[str, str]]] = {
    "'''doc'''\npass\nx: str = 'a'": ({"x": "a"}, {}),
    "x: str": ({}, {"x": "line 1: annassign statements are not evaluated"}),
    "x = 'a'\nx += 'b'\nx += 'c'": ({"x": "abc"}, {}),
    "x = 1\nx -= 1": ({}, {"x": "line 2: augassign statements are not evaluated"}),
    "x += 1": ({}, {"x": "line 1: x is not defined in this file"}),
    "x = y = ['a']\ny += ['b']": ({"x": ("a",), "y": ("a", "b")}, {}),
    "a, b = 'x', 'y'\n(c, (d, e)) = (1, (2, 3))": ({"a": "x", "b": "y", "c": 1, "d": 2, "e": 3}, {}),
    "a, b = 'x', 'y', 'z'": (
        {},
        dict.fromkeys("ab", "line 1: this kind of assignment is not evaluated"),
    ),
    "a, b = 'xy'": ({}, dict.fromkeys("ab", "line 1: this kind of assignment is not evaluated")),
    "x = {'b': 1}\nx['a'] = 2\nx['b'] = 3\nx.update({'c': 4})": ({"x": {"b": 3, "a": 2, "c": 4}}, {}),
    "x = ['a']\nx.append(['b'])\nx.extend(['c', 'd'])": ({"x": ("a", ("b",), "c", "d")}, {}),
    "x = ['a']\nx[0] = 'b'": ({}, {"x": "line 2: this change of x is not evaluated"}),
    "x = ['a']\nx.update({})": ({}, {"x": "line 2: this change of x is not evaluated"}),
    "x = {}\nx.update([])": ({}, {"x": "line 2: this change of x is not evaluated"}),
    "x = {}\nx.append(1)": ({}, {"x": "line 2: this change of x is not evaluated"}),
    "x = 'a'\nx.append('b')": ({}, {"x": "line 2: this change of x is not evaluated"}),
    "x = ['a']\nx.extend('bc')": ({}, {"x": "line 2: + of these values is not evaluated"}),
    "x = ['a']\nx.sort()": ({}, {"x": "line 2: expr statements are not evaluated"}),
    "x = ['a']\nx.append('b', 'c')": ({}, {"x": "line 2: expr statements are not evaluated"}),
    "x = 'a'\nx.upper()": ({"x": "a"}, {}),
    "x.append(1)": ({}, {"x": "line 1: x is not defined in this file"}),
    "x = {}\nx['a'] = y": ({}, {"x": "line 2: y is not defined in this file"}),
    "x = y\nz = x\nx = 1": ({"x": 1}, {"z": "line 2: x is unknown (line 1: y is not defined in this file)"}),
    "x = y = z": ({}, dict.fromkeys("xy", "line 1: z is not defined in this file")),
    "if 'a':\n    b = 1\nelse:\n    b = 2\nif '':\n    c = 1\nelse:\n    c = 2\nif 0:\n    d = 1": (
        {"b": 1, "c": 2},
        {},
    ),
    "x = ['a']\nif y:\n    x.append('b')\n    z = 1": (
        {},
        dict.fromkeys("xz", "line 2: y is not defined in this file"),
    ),
    "import os as o, sys": ({}, dict.fromkeys(("o", "sys"), "line 1: import statements are not evaluated")),
    "def f():\n    y = 1": ({}, dict.fromkeys("fy", "line 1: functiondef statements are not evaluated")),
    "class C: pass": ({}, {"C": "line 1: classdef statements are not evaluated"}),
    "for n in 'ab':\n    x = n": ({}, dict.fromkeys("nx", "line 1: for statements are not evaluated")),
    "with open('x') as f: pass": ({}, {"f": "line 1: with statements are not evaluated"}),
    "n = 'kept'\nx = [n for n in ('a', 'b')]\ny = [m for m in ('c',)]": (
        {"n": "kept", "x": ("a", "b"), "y": ("c",)},
        {},
    ),
}


@pytest.mark.parametrize("expression", VALUES)
def test_the_value_of_an_expression(expression: str) -> None:
    constants = evaluate(f"x = {expression}\n")
    assert constants.unknown == {}
    value = constants.values["x"]
    assert (value, type(value)) == (VALUES[expression], type(VALUES[expression]))


@pytest.mark.parametrize("expression", UNKNOWN)
def test_an_expression_without_a_value(expression: str) -> None:
    constants = evaluate(f"before = open('x')\nx = 1\nx = {expression}\n")
    assert constants.unknown["x"] == f"line 3: {UNKNOWN[expression]}"
    assert "x" not in constants.values


@pytest.mark.parametrize("text", FILES)
def test_the_statements_of_a_file(text: str) -> None:
    constants = evaluate(text)
    assert (constants.values, constants.unknown) == FILES[text]


def test_reasons_are_short() -> None:
    name = "n" * 300
    assert evaluate(f"x = {{}}['{name}']").unknown["x"] == f"line 1: KeyError: '{name}"[: 200 + len("line 1: ")]
    assert len(evaluate(f"{name} = y\nx = {name}").unknown["x"]) == len("line 2: ") + 200


def test_what_is_not_pythons_syntax() -> None:
    with pytest.raises(CannotImportError) as caught:
        evaluate("x = 1\ny = = 2\n")
    assert caught.value.message == "line 2: invalid Python: invalid syntax"


def test_an_escape_that_python_warns_of_is_read() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate("x = '\\d'").values == {"x": "\\d"}


# each is at the limit of one text, or of all of them together, once it is one letter or one item longer
LONG = (
    "y = x + 'b'",
    "y = f'{x}b'",
    "y = z + z",
    "y = x * 2",
    "y = '%sb' % x",
    "y = x.replace('a', 'ab')",
    "y = ''.join([x, 'b'])",
    "y = '{}b'.format(x)",
)


@pytest.mark.parametrize("line", LONG)
def test_no_text_or_list_is_made_that_is_too_long(line: str) -> None:
    head = f"x = 'a' * {1 << 20}\nz = ['a'] * {(1 << 19) + 1}\n"
    with pytest.raises(CannotImportError, match="it creates a text or a list that is too long"):
        evaluate(head + line)
    assert evaluate(head).unknown == {}


COSTLY = (
    "x[1:]",
    "x.upper()",
    "'b' in x",
    "1 in z",
    "x + ''",
    "'%s' % z",
    "''.join(z)",
    "x.replace('b', '')",
    f"[{'*z, ' * 10}]",
)


@pytest.mark.parametrize("expression", COSTLY)
def test_what_is_done_again_and_again_is_counted(expression: str) -> None:
    head = f"x = 'a' * {1 << 20}\nz = ['a'] * {1 << 17}\n"
    with pytest.raises(CannotImportError, match="it creates a text or a list that is too long"):
        evaluate(head + f"y = {expression}\n" * 20)
