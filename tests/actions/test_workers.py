"""Workers: one that dies fails its task, and the others go on."""

import errno
import os
import signal
from collections import deque
from pathlib import Path

from sifmod.actions.workers import FinishedEvent, ProgressEvent, SendEvent, TextEvent, run_workers
from sifmod.errors import FetchError


def _do(task: int, tell: SendEvent) -> object:
    tell(TextEvent(task, "begun"))
    if task == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 3:
        raise FetchError("no network", "try again")
    if task == 4:
        raise ValueError("odd")
    if task == 7:
        raise OSError(errno.ENOSPC, "No space left on device", "/x")
    if task == 8:
        raise RuntimeError("can't start new thread")
    tell(ProgressEvent(task, "it", 1, 2))
    return task * 10


def test_a_worker_that_dies_fails_its_task_alone() -> None:
    tasks = deque(range(6))
    finished: dict[int, FinishedEvent] = {}
    for event in run_workers(_do, tasks, 2):
        if isinstance(event, FinishedEvent):
            finished[event.task] = event
            if event.task == 5:
                tasks += (6, 7, 8)  # what became possible by it
    assert {task: event.result for task, event in finished.items() if event.error is None} == {
        0: 0,
        1: 10,
        5: 50,
        6: 60,
    }
    died, failed, bug = (finished[task].error for task in (2, 3, 4))
    assert died
    assert (died.message, died.hint) == (
        "its process was ended by signal SIGKILL",
        "repeat the command to continue",
    )
    assert isinstance(failed, FetchError)
    assert (failed.message, failed.hint, failed.exit_code) == ("no network", "try again", 10)
    assert bug
    assert "ValueError: odd" in bug.message
    assert bug.exit_code == 70
    full, limited = (finished[task].error for task in (7, 8))
    assert full
    assert (full.message, full.exit_code) == ("/x: No space left on device, nothing was published", 18)
    assert limited
    assert limited.message == "no further process or thread may be started here"


FAILING = (
    (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied", 25),
    (OSError(errno.ENOSPC, "No space left on device", "/x"), "/x: No space left on device, nothing was published", 18),
    (RuntimeError("can't start new thread"), "no further process or thread may be started here", 18),
    (MemoryError(), "there is too little memory here", 18),
)


def _fail(task: int, tell: SendEvent) -> object:  # noqa: ARG001
    raise FAILING[task][0]


def test_an_error_of_the_machine_is_what_it_is_without_workers() -> None:
    found = {one.task: one.error for one in run_workers(_fail, deque(range(4)), 2) if isinstance(one, FinishedEvent)}
    assert [(error.message, error.exit_code) for _, error in sorted(found.items()) if error] == [
        (message, code) for _, message, code in FAILING
    ]


def _chatter(task: int, tell: SendEvent) -> object:
    while True:
        tell(TextEvent(task, "x"))


def test_a_caller_that_stops_leaves_no_worker() -> None:
    before = _children()
    events = run_workers(_chatter, deque(range(4)), 2)
    next(events)
    assert len(_children() - before) == 2
    events.close()
    assert not _children() - before


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_a_worker_that_has_lost_the_signal_ends_too() -> None:
    """As one does to which it comes while a destructor runs, where Python drops what the handler raises."""

    def deaf(task: int, tell: SendEvent) -> object:  # noqa: ARG001
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return task

    events = list(run_workers(deaf, deque((1, 2, 3)), 2))
    assert sorted(event.task for event in events if isinstance(event, FinishedEvent)) == [1, 2, 3]
