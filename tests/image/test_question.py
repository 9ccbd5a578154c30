"""The question before a large image goes into a home directory that nobody chose as its place."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sifmod.actions.remote_size import remote_size
from sifmod.image.artifact import no_progress
from sifmod.image.oci.manifest import OCI_MANIFEST, SIF_LAYER
from sifmod.image.settings import Settings
from sifmod.image.sources.fetched import Request
from sifmod.image.sources.reference import parse
from support.disk_state import disk_state
from support.fetching import Prefix, plan
from support.images import Images
from support.registry import Registry
from support.web import Web, answer

SMALL = "name: Far\nversion: '1'\nimage: {sources: ['docker://127.0.0.1:1/far:1']}\n"  # nobody listens there
KINDS = {"docker": "application/vnd.oci.image.layer.v1.tar+gzip", "oras": SIF_LAYER}


@pytest.fixture
def easyconfig(tmp_path: Path) -> Path:
    path = tmp_path / "Far-1.yaml"
    path.write_text(SMALL)
    return path


def answered(answer: str, easyconfig: Path, terminal: str = "xterm") -> tuple[int, str]:
    """Exit code and all that is shown by an install on a terminal where `answer` is typed after the question."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sifmod", "install", str(easyconfig)]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": terminal}
    )
    os.close(theirs)
    said, left = b"", f"{answer}\n".encode()
    try:
        while part := os.read(ours, 4096):
            said += part
            if left and said.endswith(b": "):
                os.write(ours, left)
                left = b""
    except OSError:  # the other side has ended
        pass
    return process.wait(), said.decode()


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_the_question_and_its_answer_are_on_one_line(easyconfig: Path, own_home: Path, terminal: str) -> None:
    prefix = own_home / ".local" / "share" / "sifmod"
    said = answered("n", easyconfig, terminal)[1]
    assert f"\nFetch it into {prefix} all the same? [y/N]: n\r\n" in said
    assert "\x1b[?25l" not in said  # no display that lives had begun


def test_no_means_no(easyconfig: Path, own_home: Path) -> None:
    code, said = answered("n", easyconfig)
    assert code == 1, "nothing is wrong with an option"
    assert "of unknown size (most are 2 to 20 GB) and would go to" in said
    assert "nothing was fetched" in said
    assert not (own_home / ".local").exists()


def test_the_end_of_what_is_typed_interrupts(easyconfig: Path, own_home: Path) -> None:
    code, said = answered("\x04", easyconfig)
    assert code == 130
    assert "interrupted; repeat the command to go on where it stopped\r\n" in said
    assert not (own_home / ".local").exists()


def test_yes_goes_on(easyconfig: Path) -> None:
    code, said = answered("y", easyconfig)
    assert code == 10
    assert "no source of the image" in said


def test_yes_on_the_command_line_and_a_chosen_prefix_need_no_question(easyconfig: Path, tmp_path: Path) -> None:
    for option in (["--yes"], ["--prefix", str(tmp_path / "chosen")]):
        command = [sys.executable, "-m", "sifmod", "install", str(easyconfig), *option]
        result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        assert result.returncode == 10, result.stderr


@pytest.mark.parametrize(("size", "code"), [(2 * 10**9, 10), (2 * 10**9 + 1, 2)])
def test_a_known_size_is_asked_about_from_2_gb(size: int, code: int, tmp_path: Path) -> None:
    image = tmp_path / "large.sif"
    with image.open("wb") as file:
        file.truncate(size)  # all holes, and no SIF: it is refused before it is copied
    easyconfig = tmp_path / "Large-1.yaml"
    easyconfig.write_text(f"name: Large\nversion: '1'\nimage: {{sources: [{image}]}}\n")
    command = [sys.executable, "-m", "sifmod", "install", str(easyconfig)]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert result.returncode == code, result.stderr
    assert ("2.0 GB large" in result.stderr) == (code == 2)


def install(easyconfig: Path, *options: str) -> tuple[int, str]:
    """Exit code and standard error where nobody can be asked."""
    command = [sys.executable, "-m", "sifmod", "install", str(easyconfig), *options]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return result.returncode, result.stderr


def written(tmp_path: Path, source: str) -> Path:
    path = tmp_path / "Far-1.yaml"
    path.write_text(f"name: Far\nversion: '1'\nimage: {{sources: ['{source}']}}\n")
    return path


@contextmanager
def announcing(kind: str, *sizes: int) -> Iterator[tuple[Web, str]]:
    """A registry that has only the manifest of an image whose layers are said to be so large, the first one twice."""
    layers = [
        {"mediaType": KINDS[kind], "digest": f"sha256:{number:064}", "size": size} for number, size in enumerate(sizes)
    ]
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": f"sha256:{9:064}", "size": 2}
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config}
    manifest["layers"] = [*layers, *layers[:1]] if kind == "docker" else layers
    web = Web()
    web.start()
    web.answers["/v2/far/manifests/1"] = answer(200, json.dumps(manifest).encode(), {"Content-Type": OCI_MANIFEST})
    yield web, f"{kind}://127.0.0.1:{web.server_address[1]}/far:1"
    web.stop()


@pytest.mark.parametrize("kind", ["docker", "oras"])
def test_a_registry_says_how_large_it_is(tmp_path: Path, own_home: Path, kind: str) -> None:
    sizes = (2_000_000_000, 500_000_000) if kind == "docker" else (2_500_000_000,)
    before = disk_state(own_home)
    with announcing(kind, *sizes) as (web, source):
        code, said = install(written(tmp_path, source))
    assert code == 2, "an option is missing"
    assert "is 2.5 GB large and would go to" in said
    assert "no terminal to ask at; nothing was fetched" in said
    assert "--prefix DIR" in said
    assert "--yes" in said
    assert [path for path, _ in web.asked] == ["/v2/far/manifests/1"]
    assert disk_state(own_home) == before


@pytest.mark.parametrize("kind", ["docker", "oras"])
def test_a_small_one_of_a_registry_is_not_asked_about(tmp_path: Path, own_home: Path, kind: str) -> None:
    before = disk_state(own_home)
    with announcing(kind, 2_000_000_000) as (web, source):
        code, said = install(written(tmp_path, source))
    assert code == 10
    assert "answered 404" in said
    assert "would go to" not in said
    assert [path for path, _ in web.asked][:2] == ["/v2/far/manifests/1"] * 2
    assert disk_state(own_home) == before


def test_nobody_is_asked_where_the_answer_does_not_matter(tmp_path: Path) -> None:
    for options in (("--yes",), ("--prefix", str(tmp_path / "chosen"))):
        with announcing("docker", 3_000_000_000) as (web, source):
            assert install(written(tmp_path, source), *options)[0] in (10, 18)
        assert [path for path, _ in web.asked].count("/v2/far/manifests/1") == 1


@pytest.mark.parametrize("kind", ["docker", "oras"])
@pytest.mark.parametrize("by", ["tag", "digest"])
def test_what_the_store_has_brings_nothing(
    images: Images, registry: Registry, tmp_path: Path, kind: str, by: str
) -> None:
    if kind == "docker":
        source = registry.push_layout(images.tiny_layout("question"), "question:1.0")
    else:
        source = registry.push_sif(images.tiny_sif, "question-sif:1.0")
    prefix = Prefix(tmp_path / "prefix")

    def size(source: str, *, fresh: bool = False) -> int | None:
        wanted = plan(source)
        settings = Settings(fresh=fresh)
        with prefix.store() as store:
            return remote_size(Request(parse(source), wanted.image, wanted.runtime, store, no_progress, settings))

    announced = size(source)
    assert announced is not None
    assert announced > 100_000
    before = prefix.state()
    assert size(source) == announced
    assert prefix.state() == before
    found = prefix.fetch(plan(source))
    named = source if by == "tag" else f"{source.rpartition(':')[0]}@{found.origin.manifest}"
    before = prefix.state()
    assert size(named) == 0
    assert size(named, fresh=True) == announced
    assert size(source.replace("question", "nothing")) is None
    assert prefix.state() == before


def test_an_image_of_a_registry_is_installed_without_a_question(
    images: Images, registry: Registry, tmp_path: Path, own_home: Path
) -> None:
    easyconfig = written(tmp_path, registry.push_layout(images.tiny_layout("no-question"), "no-question:1.0"))
    code, said = install(easyconfig)
    assert code == 0, said
    assert "would go to" not in said
    assert list((own_home / ".local" / "share" / "sifmod" / "images" / "sha256").glob("*.sif"))
