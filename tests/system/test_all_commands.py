"""What holds for every command: who may type it, what the others can do after it, and what it has made durable.

A new command is in all of these tests as soon as it is in COMMANDS of tests/support/writing_commands.py.
"""

import os
from collections.abc import Iterator

import pytest

from support.command import run
from support.images import Images
from support.roles import Row, Unchanged, after, pairwise, tried, unreadable
from support.runtime import RUNTIME
from support.syncs import Tracing, mistakes, tracing
from support.writing_commands import COMMANDS, USERS, Command, World, made_world, options_of_all

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run commands as users of two groups")
IN_THE_TREE = tuple(command for command in COMMANDS if command.writes == "prefix")
STARTED = tuple(command for command in IN_THE_TREE if command.start != "none")
PLAIN = "none"  # no `sharing`
DURABLE = tuple(  # a sandbox is there to be changed, and is made again from its image
    each
    for each in COMMANDS
    if each.writes in ("prefix", "output", "home")
    and "--repair-modes" not in each.options
    and "sandbox" not in each.words
)


@pytest.fixture(scope="module")
def world(images: Images) -> Iterator[World]:
    with made_world(images) as made:
        yield made


@pytest.fixture(scope="module")
def traced(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracing]:
    env = {**world.victim.env, **RUNTIME.userns, "PATH": f"{world.place.env['PATH']}:{os.environ['PATH']}"}
    with tracing(tmp_path_factory.mktemp("traces"), env, ("config", "show")) as made:
        yield made


def test_every_command_is_listed() -> None:
    assert {name for name, _ in options_of_all()} == {command.verb for command in COMMANDS}


def test_each_command_by_each_user(world: World) -> None:
    """Umasks and sharing pairwise; `python -m tests.fuzz.roles` tries the whole product."""
    unchanged: Unchanged = {}
    assert [f"{row}: {wrong}" for row in pairwise() for wrong in tried(world, row, unchanged)] == []


@pytest.mark.parametrize("umask", [0o022, 0o077], ids=oct)
def test_a_tree_of_the_group_is_opened_to_all(world: World, umask: int) -> None:
    """`sharing` changes from group to site; then a command, and the repair."""
    wrong = []
    for command in STARTED:
        world.reset(command.start, "group", umask)
        world.settings("site")
        world.ok("publisher", umask, command.words)
        world.ok("publisher", umask, "verify --repair-modes")
        row = Row(command, "publisher", umask, "site")
        wrong += [f"{row}: {each}" for each in (*unreadable(world, USERS), *after(world, row))]
    assert wrong == []


@pytest.mark.parametrize("command", DURABLE, ids=str)
def test_data_is_synced_before_names(world: World, command: Command, traced: Tracing) -> None:
    world.reset(command.start, PLAIN, 0o022)
    run(("chown", "-hR", "0:0", world.area)).ok()  # strace runs it as root
    words = [word.format(**world.names("publisher")) for word in command.words.split()]
    outcome, lines = traced.run(words, {"HOME": str(world.home("publisher"))})
    assert outcome.code == 0, outcome.stderr
    assert lines
    assert mistakes(lines, world.area, [world.home("publisher") / ".cache"]) == []
