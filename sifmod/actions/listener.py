"""A Listener: what is told what an action is doing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sifmod.image.artifact import Progress, no_progress

if TYPE_CHECKING:
    from sifmod.module.plan import Plan


@dataclass(frozen=True)
class Listener:
    """Whoever is told what is going on."""

    say: Callable[[str], None]
    progress: Progress = no_progress
    # asked before an image goes where the user has not said it may; the second finds out how large it is, in bytes
    may_fetch: "Callable[[Plan, Callable[[], int | None]], None]" = field(default=lambda plan, size: None)  # noqa: ARG005
    command: str = ""  # the command line that asks, for the log
    warned: set[str] = field(default_factory=set)

    def waiting(self, what: object) -> Callable[[str], None]:
        """Says who works on `what` while a lock is waited for."""
        return lambda who: self.say(f"waiting for {what}, which {who} is working on")

    def warn_once(self, about: str, text: str) -> None:
        """Say a warning, the first one about this."""
        if about not in self.warned:
            self.warned.add(about)
            self.say(f"warning: {text}")
