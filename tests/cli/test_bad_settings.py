"""One bad file among the sites and quirks: what goes on without it, what stops, and who says what is wrong."""

import json
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.disk_state import disk_state
from support.images import Images

BAD = {"quirks": "description: no reason\n", "sites": "acelerator: rocm\n"}
PROBLEM = {"quirks": "bad.yaml:1:1: link: is missing", "sites": "bad.yaml:1:1: acelerator: unknown key"}


@pytest.fixture(params=BAD)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def easyconfig(kind: str, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, images: Images) -> Path:
    """Installed twice, before the user wrote the bad file."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    text = f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    path = write(tmp_path / "Tiny-1.0.yaml", text)
    for again in ((), ("--rebuild",)):
        assert run(["install", "-q", "--skip-sanity-check", str(path), *again]) == 0
    write(own_home / f".config/sifmod/{kind}/bad.yaml", BAD[kind])
    return path


@pytest.mark.usefixtures("easyconfig")
@pytest.mark.parametrize(
    "words",
    [
        ["rollback", "Tiny/1.0"],
        ["uninstall", "Tiny/1.0"],
        ["gc"],
        ["list"],
        ["show", "Tiny/1.0"],
        ["verify", "Tiny/1.0"],
        ["search", "PyTorch"],
        ["search", "--json", "PyTorch-2.2.0"],
        ["config", "show"],
        ["site", "show"],
        ["site", "detect"],
        ["site", "new", "another"],
        ["import", "container.yaml"],
    ],
    ids=" ".join,
)
def test_what_asks_for_no_quirk_goes_on(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tag = f"'1.10': 'sha256:{'d' * 64}'"
    head = "docker: quay.io/biocontainers/samtools\nurl: u\nmaintainer: m\ndescription: d\n"
    write(
        tmp_path / "container.yaml", f"{head}latest: {{{tag}}}\ntags: {{{tag}}}\naliases: {{samtools: /bin/samtools}}\n"
    )
    assert run(words) == 0


def test_an_install_stops(easyconfig: Path, kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A site that cannot be read may be this machine's: nothing is installed for another."""
    before = disk_state(tmp_path / "prefix")
    for words in (["install", "--rebuild", str(easyconfig)], ["check", str(easyconfig)]):
        assert run(words) == 5
        captured = capfd.readouterr()
        assert PROBLEM[kind] in captured.out + captured.err
    assert run(["install", "--module-only"]) == (5 if kind == "quirks" else 0), "a module knows its site"
    assert disk_state(tmp_path / "prefix") == before


def test_check_prints_its_json(
    easyconfig: Path, kind: str, tmp_path: Path, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of each file: a site or a quirk that is well, and what stops the easyconfig."""
    site = write(tmp_path / "sites/good.yaml", "accelerator: rocm\n")
    quirk = write(tmp_path / "quirks/good.yaml", "description: d\nreason: r\nlink: l\nmatch: {name: A}\nenv: {B: 1}\n")
    bad = own_home / f".config/sifmod/{kind}/bad.yaml"
    assert run(["check", str(site), str(quirk)]) == 0
    capfd.readouterr()
    assert run(["check", "--json", str(site), str(quirk), str(easyconfig), str(bad)]) == 5
    results = json.loads(capfd.readouterr().out)
    assert [bool(result["problems"]) for result in results] == [False, False, True, True]
    told = ["{file}:{line}:{column}: {key}: {message}".format(**problem) for problem in results[2]["problems"]]
    assert PROBLEM[kind] in " ".join(told)


def test_doctor_says_what_is_wrong(
    easyconfig: Path, kind: str, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert easyconfig.exists()
    assert run(["doctor", "--json"]) == 1
    (found,) = [each for each in json.loads(capfd.readouterr().out) if each["subject"] == "settings"]
    assert (found["status"], PROBLEM[kind] in found["text"]) == ("missing", True)
    (own_home / f".config/sifmod/{kind}/bad.yaml").unlink()
    run(["doctor", "--json"])
    (found,) = [each for each in json.loads(capfd.readouterr().out) if each["subject"] == "settings"]
    assert found["status"] == "ok"


def test_a_site_that_cannot_be_read_is_a_warning(own_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(own_home / ".config/sifmod/sites/bad.yaml", "a: [\n")
    for words in (["site", "detect"], ["config", "show"]):
        assert run(words) == 0
        assert f"== warning: {path}:" in capfd.readouterr().err
    assert run(["config", "show", "--site", "lumi-g"]) == 0
    assert capfd.readouterr().err == ""


def test_a_quirk_for_a_site_that_nobody_knows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "etc-sifmod.d/sites/file.yaml", "name: ours\n")
    head = "description: d\nreason: r\nlink: l\nenv: {B: 1}\n"
    quirk = write(tmp_path / "q.yaml", f"{head}match: {{site: [lumi-q, file, ours, aws-efa]}}\n")
    assert run(["check", str(quirk)]) == 0
    warning = f"{quirk}:5:16: match.site: no site here is named lumi-q; did you mean lumi-g? (warning)"
    assert capfd.readouterr().out.splitlines() == [warning, f"{quirk}: ok: a quirk"]


def test_a_new_site_that_hides_another(own_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from sifmod.config.find import shipped

    assert run(["site", "new", "generic"]) == 0
    captured = capfd.readouterr()
    path = own_home / ".config/sifmod/sites/generic.yaml"
    hidden = shipped() / "sites/generic.yaml"
    assert captured.out == f"{path}\n"
    assert captured.err == f"== the new file is your site generic from now on, and hides {hidden}\n"
    assert run(["site", "new", "another"]) == 0
    assert capfd.readouterr().err == ""
