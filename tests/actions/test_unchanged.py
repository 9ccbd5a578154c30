"""Recognising from its receipt an installation that needs nothing done."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sifmod import __version__
from sifmod.actions.install.install_easyconfigs import InstallOptions, find_unchanged
from sifmod.config.input import HostFacts, current_facts, read_input
from sifmod.config.name import ModuleName
from sifmod.tree.generation import module_lock, publish, staged_generation
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.provenance import CommandLine, ImageChoice, Pairs, Provenance, file_state, has_state
from sifmod.tree.receipt import Installation
from sifmod.tree.store import Store
from support.tree import fill, tree_of

MODULE = ModuleName("Tiny", "1.0")
ENVIRON: Mapping[str, str] = {"PATH": "/usr/bin"}

WITHOUT = CommandLine()


class Place:
    """An easyconfig, a file that its image comes from, and what is installed of them."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root / "prefix")
        self.easyconfig, self.image = root / "ec/Tiny-1.0.yaml", root / "x.sif"
        self.easyconfig.parent.mkdir()
        self.easyconfig.write_text("name: Tiny\n")
        self.image.write_text("image")

    def install(self, asked: CommandLine = WITHOUT, *, kept: bool = False, **changes: Any) -> Installation:
        made = Provenance(
            sifmod=__version__,
            easyconfig=os.path.realpath(self.easyconfig),
            version="1.0",
            variant=None,
            site="test",
            accelerator="none",
            inputs=(read_input(str(self.easyconfig), ENVIRON),),
            facts=current_facts(ENVIRON),
            asked=asked,
            image=ImageChoice("x", kept, (file_state(str(self.image)),)),
            plan_digest="x",
        )._replace(**changes)
        with module_lock(tree_of(self.layout), MODULE) as held:
            with staged_generation(held) as stage:
                first = fill(stage, Store(self.layout, held.held), "a")
                (stage.directory / RECEIPT).unlink()
                installation = stage.record(made, first.image)
            publish(held, installation)
        return installation

    def find(self, easyconfig: str | Path = "", options: Pairs = ()) -> Installation | None:
        asked = InstallOptions(asked=CommandLine(options=options))
        return find_unchanged(self.layout, str(easyconfig or self.easyconfig), asked, HostFacts(ENVIRON))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_nothing_is_installed(place: Place) -> None:
    assert place.find() is None
    assert not place.layout.prefix.exists()


def test_the_same_easyconfig_by_each_of_its_paths(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = place.install()
    (tmp_path / "link").symlink_to("ec")
    monkeypatch.chdir(tmp_path)
    for name in ("", "ec/Tiny-1.0.yaml", tmp_path / "link/Tiny-1.0.yaml", "./link/../ec/Tiny-1.0.yaml"):
        assert place.find(name) == installation
    (tmp_path / "Tiny-1.0.yaml").symlink_to(place.easyconfig)  # what it extends is looked for beside the link
    for name in ("Tiny-1.0", "Tiny-1.0.yaml", "ec/Other.yaml", "./Tiny-1.0.yaml"):
        assert place.find(name) is None
    monkeypatch.chdir(tmp_path / "ec")
    assert place.find("Tiny-1.0.yaml") == installation


def test_a_bare_name_is_the_one_that_it_was_asked_for_by(place: Place) -> None:
    installation = place.install(CommandLine("Tiny-1.0"))
    assert place.find("Tiny-1.0") == place.find() == installation
    for name in ("Tiny-1.0.yaml", "Tiny-1", "Tiny", "Other-1.0"):
        assert place.find(name) is None


@pytest.mark.parametrize("name", ["other.yaml", "site tiny", "Tiny.yaml", 'a "b" \\.yaml', "Tiny-2.0.yaml"])
def test_an_easyconfig_of_any_name(place: Place, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place.easyconfig = place.easyconfig.rename(place.easyconfig.with_name(name))
    installation = place.install()
    assert place.find() == installation
    monkeypatch.chdir(place.easyconfig.parent)
    assert place.find(f"./{name}") == installation
    assert place.find(name) == (installation if name.endswith(".yaml") else None)
    monkeypatch.chdir("/")
    assert place.find(name.removesuffix(".yaml")) is None
    assert place.find("another.yaml") is None


def test_options_are_the_same(place: Place) -> None:
    asked = (("--site", "x"), ("--link", "copy"))
    installation = place.install(CommandLine(options=asked))
    assert place.find(options=asked) == installation
    for other in ((), asked[:1], (*asked, ("--variant", "a")), asked[::-1], (("--site", "y"), asked[1])):
        assert place.find(options=other) is None


def test_whether_the_check_was_left_out_does_not_matter(place: Place) -> None:
    installation = place.install(CommandLine(checked=False))
    assert place.find() == installation


def test_an_image_that_module_only_kept_is_not_what_the_easyconfig_asks(place: Place) -> None:
    place.install(kept=True)
    assert place.find() is None


@pytest.mark.parametrize(
    "changes", [{"sifmod": "0.0.1"}, {"facts": (("arch", "other"),)}, {"easyconfig": "/elsewhere/Tiny-1.0.yaml"}]
)
def test_what_it_was_made_by_or_of_is_another(place: Place, changes: dict[str, Any]) -> None:
    place.install(**changes)
    assert place.find() is None


def test_a_changed_easyconfig(place: Place) -> None:
    place.install()
    place.easyconfig.write_text("name: tiny\n")
    assert place.find() is None


def test_a_changed_image(place: Place) -> None:
    place.install()
    place.image.write_text("images")
    assert place.find() is None
    place.image.unlink()
    assert place.find() is None


def test_an_image_overwritten_with_the_same_size_and_time(place: Place) -> None:
    place.install()
    before = place.image.stat()
    while place.image.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of a file system ticks
        place.image.write_text("egami")
        os.utime(place.image, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert place.find() is None


def test_what_is_installed_lacks_something(place: Place) -> None:
    installation = place.install()
    assert place.find() == installation
    place.layout.module_file(MODULE, "lua").unlink()
    assert place.find() is None


def test_others_in_the_same_place(place: Place) -> None:
    """Hidden directories, modules of a name that begins the same, and a file among them."""
    installation = place.install()
    for name in ("Tiny/.other", "Tiny/9.9", "Tin/1.0", "T"):
        (place.layout.software / name).mkdir(parents=True)
    assert place.find() == installation
    (place.layout.software / "Tiny-1.0.yaml").write_text("")
    assert place.find() == installation


def test_the_state_of_a_file(tmp_path: Path) -> None:
    """Its size, its times and its inode each count; where there is none there is no state."""
    path = tmp_path / "x"
    assert file_state(str(path)) == (str(path), "")
    path.write_text("abc")
    os.utime(path, ns=(5, 7))
    assert file_state(str(path)) == (str(path), f"3 7 {path.stat().st_ino} {path.stat().st_ctime_ns}")


@pytest.mark.parametrize(("mode", "linked"), [(0o444, True), (0o444, False), (0o644, True)])
def test_a_hard_link_changes_no_state_of_a_file_that_the_store_links(tmp_path: Path, mode: int, linked: bool) -> None:
    path = tmp_path / "x"
    path.write_text("abc")
    path.chmod(mode)
    before, known = path.stat(), file_state(str(path), linked=linked)
    assert has_state(known)
    assert not has_state(known._replace(state=known.state.rpartition(" ")[0]))  # as an earlier sifmod recorded it
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of a file system ticks
        (tmp_path / "y").unlink(missing_ok=True)
        os.link(path, tmp_path / "y")
    assert has_state(known) == (linked and mode == 0o444)
