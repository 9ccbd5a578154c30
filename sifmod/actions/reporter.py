"""A Reporter: messages, progress and questions of a running action."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sifmod.image.artifact import Progress, no_progress
from sifmod.tree.layout import Layout
from sifmod.tree.locking import Tree

if TYPE_CHECKING:
    from sifmod.config.site import Site


@dataclass(frozen=True)
class Reporter:
    """Receives the messages, progress and questions of an action."""

    say: Callable[[str], None]
    progress: Progress = no_progress
    # shows the text, then asks; None without a terminal
    confirm: Callable[[str, str], bool | None] = field(default=lambda about, question: True)  # noqa: ARG005
    command: str = ""  # the command line, for the log
    warned: set[str] = field(default_factory=set)

    def waiting(self, what: object) -> Callable[[str], None]:
        """A function that reports, while waiting, who holds the lock on `what`."""
        return lambda who: self.say(f"waiting for {what}, which {who} is working on")

    def tree(self, site: "Site") -> Tree:
        """The tree of the site, which reports waits for locks here."""
        return Tree(Layout(site.prefix), site.lock_lease, self.waiting)

    def warn_once(self, about: str, text: str) -> None:
        """Report a warning, once per subject."""
        if about not in self.warned:
            self.warned.add(about)
            self.say(f"warning: {text}")
