"""stack init: write a stack file for the installed modules."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from sifmod.actions.author.new_file import quoted
from sifmod.result import Described, Notes
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, installations

_KEYS = ("site", "accelerator", "source")  # install options that are keys of a stack entry


@dataclass(frozen=True)
class WrittenStack:
    """A stack file for the installed modules."""

    path: Annotated[Path | None, Described("the written file; null with -")]
    text: str
    notes: Notes


def stack_text(layout: Layout, name: str, directory: Path) -> tuple[str, tuple[str, ...]]:
    """The text of a stack file in `directory`, and notes on install options that it cannot express."""
    lines = [f"name: {name}", "easyconfigs:"]
    notes: list[str] = []
    for installation in installations(layout):
        lines += _entry(installation, directory)
        others = [option for option, _ in _options(installation) if option not in (*_KEYS, "variant")]
        if "link" in others:
            others.remove("link")
            value = dict(_options(installation))["link"]
            notes.append(
                f"{installation.module}: it was installed with --link; for `sifmod stack apply` set SIFMOD_LINK={value}"
            )
        if others:
            words = shlex.join(f"--{option}" for option in others)
            notes.append(f"{installation.module}: it was installed with {words}; pass that to `sifmod stack apply` too")
    return "\n".join((*lines, "")), tuple(notes)


def _entry(installation: Installation, directory: Path) -> list[str]:
    made = installation.provenance
    path = Path(made.easyconfig)
    word = made.asked.name or (str(path.relative_to(directory)) if path.is_relative_to(directory) else str(path))
    options = dict(_options(installation))
    lines = [f"  - easyconfig: {quoted(word, always=True)}"]
    if variant := options.get("variant"):
        lines.append(f"    variants: [{quoted(variant, always=True)}]")
    return lines + [f"    {key}: {quoted(options[key], always=True)}" for key in _KEYS if key in options]


def _options(installation: Installation) -> tuple[tuple[str, str], ...]:
    return tuple((option.removeprefix("--"), value) for option, value in installation.provenance.asked.options)
