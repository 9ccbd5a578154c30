"""An install whose containers are counted, by a script in the place of the runtime."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from support.command import Result
from support.disk_state import State, disk_state
from support.identity import sifmod
from support.runtime import RUNTIME

COUNTING = """#!/bin/sh
case " $* " in *" exec "* | *" run "*) echo "$*" >>{log} ;; esac
exec {runtime} "$@"
"""
EASYCONFIG = """\
name: {name}
version: '1'
description: {description}
image: {{filename: image.sif, sources: ['{image}']}}
wrappers: [{wrappers}]
"""


@dataclass
class CountedMachine:
    """A prefix, a home, and a runtime that counts the containers that it starts."""

    top: Path
    image: Path
    env: dict[str, str] = field(default_factory=dict)
    text: int = 0

    def __post_init__(self) -> None:
        self.runtime = self.top / "runtime" / Path(RUNTIME.path).name
        self.runtime.parent.mkdir()
        self.runtime.write_text(COUNTING.format(log=self.log, runtime=RUNTIME.path))
        self.runtime.chmod(0o755)
        self.env = {"SIFMOD_PREFIX": str(self.prefix), "SIFMOD_RUNTIME": str(self.runtime), **self.env}

    @property
    def log(self) -> Path:
        return self.top / "started"

    @property
    def prefix(self) -> Path:
        return self.top / "tree"

    @property
    def cache(self) -> Path:
        return Path(os.environ["HOME"], ".cache", f"sifmod-checks-{os.geteuid()}")

    @property
    def answers(self) -> list[Path]:
        return sorted(path for path in self.cache.iterdir() if path.suffix != ".lock")

    @property
    def state(self) -> State:
        """What is in the prefix, without the numbers of its locks, which grow with each run."""
        return {path: what for path, what in disk_state(self.prefix).items() if "/.locks/" not in path}

    def write(self, name: str = "Tiny", wrappers: str = "sh", description: str = "a", more: str = "") -> Path:
        path = self.top / f"{name}-1.yaml"
        text = EASYCONFIG.format(name=name, wrappers=wrappers, description=description, image=self.image)
        path.write_text(text + more)
        return path

    @property
    def environment(self) -> dict[str, str]:
        """Without pytest's variable that has another value in a fixture, since a change of any is looked at again."""
        return {**{name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}, **self.env}

    def sifmod(self, *words: str | Path, **env: str) -> Result:
        return sifmod(words, {**self.environment, **env}, Path.cwd())

    def install(self, *words: str, **env: str) -> Result:
        return self.sifmod("install", self.top / "Tiny-1.yaml", *words, **env)

    def started(self) -> int:
        """How many containers were started since it was asked last."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return len(lines)

    def again(self, **changes: str) -> int:
        """How many containers start for a new generation of which another text alone has changed."""
        self.started()
        self.text += 1
        self.write(description=f"text {self.text}", **changes)
        self.install().ok()
        return self.started()
