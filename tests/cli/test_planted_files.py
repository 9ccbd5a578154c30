"""What a neighbour puts in the place of a file or directory that a command reads or writes leads nowhere.

A member of the group can replace each file of a shared prefix, and of a directory that the group may write to. P is who
types the command.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.actions.layer.places import layers_for
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_file
from sifmod.errors import PermissionsError
from sifmod.system import user_name
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live
from support.command import SIFMOD
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.promotion import SKIP, Promotion
from support.user import OrdinaryUser

TINY = ModuleName("Tiny", "1.0")
SECRET = "the key of P"


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "a place"
    write(place / "private/key", f"{SECRET}\n").chmod(0o600)
    monkeypatch.setenv("SIFMOD_PREFIX", str(place / "prefix"))
    monkeypatch.chdir(place)
    image = f"image: {{sources: ['{images.tiny_sif}'], filename: tiny.sif}}\nwrappers: [sh]\n"
    write(place / "Tiny-1.0.yaml", f"name: Tiny\nversion: '1.0'\naccelerator: none\n{image}")
    assert run(["install", "-q", SKIP, "Tiny-1.0.yaml"]) == 0
    return place


def root_of(here: Path) -> Path:
    found = live(Layout(here / "prefix"), TINY)
    assert found
    return Path(found.root)


def a_hole(path: Path, secret: Path) -> None:  # noqa: ARG001
    path.unlink()
    path.touch()
    os.truncate(path, 1 << 42)


def no_text(path: Path, secret: Path) -> None:  # noqa: ARG001
    path.unlink()
    path.write_bytes(b"\xff\xfe#\x00")


def a_private_file(path: Path, secret: Path) -> None:
    path.unlink()
    path.symlink_to(secret)


def a_pipe(path: Path, secret: Path) -> None:  # noqa: ARG001
    path.unlink()
    os.mkfifo(path)


PLANTS = (a_hole, no_text, a_private_file, a_pipe)
Plant = Callable[[Path, Path], None]


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("words", [["--dry-run"], ["--yes", "--module-syntax", "both"]])
def test_a_file_of_a_generation_that_is_compared(
    here: Path, plant: Plant, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    plant(root_of(here) / "share/launch.sh", here / "private/key")
    assert run(["install", "--installed", "--module-only", SKIP, *words]) == 0
    out, err = capfd.readouterr()
    assert SECRET not in out + err


@pytest.mark.parametrize("plant", PLANTS)
def test_what_a_held_generation_says_about_itself(here: Path, plant: Plant, capfd: pytest.CaptureFixture[str]) -> None:
    good = (here / "Tiny-1.0.yaml").read_text()
    write(here / "Tiny-1.0.yaml", f"{good}env: {{A: bad}}\n")
    assert run(["install", "-q", SKIP, "Tiny-1.0.yaml"]) == 0
    held = root_of(here)
    assert run(["rollback", "Tiny/1.0"]) == 0
    plant(held / "share/job.json", here / "private/key")
    write(here / "Tiny-1.0.yaml", f"{good}env: {{A: bad}}\ndescription: other words\n")
    assert run(["install", "-q", SKIP, "Tiny-1.0.yaml"]) == 0
    assert SECRET not in "".join(capfd.readouterr())


def test_a_huge_file_that_a_receipt_names_as_its_input_is_not_read(here: Path) -> None:
    """A hole of 4 TB, which a member wrote into the receipt, kept `install` busy for an hour."""
    receipt = root_of(here) / "receipt.json"
    fields = json.loads(receipt.read_text())
    hole = here / "hole"
    hole.touch()
    os.truncate(hole, 1 << 27)
    fields["provenance"]["inputs"].insert(0, [str(hole), sha256_file(hole)])
    receipt.chmod(0o644)
    receipt.write_text(json.dumps(fields))
    assert run(["install", "-q", SKIP, "Tiny-1.0.yaml"]) == 0
    assert str(hole) not in receipt.read_text()  # its digest was right, but decided nothing


@pytest.fixture
def promotion(
    shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser, monkeypatch: pytest.MonkeyPatch
) -> Promotion:
    place = shared_tmp / "a place"
    place.mkdir()
    monkeypatch.setenv("SIFMOD_PREFIX", str(place / "own"))
    monkeypatch.chdir(place)
    made = Promotion(place, images.tiny_sif, ordinary_user)
    made.lock()
    write(place / "private/key", f"{SECRET}\n").chmod(0o600)
    return made


def bundle(promotion: Promotion, to: str = "it") -> int:
    return run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", to, "--prefix", str(promotion.staging)])


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("name", ["layer.squashfs", "pylock.toml", "bin/demo", "bin/more"])
def test_a_bundle_holds_the_locked_layers_and_nothing_else(
    promotion: Promotion, name: str, plant: Plant, capfd: pytest.CaptureFixture[str]
) -> None:
    """A member's link to P's file of mode 0600 brought its content into P's bundle."""
    path = promotion.root / name
    path.touch()
    plant(path, promotion.here / "private/key")
    code = bundle(promotion)
    out, err = capfd.readouterr()
    assert code == (0 if name.startswith("bin/") else 18)
    assert "the layer site of Good/1" in err or not code
    files = [path for path in (promotion.here / "it").rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    assert SECRET not in out + err
    assert {path.name for path in files if path.parent.name == "bin"} <= {"demo", "de-mo2"}


def test_a_bundle_of_a_layer_that_is_no_longer_there_is_refused(
    promotion: Promotion, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was complete, without the layer."""
    shutil.rmtree(promotion.staging / "layers/Good")
    assert bundle(promotion, "it.tar") == 18
    assert "the layer site of Good/1" in capfd.readouterr().err
    assert not (promotion.here / "it.tar").exists()


def test_a_bundle_is_written_through_no_link(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In a directory where a neighbour may write, too: the link led to a directory of P."""
    write(here / "stack.yaml", "name: small\neasyconfigs: [Tiny-1.0.yaml]\n")
    assert run(["stack", "lock", "stack.yaml"]) == 0
    (here / "it").mkdir()
    (here / "it/images").symlink_to(here / "private")
    write(here / "it/bundle.json", "{}")
    before = disk_state(here / "private")
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "it"]) != 0
    assert "it/images is a symlink" in capfd.readouterr().err
    assert disk_state(here / "private") == before


def test_an_image_of_a_directory_that_is_continued_is_the_right_one(here: Path) -> None:
    """One of the same size was left as it was, and the bundle was said to be complete."""
    write(here / "stack.yaml", "name: small\neasyconfigs: [Tiny-1.0.yaml]\n")
    assert run(["stack", "lock", "stack.yaml"]) == 0
    words = ["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "it"]
    assert run(words) == 0
    (image,) = (here / "it/images/sha256").iterdir()
    whole = image.read_bytes()
    image.write_bytes(bytes(len(whole)))
    assert run(words) == 0
    assert image.read_bytes() == whole


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize(
    "words", [["stack", "bundle", "stack.yaml", "--no-wheels"], ["stack", "catalogue"]], ids=["bundle", "catalogue"]
)
def test_in_a_directory_for_all_what_belongs_to_a_neighbour_is_not_used(
    here: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    write(here / "stack.yaml", "name: small\neasyconfigs: [Tiny-1.0.yaml]\n")
    assert run(["stack", "lock", "stack.yaml"]) == 0
    for_all = here / "for all"
    for_all.mkdir()
    for_all.chmod(0o1777)
    assert run([*words, "-o", str(for_all / "it")]) == 0
    for path in (for_all / "it", *(for_all / "it").rglob("*")):
        os.chown(path, 65534, 65534)
    write(for_all / "it/stack.yaml", "").chmod(0o666)
    before = disk_state(for_all)
    capfd.readouterr()
    assert run([*words, "-o", str(for_all / "it")]) == 25
    assert f", and everyone can create files in {for_all}" in capfd.readouterr().err
    assert disk_state(for_all) == before
    for_all.chmod(0o3775)  # of a group
    assert run([*words, "-o", str(for_all / "it")]) == 0


@pytest.mark.parametrize("name", ["index.html", "catalogue.json", "pages/Tiny/index.md", "feed.xml"])
@pytest.mark.parametrize("plant", PLANTS)
def test_a_file_of_a_catalogue_that_was_replaced(
    here: Path, name: str, plant: Plant, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["stack", "catalogue", "-o", "pages"]) == 0
    place = here / "pages" / name
    assert place.is_file()
    plant(place, here / "private/key")
    before = disk_state(here / "private")
    code = run(["stack", "catalogue", "-o", "pages"])
    assert code in (0, 2)  # where its data cannot be read, it is not a catalogue
    assert SECRET not in "".join(capfd.readouterr())
    assert code == 2 or (place.is_file() and not place.is_symlink() and b"Tiny" in place.read_bytes())
    assert disk_state(here / "private") == before


def test_a_page_of_a_catalogue_is_written_and_removed_through_no_link(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """P's own notes of the same name were overwritten, or removed."""
    assert run(["stack", "catalogue", "-o", "www"]) == 0
    pages = here / "www/pages"
    assert pages.is_dir()
    shutil.rmtree(pages)
    pages.symlink_to(here / "private")
    write(here / "private/Tiny/index.md", "my notes\n")
    before = disk_state(here / "private")
    assert run(["stack", "catalogue", "-o", "www"]) != 0
    assert "pages is a symlink" in capfd.readouterr().err
    assert disk_state(here / "private") == before
    assert run(["uninstall", "Tiny/1.0"]) == 0
    run(["stack", "catalogue", "-o", "www"])
    assert disk_state(here / "private") == before


@pytest.mark.parametrize("plant", PLANTS)
def test_a_modulefile_of_sifmod_that_was_replaced(here: Path, plant: Plant, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["self", "module", "own"]) == 0
    place = next((here / "own/sifmod").glob("*.lua"))
    plant(place, here / "private/key")
    before = disk_state(here / "private")
    assert run(["self", "module", "own", "--force"]) == 0
    assert place.is_file()
    assert not place.is_symlink()
    assert SECRET not in "".join(capfd.readouterr())
    assert disk_state(here / "private") == before


@pytest.mark.parametrize("plant", [a_private_file, a_hole])
def test_an_addition_that_is_replaced_while_it_is_carried_over(
    here: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of another user, it cannot be linked: its copy followed a link to P's file, or filled the disk with a hole."""
    root, link = root_of(here), os.link
    write(root / "mine", "words")

    def replaced(source: str | Path, *arguments: object, **names: object) -> None:
        if Path(source).name != "mine":
            return link(source, *arguments, **names)  # type: ignore[arg-type]
        plant(root / "mine", here / "private/key")
        raise PermissionError(1, "Operation not permitted", str(source))

    monkeypatch.setattr(os, "link", replaced)
    run(["install", "--rebuild", SKIP, "Tiny-1.0.yaml"])
    assert SECRET not in "".join(capfd.readouterr())
    carried = [path for path in root.parent.glob("*/mine") if path.parent != root and not path.is_symlink()]
    assert carried == []


@pytest.fixture
def for_all(here: Path) -> Path:
    place = here / "for all"
    place.mkdir()
    place.chmod(0o1777)
    return place


@pytest.mark.usefixtures("needs_root", "here")
@pytest.mark.parametrize(
    ("words", "below"),
    [
        ("self module", "sifmod"),
        ("self module --force", "sifmod"),
        ("stack catalogue -o", "pages"),
        ("stack catalogue -o", "pages/Tiny"),
    ],
)
def test_below_a_directory_for_all_what_belongs_to_a_neighbour_is_not_used(
    for_all: Path, words: str, below: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """P's file was in it, and the neighbour could replace it."""
    assert run([*words.split(), str(for_all)]) == 0
    shutil.rmtree(for_all / below)
    (for_all / below).mkdir()
    (for_all / below).parent.chmod(0o1777)
    os.chown(for_all / below, 12345, 12345)
    assert run([*words.split(), str(for_all)]) == 25
    assert f"error: {for_all}/{below} belongs to {user_name(12345)}" in capfd.readouterr().err
    assert not [path for path in (for_all / below).rglob("*") if path.is_file()]
    os.chown(for_all / below, 0, 0)
    assert run([*words.split(), str(for_all)]) == 0


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("leads", ["private", "nowhere"])
def test_a_neighbours_link_in_the_place_of_the_directory_of_sifmods_module(
    here: Path, leads: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """`File exists: fix this` did not say what."""
    (here / "own").mkdir()
    (here / "own/sifmod").symlink_to(here / leads)
    os.lchown(here / "own/sifmod", 12345, 12345)
    before = disk_state(here)
    assert run(["self", "module", str(here / "own")]) == 25
    assert f"error: {here}/own/sifmod is a link of {user_name(12345)}" in capfd.readouterr().err
    assert disk_state(here) == before


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("words", ["import --force container.yaml -o", "lock Tiny-1.0.yaml -o"])
def test_whose_link_cannot_be_replaced_is_named(
    here: Path, shared_tmp: Path, words: str, ordinary_user: OrdinaryUser
) -> None:
    """`Operation not permitted` did not say what P could do."""
    place, env = shared_tmp / "place", {"SIFMOD_PREFIX": str(shared_tmp / "place/prefix")}
    write(place / "container.yaml", f"docker: a/b\nlatest: &it {{'1': 'sha256:{'a' * 64}'}}\ntags: *it\n")
    write(place / "Tiny-1.0.yaml", (here / "Tiny-1.0.yaml").read_text())
    ordinary_user.own(place)
    ordinary_user.run((*SIFMOD, "install", "-q", SKIP, "Tiny-1.0.yaml"), env, cwd=place).ok()
    for_all = shared_tmp / "for all"
    for_all.mkdir()
    for_all.chmod(0o1777)
    link = for_all / ("b-1.yaml" if words.startswith("import") else "it.lock")
    link.symlink_to("nowhere")
    os.lchown(link, 12345, 12345)
    target = for_all if words.startswith("import") else link
    ended = ordinary_user.run((*SIFMOD, *words.split(), target), env, cwd=place)
    assert ended.code == 25, ended
    why = f"{for_all} is sticky, and {link} belongs to {user_name(12345)}: ask for a change there, or name a file in"
    assert f"hint: {why}" in ended.stderr
    assert os.listdir(for_all) == [link.name]


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize("words", ["stack catalogue stack.yaml -o pages", "import container.yaml -o pages", ""])
def test_a_neighbours_link_is_no_directory_to_write_to(
    here: Path, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Pages, easyconfigs or layers came into a private directory."""
    write(here / "stack.yaml", "easyconfigs: [Tiny-1.0.yaml]\n")
    write(here / "container.yaml", "docker: a/b\nlatest: {'1': 'sha256:x'}\ntags: {'1': 'sha256:x'}\n")
    (here / "pages").symlink_to(here / "private")
    os.lchown(here / "pages", 12345, 12345)
    before, why = disk_state(here / "private"), f"pages is a link of {user_name(12345)}"
    if words:
        assert run(words.split()) == 25
        assert why in capfd.readouterr().err
    else:
        found = live(Layout(here / "prefix"), TINY)
        assert found
        with pytest.raises(PermissionsError, match=why):
            layers_for(found, str(here / "pages"), here / "prefix", {})
    assert disk_state(here / "private") == before
    os.lchown(here / "pages", 0, 0)
    if words.startswith("stack"):
        assert run(words.split()) == 0
