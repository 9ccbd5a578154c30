"""Lines of a requirements.txt: the same that pip's own parser reads."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from pip._internal.network.session import PipSession
from pip._internal.req.req_file import parse_requirements

from sifmod.errors import OptionError
from sifmod.image.packages import requirement_lines
from sifmod.image.packages.request import PackageRequest
from sifmod.image.packages.requirement_lines import read_lines
from sifmod.image.packages.requirements import parse_recipe_requests, parse_requests

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


A = "a" * 64
# of each option of a file: a line, and what of the request it decides
EFFECTS: dict[str, tuple[str, str, object]] = {
    "--index-url": ("-i https://i.test/", "words", ("--index-url=https://i.test/",)),
    "--pypi-url": ("--pypi-url https://i.test/", "words", ("--index-url=https://i.test/",)),
    "--extra-index-url": ("--extra-index-url=https://i.test/", "words", ("--extra-index-url=https://i.test/",)),
    "--find-links": ("-f {here}/wheels", "places", ("{here}/wheels",)),
    "--constraint": ("-c limits.txt", "constraints", ("b<2",)),
    "--requirement": ("-r more.txt", "requirements", ("c==1", "a==1")),
    "--editable": ("-e {here}/project", "editable", ("{here}/project",)),
    "--no-binary": ("--no-binary=x,y", "words", ("--no-binary=x", "--no-binary=y")),
    "--only-binary": ("--only-binary :all:", "words", ("--only-binary=:all:",)),
    "--no-index": ("--no-index", "words", ("--no-index",)),
    "--pre": ("--pre", "words", ("--prerelease=allow",)),
    "--hash": (f"d==1 --hash=sha256:{A}\n--require-hashes", "digests", (("d", (A,)),)),
    "--require-hashes": ("--require-hashes", "", "a==1 has no digest"),
    "--prefer-binary": ("--prefer-binary", "", "--only-binary NAME uses only wheels"),
    "--trusted-host": ("--trusted-host h", "", "set UV_INSECURE_HOST=HOST in the environment instead"),
    "--use-feature": ("--use-feature f", "", "it is an option of pip itself"),
    "--global-option": ("d==1 --global-option=x", "", "environment variables reach the build"),
    "--config-settings": ("d==1 -C x=y", "", "environment variables reach the build"),
    "--config-setting": ("d==1 --config-setting=x=y", "", "environment variables reach the build"),
}
NOT_IN_A_RECIPE = ("--editable", "--find-links", "--no-index", "--no-binary")


def test_each_option_of_a_file_is_here() -> None:
    texts = {name for _, name in requirement_lines._TEXTS}
    assert texts | {*requirement_lines._FLAGS} == EFFECTS.keys()


@pytest.mark.parametrize("recipe", [False, True])
@pytest.mark.parametrize("option", EFFECTS)
def test_each_option_of_a_file_has_its_effect_or_is_refused(tmp_path: Path, option: str, recipe: bool) -> None:
    """None is read and forgotten; a layer and a recipe read the same."""
    line, field, expected = EFFECTS[option]
    (tmp_path / "wheels").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project/pyproject.toml").write_text("[project]\nname = 'project'\nversion = '1'\n")
    (tmp_path / "limits.txt").write_text("b<2\n")
    (tmp_path / "more.txt").write_text("c==1\n")
    path = tmp_path / "wanted.txt"
    plain = "" if option == "--hash" else "a==1\n"
    path.write_text(f"{line.format(here=tmp_path)}\n{plain}")

    def read() -> PackageRequest:
        return parse_recipe_requests(path)[0] if recipe else parse_requests(files=(path,))

    if recipe and option in NOT_IN_A_RECIPE:
        with pytest.raises(OptionError, match=f"{option} is not supported"):
            read()
    elif not field:
        with pytest.raises(OptionError) as caught:
            read()
        assert str(expected) in f"{caught.value.message} {caught.value.hint}"
    else:
        values = expected if isinstance(expected, tuple) else ()
        wanted = tuple(one.format(here=tmp_path) if isinstance(one, str) else one for one in values)
        assert getattr(read(), field) == wanted
