"""Lines of a requirements.txt: the same that pip's own parser reads."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from pip._internal.network.session import PipSession
from pip._internal.req.req_file import parse_requirements

from sifmod.errors import OptionError
from sifmod.image.packages.requirement_lines import read_lines

PARTS = (
    *("a==1", "b [x] >=2 ; python_version > '3'", "-e ./here", "# only a comment", "c  # why", "d\\", "  \\", "", "\t"),
    *(
        "e==1 --hash=sha256:aa --hash sha256:bb",
        "-r more.txt",
        "--requirement=more.txt",
        "-c limits.txt",
        "-climits.txt",
    ),
    *("f @ https://example.org/f.whl#egg=f", "g${NAMED}h", "--hash=sha256:cc", "i ; 'x' == \"#\"", "j#k", "l #m \\"),
    *(
        "--index-url https://example.org/ --extra-index https://example.org/e",
        "-fplace",
        "-climits.txt",
        "--pre --no-index",
        "\u00e9x",
    ),
)

SESSION = PipSession()


def by_pip(path: Path) -> set[tuple[str, bool, bool, tuple[str, ...]]]:
    found = set()
    for one in parse_requirements(str(path), session=SESSION):
        options: dict[str, Any] = one.options or {}
        digests = tuple(sorted(f"{kind}:{value}" for kind, all_ in options.get("hashes", {}).items() for value in all_))
        found.add((one.requirement.strip(), one.is_editable, one.constraint, digests))
    return found


def by_us(path: Path) -> set[tuple[str, bool, bool, tuple[str, ...]]]:
    found = set()
    for line in read_lines(path):
        if line.problem:
            raise OptionError(line.problem)
        if line.requirement:
            found.add((line.requirement, False, line.constrains, tuple(sorted(line.values("--hash")))))
        for value in line.values("--editable"):
            found.add((value, True, line.constrains, ()))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_same_as_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """On files of random parts; what pip refuses is a problem here too."""
    monkeypatch.setitem(os.environ, "NAMED", "value")
    chosen = random.Random(seed)
    compared = 0
    for number in range(25):
        place = tmp_path / str(number)
        place.mkdir()
        own = [part for part in PARTS if not part.startswith(("-r", "--req", "-c"))]
        for name, parts in (("more.txt", own), ("limits.txt", own), ("all.txt", PARTS)):
            lines = chosen.choices(parts, k=chosen.randrange(1, 7))
            (place / name).write_text(chosen.choice(("\n", "\r\n")).join(lines) + chosen.choice(("", "\n")))
        try:
            expected = by_pip(place / "all.txt")
        except Exception:
            with pytest.raises(OptionError):
                by_us(place / "all.txt")
            continue
        compared += 1
        assert by_us(place / "all.txt") == expected, (place / "all.txt").read_text()
    assert compared > 5
