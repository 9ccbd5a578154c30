"""Pythons in many layouts: what sifmod says of each image beside what the Python in it says, and docs/pythons.md."""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

from sifmod.config.site import PROTECTED
from sifmod.errors import FetchError
from sifmod.image.artifact import Artifact
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.fetch import fetch_image
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.packages.base_python import read_base_python
from support.command import ROOT, run
from support.fetching import Prefix, plan
from support.images import Images
from support.pythons import LAYOUTS, Layout, sif
from support.recipes import contents, recipe
from support.runtime import RUNTIME
from support.wheels import wheel

PAGE = ROOT / "docs/pythons.md"
WANTED = ("extra", "helper==2.0", "native")
# what the Python itself says: as `pip list` does, and by imports
ASK = """
import importlib, importlib.metadata, importlib.util, json, os, sys
held = {}
for one in importlib.metadata.distributions():
    held.setdefault(one.metadata["Name"], one.version)
found = [name for name in ("extra", "helper", "native", "torch") if importlib.util.find_spec(name)]
versions = {name: importlib.import_module(name).__version__ for name in found}
place = os.path.dirname(os.path.dirname(sys.modules["extra"].__file__)) if "extra" in found else ""
print(json.dumps([f"{sys.prefix}, {sys.version_info[0]}.{sys.version_info[1]}", held, versions, place]))
"""


@dataclass(frozen=True)
class Row:
    """What one of the two says: of the image as it is, then of the one with WANTED; names with versions."""

    found: str
    held: str
    protected: str
    added: str
    imported: str


@dataclass(frozen=True)
class Trial:
    by_sifmod: Row
    by_itself: Row


@pytest.fixture(scope="module")
def tried(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Trial]]:
    """Tries each layout once."""
    made: dict[str, Trial] = {}
    top = tmp_path_factory.mktemp("pythons")
    wheels = top / "wheels"
    wheels.mkdir()
    for name, version in (("torch", "2.1"), ("helper", "2.0"), ("extra", "1.0")):
        wheel(wheels, name, version)
    for version, tag in (("1.0", "manylinux_2_28"), ("2.0", "musllinux_1_2")):
        native = wheel(wheels, "native", version)
        native.rename(wheels / f"native-{version}-cp311-abi3-{tag}_x86_64.whl")

    def try_(name: str) -> Trial:
        if name not in made:
            directory = top / str(list(LAYOUTS).index(name))
            directory.mkdir()
            with pytest.MonkeyPatch.context() as patch:
                places = {"FIND_LINKS": wheels, "CACHE_DIR": top / "uv", "NO_INDEX": "1"}
                for variable, value in places.items():
                    patch.setenv(f"UV_{variable}", str(value))
                made[name] = trial(LAYOUTS[name], sif(images, LAYOUTS[name], directory), Prefix(directory / "prefix"))
        return made[name]

    yield try_


def upon(prefix: Prefix, base: Path, layout: Layout, *pip: str) -> Artifact:
    with prefix.store() as store:
        return fetch_image(recipe(base, pip=pip, path=layout.path), plan().runtime, store)


def named(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) or "nothing"


def ask(image: Path, program: str) -> list[str | dict[str, str]]:
    """What a Python of the image says, with nothing of this machine."""
    options = ("--cleanenv", "--contain", "--no-home")
    said = run((RUNTIME.path, "exec", *options, image, program, "-B", "-c", ASK), env=dict(os.environ)).ok()
    answer: list[str | dict[str, str]] = json.loads(said.stdout)
    return answer


def trial(layout: Layout, base: Path, prefix: Prefix) -> Trial:
    before = prefix.state(base.parent)
    with pytest.raises(FetchError) as refused:
        upon(prefix, base, layout, "torch==2.1")
    assert prefix.state(base.parent) == before
    if not layout.program:
        assert "the base has no Python to add packages to" in str(refused.value)
        nothing = Row(*("none",) * 5)
        return Trial(nothing, nothing)
    assert "torch==2.1 is required; the image has torch 2.0, which stays" in str(refused.value)
    config = describe_sif(base).config
    with open_rootfs(base, read_sif(base)) as rootfs:
        read = read_base_python(rootfs, dict(config.environment), layout.path, "amd64", PROTECTED)
    python = read.python
    held = {one.name: one.version for one in python.distributions.values()}
    stays = {name: version for name, version in held.items() if python.is_protected_name(name)}

    own = upon(prefix, base, layout, *WANTED)
    new = contents(own.path)
    lock = new["/.singularity.d/build/1/pylock.toml"].decode()
    locked = dict(re.findall(r'^name = "(.+)"\nversion = "(.+)"', lock, re.MULTILINE))
    (added,) = {path.partition("/extra-1.0")[0] for path in new if "/extra-1.0.dist-info/" in path}
    by_sifmod = Row(f"{python.prefix}, {python.short}", named(held), named(stays), added, named({**locked, **stays}))
    found, versions, imported, _ = ask(base, layout.program)
    _, _, after, place = ask(own.path, layout.program)
    assert isinstance(found, str) and isinstance(versions, dict) and isinstance(imported, dict)
    assert isinstance(after, dict) and isinstance(place, str)
    kept = {name: after[name] for name in stays if imported[name] == after[name]}
    return Trial(by_sifmod, Row(found, named(versions), named(kept), place, named(after)))


@pytest.mark.parametrize("name", LAYOUTS)
def test_sifmod_and_the_python_itself_agree(tried: Callable[[str], Trial], name: str) -> None:
    layout, one = LAYOUTS[name], tried(name)
    assert one.by_sifmod == one.by_itself
    if layout.program:
        native = "2.0" if layout.wheels == "musllinux" else "1.0"
        assert one.by_itself.held == ", ".join(layout.held)
        assert one.by_itself.imported == f"extra 1.0, helper 2.0, native {native}, torch 2.0"


def table(tried: Callable[[str], Trial]) -> str:
    lines = ["| the image has | found | held | protected | added to | imported then |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join((name, *astuple(tried(name).by_sifmod)))} |" for name in LAYOUTS]
    return "\n".join(lines)


def test_the_page_has_this_table(tried: Callable[[str], Trial]) -> None:
    """To write it again: UPDATE_PAGES=1."""
    begin, end = "<!-- table -->\n\n", "\n\n<!-- end -->"
    text = PAGE.read_text()
    before, _, rest = text.partition(begin)
    old, _, after = rest.partition(end)
    if os.environ.get("UPDATE_PAGES"):
        PAGE.write_text(f"{before}{begin}{table(tried)}{end}{after}")
    else:
        assert old == table(tried)
