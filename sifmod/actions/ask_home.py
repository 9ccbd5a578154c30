"""The question before a large image goes to a home directory that nobody chose as its place."""

from collections.abc import Callable
from pathlib import Path

from sifmod.actions.reporter import Reporter
from sifmod.config.site import Site
from sifmod.errors import OptionError, SifmodError
from sifmod.system import size_text

LARGE = 2 * 10**9  # bytes


def ask_home(what: str, site: Site, how_large: Callable[[], int | None], reporter: Reporter) -> None:
    """Ask before `what`, if it is large or of unknown size, goes to a home directory that was not chosen.

    `how_large` is asked for bytes only where that matters. Raises what it raises; OptionError where nobody can be
    asked, SifmodError where the answer is no.
    """
    if not site.prefix_is_default or not site.prefix.is_relative_to(Path.home()):
        return
    size = how_large()
    if size is not None and size <= LARGE:
        return
    large = f"{size_text(size)} large" if size else "of unknown size (most are 2 to 20 GB)"
    about = f"{what} is {large} and would go to {site.prefix}, in your home directory"
    choice = "choose a larger place with --prefix DIR or SIFMOD_PREFIX=DIR, or repeat the command with --yes"
    agreed = reporter.confirm(about, f"Fetch it into {site.prefix} all the same?")
    if agreed is None:
        raise OptionError(f"{about}, and there is no terminal to ask at; nothing was fetched", choice)
    if not agreed:
        raise SifmodError("nothing was fetched, as you chose", choice)
