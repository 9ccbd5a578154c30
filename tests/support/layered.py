"""A prefix with a module that has Python, and wheels to add to it."""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from support.command import SIFMOD, Result, run
from support.identity import sifmod
from support.images import Images
from support.runtime import RUNTIME
from support.wheels import wheel

NAME = "Python/3.11"
EASYCONFIG = """
name: Python
version: '3.11'
description: Python
{rest}
sanity_check: {{}}
image: {{sources: [{image}]}}
"""


PLAIN = """preset: pytorch
path+: [/opt/miniconda3/envs/pytorch/bin]
wrappers: [python, pip]
runscripts: []"""
# of a project, without anything else
BACKEND = """
import pathlib, zipfile

METADATA = "Metadata-Version: 2.1\\nName: edited\\nVersion: 0.1\\n"
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"


def build_editable(directory, settings=None, metadata=None):
    name = "edited-0.1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory, name), "w") as file:
        file.writestr("edited.pth", str(pathlib.Path.cwd()) + "\\n")
        file.writestr("edited-0.1.dist-info/METADATA", METADATA)
        file.writestr("edited-0.1.dist-info/WHEEL", WHEEL)
        file.writestr("edited-0.1.dist-info/RECORD", "")
    return name


build_wheel = build_editable
"""


@dataclass(frozen=True)
class Machine:
    """A prefix with a module, and a directory of wheels."""

    top: Path

    @property
    def prefix(self) -> Path:
        return self.top / "prefix"

    @property
    def wheels(self) -> Path:
        return self.top / "wheels"

    @property
    def commands(self) -> Path:
        return self.prefix / "software" / NAME / "bin"

    def env(self) -> dict[str, str]:
        names = ("HOME", "SIFMOD_CONFIG_DIR", "SIFMOD_RUNTIME", *RUNTIME.userns)
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **kept,
            "PATH": RUNTIME.search_path,
            "SIFMOD_PREFIX": str(self.prefix),
            "UV_CACHE_DIR": str(self.top / "uv"),
        }

    def sifmod(self, *words: str, env: dict[str, str] | None = None) -> Result:
        return sifmod(words, {**self.env(), **(env or {})}, self.top)

    def add(self, *words: str, env: dict[str, str] | None = None) -> Result:
        return self.sifmod("add", NAME, *words, "--no-index", "--find-links", str(self.wheels), env=env)

    def python(self, code: str, command: str = "python", env: dict[str, str] | None = None) -> Result:
        return run((self.commands / command, "-c", code), env={**self.env(), **(env or {})}, cwd=self.top)

    def install(self, image: Path, *words: str, rest: str = PLAIN) -> Result:
        easyconfig = self.top / "Python-3.11.yaml"
        easyconfig.write_text(EASYCONFIG.format(image=image, rest=rest))
        return self.sifmod("install", str(easyconfig), "--skip-sanity-check", "--module-syntax", "both", *words).ok()

    def live(self, layer: str = "default") -> Path:
        (found,) = (self.prefix / "layers" / NAME / layer).glob("*/live")
        return found

    def listing(self) -> tuple[str, ...]:
        """Every name in the prefix, but for locks."""
        return tuple(sorted(str(path) for path in self.prefix.rglob("*") if ".locks" not in path.parts))

    def killed(self, words: tuple[str, ...], seconds: float) -> None:
        """Start a command and kill it, and all that it has started in its session, after so many seconds."""
        process = subprocess.Popen(
            (*SIFMOD, *words), env=self.env(), cwd=self.top, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def make_machine(directory: Path, images: Images) -> Machine:
    """The module, and wheels of `demo`, which needs `helper`."""
    made = Machine(directory)
    made.wheels.mkdir(parents=True)
    wheel(made.wheels, "demo", "1.0", requires=("helper>=2",), scripts=("demo-says",))
    wheel(made.wheels, "helper", "1.0")
    wheel(made.wheels, "helper", "2.5")
    made.install(images.python_sif)
    return made


def old_or_new(machine: Machine, kills: int, seed: int) -> int:
    """Kill `add` and `remove` at random instants; gives how often the new layer was there after a kill.

    After each kill the layer is the old one or the new one, whole, and at the end the next command leaves no trace.
    """
    import random

    wheel(machine.wheels, "demo", "2.0")
    instants = random.Random(seed)
    show = "import demo, helper; print(demo.__version__, helper.__version__)"
    where = ("--no-index", "--find-links", str(machine.wheels))
    wheel(machine.wheels, "helper", "3.0")
    first, second = ("demo==1.0", "helper==2.5"), ("demo==2.0", "helper==3.0")
    machine.add(*first).ok()
    begin = time.monotonic()
    machine.add(*second).ok()
    lasts, old, count = time.monotonic() - begin, "2.0 3.0", 0
    for number in range(kills):
        words = (
            ("remove", NAME, "--all")
            if number % 4 == 3
            else ("add", NAME, *(first if old[0:1] != "1" else second), *where)
        )
        new = "" if words[0] == "remove" else "1.0 2.5" if old[0:1] != "1" else "2.0 3.0"
        machine.killed(words, instants.uniform(0, (1.0 if new == "" else 1.1) * lasts))
        result = machine.python(show)
        now = result.stdout.strip()
        assert now in (old, new), (number, words, old, result)
        count += now == new != old
        old = now
    machine.add(*first).ok()
    assert machine.python(show).ok().stdout == "1.0 2.5\n"
    remains = [one for one in machine.listing() if "/.staging/" in one]
    assert remains == []
    shutil.rmtree(machine.prefix / "layers")
    return count
