"""What is known of an image before it is fetched: its size, and whether a local source has changed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sifmod.actions.sources import PLAIN
from sifmod.cli.main import run
from sifmod.errors import FetchError
from sifmod.image import fetch
from sifmod.image.sources.source_kinds import local_files, parse
from sifmod.module.plan import BuildPlan, ImagePlan
from support.command import SIFMOD
from support.config import write
from support.fetching import Prefix, plan
from support.images import Images
from support.user import OrdinaryUser


def image(*sources: str, **changes: object) -> ImagePlan:
    fields: dict[str, object] = {"image_dirs": (), "build": None, "link": "copy", "offline": False, **changes}
    return ImagePlan(filename="x.sif", sources=sources, sha256=None, arch="amd64", **fields)  # type: ignore[arg-type]


@pytest.fixture
def announced_size(tmp_path: Path) -> Callable[[ImagePlan], int | None]:
    """The size that is announced of an image, with an empty store."""
    prefix = Prefix(tmp_path / "prefix")

    def announced(image: ImagePlan) -> int | None:
        with prefix.store() as store:
            return fetch.announced_size(image, plan().runtime, store)

    return announced


@pytest.fixture
def sif(tmp_path: Path) -> Path:
    path = tmp_path / "x.sif"
    path.write_bytes(b"x" * 1000)
    return path


@settings(max_examples=40)
@given(st.from_regex(PLAIN, fullmatch=True))
def test_nothing_is_wrong_with_a_plain_source(source: str) -> None:
    assert parse(source).source == source


def test_the_size_is_that_of_the_first_source_that_can_work(
    announced_size: Callable[[ImagePlan], int | None], sif: Path, tmp_path: Path
) -> None:
    docker = "docker://127.0.0.1:1/x:1"  # nobody listens there
    assert announced_size(image(str(sif))) == 1000
    assert announced_size(image("/none.sif", str(sif))) == 1000
    assert announced_size(image("x.sif", image_dirs=("/none", str(tmp_path)))) == 1000
    assert announced_size(image(docker, str(sif))) == 1000
    assert announced_size(image(docker, str(sif), offline=True)) == 1000
    assert announced_size(image(docker, offline=True)) == 0
    assert announced_size(image(str(sif), link="reference")) == 0
    assert announced_size(image(build=BuildPlan(definition=str(sif)))) == 0  # without a base
    assert announced_size(image("library://a/b/c:d", docker)) is None
    with pytest.raises(FetchError, match="Connection refused"):
        announced_size(image(docker, "/none.sif"))


def test_the_size_of_a_layout_is_that_of_its_files(
    announced_size: Callable[[ImagePlan], int | None], images: Images
) -> None:
    layout = images.tiny_layout()
    files = sum(path.stat().st_size for path in layout.rglob("*") if path.is_file())
    assert announced_size(image(f"oci:{layout}")) == files > 100_000


def test_local_files(sif: Path) -> None:
    wanted = image(str(sif), "x.sif", "oci:/layout:tag", "oci-archive:/a.tar", "https://host/x.sif", image_dirs=("/d",))
    assert local_files(wanted) == (str(sif), "/d/x.sif", "/layout/index.json", "/a.tar")


def test_a_changed_layout_is_noticed(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    layout = tmp_path / "layout"
    shutil.copytree(images.tiny_layout(), layout)
    easyconfig = tmp_path / "Tiny-1.0.yaml"
    easyconfig.write_text(f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['oci:{layout}']}}\n")
    assert run(["install", "-q", str(easyconfig)]) == 0
    assert run(["install", "-q", str(easyconfig)]) == 0
    store = tmp_path / "tree" / "images" / "sha256"
    assert len(list(store.glob("*.sif"))) == 1
    shutil.rmtree(layout)
    shutil.copytree(images.tiny_layout("other"), layout)
    assert run(["install", "-q", str(easyconfig)]) == 0
    assert len(list(store.glob("*.sif"))) == 2


def test_a_closed_image_directory_is_passed_over(shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser) -> None:
    """As one without the image: by an install, a rollback, and what reads the installed image."""
    (shared_tmp / "closed").mkdir(0)
    shutil.copy(images.tiny_sif, ordinary_user.home / "tiny.sif")
    text = "name: App\nversion: '1'\nimage: {sources: [tiny.sif], filename: tiny.sif}\n"
    easyconfig = write(shared_tmp / "App-1.yaml", text)
    tree = ordinary_user.home / "tree"
    env = {"SIFMOD_IMAGE_DIRS": f"{shared_tmp}/closed:{ordinary_user.home}", "SIFMOD_PREFIX": str(tree)}
    install = ("install", easyconfig, "--skip-sanity-check")
    stack = write(shared_tmp / "stack.yaml", "easyconfigs: [App-1.yaml]\n")
    planned = ordinary_user.run((*SIFMOD, "stack", "plan", stack), env)
    assert planned.code == 0, planned.stderr
    assert "1 image to fetch" in planned.stderr
    for words in (install, (*install, "--rebuild"), ("rollback", "App"), ("verify",)):
        ended = ordinary_user.run((*SIFMOD, *words), env)
        assert ended.code == 0, (words, ended.stderr)
    (tree / "software/App/1/tiny.sif").unlink()  # in favour of the site's copy
    easyconfig.write_text(f"{text}env: {{A: b}}\n")
    ended = ordinary_user.run((*SIFMOD, "install", "--module-only", "--installed", "--yes"), env)
    assert ended.code == 0, ended.stderr
