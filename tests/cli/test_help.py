"""`--help`: examples that can be typed, and options by what they are about; TAB offers what there is."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

from plans import plan, publish
from sifmod import errors
from sifmod.cli.command_help import ORDER
from sifmod.cli.commands import COMMANDS, TOPICS
from sifmod.cli.examples import EXAMPLES
from sifmod.cli.main import cli, run
from sifmod.config.name import ModuleName
from support.command import ROOT
from support.command import SIFMOD as CALLED
from support.terminal import shown

SIFMOD = ROOT / ".venv" / "bin" / "sifmod"


def verbs() -> list[str]:
    """Each verb as it is typed; those of two words too."""
    found = []
    with click.Context(cli) as context:
        for name in COMMANDS:
            command = cli.get_command(context, name)
            found += [name, *(f"{name} {inner}" for inner in getattr(command, "commands", ()))]
    return found


@pytest.mark.parametrize("verb", verbs())
def test_help_begins_with_two_examples(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*verb.split(), "--help"]) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"Usage: sifmod {verb} ")
    assert out.index("Examples:\n") < min(out.index(f"\n{title}:\n") for title in ORDER if f"\n{title}:\n" in out)
    assert len(EXAMPLES[verb]) >= 2
    assert all(f"  {command}" in out for command, _ in EXAMPLES[verb])
    assert max(map(len, out.splitlines())) <= 90


@pytest.mark.parametrize("example", [command for examples in EXAMPLES.values() for command, _ in examples])
def test_an_example_can_be_typed(example: str) -> None:
    found = shlex.split(example.removeprefix('eval "$(').removesuffix(')"'))
    program, verb, *left = found[: next((n for n, word in enumerate(found) if word in ("|", ">", ">>")), None)]
    with click.Context(cli) as context:
        command = cli.get_command(context, verb)
    if isinstance(command, click.Group):
        command = command.commands[left.pop(0)]
    assert program == "sifmod"
    assert command is not None
    command.make_context(verb, left)  # raises UsageError


def test_sifmod_alone_leads_to_three_commands(capfd: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    shown = capfd.readouterr().err.splitlines()
    at = shown.index("Start here:")
    assert [line.split()[0] for line in shown[at + 1 : at + 4]] == ["doctor", "search", "install"]
    tutorial = Path(sys.prefix, "share", "doc", "sifmod", "tutorial.md")
    assert (f"Ten minutes: {tutorial}" in shown) is tutorial.exists()


@pytest.mark.parametrize("words", [("--help",), ("install", "--help"), ("doctor", "--help")])
def test_help_on_a_narrow_terminal(words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """Lines are broken between words."""
    narrow = shown((*CALLED, *words), 60)[0]
    assert max(len(line) for line in narrow if "/" not in line) <= 60
    assert run([*words]) == 0
    typed = {word for line in capfd.readouterr().out.splitlines() for word in line.split()}
    assert {word for line in narrow for word in line.split()} == typed


def test_the_help_is_one_page_with_every_command(capfd: pytest.CaptureFixture[str]) -> None:
    pages = []
    for words in (["--help"], ["-h"], ["help"]):
        assert run(words) == 0
        pages.append(capfd.readouterr().out)
    assert pages == 3 * pages[:1]
    lines = pages[0].splitlines()
    assert len(lines) <= 50
    assert max(len(line) for line in lines if not line.startswith("Ten minutes: ")) <= 80
    listed = [name for topic in TOPICS for name, one in COMMANDS.items() if one.topic == topic]
    assert listed == list(COMMANDS)
    rows = [line[2:19].strip() for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert ", ".join(rows[1:]) == ", ".join(listed)
    assert all(f"\n{title}:\n" in pages[0] for title in TOPICS.values())


@pytest.mark.parametrize("verb", verbs())
def test_help_of_a_command_is_its_help(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*verb.split(), "--help"]) == 0
    expected = capfd.readouterr()
    assert run(["help", *verb.split()]) == 0
    assert capfd.readouterr() == expected


def test_the_help_of_add_says_what_prefix_chooses(capfd: pytest.CaptureFixture[str]) -> None:
    """Users took it for the place of the layer."""
    assert run(["add", "--help"]) == 0
    assert "--prefix only chooses MODULE's tree, unless you own it." in " ".join(capfd.readouterr().out.split())


@pytest.mark.parametrize("topic", TOPICS)
def test_help_of_a_topic_has_an_example_of_each_command(topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["help", topic]) == 0
    out = capfd.readouterr().out
    for verb in (verb for verb, one in COMMANDS.items() if one.topic == topic):
        assert f"\n  {verb}: {COMMANDS[verb].text}\n    {EXAMPLES[verb][0][0]}" in out


def test_help_of_exit_codes_has_those_that_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "exit-codes"]) == 0
    shown = {int(line.split()[0]) for line in capfd.readouterr().out.splitlines()}
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.SifmodError))
    assert {kind.exit_code for kind in kinds} <= shown


def test_help_of_what_is_no_command_suggests_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "rm"]) == 2
    assert "`sifmod uninstall MODULE` removes a module" in capfd.readouterr().err


def offered(line: str) -> list[str]:
    """What TAB offers at the end of a line; `file` and `dir` are for the shell to go on with."""
    *args, incomplete = line.split(" ")[1:]
    items = BashComplete(cli, {}, "sifmod", "_SIFMOD_COMPLETE").get_completions(args, incomplete)
    return [item.value if item.type == "plain" else item.type for item in items]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prefix with two modules, of which one is live; one's own easyconfig in the working directory."""
    prefix = tmp_path / "prefix"
    publish(plan(prefix=str(prefix)))
    publish(plan(prefix=str(prefix), module=ModuleName("PyTorch", "2.3.0")))
    (prefix / "software" / "PyTorch" / "2.3.0").unlink()
    (tmp_path / "Mine-1.yaml").write_text("extends: PyTorch-2.2.0.yaml\nvariants: {own: {}}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIFMOD_CONFIG_DIR")
    monkeypatch.setenv("SIFMOD_PREFIX", str(prefix))
    return prefix


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sifmod uninstall ", ["PyTorch/2.2.0-rocm-5.6.1"]),
        ("sifmod uninstall PyTorch/2.2.0-rocm-5.6.1 ", []),
        ("sifmod upgrade P", ["PyTorch/2.2.0-rocm-5.6.1"]),
        ("sifmod layer remove P", ["PyTorch/2.2.0-rocm-5.6.1"]),
        ("sifmod remove P", ["PyTorch/2.2.0-rocm-5.6.1"]),
        ("sifmod layer add P", ["PyTorch/2.2.0-rocm-5.6.1"]),
        ("sifmod lay", ["layer"]),
        ("sifmod layer s", ["sync"]),
        ("sifmod help ins", ["install"]),
        ("sifmod help rec", ["recipes"]),
        ("sifmod rollback P", ["PyTorch/2.2.0-rocm-5.6.1", "PyTorch/2.3.0"]),
        ("sifmod install M", ["Mine-1.yaml"]),
        ("sifmod install PyTorch-2.2.0.", ["PyTorch-2.2.0.yaml"]),
        ("sifmod install ./", ["file"]),
        ("sifmod lock M", ["Mine-1.yaml"]),
        ("sifmod stack catalogue M", ["Mine-1.yaml"]),
        ("sifmod show PyTorch/", ["PyTorch/2.2.0-rocm-5.6.1"]),
        ("sifmod install PyTorch-2.2.0.yaml --variant ", ["rocm", "cuda", "cpu"]),
        ("sifmod install Mine-1.yaml --variant ", ["own", "rocm", "cuda", "cpu"]),
        ("sifmod install --variant ", []),
        ("sifmod install --site lumi", ["lumi-c", "lumi-g"]),
        ("sifmod site show lumi-g", ["lumi-g"]),
        ("sifmod install --prefix ", ["dir"]),
        ("sifmod new -o ", ["file"]),
        ("sifmod install --accelerator r", ["rocm"]),
    ],
)
@pytest.mark.usefixtures("installed")
def test_tab_offers(line: str, expected: list[str]) -> None:
    assert offered(line) == expected


def test_tab_reads_settings_and_survives_broken_ones(own_home: Path, installed: Path) -> None:
    settings = own_home / ".config" / "sifmod" / "config.yaml"
    settings.parent.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SIFMOD_PREFIX")
        settings.write_text(f"prefix: {installed}\nrobot_paths: [{installed.parent}]\n")
        patch.chdir("/")
        assert offered("sifmod list ") == ["PyTorch/2.2.0-rocm-5.6.1"]
        assert offered("sifmod check M") == ["Mine-1.yaml"]
        (settings.parent / "sites").mkdir()
        (settings.parent / "sites" / "hill.yaml").write_text(f"name: hill\nrobot_paths: [{installed.parent}]\n")
        assert offered("sifmod check --site hill M") == ["Mine-1.yaml"]
        assert offered("sifmod install --site hi") == ["hill"]
        for paths, found in (("/, '/[d]ev'", ["Mine-1.yaml"]), ("/, /no/such", ["file"])):
            text = f"detect: {{paths: [{paths}]}}\nrobot_paths: [{installed.parent}]\n"
            (settings.parent / "sites" / "hill.yaml").write_text(text)
            settings.write_text(f"prefix: {installed}\n")
            assert offered("sifmod check M") == found
        (installed.parent / "Mine\n\u061c.yaml").touch()
        assert offered("sifmod check --site hill M") == ["Mine-1.yaml"]
        settings.write_text("prefix: [")
        assert offered("sifmod list ") == []


SHELLS = {
    "bash": 'COMP_WORDS=(sifmod uninstall Py); COMP_CWORD=2; _sifmod_completion sifmod; echo "${COMPREPLY[@]}"',
    "fish": "complete -C 'sifmod uninstall Py'",
    # what a key would do needs a terminal; the words come the same way
    "zsh": "env COMP_WORDS='sifmod uninstall Py' COMP_CWORD=2 _SIFMOD_COMPLETE=zsh_complete sifmod | sed -n 2p",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_in_a_shell(shell: str, installed: Path) -> None:
    load = "_SIFMOD_COMPLETE=fish_source sifmod | source" if shell == "fish" else f'eval "$(sifmod init {shell})"'
    start = "autoload -Uz compinit; compinit -D; " if shell == "zsh" else ""
    environment = {"PATH": f"{SIFMOD.parent}:/usr/bin:/bin", "HOME": str(installed), "SIFMOD_PREFIX": str(installed)}
    script = f"{start}{load}\n{SHELLS[shell]}"
    result = subprocess.run([shell, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr, result.returncode) == ("PyTorch/2.2.0-rocm-5.6.1\n", "", 0)


def test_tab_after_a_name_that_is_no_text(tmp_path: Path) -> None:
    """The shell goes on with it, and no error is written over the line."""
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "_SIFMOD_COMPLETE": "bash_complete"}
    for words, said in ((b"sifmod sbom \xff", b"file,?\n"), (b"sifmod list --prefix \xff", b"dir,?\n")):
        place = b"COMP_CWORD=%d" % words.count(b" ")
        command = (b"env", b"COMP_WORDS=" + words, place, os.fsencode(SIFMOD))
        result = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert (result.stdout, result.stderr, result.returncode) == (said, b"", 0)
