import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from sifmod.actions.finding import Finding, Kind, of_file
from sifmod.actions.start import installed
from sifmod.actions.verify import verify
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.errors import ModuleError
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.receipt import FileRecord, Installation
from support.answer import answer
from support.command import SIFMOD
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.tree import MODULE, install
from support.user import OrdinaryUser


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


@pytest.fixture
def installation(layout: Layout) -> Installation:
    return install(layout, "a")


def test_all_is_well(layout: Layout, installation: Installation) -> None:
    before = disk_state(layout.prefix)
    assert verify(layout, installation) == ()
    assert installed(layout, MODULE) == installation
    assert disk_state(layout.prefix) == before


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [("{", "unreadable", "is invalid: "), ('{"format": 1, "default": "9", "versions": {}}', "missing", "nothing")],
)
def test_decisions_that_no_load_can_follow(
    layout: Layout, installation: Installation, text: str, kind: Kind, found: str
) -> None:
    write(layout.life("Tiny"), text)
    (finding,) = verify(layout, installation)
    assert (finding.kind, finding.path) == (kind, str(layout.life("Tiny")))
    assert found in finding.found
    assert finding.fault


def rewrite(path: Path, data: bytes) -> None:
    path.parent.chmod(0o755)
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)


def flip(path: Path) -> None:
    """Change one bit, keep the size and the mode."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    rewrite(path, bytes(data))


def unlink(path: Path) -> None:
    path.parent.chmod(0o755)
    path.unlink()


def elsewhere(path: Path) -> None:
    unlink(path)
    path.symlink_to("/etc/hostname")


def directory(path: Path) -> None:
    unlink(path)
    path.mkdir()


DAMAGES: tuple[tuple[str, Callable[[Path], None], str], ...] = (
    ("modulefile.lua", flip, "changed"),
    ("modulefile.lua", unlink, "missing"),
    ("modulefile.lua", elsewhere, "changed"),
    ("modulefile.lua", directory, "changed"),
    ("bin/python", flip, "changed"),
    ("bin/python", lambda path: path.chmod(0o444), "changed"),
    ("share/modules/Tiny/1.0.lua", unlink, "missing"),
    ("../../../../../modules/Tiny/1.0.lua", flip, "changed"),
    ("../../../../../modules/Tiny/1.0.lua", unlink, "missing"),
    ("user-software", unlink, "missing"),
    ("user-software", elsewhere, "changed"),
    ("user-software.squashfs", directory, "changed"),
)


@pytest.mark.parametrize(("path", "damage", "kind"), DAMAGES)
def test_damage_is_found(
    layout: Layout, installation: Installation, path: str, damage: Callable[[Path], None], kind: str
) -> None:
    target = Path(os.path.normpath(Path(installation.root, path)))
    damage(target)
    (finding,) = verify(layout, installation)
    assert (finding.kind, finding.path, finding.fault) == (kind, str(target), True)
    assert finding.expected != finding.found


@pytest.mark.parametrize(
    ("damage", "kind", "found"),
    [
        (flip, "changed", "sha256:"),
        (lambda path: rewrite(path, b"short"), "changed", "5 bytes"),
        (unlink, "missing", "nothing"),
    ],
)
def test_a_damaged_image_is_found(
    layout: Layout, installation: Installation, damage: Callable[[Path], None], kind: str, found: str
) -> None:
    damage(Path(installation.required_image.path))
    (finding,) = verify(layout, installation)
    assert (finding.kind, finding.path, finding.fault) == (kind, installation.required_image.path, True)
    assert finding.found.startswith(found)


def test_without_the_images_link_the_copy_that_a_load_takes_is_hashed(
    layout: Layout, installation: Installation, tmp_path: Path
) -> None:
    """As on LUMI, the site's copy is no fault; another image in its place is one, and so is nothing."""
    link, image = Path(installation.root, "tiny.sif"), Path(installation.required_image.path)
    link.unlink()
    Path(installation.root, "notes").write_text("x")
    copy = tmp_path / "central" / "tiny.sif"
    copy.parent.mkdir()
    choice = installation.provenance.image._replace(directories=(str(tmp_path / "none"), str(copy.parent)))
    there = replace(installation, provenance=installation.provenance._replace(image=choice))
    added = ("added", f"{installation.root}/notes", "nothing", "a file")
    none = ("missing", str(link), f"a link to {image}", "nothing, and no copy of the site")
    assert verify(layout, installation) == verify(layout, there) == (none, added)
    shutil.copyfile(image, copy)
    released = ("released", str(link), f"a link to {image}", f"nothing, and the site's copy {copy}")
    assert verify(layout, there) == (released, added)
    assert [finding.fault for finding in verify(layout, there)] == [False, False]
    flip(copy)
    (found, _) = verify(layout, there)
    assert (found.kind, found.path, found.fault) == ("changed", str(copy), True)


def test_what_is_not_installed_cannot_be_verified(layout: Layout) -> None:
    with pytest.raises(ModuleError, match=r"Tiny/1\.0 is not installed"):
        installed(layout, MODULE)


def test_a_lost_receipt_is_an_error(layout: Layout, installation: Installation) -> None:
    Path(installation.root, RECEIPT).unlink()
    with pytest.raises(ModuleError, match="missing or cannot be read") as caught:
        installed(layout, MODULE)
    assert "--rebuild" in caught.value.hint


def test_every_finding_says_what_was_expected_and_found(layout: Layout, installation: Installation) -> None:
    """In the order of the receipt: files, modulefiles, links, the image, and what was added."""
    root = Path(installation.root)
    expected = {file.path: f"sha256:{file.sha256}" for file in (*installation.files, *installation.stubs)}
    stub = layout.module_file(MODULE, "lua")
    program, modulefile, own = (root / name for name in ("bin/python", "modulefile.lua", "user-software"))
    program.parent.chmod(0o755)
    program.chmod(0o640)
    directory(modulefile)
    unlink(stub)
    target = os.readlink(own)
    unlink(own)
    own.write_text("mine")
    unlink(root / "user-software.squashfs")
    elsewhere(root / "easyconfig.yaml")
    image = Path(installation.required_image.path)
    rewrite(image, b"short")
    (root / "notes").write_text("x")
    squashfs = next(link.target for link in installation.links if link.path == "user-software.squashfs")
    assert sorted(verify(layout, installation)) == sorted(
        (
            ("changed", str(program), "mode 555", "mode 640"),
            ("changed", str(modulefile), expected["modulefile.lua"], "not a regular file"),
            ("changed", str(root / "easyconfig.yaml"), expected["easyconfig.yaml"], "not a regular file"),
            ("missing", str(stub), expected["Tiny/1.0.lua"], "nothing"),
            ("changed", str(own), f"a link to {target}", "no link"),
            ("missing", str(root / "user-software.squashfs"), f"a link to {squashfs}", "nothing"),
            ("changed", str(image), f"{installation.required_image.size} bytes", "5 bytes"),
            ("added", str(root / "notes"), "nothing", "a file"),
        )
    )
    unlink(own)
    own.symlink_to("/etc")
    unlink(image)
    found = verify(layout, installation)
    assert ("changed", str(own), f"a link to {target}", "a link to /etc") in found
    assert ("missing", str(image), f"sha256:{installation.required_image.sha256}", "nothing") in found
    (root / "tiny.sif").unlink()
    none = ("missing", str(root / "tiny.sif"), f"a link to {image}", "nothing, and no copy of the site")
    assert none in verify(layout, installation)


@pytest.mark.parametrize("mode", [0o555, 0o755, 0o511, 0o100])
def test_a_program_that_its_owner_can_start_is_as_it_was(layout: Layout, installation: Installation, mode: int) -> None:
    Path(installation.root, "bin/python").chmod(mode if os.geteuid() == 0 else mode | 0o400)
    assert verify(layout, installation) == ()


@pytest.mark.parametrize("mode", [0o444, 0o455])
def test_a_program_that_its_owner_cannot_start(layout: Layout, installation: Installation, mode: int) -> None:
    Path(installation.root, "bin/python").chmod(mode)
    (finding,) = verify(layout, installation)
    assert (finding.expected, finding.found) == ("mode 555", f"mode {mode:o}")


@pytest.mark.parametrize("what", ["bin/python", "tiny.sif"])
def test_what_cannot_be_read_is_told(
    layout: Layout, installation: Installation, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that gives an error; everything else is looked at all the same."""
    path = Path(installation.root, what)
    usual = os.open

    def failing(opened: Any, *arguments: Any, **named: Any) -> int:
        if str(opened) == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return usual(opened, *arguments, **named)

    monkeypatch.setattr(os, "open", failing)
    (finding,) = verify(layout, installation)
    records = {str(file.path): file.sha256 for file in installation.files} | {
        "tiny.sif": installation.required_image.sha256
    }
    named = installation.required_image.path if what == "tiny.sif" else str(path)
    assert finding == ("unreadable", named, f"sha256:{records[what]}", "Input/output error")
    assert finding.fault


def test_a_directory_that_cannot_be_looked_through(
    layout: Layout, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Any = ".") -> Any:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "scandir", failing)
    (finding,) = verify(layout, installation)
    assert (finding.kind, finding.expected, finding.found) == ("unreadable", "a directory", "Permission denied")
    assert Path(finding.path).is_relative_to(installation.root)


def test_what_each_kind_of_finding_means() -> None:
    faults = {kind: Finding(kind, "/x", "", "").fault for kind in get_args(Kind)}
    assert faults == {
        "missing": True,
        "changed": True,
        "unreadable": True,
        "added": False,
        "released": False,
    }


def test_the_verb_goes_on_where_a_receipt_is_lost(
    layout: Layout, installation: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    other = install(layout, "b", ModuleName("Other", "2.0"))
    Path(installation.root, RECEIPT).unlink()
    (Path(other.root) / "notes").write_text("x")
    words = ["verify", "--prefix", str(layout.prefix)]
    lost = f"the receipt of Tiny/1.0, {installation.root}/receipt.json, is missing or cannot be read"
    assert run(words) == 1
    assert capfd.readouterr() == (
        "Other/2.0: ok\n"
        f"  added: {other.root}/notes: expected nothing, found a file\n"
        "Tiny/1.0: 1 fault\n"
        f"  unreadable: {layout.switch(MODULE)}: expected a receipt, found {lost}\n",
        "== `sifmod install --rebuild` of its easyconfig (see `sifmod show`) repairs a module, --force its image too\n",
    )
    found = answer(capfd, (*words, "Tiny", "Other/2.0"), 1)
    added = {"kind": "added", "path": f"{other.root}/notes", "expected": "nothing", "found": "a file"}
    switch = str(layout.switch(MODULE))
    missing = {"kind": "unreadable", "path": switch, "expected": "a receipt", "found": lost}
    assert found == [{"module": "Tiny/1.0", "findings": [missing]}, {"module": "Other/2.0", "findings": [added]}]
    assert run([*words, "Other"]) == 0
    assert capfd.readouterr().err == ""
    unlink(layout.module_file(other.module, "lua"))
    unlink(Path(other.root, "bin/python"))
    assert run([*words, "Other"]) == 1
    assert capfd.readouterr().out.startswith("Other/2.0: 2 faults\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--keys", "x"), "--keys needs --signature"),
        (("Tiny", "x.sif"), "x.sif has no receipt to compare with; use --signature to see who signed it"),
    ],
)
def test_words_of_verify_that_do_not_go_together(
    words: tuple[str, ...], said: str, layout: Layout, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", "--prefix", str(layout.prefix), *words]) == 2
    assert said in capfd.readouterr().err


def test_where_nothing_is_installed_there_is_nothing_to_verify(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", "--prefix", str(tmp_path)]) == 0
    assert capfd.readouterr() == ("", "no module is installed here\n")


def test_a_file_that_is_mostly_a_hole_is_not_read(tmp_path: Path) -> None:
    """Of terabytes the digest takes hours; the size is already another one."""
    with (tmp_path / "layer.squashfs").open("wb") as file:
        file.truncate(5 << 40)
    record = FileRecord("layer.squashfs", "0" * 64, 0o644)
    (found,) = of_file(tmp_path / "layer.squashfs", record, 4096)
    assert (found.kind, found.found) == ("changed", f"{5 << 40} bytes")
    assert [one.found for one in of_file(tmp_path / "layer.squashfs", record)] == [found.found]


def test_an_image_in_a_closed_directory_stops_no_other_check(
    shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser
) -> None:
    for name in ("One", "Two"):
        sif = shared_tmp / name / "tiny.sif"
        sif.parent.mkdir()
        shutil.copy(images.tiny_sif, sif)
        write(shared_tmp / f"{name}-1.yaml", f"name: {name}\nversion: '1'\nimage: {{sources: [{sif}]}}\n")
    env = {"SIFMOD_PREFIX": str(ordinary_user.home / "tree")}
    files = (shared_tmp / "One-1.yaml", shared_tmp / "Two-1.yaml")
    ordinary_user.run((*SIFMOD, "install", *files, "--link", "reference", "--skip-sanity-check"), env).ok()
    (shared_tmp / "One").chmod(0)
    ended = ordinary_user.run((*SIFMOD, "verify", "--signature"), env)
    assert ended.code == 1, ended.stderr
    assert f"One/1: cannot read {shared_tmp}/One/tiny.sif: Permission denied" in ended.stdout
    assert "Two/1: " in ended.stdout
