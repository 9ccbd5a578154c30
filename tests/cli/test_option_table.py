"""The table of options (sifmod/config/option.py), the frozen values of the commands, and what click takes from them."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, FrozenInstanceError
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import pytest

import sifmod
from sifmod.cli.command import Argument, fields
from sifmod.cli.installed import GcOptions, UninstallOptions
from sifmod.cli.main import VERBS, cli, run
from sifmod.config.option import TABLE, VARIABLES, option_of

CLI = Path(sifmod.__file__).parent / "cli"
PYTHON = {"flag": bool, "whole": int, "file": Path, "amount": float, "day": date}


def commands() -> dict[str, click.Command]:
    """Every command, by its words."""
    found: dict[str, click.Command] = {}
    with click.Context(cli) as context:
        for name in VERBS:
            command = cli.get_command(context, name)
            assert command is not None
            inner = command.commands if isinstance(command, click.Group) else None
            found |= {name: command} if inner is None else {f"{name} {word}": one for word, one in inner.items()}
    return found


COMMANDS = commands()


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


@pytest.mark.parametrize("words", COMMANDS)
def test_each_option_of_a_command_is_in_the_table(words: str) -> None:
    for parameter in COMMANDS[words].params:
        if isinstance(parameter, click.Option):
            option = option_of(words, str(parameter.name))
            assert sorted(parameter.opts) == sorted(option.spellings)
            assert (parameter.help or "", parameter.multiple) == (option.help, option.many)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_takes_one_frozen_value_with_the_types_of_the_table(words: str) -> None:
    """What mypy sees is what click gives: field by field."""
    command = COMMANDS[words]
    function, given = value_of(command)
    local = names_of_types(function)
    assert list(inspect.signature(function).parameters) == ["given"]
    assert get_type_hints(function, localns=local)["given"] is given
    hints = get_type_hints(given, localns=local)
    parameters = {str(parameter.name): parameter for parameter in command.params}
    assert parameters.keys() == fields(given).keys()
    for name, field in fields(given).items():
        parameter, hint = parameters[name], hints[name]
        default = field.default if isinstance(field, Argument) else field
        assert parameter.required == (default is MISSING)
        optional = type(None) in get_args(hint)
        assert optional == (default is None)
        alternatives = [each for each in get_args(hint) if each is not type(None)] if optional else [hint]
        assert len(alternatives) == 1
        kind = alternatives[0]
        many = get_origin(kind) is tuple
        assert many == (parameter.multiple or parameter.nargs == -1)
        kind = get_args(kind)[0] if many else kind
        if isinstance(parameter, click.Option):
            assert_type(option_of(words, name).type, kind)
        else:
            assert kind is (Path if isinstance(parameter.type, click.Path) else str)


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
        for words, command in COMMANDS.items()
        for parameter in command.params
        if isinstance(parameter, click.Option)
    }
    assert [option for option in TABLE if option not in used and (option.typed or not option.key)] == []
    assert {option.of for option in TABLE} <= {"", *COMMANDS}


def trees() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(CLI.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            yield path.name, node


def test_no_options_travel_untyped() -> None:
    """No command takes `**given`: click's own call is made a value in command.py, and nothing reads click's values."""
    takes = {name for name, node in trees() if isinstance(node, ast.FunctionDef) and node.args.kwarg}
    assert takes == {"command.py", "output.py"}
    reads = [name for name, node in trees() if isinstance(node, ast.Attribute) and node.attr == "params"]
    assert set(reads) <= {"complete.py"}


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
