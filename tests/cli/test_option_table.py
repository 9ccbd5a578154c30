"""The table of options (sifmod/config/option.py), the frozen values of the commands, and what click takes from them."""

import ast
import inspect
import re
from dataclasses import MISSING, FrozenInstanceError
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import pytest

import sifmod
from sifmod.cli.command import Argument, fields, typed_again
from sifmod.cli.installed import GcOptions, UninstallOptions
from sifmod.cli.main import run
from sifmod.cli.stack import ApplyOptions
from sifmod.cli.test import SelfTestOptions
from sifmod.config.option import KEYS, TABLE, VARIABLES, option_of
from support.click_commands import commands

CLI = Path(sifmod.__file__).parent / "cli"
PYTHON = {"flag": bool, "whole": int, "file": Path, "amount": float, "day": date}


EVERY = commands()


def value_of(command: click.Command) -> tuple[Any, Any]:
    """The function of a command, and the class of its options."""
    assert command.callback is not None
    inside = inspect.getclosurevars(command.callback).nonlocals
    return inside["function"], inside["given"]


def names_of_types(function: Any) -> dict[str, Any]:
    """What the file of a function imports for its annotations only."""
    tree = ast.parse(Path(inspect.getfile(function)).read_text())
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for one in node.body:
                if isinstance(one, ast.ImportFrom):
                    exec(ast.unparse(one), found)
    return found


@pytest.mark.parametrize("words", EVERY)
def test_each_option_of_a_command_is_in_the_table(words: str) -> None:
    for parameter in EVERY[words].params:
        if isinstance(parameter, click.Option):
            option = option_of(words, str(parameter.name))
            assert sorted(parameter.opts) == sorted(option.spellings)
            assert (parameter.help or "", parameter.multiple) == (option.help, option.many)


@pytest.mark.parametrize("words", EVERY)
def test_the_help_has_each_option_under_its_title(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    """But for those of a site, which stand in one line where `config show` explains them."""
    assert run([*words.split(), "--help"]) == 0
    title, found = "", set()
    for line in capfd.readouterr().out.splitlines():
        title = line.removesuffix(":") if re.fullmatch("[A-Z][a-z]+:", line) else title
        found |= {(title, word.strip(",")) for word in line.split() if line.startswith("  -")}
    for parameter in EVERY[words].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            option = option_of(words, str(parameter.name))
            assert {(option.title, spelling) for spelling in option.spellings} <= found


@pytest.mark.parametrize("words", EVERY)
def test_a_command_takes_one_frozen_value_with_the_types_of_the_table(words: str) -> None:
    """What mypy sees is what click gives: field by field."""
    command = EVERY[words]
    function, given = value_of(command)
    local = names_of_types(function)
    (parameter,) = inspect.signature(function).parameters.values()
    assert (parameter.name, parameter.kind) == ("given", inspect.Parameter.POSITIONAL_OR_KEYWORD)  # no `**given`
    assert get_type_hints(function, localns=local)["given"] is given
    hints = get_type_hints(given, localns=local)
    parameters = {str(parameter.name): parameter for parameter in command.params}
    assert parameters.keys() == fields(given).keys()
    for name, field in fields(given).items():
        typed, hint = parameters[name], hints[name]
        default = field.default if isinstance(field, Argument) else field
        assert typed.required == (default is MISSING)
        optional = type(None) in get_args(hint)
        assert optional == (default is None)
        alternatives = [each for each in get_args(hint) if each is not type(None)] if optional else [hint]
        assert len(alternatives) == 1
        kind = alternatives[0]
        many = get_origin(kind) is tuple
        assert many == (typed.multiple or typed.nargs == -1)
        kind = get_args(kind)[0] if many else kind
        if isinstance(typed, click.Option):
            assert_type(option_of(words, name).type, kind)
        else:
            assert kind is (Path if isinstance(typed.type, click.Path) else str)


def assert_type(type_: Any, kind: Any) -> None:
    if get_origin(kind) is Literal:
        assert get_args(kind) == type_
    elif isinstance(type_, range):
        assert kind is int
    elif isinstance(type_, tuple):
        assert kind is str
    else:
        assert kind is PYTHON.get(type_, str)


def test_each_row_is_of_a_command_or_a_key() -> None:
    used = {
        option_of(words, str(parameter.name))
        for words, command in EVERY.items()
        for parameter in command.params
        if isinstance(parameter, click.Option)
    }
    assert [option for option in TABLE if option not in used and (option.typed or not option.key)] == []
    assert {option.of for option in TABLE} <= {"", *EVERY}


IGNORED = {("install", "robot")}  # accepted for EasyBuild's sake


@cache
def read_in(file: str) -> frozenset[str]:
    """The fields that a file of the command line reads of what is given, also in a property of it."""
    nodes = ast.walk(ast.parse((CLI / file).read_text()))
    attributes = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
    return frozenset(one.attr for one in attributes if ast.unparse(one.value) in ("given", "self"))


@pytest.mark.parametrize("words", EVERY)
def test_a_command_reads_each_of_its_options(words: str) -> None:
    """None is taken and forgotten; those that are keys of the site go on in its settings."""
    function, given = value_of(EVERY[words])
    read = read_in(Path(inspect.getfile(function)).name)
    ignored = {name for command, name in IGNORED if command == words}
    assert fields(given).keys() - KEYS.keys() - read == ignored


def test_nothing_reads_the_values_of_click() -> None:
    """They are in the value that a command takes, and go on as that."""
    nodes = ((path.name, node) for path in CLI.rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    reads = {name for name, node in nodes if isinstance(node, ast.Attribute) and node.attr == "params"}
    assert reads <= {"complete.py"}


def test_the_variables_that_a_module_reads_may_be_exported(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`SIFMOD_STALE_LAYER=refuse` in a job's environment must not end sifmod there."""
    templates = Path(sifmod.__file__).parent / "module" / "templates"
    texts = (path.read_text() for path in templates.rglob("*") if path.is_file())
    read = {name for text in texts for name in re.findall(r"(?<![A-Z_])SIFMOD_[A-Z_]+", text)}
    assert {"SIFMOD_STALE_LAYER", "SIFMOD_LAYER", "SIFMOD_PIP", "SIFMOD_ANY_CONTAINER"} <= read
    assert read <= set(VARIABLES)
    for name in read:
        monkeypatch.setenv(name, "")
    assert run(["list"]) == 0
    assert "unknown variable" not in capfd.readouterr().err


def test_options_are_frozen_and_complete() -> None:
    """As a frozen dataclass is: mypy says so, and so does a run."""
    given = GcOptions(yes=True, prefix="/p")
    assert (given.yes, given.days, given.settings) == (True, 14.0, {"prefix": "/p"})
    with pytest.raises(FrozenInstanceError):
        given.now = True  # type: ignore[misc]
    with pytest.raises(TypeError, match="UninstallOptions: names"):
        UninstallOptions()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="UninstallOptions: name"):
        UninstallOptions(names=("a",), name="a")  # type: ignore[call-arg]


def test_the_elements_of_a_job_have_the_options_that_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    of_job = {"job": True, "wait": True, "job_cores": 2, "job_output_dir": "logs", "quiet": True, "as_json": True}
    given = ApplyOptions(file=Path("s.yaml"), only=("A",), jobs=1, site="./s.yaml", stores=(Path("t"), Path("/u")))
    words = ("--jobs=1", f"--site={tmp_path}/s.yaml", f"--from={tmp_path}/t", "--from=/u")
    assert sorted(typed_again("stack apply", given)) == sorted(words)
    for name, value in of_job.items():
        assert option_of("stack apply", name).submits, name
        assert typed_again("stack apply", ApplyOptions(**{name: value})) == ()  # type: ignore[arg-type]
    tested = SelfTestOptions(modules=("A/1",), nodes=2, minimum=0.0, network=True, job=True, junit="x", account="p")
    assert sorted(typed_again("test", tested)) == ["--minimum=0.0", "--network", "--nodes=2", "--timeout=600"]
