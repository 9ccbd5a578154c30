"""The question before a large image goes into a home directory that nobody chose as its place."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.errors import FetchError
from sifmod.image.fetch import announced_size
from sifmod.image.oci.manifest import OCI_MANIFEST, SIF_LAYER
from sifmod.image.settings import Settings
from support.command import SIFMOD
from support.disk_state import disk_state
from support.fetching import Prefix, plan
from support.images import Images
from support.registry import Registry
from support.terminal import EOF
from support.terminal import answered as terminal_answered
from support.web import Web, answer

KINDS = {"docker": "application/vnd.oci.image.layer.v1.tar+gzip", "oras": SIF_LAYER}


@pytest.fixture
def easyconfig(tmp_path: Path) -> Iterator[Path]:
    """Of an image of 3 GB."""
    with announcing("docker", 3_000_000_000) as (_, source):
        yield written(tmp_path, source)


def answered(answer: str, easyconfig: Path, terminal: str = "xterm") -> tuple[int, str]:
    """Exit code and all that is shown by an install on a terminal where `answer` is typed after the question."""
    return terminal_answered([*SIFMOD, "install", str(easyconfig)], answer, terminal)


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_the_question_and_its_answer_are_on_one_line(easyconfig: Path, own_home: Path, terminal: str) -> None:
    prefix = own_home / ".local" / "share" / "sifmod"
    said = answered("n", easyconfig, terminal)[1]
    assert f"\nFetch it into {prefix} anyway? [y/N]: n\r\n" in said
    assert "\x1b[?25l" not in said  # no display that lives had begun


def test_no_means_no(easyconfig: Path, own_home: Path) -> None:
    code, said = answered("n", easyconfig)
    assert code == 1, "nothing is wrong with an option"
    assert "is 3.0 GB large and would go to" in said
    assert "nothing was fetched" in said
    assert not (own_home / ".local").exists()


def test_the_end_of_the_input_is_no_answer(easyconfig: Path, own_home: Path) -> None:
    code, said = answered(EOF, easyconfig)
    assert code == 2, "an option is missing, as without a terminal"
    assert "and nobody answered; nothing was fetched" in said
    assert "or repeat the command with --yes" in said
    assert "interrupted" not in said
    assert not (own_home / ".local").exists()


def test_an_interrupt_at_the_question(easyconfig: Path, own_home: Path) -> None:
    code, said = answered("\x03", easyconfig)
    assert code == 130
    assert "interrupted; repeat the command to continue where it stopped\r\n" in said
    assert not (own_home / ".local").exists()


def test_yes_goes_on(easyconfig: Path) -> None:
    code, said = answered("y", easyconfig)
    assert code == 10
    assert "no source of the image" in said


@pytest.mark.parametrize(("size", "code"), [(2 * 10**9, 10), (2 * 10**9 + 1, 2)])
def test_a_known_size_is_asked_about_from_2_gb(
    size: int, code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "large.sif"
    with image.open("wb") as file:
        file.truncate(size)  # all holes, and no SIF: it is refused before it is copied
    assert run(["install", str(written(tmp_path, str(image)))]) == code
    assert ("2.0 GB large" in capfd.readouterr().err) == (code == 2)


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


def words(verb: str, source: str, tmp_path: Path) -> list[str]:
    """The command line of a verb that fetches `source` into the store."""
    return [verb, str(written(tmp_path, source)) if verb == "install" else source]


@pytest.mark.parametrize(("verb", "kind"), [("install", "oras"), ("fetch", "docker"), ("new", "oras")])
def test_each_verb_asks_and_knows_from_the_registry_how_large_it_is(
    verb: str, kind: str, tmp_path: Path, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sizes = (2_000_000_000, 500_000_000) if kind == "docker" else (2_500_000_000,)
    before = disk_state(own_home)
    with announcing(kind, *sizes) as (web, source):
        assert run(words(verb, source, tmp_path)) == 2, "an option is missing"
        said = capfd.readouterr().err
        assert "is 2.5 GB large and would go to" in said
        assert "nobody answered; nothing was fetched" in said
        assert "with --prefix DIR or SIFMOD_PREFIX=DIR, or repeat the command with --yes" in said
        assert [path for path, _ in web.asked] == ["/v2/far/manifests/1"]
        assert disk_state(own_home) == before
        for option in (["--yes"], ["--prefix", str(tmp_path / "chosen")]):  # the answer does not matter
            web.asked.clear()
            assert run([*words(verb, source, tmp_path), *option]) in (10, 18)
            assert "would go to" not in capfd.readouterr().err
            assert [path for path, _ in web.asked].count("/v2/far/manifests/1") == 1


@pytest.mark.parametrize("verb", ["upgrade", "stack apply"])
def test_what_decides_by_itself_what_it_fetches_asks_too(
    verb: str, tmp_path: Path, own_home: Path, images: Images, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """And is told by --yes, of what is newer and of a stack, that it need not."""
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", str(tmp_path))
    written(tmp_path, str(images.tiny_sif)).rename(tmp_path / "Far-0.yaml")
    (tmp_path / "Far-0.yaml").write_text((tmp_path / "Far-0.yaml").read_text().replace("'1'", "'0'"))
    assert run(["install", "Far-0", "--skip-sanity-check"]) == 0
    (tmp_path / "stack").write_text("easyconfigs: [Far-1.yaml]\n")
    typed = ["upgrade", "Far"] if verb == "upgrade" else ["stack", "apply", str(tmp_path / "stack")]
    with announcing("oras", 2_500_000_000) as (web, source):
        written(tmp_path, source)
        before = disk_state(own_home / ".local/share/sifmod/images", own_home / ".local/share/sifmod/modules")
        for more, asks in (([], True), (["--yes"], False)):
            capfd.readouterr()
            web.asked.clear()
            code = run([*typed, *more])
            said = capfd.readouterr().err
            assert code == (2 if asks else 10), said
            assert ("is 2.5 GB large and would go to" in said) == asks
            assert any("blobs" in path for path, _ in web.asked) != asks
        assert before == disk_state(own_home / ".local/share/sifmod/images", own_home / ".local/share/sifmod/modules")


@pytest.mark.parametrize("kind", ["docker", "oras"])
def test_a_small_one_of_a_registry_is_not_asked_about(
    tmp_path: Path, own_home: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(own_home)
    with announcing(kind, 2_000_000_000) as (web, source):
        assert run(["install", str(written(tmp_path, source))]) == 10
    said = capfd.readouterr().err
    assert "answered 404" in said
    assert "would go to" not in said
    assert [path for path, _ in web.asked][:2] == ["/v2/far/manifests/1"] * 2
    assert disk_state(own_home) == before


@pytest.mark.parametrize("verb", ["install", "fetch", "new"])
def test_what_no_server_has_is_told_before_any_question(
    verb: str, tmp_path: Path, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(own_home)
    with announcing("docker", 3_000_000_000) as (_, source):
        there = source.removeprefix("docker://").partition("/")[0]
        for wrong, reason in (
            (f"{source}-wrong", "answered 404"),
            (source.replace("far", "near"), "answered 404"),
            (f"http://{there}/y.sif", "answered 404"),
            ("docker://127.0.0.1:1/far:1", "Connection refused"),  # nobody listens there
        ):
            assert run(words(verb, wrong, tmp_path)) == 10
            said = capfd.readouterr().err
            assert said.count(reason) == 1
            assert "\nhint: " in said
            assert "would go to" not in said
    assert disk_state(own_home) == before


def test_a_web_server_says_how_large_it_is_and_a_library_does_not(
    own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(own_home)
    with announcing("docker", 1) as (web, source):
        web.answers["/x.sif"] = answer(200, b"x" * 10, {"Content-Length": "2500000000"})
        host = source.removeprefix("docker://").partition("/")[0]
        assert run(["fetch", f"http://{host}/x.sif"]) == 2
    assert "is 2.5 GB large and would go to" in capfd.readouterr().err
    assert run(["fetch", "library://group/collection/x:1"]) == 2
    assert "is of unknown size (most are 2 to 20 GB) and would go to" in capfd.readouterr().err
    assert disk_state(own_home) == before


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
            return announced_size(wanted.required_image, wanted.runtime, store, settings)

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
    with pytest.raises(FetchError, match="no source of the image"):
        size(source.replace("question", "nothing"))
    assert prefix.state() == before


def test_an_image_of_a_registry_is_installed_without_a_question(
    images: Images, registry: Registry, tmp_path: Path, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    easyconfig = written(tmp_path, registry.push_layout(images.tiny_layout("no-question"), "no-question:1.0"))
    assert run(["install", str(easyconfig)]) == 0
    assert "would go to" not in capfd.readouterr().err
    assert list((own_home / ".local" / "share" / "sifmod" / "images" / "sha256").glob("*.sif"))


LOCAL_BASES = {
    "definition": ("x.def", "Bootstrap: localimage\nFrom: base.sif\n%files\n  data.bin /data.bin\n"),
    "dockerfile": ("Dockerfile", "FROM scratch\nCOPY base.sif data.bin /\n"),
}


@pytest.mark.parametrize("key", LOCAL_BASES)
@pytest.mark.parametrize("large", [False, True])
def test_a_build_upon_what_is_here_is_as_large_as_that(
    tmp_path: Path, own_home: Path, key: str, large: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    name, text = LOCAL_BASES[key]
    context = tmp_path / "context"
    context.mkdir()
    (context / name).write_text(text)
    for file, size in (("base.sif", 2_400_000_000), ("data.bin", 100_000_000)):
        with (context / file).open("wb") as sparse:
            sparse.truncate(size if large else size // 100)
    easyconfig = tmp_path / "Built-1.yaml"
    easyconfig.write_text(f"name: Built\nversion: '1'\nimage: {{build: {{{key}: {context / name}}}}}\n")
    before = disk_state(own_home)
    code = run(["install", str(easyconfig)])
    said = capfd.readouterr().err
    assert "unknown size" not in said
    assert ("2.5 GB large and would go to" in said) == large
    assert (code == 2) == large, said
    if large:
        assert disk_state(own_home) == before


def test_a_build_upon_what_a_registry_has_is_as_large_as_that(
    tmp_path: Path, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(own_home)
    with announcing("docker", 2_500_000_000) as (_, source):
        place = source.removeprefix("docker://")
        (tmp_path / "x.def").write_text(f"Bootstrap: docker\nFrom: {place}\n%post\n  true\n")
        (tmp_path / "Dockerfile").write_text(f"FROM {place}\n")
        for build in ("{definition: x.def}", "{dockerfile: Dockerfile}"):
            (tmp_path / "Built-1.yaml").write_text(f"name: Built\nversion: '1'\nimage: {{build: {build}}}\n")
            assert run(["install", str(tmp_path / "Built-1.yaml")]) == 2
            assert "is 2.5 GB large and would go to" in capfd.readouterr().err
    (tmp_path / "x.def").write_text("Bootstrap: debootstrap\nOSVersion: bookworm\n%post\n  true\n")
    (tmp_path / "Built-1.yaml").write_text("name: Built\nversion: '1'\nimage: {build: {definition: x.def}}\n")
    assert run(["install", str(tmp_path / "Built-1.yaml")]) == 2
    assert "is of unknown size (most are 2 to 20 GB)" in capfd.readouterr().err
    assert disk_state(own_home) == before
