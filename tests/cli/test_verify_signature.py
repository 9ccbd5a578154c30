"""`sifmod verify --signature`: SIFs that real apptainer signed, files and installed ones."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.answer import answer
from support.disk_state import disk_state
from support.images import Images
from support.signing import Signer


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[Signer, Signer]]:
    """Ann, whom the site trusts, and Eve."""
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="sifmod-k-"))
    ann, eve = Signer(directory / "ann", "Ann"), Signer(directory / "eve", "Eve")
    yield ann, eve
    ann.end()
    eve.end()
    shutil.rmtree(directory)


@pytest.fixture
def sif(tmp_path: Path, images: Images) -> Path:
    """A copy of the tiny image that nobody has signed."""
    return Path(shutil.copy(images.tiny_sif, tmp_path / "tiny.sif"))


def test_a_signed_file_and_who_signed_it(
    sif: Path, people: tuple[Signer, Signer], capfd: pytest.CaptureFixture[str]
) -> None:
    ann, _ = people
    ann.sign(sif)
    before = disk_state(sif.parent)
    assert run(["verify", "--signature", "--keys", str(ann.public()), str(sif)]) == 0
    assert capfd.readouterr().out == f"{sif}: signed by {ann.fingerprint} {ann.user}\n"
    assert disk_state(sif.parent) == before


def test_unsigned_a_strangers_key_and_tampered_are_told_apart(
    sif: Path, people: tuple[Signer, Signer], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ann, eve = people
    evil = eve.sign(Path(shutil.copy(sif, tmp_path / "evil.sif")))
    tampered = ann.sign(Path(shutil.copy(sif, tmp_path / "tampered.sif")))
    with tampered.open("r+b") as file:
        file.seek(60_000)
        byte = file.read(1)
        file.seek(60_000)
        file.write(bytes((byte[0] ^ 1,)))
    good = ann.sign(Path(shutil.copy(sif, tmp_path / "good.sif")))
    keys = ("--keys", str(ann.public()))
    assert run(["verify", "--signature", *keys, str(sif), str(evil), str(tampered), str(good)]) == 1
    lines = [line for line in capfd.readouterr().out.splitlines() if not line.startswith("  ")]
    unsigned, stranger, changed, fine = lines
    assert unsigned == f"{sif} is not signed"
    assert str(evil) in stranger
    assert f"by the key {eve.fingerprint}, which is not a trusted" in stranger
    assert changed.startswith(f"{tampered} was changed after {ann.user}")
    assert fine == f"{good}: signed by {ann.fingerprint} {ann.user}"


def test_json_names_each_image(
    sif: Path, people: tuple[Signer, Signer], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ann, _ = people
    good = ann.sign(Path(shutil.copy(sif, tmp_path / "good.sif")))
    signed, failed = answer(capfd, ("verify", "--signature", "--keys", str(ann.public()), str(good), str(sif)), 1)
    assert signed == {"module": None, "path": str(good), "signers": [f"{ann.fingerprint} {ann.user}"]}
    assert (failed["path"], failed["signers"], failed["exit_code"]) == (str(sif), [], 1)
    assert "is not signed" in failed["error"]


def test_the_sites_keys_and_an_installed_module(
    sif: Path,
    people: tuple[Signer, Signer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ann, eve = people
    ann.sign(sif)
    easyconfig = tmp_path / "Tiny-1.0.yaml"
    easyconfig.write_text(f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{sif}']}}\n")
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    settings = tmp_path / "etc-sifmod.d" / "site.yaml"
    settings.parent.mkdir()
    settings.write_text(f"signatures: {{keys: ['{ann.public()}']}}\n")
    assert run(["install", "-q", str(easyconfig)]) == 0
    capfd.readouterr()
    assert run(["verify", "--signature"]) == 0
    assert capfd.readouterr().out == f"Tiny/1.0: signed by {ann.fingerprint} {ann.user}\n"
    settings.write_text(f"signatures: {{keys: ['{eve.public()}']}}\n")
    assert run(["verify", "--signature", "Tiny"]) == 1
    assert ann.fingerprint in capfd.readouterr().out
    assert run(["verify", "--signature", "--keys", str(ann.public()), "Tiny"]) == 0  # beside the site's own


def test_without_the_link_the_sites_copy_is_checked(
    sif: Path,
    people: tuple[Signer, Signer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A load takes it, so the store's image says nothing."""
    ann, _ = people
    copy = tmp_path / "central" / "Tiny-1.0.sif"
    copy.parent.mkdir()
    shutil.copy(sif, copy)
    ann.sign(sif)
    easyconfig = tmp_path / "Tiny-1.0.yaml"
    easyconfig.write_text(f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{sif}']}}\n")
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_IMAGE_DIRS", str(copy.parent))
    assert run(["install", "-q", str(easyconfig)]) == 0
    words = ["verify", "--signature", "--keys", str(ann.public()), "Tiny"]
    assert run(words) == 0
    (tmp_path / "prefix" / "software" / "Tiny" / "1.0" / copy.name).unlink()
    capfd.readouterr()
    assert run(words) == 1
    assert f"{copy} is not signed" in capfd.readouterr().out


def test_without_a_key_it_is_said_who_is_to_have_signed(
    sif: Path, people: tuple[Signer, Signer], capfd: pytest.CaptureFixture[str]
) -> None:
    ann, _ = people
    assert run(["verify", "--signature", str(sif)]) == 1
    assert capfd.readouterr().out.startswith(f"{sif} is not signed\n")
    ann.sign(sif)
    assert run(["verify", "--signature", str(sif)]) == 2
    error = capfd.readouterr().err
    assert f"{sif} claims to be signed by {ann.fingerprint}" in error
    assert "no public key is available to check" in error


def test_what_cannot_be_asked(sif: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--signature", "--keys", str(tmp_path / "none.asc"), str(sif)]) == 2
    assert f"there is no public key file {tmp_path / 'none.asc'}" in capfd.readouterr().err
    assert run(["verify", "--keys", str(sif)]) == 2
    assert "--keys needs --signature" in capfd.readouterr().err
    empty = tmp_path / "empty.asc"
    empty.write_text("nothing\n")
    assert run(["verify", "--signature", "--keys", str(empty), str(tmp_path / "none.sif")]) == 1
    assert "none.sif" in capfd.readouterr().out


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_url_is_not_a_file_and_its_login_is_not_repeated(
    options: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    for url in ("https://me:planted@host/x.sif", "https:/me:planted@host/x.sif", "oras://me:planted@host/x"):
        assert run(["verify", "--signature", *options, url]) == 2
        shown = "".join(capfd.readouterr())
        assert "fetch the image with `sifmod fetch`" in shown
        assert "planted" not in shown
