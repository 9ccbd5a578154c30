"""A Lua modulefile that starts a container: what each line of it becomes, and every note."""

from pathlib import Path

import pytest

from sifmod.imports.budget import CannotImportError, Imported, Value
from sifmod.imports.modulefile import read_modulefile

URI = "oras://registry.example/bio/tool:2.0"
START = f'set_alias("tool", "singularity exec {URI} tool")\n'
NO_DIGEST = "the image has no digest here; install prints one to add"
OPTIONAL = "binds: each is optional here, left out where its source is missing"
PLAIN: dict[str, Value] = {
    "name": "tool",
    "version": "2.0",
    "description": "",
    "accelerator": "none",
    "image": {"sources": (URI,)},
    "wrappers": ("tool",),
}


def read(directory: Path, text: str, name: str = "2.0.lua") -> Imported:
    path = directory / "tool" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return read_modulefile(path)


# what stands beside START: the keys that it adds or changes, and its notes
LINES: dict[str, tuple[dict[str, Value], tuple[str, ...]]] = {
    "": ({}, ()),
    "local x = 1": ({}, ()),
    # what the module says of itself
    'whatis("Name: other")': ({"name": "other"}, ()),
    'whatis("Version: 3.1")': ({"version": "3.1"}, ()),
    'whatis("Name: no name") whatis("Version: ../x")': ({}, ()),
    'whatis("Description: A  tool. ")': ({"description": "A  tool."}, ()),
    'whatis("URL: https://x.example")': ({"homepage": "https://x.example"}, ()),
    'whatis("Home page: http://x.example")': ({"homepage": "http://x.example"}, ()),
    'whatis("URL: x.example")': ({}, ()),
    'whatis("Keywords: a,   b") whatis("Empty:") whatis("no colon")': ({"whatis": ("Keywords: a, b",)}, ()),
    'whatis("Keywords: " .. capture("x"))': ({}, ()),
    'whatis("A: b") whatis("C: d: e")': ({"whatis": ("A: b", "C: d: e")}, ()),
    "help([[\n A tool.\n]])": ({"description": "A tool."}, ()),
    'help("A " .. capture("x"))': ({"description": "A ?"}, ()),
    'help("first") help("second") whatis("Description: third")': ({"description": "first"}, ()),
    "help([[\nDescription\n===\n A tool.\n\nMore\n====\n - Home: https://x.example\n\t- See http://y.example\n]])": (
        {"description": "A tool.", "docurls": ("Home: https://x.example", "See http://y.example")},
        (),
    ),
    "help([[\nMore\n===\nhttps://x.example\n]]) whatis('URL: https://x.example')": (
        {"homepage": "https://x.example"},
        (),
    ),
    "help([[\nDescription\n==\nhttps://x.example\n]])": ({"description": "Description\n==\nhttps://x.example"}, ()),
    # the modules beside it
    'conflict("tool", "other", "a/1.0") conflict("other")': ({"conflict": ("other", "a/1.0")}, ()),
    'whatis("Name: mine") conflict("mine", "tool")': ({"name": "mine"}, ()),
    'conflict("../x") conflict("a b", capture("x"))': (
        {},
        (
            "conflict: '../x' is no module's name",
            "conflict: 'a b' is no module's name",
            "conflict: '?' is no module's name",
        ),
    ),
    'family("tools") family("others")': ({"family": "tools"}, ()),
    'load("singularity/3") depends_on("Apptainer")': (
        {},
        ("load: the runtime is the one of the site", "depends_on: the runtime is the one of the site"),
    ),
    'load("gcc", "mpi") prereq("x") always_load("y") load_any("z") unload("w")': (
        {},
        (
            "load of gcc, mpi is not carried over",
            "prereq of x is not carried over",
            "always_load of y is not carried over",
            "load_any of z is not carried over",
            "unload of w is not carried over",
        ),
    ),
    'depends_on(capture("x"))': ({}, ("depends_on of ? is not carried over",)),
    # variables
    'setenv("A", "b") pushenv("C", 3)': ({"host_env": {"A": "b", "C": "3"}}, ()),
    'setenv("A")': ({}, ()),
    'setenv("A", capture("x")) pushenv(capture("x"), "b")': (
        {},
        (
            "setenv A: its value is known only when it is loaded",
            "pushenv ?: its value is known only when it is loaded",
        ),
    ),
    'setenv("SIF", "x") setenv("EBROOTTOOL", "/x")': ({}, ()),
    'setenv("SINGULARITYENV_A", "b") pushenv("APPTAINERENV_C", "d")': ({"env": {"A": "b", "C": "d"}}, ()),
    'setenv("SINGULARITY_BIND", "/a,/b:/c")': (
        {"binds": ({"source": "/a", "optional": True}, {"source": "/b", "target": "/c", "optional": True})},
        (OPTIONAL,),
    ),
    'prepend_path("SINGULARITYENV_PREPEND_PATH", "/a") append_path("APPTAINER_BINDPATH", "/b")': (
        {"path+": ("/a",), "binds": ({"source": "/b", "optional": True},)},
        (OPTIONAL,),
    ),
    'append_path("PATH", "/a") prepend_path("APPTAINERENV_PATH", capture("x")) prepend_path("XSINGULARITYENV_A", "")': (
        {},
        (
            "append_path PATH: lists of the host are not changed",
            "prepend_path APPTAINERENV_PATH: lists of the host are not changed",
            "prepend_path XSINGULARITYENV_A: lists of the host are not changed",
        ),
    ),
    'prepend_path("A")': ({}, ()),
    'setenv("SINGULARITY_NV", "1")': ({"accelerator": "cuda"}, ()),
    # conditions
    'if capture("x") then setenv("A", "b") prepend_path("P", "x") family("c") end': (
        {"host_env": {"A": "b"}, "family": "c"},
        (
            "line 1: setenv hangs on a condition, and is taken without it",
            "prepend_path P: lists of the host are not changed",
            "line 1: prepend_path hangs on a condition, and is taken without it",
        ),
    ),
    # what is not known
    "something(1)\nsomething_" + "x" * 80 + "()": (
        {},
        ("line 1: something is not carried over", f"line 2: something_{'x' * 50} is not carried over"),
    ),
    'LmodMessage("x") LmodWarning("x") LmodError("x") add_property("a", "b") string.format("x") unpack({}) isDir("/x")'
    ' tostring(1) string.lower("X") capture("x") isloaded("x") isFile("x") pathJoin("x") myModuleFullName() mode()'
    ' myModuleName() myModuleVersion() os.getenv("X") local t = {} table.insert(t, 1) table.concat(t)': ({}, ()),
    "ipairs({}) pairs({})": ({}, ()),
    'io.stderr:write("x")': ({}, ("line 1: a method of a text is not read",)),
    "while x do end while x do end": ({}, ("line 1: a loop is not read",)),
}


@pytest.mark.parametrize("line", LINES)
def test_what_a_line_adds(line: str, tmp_path: Path) -> None:
    keys, notes = LINES[line]
    made = read(tmp_path, f"{line}\n{START}")
    assert made.keys == PLAIN | keys
    assert sorted(made.notes) == sorted((*notes, NO_DIGEST))
    assert made.publisher == "bio"


OWN = "function {} is a script of its own: not carried over"
NONE = "function {} does not just start a container: not carried over"
EMPTY = "it does not begin with a command"
UNSURE = "function {}: its command is known only when it is loaded"

# name and command of an alias: the wrapper, the keys that it adds, the notes
COMMANDS: dict[tuple[str, str], tuple[tuple[Value, ...], dict[str, Value | None], tuple[str, ...]]] = {
    ("a", "singularity exec x.sif a"): (("a",), {}, ()),
    ("a", "/opt/bin/apptainer exec x.sif b -c 'd e' \\\"$@\\\""): (({"a": "b -c 'd e'"},), {}, ()),
    ("a", "singularity exec x.sif b $*"): (({"a": "b"},), {}, ()),
    ("a", "singularity run x.sif a"): (("a",), {"verb": "run"}, ()),
    ("a", "singularity run x.sif"): (
        ("a",),
        {"verb": "run"},
        ("a hands its arguments to the image's entrypoint; the wrapper runs a in the image",),
    ),
    ("a", "singularity exec --nv -B /d,/e:/f:ro --env K=v x.sif a"): (
        ("a",),
        {
            "accelerator": "cuda",
            "env": {"K": "v"},
            "binds": (
                {"source": "/d", "optional": True},
                {"source": "/e", "target": "/f", "options": "ro", "optional": True},
            ),
        },
        (OPTIONAL,),
    ),
    ("a", "singularity exec --rocm x.sif a"): (("a",), {"accelerator": "rocm"}, ()),
    ("a", "singularity exec --nv --rocm x.sif a"): (
        ("a",),
        {"accelerator": None},
        ("the module looks for NVIDIA's and AMD's GPUs: without `accelerator` the site's is meant",),
    ),
    ("a", "singularity exec --contain --bind=$HOME/x:/y x.sif a"): (
        ("a",),
        {},
        (
            "the option --contain is not carried over",
            "the bind path '$HOME/x:/y' depends on the user",
        ),
    ),
    ("a", "singularity shell x.sif a"): ((), {}, (NONE.format("a"),)),
    ("a", "singularity exec"): ((), {}, (NONE.format("a"),)),
    ("a", "docker exec x.sif a"): ((), {}, (NONE.format("a"),)),
    ("a", "singularity exec x.sif 'a"): ((), {}, (NONE.format("a"),)),
    ("a", "singularity exec x.sif a | b"): ((), {}, (OWN.format("a"),)),
    ("a", "singularity exec x.sif a $HOME"): ((), {}, (OWN.format("a"),)),
    ("a", "singularity exec --nv"): ((), {"accelerator": "cuda"}, (UNSURE.format("a"),)),
    ("a", "singularity exec x.sif -a"): ((), {}, (f"function a: no command for a wrapper: {EMPTY}",)),
    ("a b", "singularity exec x.sif a"): ((), {}, ("function 'a b': cannot be a wrapper",)),
    ("a..b", "singularity exec x.sif a"): ((), {}, ("function 'a..b': cannot be a wrapper",)),
    ("a" * 101, "singularity exec x.sif a"): ((), {}, (f"function '{'a' * 60}': cannot be a wrapper",)),
    ("a", "singularity exec x.sif " + "b" * 4096): ((), {}, ("function 'a': cannot be a wrapper",)),
}  # fmt: skip


@pytest.mark.parametrize("given", COMMANDS, ids=range(len(COMMANDS)))
def test_what_a_command_becomes(given: tuple[str, str], tmp_path: Path) -> None:
    wrappers, keys, notes = COMMANDS[given]
    made = read(tmp_path, f'x = "x.sif"\nset_shell_function("{given[0]}", "{given[1]}", "csh")\n')
    plain: dict[str, Value | None] = {**PLAIN, "image": {"sources": ("x.sif",)}, "wrappers": wrappers, **keys}
    assert made.keys == {key: value for key, value in plain.items() if value not in ((), None)}
    assert sorted(made.notes) == sorted(notes)


def test_what_only_a_run_could_tell_of_a_command(tmp_path: Path) -> None:
    text = (
        f'{START}local s = capture("which singularity")\n'
        'set_alias("a", s .. " exec x.sif a")\n'
        'set_alias("b", s .. " exec x.sif b " .. os.getenv("X"))\n'
        'set_alias(capture("c"), s .. " exec x.sif c")\n'
        f'set_alias("d", s .. " exec " .. capture("d") .. " d")\nset_alias("e")\n'
    )
    made = read(tmp_path, text)
    assert made.keys["wrappers"] == ("tool", "a", "d")
    assert made.keys["image"] == {"sources": (URI,)}
    assert made.notes == ("function b: its command is known only when it is loaded",
                          "function '?': cannot be a wrapper", NO_DIGEST)  # fmt: skip


def test_both_verbs_are_told(tmp_path: Path) -> None:
    made = read(tmp_path, START + 'set_alias("b", "singularity run x.sif b")\n')
    both = "some commands go through the image's entrypoint (run), some do not (exec): all do not here"
    assert "verb" not in made.keys
    assert made.notes == (both, NO_DIGEST)


@pytest.mark.parametrize(
    ("text", "source", "publisher", "told"),
    [
        (f'local a, b = "x", "{URI}"', URI, "bio", True),
        ('local a = "docker://one/x:1" local b = "docker://two/x:1"', "docker://one/x:1", "one", True),
        (f'local a = "docker://one/x:1"\n{START}', URI, "bio", True),
        (f'local a = "docker://r/p/x@sha256:{"a" * 64}"', f"docker://r/p/x@sha256:{'a' * 64}", "p", False),
        ('local a = "library://p/c/x:1"', "library://p/c/x:1", "c", False),
        ('local a = "https://x.example/d/x"', "https://x.example/d/x", "d", False),
        ('local a = "http://x.example/d/x"', "http://x.example/d/x", "d", False),
        ('local a = "oci:/d/x"', "oci:/d/x", "d", False) ,
        ('local a = "shub://d/x"', "shub://d/x", "d", False),
        ('local a = "file:/d/x"', "file:/d/x", "d", False),
        ('local a = "/opt/d/x.sif"', "/opt/d/x.sif", "d", False),
        ('local a = "x.sif"', "x.sif", "", False),
    ],
)  # fmt: skip
def test_the_image(text: str, source: str, publisher: str, told: bool, tmp_path: Path) -> None:
    made = read(tmp_path, text)
    assert (made.keys["image"], made.publisher) == ({"sources": (source,)}, publisher)
    assert (NO_DIGEST in made.notes) == told


@pytest.mark.parametrize(
    "text",
    [
        "",
        'local a = "two words.sif"',
        'local a = "docker:"',
        'local a = "docker://" .. capture("x")',
        f'local a = "docker://{"x" * 4096}"',
        'set_alias("a", "singularity exec " .. capture("x") .. " a")',
    ],
)
def test_without_an_image_there_is_nothing_to_import(text: str, tmp_path: Path) -> None:
    with pytest.raises(CannotImportError) as caught:
        read(tmp_path, text)
    assert caught.value.message == (
        "starts no container, or the image that it starts cannot be known without running it"
    )


def test_a_name_without_an_ending_is_the_version(tmp_path: Path) -> None:
    made = read(tmp_path, START, "2.0.lua.lua")
    assert (made.keys["name"], made.keys["version"]) == ("tool", "2.0.lua")
    assert read(tmp_path, START, "2.1").keys["version"] == "2.1"
