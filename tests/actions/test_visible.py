"""What is said after an install about seeing the module, with a real Lmod that keeps a spider cache."""

import os
from pathlib import Path

import pytest

from sifmod.actions.install.how_to_load import commands_to_load, stale_spider_cache
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live
from support.images import Images
from support.module_tool import ModuleTool


def installed(version: str, prefix: Path, images: Images) -> Installation:
    path = prefix.parent / f"Tiny-{version}.yaml"
    path.write_text(f"name: Tiny\nversion: '{version}'\nimage: {{sources: [{images.tiny_sif}]}}\n")
    assert run(["install", "-q", "--prefix", str(prefix), str(path)]) == 0
    found = live(Layout(prefix), ModuleName("Tiny", version))
    assert found is not None
    return found


def test_a_module_that_lmods_cache_hides_is_told(
    lmod: ModuleTool, shared_tmp: Path, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    prefix = shared_tmp / "tree"
    modules = prefix / "modules"
    first = installed("1.0", prefix, images)
    seen = lmod.run("module avail", modules, {"LMOD_SHORT_TIME": "0"})  # keeps a cache however fast it was
    assert "Tiny/1.0" in seen.stderr
    os.utime(modules / "Tiny" / "1.0.lua", (1, 1))
    environ = dict(seen.environment)
    assert environ["LMOD_VERSION"]
    assert stale_spider_cache(first, environ) is None

    second = installed("2.0", prefix, images)
    (cache,) = lmod.home.rglob("spiderT*.lua")
    past = cache.stat().st_mtime - 60
    for path in cache.parent.iterdir():
        os.utime(path, (past, past))
    assert "Tiny/2.0" not in lmod.run("module avail", modules, {"LMOD_SHORT_TIME": "0"}).stderr
    reason = stale_spider_cache(second, environ)
    assert reason is not None
    assert "--ignore_cache" in reason
    assert "Tiny/2.0" in lmod.run("module --ignore_cache avail", modules).stderr
    assert lmod.run("module load Tiny/2.0", modules).code == 0
    capfd.readouterr()


def test_a_cache_that_does_not_know_the_directory_hides_nothing(
    lmod: ModuleTool, shared_tmp: Path, images: Images
) -> None:
    other = shared_tmp / "other" / "Foo"
    other.mkdir(parents=True)
    (other / "1.lua").write_text("")
    environ = dict(lmod.run("module avail", other.parent, {"LMOD_SHORT_TIME": "0"}).environment)
    (cache,) = lmod.home.rglob("spiderT*.lua")
    installation = installed("1.0", shared_tmp / "tree", images)
    os.utime(cache, (cache.stat().st_mtime - 60,) * 2)
    assert stale_spider_cache(installation, environ) is None


def test_the_commands_are_fit_for_a_shell(lmod: ModuleTool, shared_tmp: Path, images: Images) -> None:
    installation = installed("1.0", shared_tmp / "it's a tree", images)
    step = lmod.run("\n".join(commands_to_load(installation, {})))
    assert (step.code, step.stderr) == (0, "")
    assert step.environment["SIFTINY"].startswith(f"{shared_tmp}/it's a tree/")
