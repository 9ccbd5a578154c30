"""What a module tool shows of a notice: its words, and nothing that steers a terminal; by Lua and by Tcl."""

import re
from pathlib import Path

import pytest

from loads import NAME
from plans import plan, publish
from support.module_tool import ModuleTool


def notice(prefix: Path, *lines: str) -> None:
    name, version = NAME.split("/")
    file = prefix / "life" / name / version
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())


def said(tool: ModuleTool, modules: Path) -> str:
    done = tool.run(f"module load {NAME}", modules)
    assert done.code != 0
    return done.stderr


def test_the_words_of_a_notice(module_tool: ModuleTool, tmp_path: Path) -> None:
    made = publish(plan(prefix=str(tmp_path / "pre fix")))
    prefix = tmp_path / "pre fix"
    notice(prefix, "1 refuse PyTorch geht im März: \x1b[31mred\x07\x7f end; see é\x9b2J\u202e\u2066\u200f\u061cx")
    text = said(module_tool, made.modules)
    assert "geht im März:" in text
    assert "see é" in " ".join(text.split())
    assert "nothing was changed" in " ".join(text.split())
    steering = ("\x1b[31m", "\x07", "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\u061c")
    assert [sign for sign in steering if sign in text] == []


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_notice_is_read_alike_in_every_locale(locale: str, module_tool: ModuleTool, tmp_path: Path) -> None:
    """Each sign is itself, or one other where the locale has it not: none is taken for several, and none is lost."""
    made = publish(plan(prefix=str(tmp_path / "tree")))
    notice(tmp_path / "tree", "1 refuse März → für Ärzte 😀 end")
    done = module_tool.run(f"module load {NAME}", made.modules, {"LC_ALL": locale})
    text = " ".join(done.stderr.split())
    assert re.search("M.rz . f.r .rzte .{1,2} end; nothing was changed", text), text
    assert ("März → für Ärzte 😀 end" in text) or locale == "C"


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (("1 refuse one", "2 say two"), False),  # the last one counts
        (("1 say one", "2 refuse two"), True),
        (("1 refuse one", "99999999999 say later"), True),  # but none whose time has not come
        (("99999999999 refuse later",), False),
        (("refuse none", "x refuse none"), False),
        (("1 other one",), False),
    ],
)
def test_which_line_counts(lines: tuple[str, ...], refused: bool, module_tool: ModuleTool, tmp_path: Path) -> None:
    made = publish(plan(prefix=str(tmp_path / "tree")))
    notice(tmp_path / "tree", *lines)
    loaded, unloaded = module_tool.session((f"module load {NAME}", f"module unload {NAME}"), made.modules)
    assert (loaded.code != 0, "SIF" in loaded.environment) == (refused, not refused)
    assert loaded.stderr == "" or refused  # and no terminal is here
    assert "SIF" not in unloaded.environment
