"""When a module is not seen because of Lmod's cache of a user: by age, by place, and by what the cache knows."""

import os
import time
from pathlib import Path

import pytest

from sifmod.actions.install.how_to_load import commands_to_load, stale_spider_cache
from sifmod.tree.layout import Layout
from support.tree import install

HOUR = 3600


@pytest.mark.parametrize("folder", [".cache/lmod", ".lmod.d/.cache"])
@pytest.mark.parametrize(
    ("age", "modules", "knows", "tells"),
    [
        (2 * HOUR, (HOUR,), True, True),
        (2 * HOUR, (HOUR, 3 * HOUR), True, True),  # of two modulefiles the younger one
        (2 * HOUR, (3 * HOUR,), True, False),  # it was there already
        (2 * HOUR, (HOUR,), False, False),  # a directory that the cache does not know is read
        (25 * HOUR, (HOUR,), True, False),  # Lmod does not believe it any more
    ],
)
def test_a_cache_that_hides_a_module(
    folder: str, age: int, modules: tuple[int, ...], knows: bool, tells: bool, tmp_path: Path
) -> None:
    layout = Layout(tmp_path / "my tree")
    made = install(layout, "a", syntaxes=("lua", "tcl"))
    now = time.time()
    for stub, since in zip(made.stubs, (*modules, modules[-1]), strict=False):
        os.utime(layout.modules / stub.path, (now - since,) * 2)
    cache = tmp_path / folder / "spiderT.x86_64_Linux.lua"
    cache.parent.mkdir(parents=True)
    cache.write_text(f'["{layout.modules if knows else "/elsewhere"}"] = {{}}\n')
    os.utime(cache, (now - age,) * 2)
    environ = {"HOME": str(tmp_path), "LMOD_VERSION": "8.7"}
    said = stale_spider_cache(made, environ)
    assert (said is not None) == tells
    assert said is None or f"rm {cache}" in said
    assert stale_spider_cache(made, {"HOME": str(tmp_path)}) is None  # Environment Modules has none


@pytest.mark.parametrize("path", ["", "/other", "/other/modules:{}", "{}/deeper"])
def test_what_is_typed_to_load_it(path: str, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "my tree")
    made = install(layout, "a")
    found = commands_to_load(made, {"MODULEPATH": path.format(layout.modules)} if path else {})
    use = () if path.endswith(":{}") else (f"module use '{layout.modules}'",)
    assert found == (*use, "module load Tiny/1.0")
