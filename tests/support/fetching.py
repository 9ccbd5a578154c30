"""What every test of fetching needs: a prefix with its real store, and a plan that asks for one image."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sifmod.config.easyconfig import Conversion, SanityCheck
from sifmod.config.name import ModuleName
from sifmod.config.site import Link
from sifmod.image.artifact import Artifact, Progress, no_progress
from sifmod.image.fetch import fetch_image
from sifmod.image.inspect.rootfs import tree_digest
from sifmod.image.settings import DEFAULT, Settings
from sifmod.module.plan import Activation, BuildPlan, Help, ImagePlan, Plan
from sifmod.tree.layout import Layout
from sifmod.tree.locking import lock
from sifmod.tree.store import Store
from support.disk_state import State, disk_state
from support.runtime import RUNTIME


def plan(
    *sources: str | Path,
    build: Path | None = None,
    sha256: str | None = None,
    image_dirs: tuple[Path, ...] = (),
    link: Link = "copy",
    offline: bool = False,
) -> Plan:
    """A plan for an image from `sources`; nothing else in it matters to fetching."""
    image = ImagePlan(
        filename="tiny.sif",
        sources=tuple(str(source) for source in sources),
        image_dirs=tuple(str(directory) for directory in image_dirs),
        build=BuildPlan(definition=str(build)) if build else None,
        sha256=sha256,
        arch="amd64",
        link=link,
        offline=offline,
    )
    return replace(_ANY, image=image)


class Prefix:
    """A tree of its own, for fetching into, and the prefixes whose stores it looks into too."""

    def __init__(self, path: Path, *others: Path) -> None:
        self.others = others
        self.path = path
        self.layout = Layout(path)
        with self.store() as store:
            store.find("0" * 64)  # what a first use leaves behind is there before a test looks

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The real store, as `sifmod install` uses it."""
        with lock(self.layout, "Tiny/1.0", 30, print) as held:
            yield Store(self.layout, held, others=self.others)

    def fetch(self, wanted: Plan, progress: Progress = no_progress, settings: Settings = DEFAULT) -> Artifact:
        with self.store() as store:
            return fetch_image(wanted.required_image, wanted.runtime, store, progress, settings)

    def state(self, *others: Path) -> State:
        """Everything in the tree but the bookkeeping of locks, and everything in `others`."""
        state = disk_state(self.path, *others)
        return {path: found for path, found in state.items() if not Path(path).is_relative_to(self.layout.locks)}

    def images(self) -> list[str]:
        """The names of the stored images."""
        return sorted(path.name for path in self.layout.images.glob("*.sif"))


_ANY = Plan(
    module=ModuleName("Tiny", "1.0"),
    version="1.0",
    easyconfig="Tiny-1.0",
    prefix="/nowhere",
    syntaxes=("lua",),
    accelerator="none",
    gpu_flags=(),
    runtime=RUNTIME.plan,
    image=ImagePlan("tiny.sif", (), (), None, None, "amd64", "copy", False),
    activation=Activation("true", ""),
    binds=(),
    env=(),
    host_env=(),
    path=(),
    wrappers=(),
    runscripts=(),
    runscript_env=(),
    conflict=(),
    family=None,
    help=Help("", "", (), (), (), ""),
    sanity_check=SanityCheck(),
)


def conversion_of(made: Artifact) -> Conversion:
    """What `fetch` says to promise of it."""
    origin = made.origin
    fields = {"compression": origin.compression, "tools": dict(origin.tools), "tree": tree_digest(made.path)}
    return Conversion.model_validate(fields)
