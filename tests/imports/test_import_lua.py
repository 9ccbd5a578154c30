"""What is read of a Lua modulefile: values of expressions, calls of statements, reasons of refusals."""

import shutil
import subprocess

import pytest

from sifmod.imports.lua import read_lua
from sifmod.imports.lua_values import HOLE, Environment, Table, Value
from sifmod.imports.result import CannotImportError

VALUES: dict[str, Value] = {
    "nil": None,
    "true": True,
    "false": False,
    "unset": None,
    "'a' .. \"b\" .. [[c]] .. [==[\nd]]e]==]": "abcd]]e",
    "1 .. 2.5 .. 0x10 .. 0X1f .. 1e-1 .. 1e15": "12.516310.11e+15",
    "99999999999999 .. 12345678901234567890": "999999999999991.2345678901235e+19",
    **dict.fromkeys(("1.0 .. ''", "1.5e1 .. ''", "100000000000000 .. ''", f"0x{'f' * 300} .. ''"), HOLE),
    f"0x{'f' * 300} == 0x{'f' * 300}": True,
    r"'\255 \xc3 \u{d800}\u{110000} \u{e001}\238\128\128'": f"{HOLE} {HOLE} {HOLE} {HOLE}",
    r"'\q\/\x4\u{}\u41'": "q/x4u{}u41",
    "'\\\r\nx' .. [[\r\na\r\nb]]": "\nxa\nb",
    "'\x00\x1f\x7f\ue000\uf8ff'": f"\x00\x1f\x7f{HOLE}",
    "'a' .. nil": f"a{HOLE}",
    "('a')": "a",
    "((('a') .. 'b'))": "ab",
    "not nil": True,
    "not false": True,
    "not os.getenv('X')": True,
    "not 'a'": False,
    "not not 'a'": True,
    "not ''": False,
    "not 0": False,
    "not capture('x')": HOLE,
    "not x.y": HOLE,
    "nil or 'b'": "b",
    "'a' or 'b'": "a",
    "false or nil": None,
    "nil or false or 'c' or 'd'": "c",
    "os.getenv('X') or 'b'": "b",
    "capture('x') or 'b'": HOLE,
    "'a' and 'b'": "b",
    "nil and 'b'": None,
    "false and 'b'": False,
    "'a' and nil and 'c'": None,
    "capture('x') and 'b'": HOLE,
    "nil and 'a' or 'b'": "b",
    "'a' == 'a'": True,
    "'a' == 'b'": False,
    "'a' ~= 'b'": True,
    "'a' ~= 'a'": False,
    "1 == 1.0": True,
    "os.getenv('X') == nil": True,
    "nil ~= os.getenv('X')": False,
    "os.getenv('X') == ''": False,
    "capture('x') == ''": HOLE,
    "'' ~= capture('x')": HOLE,
    "{} == {}": HOLE,
    "{} == nil": HOLE,
    "'a' == 'a' == true": HOLE,
    "1 < 2": HOLE,
    "1 > 2": HOLE,
    "1 <= 2": HOLE,
    "1 >= 2": HOLE,
    "1 + 2 - 3 * 4 / 5 % 6 ^ 7": HOLE,
    "'a' .. 1 + 1": f"a{HOLE}",
    "-1": HOLE,
    "#'abc'": HOLE,
    "x.y": HOLE,
    "x['a']": HOLE,
    "x['a'].b": HOLE,
    "x:lower('a')": HOLE,
    "x:lower'a'": HOLE,
    "g(1)(2)": HOLE,
    "...": HOLE,
    "function(a, ...) return a end": HOLE,
    "function() end": HOLE,
    "g('a')": HOLE,
    "os.getenv('X')": Environment("X"),
    "os.getenv()": HOLE,
    "mode()": "load",
    "myModuleName()": "tool",
    "myModuleVersion()": "1.0",
    "myModuleFullName()": "tool/1.0",
    "isloaded('x')": False,
    "isFile('/x')": False,
    "isDir('/x')": False,
    "pathJoin('/a/', '/b', 'c')": "/a/b/c",
    "pathJoin('/a')": "/a",
    "tostring(3)": "3",
    "tostring('Ab')": "Ab",
    "tostring()": HOLE,
    "tostring 'x'": "x",
    "string.lower('Ab')": "ab",
    "string.lower()": HOLE,
    "string.upper('Ab')": HOLE,
    "table.concat(list)": "ab",
    "table.concat(list, ', ')": "a, b",
    "table.concat({'x', 'y'})": "xy",
    "table.concat()": HOLE,
    "table.concat('ab', ',')": HOLE,
    "table.insert(list, 'c')": None,
    "table.insert(list)": HOLE,
    "table.insert('a', 'b')": HOLE,
    "list": Table(["a", "b"]),
    "mixed": Table(["a", "e"], [("x", "b"), ("c", "d")]),
    "{'}', '[', 'end', 'not', '-'}": Table(["}", "[", "end", "not", "-"]),
    "'not'": "not",
    "names": Table([None, Table(["a", "b"])]),
}
LISTS = (
    "local list = {'a', 'b'}\nlocal mixed = {'a', x = 'b', ['c'] = 'd'; 'e', y = nil,}\nlocal names = {unset, list}\n"
)

# the calls of f with their arguments, the unsure ones with a question mark before them
CALLS: dict[str, list[tuple[Value, ...]]] = {
    "f()": [()],
    "f 'a' f'b' f[[c]]": [("a",), ("b",), ("c",)],
    "f(')', '(') f '{'": [(")", "("), ("{",)],
    "f{'a', 'b'}": [("a", "b")],
    "f({'a', 'b'})": [("a", "b")],
    "f({'a'}, 'b')": [(Table(["a"]), "b")],
    ";;f(1);;f(2);": [(1.0,), (2.0,)],
    "a = 'x' f(a)": [("x",)],
    "local a f(a)": [(None,)],
    "local a, b = 'x' f(a, b)": [("x", None)],
    "local a, b = 'x', 'y' f(b, a)": [("y", "x")],
    "a, b = 'x', 'y' f(b, a)": [("y", "x")],
    "a, b = b, a f(a)": [(None,)],
    "do f(1) end f(2)": [(1.0,), (2.0,)],
    "if nil then f(1) elseif 'x' then f(2) else f(3) end f(4)": [(2.0,), (4.0,)],
    "if false then f(1) else f(2) end f(3)": [(2.0,), (3.0,)],
    "if nil then f(1) elseif nil then f(2) end f(3)": [(3.0,)],
    "if 'x' then f(1) elseif 'x' then f(2) end": [(1.0,)],
    "if capture('x') then f(1) else f(2) end f(3)": [("?", 1.0), ("?", 2.0), (3.0,)],
    "if capture('x') then f(1) elseif true then f(2) else f(3) end f(4)": [("?", 1.0), ("?", 2.0), (4.0,)],
    "if true then if capture('x') then f(1) end f(2) end": [("?", 1.0), (2.0,)],
    "if capture('x') then if true then f(1) end f(2) end f(3)": [("?", 1.0), ("?", 2.0), (3.0,)],
    "for i, v in ipairs({'a', 'b'}) do f(i, v) end f(v)": [(1, "a"), (2, "b"), (None,)],
    "for i in pairs({'a', 'b'}) do f(i) end": [(1.0,), (2.0,)],
    "for k, v in pairs({FOO = 'a', [2] = 'b', 'c'}) do f(k, v) end": [(1, "c"), ("FOO", "a"), (2, "b")],
    "for k, v in ipairs({FOO = 'a', 'c'}) do f(k, v) end": [(1, "c")],
    "f{'A', 'b', delim = ';', priority = 1}": [("A", "b", ";")],
    # a local variable is that of its block, and hides another of its name
    "local a = 'x' do local a = 'y' f(a) end f(a)": [("y",), ("x",)],
    "local a = 'x' do local a a = 'y' end f(a)": [("x",)],
    "local a = 'x' do do a = 'y' end b = 'z' end f(a, b)": [("y", "z")],
    "if true then local a = 'x' f(a) else local a = 'z' end f(a)": [("x",), (None,)],
    "if true then a = 'x' end f(a)": [("x",)],
    "if nil then else local a = 'x' end f(a)": [(None,)],
    "local a = 'x' for a in ipairs({'y'}) do local a = a .. a end f(a)": [("x",)],
    "local a = '' for _, v in ipairs({'y', 'z'}) do a = a .. v end f(a)": [("yz",)],
    "local a = 'x' do local a = a .. 'y' f(a) end f(a)": [("xy",), ("x",)],
    "a = 'x' b = 'y' c = 'z' while d do a = 1 local b b = 2 for i = 1, 2 do i = 3 c = 4 end end f(a, b, c, i)": [
        (HOLE, "y", HOLE, None)
    ],
    "a = 'x' b = 'y' for b in capture('x') do a, b = 1, 2 end f(a, b)": [(HOLE, "y")],
    "do local function g() end function h() end end f(g, h)": [(None, HOLE)],
    "local t = {} for _, v in pairs(t) do f(v) end": [],
    "local t = {'a'} for _, v in pairs(t) do table.insert(t, 'b') end f(t)": [(Table(["a", "b"]),)],
    "a.b = 'x' f(a.b)": [(HOLE,)],
    "a.b.c('x') f(1)": [(1.0,)],
    "local function g(x) f(x) end f(g, 1)": [(HOLE, 1.0)],
    "local t = {'a', 'b'} table.insert(t, 2, 'c') f(t)": [(Table(["a", "c", "b"]),)],
    "local t = {'a'} table.insert(t, 9, 'c') f(t)": [(Table(["a", "c"]),)],
    "a, b[1] = 'x', 'y' f(a)": [(HOLE,)],
    "return f(1)": [],
    "if true then return end f(1)": [(1.0,)],
    "if true then return else f(2) end f(1)": [(1.0,)],
    "if nil then return 1 elseif true then f(2) end f(1)": [(2.0,), (1.0,)],
    "if true then return elseif true then f(2) end f(1)": [(1.0,)],
    "repeat return until f(1) f(2)": [(2.0,)],
    "return; f(1)": [(1.0,)],
    "f(f(1))": [(1.0,), (HOLE,)],
}

SKIPPED = {
    "for k in capture('x') do f(1) end": "a loop over anything but a list is not supported",
    "for k in x do f(1) end": "a loop over anything but a list is not supported",
    "for k in pairs() do f(1) end": "a loop over anything but a list is not supported",
    "for i = 1, 3 do f(i) end": "line 1: a loop is not supported",
    "for i in x, y do f(i) end": "line 1: a loop is not supported",
    "\nwhile x do f(1) end": "line 2: a loop is not supported",
    "\nrepeat f(1) until x == 1": "line 2: a loop is not supported",
    "local function g(a, b) return a end": "line 1: a function definition is not supported",
    "function g(a) return a end": "line 1: a function definition is not supported",
    "function t.h() end": "line 1: a function definition is not supported",
    "function t.u:m(x) f(x) end": "line 1: a function definition is not supported",
    "a['b'] = 'x'": "line 1: this kind of assignment is not supported",
    "\n\na, b[1] = 'x', 'y'": "line 3: this kind of assignment is not supported",
    "x:y('a')": "line 1: a method call is not supported",
    "('x'):rep(3)": "line 1: a method call is not supported",
    "g(1)(2)": "line 1: a call is not supported",
    "return 1, 2": "line 1: the end of execution (return) is not supported",
    "\nbreak": "line 2: the end of execution (break) is not supported",
}

REFUSED = {
    "f(": "line 1: not Lua: unexpected end",
    "\nf(1": "line 2: not Lua: expected ), got the end",
    "end": "line 1: not Lua: unexpected end",
    "f(1)\nthen": "line 2: not Lua: unexpected then",
    "x = 1 )": "line 1: not Lua: unexpected )",
    "x = = 1": "line 1: not Lua: unexpected =",
    "if x f(1) end": "line 1: not Lua: expected then, got f",
    "if x then f(1)": "line 1: not Lua: expected end, got the end",
    "if x then else f(1) elseif y then end": "line 1: not Lua: unexpected elseif",
    "for x f": "line 1: not Lua: expected in, got f",
    "for x in y f": "line 1: not Lua: expected do, got f",
    "for x in y do": "line 1: not Lua: expected end, got the end",
    "while x f() end": "line 1: not Lua: expected do, got f",
    "while x do f()": "line 1: not Lua: expected end, got the end",
    "repeat f()": "line 1: not Lua: expected until, got the end",
    "do f()": "line 1: not Lua: expected end, got the end",
    "x = {1, 2": "line 1: not Lua: expected }, got the end",
    "x = {1 2}": "line 1: not Lua: expected }, got 2",
    "x = {'a' = 1}": "line 1: not Lua: expected }, got =",
    "x = {['a'] 1}": "line 1: not Lua: expected =, got 1",
    "x = {['a' = 1}": "line 1: not Lua: expected ], got =",
    "x = a['b'": "line 1: not Lua: expected ], got the end",
    "x = ('a'": "line 1: not Lua: expected ), got the end",
    "x = function(a end": "line 1: not Lua: expected ), got the end",
    "x = function a end": "line 1: not Lua: expected (, got a",
    "x = function() f()": "line 1: not Lua: expected end, got the end",
    "local function g() f()": "line 1: not Lua: expected end, got the end",
    "x": "line 1: not Lua: expected a statement",
    "\n'x'": "line 2: not Lua: expected a statement",
    "x, y": "line 1: not Lua: expected a statement",
    "f(x " + "y" * 60: "line 1: not Lua: expected ), got " + "y" * 40,
    "f(1)\n\n@" + "a" * 30: "line 3: not Lua: '@" + "a" * 19 + "'",
    "\nx = 'open\n'": "line 2: not Lua: \"'open\\n'\"",
    "f(1) --[[ open": "line 1: not Lua: unclosed text or comment in brackets",
    "f(1)\nx = [==[ open ]]": "line 2: not Lua: unclosed text or comment in brackets",
    "\nx = '\\300'": "line 2: not Lua: invalid escape \\300",
}


@pytest.mark.parametrize("expression", VALUES)
def test_the_value_of_an_expression(expression: str) -> None:
    *_, call = read_lua(f"{LISTS}f('', {expression})", "tool", "1.0").calls
    assert (call.function, call.arguments) == ("f", ("", VALUES[expression]))


@pytest.mark.parametrize(
    ("text", "newer"),
    [
        (r"'\n\t\r\a\b\f\v\\\'\"\65\065\0651\226\130\172'", False),
        (r"'\x41\x4a\xC3\xa9'", True),
        (r"'\u{41}\u{020AC}'", True),
        ("'a\\z \n\t b\\z'", True),
        ('"a\\\nb\\\\x41\\\\"', False),
        ("[[\n\na\n]]", False),
        ("[=[]]\\x41]=]", False),
    ],
)
def test_a_text_is_what_lua_reads(text: str, newer: bool) -> None:
    """Held to the Lua that Debian's Lmod runs on; where Lua 5.1 reads another text a note says so."""
    lua = shutil.which("lua5.3") or "lua"
    value = subprocess.run((lua, "-e", f"io.write({text})"), capture_output=True, check=True).stdout.decode()
    read = read_lua(f"\nf({text})", "tool", "1.0")
    assert read.calls[0].arguments == (value,)
    note = r"line 2: \x, \u and \z in a text are read as in Lua 5.3; Lua 5.1 drops the backslash"
    assert read.skipped == ((note,) if newer else ())


@pytest.mark.parametrize("text", CALLS)
def test_the_calls_that_are_made(text: str) -> None:
    calls = [call for call in read_lua(text, "tool", "1.0").calls if call.function == "f"]
    assert [(*(() if call.sure else ("?",)), *call.arguments) for call in calls] == CALLS[text]


@pytest.mark.parametrize("text", SKIPPED)
def test_what_is_read_over_is_told_once(text: str) -> None:
    read = read_lua(text, "tool", "1.0")
    assert (read.skipped, [call for call in read.calls if call.function == "f"]) == ((SKIPPED[text],), [])
    assert read_lua("for k in x do end for k in y do end", "tool", "1.0").skipped == (
        "a loop over anything but a list is not supported",
    )


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_lua(text: str) -> None:
    with pytest.raises(CannotImportError) as caught:
        read_lua(text, "tool", "1.0")
    assert caught.value.message == REFUSED[text]


def test_each_call_knows_its_line() -> None:
    """Over comments of both kinds, texts of several lines, and statements of several lines."""
    text = (
        "-- f(0)\nf(1) --[[ f(0)\nf(0) ]] f(2)\n--[==[\n]]\n]==]\nf([[\n\n]])\nf('a\\\nb')\nf(\n1,\n2)\n--[ f(0)\nf()"
    )
    assert [call.line for call in read_lua(text, "tool", "1.0").calls] == [2, 3, 7, 10, 12, 16]


def test_variables_are_known_at_the_end() -> None:
    read = read_lua("a = 'x' local b, c = {'y'}, 2 local function d() end\ta = a .. 'z'\r\n", "tool", "1.0")
    assert read.variables == {"_name": "tool", "_version": "1.0", "a": "xz", "b": Table(["y"]), "c": 2.0, "d": HOLE}


def test_the_texts_among_the_arguments() -> None:
    (call,) = read_lua("f('a', 1, nil, {'b'}, 'c')", "tool", "1.0").calls
    assert call.texts == ("a", "c")


def test_texts_and_lists_are_counted_while_they_are_made() -> None:
    """Each of the ways that make a text longer, at the length that is too long by one."""
    half = "'" + "a" * (1 << 19) + "'"
    for made in (
        f"x = {half} .. {half} .. 'b'",
        f"f({half}, {half}, 'b')",
        f"x = pathJoin({half}, {half})",
        f"local t = {{{half}, {half}}} x = table.concat(t, 'b')",
    ):
        with pytest.raises(CannotImportError, match="creates a text or a list that is too long"):
            read_lua(made, "tool", "1.0")
    read_lua(f"x = {half} .. {half}", "tool", "1.0")
