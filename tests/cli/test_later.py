"""Imports that take place at the first use."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from sifmod.cli.later import later
from support.config import write


def test_a_signal_during_an_import_leaves_no_half_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some modules take an exception at any line for a missing part.

    A thread that blocks no signal is there, as in a download: the kernel may give it the process's signal.
    """
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    write(tmp_path / "some/__init__.py", "")
    write(
        tmp_path / "some/part.py",
        f"import os, time\nBEGUN = True\ntry:\n    os.kill({os.getpid()}, {signal.SIGINT:d})\n    time.sleep(0.1)\n"
        "except KeyboardInterrupt:\n    pass\nWHOLE = True\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background job
    with later():
        from some import part  # type: ignore[import-not-found]
    assert "some" not in sys.modules
    try:
        with pytest.raises(KeyboardInterrupt):
            _ = part.BEGUN
        assert part.WHOLE
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, usual)
        end.set()
        other.join()
