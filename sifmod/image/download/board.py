"""A Board: what the threads of one download tell each other."""

import threading


class Board:
    """`changed` guards everything that several threads use; `failure` is the first one, and ends them all."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    def fail(self, error: BaseException) -> None:
        """End everything with `error`, unless something else did."""
        with self.changed:
            if self.failure is None:
                self.failure = error
            self.stop()

    def stop(self) -> None:
        """End everything."""
        with self.changed:
            self.stopping.set()
            self.changed.notify_all()
