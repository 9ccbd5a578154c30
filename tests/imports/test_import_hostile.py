"""Files that are made to hurt their reader: each ends in a clear error, and nothing of them is run."""

import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sifmod.cli.main import run
from sifmod.imports.easybuild_commands import read_build
from sifmod.imports.lua import read_lua
from sifmod.imports.python import evaluate
from sifmod.imports.result import CannotImportError
from support.config import write

UNKNOWN = {
    "__import__('os').system('touch ran')": "the call of __import__('os').system",
    "open('ran', 'w')": "the call of open",
    "'a' * 10**9": "the operator Pow",
    "'{0.__class__}'.format(1)": "the field {0.__class__}",
    "'{:1000000000}'.format(1)": "the format ':1000000000'",
    "f'{1:>{10 ** 9}}'": "the operator Pow",
    "'%1000000000d' % 1": "this % format",
    "().__class__.__bases__": "`Attribute`",
    "(lambda: 1)()": "the call of lambda",
    "9 ** 9 ** 9": "the operator Pow",
    "[0x" + "f" * 5000 + "]": "a number this large",
    "-0x" + "f" * 5000: "a number this large",
    "[1][5]": "IndexError",
    "{'a': 1}['b']": "KeyError",
    "'a' + 1": "+ of these values",
    "elsewhere": "elsewhere is not defined in this file",
}
REFUSED = {
    "x = 'a' * 1000000000": "a text or a list that is too long",
    "x = 'a'\n" + "x = x + x\n" * 60: "a text or a list that is too long",
    "x = 'a' * 1000000\n" + "x = x.replace('a', 'aa')\n": "a text or a list that is too long",
    "x = 'a' * 1000000\n" + "".join(f"x{n} = x + 'b'\n" for n in range(100)): "a text or a list that is too long",
    "x = ('',) * 100000\n" + "y = ''.join(x)\n" * 100: "a text or a list that is too long",
    "x = ('',) * 100000\n" + "y = 1 in x\n" * 100: "a text or a list that is too long",
    "x = ('',) * 100000\n" + "y = '' % x\n" * 100: "a text or a list that is too long",
    "x = " + "(" * 5000: "invalid Python",
    "x = " + "[" * 90 + "]" * 90: "nested more than 80 deep",
    "x = f'" + "{1}" * 300_000 + "'": "more than 10000 braces",
    "x = " + "1+" * 100_000 + "1": "nested too deep",
    "z = '\0'": "invalid Python" if sys.version_info >= (3, 11, 4) else "it contains a NUL",
    "x = ('a',) * 1000000\ny = [0 for b in x]\n": "takes more than",
    "if True:\n" + "".join(" " * n + "if True:\n" for n in range(1, 99)) + " " * 99 + "x = 1": "",
}
LUA = {
    "x = " + "(" * 100_000: "nested",
    "x = {" * 100_000: "nested",
    "x = " + "not " * 100_000 + "1": "nested",
    "x = 'a' " + ".. 'a'" * 100_000: "takes more than",
    "x = 'a'\n" + "x = x .. x\n" * 60: "a text or a list that is too long",
    "[[" * 200_000: "unclosed text or comment",
    "--[[" * 200_000: "unclosed text or comment",
    "x = 'open": "not Lua",
    "x = '" + "\\z  " * 200_000: "not Lua",
    "if x then": "expected end",
    "local t = {" + "1," * 3000 + "}\nfor a in pairs(t) do for b in pairs(t) do end end": "takes more than",
}
SOURCES = tuple(
    path
    for path in sorted((Path(__file__).parents[1] / "import").rglob("*"))
    if path.suffix in (".eb", ".lua", ".yaml")
)
PIECES = (
    *(b"'", b'"', b"[", b"]", b"{", b"}", b"(", b")", b"%", b"%(x)s", b"\\", b"\n", b"\t", b"\r", b"\0", b"\xff", b"$"),
    *(b"`", b"..", b"-", b"/", b":", b",", b"=", b"~", b"# ", b"---\n", b"&a ", b"*a ", b"<<: ", b"{}", b"a" * 5000),
    *(b"\\ud800", b"\xed\xa0\x80", b"\xee\x80\x80", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"null", b"1e999", b"-1", b"f'{"),
    *(b"**2", b" for x in y ", b"lambda: 0", b"import os\n", b"while True: pass\n", b"sources = [None]\n"),
    *(b"modextravars = {'A\\n': 'b', 1: 2, 'C': None, '': 'x'}\n", b"name = 'a/b'\n", b"version = '..'\n"),
    *(b"end", b"function()", b"[==[", b"]==]", b"--[[", b"set_shell_function('a')\n", b"setenv(nil, {})\n"),
    *(b"load()\n", b"whatis{}\n", b"x = x .. x\n", b"!!python/object:os.system x", b"aliases: [1, {a: b}, [c]]\n"),
    *(b"env: 3\n", b"%(version", b"features: []\n", b"latest: {a: {b: c}}\n", b"docker: []\n"),
)  # fmt: skip
# where (in thousandths of the file), how much is removed, what is put there
EDITS = st.tuples(st.integers(0, 1000), st.integers(0, 60), st.sampled_from(PIECES) | st.binary(max_size=8))
EB = b"name = 'x'\nversion = '1'\nsources = ['x.sif']\n"
SHPC = b"docker: a/b\nlatest: {'1': sha256:%s}\n" % (b"a" * 64)
MANY = b"env:\n  a: &a " + b"a" * 500_000 + b"\n" + b"".join(b"  b%d: *a\n" % n for n in range(3000))
BOMB = b"a: &a [x, x]\n" + b"".join(b"%c: &%c [*%c, *%c]\n" % (n + 1, n + 1, n, n) for n in range(97, 121))


@pytest.mark.parametrize("expression", UNKNOWN)
def test_an_expression_that_is_not_evaluated(expression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    constants = evaluate(f"x = 1\nx = {expression}\ny = 2")
    assert UNKNOWN[expression] in constants.unknown["x"]
    assert constants.values == {"y": 2}
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_a_python_file_that_is_too_much(text: str) -> None:
    with pytest.raises(CannotImportError) as caught:
        evaluate(text)
    assert REFUSED[text] in caught.value.message


@pytest.mark.parametrize("text", LUA, ids=range(len(LUA)))
def test_a_lua_file_that_is_too_much(text: str) -> None:
    with pytest.raises(CannotImportError) as caught:
        read_lua(text, "x", "1")
    assert LUA[text] in caught.value.message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("large.eb", b"x = 1\n" * 400_000, "is larger than 1 MiB"),
        ("large.lua", b"-- x\n" * 400_000, "is larger than 1 MiB"),
        ("binary.eb", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("syntax.eb", b"name = = 1", "line 1: invalid Python"),
        ("loop.eb", b"for n in 'xy':\n    name = n\nversion = '1'\n", "name: line 1: for statements are not evaluated"),
        ("nameless.eb", b"version = '1'\nsources = ['x.sif']\n", "name: is missing, empty or not a text"),
        ("imageless.eb", b"name = 'x'\nversion = '1'\n", "sources: expected one SIF, got 0"),
        ("called.eb", b"name = 'x'\nversion = '1'\nsources = glob('*')\n", "sources: line 3: the call of glob"),
        ("bad.eb", b"name = 'a/b'\nversion = '1'\nsources = ['x.sif']\n", "name: "),
        ("imageless.yaml", b"description: x\nlatest: {'1': x}\n", "has no image: expected one of docker, oras"),
        ("latest.yaml", b"docker: a/b\n", "expected one tag under latest, got 0"),
        ("list.yaml", b"- docker\n", "line 1: "),
        ("malformed.yaml", b"docker: a/b\nlatest: {\n", "line "),
        ("long.eb", EB + b"name = 'a' * 1000000\ndescription = '%(name)s' * 9\n", "too long"),
        ("many.eb", EB + b"long = 'a' * 1000000\npostinstallcmds = [long] * 1000\n", "too long"),
        ("many.yaml", SHPC + MANY, "the easyconfig would have more than 1048576 letters"),
        ("many.lua", b"a = '" + b"a" * 500_000 + b"'\n" + b"set_alias('x', a)\n" * 5000, "too long"),
        ("bomb.yaml", BOMB, "more than 10000 values"),
        ("deep.yaml", b"a: " + b"[" * 60, "nested more than 50 deep"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read(
    name: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / name, tmp_path / "out"
    source.write_bytes(content)
    target.mkdir()
    assert run(["import", str(source), "-o", str(target)]) == 5
    assert f"{source}: " in (err := capsys.readouterr().err)
    assert message in err
    assert list(target.iterdir()) == []


def test_texts_of_a_file_cannot_write_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a value holds, it is a value in the easyconfig, or is left out; a name like that is refused."""
    evil = "x\\n# \\nwrappers: [evil]\\n\\x1b[31m"
    for number, line in enumerate(
        (f"homepage = '{evil}'", f"description = '{evil}'", f"whatis = ['{evil}']", f"versionsuffix = '{evil}'",
         f"modextravars = {{'A': '{evil}'}}", f"docurls = ['{evil}']", f"whatever_{'x' * 300} = '{evil}'")
    ):  # fmt: skip
        source = tmp_path / f"x{number}.eb"
        source.write_text(f"name = 'x'\nversion = '{number}'\nsources = ['x.sif']\n{line}\n")
        run(["import", str(source), "-o", str(tmp_path)])
        capsys.readouterr()
    written = sorted(tmp_path.glob("*.yaml"))
    assert [path.name for path in written] == [f"x-{number}.yaml" for number in (0, 1, 2, 4, 5, 6)]
    for path in written:
        assert "\nwrappers:" not in path.read_text()
        assert "\x1b" not in path.read_text()


def test_lists_in_themselves_and_in_many_others() -> None:
    """Each is looked at once: 40 lists of two of the one before would be 2⁴⁰."""
    doubled = "local t0 = {'x'}\n" + "".join(f"local t{n} = {{t{n - 1}, t{n - 1}}}\n" for n in range(1, 41))
    assert read_lua(f"{doubled}foo(t40, t40)\nsetenv('A', '1')", "x", "1").calls[-1].arguments == ("A", "1")
    read_lua("local t = {} table.insert(t, t) foo(t)", "x", "1")


def test_many_blanks_in_a_definition() -> None:
    """The time took the square of their number: most of an hour."""
    text = f"Bootstrap: docker\nFrom: a\n%post\nb{' ' * 900_000}c \t\nd\n"
    commands = (f"cat > x.def <<'EOF'\n{text}EOF\n", "singularity build y.sif x.def")
    assert read_build(commands, []) == ({"from": "a", "post": f"b{' ' * 900_000}c\nd\n"}, ())


def test_numbers_are_written_as_lua_writes_them() -> None:
    (call,) = read_lua("setenv('N', 123456789 .. ' ' .. 0.5)", "x", "1").calls
    assert call.arguments == ("N", "123456789 0.5")


def test_a_name_that_can_be_no_path_is_that_of_a_module(tmp_path: Path) -> None:
    source = write(tmp_path / "App" / "1.0.lua", f"depends_on('p/c/{'x' * 5000}')\nlocal image = 'x.sif'\n")
    assert run(["import", str(source), "-o", str(tmp_path / "out")]) in (0, 5)


def test_conditions_that_only_a_run_could_decide() -> None:
    """A name that a branch binds is unknown where the condition is, and known where it is not."""
    constants = evaluate(
        "import os\nif os.path.exists('/x'):\n    a = 1\nelse:\n    b = 2\nif 'x' in 'xy':\n    c = 3\n"
    )
    assert constants.values == {"c": 3}
    assert set(constants.unknown) == {"os", "a", "b"}
    calls = read_lua("if capture('x') == '' then setenv('A', '1') else setenv('B', '2') end", "x", "1").calls
    assert [(call.arguments, call.sure) for call in calls if call.function == "setenv"] == [
        (("A", "1"), False),
        (("B", "2"), False),
    ]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=st.sampled_from(SOURCES), edits=st.lists(EDITS, min_size=1, max_size=6))
def test_a_damaged_file_becomes_an_easyconfig_or_a_reason(
    source: Path, edits: list[tuple[int, int, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    data = source.read_bytes()
    for place, taken, put in edits:
        at = len(data) * place // 1000
        data = data[:at] + put + data[at + taken :]
    with tempfile.TemporaryDirectory(prefix="sifmod-tests-") as directory:
        damaged, target = Path(directory) / source.name, Path(directory) / "out"
        damaged.write_bytes(data)
        target.mkdir()
        code = run(["import", str(damaged), "-o", str(target)])
        said = capsys.readouterr()
        written = sorted(target.iterdir())
        if code == 0:
            assert said.out == f"{written[0]}\n"
            assert run(["check", str(written[0])]) == 0
            capsys.readouterr()
        else:
            assert (code, written, said.out) == (5, [], ""), said
            assert f"error: {damaged}: " in said.err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.eb", EB + b"postinstallcmds = ['\\n' * 1000000]\nsanity_check_commands = [' ' * 1000000]\n"),
        ("x.eb", EB + b"modluafooter = ['a' * 1000] * 1000000\n"),
        ("container.yaml", SHPC + b"aliases:\n  x: 'x" + b" " * 1_000_000 + b"y'\n"),
        ("x.lua", b"set_alias('y', 'singularity exec a.sif " + b" " * 500_000 + b"$')\nx = 'docker://a/b:1'\n"),
    ],
)
def test_a_long_text_is_read_in_one_go(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts that an expression of the wrong kind takes hours for, or lists that fill the memory when spelled out."""
    source = tmp_path / "in" / name
    source.parent.mkdir()
    source.write_bytes(content)
    assert run(["import", str(source), "-o", str(tmp_path)]) == 0
    (written,) = tmp_path.glob("*.yaml")
    assert capsys.readouterr().out == f"{written}\n"
    assert written.stat().st_size < 2000
