"""Where everything is under one prefix. Paths only; nothing in here looks at the disk."""

from dataclasses import dataclass
from pathlib import Path

from sifmod.config.kinds import Syntax, stub_path
from sifmod.config.name import ModuleName
from sifmod.errors import OptionError

RECEIPT = "receipt.json"
HISTORY = "history.json"
LOG = ".log"
LIFE = ".life.json"  # which no version can be called


@dataclass(frozen=True)
class Workplace:
    """A directory in which runs hold locks."""

    prefix: Path

    @property
    def locks(self) -> Path:
        """One directory per lock."""
        return self.prefix / ".locks"

    @property
    def staging(self) -> Path:
        """One directory per lock that is held; empty when no command is running."""
        return self.prefix / ".staging"


@dataclass(frozen=True)
class Layout(Workplace):
    """The paths of one tree, as docs/tree.svg draws it.

    Raises OptionError for a prefix that is not absolute or holds `,`, `:` or a control character: bind paths and
    PATH have no way to quote them.
    """

    def __post_init__(self) -> None:
        text = str(self.prefix)
        odd = sorted({letter for letter in text if letter in ",:" or not letter.isprintable()})
        if odd:
            raise OptionError(
                f"the prefix {text!r} holds {', '.join(map(repr, odd))}, which bind paths and PATH cannot express",
                "choose another directory with --prefix or SIFMOD_PREFIX",
            )
        if self.prefix == Path("/"):
            raise OptionError("the prefix cannot be /", "choose another directory with --prefix or SIFMOD_PREFIX")
        if not self.prefix.is_absolute():
            raise OptionError(f"the prefix {text!r} is not an absolute path")

    @property
    def modules(self) -> Path:
        """The directory for `module use`: stubs, and what the module systems read beside them."""
        return self.prefix / "modules"

    @property
    def own(self) -> tuple[Path, ...]:
        """The directories in which all is sifmod's. What else it writes, `rights.ours` finds by what it holds."""
        below = (self.prefix / name for name in ("layers", "life", "stacks"))
        return (self.locks, self.logs, self.partials, *below)

    def module_file(self, module: ModuleName, syntax: Syntax) -> Path:
        """The stub of `module`: `<version>.lua` for Lmod, `<version>` for Environment Modules."""
        return Path(f"{self.prefix}/modules/{stub_path(module, syntax)}")

    @property
    def software(self) -> Path:
        """Switches, by name and version, with the generations beside them."""
        return self.prefix / "software"

    def switch(self, module: ModuleName) -> Path:
        """The symlink to the live generation; the stable path for people."""
        return Path(f"{self.prefix}/software/{module}")

    def generations(self, module: ModuleName) -> Path:
        """The directory of all generations of `module`, and of its history."""
        return Path(f"{self.prefix}/software/{module.name}/.generations/{module.version}")

    def generation(self, module: ModuleName, number: int) -> Path:
        """The root of one generation: its path in this prefix, which no file in it names."""
        return Path(f"{self.prefix}/software/{module.name}/.generations/{module.version}/{number}")

    def history(self, module: ModuleName) -> Path:
        """Which generation was live since when."""
        return Path(f"{self.prefix}/software/{module.name}/.generations/{module.version}/{HISTORY}")

    def user_software(self, module: ModuleName) -> Path:
        """What the user adds to `module`; never touched, survives every reinstall."""
        return Path(f"{self.prefix}/user-software/{module}")

    @property
    def images(self) -> Path:
        return self.prefix / "images" / "sha256"

    def image(self, sha256: str) -> Path:
        return self.images / f"{sha256}.sif"

    def lives(self, name: str) -> Path:
        """What is said at the load of the modules of one name, a file for each that has something to say."""
        return self.prefix / "life" / name

    def life(self, name: str) -> Path:
        """What staff have decided about the modules of one name, of which all else about it is made."""
        return self.lives(name) / LIFE

    def inventory(self, sha256: str) -> Path:
        return self.images / f"{sha256}.inventory.json"

    @property
    def marks(self) -> Path:
        """What users' modules in other trees refer to of the store."""
        return self.prefix / "images" / "marks"

    @property
    def logs(self) -> Path:
        """What was changed in the tree, a file for each module, and one for the store."""
        return self.prefix / "log"

    def log(self, module: ModuleName | None) -> Path:
        """The file of one module; of the store for None."""
        return Path(f"{self.prefix}/log/modules/{module}{LOG}") if module else self.logs / f"store{LOG}"

    @property
    def partials(self) -> Path:
        """Downloads that are not complete, a directory for each reference."""
        return self.prefix / "images" / "partial"
