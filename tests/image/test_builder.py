"""Images that need a builder: commands upon a base, what is built once, and what is said where nothing can build."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sifmod.errors import FetchError, RuntimeMissingError
from sifmod.image import builder
from sifmod.image.artifact import Artifact
from sifmod.image.builder import way_to_build
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.fetch import fetch_image
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.sources.build import bases, inputs, inputs_digest
from sifmod.module.plan import BuildPlan, ImagePlan
from support.config import write
from support.extending import base_of
from support.fetching import Prefix, plan
from support.recipes import base, contents, recipe
from support.runtime import RUNTIME
from support.wheels import wheel

PROGRAMS = ("sh", "cat", "cp", "echo", "env", "ls", "mkdir", "mv", "rm", "stat", "test", "touch", "true")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with a shell, a file of another user's, and a Python that notes how it was called."""
    directory = tmp_path_factory.mktemp("shell")
    base(directory)  # its tree
    top = directory / "base"
    for name in ("bin", "tmp", "etc", "root", "proc", "sys", "dev", "var/tmp", "srv"):
        (top / name).mkdir(parents=True, exist_ok=True)
    (top / "bin/busybox").write_bytes(Path("/bin/busybox").read_bytes())
    (top / "bin/busybox").chmod(0o755)
    for name in PROGRAMS:
        (top / "bin" / name).symlink_to("busybox")
    (top / "etc/resolv.conf").touch()
    (top / "etc/hosts").touch()
    (top / "lib/x86_64-linux-gnu/libc.so.6").unlink()  # the shell is static, and the fakeroot of this machine is not
    write(top / "lib/ld-musl-x86_64.so.1", "")
    write(top / "opt/env/bin/python3", '#!/bin/sh\necho "python $*" >>/srv/pip\n').chmod(0o755)
    write(top / "srv/theirs", "of user 33\n")
    if os.geteuid() == 0:
        os.chown(top / "srv/theirs", 33, 33)
    return base_of(top, directory / "shell.sif")


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


def made(prefix: Prefix, image: ImagePlan) -> Artifact:
    with prefix.store() as store:
        return fetch_image(image, RUNTIME.plan, store)


def refused(prefix: Prefix, image: ImagePlan) -> FetchError:
    """The error, asserting that the disk is as before but for the base, which is referred to."""
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        made(prefix, image)
    assert prefix.state() == before
    return caught.value


def test_commands_run_inside_upon_all_else_of_the_recipe(tmp_path: Path, shell: Path, prefix: Prefix) -> None:
    file = write(tmp_path / "a.txt", "a file\n")
    image = recipe(
        shell,
        files=((str(file), "/opt/a.txt"),),
        env=(("GREETING", "it's $HOME"),),
        labels=(("maintainer", "me"),),
        post='cat /opt/a.txt >/made\necho "$GREETING $PATH" >>/made\nrm /srv/pip || true',
        test='test "$(cat /opt/a.txt)" = "a file"',
    )
    artifact = made(prefix, image)
    after = contents(artifact.path)
    assert after["/made"].decode().startswith("a file\nit's $HOME /opt/env/bin:")
    assert after["/srv/theirs"] == b"of user 33\n"
    said = describe_sif(artifact.path)
    assert {"maintainer": "me", "of": "the base"}.items() <= dict(said.config.labels).items()
    assert {"LANG": "C", "GREETING": "it's $HOME"}.items() <= dict(said.config.environment).items()
    assert "From: base.sif" in said.definition
    assert str(tmp_path) not in said.definition
    assert json.loads(after["/.singularity.d/build/1/recipe.json"])["post"] == image.build.post  # type: ignore[union-attr]
    assert any(note.startswith("commands of the recipe ran ") for note in artifact.notes)
    again = made(prefix, replace(image, filename="other.sif"))
    assert (again.sha256, again.notes) == (artifact.sha256, ("the same was built before, and is not built again",))


@pytest.mark.parametrize(
    "commands", [{"post": "echo is wrong; false"}, {"post": "true", "test": "echo is wrong; false"}]
)
def test_commands_that_fail_end_the_build(shell: Path, prefix: Prefix, commands: dict[str, Any]) -> None:
    assert "is wrong" in refused(prefix, recipe(shell, **commands)).message


def test_what_has_no_wheel_is_compiled_inside(
    tmp_path: Path, shell: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    made_for_another = wheel(wheels, "demo")
    made_for_another.rename(wheels / "demo-1.0-cp27-cp27m-win32.whl")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    image = recipe(shell, pip=("demo",), post="echo more >>/srv/pip")
    artifact = made(prefix, image)
    after = contents(artifact.path)
    place = "/.singularity.d/build/1"
    install = f"-m pip install --no-cache-dir --constraint {place}/kept.txt --requirement {place}/requirements.txt"
    assert after["/srv/pip"].decode() == f"python {install}\npython -m pip freeze\nmore\n"
    assert after[f"{place}/requirements.txt"] == b"demo\n"
    assert b"torch==2.0\n" in after[f"{place}/kept.txt"]
    assert f"{place}/installed.txt" in after
    assert any("has no wheel for this image" in note for note in artifact.notes)
