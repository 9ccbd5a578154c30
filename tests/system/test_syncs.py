"""After a crash of the node: what has a name has its data, whatever verb was running."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.command import SIFMOD, run
from support.config import write
from support.images import Images
from support.promotion import PACKED, Promotion
from support.syncs import Tracing, calls, mistakes, traced, tracing
from support.trial import Place, make_place
from support.user import OrdinaryUser


@pytest.fixture
def place(images: Images, tmp_path: Path) -> Place:
    return make_place(images, tmp_path)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracing]:
    env = Place(tmp_path_factory.mktemp("nowhere")).env
    with tracing(tmp_path_factory.mktemp("traces"), env, ("config", "show")) as made:
        yield made


@dataclass(frozen=True)
class Traced:
    """Commands in a place."""

    place: Place
    warm: Tracing

    def lines(self, *words: str | Path) -> list[str]:
        """The system calls of one command."""
        outcome, lines = self.warm.run(words, self.place.env)
        assert outcome.code == 0, outcome.stderr
        return lines

    def mistakes(self, *words: str | Path) -> list[str]:
        """What was wrong with the order of syncs of one command."""
        return self._mistakes(self.lines(*words))

    def without_links(self, *words: str | Path) -> list[str]:
        """The same where no file can have a second name."""
        traces = self.place.directory / f"traces-{len([*self.place.directory.glob('traces-*')])}"
        result, lines = traced(traces, (*SIFMOD, *words), self.place.env, "-e", "inject=link,?linkat:error=EMLINK")
        result.ok()
        return self._mistakes(lines)

    def _mistakes(self, lines: Sequence[str]) -> list[str]:
        assert any(call in line for line in lines for call in (" rename(", " renameat(", " link(", "linkat("))
        directory = self.place.directory
        return mistakes(lines, directory, [*directory.glob("traces-*"), directory / ".config"])


@pytest.fixture
def sifmod(place: Place, warm: Tracing) -> Traced:
    return Traced(place, warm)


def test_every_verb_syncs_data_before_names_and_names_before_it_ends(place: Place, sifmod: Traced) -> None:
    own = place.prefix / "software" / "Tiny" / "1.0" / "own" / "inner"
    module = ("Tiny/1.0", "--prefix", place.prefix)
    assert sifmod.mistakes(*place.install("a")) == []
    own.mkdir(parents=True)
    (own / "results.csv").write_text("mine")
    (own / "link").symlink_to("results.csv")
    (own / "results.csv").chmod(0o750)
    os.utime(own / "results.csv", (1, 1))
    assert sifmod.mistakes(*place.install("b")) == []
    assert (place.prefix / "software" / "Tiny" / "1.0" / "own" / "inner" / "link").read_text() == "mine"
    assert sifmod.without_links(*place.install("c")) == []
    assert (place.prefix / "software" / "Tiny" / "1.0" / "own" / "inner" / "link").read_text() == "mine"
    copied = (own / "results.csv").stat()
    assert (copied.st_nlink, copied.st_mode & 0o777, copied.st_mtime) == (1, 0o750, 1)
    assert sifmod.mistakes(*place.install("b")) == []
    (place.prefix / "software" / "Tiny" / "1.0" / "tiny.sif").unlink()
    assert sifmod.mistakes(*place.install("b")) == []
    assert sifmod.mistakes("rollback", *module) == []
    assert sifmod.mistakes("uninstall", *module) == []
    for mine in place.prefix.glob("software/Tiny/.generations/1.0/*/own"):
        shutil.rmtree(mine)
    assert sifmod.mistakes("gc", "--yes", "--days", "0", "--prefix", place.prefix) == []


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_fetch_too(place: Place, sifmod: Traced, images: Images, force: tuple[str, ...]) -> None:
    source = f"oci:{images.tiny_layout()}"
    target = place.directory / "out" / "x.sif"
    target.parent.mkdir()
    assert sifmod.mistakes("fetch", source, "--prefix", place.prefix, *force) == []
    assert sifmod.mistakes("fetch", source, "--prefix", place.prefix, "-o", target, *force) == []
    target.unlink()
    assert sifmod.without_links("fetch", source, "--prefix", place.prefix, "-o", target) == []


def test_an_import_too(place: Place, sifmod: Traced) -> None:
    source = Path(__file__).parents[1] / "import" / "shpc" / "samtools" / "container.yaml"
    assert sifmod.mistakes("import", source, "-o", place.directory) == []


def test_a_mark_in_the_store_of_another_tree_too(place: Place, sifmod: Traced, images: Images) -> None:
    """Without it a gc there removes the image of the module."""
    site = place.directory / "site"
    sifmod.lines("fetch", images.tiny_sif, "--prefix", site)
    marks = site / "images" / "marks"
    marks.mkdir()
    marks.chmod(0o1777)
    (stored,) = site.glob("images/sha256/*.sif")
    place.write("far", stored)
    assert sifmod.mistakes(*place.install("far"), "--link", "reference") == []
    assert len(list(marks.iterdir())) == 1


def test_the_stores_receipt_is_there_before_its_image(place: Place, sifmod: Traced) -> None:
    """An image without one is nobody's, and is never removed."""
    lines = sifmod.lines(*place.install("a"))
    names = [paths[-1] for call, paths, _ in calls(lines) if call.startswith("rename")]
    stored = [Path(name).suffix for name in names if "/images/sha256/" in name]
    assert stored == [".json", ".sif"]


@pytest.mark.parametrize("name", ["it.tar", "it"])
def test_a_bundle_too(place: Place, sifmod: Traced, name: str) -> None:
    stack = place.directory / "stack.yaml"
    easyconfig = str(place.install("a")[1])
    write(stack, f"name: ours\neasyconfigs: ['{easyconfig}']\n")
    for words in (("apply", stack, "--skip-sanity-check"), ("lock", stack)):
        sifmod.lines("stack", *words, "--prefix", place.prefix)
    bundle = ("stack", "bundle", stack, "--no-wheels", "-o", place.directory / name, "--prefix", place.prefix)
    assert sifmod.mistakes(*bundle) == []


def test_a_promoted_layer_too(shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser) -> None:
    here = shared_tmp / "a place"
    here.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        promotion = Promotion(here, images.tiny_sif, ordinary_user)
        promotion.lock()
        words = ("apply", here / "stack.yaml", "--skip-sanity-check", "--locked", "--from", promotion.staging)
        command = (*SIFMOD, "stack", *words, "--prefix", promotion.production)
        result, lines = traced(shared_tmp / "traces", command, os.environ)
    result.ok()
    assert promotion.published()
    assert mistakes(lines, here) == []


def test_a_layer_of_a_bundle_too(shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser) -> None:
    """And one that a crash has cut all the same is brought again."""
    here = shared_tmp / "a place"
    here.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        promotion = Promotion(here, images.tiny_sif, ordinary_user)
        promotion.lock()
        words = ("bundle", "stack.yaml", "--no-wheels", "-o", "it.tar", "--prefix", promotion.staging)
        run((*SIFMOD, "stack", *words)).ok()
        apply = (*SIFMOD, "stack", "apply", "--bundle", "it.tar", "--skip-sanity-check", "--prefix")
        result, lines = traced(shared_tmp / "traces", (*apply, promotion.production), os.environ)
        result.ok()
        assert promotion.published()
        assert mistakes(lines, here) == []
        other = here / "another"
        (there,) = (promotion.production / "stacks").rglob("layer.squashfs")
        cut = other / there.relative_to(promotion.production)
        write(cut, "").write_bytes(PACKED[:-1])
        run((*apply, other)).ok()
        assert cut.read_bytes() == PACKED
