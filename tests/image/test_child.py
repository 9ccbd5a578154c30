"""A child process that never outlives us, nor do its own children, whatever ends us."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from sifmod.image import child
from sifmod.image.child import HEAVY, LATE, SERVER, Ended, Most, run_child, serving
from support.processes import marked, wait_until

DRIVER = """
import os, signal, sys
from pathlib import Path
from sifmod.image.child import SERVER, run_child, serving

def stop(number, frame):
    sys.exit(128 + number)

if sys.argv[1] == "handled":
    signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, signal.default_int_handler)
code = "sh -c 'sleep 98765; :' & sleep 98765; :"
command, where = ("/bin/sh", "-c", code), {"cwd": Path("/"), "env": {**os.environ, "MARK": sys.argv[2]}}
if sys.argv[3] == "run_child":
    run_child(command, **where)
else:
    with serving((sys.executable, "-I", "-c", SERVER), **where) as run:
        run(*command)
"""


def run(tmp_path: Path, *args: str, **env: str) -> tuple[int, str]:
    ended = run_child(args, cwd=tmp_path, env={"PATH": os.environ["PATH"], **env})
    return ended.code, ended.said.decode()


def test_the_exit_code_and_everything_said_come_back(tmp_path: Path) -> None:
    script = 'pwd; echo "$X" >&2; [ $# = 1 ] && echo "$1"; cat; exit 7'
    assert run(tmp_path, "/bin/sh", "-c", script, "sh", "a 'b\n$c", X="ü") == (7, f"{tmp_path}\nü\na 'b\n$c\n")
    assert run(tmp_path, "/bin/sh", "-c", "kill -9 $$")[0] == -signal.SIGKILL


@pytest.mark.parametrize("way", ["run_child", "serving"])
def test_a_flood_of_output_takes_little_memory(tmp_path: Path, way: str) -> None:
    code = "import os, time\nfor _ in range(200): os.write(2, bytes(1 << 20))\ntime.sleep(0.5)\n"
    code += "held = os.fstat(2).st_blocks * 512\nprint(f'end {held < 100 << 20}')"
    env = {"PATH": os.environ["PATH"]}
    if way == "run_child":
        ended = run_child((sys.executable, "-c", code), cwd=tmp_path, env=env)
    else:
        with serving((sys.executable, "-I", "-c", SERVER), cwd=tmp_path, env=env) as begin:
            ended = begin(sys.executable, "-c", code)
    assert (ended.code, ended.said[-10:]) == (0, b"\0end True\n")


@pytest.mark.parametrize("way", ["run_child", "serving"])
def test_one_that_takes_too_much_memory_is_ended(tmp_path: Path, way: str) -> None:
    codes = []
    for size in (1 << 20, 200 << 20):
        words = (
            sys.executable,
            "-c",
            f"import time; held = b'x' * {size}; time.sleep(0.5 if {size} < 2 << 20 else 99)",
        )
        if way == "run_child":
            ended = run_child(words, cwd=tmp_path, env={}, most=Most(memory=100 << 20))
        else:
            with serving((sys.executable, "-I", "-c", SERVER), cwd=tmp_path, env={}) as begin:
                ended = begin(*words, most=Most(memory=100 << 20))
        codes.append(ended.code)
    assert codes == [0, HEAVY]


def test_one_whose_time_is_over_is_ended_with_its_children(tmp_path: Path) -> None:
    script = "echo begun; sleep 600 & echo $! >pid; wait"
    ended = run_child(("/bin/sh", "-c", script), cwd=tmp_path, env={"PATH": os.environ["PATH"]}, limit=0.3)
    assert (ended.code, ended.lines) == (LATE, ("begun",))
    until = time.monotonic() + 5
    while (running := Path("/proc", (tmp_path / "pid").read_text().strip()).exists()) and time.monotonic() < until:
        time.sleep(0.02)
    assert not running


MANY = """
import os
for _ in range(4):
    if os.fork() == 0:
        for _ in range(2000):
            os.write(1, b"a line\\n")
        os._exit(0)
for _ in range(4):
    os.wait()
"""


def test_processes_that_write_at_once_lose_no_line(tmp_path: Path) -> None:
    ended = run_child((sys.executable, "-c", MANY), cwd=tmp_path, env=dict(os.environ), kept=1 << 20)
    assert ended.said == b"a line\n" * 8000


def test_only_the_last_is_kept(tmp_path: Path) -> None:
    ended = run_child(("/bin/sh", "-c", "echo one; echo two"), cwd=tmp_path, env={}, kept=4)
    assert (ended.code, ended.said) == (0, b"two\n")


def test_no_process_stays_behind(tmp_path: Path) -> None:
    assert run(tmp_path, "/bin/sh", "-c", "exit 0", MARK=str(tmp_path))[0] == 0
    wait_until(lambda: not marked(str(tmp_path)))


@pytest.mark.parametrize("program", ["/no/such/program", "/etc/passwd", ""])
def test_what_is_no_program_is_told(tmp_path: Path, program: str) -> None:
    with pytest.raises(FileNotFoundError):
        run(tmp_path, program)


def test_of_much_output_the_end_is_kept(tmp_path: Path) -> None:
    code, said = run(tmp_path, "/bin/sh", "-c", "head -c 9000000 /dev/zero | tr '\\0' x; echo; echo the end")
    assert (code, said[-9:], len(said)) == (0, "\nthe end\n", 1 << 16)


@pytest.mark.parametrize(
    ("number", "handler"),
    [
        (signal.SIGINT, "default"),
        (signal.SIGTERM, "handled"),
        (signal.SIGTERM, "default"),
        (signal.SIGKILL, "default"),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["run_child", "serving"])
def test_children_and_grandchildren_end_with_us(tmp_path: Path, number: signal.Signals, handler: str, way: str) -> None:
    mark = str(tmp_path)
    script = (sys.executable, "-c", DRIVER, handler, mark, way)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen(script, env=env, stderr=subprocess.DEVNULL)
    wait_until(lambda: sum("98765" in command for command in marked(mark)) >= 3)
    driver.send_signal(number)
    assert driver.wait() != 0
    wait_until(lambda: not marked(mark))


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        (b"", ()),
        (b"one\n\n  \ntwo  \n", ("one", "two")),
        (b"\x1b[31mred\x1b[0m \x1b[2K", ("red",)),
        (b"10 %\r20 %\r\n", ("10 %", "20 %")),
        (b"  a\tb\x00c\x07", ("  a b c",)),
        (b"\xff", ("\ufffd",)),
    ],
)
def test_what_it_said_is_fit_for_a_message(said: bytes, lines: tuple[str, ...]) -> None:
    assert Ended(0, said).lines == lines


def test_nothing_stays_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    run(tmp_path, "/bin/true")
    with pytest.raises(FileNotFoundError):
        run(tmp_path, "/no/such/program")
    with pytest.raises(FileNotFoundError):
        run(tmp_path / "none", "/bin/true")
    assert os.listdir("/proc/self/fd") == before


def test_it_is_a_group_of_its_own_with_an_empty_input(tmp_path: Path) -> None:
    _, said = run(tmp_path, "/bin/sh", "-c", "cat; cut -d' ' -f5 /proc/$$/stat; echo $$; readlink /proc/$$/fd/0")
    group, number, stdin = said.splitlines()
    assert group == number
    assert int(group) != os.getpgrp()
    assert stdin == "/dev/null"


class StopError(Exception):
    """What a handler of a signal raises."""


@pytest.fixture
def raising() -> Iterator[None]:
    def stop(number: int, _: object) -> None:
        raise StopError(number)

    before = signal.signal(signal.SIGUSR1, stop)
    yield
    signal.signal(signal.SIGUSR1, before)


def stopped(tmp_path: Path, script: str) -> None:
    """Run it, and be stopped when it has made the file `ready`, a while after Popen knows it."""

    def stop() -> None:
        wait_until((tmp_path / "ready").exists)
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(StopError):
        run(tmp_path, "/bin/sh", "-c", script, MARK=str(tmp_path))
    thread.join()


@pytest.mark.usefixtures("raising")
def test_it_is_asked_to_end_and_waited_for(tmp_path: Path) -> None:
    stopped(tmp_path, "trap 'echo bye >bye; exit' TERM; sleep 0.3; : >ready; while :; do sleep 0.01; done")
    assert (tmp_path / "bye").read_text() == "bye\n"
    wait_until(lambda: not marked(str(tmp_path)))


@pytest.mark.usefixtures("raising")
def test_who_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_PATIENCE", 0.05)
    stopped(tmp_path, "trap '' TERM; : >ready; while :; do sleep 0.01; done")
    wait_until(lambda: not marked(str(tmp_path)))


def test_what_it_leaves_running_is_ended_with_it_where_that_is_asked_for(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "MARK": f"left {tmp_path}"}
    command = ("/bin/sh", "-c", "sleep 98764 & exit 3")
    assert run_child(command, cwd=tmp_path, env=env, whole=True).code == 3
    wait_until(lambda: not marked(env["MARK"]))


def test_what_a_process_that_it_leaves_behind_writes_takes_no_memory(tmp_path: Path) -> None:
    mark, go = f"left {tmp_path}", tmp_path / "go"
    env = {"PATH": os.environ["PATH"], "MARK": mark}
    loop = f"while ! test -e '{go}'; do sleep 0.05; done; head -c 200M /dev/zero && touch '{go}ne'"
    assert run_child(("/bin/sh", "-c", f'setsid sh -c "{loop}" & exit 0'), cwd=tmp_path, env=env).code == 0
    assert marked(mark)
    go.touch()
    wait_until(lambda: not marked(mark))
    assert not (tmp_path / "gone").exists()


def server(directory: Path, before: str = "") -> AbstractContextManager[Callable[..., Ended]]:
    """A child that runs commands, after this of the shell."""
    args = ("/bin/sh", "-c", f'{before}\nexec "$@"', "sh", sys.executable, "-I", "-c", SERVER)
    return serving(args, cwd=directory, env={"PATH": os.environ["PATH"], "MARK": str(directory)})


def test_one_child_runs_many_commands(tmp_path: Path) -> None:
    """Each has its own exit code and output, an empty input, and no part in the conversation."""
    odd = "a 'b\n$c ü \udcff"
    with server(tmp_path) as run:
        code, lines = (
            (first := run("/bin/sh", "-c", "pwd; cat; readlink /proc/$$/fd/0; echo $PPID >&2; exit 7")).code,
            first.lines,
        )
        assert (code, lines[:2]) == (7, (str(tmp_path), "/dev/null"))
        said = run("", "-c", "import os, sys; print(os.getppid(), os.fsencode(sys.argv[1]))", odd).lines
        assert said == (f"{first.lines[2]} {os.fsencode(odd)!r}",)
        assert run("/bin/true") == Ended(0, b"")
        assert run("/bin/sh", "-c", "kill -9 $$").code == -signal.SIGKILL
        much = run("/bin/sh", "-c", "head -c 9000000 /dev/zero | tr '\\0' x; echo; echo the end").said
        assert (much[-9:], len(much)) == (b"\nthe end\n", 1 << 16)
        assert run("/bin/echo", "more") == Ended(0, b"more\n")
    wait_until(lambda: not marked(str(tmp_path)))


def test_what_is_said_before_the_first_command_belongs_to_it(tmp_path: Path) -> None:
    """An image's environment may print anything when its container starts."""
    with server(tmp_path, "echo 0; echo 1 >&2") as run:
        assert run("/bin/sh", "-c", "echo 2; exit 3") == Ended(3, b"0\n1\n2\n")
        assert run("/bin/echo", "3") == Ended(0, b"3\n")


def test_a_child_that_does_not_start_or_ends_early(tmp_path: Path) -> None:
    with server(tmp_path, "echo no; exit 5") as run:
        assert [run("/bin/true"), run("/bin/true")] == [Ended(5, b"no\n"), Ended(5, b"")]
    with server(tmp_path) as run:
        assert run("/bin/sh", "-c", "kill -9 $PPID").code == -signal.SIGKILL
        assert run("/bin/true").code == -signal.SIGKILL
    with server(tmp_path) as run:
        assert run("/no/such/program").code == 1
    with pytest.raises(FileNotFoundError), serving(("/no/such/program",), cwd=tmp_path, env={}):
        pass


def test_what_commands_leave_running_ends_with_the_child(tmp_path: Path) -> None:
    with server(tmp_path) as run:
        assert run("/bin/sh", "-c", "sleep 98763 &").code == 0
        assert marked(str(tmp_path))
    wait_until(lambda: not marked(str(tmp_path)))
    with pytest.raises(StopError), server(tmp_path) as run:
        assert run("/bin/sh", "-c", "sleep 98763 &").code == 0
        raise StopError
    wait_until(lambda: not marked(str(tmp_path)))


def test_a_server_leaves_nothing_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with server(tmp_path) as run:
        run("/bin/true")
    with pytest.raises(StopError), server(tmp_path):
        raise StopError
    with pytest.raises(FileNotFoundError), serving(("/no/such/program",), cwd=tmp_path, env={}):
        pass
    assert os.listdir("/proc/self/fd") == before


def test_a_server_that_never_answers_is_late(tmp_path: Path) -> None:
    with serving(("/bin/sh", "-c", "echo busy; sleep 1000"), cwd=tmp_path, env={}) as run:
        ended = run("", "-c", "pass", limit=0.5)
    assert (ended.code, ended.late, ended.lines) == (LATE, True, ("busy",))
