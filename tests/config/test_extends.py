"""`extends`: what is no easyconfig is refused without a word of what is in it; and `null` removes only what can be."""

import os
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.identity import call_as
from support.user import OrdinaryUser

SECRET = "s3cret"
TEXTS = {
    "shadow": f"root:$6${SECRET}:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n",
    "one line of it": f"root:${SECRET}:19000:0:99999:7:::\n",
    "key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----\n",
    "netrc": f"machine x login y password {SECRET}\n",
    "json": f'{{"auths": {{"ghcr.io": {{"auth": "{SECRET}"}}}}}}',
    "list": f"- {SECRET}\n",
    "binary": f"\0\1\x7f{SECRET}",
    "half an easyconfig": f"name: {SECRET}\n{SECRET}: 1\n",
    "nothing": "",
}


def check(directory: Path, extends: str, capfd: pytest.CaptureFixture[str], code: int = 5) -> str:
    """What `check` says of an easyconfig that is right but for what it extends."""
    text = f"name: Tiny\nversion: '1.0'\nextends: {extends}\nimage: {{sources: [x.sif]}}\n"
    path = write(directory / "Tiny-1.0.yaml", text)
    assert run(["check", str(path)]) == code
    out, err = capfd.readouterr()
    said = out + err
    assert ("ok:" in said) == (code == 0)
    assert SECRET not in said
    return said


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("name", ["shadow", "{}/shadow", "../shadow"])
def test_what_is_no_easyconfig_is_refused_and_not_shown(
    tmp_path: Path, text: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "easyconfigs"
    directory.mkdir()
    for place in (directory, tmp_path):
        write(place / "shadow", text)
    said = check(directory, name.format(tmp_path), capfd)
    assert "Tiny-1.0.yaml:3:10: extends: " in said
    assert said.rstrip().endswith("is not an easyconfig")
    assert len(said.splitlines()) <= 2


def test_a_file_of_another_kind_with_the_name_of_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "other.yaml", f"password: {SECRET}\n{SECRET}:\n")
    assert "is not an easyconfig" in check(tmp_path, "other.yaml", capfd)
    write(tmp_path / "base.yaml", "wrapers: [python]\nenv: {A: b}\n")
    assert "base.yaml:1:1: wrapers: unknown key; did you mean wrappers?" in check(tmp_path, "base.yaml", capfd)
    write(tmp_path / "base.yaml", "env: {A: b\n")
    assert "base.yaml:2:1: not YAML" in check(tmp_path, "base.yaml", capfd)
    write(tmp_path / "base", "env: {A: b}\n")
    check(tmp_path, "base", capfd, code=0)


def test_what_cannot_be_read_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A pipe is not waited for, a device not read, and of a huge file no more than 1 MiB."""
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(5 << 30)
    (tmp_path / "loop").symlink_to("loop")
    for name in (f"{tmp_path}/pipe", "huge", "/dev/zero", f"{tmp_path}"):
        assert "is not an easyconfig" in check(tmp_path, name, capfd)
    for name in ("pipe", "loop", "loop/x", "nothing"):
        assert "there is no" in check(tmp_path, name, capfd)


def test_what_is_closed_is_refused(
    shared_tmp: Path, ordinary_user: OrdinaryUser, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write(shared_tmp / "closed", SECRET).chmod(0)
    monkeypatch.setenv("HOME", str(ordinary_user.home))
    monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(ordinary_user.home / "none"))
    said = call_as(ordinary_user.user, lambda: check(ordinary_user.home, f"{shared_tmp}/closed", capfd))
    assert "is not an easyconfig" in said


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("wrapers: null", "3:1: wrapers: unknown key; did you mean wrappers?"),
        ("bogus: ~", "3:1: bogus: unknown key; known are accelerator, "),
        ("image: {sources: [x.sif], sha265: null}", "3:27: image.sha265: unknown key; did you mean sha256?"),
        ("variants: {a: {imgae: null}}", "3:16: variants.a.imgae: unknown key; did you mean image?"),
        ("wrapers+:", "3:1: wrapers+: unknown key; did you mean wrappers?"),
        ("conda: {prefix: /opt/x, evn: null}", "3:25: conda.evn: unknown key; did you mean env?"),
        ("sanity_check: {path: null}", "3:16: sanity_check.path: unknown key; did you mean paths?"),
    ],
)
def test_an_unknown_key_is_unknown_without_a_value_too(
    tmp_path: Path, text: str, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "Tiny-1.0.yaml", f"name: Tiny\nversion: '1.0'\n{text}\n")
    assert run(["check", str(path)]) == 5
    assert f"Tiny-1.0.yaml:{problem}" in capfd.readouterr().out


def test_null_removes_what_a_key_is_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Keys that the author chooses, too, and those of a map that can also be a text."""
    write(tmp_path / "base.yaml", "env: {A: a, B: b}\nconda: {prefix: /opt/x, env: y}\nvariants: {cpu: {}, cuda: {}}\n")
    text = "env: {A: null, C: null}\nconda: {env: null}\nvariants: {cuda: null}\nwrappers:\nhomepage: ~\n"
    path = write(
        tmp_path / "Tiny-1.0.yaml",
        f"name: Tiny\nversion: '1.0'\nextends: base.yaml\nimage: {{sources: [x.sif], sha256: null}}\n{text}",
    )
    assert run(["check", str(path)]) == 0, capfd.readouterr().err
    settings = write(tmp_path / "home" / ".config" / "sifmod" / "config.yaml", "accelerator: null\nlinks: null\n")
    assert run(["check", str(settings)]) == 5
    assert "links: unknown key; did you mean link?" in capfd.readouterr().err
