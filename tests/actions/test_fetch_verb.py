"""`sifmod fetch` and `install --fetch`: as a user types them."""

import json
import os
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.digest import sha256_file
from sifmod.tree.layout import Layout
from support.answer import answer
from support.command import run as call
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.registry import Registry
from support.runtime import RUNTIME
from support.victim import Victim


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "prefix"


def fetch(prefix: Path, *words: str | Path) -> int:
    return run(["fetch", "--prefix", str(prefix), *map(str, words)])


def test_an_image_comes_into_the_store_and_its_path_is_printed(
    images: Images, registry: Registry, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reference = registry.push_layout(images.tiny_layout("fetched"), "fetched:1.0")
    assert fetch(prefix, reference) == 0
    out, err = capfd.readouterr()
    path = Path(out.strip())
    assert path.parent == Layout(prefix).images
    assert err.startswith(f"== fetching {reference}\n")
    assert "== converting fetched: 100 % of " in err
    assert path.stem not in err
    assert "to pin this image write its source as  docker://" in err
    before = disk_state(prefix)
    assert fetch(prefix, reference, "--quiet") == 0
    assert capfd.readouterr() == (out, "")
    after = disk_state(prefix)
    assert {name for name in after if ".locks" not in name} == {name for name in before if ".locks" not in name}


def test_what_the_store_has_is_told(
    images: Images, registry: Registry, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reference = registry.push_layout(images.tiny_layout("again"), "again:1.0")
    assert fetch(prefix, reference) == 0
    assert "already in the store" not in capfd.readouterr().err
    assert fetch(prefix, reference, "--keep-blobs") == 0
    err = capfd.readouterr().err
    assert "== the image is already in the store\n" in err
    assert "--keep-blobs has nothing" in err
    assert "converting" not in err
    assert not Layout(prefix).partials.exists()


@pytest.mark.parametrize("verb", ["fetch", "install"])
def test_blobs_that_are_kept(
    verb: str, images: Images, registry: Registry, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They lie where the help says, verified, and go with the next fetch that does not keep them."""
    reference = registry.push_layout(images.tiny_layout("kept"), "kept:1.0")
    easyconfig = write(tmp_path / "Kept-1.yaml", f"name: Kept\nversion: '1'\nimage: {{sources: ['{reference}']}}\n")
    if verb == "fetch":
        assert fetch(prefix, reference, "--keep-blobs") == 0
    else:
        words = ("--skip-sanity-check", "--keep-blobs", "--prefix", str(prefix))
        assert run(["install", *words, str(easyconfig)]) == 0
    assert "keeps nothing" not in capfd.readouterr().err
    blobs = [path for path in Layout(prefix).partials.glob("*/sha256-*") if path.suffix != ".journal"]
    assert blobs
    assert all(path.name == f"sha256-{sha256_file(path)}" for path in blobs)
    assert fetch(prefix, reference) == 0
    assert not Layout(prefix).partials.exists()


def test_the_digest_is_said_once(
    images: Images, registry: Registry, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sif = registry.push_sif(images.tiny_sif, "lab/once:1.0")
    layout = f"oci:{images.tiny_layout()}"
    for words in ([sif], [layout, "-o", str(tmp_path / "1.sif")], [sif, "-o", str(tmp_path / "2.sif")]):
        assert fetch(prefix, *words) == 0
        out, err = capfd.readouterr()
        assert err.count(sha256_file(Path(out.strip()))) == 1


def test_the_mode_of_a_file_is_that_of_any_new_one(
    images: Images, registry: Registry, prefix: Path, tmp_path: Path
) -> None:
    before = os.umask(0o027)
    try:
        pushed = registry.push_sif(images.tiny_sif, "lab/mode:1.0")
        sources: tuple[str | Path, ...] = (pushed, f"oci:{images.tiny_layout()}", images.tiny_sif)
        for number, source in enumerate(sources):
            target = tmp_path / f"{number}.sif"
            assert fetch(prefix, source, "-o", target) == 0
            assert target.stat().st_mode & 0o7777 == 0o640
    finally:
        os.umask(before)


def test_an_image_goes_into_a_file_and_nowhere_else(images: Images, prefix: Path, tmp_path: Path) -> None:
    target = tmp_path / "place" / "x.sif"
    target.parent.mkdir()
    assert fetch(prefix, f"oci:{images.tiny_layout()}", "-o", target) == 0
    assert os.listdir(target.parent) == ["x.sif"]
    assert not prefix.exists()
    assert call((RUNTIME.path, "-q", "exec", target, "cat", "/etc/variant")).ok().stdout == "tiny\n"


def test_a_file_that_is_there_stays(
    images: Images, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "x.sif"
    target.write_text("mine")
    before = disk_state(tmp_path)
    assert fetch(prefix, images.tiny_sif, "-o", target) == 10
    assert "exists already" in capfd.readouterr().err
    assert disk_state(tmp_path) == before
    assert fetch(prefix, images.tiny_sif, "-o", target, "--force") == 0
    assert target.read_bytes() == images.tiny_sif.read_bytes()


def test_json_says_what_an_easyconfig_can_promise(
    images: Images, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    layout = images.tiny_layout("promised")
    found = answer(capfd, ("fetch", "--prefix", str(prefix), f"oci:{layout}", "--quiet"))
    assert found["made_from"]["manifest"].startswith("sha256:")
    easyconfig = tmp_path / "Tiny-1.0.yaml"
    image = {"sources": [f"oci:{layout}"], **found["promise"]}
    easyconfig.write_text(json.dumps({"name": "Tiny", "version": "1.0", "image": image}))
    other = tmp_path / "other"
    assert run(["install", "--prefix", str(other), str(easyconfig)]) == 0
    installed = json.loads((other / "software" / "Tiny" / "1.0" / "receipt.json").read_text())
    assert installed["image"]["sha256"] == found["sha256"]
    assert installed["image"]["origin"]["manifest"] == found["made_from"]["manifest"]


def test_a_wrong_promise_leaves_nothing(
    images: Images, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(tmp_path)
    assert fetch(prefix, images.tiny_sif, "--sha256", "0" * 64, "-o", tmp_path / "x.sif") == 10
    assert "has a wrong SHA-256" in capfd.readouterr().err
    assert disk_state(tmp_path) == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("docker://x:1", "--sha256", "abc"), 2, "expected 64 hexadecimal digits"),
        (("docker://x:1", "--compression", "zip"), 2, "expected auto, zstd:LEVEL, gzip:LEVEL or lz4"),
        (("docker://x:1", "--processors", "none"), 2, "processors"),
        (("docker://x:1", "-o", "-"), 2, "-o -: a SIF cannot be written to standard output"),
        (("dockr://x:1",), 10, "did you mean docker:?"),
        (("docker://x:1", "--offline"), 10, "--offline was given"),
        (("oci:/no/such",), 10, "does not exist"),
        (("nowhere.sif",), 10, "there is no file nowhere.sif in the current directory"),
    ],
)
def test_what_cannot_be_done_is_told(
    prefix: Path, tmp_path: Path, words: tuple[str, ...], code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(tmp_path)
    assert fetch(prefix, *words) == code
    assert said in capfd.readouterr().err
    assert disk_state(tmp_path) == before


def test_of_several_none_is_shown_with_its_login(prefix: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("--json",), ("--quiet",)):
        assert fetch(prefix, "https://me:hunter2@127.0.0.1:9/x.sif", "nowhere.sif", *words) == 10
        said = "".join(capfd.readouterr())
        assert "127.0.0.1:9/x.sif" in said
        assert "hunter2" not in said


def test_only_a_regular_file_is_replaced(
    images: Images, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert fetch(prefix, images.tiny_sif, "--force", "-o", pipe) == 10
    assert "a device, a pipe or a socket" in capfd.readouterr().err
    assert pipe.is_fifo()


def test_a_bare_name_is_a_file_here(
    images: Images, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here.sif").write_bytes(images.tiny_sif.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert fetch(prefix, "here.sif") == 0
    assert Path(capfd.readouterr().out.strip()).parent == Layout(prefix).images


def test_install_fetch_only_fetches(
    images: Images, prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    easyconfig = tmp_path / "Tiny-1.0.yaml"
    easyconfig.write_text(f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['oci:{images.tiny_layout()}']}}\n")
    words = ["install", "--prefix", str(prefix), str(easyconfig)]
    assert run([*words, "--fetch"]) == 0
    path = Path(capfd.readouterr().out.strip())
    assert path.parent == Layout(prefix).images
    assert not (prefix / "software").exists()
    assert not (prefix / "modules").exists()
    assert run(words) == 0
    assert "converting" not in capfd.readouterr().err
    assert (prefix / "software" / "Tiny" / "1.0" / "Tiny-1.0.sif").resolve() == path


def test_the_site_can_require_signatures(
    images: Images, prefix: Path, own_home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = own_home / ".config" / "sifmod" / "config.yaml"
    settings.parent.mkdir(parents=True)
    key = tmp_path / "key.asc"
    key.write_text("no key at all")
    for policy, code in (("require", 10), ("warn", 0), ("off", 0)):
        settings.write_text(f"signatures: {{policy: {policy}, keys: [{key}]}}\n")
        target = tmp_path / f"{policy}.sif"
        assert fetch(prefix, images.tiny_sif, "-o", target) == code
        assert target.exists() == (code == 0)
        assert ("is not signed" in capfd.readouterr().err) == (policy != "off")
    settings.write_text(f"signatures: {{policy: require, keys: [{key}]}}\n")
    assert fetch(prefix, f"oci:{images.tiny_layout()}") == 10
    assert "has no signature" in capfd.readouterr().err


def test_what_a_killed_run_had_begun_goes_first(images: Images, own_home: Path, tmp_path: Path) -> None:
    source = f"oci:{images.tiny_layout()}"
    with Victim({"PATH": os.environ["PATH"], "HOME": str(own_home)}) as victim:
        steps = victim.run(("fetch", "--prefix", tmp_path / "whole", source)).steps
        for step in range(steps, 0, -1):
            prefix = tmp_path / str(step)
            assert victim.run(("fetch", "--prefix", prefix, source), "killed", step).code == -9
            if any(path.stat().st_size for path in prefix.rglob("*.incoming")):
                break
    assert any(path.stat().st_size for path in prefix.rglob("*.incoming"))
    assert fetch(prefix, images.foreign(), "--arch", "arm64") == 0
    assert list(Layout(prefix).staging.iterdir()) == []
