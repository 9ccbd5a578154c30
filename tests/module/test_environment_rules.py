"""The environment as loads and unloads compute it, by the interpreters alone: the rules are the same in Lua and Tcl.

What a module tool gives to a modulefile is a few lines here: variables that are read and set, and whether it unloads.
"""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import sifmod.module
from sifmod.module import quote

SHARE = Path(sifmod.module.__file__).parent / "templates" / "share"
LUA = """
local variables, current, failed = {}, "load", false
os.getenv = function(name) return variables[name] end
function mode() return current end
mcp, MCP = { name = "load" }, { name = "positive" }
function setenv(name, text)
   assert(type(text) == "string")
   if mcp.name == "unload" then variables[name] = nil else variables[name] = text end
end
function unsetenv(name) variables[name] = nil end
function LmodError(message) error("\\1" .. message, 0) end
local function become(wanted) current = wanted; mcp = { name = wanted } end
local function attempt(what, ...)
   local before = mcp
   local done, message = pcall(what, ...)
   if done then assert(mcp == before) else failed = message end
end
"""
LUA_END = """
if failed then io.write("!", failed, "\\0") end
for name, text in pairs(variables) do io.write(name, "=", text, "\\0") end
"""
TCL = """
set current load
proc getenv {name {none {}}} {
    global variables
    if {[info exists variables($name)]} {return $variables($name)}
    return $none
}
proc module-info {what mode} {global current; return [expr {$current eq $mode}]}
proc setenv {name text} {
    global variables current
    if {$current eq "remove"} {unset -nocomplain variables($name)} else {set variables($name) $text}
}
proc unsetenv {name args} {
    global variables current
    if {$current eq "remove"} {set variables($name) [lindex $args 0]} else {unset -nocomplain variables($name)}
}
proc sifmod_fail {message} {error "\\1$message"}
proc attempt {args} {if {[catch $args message]} {set ::failed $message}}
set failed {}
array set variables {}
"""
TCL_END = """
fconfigure stdout -translation binary -encoding utf-8
if {$failed ne {}} {puts -nonewline "!$failed\\0"}
foreach {name text} [array get variables] {puts -nonewline "$name=$text\\0"}
"""


@dataclass(frozen=True)
class Want:
    """What a module wants."""

    key: str
    binds: Sequence[str] = ()
    path: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=dict)
    runtime: str = "apptainer"
    defaults: dict[str, str] = field(default_factory=dict)

    def lua(self) -> str:
        binds, path = (", ".join(map(quote.lua, items)) for items in (self.binds, self.path))
        variables, defaults = (
            ", ".join(f"[{quote.lua(name)}] = {quote.lua(text)}" for name, text in values.items())
            for values in (self.variables, self.defaults)
        )
        return (
            f'become("load"); attempt(environment.load, "{self.key}", {{ runtime = "{self.runtime}", '
            f"binds = {{ {binds} }}, path_inside = {{ {path} }}, set = {{ {variables} }}, "
            f'default = {{ {defaults} }}, generation = "/g/{self.key}" }})'
        )

    def tcl(self) -> str:
        binds, path = (f"[list {' '.join(map(quote.tcl, items))}]" for items in (self.binds, self.path))
        variables = " ".join(f"{quote.tcl(name)} [list {quote.tcl(text)}]" for name, text in self.variables.items())
        defaults = " ".join(f"{quote.tcl(name)} {quote.tcl(text)}" for name, text in self.defaults.items())
        return (
            f"set current load; attempt sifmod_environment_load {self.key} [dict create runtime {self.runtime} "
            f"binds {binds} path_inside {path} set [dict create {variables}] "
            f"default [dict create {defaults}] generation /g/{self.key}]"
        )


Step = Want | str | dict[str, str | None]  # a load, the key of an unload, or what the user sets himself
Run = Callable[..., dict[str, str]]


def by_lua(*steps: Step, **users: str) -> dict[str, str]:
    lines = [LUA, f"local environment = (function()\n{(SHARE / 'environment.lua').read_text()}\nend)()"]
    for step in (dict(users), *steps):
        if isinstance(step, Want):
            lines.append(step.lua())
        elif isinstance(step, str):
            lines.append(f'become("unload"); attempt(environment.unload, "{step}")')
        else:
            lines += (f"variables.{name} = {'nil' if text is None else quote.lua(text)}" for name, text in step.items())
    return said("lua", "\n".join((*lines, LUA_END)))


def by_tcl(*steps: Step, **users: str) -> dict[str, str]:
    lines = [TCL, (SHARE / "environment.tcl").read_text()]
    for step in (dict(users), *steps):
        if isinstance(step, Want):
            lines.append(step.tcl())
        elif isinstance(step, str):
            lines.append(f"set current remove; attempt sifmod_environment_unload {step}")
        else:
            lines += (
                f"unset -nocomplain variables({name})" if text is None else f"set variables({name}) {quote.tcl(text)}"
                for name, text in step.items()
            )
    return said("tclsh", "\n".join((*lines, TCL_END)))


def said(interpreter: str, text: str) -> dict[str, str]:
    """The variables at the end; a message of a load that failed is under `!`."""
    arguments = (interpreter, "-") if interpreter == "lua" else (interpreter,)
    done = subprocess.run(arguments, input=text.encode(), capture_output=True, check=True)
    assert done.stderr == b""
    found: dict[str, str] = {}
    for each in done.stdout.decode().split("\0")[:-1]:
        name, _, value = ("!", "", each[1:]) if each.startswith("!") else each.partition("=")
        found[name] = value.removeprefix("\x01")
    return found


@pytest.fixture(params=[by_lua, by_tcl], ids=["lua", "tcl"])
def after(request: pytest.FixtureRequest) -> Run:
    """The environment after some steps."""
    run: Run = request.param
    return run


def lists(found: dict[str, str], suffix: str = "_BINDPATH") -> tuple[str | None, str | None]:
    return found.get(f"SINGULARITY{suffix}"), found.get(f"APPTAINER{suffix}")


def test_a_load_and_what_is_kept_of_it(after: Run) -> None:
    want = Want("A", ("/a", "/b:/c:ro,id=1"), ("/p", "/q"), {"X": "1", "Y": "a;b%c~d"})
    assert after(want, X="mine", Z="stays") == {
        "X": "1",
        "Y": "a;b%c~d",
        "Z": "stays",
        "SINGULARITY_BINDPATH": "/a,/b:/c:ro,id=1",
        "APPTAINER_BINDPATH": "/a,/b:/c:ro,id=1",
        "SINGULARITYENV_PREPEND_PATH": "/p:/q",
        "APPTAINERENV_PREPEND_PATH": "/p:/q",
        "_SIFMOD_LOADED": "A",
        "_SIFMOD_GENERATION_A": "/g/A",
        "_SIFMOD_WANT_A": "1;apptainer;/a,/b:/c:ro,id=1;/p:/q;X=1;Y=a%3Bb%25c%7Ed",
        "_SIFMOD_BASE": "1;APPTAINERENV_PREPEND_PATH;APPTAINER_BINDPATH;SINGULARITYENV_PREPEND_PATH;"
        "SINGULARITY_BINDPATH;X=mine;Y",
        "_SIFMOD_BINDS": "/a,/b:/c:ro,id=1",
    }
    assert after(want, "A", X="mine", Z="stays") == {"X": "mine", "Z": "stays"}


def test_a_module_without_lists_leaves_them_alone(after: Run) -> None:
    found = after(Want("A", variables={"X": "1"}), SINGULARITY_BINDPATH="/mine//")
    assert found == {
        "X": "1",
        "SINGULARITY_BINDPATH": "/mine//",
        "_SIFMOD_LOADED": "A",
        "_SIFMOD_GENERATION_A": "/g/A",
        "_SIFMOD_WANT_A": "1;apptainer;;;X=1",
        "_SIFMOD_BASE": "1;X",
        "_SIFMOD_BINDS": "",
    }


def test_the_users_binds_come_first_and_one_a_target(after: Run) -> None:
    users = {"SINGULARITY_BINDPATH": "/s:/t,/u,/a\\:b:/v", "APPTAINER_BINDPATH": "/w,/x:/t/,/opt:/o:ro,image-src=/i"}
    found = after(Want("A", ("/m:/t", "/n:/u/", "/a:/v", "/w//", "/new:/y", "/z")), **users)
    wanted = "/s:/t,/u,/a\\:b:/v,/w,/opt:/o:ro,image-src=/i,/new:/y,/z"
    assert lists(found) == (wanted, wanted)
    assert found["_SIFMOD_BINDS"] == "/new:/y,/z"
    left = after(Want("A", ("/m:/t",)), "A", **users)
    assert left == users


@pytest.mark.parametrize("option", ["ro", "rw", "id=3", "image-src=/x"])
def test_an_option_stays_with_its_bind(after: Run, option: str) -> None:
    found = after(Want("A", ("/z",)), SINGULARITY_BINDPATH=f"/a:/b:ro,{option},/c", APPTAINER_BINDPATH=f"{option},/d")
    wanted = f"/a:/b:ro,{option},/c,{option},/d,/z"
    assert lists(found) == (wanted, wanted)


def test_a_comma_in_a_path_of_the_users(after: Run) -> None:
    found = after(Want("A", ("/z",)), SINGULARITY_BINDPATH="/a\\,b,,/c")
    assert lists(found) == ("/a\\,b,/c,/z",) * 2


def test_what_loads_later_stands_first_and_the_first_of_one_target_counts(after: Run) -> None:
    both = (Want("A", ("/a:/t", "/b"), ("/p", "/q")), Want("B", ("/c:/t", "/d"), ("/r", "/p/")))
    found = after(*both)
    assert lists(found) == ("/c:/t,/d,/b",) * 2
    assert lists(found, "ENV_PREPEND_PATH") == ("/r:/p/:/q",) * 2
    assert (found["_SIFMOD_LOADED"], found["_SIFMOD_BINDS"]) == ("A:B", "/c:/t,/d,/b")
    assert (found["_SIFMOD_GENERATION_A"], found["_SIFMOD_GENERATION_B"]) == ("/g/A", "/g/B")
    assert lists(after(*both, "B")) == ("/a:/t,/b",) * 2
    assert lists(after(*both, "A")) == ("/c:/t,/d",) * 2
    assert after(*both, "A", "B") == after(*both, "B", "A") == {}


def test_a_module_that_is_loaded_again_is_the_last(after: Run) -> None:
    found = after(
        Want("A", ("/a",), (), {"X": "1", "Y": "1"}), Want("B", ("/b",), (), {"X": "2"}), Want("A", ("/c",)), X="0"
    )
    assert (found["_SIFMOD_LOADED"], found["X"], "Y" in found) == ("B:A", "2", False)
    assert lists(found) == ("/c,/b",) * 2
    assert found["_SIFMOD_GENERATION_A"] == "/g/A"


def test_the_last_value_counts_until_it_is_unloaded(after: Run) -> None:
    both = (Want("A", variables={"X": "1", "Y": "1"}), Want("B", variables={"X": "2", "Z": "2"}))
    found = after(*both, X="mine")
    assert (found["X"], found["Y"], found["Z"]) == ("2", "1", "2")
    assert after(*both, "A", X="mine")["X"] == "2"
    assert after(*both, "B", X="mine")["X"] == "1"
    assert after(*both, "A", "B", X="mine") == {"X": "mine"}


def test_singularityce_reads_its_own_spelling_only(after: Run) -> None:
    want = Want("A", ("/a",), ("/p",), runtime="singularity")
    users = {"APPTAINER_BINDPATH": "/mine"}
    found = after(want, **users)
    assert lists(found) == ("/mine,/a", "/mine")
    assert lists(found, "ENV_PREPEND_PATH") == ("/p", None)
    assert after(want, "A", **users) == users
    mixed = after(want, Want("B", ("/b",)), **users)
    assert lists(mixed) == ("/mine,/b,/a",) * 2
    assert lists(after(want, Want("B", ("/b",)), "B", **users)) == ("/mine,/a", "/mine")


def test_what_the_user_adds_to_a_list_meanwhile_stays(after: Run) -> None:
    want = Want("A", ("/a",), ("/p",))
    added = {"SINGULARITY_BINDPATH": "/mine,/a,/more", "SINGULARITYENV_PREPEND_PATH": "/own:/p"}
    assert after(want, added, "A") == {"SINGULARITY_BINDPATH": "/mine,/more", "SINGULARITYENV_PREPEND_PATH": "/own"}
    later = after(want, added, Want("B", ("/b",)))
    assert lists(later) == ("/mine,/more,/b,/a",) * 2


def test_what_the_user_takes_from_a_list_stays_away(after: Run) -> None:
    users = {"SINGULARITY_BINDPATH": "/mine,/other"}
    found = after(Want("A", ("/a",)), {"SINGULARITY_BINDPATH": "/mine,/a"}, "A", **users)
    assert found == {"SINGULARITY_BINDPATH": "/mine"}
    for nothing in ("", None):
        left = after(Want("A", ("/a",)), {"SINGULARITY_BINDPATH": nothing}, "A", **users)
        assert left == ({} if nothing is None else {"SINGULARITY_BINDPATH": ""})


def test_another_spelling_of_a_list_is_no_change(after: Run) -> None:
    users = {"SINGULARITY_BINDPATH": "/mine//x/:/t,/mine/x:/t/"}
    assert after(Want("A", ("/a/b",)), {"SINGULARITY_BINDPATH": "/mine/x:/t,/a//b/"}, "A", **users) == users


def test_what_the_user_sets_meanwhile_is_his_from_then_on(after: Run) -> None:
    both = (Want("A", variables={"X": "1", "Y": "1"}), Want("B", variables={"X": "2"}))
    assert after(*both, {"X": "new"}, "B", X="old")["X"] == "new"
    assert after(*both, {"X": "new"}, "B", "A", X="old") == {"X": "new"}
    assert after(*both, {"X": None}, "A", "B", X="old") == {}
    found = after(*both, {"X": "new"}, Want("C", variables={"Z": "3"}), X="old")
    assert (found["X"], found["Y"], found["Z"]) == ("new", "1", "3")
    assert "X" not in found["_SIFMOD_WANT_A"] + found["_SIFMOD_BASE"]
    assert after(*both, {"X": "new"}, Want("C", variables={"X": "3"}), "C", X="old")["X"] == "new"


def test_values_of_any_kind_come_back(after: Run) -> None:
    for value in ("", "a;b", "%3B", "a=b", "~/x", "\\ {a} [b] $c \"d\" 'e'", "é\t\x7f", "a%25;%7E~"):
        want = Want("A", variables={"X": value, "Y": "1"})
        found = after(want, Want("B", variables={"Y": "2"}), "B", X=value, Y=value)
        assert (found["X"], found["Y"]) == (value, "1")
        assert after(want, "A", X=value, Y=value) == {"X": value, "Y": value}


def test_a_line_break_that_no_module_can_give_back(after: Run) -> None:
    found = after(Want("A", variables={"X": "1"}), X="a\nb", Y="c\nd")
    assert found == {
        "!": "X contains a line break, which no module can restore; unset it; nothing was changed",
        "X": "a\nb",
        "Y": "c\nd",
    }
    listed = after(Want("A", ("/a",)), APPTAINER_BINDPATH="/a\n/b")
    assert listed["!"].startswith("APPTAINER_BINDPATH contains a line break")


def test_a_record_of_another_version_is_not_touched(after: Run) -> None:
    users = {"_SIFMOD_LOADED": "Old", "_SIFMOD_WANT_Old": "2;x", "_SIFMOD_BASE": "1;X=1", "X": "2"}
    found = after(Want("A", variables={"X": "3"}), **users)
    assert found == {
        "!": "Old was loaded by another version of sifmod; unload it first; nothing was changed",
        **users,
    }


def test_unloading_what_was_never_loaded_changes_nothing(after: Run) -> None:
    users = {"X": "1", "SINGULARITY_BINDPATH": "/a,/a"}
    assert after("A", **users) == users
    assert after(Want("B", variables={"X": "2"}), "A", "B", **users) == users


def test_a_module_that_is_unknown_meanwhile_does_not_keep_others_from_unloading(after: Run) -> None:
    found = after(
        Want("A", ("/a",), (), {"X": "1"}), {"_SIFMOD_LOADED": "Old:A", "_SIFMOD_WANT_Old": "2;x"}, "A", X="0"
    )
    assert (found["X"], lists(found)) == ("0", (None, None))
    assert "_SIFMOD_WANT_A" not in found
    assert "_SIFMOD_GENERATION_A" not in found


def test_a_default_is_for_those_who_have_no_value(after: Run) -> None:
    """Not even an empty one, nor one of another module's; and once it is the user's it stays so."""
    one, other = Want("A", defaults={"X": "1", "Y": "~;"}), Want("B", variables={"X": "b"})
    found = after(one)
    assert (found["X"], found["Y"]) == ("1", "~;")
    assert after(one, "A") == {}
    for mine in ("mine", ""):
        assert after(one, X=mine)["X"] == mine
        assert after(one, "A", X=mine) == {"X": mine}
        assert after(one, {"X": mine}, one)["X"] == mine
        assert after(one, {"X": mine}, "A") == {"X": mine}
    assert after(one, one)["X"] == "1"
    assert after(one, one, "A") == {}
    assert after(other, one)["X"] == after(one, other)["X"] == after(other, one, "A")["X"] == "b"
    assert after(one, other, "B")["X"] == after(one, Want("B", defaults={"X": "2"}))["X"] == "1"
    assert "X" not in after(other, one, "B")
    assert after(one, other, "A", "B") == after(one, other, "B", "A") == {}
    assert after(one, Want("B", defaults={"X": "2"}), "A", "B", X="mine") == {"X": "mine"}
