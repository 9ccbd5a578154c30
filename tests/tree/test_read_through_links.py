"""What a tree keeps in files that a group may write: none of it is read or written through a link of a member."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sifmod.actions.stack.applying import Line, last_end, log_of, write_line
from sifmod.actions.stack.stack_plan import Step
from sifmod.config.name import ModuleName
from sifmod.config.stack import Entry, Member, Stack
from sifmod.config.yaml.node import Mark
from sifmod.errors import SifmodError
from sifmod.tree.layout import Layout
from sifmod.tree.life import Life, NameLife, decided_names, read_life, to_json
from sifmod.tree.locking import Tree
from sifmod.tree.log import Done, append, entry, logged_modules, read_log
from sifmod.tree.mark import all_marks, leave
from sifmod.tree.stack_record import (
    Applied,
    Submission,
    locked_images,
    read_applied,
    read_submissions,
    stack_lock,
    write_applied,
    write_submissions,
)

MODULE = ModuleName("Tiny", "1.0")
STACK = Stack(Path("/stack.yaml"), "mine", (), ())
STEP = Step(Member("Tiny-1.0", Entry(easyconfig="Tiny-1.0"), Mark("/stack.yaml", 1, 1)), None, " ", MODULE)
IMAGE = "a" * 64


@dataclass(frozen=True)
class Kept:
    """A file of a tree, what writes it, and what reads something from it."""

    place: Callable[[Layout], Path]
    write: Callable[[Layout], object]
    read: Callable[[Layout], object]


def lives(layout: Layout) -> None:
    layout.lives("Tiny").mkdir(parents=True)
    layout.life("Tiny").write_text(to_json(NameLife(None, {"1.0": Life(hidden=True)})))


def applied(layout: Layout) -> None:
    with stack_lock("mine", Tree(layout, 30, lambda _what: print)) as held:
        write_applied(layout, Applied("mine", "/stack.yaml", (MODULE,), images=(IMAGE,)), held)


def submitted(layout: Layout) -> None:
    with stack_lock("mine", Tree(layout, 30, lambda _what: print)) as held:
        write_submissions(layout, "mine", [Submission("9", "apply", "/logs", ((MODULE,),))], held)


def marked(layout: Layout) -> None:
    layout.marks.mkdir(parents=True)
    layout.marks.chmod(0o1777)
    leave(layout, IMAGE, Path("/own"))


def store_log(layout: Layout) -> None:
    append(layout, entry(Done("fetched", sha256=IMAGE), "sifmod fetch x"))


def module_log(layout: Layout) -> None:
    append(layout, entry(Done("installed", MODULE, None, 1), "sifmod install x"))


def record(layout: Layout) -> Path:
    return layout.prefix / "stacks/mine.json"


KEPT = {
    "the decisions about a name": Kept(lambda layout: layout.life("Tiny"), lives, lambda one: read_life(one, "Tiny")),
    "the log of a module": Kept(
        lambda layout: layout.log(MODULE), module_log, lambda layout: read_log(layout, MODULE).entries
    ),
    "the log of the store": Kept(lambda layout: layout.log(None), store_log, lambda one: read_log(one, None).entries),
    "the log of a stack": Kept(
        lambda layout: log_of(layout, STACK, STEP),
        lambda layout: write_line(layout, STACK, STEP, Line("installed", "installed", 1)),
        lambda layout: last_end(layout, STACK, STEP, ""),
    ),
    "what a stack installed": Kept(record, applied, lambda layout: read_applied(layout, "mine")),
    "what a lock names": Kept(record, applied, locked_images),
    "the jobs of a stack": Kept(
        lambda layout: layout.prefix / "stacks/jobs/mine.json",
        submitted,
        lambda layout: read_submissions(layout, "mine"),
    ),
}
DIRECTORIES = {
    "names with decisions": Kept(lambda layout: layout.lives("Tiny").parent, lives, decided_names),
    "modules with a log": Kept(
        lambda layout: layout.log(MODULE).parent, module_log, lambda layout: logged_modules(layout)[0]
    ),
    "marks": Kept(lambda layout: layout.marks, marked, lambda layout: all_marks(layout, {IMAGE})),
}


def found(kept: Kept, layout: Layout) -> object:
    """What is read; None where it is refused."""
    with suppress(OSError, SifmodError):
        return kept.read(layout)
    return None


def ways(top: Path, place: Path) -> list[Path]:
    """A file, and each directory on the way to it."""
    return [place, *(path for path in place.parents if path.is_relative_to(top) and path != top)]


@pytest.mark.parametrize("what", [*KEPT, *DIRECTORIES])
def test_nothing_is_read_through_a_link(tmp_path: Path, what: str) -> None:
    """Neither of the file nor of any directory above it, and where it is gone there is nothing to read."""
    layout, kept = Layout(tmp_path / "prefix"), {**KEPT, **DIRECTORIES}[what]
    kept.write(layout)
    content = found(kept, layout)
    assert content
    for number, place in enumerate(ways(layout.prefix, kept.place(layout))):
        place.rename(away := tmp_path / f"away-{number}")
        nothing = found(kept, layout)
        assert nothing != content
        place.symlink_to(away)
        assert found(kept, layout) in (nothing, None)
        place.unlink()
        away.rename(place)
        assert found(kept, layout) == content


@pytest.mark.parametrize("what", ["the log of a module", "the log of the store", "the log of a stack"])
def test_nothing_is_appended_through_a_link(tmp_path: Path, what: str) -> None:
    """What is written again and again without being replaced."""
    layout, kept = Layout(tmp_path / "prefix"), KEPT[what]
    kept.write(layout)
    place = kept.place(layout)
    before = place.read_bytes()
    for number, way in enumerate(ways(layout.prefix, place)):
        way.rename(away := tmp_path / f"away-{number}")
        way.symlink_to(away)
        with pytest.raises(OSError, match=r"symlink|symbolic link"):
            kept.write(layout)
        assert place.read_bytes() == before
        way.unlink()
        away.rename(way)
