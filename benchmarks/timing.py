"""Times commands against each other, in turn, as whole processes; prints medians and the median of the ratios."""

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timed:
    """Wall seconds of every run of one command."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def run_once(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Wall seconds of one run; a command that fails ends the benchmark."""
    start = time.perf_counter()
    result = subprocess.run(command, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    seconds = time.perf_counter() - start
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed ({result.returncode}):\n{result.stderr.decode(errors='replace')}")
    return seconds


def side_by_side(
    commands: Mapping[str, Sequence[str]], runs: int, environment: Mapping[str, str] | None = None
) -> dict[str, Timed]:
    """Run the commands in turn, A B C A B C …, after one warm-up of each."""
    environment = os.environ if environment is None else environment
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        run_once(command, environment)
    for _ in range(runs):
        for name, command in commands.items():
            seconds[name].append(run_once(command, environment))
    return {name: Timed(tuple(times)) for name, times in seconds.items()}


def ratio(timed: Timed, peer: Timed) -> float:
    """The median of the ratios, run by run."""
    return statistics.median(a / b for a, b in zip(timed.seconds, peer.seconds, strict=True))


def table(rows: Sequence[tuple[str, Timed]], peer: Timed, targets: Mapping[str, float]) -> str:
    """Lines of `what, median in ms, ratio to the peer, target`."""
    lines = [f"{'what':34} {'median ms':>10} {'ratio':>7} {'target':>7}"]
    for name, timed in rows:
        target = f"{targets[name]:7.2f}" if name in targets else ""
        lines.append(f"{name:34} {timed.median * 1000:10.1f} {ratio(timed, peer):7.2f} {target}")
    return "\n".join(lines)
