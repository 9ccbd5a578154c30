"""Workers: processes that do the same for many things, each told to the one that waits for them.

Processes and not threads: half of an install is Python, and the umask is a process's. They are forked, so that what has
been decided already needs no copy; so no thread may run when they start.
"""

import gc
import signal
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import NamedTuple

from sifmod.errors import SifmodError

_FORK = get_context("fork")
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


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
    """A task has come to its end, or failed with a message, a hint and an exit code."""

    task: int
    result: object = None
    error: tuple[str, str, int] | None = None


Event = Told | Progressed | Finished
Tell = Callable[[Told | Progressed], None]
Do = Callable[[int, Tell], object]  # raises SifmodError, OSError; its result goes through a pipe


def run_workers(do: Do, tasks: deque[int], jobs: int) -> Generator[Event, None, None]:
    """Do each of the tasks, to which the caller may add, in so many processes, and give what they tell.

    A worker that dies fails its task, and another takes its place. At the end, or when the caller closes this, no
    worker is left: each is asked to end, so that it undoes what it has begun.
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
    finally:
        _end(workers)


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
        return Finished(task, error=(error.text, error.hint, error.exit_code))
    except OSError as error:
        return Finished(task, error=(str(error), "", SifmodError.exit_code))
    except Exception:
        import traceback

        return Finished(task, error=(traceback.format_exc(), "this is a bug in sifmod: please report it", 70))


def _died(process: ForkProcess) -> tuple[str, str, int]:
    process.join()
    number = -(process.exitcode or 0)
    why = f"by signal {signal.Signals(number).name}" if number > 0 else "before it was done"
    return f"its process was ended {why}", "repeat the command to go on where it stopped", SifmodError.exit_code


def _end(workers: Mapping[Connection, ForkProcess]) -> None:
    for process in workers.values():
        process.terminate()
    for connection, process in workers.items():
        process.join()
        connection.close()
