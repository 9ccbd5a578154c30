"""The packages of sifmod (docs/design.md, section 2): imports go one way, and only cli/ prints or exits."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import sifmod

PACKAGE = Path(sifmod.__file__).parent
ROOT = PACKAGE.parent
# each room may import the rooms below it, and itself
BELOW: dict[str, set[str]] = {
    "errors": {"system", "result"},
    "system": set(),
    "digest": set(),
    "result": set(),
    "config": {"errors", "system", "digest", "result"},
    "imports": {"errors", "system", "digest", "result", "config"},
    "module": {"errors", "system", "digest", "result", "config"},
    "image": {"errors", "system", "digest", "result", "config", "module"},
    "tree": {"errors", "system", "digest", "result", "config", "module"},
    "actions": {"errors", "system", "digest", "result", "config", "imports", "module", "image", "tree"},
    "api": {"errors", "system", "digest", "result", "config", "imports", "module", "image", "tree", "actions"},
    "cli": {"errors", "system", "digest", "result", "config", "imports", "module", "image", "tree", "actions"},
}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name == "api.py")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "sifmod" and len(parts) > 1 and parts[1] in BELOW else None


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    rooms = {found for name in imported(ast.parse(path.read_text())) if (found := room(name))}
    assert rooms <= BELOW[own] | {own}


def node(path: Path) -> str:
    """The folder of a file; the file itself where it has folders beside it."""
    has_folders = any(path.parent.glob("*/__init__.py"))
    return str((path if has_folders else path.parent).relative_to(PACKAGE))


class WithoutTypes(ast.NodeTransformer):
    """Leave out what is imported for its types alone."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node


def test_no_two_folders_import_each_other() -> None:
    """Nor in a circle over others: each can be read with those that it imports alone."""
    imports: dict[str, set[str]] = {}
    for path in FILES:
        files = {
            PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py")
            for name in imported(WithoutTypes().visit(ast.parse(path.read_text())))
        }
        imports.setdefault(node(path), set()).update(node(file) for file in files if file in FILES)
    circle = TopologicalSorter({own: others - {own} for own, others in imports.items()})
    try:
        circle.prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_the_design_names_each_package_and_no_other() -> None:
    section = (ROOT / "docs" / "design.md").read_text("utf-8").split("\n## 2. ")[1].split("\n## ")[0]
    named = re.findall(r"(?m)^\| `([a-z/]+)/` \|", section)
    assert len(named) == len(set(named))
    assert set(named) == {str(path.parent.relative_to(PACKAGE)) for path in FILES} - {"."}
    files = {path.stem for path in PACKAGE.glob("[a-z]*.py")}
    assert files <= set(re.findall(r"`(\w+)`", section)), "a file beside the packages is not named"


PAGES = [ROOT / "docs" / "design.md", *sorted((ROOT / "docs" / "internals").glob("*.md"))]
PLACES = (ROOT, PACKAGE, PACKAGE / "module" / "templates")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_the_design_names_is_there(path: Path) -> None:
    """Each file of the repository, and each name that only code can have, like `make_plan` or `SourceKind`."""
    text = path.read_text("utf-8")
    sketches = re.findall(r"(?ms)^```python\n(.*?)^```", text)
    text = re.sub(r"(?ms)^```.*?^```", "", text)
    named = {name.removesuffix("(…)") for name in re.findall(r"`([^`\n]+)`", text)}
    files = {name for name in named if re.fullmatch(r"[\w./-]+/[\w.-]+\.(py|sh|lua|tcl|j2|js|md)", name)}
    assert [name for name in files if not any((place / name).is_file() for place in PLACES)] == []
    names = {name for name in named if re.fullmatch(r"[a-z]+(_[a-z]+)+|[A-Z][a-z]+([A-Z][a-z]+)+", name)}
    called = {name for sketch in sketches for name in re.findall(r"(\w+)\(", sketch)}
    assert sorted((names | called) - _words_of_the_code()) == []


def test_each_dependency_is_explained() -> None:
    """Nor is one that is gone, in the table."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (ROOT / "docs" / "internals" / "dependencies.md").read_text("utf-8").split("\n## ")[0]
    named = re.findall(r"[\w-]+", " ".join(re.findall(r"(?m)^\| ([^|]+) \|", page)).lower())
    needed = {re.findall(r"[\w-]+", each)[0].lower() for each in project["dependencies"]}
    assert set(named) - {"package"} == needed


@cache
def _words_of_the_code() -> frozenset[str]:
    places = (PACKAGE.rglob("*"), (ROOT / "easyconfigs").rglob("*.yaml"), (ROOT / "tests").rglob("*.py"))
    texts = (path.read_text("utf-8") for place in places for path in place if path.is_file() and path.suffix != ".pyc")
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_file_says_its_job(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))


@pytest.mark.parametrize(
    "path", [path for path in FILES if "cli" not in path.parts], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"print", "exit", "sys.exit", "os._exit", "quit", "sys.stdout.write"}, called


def test_cheap_verbs_import_nothing_heavy() -> None:
    """`list` and a repeated `install` are fast because of what they do not import."""
    import subprocess
    import sys

    heavy = {"pydantic", "yaml", "jinja2", "requests", "cyclonedx", "sifmod.image"}
    code = f"import sys; from sifmod.cli import main, installed, install;print(sorted({heavy!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_looking_for_a_command_imports_none_of_its_actions() -> None:
    """TAB and `--help` need its options alone."""
    import subprocess
    import sys

    look = "import click, sys; from sifmod.cli.main import cli; cli.get_command(click.Context(cli), 'gc')"
    code = f"{look}; print([name for name in ('gc', 'log') if 'sifmod.actions.' + name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


_SENTENCES = ("message", "hint", "told", "why")
_TAKEN_APART = ("startswith", "endswith", "partition", "rpartition", "split", "removeprefix", "removesuffix", "find")


def _reads_a_sentence(node: ast.AST) -> bool:
    """Whether an expression looks into a sentence, as the message or the hint of an error."""
    match node:
        case ast.Compare(ops=[ast.In() | ast.NotIn() | ast.Eq() | ast.NotEq()], comparators=[right]):
            looked_into = [right] if isinstance(node.ops[0], ast.In | ast.NotIn) else [node.left, right]
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _TAKEN_APART:
            looked_into = [value]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=[_, text, *_]):
            looked_into = [text]
        case _:
            return False
    inner = [each for one in looked_into for each in ast.walk(one)]
    return any(isinstance(each, ast.Attribute) and each.attr in _SENTENCES for each in inner)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_code_reads_a_sentence_of_ours(path: Path) -> None:
    """An error's facts are fields (errors.py): a reworded message changes no behaviour."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    assert [node.lineno for node in nodes if isinstance(node, ast.expr) and _reads_a_sentence(node)] == []


# words that code looks for, and that stand in a text of ours too: whose words they are
_OF_OTHERS = {
    " installed": "dpkg",
    "GPU Direct RDMA": "NCCL",
    "Root-Is-Purelib: false": "wheels",
    "$(printf '\\r')": "the shell",
    "import ": "Python",
    "\nsifmod_set_host() {": "the launcher's program, which `diff` reads, and no sentence",
    "sifmod stack catalogue": "the generator of a page, one constant for both sides",
    "sifmod: ": "a mark with JSON behind it, one constant for both sides",
}


def _looked_for(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """The texts that a file looks for in others, where they have two words, or one and what is around it."""
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=attr), args=[first, *_]) if attr in _TAKEN_APART:
                needle: ast.AST = first
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=[first, *_]):
                needle = first
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()]):
                needle = left
            case _:
                continue
        for each in ast.walk(needle):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each, each.value
            elif isinstance(each, ast.Name) and each.id in named:
                yield named[each.id], str(named[each.id].value)


def _texts(tree: ast.Module, looked_for: set[int]) -> Iterator[str]:
    """What a file writes: its texts, without docstrings and what it looks for."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | looked_for:
            yield node.value


def sentences_looked_for(files: dict[str, str], templates: str) -> set[tuple[str, str]]:
    """The files, and the words in each which look like a sentence and stand in another text of ours too."""
    trees = {name: ast.parse(text) for name, text in files.items()}
    needles = {name: list(_looked_for(tree)) for name, tree in trees.items()}
    written = [templates]
    for name, tree in trees.items():
        written += _texts(tree, {id(node) for node, _ in needles[name]})
    everything = "\0".join(written)
    found = set()
    for name, some in needles.items():
        for _, needle in some:
            is_sentence = re.search(r"[A-Za-z]{2}[:;,.]? | [A-Za-z]{2}", needle.replace("\n", " "))
            if is_sentence and needle.strip("\n") in everything:
                found.add((name, needle))
    return found


def test_no_words_of_a_sentence_of_ours_are_looked_for() -> None:
    """Nor those of scripts and templates: what other code decides by is a field."""
    files = {str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in FILES}
    scripts = (path for path in PACKAGE.rglob("templates/**/*") if path.is_file())
    found = sentences_looked_for(files, "\n".join(path.read_text("utf-8") for path in scripts))
    assert {one for one in found if one[1] not in _OF_OTHERS} == set()


@pytest.mark.parametrize(
    ("file", "template"),
    [
        ('said, _, hint = text.partition("\\nhint: ")', "printf '%s\n\nhint: %s\n'"),
        ('HINT = "hint: "\nfound = [line for line in lines if line.startswith(HINT)]', "printf 'hint: %s'"),
        ('raise Error(f"{name} is full")\nif "is full" in str(error): pass', ""),
        ('say(f"sanity check: {why}")\nwhy = said[0].removeprefix("sanity check: ")', ""),
    ],
)
def test_such_words_are_found(file: str, template: str) -> None:
    assert sentences_looked_for({"one.py": file}, template) != set()
