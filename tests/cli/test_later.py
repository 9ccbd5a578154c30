"""Imports that take place at the first use."""

import os
import signal
import sys
from pathlib import Path

import pytest

from sifmod.cli.later import later
from support.config import write


def test_a_signal_during_an_import_leaves_no_half_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some modules take an exception at any line for a missing part."""
    write(tmp_path / "some/__init__.py", "")
    write(
        tmp_path / "some/part.py",
        f"import os\nBEGUN = True\ntry:\n    os.kill({os.getpid()}, {signal.SIGINT:d})\n    for _ in range(999): pass\n"
        "except KeyboardInterrupt:\n    pass\nWHOLE = True\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with later():
        from some import part  # type: ignore[import-not-found]
    assert "some" not in sys.modules
    with pytest.raises(KeyboardInterrupt):
        _ = part.BEGUN
    assert part.WHOLE
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
