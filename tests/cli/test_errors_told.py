"""What goes wrong while a verb runs: its message, its hint and its exit code; and words that name no verb."""

import errno
import io
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from sifmod.actions.start import resolve
from sifmod.cli.main import run
from sifmod.cli.output import show_error
from sifmod.config.name import ModuleName
from sifmod.errors import BUG_REPORT, ModuleError
from support.answer import held
from support.config import write
from support.images import Images
from support.trial import Place, make_place

ELSEWHERE = "ask its owner for access, or choose a place of your own; --prefix or SIFMOD_PREFIX names the tree"
ROOM = "free some space, or choose another disk with --prefix or SIFMOD_PREFIX; `sifmod gc` shows what it can remove"
AGAIN = "fix this, then run the command again"
DISK = "the disk or its server has failed; repeat the command when it works again"


@pytest.fixture
def place(images: Images, tmp_path: Path) -> Place:
    return make_place(images, tmp_path)


def list_that_fails(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """`sifmod list` on a machine that gives this error when a directory is read."""

    def listdir(_path: object) -> list[str]:
        raise error

    monkeypatch.setattr(os, "listdir", listdir)
    return run(["list", "--prefix", "/no/prefix"])


@pytest.mark.parametrize(
    ("number", "name", "code", "said", "hint"),
    [
        (errno.EACCES, "/x", 25, "/x: Permission denied", ELSEWHERE),
        (errno.EPERM, "/x", 25, "/x: Operation not permitted", ELSEWHERE),
        (errno.EROFS, "/x", 25, "/x: Read-only file system", ELSEWHERE),
        (errno.ENOSPC, "/x", 18, "/x: No space left on device, nothing was published", ROOM),
        (errno.EDQUOT, "/x", 18, "/x: Disk quota exceeded, nothing was published", ROOM),
        (errno.EDQUOT, None, 18, "Disk quota exceeded, nothing was published", ROOM),
        (errno.EIO, "/x", 18, "/x: Input/output error", AGAIN),
        (errno.EIO, None, 18, "a file cannot be read or written: Input/output error", DISK),
        (errno.ESTALE, None, 18, "a file cannot be read or written: Stale file handle", DISK),
    ],
)
def test_an_error_of_the_machine(
    number: int,
    name: str | None,
    code: int,
    said: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert list_that_fails(OSError(number, os.strerror(number), name), monkeypatch) == code
    assert capfd.readouterr() == ("", f"error: {said}\n\nhint: {hint}\n")


def test_a_directory_that_is_gone_and_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The system names no file where it is the current directory that is gone."""
    for name, code, said, hint in (
        (None, 1, "the current directory has been removed", "go to another directory and repeat the command"),
        ("/x", 18, "/x: No such file or directory", AGAIN),
    ):
        error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

        def getcwd(error: OSError = error) -> str:
            raise error

        monkeypatch.setattr(os, "getcwd", getcwd)
        assert run(["list", "--prefix", "relative"]) == code
        assert capfd.readouterr().err == f"error: {said}\n\nhint: {hint}\n"


@pytest.mark.parametrize("error", [ValueError("odd"), OSError(errno.EBADF, os.strerror(errno.EBADF))])
def test_what_nobody_thought_of_is_a_bug(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert list_that_fails(error, monkeypatch) == 70
    said = capfd.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith(f"{type(error).__name__}: {error}\nerror: {BUG_REPORT}\n")


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert list_that_fails(MemoryError(), monkeypatch) == 18
    hint = "`ulimit -v` shows the limit, and a job has one of its own: raise it"
    assert capfd.readouterr().err == f"error: there is too little memory here\n\nhint: {hint}\n"


def test_a_path_that_is_no_text(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """Modulefiles name the easyconfig; the tree is as before."""
    odd = Path(os.fsdecode(os.fsencode(place.directory) + b"/q\xff"))
    (place.directory / "a").rename(odd)
    assert run(["install", str(odd / "Tiny-1.0.yaml"), "--prefix", str(place.prefix), "--skip-sanity-check"]) == 18
    said = capfd.readouterr().err
    assert "q\\udcff/Tiny-1.0.yaml' is not UTF-8, so sifmod cannot record it\n" in said
    assert said.endswith("hint: rename it, then run the command again\n")
    assert "Traceback" not in said
    assert not [*place.prefix.rglob("*.lua"), *place.prefix.glob(".staging/*")]


def test_an_interruption(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert list_that_fails(KeyboardInterrupt(), monkeypatch) == 130
    assert capfd.readouterr().err.strip() == "error: interrupted; repeat the command to continue where it stopped"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It unwinds what was begun, and the exit code says which signal it was."""
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with monkeypatch.context() as ended, pytest.raises(SystemExit) as caught:
            ended.setattr(os, "listdir", lambda _path: os.kill(os.getpid(), number))
            run(["list", "--json", "--prefix", "/no/prefix"])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert caught.value.code == 128 + number
    out, err = capfd.readouterr()
    assert held("list", out)["exit_code"] == 128 + number
    assert err == "error: terminated; repeat the command to continue where it stopped\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_that_may_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = "\x1b[31m\x1b[1merror:\x1b[0m it broke\n\n\x1b[36mhint:\x1b[0m mend it\n"
    plain = "error: it broke\n\nhint: mend it\n"
    for stream, variable, expected in (
        (Terminal(), "", coloured),
        (Terminal(), "1", plain),
        (io.StringIO(), "", plain),
    ):
        monkeypatch.setenv("NO_COLOR", variable)
        monkeypatch.setattr(sys, "stderr", stream)
        show_error("it broke", "mend it")
        show_error("no hint")
        assert stream.getvalue() == expected + expected.partition("it broke")[0] + "no hint\n"


def test_problems_of_a_configuration_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SIFMOD_CONFIG_DIR")
    file = write(tmp_path / "home/.config/sifmod/config.yaml", "lnk: copy\n")
    assert run(["config", "show"]) == 5
    one = f"{file}:1:1: lnk: unknown key; did you mean link?\n"
    assert capfd.readouterr().err.startswith(f"error: a problem in the configuration\n{one}")
    file.write_text("lnk: copy\numsk: '022'\n")
    assert run(["config", "show"]) == 5
    two = f"{file}:2:1: umsk: unknown key; did you mean umask?\n"
    assert capfd.readouterr().err.startswith(f"error: 2 problems in the configuration\n{one}{two}")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("instal", "there is no command `instal`\n\nhint: did you mean `sifmod install`?\n"),
        ("qqqq", "there is no command `qqqq`\n"),
        ("--qqqq", "No such option"),
    ],
)
def test_a_word_that_is_no_verb(word: str, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([word]) == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [("fetch --source x", ""), ("verify --yes", ""), ("install --dryrun", " Did you mean '--dry-run'?")],
)
def test_an_option_of_another_verb_is_no_slip(words: str, meant: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    assert capfd.readouterr().err.endswith(f"Error: No such option '{words.split()[1]}'.{meant}\n")


MODULES = [ModuleName("PyTorch", "2.2.0-rocm"), ModuleName("PyTorch", "2.2.0"), ModuleName("jax", "0.5")]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("jax", "jax/0.5"),
        ("jax-0", "jax/0.5"),
        ("jax/0.5", "jax/0.5"),
        ("jax-0.5.yaml", "jax/0.5"),
        ("PyTorch/2.2.0", "PyTorch/2.2.0"),
        ("PyTorch-2.2.0", "PyTorch/2.2.0"),
        ("PyTorch-2.2.0.yaml", "PyTorch/2.2.0"),
        ("PyTorch/2.2.0-r", "PyTorch/2.2.0-rocm"),
    ],
)
def test_a_name_is_a_module_or_the_beginning_of_one(name: str, found: str) -> None:
    assert str(resolve(name, MODULES)) == found


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "PyTorch/2.2.0", ""),  # two sides that are the same
        ("list", ""),
        ("layer", "list", ""),
        ("install", "", "--search"),
        ("stack", "lock", ""),
        ("stack", "catalogue", "--output", ""),  # wrote into the current directory
        ("add", "PyTorch/2.2.0", "x", "--dir", ""),  # added to the shared layers
        ("add", "PyTorch/2.2.0", "x", "--find-links", ""),
        ("jobscript", "PyTorch/2.2.0", "--output", ""),
        ("deprecate", "PyTorch/2.2.0", "--message", ""),
    ],
)
def test_an_empty_word_is_a_mistake(words: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`-o "$unset"` is not the same as no `-o`."""
    assert run([*words, "--prefix", str(tmp_path)]) == 2
    assert re.search("it is empty; expected a (value|path)", capfd.readouterr().err)


@pytest.mark.parametrize("name", ["", ".yaml"])
def test_an_empty_name_means_no_module_also_where_one_is_installed(name: str) -> None:
    """`sifmod uninstall --purge "$unset"`."""
    with pytest.raises(ModuleError, match="no module is called"):
        resolve(name, MODULES[:1])


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("Py", "`Py` can be any of\n  PyTorch/2.2.0\n  PyTorch/2.2.0-rocm", "give more of the name"),
        ("jx", "no module is called `jx`", "did you mean jax/0.5?"),
        (
            "pytorch/2.2.0",
            "no module is called `pytorch/2.2.0`",
            "did you mean PyTorch/2.2.0 or PyTorch/2.2.0-rocm?",
        ),
        ("0", "no module is called `0`", "`sifmod list` shows what is installed"),
    ],
)
def test_a_name_that_means_no_module(name: str, said: str, hint: str) -> None:
    with pytest.raises(ModuleError) as caught:
        resolve(name, MODULES)
    assert (caught.value.message, caught.value.hint) == (said, hint)
