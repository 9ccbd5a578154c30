"""A login in a URL: found and left out, but for the name that ssh wants."""

import time
from pathlib import Path

import pytest

from sifmod.config.redact import has_login, secret_parameter, without_logins, without_values


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("demo @ https://me:secret@host/x.whl", "demo @ https://host/x.whl"),
        ("https://token@host:8080/simple", "https://host:8080/simple"),
        ("git+https://me:secret@host/x.git@v1", "git+https://host/x.git@v1"),
        ("git+ssh://git:secret@host/x.git", "git+ssh://host/x.git"),
        ("https://me:se/cret@host/x", "https://host/x"),
        ("https://me:se?cret@host/x", "https://host/x"),
        ('url = "https://me:secret@host/x", hashes = 1', 'url = "https://host/x", hashes = 1'),
        ("a http://u:p@x/ and HTTPS://u:p@y/", "a http://x/ and HTTPS://y/"),
        ("https://@host/x", "https://host/x"),
        ("https://me:AA@BBsecret@host/x.whl", "https://host/x.whl"),
        ("https://me:AA'sec\"r<et@host/x", "https://host/x"),
        ("git+ssh://git@evil:secret@host/x.git", "git+ssh://host/x.git"),
        ("https:/me:secret@host/x", "https:/host/x"),
        ("a @ https:me:secret@host/x", "a @ https:host/x"),
        ("git+https:///me:secret@host/x", "git+https:///host/x"),
        ("HTTPS:\\\\me:secret@host/x", "HTTPS:\\\\host/x"),
        ("see https://me:se cr et@host/x for more", "see https://host/x for more"),
        ("https://me:12a secret@host/x", "https://host/x"),
    ],
)
def test_a_login(text: str, left: str) -> None:
    assert (has_login(text), without_logins(text)) == (True, left)


@pytest.mark.parametrize(
    "text",
    [
        "git+ssh://git@host/x.git@v1",
        "ssh://git@host:22/x",
        "https://host/x.git@v1",
        "https://host:8080/a@b",
        "see https://host:8080 or mail to me@host, or https://host/x, me@host",
        "see https://host: mail to me@host",
        "see https://host:8443, or mail to me@host",
        "see https://host:8443. Contact: me@host",
        "(https://host:8443) or me@host",
        "https://a:b\nmail to me@host",
        "https://host:8080?q=a@b",
        "https://host:8080",
        "docker://host:5000/name:tag@sha256:0",
        "me@host",
        "demo[extra]==1.0 ; python_version > '3'",
    ],
)
def test_none(text: str) -> None:
    assert (has_login(text), without_logins(text)) == (False, text)


@pytest.mark.parametrize(
    "text",
    [
        "x @ https://host/x.whl#sha256=00&egg=x&subdirectory=key",
        "x @ https://host/x.whl;python_version=='3.11' ; platform_machine=='x'",
        "https://host/key=1/token/?a=&token=&page=2",
        "x==1.0 ; token=='a'",
    ],
)
def test_no_secret_parameter(text: str) -> None:
    assert secret_parameter(text) == ""


@pytest.mark.parametrize(
    "part", ["a.", "a+", "https:", "http://a:", "https:@", "http://a:b@", "@https:a:b/", "a:", "://?#a="]
)
def test_a_long_text_takes_no_time(part: str) -> None:
    """A minute for 64 KiB of `a.a.a.`, which any program that sifmod runs can say."""
    text = (part * (1 << 20))[: 1 << 20]
    start = time.process_time()
    has_login(text)
    without_logins(text)
    secret_parameter(text)
    assert time.process_time() - start < 10


def test_values_of_variables_with_a_secrets_name(tmp_path: Path) -> None:
    """The longest first; a short value may be any word, and a path that exists is no secret."""
    environ = {
        "APPTAINER_DOCKER_PASSWORD": "s3cret-of-me",
        "HF_TOKEN": "s3cret",
        "A_TOKEN": "words",
        "SSH_AUTH_SOCK": str(tmp_path),
        "B_KEY": f"/{tmp_path.name}+base64",
        "HOME": "/home/me-and-you",
    }
    said = "s3cret-of-me s3cret words {} {} /home/me-and-you"
    hidden = said.format(tmp_path, "...").replace("s3cret-of-me s3cret", "... ...")
    assert without_values(said.format(tmp_path, environ["B_KEY"]), environ) == hidden
