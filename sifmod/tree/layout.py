"""Paths under a prefix, but for those of layers and of the records of stacks; nothing here reads the disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sifmod.config.kinds import Syntax, stub_path
from sifmod.config.name import ModuleName
from sifmod.errors import OptionError

RECEIPT = "receipt.json"
HISTORY = "history.json"
LOG = ".log"
LIFE = ".life.json"  # no version can have this name


def lock_file_name(name: str) -> str:
    """A lock's name as one path component."""
    return name.replace("/", "@")


class Chain(NamedTuple):
    """The directory of one lock's entries, and the directory above it below which no link is followed."""

    directory: Path
    top: Path


@dataclass(frozen=True)
class LockRoot:
    """A directory with locks."""

    prefix: Path

    @property
    def top(self) -> Path:
        """The directory below which no link is followed."""
        return self.prefix

    @property
    def locks(self) -> Path:
        """One directory per lock."""
        return self.prefix / ".locks"

    @property
    def staging(self) -> Path:
        """One directory per held lock, and those that dead runs have left."""
        return self.prefix / ".staging"

    def chain(self, name: str) -> Chain:
        """The place of the lock `name`."""
        return Chain(self.locks / lock_file_name(name), self.top)


@dataclass(frozen=True)
class Layout(LockRoot):
    """The paths of one tree, as docs/tree.svg draws it.

    Raises OptionError for a prefix that is `/`, is relative, or contains `,`, `:` or an unprintable character, which
    bind paths and PATH cannot quote.
    """

    def __post_init__(self) -> None:
        text = str(self.prefix)
        odd = sorted({letter for letter in text if letter in ",:" or not letter.isprintable()})
        if odd:
            raise OptionError(
                f"the prefix {text!r} contains {', '.join(map(repr, odd))}, which bind paths and PATH cannot express",
                "choose another directory with --prefix or SIFMOD_PREFIX",
            )
        if self.prefix == Path("/"):
            raise OptionError("the prefix cannot be /", "choose another directory with --prefix or SIFMOD_PREFIX")
        if not self.prefix.is_absolute():
            raise OptionError(f"the prefix {text!r} is not an absolute path")

    @property
    def modules(self) -> Path:
        """The directory for `module use`: stubs and modulerc files."""
        return self.prefix / "modules"

    @property
    def own(self) -> tuple[Path, ...]:
        """The directories in which everything is sifmod's. `rights.own_paths` finds the files of sifmod elsewhere."""
        below = (self.prefix / name for name in ("layers", "life", "stacks"))
        return (self.locks, self.logs, self.partials, *below)

    def module_file(self, module: ModuleName, syntax: Syntax) -> Path:
        """The stub of `module`: `<version>.lua` for Lmod, `<version>` for Environment Modules."""
        return Path(f"{self.prefix}/modules/{stub_path(module, syntax)}")

    @property
    def software(self) -> Path:
        """The directory of switches, by name and version, with the generations beside them."""
        return self.prefix / "software"

    def switch(self, module: ModuleName) -> Path:
        """The symlink to the live generation; the stable path for people."""
        return Path(f"{self.prefix}/software/{module}")

    def generations(self, module: ModuleName) -> Path:
        """The directory of all generations of `module`, and of its history."""
        return Path(f"{self.prefix}/software/{module.name}/.generations/{module.version}")

    def generation(self, module: ModuleName, number: int) -> Path:
        """The root of one generation: its path in this prefix, which no file of the generation names."""
        return Path(f"{self.prefix}/software/{module.name}/.generations/{module.version}/{number}")

    def history(self, module: ModuleName) -> Path:
        """The file with the history of live generations."""
        return Path(f"{self.prefix}/software/{module.name}/.generations/{module.version}/{HISTORY}")

    def user_software(self, module: ModuleName) -> Path:
        """The directory of the user's additions to `module`, which no install or removal changes."""
        return Path(f"{self.prefix}/user-software/{module}")

    @property
    def images(self) -> Path:
        return self.prefix / "images" / "sha256"

    def image(self, sha256: str) -> Path:
        return self.images / f"{sha256}.sif"

    def lives(self, name: str) -> Path:
        """The directory of the decisions about one name (`life`), and of its notices at load, one file per version."""
        return self.prefix / "life" / name

    def life(self, name: str) -> Path:
        """The file with the decisions of staff about the modules of one name; other files are derived from it."""
        return self.lives(name) / LIFE

    def inventory(self, sha256: str) -> Path:
        return self.images / f"{sha256}.inventory.json"

    @property
    def marks(self) -> Path:
        """The directory of marks: references of modules in other trees to images in the store."""
        return self.prefix / "images" / "marks"

    @property
    def logs(self) -> Path:
        """The logs of changes: a file for each module, and one for the store."""
        return self.prefix / "log"

    def log(self, module: ModuleName | None) -> Path:
        """The log of one module; for None that of the store."""
        return Path(f"{self.prefix}/log/modules/{module}{LOG}") if module else self.logs / f"store{LOG}"

    @property
    def partials(self) -> Path:
        """Incomplete downloads, one directory per reference."""
        return self.prefix / "images" / "partial"
