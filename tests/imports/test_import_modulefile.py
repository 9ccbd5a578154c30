"""A Lua modulefile that starts a container: what each line of it becomes, and every note."""

from pathlib import Path

import pytest

from sifmod.imports.container import NOT_A_BIND
from sifmod.imports.modulefile import NO_COMMAND, Naming, read_modulefile
from sifmod.imports.result import CannotImportError, Imported, Value

URI = "oras://registry.example/bio/tool:2.0"
START = f'set_alias("tool", "singularity exec {URI} tool")\n'
NO_DIGEST = "the image has no digest here; `sifmod install` prints one to add"
OPTIONAL = "binds: all are optional here, skipped if their source is missing"
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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return read_modulefile(path)


# what stands beside START: the keys that it adds or changes, and its notes
LINES: dict[str, tuple[dict[str, Value], tuple[str, ...]]] = {
    "": ({}, ()),
    "local x = 1": ({}, ()),
    # what the module says of itself
    'whatis("Name: other") whatis("Version: 3.1")': ({"whatis": ("Name: other", "Version: 3.1")}, ()),
    'whatis("Name: tool") whatis("Version: 2.0")': ({}, ()),
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
    'conflict(" b ", myModuleName()) conflict(myModuleFullName())': ({"conflict": ("b",)}, ()),
    'conflict("../x") conflict("a b", capture("x"))': ({"conflict": ("../x", "a b", "?")}, ()),
    'family("tools") family("others") family("tools")': (
        {"family": "tools"},
        ("family: others is not imported, because a module has only one family here",),
    ),
    'load("singularity/3") depends_on("Apptainer")': (
        {},
        ("load: the site's runtime is used", "depends_on: the site's runtime is used"),
    ),
    'load("gcc", "mpi") prereq("x") depends_on("x", "Apptainer") always_load("y/1") load_any("z") unload("w")': (
        {"depends_on": ("gcc", "mpi", "x", "y/1")},
        (
            "depends_on: the site's runtime is used",
            "line 1: load_any is not imported",
            "line 1: unload is not imported",
        ),
    ),
    'if capture("x") then load("y") load("apptainer") end': (
        {"depends_on": ("y",)},
        ("load: the site's runtime is used", "line 1: load depends on a condition, and is imported without it"),
    ),
    'depends_on(capture("x"))': ({"depends_on": ("?",)}, ()),
    # variables
    'setenv("A", "b") pushenv("C", 3)': ({"host_env": {"A": "b", "C": "3"}}, ()),
    'setenv("A")': ({}, ()),
    'setenv("A", capture("x")) pushenv(capture("x"), "b")': (
        {},
        (
            "setenv A is not imported: it is only known at load time",
            "pushenv ? is not imported: it is only known at load time",
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
            "append_path PATH is not imported: lists of the host are not changed",
            "prepend_path APPTAINERENV_PATH is not imported: it is only known at load time",
            "prepend_path XSINGULARITYENV_A is not imported: lists of the host are not changed",
        ),
    ),
    'prepend_path("A")': ({}, ()),
    'setenv("SINGULARITY_NV", "1")': ({"accelerator": "cuda"}, ()),
    # conditions
    'if capture("x") then setenv("A", "b") prepend_path("P", "x") family("c") end': (
        {"host_env": {"A": "b"}, "family": "c"},
        (
            "line 1: setenv depends on a condition, and is read as if it held",
            "prepend_path P is not imported: lists of the host are not changed",
            "line 1: prepend_path depends on a condition, and is read as if it held",
            "line 1: family depends on a condition, and is read as if it held",
        ),
    ),
    # conditions on the user's own variables: a default where the variable is just unset
    'if os.getenv("A") == nil then setenv("A", 1) end': ({"default_env": {"A": "1"}}, ()),
    'if mode() == "load" and not os.getenv("A") then pushenv("SINGULARITYENV_A", "b") end': (
        {"default_env": {"A": "b"}},
        (),
    ),
    'local a = os.getenv("A") if a then LmodMessage("x") else setenv("A", "b") end': ({"default_env": {"A": "b"}}, ()),
    'if (os.getenv("A") or "") == "" then setenv("A", "b") end': ({"default_env": {"A": "b"}}, ()),
    'setenv("A", os.getenv("A") or "b")': ({"default_env": {"A": "b"}}, ()),
    'setenv("A", pathJoin(os.getenv("A") or "/b", "c"))': (
        {"host_env": {"A": "/b/c"}},
        ("line 1: setenv is read without its condition: A counts as unset",),
    ),
    'if os.getenv("A") ~= "x" then setenv("A", "b") end': (
        {"host_env": {"A": "b"}},
        ("line 1: setenv is read without its condition: A counts as unset",),
    ),
    'if not os.getenv("B") then setenv("A", "b") end': (
        {"host_env": {"A": "b"}},
        ("line 1: setenv is read without its condition: B counts as unset",),
    ),
    'if not os.getenv("APPTAINER_BIND") then setenv("APPTAINER_BIND", "/a") end': (
        {"binds": ({"source": "/a", "optional": True},)},
        (OPTIONAL, "line 1: setenv is read without its condition: APPTAINER_BIND counts as unset"),
    ),
    'append_path("R_LIBS_USER", "/a") append_path("R_LIBS_USER", "/b")': (
        {"default_env": {"R_LIBS_USER": "/a:/b"}},
        ("append_path R_LIBS_USER: only set if you have not set it, not appended to yours",),
    ),
    'append_path("A", "a", ";") append_path{"A", "b", delim = ";"} append_path("A", "c")': (
        {"default_env": {"A": "a;b:c"}},
        ("append_path A: only set if you have not set it, not appended to yours",),
    ),
    'append_path("SINGULARITYENV_A", "a", ",") prepend_path("SINGULARITYENV_A", "b", " ")': ({"env": {"A": "b a"}}, ()),
    'for name, value in pairs({A = "b", C = 2}) do setenv(name, value) end': ({"host_env": {"A": "b", "C": "2"}}, ()),
    # branches that are not taken
    'if isDir("/x") then\nprepend_path("PATH", "/x") else setenv("A", "b") end': (
        {"host_env": {"A": "b"}},
        (
            "line 2: prepend_path is not imported: isDir counts as false",
            "line 2: setenv is read without its condition: isDir counts as false",
        ),
    ),
    'if isloaded("x") then unload("x") LmodMessage("y") elseif os.getenv("B") then x = "y" end': (
        {},
        (
            "line 1: unload is not imported: isloaded counts as false",
            "another value of x is not imported: B counts as unset",
        ),
    ),
    'local x = "y" if isloaded("x") then local x = "z" for y in ipairs({}) do y = 1 end end': ({}, ()),
    'if mode() == "unload" then setenv("A", "b") elseif isFile("/x") then LmodError("y") end': ({}, ()),
    # one odd variable
    'setenv("LD_PRELOAD", "/y") setenv("APPTAINERENV_APPEND_PATH", "/z")': (
        {"host_env": {"LD_PRELOAD": "/y"}, "path+": ("/z",)},
        ("APPEND_PATH '/z': an easyconfig can only prepend to PATH inside",),
    ),
    # what is not known
    "something(1)\nsomething_" + "x" * 80 + "()": (
        {},
        ("line 1: something is not imported", f"line 2: something_{'x' * 50} is not imported"),
    ),
    'LmodMessage("x") LmodWarning("x") LmodError("x") add_property("a", "b") string.format("x") unpack({}) isDir("/x")'
    ' tostring(1) string.lower("X") capture("x") isloaded("x") isFile("x") pathJoin("x") myModuleFullName() mode()'
    ' myModuleName() myModuleVersion() os.getenv("X") local t = {} table.insert(t, 1) table.concat(t)': ({}, ()),
    "ipairs({}) pairs({})": ({}, ()),
    'io.stderr:write("x")': ({}, ("line 1: a method call is not supported",)),
    "while x do end while x do end": ({}, ("line 1: a loop is not supported",)),
}


@pytest.mark.parametrize("line", LINES)
def test_what_a_line_adds(line: str, tmp_path: Path) -> None:
    keys, notes = LINES[line]
    made = read(tmp_path, f"{line}\n{START}")
    assert made.keys == PLAIN | keys
    assert sorted(made.notes) == sorted((*notes, NO_DIGEST))
    assert made.publisher == "bio"


OWN = "command {} is not imported: its command line needs a shell"
NONE = "command {} is not imported: it does not just start a container with `run` or `exec` of singularity or apptainer"
INVALID = "is not imported: its name is invalid for a wrapper, or its command is longer than 4096 letters"
EMPTY = "no command after the image, or an empty word at its end"
UNSURE = "command {} is not imported: it names no image, or is only known at load time"

# name and command of an alias: the wrapper, the keys that it adds, the notes
COMMANDS: dict[tuple[str, str], tuple[tuple[Value, ...], dict[str, Value | None], tuple[str, ...]]] = {
    ("a", "singularity exec x.sif a"): (("a",), {}, ()),
    ("a", "/opt/bin/apptainer exec x.sif b -c 'd e' \\\"$@\\\""): (({"a": "b -c 'd e'"},), {}, ()),
    ("a", "singularity exec x.sif b $*"): (({"a": "b"},), {}, ()),
    ("a", "singularity run x.sif a"): (("a",), {"verb": "run"}, ()),
    ("a", "singularity run x.sif"): (
        ("a",),
        {"verb": "run"},
        ("a starts the image without a command; the wrapper runs a in the image",),
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
        ("the module has options for NVIDIA's and AMD's GPUs: without `accelerator` the site's is used",),
    ),
    ("a", "singularity exec --contain --bind=$HOME/x:/y x.sif a"): (
        ("a",),
        {},
        (
            "the option --contain is not imported",
            "the bind path '$HOME/x:/y' " + NOT_A_BIND,
        ),
    ),
    ("a ", "env -u PYTHONPATH SINGULARITYENV_K=v singularity exec x.sif a"): (
        ({"a": "env -u PYTHONPATH K=v a"},), {}, ()),
    ("a", "singularity exec x.sif a \\\"$@\\\" -d 'e f'"): (
        ({"a": "sh -c 'a \"$@\" -d '\"'\"'e f'\"'\"'' a"},), {}, ()),
    ("a", "singularity shell x.sif a"): ((), {}, (NONE.format("a"),)),
    ("a", "singularity exec"): ((), {}, (NONE.format("a"),)),
    ("a", "docker exec x.sif a"): ((), {}, (NONE.format("a"),)),
    ("a", "singularity exec x.sif 'a"): ((), {}, (NONE.format("a"),)),
    ("a", "singularity exec x.sif a | b"): ((), {}, (OWN.format("a"),)),
    ("a", "singularity exec x.sif a $HOME"): ((), {}, (OWN.format("a"),)),
    ("a", "singularity exec --nv"): ((), {"accelerator": "cuda"}, (UNSURE.format("a"),)),
    ("a", "singularity exec x.sif -a"): ((), {}, (f"function a: cannot be a wrapper: {EMPTY}",)),
    ("a b", "singularity exec x.sif a"): ((), {}, (f"command 'a b' {INVALID}",)),
    ("a..b", "singularity exec x.sif a"): ((), {}, (f"command 'a..b' {INVALID}",)),
    ("a" * 101, "singularity exec x.sif a"): ((), {}, (f"command '{'a' * 60}' {INVALID}",)),
    ("a", "singularity exec x.sif " + "b" * 4096): ((), {}, (f"command 'a' {INVALID}",)),
}  # fmt: skip


@pytest.mark.parametrize("given", COMMANDS, ids=range(len(COMMANDS)))
def test_what_a_command_becomes(given: tuple[str, str], tmp_path: Path) -> None:
    wrappers, keys, notes = COMMANDS[given]
    made = read(tmp_path, f'x = "x.sif"\nset_shell_function("{given[0]}", "{given[1]}", "csh")\n')
    plain: dict[str, Value | None] = {**PLAIN, "image": {"sources": ("x.sif",)}, "wrappers": wrappers, **keys}
    assert made.keys == {key: value for key, value in plain.items() if value not in ((), None)}
    assert sorted(made.notes) == sorted((*notes, *(() if wrappers else (NO_COMMAND,))))


def test_what_only_a_run_could_tell_of_a_command(tmp_path: Path) -> None:
    text = (
        f'{START}local s = capture("which singularity")\n'
        'set_alias("a", s .. " exec x.sif a")\n'
        'set_alias("b", s .. " exec x.sif b " .. os.getenv("X"))\n'
        'set_alias(capture("c"), s .. " exec x.sif c")\n'
        f'set_alias("d", s .. " exec " .. capture("d") .. " d")\nset_alias("e")\n'
        'set_alias("f", "singularity exec --bind " .. capture("f") .. "/x:/y x.sif f")\n'
    )
    made = read(tmp_path, text)
    assert made.keys["wrappers"] == ("tool", "a", "d", "f")
    assert made.keys["image"] == {"sources": (URI,)}
    assert made.notes == (UNSURE.format("b"),
                          f"command '?' {INVALID}",
                          f"the bind path '?/x:/y' {NOT_A_BIND}",
                          f"the commands are in 2 images; all are assigned to {URI}", NO_DIGEST)  # fmt: skip


def test_both_verbs_are_told(tmp_path: Path) -> None:
    made = read(tmp_path, START + 'set_alias("b", "singularity run x.sif b")\n')
    both = "some commands use the image's entrypoint (run), others do not (exec): here none does"
    assert "verb" not in made.keys
    images = f"the commands are in 2 images; all are assigned to {URI}"
    assert made.notes == (images, both, NO_DIGEST)


@pytest.mark.parametrize(
    ("text", "source", "publisher", "told"),
    [
        (f'local a, b = "x", "{URI}"', URI, "bio", True),
        ('local a = "docker://one/x:1" local b = "docker://two/x:1"', "docker://one/x:1", "one", True),
        (f'local a = "docker://one/x:1"\n{START}', URI, "bio", True),
        (f'local a = "docker://r/p/x@sha256:{"a" * 64}"', f"docker://r/p/x@sha256:{'a' * 64}", "p", False),
        ('local a = "library://p/c/x:1"', "library://p/c/x:1", "c", False),
        ('local a = "https://x.example/d/x"', "https://x.example/d/x", "d", False),
        ('local a = "oci:/d/x"', "oci:/d/x", "d", False) ,
        ('local a = "file:/d/x"', "file:/d/x", "d", False),
        ('local a = "/opt/d/x.sif"', "/opt/d/x.sif", "d", False),
        ('local a = " x.sif"', "x.sif", "", False),
        ('local a, b = "https://x.example/d/docs", "x.sif"', "x.sif", "", False),
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
    assert caught.value.message == ("starts no container, or its image cannot be determined without running it")


# as in Biocontainers: the site's own file, else a registry's image, with flags for what GPUs there are
FILE_OR_URI = """local image, uri = "bio_tool:2.0.sif", "{uri}"
if os.getenv("IMAGES") then
   image = pathJoin(os.getenv("IMAGES"), image)
   if not isFile(image) then image = uri end
else
   image = uri
end
local args = {{}}
if capture("nvidia-smi -L") ~= "" then table.insert(args, "--nv") end
{rocm}
local launch = capture("which singularity") .. " run {env}" .. table.concat(args, " ") .. " " .. image .. " env LANG=C "
for _, one in pairs({{"tool", "other "}}) do set_shell_function(one, launch .. one .. " \\"$@\\"", "csh") end
"""
ROCM = 'if capture("rocm-smi") ~= "" then table.insert(args, "--rocm") end'
LOOKS = "the module has options for {} GPUs: without `accelerator` the site's is used"


@pytest.mark.parametrize(
    ("uri", "rocm", "accelerator", "note"),
    [
        ("docker://bio/tool:2.0", ROCM, None, LOOKS.format("NVIDIA's and AMD's")),
        ("docker://bio/tool:2.0", "", None, LOOKS.format("NVIDIA's")),
        ("docker://rocm/tool:2.0", "", "rocm", ""),
        ("docker://nvcr.io/tool:2.0", ROCM, "cuda", ""),
        ("", ROCM, None, LOOKS.format("NVIDIA's and AMD's")),
    ],
)
def test_the_sites_file_or_a_registrys_image(
    uri: str, rocm: str, accelerator: str | None, note: str, tmp_path: Path
) -> None:
    made = read(tmp_path, FILE_OR_URI.format(uri=uri, rocm=rocm, env=""))
    assert made.keys["image"] == {"sources": ("bio_tool:2.0.sif", uri) if uri else ("bio_tool:2.0.sif",)}
    assert made.keys["wrappers"] == ({"tool": "env LANG=C tool"}, {"other": "env LANG=C other"})
    assert made.keys.get("accelerator") == accelerator
    assert sorted(made.notes) == sorted(one for one in (note, NO_DIGEST if uri else "") if one)


def test_words_that_are_there_on_a_condition_are_left_out_of_others(tmp_path: Path) -> None:
    made = read(tmp_path, FILE_OR_URI.format(uri="docker://bio/tool:2.0", rocm="", env="--env APPEND_PATH=/a/"))
    assert (made.keys["path+"], made.keys["wrappers"]) == (
        ("/a/",),
        ({"tool": "env LANG=C tool"}, {"other": "env LANG=C other"}),
    )


def test_an_image_that_nothing_fetches(tmp_path: Path) -> None:
    for uri in ("shub://d/x", "http://x.example/d/x.sif", "docker://https://x.example/d/x"):
        with pytest.raises(CannotImportError, match=f"its image is {uri}, which sifmod cannot fetch"):
            read(tmp_path, f'local a = "{uri}"')
        made = read(tmp_path, f'local image, a = "x.sif", "{uri}"')
        assert made.keys["image"] == {"sources": ("x.sif",)}
        assert f"image: sifmod cannot fetch {uri}" in made.notes


def test_the_name_is_what_users_load(tmp_path: Path) -> None:
    """Its path below the module tree, which is two directories up or given; or what it says of itself."""
    said = f'{START}whatis("Name: GATK") whatis("Version: 4.2") conflict("bio/b", "bio/b/1", "bio/c", "d")\n'
    made = read(tmp_path / "bio", said)
    assert (made.keys["name"], made.keys["version"]) == ("tool", "2.0")
    assert made.keys["whatis"] == ("Name: GATK", "Version: 4.2")
    path = tmp_path / "bio" / "tool" / "2.0.lua"
    by_whatis = read_modulefile(path, Naming(by_whatis=True))
    assert (by_whatis.keys["name"], by_whatis.keys["version"], by_whatis.keys.get("whatis")) == ("GATK", "4.2", None)
    (tmp_path / "bio" / "b").mkdir()
    (tmp_path / "bio" / "b" / "1.lua").touch()
    nested = read_modulefile(path, Naming(tree=tmp_path))
    assert (nested.keys["name"], nested.keys["version"]) == ("tool", "2.0")
    assert nested.keys["conflict"] == ("b", "b/1", "bio/c", "d")
    assert "name: tool/2.0 here, because a name has two parts; it was loaded as bio/tool/2.0" in nested.notes
    alone = tmp_path / "alone.lua"
    alone.write_text(START)
    with pytest.raises(CannotImportError, match="is loaded as alone, without a version"):
        read_modulefile(alone, Naming(tree=tmp_path))
    alone.write_text(said)
    assert read_modulefile(alone, Naming(tree=tmp_path)).keys["version"] == "4.2"
    with pytest.raises(CannotImportError, match="is not below the module tree"):
        read_modulefile(alone, Naming(tree=tmp_path / "bio"))


def test_a_name_without_an_ending_is_the_version(tmp_path: Path) -> None:
    made = read(tmp_path, START, "2.0.lua.lua")
    assert (made.keys["name"], made.keys["version"]) == ("tool", "2.0.lua")
    assert read(tmp_path, START, "2.1").keys["version"] == "2.1"
