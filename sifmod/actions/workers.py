"""Workers: processes that run one function on many tasks and report to the parent.

Processes, not threads: half of an install is Python code, and the umask belongs to the process. They are forked to
share what the parent has read, so no threads may run at that time.
"""

import gc
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, NamedTuple, TypeVar

from sifmod.actions.reporter import Reporter
from sifmod.errors import BUG, SifmodError, error_of, explained, with_code
from sifmod.secret import without_sent

_FORK = get_context("fork")
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SHARE = 20  # tasks that a worker does before it reports their results

Result = TypeVar("Result")


class TextEvent(NamedTuple):
    """A message of a worker about a task."""

    task: int
    text: str


class ProgressEvent(NamedTuple):
    """Progress of a task: what, bytes done, total bytes or None."""

    task: int
    what: str
    done: int
    total: int | None


class FinishedEvent(NamedTuple):
    """A task has finished or failed."""

    task: int
    result: Any = None
    error: SifmodError | None = None


Event = TextEvent | ProgressEvent | FinishedEvent
SendEvent = Callable[[TextEvent | ProgressEvent], None]
Do = Callable[[int, SendEvent], object]  # raises SifmodError, OSError; the result goes through a pipe


def in_order(do: Callable[[int], Result], count: int, jobs: int) -> Iterator[Result]:
    """Yield the results of `do` for 0, 1, … in order, computed by several processes.

    The first ones run in this process, so that shared inputs are read once and a few tasks need no other process.
    Errors of `do` are raised here.
    """
    shares = [range(start, min(count, start + _SHARE)) for start in range(0, count, _SHARE)]
    yield from map(do, shares[0] if shares else ())
    with closing(OrderedWorkers(lambda number, _: [*map(do, shares[number + 1])], len(shares) - 1, jobs)) as ahead:
        for number in range(len(shares) - 1):
            yield from ahead.result(number)


class OrderedWorkers:
    """Results that are requested in order, and computed ahead by several processes."""

    def __init__(self, do: Do, count: int, jobs: int) -> None:
        self.finished: dict[int, FinishedEvent] = {}
        self._texts: dict[int, list[str]] = {}
        self._events = run_workers(do, deque(range(count)), jobs)

    def close(self) -> None:
        """Stop; tasks that were not done stay undone."""
        with suppress(KeyboardInterrupt, StopIteration):
            self._keep(self._events.throw(KeyboardInterrupt))
            while True:
                self._keep(next(self._events))

    def result(self, number: int, say: Callable[[str], None] = lambda _: None) -> Any:
        """Wait for the result of this task, or raise its error; `say` gets its messages."""
        while True:
            for text in self._texts.pop(number, ()):
                say(text)
            if number in self.finished:
                break
            self._keep(next(self._events))
        finished = self.finished.pop(number)
        if finished.error:
            raise finished.error
        return finished.result

    def _keep(self, event: Event) -> None:
        if isinstance(event, FinishedEvent):
            self.finished[event.task] = event
        elif isinstance(event, TextEvent):
            self._texts.setdefault(event.task, []).append(event.text)


def run_workers(do: Do, tasks: deque[int], jobs: int) -> Generator[Event, None, None]:
    """Run all tasks, to which the caller may add, in several processes, and yield their events.

    If a worker dies, its task fails and a new worker starts. At the end, or when the caller closes this generator, each
    worker is asked to end and cleans up. After an interruption, finished results are yielded before it is raised.
    """
    workers: dict[Connection, ForkProcess] = {}
    busy: dict[Connection, int] = {}
    try:
        while tasks or busy:
            while tasks and len(busy) < jobs:
                idle = next((one for one in workers if one not in busy), None) or _start(do, workers)
                busy[idle] = tasks.popleft()
                idle.send(busy[idle])
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)  # noqa: S101 (for mypy: only these were given)
                try:
                    event: Event = connection.recv()
                except (EOFError, OSError):
                    connection.close()
                    event = FinishedEvent(busy[connection], error=_died(workers.pop(connection)))
                if isinstance(event, FinishedEvent):
                    del busy[connection]
                yield event
    except (KeyboardInterrupt, SystemExit):
        yield from _end(workers)
        raise
    finally:
        _end(workers)


def reporter_in_worker(number: int, tell: SendEvent, command: str) -> Reporter:
    """A reporter that sends the messages and progress of a task to the parent, and answers no question."""
    return Reporter(
        lambda text: tell(TextEvent(number, without_sent(text))),  # the parent does not know what was sent
        lambda what, done, total: tell(ProgressEvent(number, what, done, total)),
        lambda about, question: None,  # noqa: ARG005
        command,
    )


def _start(do: Do, workers: dict[Connection, ForkProcess]) -> Connection:
    ours, theirs = Pipe()
    process = _FORK.Process(target=_work, args=(do, theirs, (ours, *workers)), daemon=True)
    # a signal that arrives during Python's fork hooks is lost
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    workers[ours] = process
    return ours


def _work(do: Do, connection: Connection, others: tuple[Connection, ...]) -> None:
    """Run tasks until there are no more; a termination signal or the parent's death stops the current one."""
    for other in others:  # the parent's pipe ends: an open copy would hide the parent's death from other workers
        other.close()
    gc.freeze()  # the parent's objects are shared memory until the garbage collector touches them
    # ^C reaches the whole process group, and the parent then stops each worker
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    with suppress(EOFError, OSError):
        while True:
            connection.send(_done(do, connection.recv(), connection))


def _done(do: Do, task: int, connection: Connection) -> FinishedEvent:
    try:
        return FinishedEvent(task, do(task, connection.send))
    except (SifmodError, OSError) as error:
        return FinishedEvent(task, error=error_of(error))
    except Exception as error:
        import traceback

        bug = with_code(traceback.format_exc(), "this is a bug in sifmod: please report it", BUG)
        return FinishedEvent(task, error=explained(error) or bug)


def _died(process: ForkProcess) -> SifmodError:
    process.join()
    number = -(process.exitcode or 0)
    why = f"by signal {signal.Signals(number).name}" if number > 0 else "before it finished"
    return SifmodError(f"its process was ended {why}", "repeat the command to continue")


def _end(workers: dict[Connection, ForkProcess]) -> list[Event]:
    """Stop all workers; returns their unread events."""
    events: list[Event] = []
    for connection, process in workers.items():
        process.terminate()
        # a signal during a destructor is lost: the closed pipe ends the worker too
        with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_WR)
    while workers:
        connection, process = workers.popitem()
        process.join()
        with suppress(EOFError, OSError):
            while connection.poll():
                events.append(connection.recv())
        connection.close()
    return events
