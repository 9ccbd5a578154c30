"""A wrapper whose command differs from its name: `wrappers: [{name: command line}]`."""

import subprocess
from pathlib import Path

import pytest

from plans import publish
from sifmod.config.easyconfig import Easyconfig
from sifmod.errors import ConfigError
from sifmod.imports.easybuild_commands import take_commands
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.plan import Wrapper
from support.config import Configuration, write

HEAD = "name: x\nversion: '1'\nimage: {sources: [x.sif]}\n"


def loaded(tmp_path: Path, wrappers: str) -> Easyconfig:
    return Configuration(tmp_path / "c").load(write(tmp_path / "x.yaml", f"{HEAD}wrappers: {wrappers}\n")).easyconfig


def test_the_command_line_is_split_as_a_shell_splits_it(tmp_path: Path) -> None:
    made = loaded(tmp_path, """[a, {b: "prog --flag 'two words' $HOME"}, {start-shell: /bin/zsh}, auto]""")
    assert (made.wrappers, made.wrappers_auto) == (("a", "b", "start-shell"), True)
    site = Configuration(tmp_path / "c").site(site="generic", prefix=str(tmp_path / "prefix")).site
    assert make_plan(made, site, Choices("x", site.link)).wrappers == (
        Wrapper("a", ("a",)),
        Wrapper("b", ("prog", "--flag", "two words", "$HOME")),
        Wrapper("start-shell", ("/bin/zsh",)),
    )


def test_the_wrapper_runs_the_command_inside_the_container(tmp_path: Path) -> None:
    """Inside, where a wrapper runs its command directly, with its words and the user's behind them."""
    made = loaded(tmp_path, """[{say: "printf '<%s>' 'two words' $HOME"}]""")
    site = Configuration(tmp_path / "c").site(site="generic", prefix=str(tmp_path / "prefix")).site
    published = publish(make_plan(made, site, Choices("x", site.link)))
    text = (published.root / "bin" / "say").read_text()
    assert text.splitlines()[-1] == "launch printf '<%s>' 'two words' '$HOME' \"$@\""
    subprocess.run(["sh", "-n", published.root / "bin" / "say"], check=True)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("{a: 1}", "expected 'a': COMMAND, with the command as text"),
        ("{a: null}", "expected 'a': COMMAND"),
        ("{a: ''}", "expected a command, perhaps with its first arguments"),
        ("{a: -x}", "expected a command, perhaps with its first arguments"),
        ('{a: "b \'c"}', "unclosed quotation mark, or a backslash at the end, in"),
        ('{a: "b\\nc"}', "is not allowed here"),
        ("{../a: b}", "cannot be used"),
        ("{apptainer: b}", "a wrapper cannot be named apptainer"),
        ("{a: b, c: d}", "expected text, got keys and values"),
    ],
)
def test_what_cannot_be_a_wrapper(item: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, f"[{item}]")
    assert "wrappers[0]: " in caught.value.message
    assert message in caught.value.message


@pytest.mark.parametrize("image", ["$SIF", '"$SIF"', "$SIFDEMO", '"$SIFDEMO"', "\\$SIF"])
@pytest.mark.parametrize("start", ["", "exec ", "  ", "\texec "])
def test_a_script_that_passes_its_arguments_on_is_a_wrapper(start: str, image: str) -> None:
    """Of EasyBuild's heredocs, with and without quotes at their beginning."""
    dollar = "\\$" if image.startswith("\\") else "$"
    body = f'#!/bin/bash\n{start}singularity exec {image} {dollar}EXEC_BIN "{dollar}@"\n'
    notes: list[str] = []
    made = take_commands((f"cat > %(installdir)s/bin/tool << EOF\n{body}EOF\n",), notes)
    assert (made.wrappers, notes) == (["tool"], [])


@pytest.mark.parametrize(
    "line", ["singularity exec $SIF tool", "echo singularity exec $SIF $X y", "exec tool $SIF $X y"]
)
def test_a_script_of_its_own_is_none(line: str) -> None:
    notes: list[str] = []
    made = take_commands((f"cat > %(installdir)s/bin/tool << 'EOF'\n#!/bin/bash\n{line}\nEOF\n",), notes)
    assert (made.wrappers, notes) == ([], ["bin/tool: a separate script, not imported"])
