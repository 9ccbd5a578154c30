"""A file of one's own that is closed to others is not read for a file that another user has written."""

import os
import re
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.config.private import closed_elsewhere, closed_to_author
from sifmod.errors import FetchError, OptionError
from sifmod.image.packages.requirements import parse_recipe_requests, parse_requests
from sifmod.image.sources.build import inputs

AUTHOR = 54_321  # a user without a name and groups
pytestmark = pytest.mark.usefixtures("needs_root")


@pytest.fixture
def theirs(shared_tmp: Path) -> Path:
    """A directory of AUTHOR, beside `mine`, a closed directory with files of this user."""
    for name, mode in (("secret", 0o600), ("open", 0o644)):
        (shared_tmp / name).write_text("s3cret-word\n")
        (shared_tmp / name).chmod(mode)
    (shared_tmp / "mine").mkdir(mode=0o700)
    (shared_tmp / "mine" / "file").write_text("s3cret-word\n")
    directory = shared_tmp / "theirs"
    directory.mkdir()
    return directory


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    os.chown(path, AUTHOR, AUTHOR)
    return path


@pytest.mark.parametrize(
    ("name", "closed"),
    [("../secret", True), ("../open", False), ("../mine/file", True), ("missing", False), ("link", True)],
)
def test_what_its_author_could_not_read(theirs: Path, name: str, closed: bool) -> None:
    (theirs / "link").symlink_to("../secret")
    by = write(theirs / "x.yaml", "")
    assert bool(closed_to_author(theirs / name, by)) == closed
    os.chown(by, 0, 0)
    assert closed_to_author(theirs / name, by) == ""


@pytest.mark.parametrize("key", ["requirements", "definition", "dockerfile"])
def test_an_easyconfig_of_another_user_does_not_name_it(
    theirs: Path, key: str, capfd: pytest.CaptureFixture[str]
) -> None:
    base = "from: docker://docker.io/library/python:3.12, " if key == "requirements" else ""
    path = write(
        theirs / "Tool-1.yaml",
        f"name: Tool\nversion: '1'\ndescription: x\naccelerator: none\nimage: {{build: {{{base}{key}: ../secret}}}}\n",
    )
    assert sifmod(["check", str(path)]) == 5
    said = "".join(capfd.readouterr())
    assert f"secret is closed to user {AUTHOR}, who owns {path}" in said
    assert "s3cret-word" not in said


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("check", "{extends: ../secret, name: Tool, version: '1'}"),
        ("check", "{name: Tool, version: '1', image: {build: {from: 'docker://x/y', files: {secret: /s}}}}"),
        ("stack plan", "{include: [../secret]}"),
    ],
)
def test_nor_does_another_key_or_a_stack(
    theirs: Path, command: str, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (theirs / "secret").write_text("name: s3cret-word\n")
    (theirs / "secret").chmod(0o600)
    path = write(theirs / "Tool-1.yaml", f"{text}\n")
    assert sifmod([*command.split(), str(path)]) == 5
    said = "".join(capfd.readouterr())
    assert f"secret is closed to user {AUTHOR}, who owns {path}" in said
    assert "s3cret-word" not in said


@pytest.mark.parametrize("name", ["../secret", "{mine}/f*", "~/mine"])
def test_nor_does_a_definition(theirs: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private file came into an image that all read."""
    monkeypatch.setenv("HOME", str(theirs.parent))
    line = name.format(mine=theirs.parent / "mine")
    path = write(theirs / "x.def", f"Bootstrap: docker\nFrom: x\n%files\n{line} /f\n")
    with pytest.raises(FetchError, match=f"is closed to user {AUTHOR}, who owns {path}: the image would show"):
        inputs(path)
    os.chown(path, 0, 0)
    assert path in inputs(path)


def test_requirements_of_another_user_do_not_include_it(theirs: Path) -> None:
    path = write(theirs / "requirements.txt", "-r ../secret\n")
    with pytest.raises(OptionError, match=r"--requirement \.\./secret: .*/secret is closed to user 54321") as error:
        parse_recipe_requests(path)
    assert "s3cret-word" not in error.value.message


@pytest.mark.parametrize(
    ("line", "closed"),
    [
        ("--find-links {mine}", "{mine}"),
        ("--find-links file://localhost{mine}", "{mine}"),
        ("--extra-index-url file://{mine}/simple", "{mine}/simple"),
        ("-e {mine}", "{mine}"),
        ("{mine}", "{mine}"),
        ("tool @ {mine}", "{mine}"),
        ("tool @ file:{mine}/tool-1.0-py3-none-any.whl", "{mine}/tool-1.0-py3-none-any.whl"),
        ("tool @ git+file://{mine}@main", "{mine}"),
    ],
)
def test_requirements_of_another_user_take_nothing_from_it(
    theirs: Path, line: str, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came into a layer that all can read."""
    mine = theirs.parent / "mi ne"
    (theirs.parent / "mine").rename(mine)
    (mine / "simple").mkdir()
    for name in ("pyproject.toml", "tool-1.0-py3-none-any.whl"):
        (mine / name).write_text("")
    spelled = str(mine).replace(" ", "%20") if "file:" in line else f'"{mine}"' if line[0] == "-" else str(mine)
    path = write(theirs / "requirements.txt", f"six\n{line.format(mine=spelled)}\n")
    said = f":2: {closed.format(mine=mine)} is closed to user {AUTHOR}, who owns {path}"
    with pytest.raises(OptionError, match=re.escape(said)):
        parse_requests(files=[path])
    os.chown(path, 0, 0)
    assert parse_requests(files=[path]).requirements[0] == "six"
    monkeypatch.chdir(mine)
    write(path, f"six\ntool @ file://{theirs}/tool-1.0.tar.gz\n")
    (theirs / "tool-1.0.tar.gz").touch()
    assert parse_requests(files=[path]).requirements[0] == "six"


@pytest.mark.parametrize("key", ["requirements", "definition", "dockerfile"])
@pytest.mark.parametrize("name", ["../secret", "link"])
def test_a_clone_names_no_closed_file_elsewhere(
    shared_tmp: Path, theirs: Path, key: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Lines of `~/.netrc` came into the log of `stack apply`, which all can read."""
    base = "from: docker://docker.io/library/python:3.12, " if key == "requirements" else ""
    text = f"name: Tool\nversion: '1'\ndescription: x\naccelerator: none\nimage: {{build: {{{base}{key}: {name}}}}}\n"
    path = theirs / "Tool-1.yaml"
    path.write_text(text)
    (theirs / "link").symlink_to("../secret")
    assert sifmod(["check", str(path)]) == 5
    said = "".join(capfd.readouterr())
    assert f"is closed to all others, and is not in the directory of {path}" in said
    assert "s3cret-word" not in said
    path.chmod(0o600)  # of a user whose files are all closed
    assert "closed to all others" not in closed_elsewhere(shared_tmp / "secret", path)
    path.chmod(0o644)
    (shared_tmp / "secret").chmod(0o644)
    assert closed_elsewhere(shared_tmp / "secret", path) == ""


@pytest.mark.parametrize("option", ["-r", "-c"])
def test_requirements_name_no_closed_file_elsewhere(shared_tmp: Path, theirs: Path, option: str) -> None:
    asked = theirs / "requirements.txt"
    asked.write_text(f"{option} ../secret\n")
    with pytest.raises(OptionError, match="is closed to all others, and is not in the directory of") as error:
        parse_recipe_requests(asked)
    assert "s3cret-word" not in str(error.value)
    (theirs / "beside.txt").write_text("six\n")
    (theirs / "beside.txt").chmod(0o600)
    asked.write_text("-r beside.txt\n")
    assert parse_recipe_requests(asked)[0].requirements == ("six",)
    assert (shared_tmp / "secret").stat().st_mode & 0o777 == 0o600
