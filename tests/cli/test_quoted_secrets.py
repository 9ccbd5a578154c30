"""A login, a query or a fragment that is typed, in a variable or in a file is in no message and no file of sifmod's.

Each argument and each option of each command gets one, whether it wants a URL there or not.
"""

from itertools import cycle
from pathlib import Path

import click
import pytest
import yaml

from sifmod.cli.main import run
from sifmod.cli.output import echo, hide_typed
from sifmod.config.easyconfig import Easyconfig
from sifmod.config.option import VARIABLES
from sifmod.config.site import SiteFile
from sifmod.secret import secret_parts, without_secrets
from support.click_commands import commands
from support.images import Images

SECRETS = (
    "https://me:S3CRET@h.invalid/x",
    "http:/me:S3CRET@h.invalid/x.yaml",
    "docker://me:S3CRET@h.invalid/x:1",
    "https://h.invalid/x.sif?token=S3CRET",
    "https://h.invalid/x#S3CRET",
    "oci-archive://me:S3CRET@h.invalid/x",
    "me:S3CRET@h.invalid/x",
    "x @ https://me:S3CRET@h.invalid/x.whl",
    "//me:S3CRET@h.invalid/x",
    "git+https://S3CRET@h.invalid/x.git",
    "https://me:it's \\S3CRET@h.invalid/x",
    "https://me:pass S3CRET@h.invalid/x",
    "https://me:S3CRET\u00e9@h.invalid/x",
    "me:pass/S3CRET@h.invalid/x",
)
USUAL = {
    "name": "Tiny",
    "version": "1.0",
    "description": "none",
    "accelerator": "none",
    "wrappers": [],
}


EVERY = commands()


@pytest.fixture
def here(images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Path:
    """A directory with an easyconfig, a stack, and a tree in which the module is installed."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_ARCH", "amd64")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    easyconfig(tmp_path, images)
    (tmp_path / "stack.yaml").write_text("name: st\neasyconfigs: [Tiny-1.0.yaml]\n")
    assert run(["install", "--skip-sanity-check", "Tiny-1.0.yaml"]) == 0
    capfd.readouterr()
    return tmp_path


def easyconfig(directory: Path, images: Images, **keys: object) -> None:
    content = {**USUAL, "image": {"sources": [str(images.tiny_sif)]}, **keys}
    (directory / "Tiny-1.0.yaml").write_text(yaml.safe_dump(content))


class Told:
    """Runs commands; what they print and write has no secret in it."""

    def __init__(self, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.here, self._capfd = here, capfd

    def __call__(self, *words: str) -> None:
        assert run(list(words)) != 70, words
        output = self._capfd.readouterr()
        assert "S3CRET" not in output.out + output.err, words
        for file in self.here.rglob("*"):
            assert "S3CRET" not in file.name, words
            if file.is_file() and file.suffix != ".sif" and file.parent not in (self.here, self.here / "config/sifmod"):
                assert b"S3CRET" not in file.read_bytes(), (words, file)


@pytest.fixture
def told(here: Path, capfd: pytest.CaptureFixture[str]) -> Told:
    return Told(here, capfd)


def usual(words: str, one: click.Parameter) -> str:
    if "MODULE" in (one.metavar or ""):
        return "Tiny/1.0"
    return "stack.yaml" if words.startswith("stack") else "Tiny-1.0.yaml"


@pytest.mark.parametrize("words", EVERY)
def test_no_command_repeats_what_is_typed(words: str, told: Told) -> None:
    secrets = cycle(SECRETS)
    arguments = [one for one in EVERY[words].params if isinstance(one, click.Argument)]
    options = [one for one in EVERY[words].params if isinstance(one, click.Option) and not one.is_flag]
    for place, _ in enumerate(arguments):
        before = [usual(words, one) for one in arguments[:place]]
        after = [usual(words, one) for one in arguments[place + 1 :] if one.required]
        for json in ((), ("--json",)):
            told(*words.split(), *before, next(secrets), *after, *json)
    given = [usual(words, one) for one in arguments if one.required or one.nargs == -1]
    for option in options:
        secret = SECRETS[0] if option.name == "message" else next(secrets)  # any text without a URL is a message
        told(*words.split(), *given, f"{option.opts[-1]}={secret}")
        told(*words.split(), *given, option.opts[-1], secret, "--json")
    told(*words.split(), f"--{next(secrets)}")


@pytest.mark.parametrize("words", ["install Tiny-1.0.yaml", "stack apply stack.yaml", "stack catalogue -o pages"])
@pytest.mark.parametrize("option", ["--robot-paths", "--image-dirs", "--prefix"])
def test_a_url_is_no_directory(words: str, option: str, told: Told) -> None:
    for secret in SECRETS:
        told(*words.split(), f"{option}={secret}")


@pytest.mark.parametrize("variant", ["docker://h/x:1", ""])
def test_a_lock_of_a_variant_that_cannot_be(variant: str, told: Told) -> None:
    told("lock", "Tiny-1.0.yaml", f"--variant={variant}")  # 70 once


@pytest.mark.parametrize("name", VARIABLES)
def test_no_command_repeats_a_variable(name: str, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in SECRETS:
        monkeypatch.setenv(name, secret)
        told("list")
        told("install", "Tiny-1.0.yaml", "--dry-run")
        told("fetch", "Tiny-1.0.yaml", "--json")


@pytest.mark.parametrize("key", SiteFile.model_fields)
def test_no_command_repeats_a_wrong_setting(key: str, told: Told) -> None:
    settings = told.here / "config/sifmod/config.yaml"
    settings.parent.mkdir(parents=True)
    for secret, form in zip(SECRETS, cycle((list, str, dict)), strict=False):
        value = {list: [secret], str: secret, dict: {secret: secret}}[form]
        settings.write_text(yaml.safe_dump({key: value}))
        told("list")
        told("check", str(settings), "--json")


@pytest.mark.parametrize("key", Easyconfig.model_fields)
def test_no_command_repeats_a_wrong_value(key: str, told: Told, images: Images) -> None:
    for secret, form in zip(SECRETS, cycle((list, str, dict)), strict=False):
        easyconfig(told.here, images, **{key: {list: [secret], str: secret, dict: {secret: secret}}[form]})
        told("check", "Tiny-1.0.yaml")
        told("check", "Tiny-1.0.yaml", "--json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("got 'me:S3CRET@h/x': no", "got 'h/x': no"),
        ("key.//me:S3CRET@h/x: unknown", "key.//h/x: unknown"),
        ("got 'http://me:S3 CRET@h/x': no", "got 'http://h/x': no"),
        ("git+ssh://git@host/x.git is no repository", "git+ssh://git@host/x.git is no repository"),
        (
            "alpine:3.20@sha256:00 (docker://h:5000/x:1@sha256:00)",
            "alpine:3.20@sha256:00 (docker://h:5000/x:1@sha256:00)",
        ),
        ("https://h/x.whl#sha256=00", "https://h/x.whl#sha256=00"),
        ("'https://h/x?sig=S3CRET': 403", "'https://h/x?...': 403"),
        ("/a/b?c@d#e.sif and name==1.0#x", "/a/b?c@d#e.sif and name==1.0#x"),
        ("https://h:80/a@b", "https://h:80/a@b"),
        ("docker://ubuntu@24.04: expected", "docker://ubuntu@24.04: expected"),
        ("docker://S3CRET@h/x: expected", "docker://h/x: expected"),
        ("no http://me:S3 CRET@h/x here", "no http://h/x here"),
        ("no me:a/S3CRET@h.org/x", "no h.org/x"),
        ("git+https://h:80/a/b.git@v1.0 and oci:a/b@c", "git+https://h:80/a/b.git@v1.0 and oci:a/b@c"),
        ("a.yaml:3:1: b/c@d, http://h:80 or me@h", "a.yaml:3:1: b/c@d, http://h:80 or me@h"),
        ("no answer from http://h:80, ask me@h", "no answer from http://h:80, ask me@h"),
        ("(see 'http://h:80'). Ask me@h", "(see 'http://h:80'). Ask me@h"),
    ],
)
def test_what_is_left_of_a_message(text: str, expected: str) -> None:
    assert without_secrets(text) == expected


def test_what_a_command_makes_is_printed_unchanged(capfd: pytest.CaptureFixture[str]) -> None:
    """A file keeps it, or a shell evaluates it: only messages and data leave something out."""
    hide_typed(["https://me:S3CRET@h.invalid/x"])
    echo("curl https://me:S3CRET@h.invalid/x")
    echo("https://me:S3CRET@h.invalid/x does not answer", err=True)
    hide_typed(())
    output = capfd.readouterr()
    assert output.out == "curl https://me:S3CRET@h.invalid/x\n"
    assert output.err == "https://h.invalid/x does not answer\n"


@pytest.mark.parametrize(
    "part",
    ["a.", "https:", "http://a:", "https:@", "http://a:b@", "@https:a:b/", "a:", "//", "?#", "a:b/a.b@", "https:a:b "],
)
def test_a_long_word_takes_no_time(part: str) -> None:
    secret_parts(((part * (1 << 17))[: 1 << 17],))
