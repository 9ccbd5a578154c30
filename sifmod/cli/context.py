"""The context of a command: the typed words, a reporter, and the facts of the site."""

import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from sifmod.actions.start import site_in_force
from sifmod.cli.output import ask, say, without_typed

if TYPE_CHECKING:
    from sifmod.actions.reporter import Reporter
    from sifmod.config.load_site import LoadedSite
    from sifmod.image.artifact import Progress


def typed() -> str:
    """The typed command line for the log, without passwords and signatures in sources."""
    from sifmod.config.redact import shown

    words = ["sifmod"]
    for word in click.get_current_context().obj.words:
        option, sign, value = word.partition("=")
        words.append(f"{option}={shown(value)}" if sign and option.startswith("--") else shown(word))
    return without_typed(shlex.join(words))


def reporter(speak: Callable[[str], None] = say, progress: "Progress | None" = None) -> "Reporter":
    """A reporter for an action; with a progress it asks questions, otherwise each is answered with yes."""
    from sifmod.actions.reporter import Reporter

    return Reporter(speak, progress, ask, typed()) if progress else Reporter(speak, command=typed())


def load_facts(settings: Mapping[str, str]) -> "LoadedSite":
    """The site for a command that needs no quirks: none are read, and an unreadable site file gives a warning."""
    loaded = site_in_force(settings)
    for problem in loaded.left_out:
        say(f"warning: {problem}")
    return loaded.without_quirks()
