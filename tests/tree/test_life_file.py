"""The file that keeps the life of modules, and what module systems read of it."""

import json
import os
from datetime import date
from pathlib import Path

import pytest

from sifmod.errors import InstallError
from sifmod.tree.layout import Layout
from sifmod.tree.life import Deprecated, Life, NameLife, Retired, decided_names, from_json, notices, read_life, to_json
from sifmod.tree.locking import Tree
from sifmod.tree.write_life import LUA, TCL, is_ours, life_lock, modulercs, write_life

DAY, LAST = date(2026, 10, 1), date(2027, 3, 31)
LIFE = NameLife(
    "2.13.0",
    {
        "2.2.0": Life(deprecated=Deprecated(DAY, LAST, "use 2.13.0"), labels=(("team", "ai"),)),
        "2.1.0": Life(retired=Retired(DAY, "PyTorch/2.13.0", 'of "old" {CUDA')),
        "2.0.0": Life(hidden=True),
    },
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


def test_it_is_read_as_it_was_written() -> None:
    assert from_json(to_json(LIFE).encode()) == LIFE
    assert to_json(NameLife(None, {"1": Life()})) == ""
    assert LIFE.without("2.13.0").default is None
    assert LIFE.without("2.2.0").default == "2.13.0"


def test_a_deprecated_module_retires_on_the_day_after_its_last() -> None:
    assert LIFE.of("2.2.0").refused_from == date(2027, 4, 1)
    assert Life(deprecated=Deprecated(DAY, LAST), retired=Retired(DAY)).refused_from == DAY
    assert Life(hidden=True, deprecated=Deprecated(DAY)).refused_from is None


def test_a_notice_has_a_line_for_each_day_on_which_something_changes() -> None:
    assert dict(notices("PyTorch", LIFE)) == {
        "2.2.0": "1790812800 say PyTorch/2.2.0 is deprecated and loads until 2027-03-31: use 2.13.0\n"
        "1806537600 refuse PyTorch/2.2.0 was retired on 2027-04-01: use 2.13.0\n",
        "2.1.0": '1790812800 refuse PyTorch/2.1.0 was retired on 2026-10-01: use PyTorch/2.13.0; of "old" {CUDA\n',
    }


def test_a_default_that_retires_is_the_default_until_then() -> None:
    files = modulercs("PyTorch", NameLife("2.2.0", LIFE.versions))
    assert 'if os.time() < 1806537600 then module_version("PyTorch/2.2.0", "default") end' in files[LUA]
    assert "if {[clock seconds] < 1806537600} {module-version PyTorch/2.2.0 default}" in files[TCL]
    assert modulercs("PyTorch", NameLife(None, {"1": Life(deprecated=Deprecated(DAY))})) == {LUA: "", TCL: ""}


@pytest.mark.parametrize("file", [LUA, TCL])
def test_a_file_is_ours_until_it_is_edited(file: str) -> None:
    text = modulercs("PyTorch", LIFE)[file]
    assert is_ours(text.encode())
    for edited in (
        f"{text}\n",
        text.replace("2.13.0", "2.12.0"),
        text.replace("sifmod wrote", "Sifmod wrote"),
        "",
        "#%Module1.0\n",
    ):
        assert not is_ours(edited.encode()), edited


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", "{}", '{"format": 2, "default": null, "versions": {}}', "[" * 5000,
        '{"format": 1, "default": "../x", "versions": {}}', '{"format": 1, "default": 1, "versions": {}}',
        '{"format": 1, "default": null, "versions": {"a/b": {}}}',
        '{"format": 1, "default": null, "versions": {"1": {"hidden": "yes"}}}',
        '{"format": 1, "default": null, "versions": {"1": {"other": 1}}}',
        json.dumps({"format": 1, "default": None, "versions": {
            "1": {"retired": {"since": "soon", "successor": "", "message": ""}}}}),
        json.dumps({"format": 1, "default": None, "versions": {
            "1": {"retired": {"since": "0001-01-01", "successor": "", "message": ""}}}}),
        json.dumps({"format": 1, "default": None, "versions": {"1": {"labels": [["a", "\x1b[2J"]]}}}),
        json.dumps({"format": 1, "default": None, "versions": {
            "1": {"deprecated": {"since": "2026-01-01", "until": None, "message": "a\nb"}}}}),
    ],
)  # fmt: skip
def test_a_file_that_others_wrote_is_named(layout: Layout, text: str) -> None:
    place = layout.life("PyTorch")
    place.parent.mkdir(parents=True)
    place.write_text(text)
    with pytest.raises(InstallError, match=r"life/PyTorch/\.life\.json is invalid"):
        read_life(layout, "PyTorch")


def test_what_is_no_file_is_named_and_not_followed(layout: Layout, tmp_path: Path) -> None:
    place = layout.life("PyTorch")
    place.parent.mkdir(parents=True)
    (tmp_path / "else").write_text(to_json(LIFE))
    place.symlink_to(tmp_path / "else")
    with pytest.raises(InstallError, match="cannot be read"):
        read_life(layout, "PyTorch")
    place.parent.rename(tmp_path / "moved")
    place.parent.parent.rmdir()
    place.parent.parent.symlink_to(tmp_path)
    assert decided_names(layout) == set()


def test_decisions_behind_a_directory_that_is_a_link_do_not_count(layout: Layout, tmp_path: Path) -> None:
    """A member of the group can put one there."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / layout.life("PyTorch").name).write_text(to_json(LIFE))
    layout.lives("PyTorch").parent.mkdir(parents=True)
    layout.lives("PyTorch").symlink_to(elsewhere)
    with pytest.raises((InstallError, OSError), match="is a symlink"):
        read_life(layout, "PyTorch")


def test_where_nothing_is_decided_there_is_nothing(layout: Layout) -> None:
    assert read_life(layout, "PyTorch") == NameLife()
    layout.life("PyTorch").parent.mkdir(parents=True)
    layout.life("PyTorch").write_text(to_json(LIFE))
    layout.lives("Empty").mkdir()
    assert {name: read_life(layout, name) for name in decided_names(layout)} == {"Empty": NameLife(), "PyTorch": LIFE}


def steps_of(change: NameLife, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that come or go, and what is synced between them, in order; the system is asked, not sifmod."""
    steps: list[str] = []
    rename, fsync = os.rename, os.fsync

    def place(descriptor: int) -> Path:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))

    def renamed(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        comes = place(src_dir_fd).is_relative_to(layout.staging)
        directory, name = (place(dst_dir_fd), target) if comes else (place(src_dir_fd), source)
        steps.append(str((directory / name).relative_to(layout.prefix)))

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        if not place(descriptor).is_relative_to(layout.staging):
            steps.append(f"sync {place(descriptor).relative_to(layout.prefix)}")

    with life_lock(Tree(layout, 30, lambda _what: print), "PyTorch") as held, monkeypatch.context() as patched:
        patched.setattr(os, "rename", renamed)
        patched.setattr(os, "fsync", synced)
        write_life(layout, "PyTorch", lambda _: change, held)
    return steps


@pytest.mark.parametrize(
    "life",
    [
        NameLife("2.13.0"),
        NameLife(None, {"2.0.0": Life(hidden=True)}),
        NameLife(None, {"2.2.0": LIFE.of("2.2.0")}),
        NameLife(None, {"2.1.0": LIFE.of("2.1.0")}),
        LIFE,
    ],
    ids=["default", "hidden", "deprecated", "retired", "all"],
)
def test_the_truth_is_written_first_and_each_name_is_durable_before_the_next(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, life: NameLife
) -> None:
    """Of each decision, and where it is undone: what is derived never says more than what it derives from."""
    for name in ("2.0.0.lua", "2.13.0"):
        (layout.modules / "PyTorch" / name).parent.mkdir(parents=True, exist_ok=True)
        (layout.modules / "PyTorch" / name).touch()
    versions = sorted(version for version, _ in notices("PyTorch", life))
    lives, modules = "life/PyTorch", "modules/PyTorch"
    derived = [*(f"{lives}/{version}" for version in versions), f"{modules}/{LUA}", f"{modules}/{TCL}"]
    for wanted in (life, life._replace(default=None, versions={})):
        steps = steps_of(wanted, layout, monkeypatch)
        assert [step for step in steps if not step.startswith("sync")] == [f"{lives}/.life.json", *derived]
        for step, after in zip(steps, [*steps[1:], ""], strict=True):
            assert step.startswith("sync") or after == f"sync {os.path.dirname(step)}"
        assert read_life(layout, "PyTorch") == wanted


def test_the_last_day_of_all_has_none_after_it() -> None:
    assert Life(deprecated=Deprecated(date(2026, 1, 1), date.max)).refused_from is None
    assert Life(deprecated=Deprecated(date(2026, 1, 1), date(2026, 1, 2))).refused_from == date(2026, 1, 3)
