"""What every verb with the options of a site does with each: a value that cannot be is refused, and changes nothing."""

from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.disk_state import disk_state
from support.options import options_of_commands

# of each verb, words that it would do something with
WORDS = {
    "install": "Tiny-1.0.yaml", "fetch": "docker://127.0.0.1:9/x:1", "push": "Tiny oras://127.0.0.1:9/x:1",
    "export": "Tiny --to sif -o it.sif", "new": "docker://127.0.0.1:9/x:1", "import": "Tiny-1.0.eb",
    "stack apply": "stack.yaml", "stack bundle": "stack.yaml -o it.tar", "stack catalogue": "-o pages",
    "stack lock": "stack.yaml", "stack outdated": "stack.yaml", "stack plan": "stack.yaml",
    "lock": "Tiny-1.0.yaml", "show": "Tiny-1.0.yaml", "search": "tiny", "verify": "--modes", "check": "Tiny-1.0.yaml",
    "config show": "", "site show": "", "doctor": "",
    "outdated": "", "upgrade": "--all",
}  # fmt: skip
BAD = (
    ("--runtime", "nonsense", "--runtime: expected auto, apptainer, singularity or an absolute path, got 'nonsense'"),
    ("--image-dirs", "/a:/${NOWHERE}/x", "--image-dirs: the variable NOWHERE is empty or not set: /${NOWHERE}/x"),
    ("--site", "nowhere", "nowhere"),
    ("--accelerator", "mill", "'mill' is not one of 'auto', 'rocm', 'cuda', 'none'"),
    ("--module-syntax", "perl", "'perl' is not one of 'auto', 'lua', 'tcl', 'both'"),
    ("--robot-paths", "/${NOWHERE}/x", "--robot-paths: the variable NOWHERE is empty or not set: /${NOWHERE}/x"),
    ("--processors", "none", "--processors: "),
)


def options(verb: str) -> set[str]:
    return {spelling for words, spellings in options_of_commands() if " ".join(words) == verb for spelling in spellings}


def test_each_verb_with_options_of_the_site_is_here() -> None:
    assert {" ".join(words) for words, spellings in options_of_commands() if "--runtime" in spellings} == WORDS.keys()


@pytest.mark.parametrize("verb", WORDS)
def test_a_value_that_cannot_be(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "my work"
    write(work / "Tiny-1.0.yaml", "name: Tiny\nversion: '1.0'\nimage: {sources: [/none.sif]}\n")
    write(work / "Tiny-1.0.eb", "name = 'Tiny'\nversion = '1.0'\n")
    write(work / "stack.yaml", "easyconfigs: [Tiny-1.0.yaml]\n")
    monkeypatch.chdir(work)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    there = options(verb)
    before, seen = disk_state(tmp_path), 0
    for option, value, message in BAD:
        if option in there:
            assert run([*verb.split(), *WORDS[verb].split(), option, value]) == 2, (verb, option)
            out, err = capfd.readouterr()
            assert (out, message in err) == ("", True), (verb, option, err)
            seen += 1
    assert seen >= 5
    assert disk_state(tmp_path) == before
