"""Which loaded module serves one that another depends on: by the beginning of its version, and by nothing less."""

from pathlib import Path

import pytest

from loads import NAME
from plans import plan, publish
from sifmod.config.name import ModuleName
from support.module_tool import ModuleTool


def other(prefix: str, name: str, version: str) -> None:
    publish(plan(prefix=prefix, module=ModuleName(name, version), version=version, host_env=(), env=()))


@pytest.mark.parametrize(
    ("there", "wanted", "loaded"),
    [
        ("Other/1.5", "Other/1", True),
        ("Other/1-x", "Other/1", True),
        ("Other/1", "Other/1", True),
        ("Other/10", "Other/1", False),  # which is another version, and Other/1 is nowhere
        ("Other.x/1", "Other", False),  # which is another name
        ("Others/1", "Other", False),
        ("Other/3", "Other", True),
    ],
)
def test_what_serves(there: str, wanted: str, loaded: bool, lmod: ModuleTool, tmp_path: Path) -> None:
    prefix = str(tmp_path / "pre fix")
    other(prefix, *there.split("/"))
    made = publish(plan(prefix=prefix, depends_on=(wanted,)))
    first, second, names = lmod.session(
        (f"module load {there}", f"module load {NAME}", "module -t list 2>&1"), made.modules
    )
    assert first.code == 0
    assert (second.code == 0) == loaded, second
    assert (NAME in names.stdout.split(), there in names.stdout.split()) == (loaded, True)
