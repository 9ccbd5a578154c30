"""Configuration files of a test's own: written from text, loaded with an environment that holds nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

from sifmod.config.load_easyconfig import LoadedEasyconfig, load_easyconfig
from sifmod.config.load_site import LoadedSite, load_site
from sifmod.errors import ConfigError


def write(path: Path, text: str) -> Path:
    """The file with this text, its indentation taken off, and the directories it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text).lstrip("\n"))
    return path


@dataclass
class Configuration:
    """A user's directories below `root`, without the machine's own settings, PATH or devices of another site."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        own = {"HOME": str(self.root / "home"), "SIFMOD_CONFIG_DIR": str(self.root / "etc"), "PATH": ""}
        return {**own, **self.variables}

    def site(self, **overrides: str) -> LoadedSite:
        return load_site(overrides, self.environ)

    def load(
        self, path: Path, variant: str | None = None, overrides: Mapping[str, str | tuple[str, ...]] | None = None
    ) -> LoadedEasyconfig:
        return load_easyconfig(path, self.site(site="generic"), variant, overrides or {}, self.environ)


def lines(error: ConfigError) -> list[str]:
    """The problems without the directory of their file."""
    return [f"{Path(problem.file).name}{str(problem).removeprefix(problem.file)}" for problem in error.problems]
