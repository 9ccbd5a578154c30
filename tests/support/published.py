"""A layer on the disk, published as `add` does it; what is in it nobody imports."""

from pathlib import Path

from sifmod.config.name import ModuleName
from sifmod.tree.layer import Layer, Layers, publish_layer
from sifmod.tree.locking import lock

MODULE = ModuleName("PyTorch", "2.2.0")
IMAGE = "ab" * 32
LEASE = 30.0


def quiet(_text: str) -> None:
    """Nobody listens."""


def published(
    prefix: Path, number: int = 1, image: str = IMAGE, name: str = "default", module: ModuleName = MODULE
) -> Layer:
    layers = Layers(prefix / "layers", prefix)
    with lock(layers, str(module), LEASE, quiet) as held:
        directory = held.path("layer")
        (directory / "tree").mkdir(parents=True)
        (directory / "tree" / "file").write_bytes(b"12345")
        (directory / "pylock.toml").write_text("lock\n")
        made = Layer(
            words=(),
            constraints=(),
            digests=(),
            module=module,
            name=name,
            image=image,
            number=number,
            python="/opt",
            version="3.11",
            requirements=("demo",),
            editable=(),
            places=(),
            added=(),
            kept=(),
            packed=False,
        )
        return publish_layer(layers, made, directory, held)
