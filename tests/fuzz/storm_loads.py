"""Loads in a loop, in a thread: what is live is loaded and unloaded again and again while others work on it."""

import itertools
import re
import threading
from pathlib import Path

from storm_round import Storm
from storm_verbs import STEADY

from support.command import User
from support.module_tool import ModuleTool, Step

# Lmod lists `.modulerc` files and then reads them: that of a name whose last version goes in between ends the load
GONE = re.compile(r"couldn't read file \S+/\.modulerc\W+no such file", re.ASCII)


class Loads:
    """A context manager; the storm's counts tell how many there were, its findings of those that failed."""

    def __init__(self, tool: ModuleTool, modules: Path, user: User, storm: Storm) -> None:
        self.tool, self._modules, self._user, self._storm = tool, modules, user, storm
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=f"loads in {tool.name}")

    def __enter__(self) -> "Loads":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _loop(self) -> None:
        for name in itertools.cycle(STEADY):
            if self._stop.is_set():
                return
            loaded, unloaded = self.tool.session(
                (f"module load {name}", f"module unload {name}"), self._modules, user=self._user
            )
            self._storm.counts[f"loads in {self.tool.name}"] += 1
            self._judge(loaded, "SIF" in loaded.environment)
            self._judge(unloaded, "SIF" not in unloaded.environment)

    def _judge(self, step: Step, right: bool) -> None:
        if GONE.search(step.stderr):
            self._storm.counts["loads that Lmod gave up: the last version of a name went"] += 1
        elif step.code or step.stderr or not right:
            told = f"exit code {step.code}: {step.stderr.strip()}"
            self._storm.findings.append(f"{step.args[0]} in {self.tool.name}: {told}")
