"""Workers: processes that do the same for many things, each told to the one that waits for them.

Processes and not threads: half of an install is Python, and the umask is a process's. They are forked, so that what has
been read already needs no copy; so no thread may run when they start.
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
from sifmod.errors import BUG, SifmodError, with_code

_FORK = get_context("fork")
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SHARE = 20  # things that are done before a worker tells of them

Result = TypeVar("Result")


class Told(NamedTuple):
    """A worker says something about a task."""

    task: int
    text: str


class Progressed(NamedTuple):
    """A task has come so far: what, bytes done, bytes in all or None."""

    task: int
    what: str
    done: int
    total: int | None


class Finished(NamedTuple):
    """A task has come to its end, or failed."""

    task: int
    result: Any = None
    error: SifmodError | None = None


Event = Told | Progressed | Finished
Tell = Callable[[Told | Progressed], None]
Do = Callable[[int, Tell], object]  # raises SifmodError, OSError; its result goes through a pipe


def in_order(do: Callable[[int], Result], count: int, jobs: int) -> Iterator[Result]:
    """What `do` gives for 0, 1, … in that order, by so many processes.

    The first are done in this one, so that what is read for all is read once, and a few need no other process. An error
    that `do` raises comes here.
    """
    shares = [range(start, min(count, start + _SHARE)) for start in range(0, count, _SHARE)]
    yield from map(do, shares[0] if shares else ())
    with closing(Ahead(lambda number, _: [*map(do, shares[number + 1])], len(shares) - 1, jobs)) as ahead:
        for number in range(len(shares) - 1):
            yield from ahead.result(number)


class Ahead:
    """What is asked for one after the other, and done by so many processes before; `finished` was not asked for yet."""

    def __init__(self, do: Do, count: int, jobs: int) -> None:
        self.finished: dict[int, Finished] = {}
        self._told: dict[int, list[str]] = {}
        self._events = run_workers(do, deque(range(count)), jobs)

    def close(self) -> None:
        """Leave what has not been done as it was."""
        with suppress(KeyboardInterrupt, StopIteration):
            self._keep(self._events.throw(KeyboardInterrupt))
            while True:
                self._keep(next(self._events))

    def result(self, number: int, say: Callable[[str], None] = lambda _: None) -> Any:
        """What `do` gave for this one, which is waited for, or the error that it raised; `say` takes what it told."""
        while True:
            for text in self._told.pop(number, ()):
                say(text)
            if number in self.finished:
                break
            self._keep(next(self._events))
        finished = self.finished.pop(number)
        if finished.error:
            raise finished.error
        return finished.result

    def _keep(self, event: Event) -> None:
        if isinstance(event, Finished):
            self.finished[event.task] = event
        elif isinstance(event, Told):
            self._told.setdefault(event.task, []).append(event.text)


def run_workers(do: Do, tasks: deque[int], jobs: int) -> Generator[Event, None, None]:
    """Do each of the tasks, to which the caller may add, in so many processes, and give what they tell.

    A worker that dies fails its task, and another takes its place. At the end, or when the caller closes this, no
    worker is left: each is asked to end, so that it undoes what it has begun. After an interruption what they have
    finished by then is given, and then it is raised.
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
                    event = Finished(busy[connection], error=_died(workers.pop(connection)))
                if isinstance(event, Finished):
                    del busy[connection]
                yield event
    except (KeyboardInterrupt, SystemExit):
        yield from _end(workers)
        raise
    finally:
        _end(workers)


def reporter_in_worker(number: int, tell: Tell, command: str) -> Reporter:
    """It tells the parent what the task of this number would tell the user of `command`."""
    return Reporter(
        lambda text: tell(Told(number, text)),
        lambda what, done, total: tell(Progressed(number, what, done, total)),
        lambda about, question: None,  # noqa: ARG005
        command,
    )


def _start(do: Do, workers: dict[Connection, ForkProcess]) -> Connection:
    ours, theirs = Pipe()
    process = _FORK.Process(target=_work, args=(do, theirs, (ours, *workers)), daemon=True)
    # a signal that is told while Python's own hooks of a fork run is lost
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    workers[ours] = process
    return ours


def _work(do: Do, connection: Connection, others: tuple[Connection, ...]) -> None:
    """Take tasks until there are no more; a signal to end, or a parent that is gone, ends what is being done."""
    for other in others:  # of the parent: while one is open here, another worker does not see that the parent is gone
        other.close()
    gc.freeze()  # what the parent has decided is shared memory until the collector marks it
    # ^C reaches the whole group, and the parent then asks each worker to end
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    with suppress(EOFError, OSError):
        while True:
            connection.send(_done(do, connection.recv(), connection))


def _done(do: Do, task: int, connection: Connection) -> Finished:
    try:
        return Finished(task, do(task, connection.send))
    except SifmodError as error:
        return Finished(task, error=error)
    except OSError as error:
        return Finished(task, error=SifmodError(str(error)))
    except Exception:
        import traceback

        bug = with_code(traceback.format_exc(), "this is a bug in sifmod: please report it", BUG)
        return Finished(task, error=bug)


def _died(process: ForkProcess) -> SifmodError:
    process.join()
    number = -(process.exitcode or 0)
    why = f"by signal {signal.Signals(number).name}" if number > 0 else "before it was done"
    return SifmodError(f"its process was ended {why}", "repeat the command to go on where it stopped")


def _end(workers: dict[Connection, ForkProcess]) -> list[Event]:
    """End them all; gives what they have told and was not heard yet."""
    told: list[Event] = []
    for connection, process in workers.items():
        process.terminate()
        # a signal that comes while a destructor runs is lost: the end of what it reads ends the worker too
        with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_WR)
    while workers:
        connection, process = workers.popitem()
        process.join()
        with suppress(EOFError, OSError):
            while connection.poll():
                told.append(connection.recv())
        connection.close()
    return told
