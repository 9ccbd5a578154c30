"""The installed command `sifmod`: starts it with its own modules, whatever PYTHONPATH holds.

A `sifmod.py` or `yaml.py` of the user's on PYTHONPATH goes before what is installed, and an installed program cannot
ask for `python -P` or `-I`. So the places of PYTHONPATH go behind all others here; where sifmod itself is installed in
one of them (EasyBuild does so) the order stays. Apart from the package, for that might be the wrong one.
"""
# ruff: noqa: PTH100, PTH120 (pathlib might be the user's too)

import os
import signal
import sys


def main() -> int:
    """Run the command line and return the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # while modules are imported ^C ends it without a traceback
    if places := os.environ.get("PYTHONPATH"):
        try:
            given = {
                os.path.abspath(place) for place in places.split(os.pathsep)
            }  # an empty one is the current directory
            if os.path.dirname(os.path.abspath(__file__)) not in given:
                sys.path.sort(key=lambda place: os.path.abspath(place) in given)
        except FileNotFoundError:
            pass  # the current directory has been removed, which the verbs tell
    from sifmod.__main__ import main as start

    return start()
