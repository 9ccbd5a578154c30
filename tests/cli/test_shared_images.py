"""Images of a shared tree that are somebody's own files: who may load their module can read them, or is named."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.actions.sharing import closed_files
from sifmod.actions.start import site_in_force
from sifmod.cli.main import run
from support.config import write
from support.identity import call_as
from support.images import Images
from support.user import OrdinaryUser

SOURCE = "own images/my.sif"


def closed_file(source: Path) -> None:
    source.chmod(0o400)


def closed_directory(source: Path) -> None:
    source.parent.chmod(0o700)


def closed_to_one(source: Path) -> None:
    """By an access control list: `setfacl -m u:71300:---`."""
    rows = ((1, 4, -1), (2, 0, 71_300), (4, 4, -1), (16, 4, -1), (32, 4, -1))
    packed = b"".join(struct.pack("<HHI", tag, may, who & 0xFFFFFFFF) for tag, may, who in rows)
    os.setxattr(source, "system.posix_acl_access", struct.pack("<I", 2) + packed)


@pytest.mark.parametrize(
    ("link", "close", "what"),
    [
        ("reference", closed_file, "is closed to them"),
        ("reference", closed_directory, "cannot enter"),
        ("reference", closed_to_one, "is closed to them"),
        ("hardlink", closed_file, "is closed to them"),
        ("hardlink", closed_to_one, "is closed to them"),
    ],
)
def test_an_image_that_its_owner_closes_is_named(
    shared_tmp: Path,
    images: Images,
    ordinary_user: OrdinaryUser,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    link: str,
    close: Callable[[Path], None],
    what: str,
) -> None:
    """`verify`, `verify --modes` and `doctor` said ok, and nobody but the owner could start the module."""
    prefix, source = shared_tmp / "a tree", shared_tmp / SOURCE
    source.parent.mkdir(mode=0o755)
    shutil.copy(images.tiny_sif, source)
    source.chmod(0o444)
    monkeypatch.setenv("SIFMOD_PREFIX", str(prefix))
    monkeypatch.chdir(shared_tmp)
    settings = Path(os.environ["SIFMOD_CONFIG_DIR"], "a.yaml")
    write(settings, f"sharing: site\nlink: {link}\nprefix: '{prefix}'\n")
    write(shared_tmp / "Tiny-1.yaml", f"name: Tiny\nversion: '1'\nimage: {{sources: ['{source}']}}\nwrappers: [sh]\n")
    install = ["install", "Tiny-1.yaml", "--skip-sanity-check"]
    (shared_tmp / "own images").chmod(0o755)
    assert run(install) == 0
    assert "warning: users that may load" not in "".join(capfd.readouterr())
    assert run(["verify"]) == run(["verify", "--modes"]) == run(["verify", "--repair-modes"]) == 0
    close(source)
    site = site_in_force({}).site
    capfd.readouterr()
    for words in (["verify"], ["verify", "--modes"], ["verify", "--repair-modes"], ["doctor"]):
        assert run(words) == 1
        said = " ".join("".join(capfd.readouterr()).split())
        assert "users that may load Tiny/1 " in said
        assert what in said
    assert call_as(ordinary_user.user, lambda: closed_files(site))  # of one who is kept out
    if link == "reference":
        assert run([*install, "--rebuild"]) == 0
        assert "warning: users that may load Tiny/1 " in "".join(capfd.readouterr())
    source.parent.chmod(0o755)
    if close is closed_to_one:
        os.removexattr(source, "system.posix_acl_access")
    source.chmod(0o444)
    assert run(["verify"]) == run(["verify", "--modes"]) == 0
