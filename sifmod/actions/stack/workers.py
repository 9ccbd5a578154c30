"""Workers: processes that do the same for many things, each told to the one that waits for them.

Processes and not threads: half of an install is Python, and the umask is a process's. They are forked, so that what has
been decided already needs no copy; so no thread may run when they start.
"""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import NamedTuple, NoReturn

from sifmod.errors import SifmodError


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


def run_workers(do: Do, tasks: deque[int], jobs: int) -> Iterator[Event]:
    """Do each of the tasks, to which the caller may add, in so many processes, and give what they tell.

    A worker that dies fails its task, and another takes its place. At the end, or when the caller closes this, no
    worker is left: each is asked to end, so that it undoes what it has begun.
    """
    workers: dict[Connection, int] = {}  # their process ids
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


def _start(do: Do, workers: dict[Connection, int]) -> Connection:
    ours, theirs = Pipe()
    if (pid := os.fork()) == 0:
        ours.close()
        for other in workers:
            other.close()
        # ^C reaches the whole group, and the parent then asks each worker to end
        signal.signal(signal.SIGINT, lambda *_: None)
        _work(do, theirs)
    theirs.close()
    workers[ours] = pid
    return ours


def _work(do: Do, connection: Connection) -> NoReturn:
    """Take tasks until there are no more; a signal to end, or a parent that is gone, ends what is being done."""
    try:
        while True:
            task = connection.recv()
            connection.send(_done(do, task, connection))
    except (EOFError, OSError, SystemExit):
        os._exit(1)
    finally:
        os._exit(70)  # nothing that the parent would do at its end happens twice


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


def _died(pid: int) -> tuple[str, str, int]:
    _, status = os.waitpid(pid, 0)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    why = f"by signal {signal.Signals(number).name}" if number else "before it was done"
    return f"its process was ended {why}", "repeat the command to go on where it stopped", SifmodError.exit_code


def _end(workers: Mapping[Connection, int]) -> None:
    for connection, pid in workers.items():
        connection.close()
        os.kill(pid, signal.SIGTERM)
    for pid in workers.values():
        os.waitpid(pid, 0)
