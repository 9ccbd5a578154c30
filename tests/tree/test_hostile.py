"""Text that would run, if a module tool read any of it as a program: it is refused, or shown and kept as it is."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loads import NAME, users
from plans import HELP, IMAGE, Published, plan, publish
from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError
from sifmod.module.plan import Activation, Bind, literal
from sifmod.module.render import Literal, render, render_stub
from support.hostile_texts import KNOWN, SIGNS
from support.module_tool import ModuleTool, Step
from support.steps import EVERY

PAYLOADS = (
    *KNOWN,
    "]==] os.execute('touch x') --[==[",
    '") os.execute("touch x") --("',
    "]===]) os.execute('touch x') --[===[",
    "}; exec touch x; set a {",
    '"; exec touch x; set a "',
    "[exec touch x]",
    "$::env(HOME)",
    "'; touch x; '",
    '"; touch x; "',
    "$(touch x)`touch x`",
    "a && touch x || touch x; touch x & touch x | touch x > x",
    "%s%d%1",
    "--[[",
    "\\u0022; exec touch x",
)
LINES = st.text(st.one_of(st.sampled_from(SIGNS), st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
# what a variable may hold: no control characters
VALUES = st.text(
    st.one_of(
        st.sampled_from([sign for sign in SIGNS if sign.isprintable()]),
        st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]),
    )
)
PRINTABLE = [text for text in PAYLOADS if not any(ord(sign) < 32 or ord(sign) == 127 for sign in text)]
EXAMPLES = settings(max_examples=50 if EVERY else 8, suppress_health_check=[HealthCheck.function_scoped_fixture])


def kept(tool: ModuleTool, texts: Sequence[str]) -> list[str]:
    """Environment Modules does not quote `~`, so that the shell puts a home directory in its place."""
    return list(texts) if tool.name == "lmod" else [text.replace("~", "") for text in texts]


def session(tool: ModuleTool, published: Published, steps: Sequence[str]) -> tuple[Step, ...]:
    """The state before and after each step, none of which has made the file that every payload would make."""
    done = tool.session(("true", *steps, "test ! -e x"), published.modules)
    done[-1].ok()
    return done[:-1]


@EXAMPLES
@given(texts=st.lists(LINES, min_size=1, max_size=8))
@example(texts=list(PAYLOADS))
def test_what_a_module_says(
    module_tool: ModuleTool, tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    prefix = str(tmp_path_factory.mktemp("hostile"))
    told = replace(
        HELP,
        description="\n".join(texts),
        homepage=texts[0],
        docurls=tuple(texts),
        whatis=tuple(texts),
        contents=tuple((text, text) for text in texts),
        origin=texts[-1],
    )
    made = publish(plan(prefix=prefix, help=told, easyconfig=texts[0]))
    verbs = [f"module {verb} {NAME}" for verb in ("help", "whatis", "show", "load", "unload")]
    done = session(module_tool, made, [*verbs, f"{{ module spider {NAME} || true; }} >&2"])
    for step in done:
        step.ok()
    assert users(done[-2]) == users(done[0])
    # a line without control characters is shown as it is
    for text in texts:
        if text.strip() and text.isprintable() and text.isascii():
            assert " ".join(text.replace("]=", "] =").split()) in " ".join(
                (done[1].stdout + done[1].stderr).replace("]=", "] =").split()
            )


@EXAMPLES
@given(texts=st.lists(VALUES, min_size=1, max_size=8))
@example(texts=PRINTABLE)
def test_what_a_module_sets(
    module_tool: ModuleTool, tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    prefix = str(tmp_path_factory.mktemp("hostile"))
    texts = kept(module_tool, texts)
    inside = tuple((f"INSIDE{number}", text) for number, text in enumerate(texts))
    host = tuple((f"HOST{number}", text) for number, text in enumerate(texts))
    made = publish(plan(prefix=prefix, env=inside, host_env=host, activation=Activation(texts[0], "")))
    steps = (f"module load {NAME}", f"module show {NAME}", f"module unload {NAME}")
    before, loaded, shown, after = session(module_tool, made, steps)
    expected = {**dict(host), "WITH_CONDA": texts[0]}
    for name, value in (*inside, ("WITH_CONDA", texts[0])):
        expected |= {f"{prefix}ENV_{name}": literal(value) for prefix in ("SINGULARITY", "APPTAINER")}
    assert {name: loaded.ok() and loaded.environment.get(name) for name in expected} == expected
    assert shown.code == 0
    assert users(after.ok()) == users(before)  # type: ignore[arg-type]


@EXAMPLES
@given(texts=st.lists(VALUES, min_size=1, max_size=5))
@example(texts=PRINTABLE)
def test_what_the_user_had(module_tool: ModuleTool, tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    """The user's own values go through our records, whatever they are, and come back."""
    texts = kept(module_tool, texts)
    made = publish(
        plan(prefix=str(tmp_path_factory.mktemp("hostile")), env=tuple((f"V{n}", "1") for n in range(len(texts))))
    )
    env = {f"APPTAINERENV_V{number}": text for number, text in enumerate(texts)}
    env |= {"SIF": texts[0], "SINGULARITY_BINDPATH": ",".join(texts), "APPTAINERENV_PREPEND_PATH": ":".join(texts)}
    steps = ("true", f"module load {NAME}", f"module unload {NAME}", "test ! -e x")
    before, _, after, clean = module_tool.session(steps, made.modules, env)
    assert users(clean.ok()) == users(after.ok()) == users(before)  # type: ignore[arg-type]


def test_a_line_break_in_what_the_user_had(module_tool: ModuleTool, tmp_path: Path) -> None:
    """Module tools would run the second line when they give the value back, so the load is refused."""
    made = publish(plan(prefix=str(tmp_path)))
    for name in ("SIF", "APPTAINER_BINDPATH", "SINGULARITYENV_PREPEND_PATH"):
        steps = (f"module load {NAME}", "test ! -e x")
        loaded, after = module_tool.session(steps, made.modules, env={name: "a\ntouch x"})
        after.ok()
        assert loaded.code != 0
        assert f"{name} contains a line break" in " ".join(loaded.stderr.split())
    # what is added after the load is on one line at the unload
    added = "export APPTAINER_BINDPATH=$APPTAINER_BINDPATH,/a$'\\n'touch\\ x"
    done = module_tool.session((f"module load {NAME}", added, f"module unload {NAME}", "test ! -e x"), made.modules)
    assert done[3].ok() and done[2].environment["APPTAINER_BINDPATH"] == "/a touch x"


PATHS = (
    "a b",
    "it's",
    'say "x"',
    "$(touch x)",
    "`touch x`",
    "[exec touch x]",
    "}{",
    "{}",
    "back\\slash",
    "]==]",
    "$HOME",
    "; touch x",
    "é😀",
    "100%",
    "a=b",
    "-x",
    "~",
    "#",
)


@pytest.mark.parametrize("path", PATHS)
def test_paths(module_tool: ModuleTool, tmp_path: Path, path: str) -> None:
    """The prefix, the image's name, and a bind's source."""
    source = tmp_path / "source" / path
    source.mkdir(parents=True)
    image = replace(IMAGE, filename=f"{path}.sif")
    # In MODULEPATH Environment Modules takes some of these for patterns or variables, and finds nothing; and Lmod
    # forgets where a module is whose path its own base64 cannot hold.
    unfit = bool(set(path) & set("[]{}$\\")) if module_tool.syntax == "tcl" else not path.isascii()
    directory = "plain" if unfit else path
    made = publish(plan(prefix=str(tmp_path / directory), image=image, binds=(Bind(str(source), "/x"),)))
    steps = (f"module load {NAME}", f"module show {NAME}", f"module help {NAME}", f"module unload {NAME}")
    before, loaded, shown, told, after = session(module_tool, made, steps)
    assert loaded.ok() and loaded.environment["SIF"] == f"{made.root}/{path}.sif"
    assert loaded.environment["EBROOTPYTORCH"] == str(made.root)
    assert loaded.environment["PATH"].startswith(f"{made.root}/bin:")
    assert loaded.environment["APPTAINER_BINDPATH"] == f"{made.root}/runscripts:/runscripts:ro,{source}:/x"
    assert (shown.code, told.code) == (0, 0)
    assert users(after.ok()) == users(before)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", PATHS)
def test_paths_in_a_refusal(module_tool: ModuleTool, tmp_path: Path, path: str) -> None:
    image = replace(IMAGE, filename=f"{path}.sif", image_dirs=(f"/no/such/{path}",))
    made = publish(plan(prefix=str(tmp_path / "prefix"), image=image, easyconfig=path), image=False)
    before, after = session(module_tool, made, (f"module load {NAME}",))
    assert after.code != 0
    assert f"/no/such/{path}/{path}.sif".replace(" ", "") in "".join(after.stderr.split())
    assert users(after) == users(before)


@pytest.mark.parametrize(
    "name", ["a b", "$(touch x)", "[exec touch x]", "]==]", '"', "-x", "--", "}", "a;touch x", "é", ""]
)
def test_names_that_are_no_modules_are_refused(name: str) -> None:
    hostile = (
        plan(conflict=(name,)),
        plan(family=name),
        plan(module=ModuleName(name, "1")),
        plan(module=ModuleName("A", name)),
    )
    for made in hostile:
        with pytest.raises(ModuleError, match="cannot be"):
            render(made, 1)


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\x1b[2J", "a\x7f"])
def test_control_characters_in_values_are_refused(value: str) -> None:
    for made in (plan(env=(("A", value),)), plan(host_env=(("A", value),)), plan(activation=Activation(value, ""))):
        with pytest.raises(ModuleError, match="control character"):
            render(made, 1)


@pytest.mark.parametrize("name", ["A B", "A=B", "A;touch x", "", "1A", "A\n", "é", "$(touch x)"])
def test_names_that_are_no_variables_are_refused(name: str) -> None:
    for made in (plan(env=((name, "1"),)), plan(host_env=((name, "1"),))):
        with pytest.raises(ModuleError, match=r"cannot be a variable.s name"):
            render(made, 1)


def test_a_tcl_module_read_by_lmod_says_hostile_things(lmod: ModuleTool, tmp_path: Path) -> None:
    """Lmod evaluates what a Tcl modulefile says as Lua, in brackets that the text could close."""
    told = replace(HELP, description="\n".join(PAYLOADS), whatis=tuple(PAYLOADS))
    # Lmod would change what is beyond ASCII and spaces at the end; backslashes are refused
    texts = [text for text in PRINTABLE if text.isascii() and not text.endswith(" ") and "\\" not in text]
    made = publish(
        plan(
            prefix=str(tmp_path / "prefix"),
            syntaxes=("tcl",),
            help=told,
            host_env=tuple((f"H{n}", t) for n, t in enumerate(texts)),
        )
    )
    verbs = [f"module {verb} {NAME}" for verb in ("help", "whatis", "show", "load", "unload")]
    done = session(lmod, made, verbs)
    assert [done[4].ok() and done[4].environment[f"H{number}"] for number in range(len(texts))] == texts
    escaping = plan(
        prefix=str(tmp_path / "prefix"),
        module=ModuleName("C", "1"),
        syntaxes=("tcl",),
        host_env=(("H", '\\") os.execute("touch x") --'),),
    )
    assert session(lmod, publish(escaping), ("module load C",))[1].code != 0
    image = replace(IMAGE, filename="]===]) os.execute('touch x') --[===[.sif")
    broken = publish(
        plan(prefix=str(tmp_path / "prefix"), module=ModuleName("B", "1"), syntaxes=("tcl",), image=image), image=False
    )
    assert session(lmod, broken, ("module load B",))[1].code != 0


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_text_beyond_ascii_in_every_locale(module_tool: ModuleTool, tmp_path: Path, locale: str) -> None:
    made = publish(
        plan(prefix=str(tmp_path), image=replace(IMAGE, filename="é😀.sif"), host_env=(("HOST", "Ünïcödé 😀 ]==]"),))
    )
    steps = ("true", f"module load {NAME}", f"module unload {NAME}")
    before, loaded, after = module_tool.session(steps, made.modules, env={"LC_ALL": locale, "SIF": "süß 😀"})
    assert loaded.ok() and loaded.environment["HOST"] == "Ünïcödé 😀 ]==]"
    assert loaded.environment["SIF"] == str(made.image)
    assert users(after.ok()) == users(before)  # type: ignore[arg-type]


def test_templates_print_literals_only() -> None:
    """The guard behind all this: what no quoting filter has seen is an error, not text."""
    from sifmod.module import render as module

    environment = module.templates("lua")
    assert environment.from_string("{{ x | quote }}").render(x="a") == '"a"'
    with pytest.raises(ModuleError, match="unquoted"):
        environment.from_string("{{ x }}").render(x="a")
    assert issubclass(Literal, str)
    assert all(
        subprocess.run(["luac5.3", "-p", "-"], input=f.text.encode(), check=False).returncode == 0
        for f in render_stub(plan(syntaxes=("lua",), prefix="/a]==]'\"\\"))
    )
