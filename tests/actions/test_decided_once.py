"""What decides an install is worked out once for each look at the disk: counted in real installs, by a trace."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from sifmod.cli.main import run
from sifmod.module import render
from support.config import write
from support.images import Images

SIFMOD = str(Path(render.__file__).parents[1])
COUNTED = ("render", "plan_digest", "image_request")  # the files, their digest, and what decides which image is fetched
ONCE, TWICE = dict.fromkeys(COUNTED, 1), dict.fromkeys(COUNTED, 2)


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """How often each function is entered within; a call that a cache answers is none."""
    calls: Counter[str] = Counter()

    def seen(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_name in COUNTED and frame.f_code.co_filename.startswith(SIFMOD):
            calls[frame.f_code.co_name] += 1

    sys.setprofile(seen)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def easyconfig(directory: Path, image: Path, more: str = "") -> str:
    text = f"name: Tiny\nversion: '1'\nimage: {{filename: image.sif, sources: ['{image}']}}\nwrappers: auto\n{more}"
    return str(write(directory / "Tiny-1.yaml", text))


def test_what_decides_is_worked_out_once(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    image = tmp_path / "image.sif"
    image.write_bytes(images.tiny_sif.read_bytes())
    words = ["install", easyconfig(tmp_path, image)]
    live = tmp_path / "tree" / "software" / "Tiny" / "1"
    changes = {
        "new": ("", 1, TWICE),
        "unchanged": ("", 1, {}),
        "a comment": ("# the same module\n", 1, ONCE),
        "a variable": ("env: {COLOUR: blue}\n", 2, TWICE),
        "another comment": ("env: {COLOUR: blue}  # the same again\n", 2, ONCE),
    }
    for name, (more, generation, most) in changes.items():
        easyconfig(tmp_path, image, more)
        with counting() as calls:
            assert run([*words, "--skip-sanity-check"]) == 0
        assert live.resolve().name == str(generation), name
        assert set(calls) == set(most), name
        assert all(calls[function] <= most[function] for function in most), (name, calls)
