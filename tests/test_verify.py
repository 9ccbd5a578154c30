import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.actions.verify import installed, verify
from sifmod.errors import ModuleError
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.receipt import Installation
from support.disk_state import disk_state
from support.tree import MODULE, install


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "prefix")


@pytest.fixture
def installation(layout: Layout) -> Installation:
    return install(layout, "a")


def test_all_is_well(layout: Layout, installation: Installation) -> None:
    before = disk_state(layout.prefix)
    assert verify(layout, installation) == ()
    assert installed(layout, MODULE) == installation
    assert disk_state(layout.prefix) == before


def rewrite(path: Path, data: bytes) -> None:
    path.parent.chmod(0o755)
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)


def flip(path: Path) -> None:
    """Change one bit, keep the size and the mode."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    rewrite(path, bytes(data))


def unlink(path: Path) -> None:
    path.parent.chmod(0o755)
    path.unlink()


def elsewhere(path: Path) -> None:
    unlink(path)
    path.symlink_to("/etc/hostname")


def directory(path: Path) -> None:
    unlink(path)
    path.mkdir()


DAMAGES: tuple[tuple[str, Callable[[Path], None], str], ...] = (
    ("modulefile.lua", flip, "changed"),
    ("modulefile.lua", unlink, "missing"),
    ("modulefile.lua", elsewhere, "changed"),
    ("modulefile.lua", directory, "changed"),
    ("bin/python", flip, "changed"),
    ("bin/python", lambda path: path.chmod(0o444), "changed"),
    ("share/modules/Tiny/1.0.lua", unlink, "missing"),
    ("../../../../../modules/Tiny/1.0.lua", flip, "changed"),
    ("../../../../../modules/Tiny/1.0.lua", unlink, "missing"),
    ("user-software", unlink, "missing"),
    ("user-software", elsewhere, "changed"),
    ("user-software.squashfs", directory, "changed"),
)


@pytest.mark.parametrize(("path", "damage", "kind"), DAMAGES)
def test_damage_is_found(
    layout: Layout, installation: Installation, path: str, damage: Callable[[Path], None], kind: str
) -> None:
    target = Path(os.path.normpath(Path(installation.root, path)))
    damage(target)
    (finding,) = verify(layout, installation)
    assert (finding.kind, finding.path, finding.fault) == (kind, str(target), True)
    assert finding.expected != finding.found


@pytest.mark.parametrize(
    ("damage", "kind", "found"),
    [
        (flip, "changed", "sha256:"),
        (lambda path: rewrite(path, b"short"), "changed", "5 bytes"),
        (unlink, "missing", "nothing"),
    ],
)
def test_a_damaged_image_is_found(
    layout: Layout, installation: Installation, damage: Callable[[Path], None], kind: str, found: str
) -> None:
    damage(Path(installation.image.path))
    (finding,) = verify(layout, installation)
    assert (finding.kind, finding.path, finding.fault) == (kind, installation.image.path, True)
    assert finding.found.startswith(found)


def test_a_removed_image_link_and_an_added_file_are_told_and_no_fault(
    layout: Layout, installation: Installation
) -> None:
    Path(installation.root, "tiny.sif").unlink()
    Path(installation.root, "notes").write_text("x")
    findings = verify(layout, installation)
    assert [(finding.kind, finding.path, finding.fault) for finding in findings] == [
        ("released", f"{installation.root}/tiny.sif", False),
        ("added", f"{installation.root}/notes", False),
    ]


def test_what_is_not_installed_cannot_be_verified(layout: Layout) -> None:
    with pytest.raises(ModuleError, match=r"Tiny/1\.0 is not installed"):
        installed(layout, MODULE)


def test_a_lost_receipt_is_an_error(layout: Layout, installation: Installation) -> None:
    Path(installation.root, RECEIPT).unlink()
    with pytest.raises(ModuleError, match="missing or cannot be read") as caught:
        installed(layout, MODULE)
    assert "--rebuild" in caught.value.hint
