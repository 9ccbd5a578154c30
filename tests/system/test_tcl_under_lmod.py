"""What Lmod cannot read of a Tcl modulefile is refused by its name; the Lua one beside it loads."""

from pathlib import Path

import pytest

from loads import NAME, users
from plans import plan, publish
from support.module_tool import ModuleTool


@pytest.mark.parametrize(
    ("place", "env", "message"),
    [
        ('quo"ted', (("A", "1"),), "Lmod reads no Tcl modulefile below a path with quotes: "),
        (
            "tree",
            (("A", "b\\c"),),
            "Lmod reads no Tcl modulefile that sets SINGULARITYENV_A to a value with a backslash: ",
        ),
    ],
)
def test_what_lmod_cannot_read(
    place: str, env: tuple[tuple[str, str], ...], message: str, lmod: ModuleTool, tmp_path: Path
) -> None:
    for syntaxes, code in ((("tcl",), 1), (("tcl", "lua"), 0)):
        made = publish(plan(prefix=str(tmp_path / place), syntaxes=syntaxes, env=env))
        before, loaded = lmod.session(("true", f"module load {NAME}"), made.modules)
        assert loaded.code == code, loaded
        assert (message in " ".join(loaded.stderr.split())) == bool(code)
        assert (users(loaded) == users(before)) == bool(code)
