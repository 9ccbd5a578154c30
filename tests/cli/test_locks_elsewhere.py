"""A lock names local files by their place beside the stack: it works in another checkout and in a bundle."""

import shutil
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_file
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live
from support.config import write
from support.disk_state import disk_state
from support.images import Images

SKIP = "--skip-sanity-check"
LOCAL = "image: {sources: ['oci:an image']}\n"
RECIPE = "image: {build: {from: 'oci:an image', files: {notes.txt: /opt/notes.txt}}}\n"


@pytest.fixture
def checkout(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an image and a file of a recipe; the current one is beside it."""
    monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", "both")
    place = tmp_path / "a checkout"
    shutil.copytree(images.tiny_layout(), place / "an image")
    write(place / "notes.txt", "of the recipe\n")
    write(place / "stack.yaml", "name: ours\neasyconfigs: [App-1.yaml]\n")
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "beside")
    return place


def apply(tmp_path: Path, prefix: str, *words: str) -> str:
    """The rendered runscript of the module in another prefix."""
    assert run(["stack", "apply", *words, SKIP, "--prefix", str(tmp_path / prefix)]) == 0
    found = live(Layout(tmp_path / prefix), ModuleName.parse("App/1"))
    assert found
    return Path(found.root, "runscripts/conda-python-distributed").read_text()


@pytest.mark.parametrize("image", [LOCAL, RECIPE])
def test_a_local_image_of_another_checkout_and_of_a_bundle_is_the_locked_one(
    image: str, checkout: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(checkout / "App-1.yaml", f"name: App\nversion: '1'\n{image}wrappers: [sh]\n")
    stack = "../a checkout/stack.yaml"
    text = apply(tmp_path, "first", stack)
    assert run(["stack", "lock", stack, "--prefix", str(tmp_path / "first")]) == 0
    bundle = str(tmp_path / "the bundle")
    assert run(["stack", "bundle", stack, "--no-wheels", "-o", bundle, "--prefix", str(tmp_path / "first")]) == 0
    shutil.copytree(checkout, tmp_path / "another checkout")
    other = str(tmp_path / "another checkout/stack.yaml")
    assert apply(tmp_path, "second", "--locked", other) == text
    assert apply(tmp_path, "third", "--locked", "--from", str(tmp_path / "first"), other) == text
    assert apply(tmp_path, "fourth", "--bundle", bundle) == text
    capfd.readouterr()
    assert run(["stack", "plan", "--locked", other, "--prefix", str(tmp_path / "second")]) == 0
    assert "1 installed" in capfd.readouterr().err


def test_another_local_image_is_not_the_locked_one(
    checkout: Path, tmp_path: Path, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    write(checkout / "App-1.yaml", f"name: App\nversion: '1'\n{LOCAL}wrappers: [sh]\n")
    stack = "../a checkout/stack.yaml"
    apply(tmp_path, "first", stack)
    assert run(["stack", "lock", stack, "--prefix", str(tmp_path / "first")]) == 0
    shutil.rmtree(checkout / "an image")
    shutil.copytree(images.umoci_layout, checkout / "an image")
    assert run(["stack", "apply", "--locked", stack, SKIP, "--prefix", str(tmp_path / "second")]) != 0
    assert not (tmp_path / "second/software/App/1").exists()
    capfd.readouterr()


@pytest.mark.parametrize("prefix", ["first", "second"])
def test_a_local_image_that_changed_since_the_lock_is_installed_without_the_lock(
    prefix: str, checkout: Path, tmp_path: Path, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    """`install` said "already installed" over the locked image, since the locked install recorded the changed file."""
    write(checkout / "App-1.yaml", "name: App\nversion: '1'\nimage: {sources: [./an.sif]}\nwrappers: [sh]\n")
    stack, sif, target = "../a checkout/stack.yaml", checkout / "an.sif", ("--prefix", str(tmp_path / prefix))
    sif.write_bytes(images.tiny("crash-a").read_bytes())
    apply(tmp_path, "first", stack)
    assert run(["stack", "lock", stack, "--prefix", str(tmp_path / "first")]) == 0
    sif.write_bytes(images.tiny("crash-b").read_bytes())
    apply(tmp_path, prefix, stack)
    for _ in range(2):
        apply(tmp_path, prefix, "--locked", "--from", str(tmp_path / "first"), stack)
    found = live(Layout(tmp_path / prefix), ModuleName.parse("App/1"))
    assert found
    assert found.image_sha256 == sha256_file(images.tiny("crash-a"))
    assert found.generation == (3 if prefix == "first" else 2)
    capfd.readouterr()
    assert run(["stack", "plan", stack, SKIP, *target]) == 0
    assert "[R] App/1: it needs a different image" in capfd.readouterr().out
    assert run(["install", str(checkout / "App-1.yaml"), SKIP, *target]) == 0
    found = live(Layout(tmp_path / prefix), ModuleName.parse("App/1"))
    assert found
    assert found.image_sha256 == sha256_file(sif)


@pytest.mark.parametrize("words", [["stack", "lock", "stack.yaml"], ["lock", "App-1.yaml"]])
def test_a_lock_that_is_written_elsewhere_is_as_the_one_beside(
    checkout: Path,
    tmp_path: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It is read beside the file only: its paths began at its own directory, so they were absolute ones."""
    monkeypatch.chdir(checkout)
    write(checkout / "App-1.yaml", f"name: App\nversion: '1'\n{LOCAL}wrappers: [sh]\n")
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "first"))
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    beside = (checkout / words[-1]).with_suffix(".lock")
    assert run(words) == 0
    assert run([*words, "-o", f"../beside/{beside.name}"]) == 0
    assert f"`--locked` reads {beside} instead" in capfd.readouterr().err
    assert run([*words, "-o", beside.name]) == 0
    assert "`--locked` installs exactly these" in capfd.readouterr().err
    assert (tmp_path / "beside" / beside.name).read_text() == beside.read_text()
    assert '"App-1.yaml": ' in beside.read_text()


def test_a_lock_that_the_tree_cannot_keep_is_not_written(
    checkout: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(checkout / "App-1.yaml", f"name: App\nversion: '1'\n{LOCAL}wrappers: [sh]\n")
    apply(tmp_path, "first", str(checkout / "stack.yaml"))
    shutil.rmtree(tmp_path / "first/stacks")
    write(tmp_path / "first/stacks", "in the place of the records")
    before = sorted(checkout.iterdir())
    capfd.readouterr()
    assert run(["stack", "lock", str(checkout / "stack.yaml"), "--prefix", str(tmp_path / "first")]) == 18
    assert "cannot write the record" in capfd.readouterr().err
    assert sorted(checkout.iterdir()) == before


def test_a_changed_sif_that_no_generation_remembers_is_installed_without_the_lock(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has the locked one, and the module was purged: nothing says what the file was then."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    shutil.copyfile(images.tiny_sif, "app.sif")
    write(tmp_path / "App-1.yaml", "name: App\nversion: '1'\nimage: {sources: [./app.sif]}\nwrappers: [sh]\n")
    write(tmp_path / "stack.yaml", "name: ours\neasyconfigs: [App-1.yaml]\n")
    for words in (["stack", "apply", "stack.yaml", SKIP], ["stack", "lock", "stack.yaml"], ["lock", "App-1.yaml"]):
        assert run(words) == 0
    assert run(["uninstall", "--purge", "App/1"]) == 0
    then, now = images.tiny_sif, images.tiny("newer", env=["A=1"])
    shutil.copyfile(now, "app.sif")
    for words, image in ((["--locked"], then), (["--locked"], then), ([], now)):
        assert run(["install", "App-1.yaml", SKIP, *words]) == 0
        found = live(Layout(tmp_path / "prefix"), ModuleName.parse("App/1"))
        assert found
        assert found.image_sha256 == sha256_file(image)


def test_a_damaged_image_of_another_tree_is_named(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(images.tiny_sif, "app.sif")
    write(tmp_path / "App-1.yaml", "name: App\nversion: '1'\nimage: {sources: [./app.sif]}\nwrappers: [sh]\n")
    write(tmp_path / "stack.yaml", "name: ours\neasyconfigs: [App-1.yaml]\n")
    for words in (["stack", "apply", "stack.yaml", SKIP], ["stack", "lock", "stack.yaml"]):
        assert run([*words, "--prefix", "staging"]) == 0
    (stored,) = (tmp_path / "staging/images/sha256").glob("*.sif")
    stored.chmod(0o644)
    with stored.open("r+b") as file:
        file.seek(-4096, 2)
        file.write(b"damaged")
    (tmp_path / "app.sif").unlink()
    capfd.readouterr()
    assert run(["stack", "apply", "stack.yaml", SKIP, "--locked", "--from", "staging", "--prefix", "new"]) == 10
    assert f"{stored}: damaged" in capfd.readouterr().err


def test_a_lock_replaces_no_file_of_the_user(
    checkout: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exit code 0, notes and the stack itself were gone."""
    write(checkout / "App-1.yaml", f"name: App\nversion: '1'\n{LOCAL}wrappers: [sh]\n")
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "first"))
    monkeypatch.chdir(checkout)
    apply(tmp_path, "first", "stack.yaml")
    write(checkout / "App-1.lock", "notes\n")
    (checkout / "empty").touch()
    before = disk_state(checkout)
    for words in (
        ["lock", "App-1.yaml"],
        ["lock", "App-1.yaml", "-o", "App-1.yaml"],
        ["lock", "App-1.yaml", "-o", "empty"],
        ["stack", "lock", "stack.yaml", "-o", "stack.yaml"],
        ["stack", "lock", "stack.yaml", "-o", "an image/index.json"],
    ):
        assert run(words) == 2, words
        assert "exists already, and is not a lock; it was not changed" in capfd.readouterr().err
    assert disk_state(checkout) == before
    lock = write(checkout / "stack.lock", '{"format": 99, "modules": []}')  # of another sifmod
    assert run(["stack", "lock", "stack.yaml"]) == 0
    assert '"App/1"' in lock.read_text()
