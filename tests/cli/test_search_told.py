"""The command that a search ends with can be typed as it stands, and installs what was found."""

import shlex
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.images import Images


@pytest.fixture
def robot(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two directories, of which the first hides a file of the second; one module with two variants for no GPU."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    image = f"image: {{sources: ['{images.tiny_sif}']}}\n"
    top = tmp_path / "my easyconfigs"
    write(top / "one/Zebra-1.yaml", f"name: Zebra\nversion: '1'\ndescription: first\n{image}")
    write(top / "two/Zebra-1.yaml", f"name: Zebra\nversion: '1'\ndescription: second\n{image}")
    variants = (
        "variants: {a: {versionsuffix: -a, contents: {left: '1'}}, b: {versionsuffix: -b, contents: {right: '2'}}}\n"
    )
    write(top / "two/Zonkey/Zonkey-1.yaml", f"name: Zonkey\nversion: '1'\n{image}{variants}")
    monkeypatch.chdir(tmp_path)
    return top


@pytest.mark.parametrize(
    ("words", "rows", "example", "module"),
    [
        (("zebra",), 1, "Zebra-1", "Zebra/1"),  # the second is hidden
        (("zebra", "first"), 1, "Zebra-1", "Zebra/1"),
        (("zonkey", "right"), 1, "Zonkey-1 --variant b", "Zonkey/1-b"),
        (("zonkey", "left", "1"), 1, "Zonkey-1 --variant a", "Zonkey/1-a"),
    ],
)
def test_the_example_installs_what_was_found(
    words: tuple[str, ...], rows: int, example: str, module: str, robot: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = f"{robot}/one:{robot}/two"
    for given in ((), ("--site", "generic")):
        assert run(["search", *words, "--robot-paths", paths, *given]) == 0
        out, err = capfd.readouterr()
        assert len(out.splitlines()) == rows
        (line,) = (line for line in err.splitlines() if "for example: " in line)
        command = shlex.split(line.partition("for example: ")[2])
        wanted = [word.replace("{robot}", str(robot)) for word in example.split()]
        assert command == ["sifmod", "install", *wanted, *given, "--robot-paths", paths]
        assert run([*command[1:], "--skip-sanity-check", "-q"]) == 0
        assert run(["show", module]) == 0
        capfd.readouterr()


def test_of_several_variants_the_machine_takes_its_own(robot: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "zonkey", "--robot-paths", f"{robot}/two"]) == 0
    out, err = capfd.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["Zonkey/1-a", "Zonkey/1-b"]
    assert "--variant" not in err
