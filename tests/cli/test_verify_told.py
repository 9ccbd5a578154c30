"""What `verify` says of damage in modules and layers that lie side by side, and the command that helps with each."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes
from sifmod.tree.layer import Layer, Layers, publish_layer
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.locking import lock
from support.answer import answer
from support.config import write
from support.images import Images
from support.tree import LEASE, MODULE, install, nobody

OTHER = ModuleName("Other", "2.0")
PACKED = b"packed"


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Two modules of one image, each with a layer of the same name; and one of another image."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    layout = Layout(tmp_path / "tree")
    for tag, module in (("a", MODULE), ("a", OTHER), ("c", ModuleName("Third", "3.0"))):
        install(layout, tag, module)
    return layout


def add(layout: Layout, top: Path, module: ModuleName, name: str, packed: bool) -> Layer:
    installed = install(layout, "a", module)
    layers = Layers(top, layout.prefix)
    with lock(layers, str(module), LEASE, nobody) as held:
        directory = held.path("layer")
        (directory / "tree").mkdir(parents=True)
        (directory / "pylock.toml").write_text("lock\n")
        if packed:
            (directory / "layer.squashfs").write_bytes(PACKED)
        sha256 = installed.required_image.sha256
        made = Layer(
            words=(),
            constraints=(),
            digests=(),
            module=module,
            name=name,
            image=sha256,
            size=len(PACKED) if packed else 0,
            number=1,
            python="/opt",
            version="3.11",
            requirements=("demo",),
            editable=(),
            places=(),
            added=(),
            kept=(),
            packed=packed,
        )
        return publish_layer(layers, replace(made, digest=sha256_bytes(PACKED) if packed else ""), directory, held)


def said(capfd: pytest.CaptureFixture[str], *words: str, code: int = 1) -> tuple[list[str], list[str]]:
    capfd.readouterr()
    assert run(["verify", *words]) == code
    out, err = capfd.readouterr()
    return out.splitlines(), err.splitlines()


@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_layer_is_its_modules_alone(
    layout: Layout, packed: bool, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "of a project"
    monkeypatch.setenv("SIFMOD_LAYERS", str(project))
    own = add(layout, layout.prefix / "layers", MODULE, "default", packed)
    shared = add(layout, project, OTHER, "theirs", packed)
    assert said(capfd, code=0) == (["Other/2.0: ok", "Third/3.0: ok", "Tiny/1.0: ok"], [])
    for layer, option in ((own, "--layer default"), (shared, f"--layer theirs --dir '{project}'")):
        damaged = Path(layer.root, "layer.squashfs" if packed else "tree")
        if packed:
            damaged.chmod(0o644)
            damaged.write_bytes(PACKED[::-1])
        else:
            shutil.rmtree(damaged)
        lock_file = f"'{layer.root}/pylock.toml'" if " " in layer.root else f"{layer.root}/pylock.toml"
        out, err = said(capfd)
        assert [line for line in out if line.endswith(": 1 fault")] == [f"{layer.module}: 1 fault"]
        assert out[out.index(f"{layer.module}: 1 fault") + 1].startswith(
            f"  {'changed' if packed else 'missing'}: {damaged}: expected "
        )
        assert err == [f"== `sifmod layer sync {layer.module} {lock_file} {option}` rebuilds the layer"]
        if packed:
            damaged.write_bytes(PACKED)
        else:
            damaged.mkdir()


def test_an_image_that_its_own_store_or_another_has_lost(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    receipt = layout.generation(ModuleName("Third", "3.0"), 1) / RECEIPT
    receipt.parent.chmod(0o755)
    receipt.chmod(0o644)
    (image,) = (path for path in layout.images.glob("*.sif") if path.read_bytes().startswith(b"image c"))
    image.unlink()
    for link, found in (("copy", "nothing"), ("reference", "nothing: it was removed there; `sifmod install` of")):
        data = json.loads(receipt.read_text())
        receipt.write_text(json.dumps(data | {"image": data["image"] | {"link": link}}))
        (row,) = (one for one in answer(capfd, ("verify", "Third"), 1)[0]["findings"])
        assert (row["kind"], row["found"].startswith(found)) == ("missing", True)
        assert (row["found"] == "nothing") == (link == "copy")


@pytest.mark.parametrize("gone", ["software/Tiny", "software/Tiny/1"])
def test_a_modulefile_without_its_software(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], gone: str
) -> None:
    """As after `rm -r`: `avail` had it and no load found it, and `verify` was content."""
    tree = tmp_path / "a tree"
    monkeypatch.setenv("SIFMOD_PREFIX", str(tree))
    monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", "both")
    text = f"name: Tiny\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    easyconfig = str(write(tmp_path / "Tiny-1.yaml", text))
    assert run(["install", easyconfig, "--skip-sanity-check"]) == 0
    write(tree / "modules/Tiny/2.lua", "-- of staff\n")
    assert run(["verify"]) == 0
    (tree / gone).rename(tmp_path / "gone")
    out, _ = said(capfd)
    missing = f"  missing: {tree}/software/Tiny/1: expected its software, found nothing"
    assert out == ["Tiny/1: 1 fault", missing]
    assert run(["install", easyconfig, "--skip-sanity-check"]) == 0
    assert run(["verify"]) == 0
