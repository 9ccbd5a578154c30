"""Every shipped easyconfig at every shipped site, in every module syntax: clean files, which load and unload.

What is the same twice is looked at once. Texts that differ in nothing but the names of the module and of its image have
one *shape*; and of the shapes those are run that tell a line more than the ones before.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from loads import users, visited
from plans import publish
from sifmod.config.kinds import Syntax
from sifmod.config.load_easyconfig import all_variants
from sifmod.config.load_site import LoadedSite
from sifmod.config.name import ModuleName
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.plan import Plan
from sifmod.module.render import render, render_stub
from support.collection import FILES, SITES
from support.command import run
from support.config import Configuration
from support.module_tool import ModuleTool, environment_modules, lmod

SYNTAXES: dict[str, tuple[Syntax, ...]] = {"lua": ("lua",), "tcl": ("tcl",), "both": ("lua", "tcl")}
NAME = "modulefile.lua"
PREFIX = "/opt/sifmod"
ROOT = f"{PREFIX}/software/Any/.generations/1/1"
AT_ONCE = 2  # processes
MAIN = "lumi-g"  # the site where every text is parsed
PARSE_TCL = "foreach f $argv { set c [open $f]; if {![info complete [read $c]]} { puts $f }; close $c }"
PARSE_SH = 'for f do sh -n "$f" || echo "$f"; done'
# a command or an assignment without anything that a shell expands or acts upon
PLAIN = re.compile(r"( *[A-Za-z_][\w.-]*[ =])[^\"$`;|&()<>\\]*")
# each with its own syntax; Lmod reads Tcl as well, every fourth of them here
TOOLS = {
    "lmod": (lmod, "lua", 1),
    "environment modules": (environment_modules, "tcl", 1),
    "lmod, tcl": (lmod, "tcl", 4),
}


def planned(site: LoadedSite, configuration: Configuration) -> tuple[Plan, ...]:
    return tuple(
        make_plan(each.easyconfig, site.site, Choices(path.name, "copy"), each.quirks)
        for path in FILES
        for each in all_variants(path, site, configuration.environ)
    )


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Plan, ...]]:
    """Site → every module of the collection."""
    configuration = Configuration(tmp_path_factory.mktemp("sites"), {"SIFMOD_MODULE_SYNTAX": "both"})
    return {site: planned(configuration.site(site=site, prefix=PREFIX), configuration) for site in SITES}


def shape(plan: Plan) -> Plan:
    """The plan without what tells a module from the next of its kind: names, versions, help, the image's sources."""
    image = replace(
        plan.required_image, filename="any.sif", sources=("/any.sif",), sha256=None, available="", conversion=None
    )
    about = replace(
        plan.help, description="any", homepage="", docurls=(), whatis=(), contents=(), extensions=None, origin="any"
    )
    about = replace(about, driver="any" if plan.help.driver else "")
    module = ModuleName(plan.module.name, "1")
    made = replace(plan, module=module, version="1", easyconfig="Any.yaml", image=image)
    return replace(made, help=about)


def shapes(plans: dict[str, tuple[Plan, ...]]) -> tuple[Plan, ...]:
    return tuple(dict.fromkeys(shape(plan) for of_site in plans.values() for plan in of_site))


@pytest.fixture(scope="module")
def to_load(plans: dict[str, tuple[Plan, ...]]) -> dict[str, tuple[Plan, ...]]:
    """Site → plans: at least one, and all that have a line in their modulefile that none before has."""
    lines: set[str] = set()
    chosen: dict[str, tuple[Plan, ...]] = {}
    for site in dict.fromkeys((MAIN, *SITES)):
        own: list[Plan] = []
        for plan in plans[site]:
            text = modulefile(shape(plan)).splitlines()
            if not own or not lines.issuperset(text):
                own.append(plan)
            lines.update(text)
        chosen[site] = tuple(own)
    return chosen


def modulefile(plan: Plan) -> str:
    (text,) = (file.text for file in render(replace(plan, wrappers=(), runscripts=()), 1) if file.path == NAME)
    return text


def batches(items: Sequence[Path], size: int = 45) -> Iterator[Sequence[Path]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def each_batch(command: Sequence[str], files: Sequence[Path]) -> None:
    """Run the command on the files; it is content with all of them and says nothing."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in pool.map(lambda batch: run((*command, *batch)), batches(files)):
            assert (done.code, done.stdout, done.stderr) == (0, "", "")


def written(texts: Iterable[str], directory: Path) -> list[Path]:
    """One file for each distinct text."""
    directory.mkdir()
    files = []
    for number, text in enumerate(dict.fromkeys(texts)):
        files.append(directory / str(number))
        files[-1].write_text(text)
    return files


def texts(plans: Iterable[Plan]) -> dict[str, dict[str, None]]:
    """Every distinct text of them, by its language."""
    made: dict[str, dict[str, None]] = {"lua": {}, "tcl": {}, "py": {}, "sh": {}}
    for plan in plans:
        stubs = {file.path: file for file in render_stub(plan)}
        for file in (*render(plan, 1), *stubs.values()):
            suffix = file.path.rpartition(".")[2]
            kind = suffix if suffix in ("lua", "tcl", "py") else "tcl" if file.path in stubs else "sh"
            if file.path != "runscripts/README":
                made[kind][file.text] = None
    return made


def test_every_file_parses(plans: dict[str, tuple[Plan, ...]], tmp_path: Path) -> None:
    """Each with its own names at one site, and each shape."""
    made = texts((*plans[MAIN], *shapes(plans)))
    # a modulefile and a stub for each, and a modulefile for most shapes of other sites
    assert len(made["lua"]) == len(made["tcl"]) > 2 * len(plans[MAIN]) + 10 * len(SITES)
    each_batch(("luac5.3", "-p", "--"), written(made["lua"], tmp_path / "lua"))
    parser = tmp_path / "parse.tcl"
    parser.write_text(PARSE_TCL)
    each_batch(("tclsh", str(parser)), written(made["tcl"], tmp_path / "tcl"))
    each_batch(("sh", "-c", PARSE_SH, "sh"), written(made["sh"], tmp_path / "sh"))
    for text in made["py"]:
        compile(text, "pip", "exec")


def test_the_parsers_find_what_is_broken(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    for command, text in ((("luac5.3", "-p", "--"), "x ="), (("sh", "-c", PARSE_SH, "sh"), "if")):
        broken.write_text(text)
        with pytest.raises(AssertionError):
            each_batch(command, (broken,))
    (tmp_path / "parse.tcl").write_text(PARSE_TCL)
    broken.write_text("if {1} {")
    with pytest.raises(AssertionError):
        each_batch(("tclsh", str(tmp_path / "parse.tcl")), (broken,))


def form(text: str) -> tuple[str, ...]:
    """What shellcheck judges: the lines, but of plain commands the first word only, and of equal ones in a row one."""
    lines = (plain[1] if (plain := PLAIN.fullmatch(line)) else line for line in text.splitlines())
    return tuple(line for line, _ in groupby(lines))


def telling(texts: Iterable[str]) -> Iterator[str]:
    """Those with two neighbouring lines that no earlier one has: of any two, plain words apart, one of them tells."""
    seen: set[tuple[str, str]] = set()
    for text in texts:
        pairs = set(pairwise(("", *form(text))))
        if not pairs <= seen:
            yield text
        seen |= pairs


def test_what_differs_in_plain_words_only_tells_nothing() -> None:
    one, same = 'set A 1\nexec "$x"\n', "set B 'two words'\nexec \"$x\"\n"
    other = ('set A $1\nexec "$x"\n', "set A 1\nexec $x\n", 'set A 1; exec "$x"\n', 'get A 1\nexec "$x"\n')
    turned, both = 'exec "$x"\nset A 1\n', "set A 1\nset B 'two words'\nexec \"$x\"\n"
    assert list(telling((one, same, *other, turned, both))) == [one, *other, turned]


def test_every_script_is_clean(plans: dict[str, tuple[Plan, ...]], tmp_path: Path) -> None:
    texts = (
        file.text
        for plan in shapes(plans)
        for file in render(plan, 1)
        if file.path.startswith(("bin/", "runscripts/")) or file.path.endswith(".sh")
        if file.path != "runscripts/README" and not file.path.endswith(".py")
    )
    # SC1091: a wrapper sources the launcher, which is one of the texts and not where they look for it
    files = written(telling(texts), tmp_path / "scripts")
    assert len(files) > 50
    each_batch(("shellcheck", "--severity", "style", "--exclude", "SC1091"), files)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_a_module_syntax_gives_its_modulefiles_only(tmp_path: Path, syntax: str) -> None:
    configuration = Configuration(tmp_path, {"SIFMOD_MODULE_SYNTAX": syntax})
    of_site = planned(configuration.site(site="generic"), configuration)
    assert {plan.syntaxes for plan in of_site} == {SYNTAXES[syntax]}
    for plan in dict.fromkeys(shape(plan) for plan in of_site):
        made = {file.path: file.text for file in (*render(plan, 1), *render_stub(plan))}
        whole = replace(plan, syntaxes=("lua", "tcl"))
        both = {file.path: file.text for file in (*render(whole, 1), *render_stub(whole))}
        others = {"lua": (".tcl", str(plan.module)), "tcl": (".lua",), "both": ()}[syntax]
        assert made == {path: text for path, text in both.items() if not path.endswith(others)}


@pytest.mark.parametrize("tool", TOOLS)
def test_every_line_of_a_modulefile_loads_and_unloads(
    to_load: dict[str, tuple[Plan, ...]], tmp_path: Path, tool: str
) -> None:
    start, syntax, every = TOOLS[tool]
    chosen = {site: of_site[::every] for site, of_site in to_load.items()}
    assert len(chosen[MAIN]) > 20 / every
    home = tmp_path / "own-home"
    home.mkdir()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = pool.map(lambda site: load_each(start(home), chosen[site], tmp_path / site, SYNTAXES[syntax]), chosen)
        assert sum(done) == sum(map(len, chosen.values()))


def load_each(tool: ModuleTool, plans: tuple[Plan, ...], prefix: Path, syntaxes: tuple[Syntax, ...]) -> int:
    """One after the other in one shell; how many."""
    published = [publish(replace(plan, prefix=str(prefix), syntaxes=syntaxes)) for plan in plans]
    steps = [f"module {verb} {made.plan.module}" for made in published for verb in ("load", "unload")]
    before, *after = visited(tool, prefix / "modules", *steps)
    for made, loaded, unloaded in zip(published, after[::2], after[1::2], strict=True):
        name = made.plan.module.variable
        assert loaded.environment["SIF"] == loaded.environment[f"SIF{name}"] == str(made.image)
        assert loaded.environment[f"EBROOT{name}"] == str(made.root)
        assert users(unloaded) == users(before), made.plan.module
    return len(published)
