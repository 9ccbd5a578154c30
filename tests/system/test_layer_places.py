"""Of several places with a layer the launcher, both kinds of modulefile and the verbs take the same one."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from loads import NAME, users
from plans import Published, plan, publish
from sifmod.actions.layer.places import searched
from sifmod.config.kinds import StaleLayer
from sifmod.module.plan import Bind, Runtime, Wrapper
from sifmod.module.scripts import NO_LAYER
from sifmod.tree.layout import Layout
from support.command import SIFMOD, run
from support.module_tool import ModuleTool
from support.user import OrdinaryUser

KEY = "0123456789abcdef"
SAYS = '#!/bin/sh\nprintf "%s\\n" "$SINGULARITY_BINDPATH" "$SINGULARITYENV_PYTHONPATH" "$SINGULARITYENV_PREPEND_PATH"\n'


@dataclass(frozen=True)
class Site:
    """A module with a Python, and directories below which layers may be."""

    top: Path
    published: Published

    @property
    def binds(self) -> str:
        """Those without a layer."""
        return f"{self.published.root}/runscripts:/runscripts:ro,/usr:/x"

    def make(self, place: str, layer: str = "default", key: str = KEY, packed: bool = True) -> Path:
        live = self.top / place / NAME / layer / key / "live"
        (live / "bin").mkdir(parents=True)
        (live / "pylock.toml").touch()
        if packed:
            (live / "layer.squashfs").touch()
        else:
            (live / "tree").mkdir()
        return live

    def variables(self, given: dict[str, str]) -> dict[str, str]:
        """With the directory in the place of each `@`, and a home."""
        return {"HOME": f"{self.top}/ho me", **{name: text.replace("@", str(self.top)) for name, text in given.items()}}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return made(tmp_path)


def made(tmp_path: Path, stale_layer: StaleLayer = "warn") -> Site:
    runtime = tmp_path / "apptainer"
    runtime.write_text(SAYS)
    runtime.chmod(0o755)
    published = publish(
        plan(
            prefix=str(tmp_path / "tree"), runtime=Runtime("apptainer", str(runtime)), binds=(Bind("/usr", "/x"),),
            env=(("PYTHONPATH", "/mod"),), wrappers=(Wrapper("python", ("python",)),), path=("/opt/bin",),
            stale_layer=stale_layer,
        ),
        generation=7,
    )  # fmt: skip
    (published.root / "share" / "image").write_text(f"{KEY}\n/usr/bin/apptainer\n")
    return Site(tmp_path, published)


Bound = Callable[[Site, dict[str, str]], tuple[list[str], str]]  # BINDPATH, PYTHONPATH, PREPEND_PATH; and what is said


def by_launcher(site: Site, variables: dict[str, str]) -> tuple[list[str], str]:
    """The binds, and what is said, of a wrapper."""
    ran = run((site.published.root / "bin/python",), env={"PATH": "/usr/bin:/bin", **variables}, cwd=site.top)
    return ran.stdout.splitlines(), ran.stderr


def by_tool(tool: ModuleTool) -> Bound:
    def loaded(site: Site, variables: dict[str, str]) -> tuple[list[str], str]:
        done = tool.run(f"cd '{site.top}'; module load {NAME}", site.published.modules, variables)
        names = ("SINGULARITY_BINDPATH", "SINGULARITYENV_PYTHONPATH", "SINGULARITYENV_PREPEND_PATH")
        return [done.environment.get(name, "") for name in names], " ".join(done.stderr.split())

    return loaded


ways = pytest.mark.parametrize("way", ["launcher", "lmod", "environment_modules", "tcl of lmod"])


@pytest.fixture
def bound(way: str, site: Site, lmod: ModuleTool, environment_modules: ModuleTool) -> Bound:
    """What the runtime is told by a wrapper, or in a shell that has loaded the module."""
    if way == "launcher":
        return by_launcher
    if way == "tcl of lmod":
        (site.published.modules / f"{NAME}.lua").unlink()
    return by_tool(environment_modules if way == "environment_modules" else lmod)


PLACES = (
    "co,mma", "one", "two", "own/layers", "easy build/sifmod/layers", "da ta/sifmod/layers", "rel/sifmod/layers",
    "ho me/.local/share/sifmod/layers", "ho me/easy/sifmod/layers", "tree/layers",
)  # fmt: skip
NAMED = {"SIFMOD_LAYERS": "rel/sifmod/layers:@/co,mma::@/one:@/two"}
OWN = {"SIFMOD_PREFIX": "@/own", "EBU_USER_PREFIX": "@/easy build", "XDG_DATA_HOME": "@/da ta"}


@ways
def test_the_first_place_counts(site: Site, bound: Bound) -> None:
    for place in PLACES:
        site.make(place)
    for given, place in (
        ({**NAMED, **OWN}, "one"),
        ({"SIFMOD_LAYERS": "@/two", **OWN}, "two"),
        (OWN, "own/layers"),
        ({**OWN, "SIFMOD_PREFIX": ""}, "easy build/sifmod/layers"),
        ({"EBU_USER_PREFIX": "~/easy", "XDG_DATA_HOME": "@/da ta"}, "ho me/easy/sifmod/layers"),
        ({"XDG_DATA_HOME": "@/da ta"}, "da ta/sifmod/layers"),
        ({"XDG_DATA_HOME": "rel", "EBU_USER_PREFIX": ""}, "ho me/.local/share/sifmod/layers"),
        ({}, "ho me/.local/share/sifmod/layers"),
        ({"HOME": "@/nowhere"}, "tree/layers"),
    ):
        variables = site.variables(given)
        layer = f"{site.top}/{place}/{NAME}/default/{KEY}/live/layer.squashfs:/user-layer:ro,image-src=/"
        assert bound(site, variables) == ([f"{site.binds},{layer}", *INSIDE], ""), given
        here = searched((Layout(site.top / "tree"),), variables)
        there = [one for one in here if "," not in str(one) and (one / NAME).exists()]
        assert there[0] == site.top / place


INSIDE = ["/user-layer/start:/mod:/runscripts/.pip", "/user-layer/bin:/opt/bin"]
NONE = ["/mod:/runscripts/.pip", "/opt/bin"]


@ways
def test_which_layer(site: Site, bound: Bound) -> None:
    """By its name and the image; one that is not packed is bound as a directory; an empty name asks for none."""
    site.make("one", "stale", key="f" * 16)
    site.make("co,mma", "default", key="f" * 16)
    site.make("one", "twice", key="f" * 16)
    for place, layer in (("one", "default"), ("two", "other"), ("two", "twice")):
        os.mkfifo(site.make(place, layer, packed=False) / "layer.squashfs")  # a runtime would wait for its other end
    named = {"SIFMOD_LAYERS": "@/co,mma:@/one:@/two"}
    for layer, place in (("default", "one"), ("other", "two"), ("twice", "two")):
        variables = site.variables({**named, "SIFMOD_LAYER": layer})
        live = f"{site.top}/{place}/{NAME}/{layer}/{KEY}/live/tree:/user-layer:ro"
        assert bound(site, variables) == ([f"{site.binds},{live}", *INSIDE], ""), layer
    for given in ({**named, "SIFMOD_LAYER": ""}, {"SIFMOD_LAYERS": "@/co,mma"}):
        assert bound(site, site.variables(given)) == ([site.binds, *NONE], "")
    found, said = bound(site, site.variables({**named, "SIFMOD_LAYER": "stale"}))
    assert "the layer stale was made for another image" in said
    assert f"`sifmod add {NAME} --onto {NAME} --layer stale` makes it for this one" in said
    assert found in ([], ["", "", ""])  # it was asked for, and is not there


@ways
@pytest.mark.parametrize("wish", ["", "warn", "quiet", "refuse"])
def test_a_layer_for_another_image(site: Site, bound: Bound, wish: str) -> None:
    """What is left out is said, with a command that brings it back; or not, or refused, as its user wishes."""
    site.make("one", key="f" * 16)
    variables = site.variables({"SIFMOD_LAYERS": "@/one", "SIFMOD_STALE_LAYER": wish})
    found, said = bound(site, variables)
    assert found in ([], ["", "", ""]) if wish == "refuse" else found == [site.binds, *NONE]
    again = f"`sifmod add {NAME} --onto {NAME}` makes it for this one"
    assert (again in said) == (wish != "quiet")
    assert ("the layer default was made for another image, and is not used; " in said) == (wish in ("", "warn"))


@pytest.mark.parametrize("way", ["launcher", "lmod", "environment_modules"])
@pytest.mark.parametrize(
    ("says", "wish", "becomes"),
    [
        ("refuse", None, "refuse"), ("refuse", "", "refuse"), ("refuse", "warn", "warn"), ("refuse", "quiet", "quiet"),
        ("quiet", None, "quiet"), ("quiet", "refuse", "refuse"), ("warn", "Refuse", "unknown"),
    ],
)  # fmt: skip
def test_the_site_says_what_becomes_of_a_layer_for_another_image(
    tmp_path: Path,
    lmod: ModuleTool,
    environment_modules: ModuleTool,
    way: str,
    says: StaleLayer,
    wish: str | None,
    becomes: str,
) -> None:
    """Unless the user's variable does, whose other words are refused. A layer that is named is an error in any case."""
    site = made(tmp_path, says)
    look = by_launcher if way == "launcher" else by_tool(lmod if way == "lmod" else environment_modules)
    site.make("one", key="f" * 16)
    given = {"SIFMOD_LAYERS": "@/one", **({} if wish is None else {"SIFMOD_STALE_LAYER": wish})}
    for named in (False, True):
        found, said = look(site, site.variables({**given, **({"SIFMOD_LAYER": "default"} if named else {})}))
        fails = named or becomes in ("refuse", "unknown")
        assert found in ([], ["", "", ""]) if fails else found == [site.binds, *NONE], said
        assert ("made for another image" in said) == (becomes == "warn" or (fails and becomes != "unknown")), said
        assert ("expected warn, quiet or refuse" in said) == (becomes == "unknown")


@pytest.mark.parametrize("tool", ["lmod", "environment_modules"])
def test_a_command_says_it_where_no_load_has(
    tool: str, site: Site, lmod: ModuleTool, environment_modules: ModuleTool
) -> None:
    """And only the first process of a run."""
    site.make("one", key="f" * 16)
    given = site.variables({"SIFMOD_LAYERS": "@/one"})
    for more, says in (
        ({}, True),
        ({"SLURM_PROCID": "0"}, True),
        ({"SLURM_PROCID": "3"}, False),
        ({"OMPI_COMM_WORLD_RANK": "10"}, False),
        ({"PMI_RANK": "1"}, False),
        ({"RANK": "2"}, False),
        ({f"_SIFMOD_GENERATION_{NAME.split('/')[0]}": str(site.published.root)}, False),
        ({f"_SIFMOD_GENERATION_{NAME.split('/')[0]}": "/another/generation"}, True),
    ):
        assert ("another image" in by_launcher(site, {**given, **more})[1]) == says, more
    chosen = environment_modules if tool == "environment_modules" else lmod
    python = site.published.root / "bin/python"
    steps = (f"module load {NAME} 2>&1", "python 2>&1", f"'{python}' 2>&1")
    done = chosen.session(steps, site.published.modules, given)
    assert ["another image" in step.stdout for step in done] == [True, False, False]


@pytest.mark.parametrize("closed", ["lay", f"lay/{NAME}/default"])
def test_a_layer_that_the_user_names_and_cannot_reach_is_an_error(
    shared_tmp: Path, ordinary_user: OrdinaryUser, lmod: ModuleTool, environment_modules: ModuleTool, closed: str
) -> None:
    """Another package of the same name, or none, would be used without a word."""
    site = made(shared_tmp)
    site.make("lay")
    Path(site.published.root / "share/image").chmod(0o644)
    given = site.variables({"SIFMOD_LAYERS": f"rel::@/nowhere:{shared_tmp}/lay"})
    place, way, says = shared_tmp / closed, (site.published.root / "bin/python",), "names, is closed to you"
    assert says not in ordinary_user.run(way, {**given}, shared_tmp).stderr
    place.chmod(0o700)
    os.chown(place, 0, 0)
    refused = ordinary_user.run(way, {**given}, shared_tmp)
    assert (refused.code, refused.stdout) == (25, "")
    assert f"{shared_tmp}/lay, which SIFMOD_LAYERS {says}" in refused.stderr
    for tool in (lmod, environment_modules):
        for script in (f"module load {NAME}", f"module --force load {NAME}; module list"):
            loaded = tool.run(script, site.published.modules, given, ordinary_user.user)
            assert f"{shared_tmp}/lay, which SIFMOD_LAYERS {says}" in " ".join(loaded.stderr.split())
            assert "_LMFILES_" not in loaded.environment or NAME not in loaded.environment["_LMFILES_"]
    if closed == "lay":
        for verb in ("layer list", "verify"):
            done = ordinary_user.run((*SIFMOD, *verb.split(), "--prefix", site.top / "tree"), given, shared_tmp)
            assert (done.code, says in done.stderr) == (25, True)
        told = ordinary_user.run((*SIFMOD, "doctor", "--prefix", site.top / "tree"), given, shared_tmp)
        assert says in told.stdout


@pytest.mark.parametrize("way", ["launcher"])
def test_a_layer_that_is_nowhere_is_named(site: Site, bound: Bound) -> None:
    found, said = bound(site, site.variables({"SIFMOD_LAYER": "none"}))
    assert (found, said) == (
        [], f"{NAME}: there is no layer none\n\nhint: `sifmod layer list` lists the existing ones\n"
    )  # fmt: skip
    variables = {"PATH": "/usr/bin:/bin", **site.variables({"SIFMOD_LAYER": "none"})}
    assert run((site.published.root / "bin/python",), env=variables, cwd=site.top).code == NO_LAYER


@pytest.mark.parametrize("way", ["lmod", "environment_modules", "tcl of lmod"])
def test_an_unload_says_nothing_of_layers_and_takes_all_back(
    way: str, site: Site, lmod: ModuleTool, environment_modules: ModuleTool
) -> None:
    site.make("one")
    if way == "tcl of lmod":
        (site.published.modules / f"{NAME}.lua").unlink()
    tool = environment_modules if way == "environment_modules" else lmod
    variables = site.variables({"SIFMOD_LAYERS": "@/one", "SINGULARITYENV_PYTHONPATH": "/mine"})
    steps = ("true", f"module load {NAME}", "unset SIFMOD_LAYERS", f"module unload {NAME}", f"module show {NAME} 2>&1")
    before, loaded, _, after, shown = tool.session(steps, site.published.modules, variables)
    path = loaded.environment["PATH"].split(":")
    live = site.top / "one" / NAME / "default" / KEY / "live"
    assert path[:2] == [f"{site.published.root}/bin", f"{live}/bin"]
    assert "_SIFMOD_LAYER_PyTorch" in loaded.environment
    left = {name: value for name, value in users(before).items() if name != "SIFMOD_LAYERS"}
    assert (users(after), after.stderr) == (left, "")
    assert "another image" not in shown.stdout


@pytest.mark.parametrize("spelling", ["SINGULARITY", "APPTAINER"])
def test_what_the_user_has_inside_stays_beside_a_layer(site: Site, spelling: str) -> None:
    """By either spelling; patterns stay patterns after a look for a stale one."""
    site.make("one", key="f" * 16)
    live = site.make("two")
    (site.top / "a").mkdir()
    given = {f"{spelling}ENV_PYTHONPATH": "/mine", f"{spelling}_BIND": "/us*,[a]", "SIFMOD_LAYERS": "@/one:@/two"}
    found, said = by_launcher(site, site.variables(given))
    bind = f"{live}/layer.squashfs:/user-layer:ro,image-src=/"
    assert (found, said) == ([f"/us*,[a],{site.binds},{bind}", "/user-layer/start:/mine", INSIDE[1]], "")
    publish(replace(site.published.plan, path=(), env=()), generation=7)
    paths = site.variables(given | {f"{spelling}ENV_PREPEND_PATH": "/us*:/mine"})
    assert by_launcher(site, paths)[0][1:] == ["/user-layer/start:/mine", "/us*:/mine:/user-layer/bin"]


@pytest.mark.parametrize("tool", ["lmod", "environment_modules"])
def test_only_a_load_says_that_a_layer_is_stale(
    tool: str, site: Site, lmod: ModuleTool, environment_modules: ModuleTool
) -> None:
    """Whatever else is in the layer's directory."""
    site.make("one", key="f" * 16)
    for name in ("a", "e" * 16, "g", "z"):
        (site.top / "one" / NAME / "default" / name).mkdir()
    (site.top / "two" / NAME / "default").mkdir(parents=True)
    verbs = ("load", "unload", "show", "help", "whatis")
    steps = [f"module {verb} {NAME} 2>&1" for verb in verbs]
    chosen = environment_modules if tool == "environment_modules" else lmod
    done = chosen.session(steps, site.published.modules, site.variables({"SIFMOD_LAYERS": "@/one:@/two"}))
    assert ["another image" in step.stdout for step in done] == [True, False, False, False, False]
    assert [step.code for step in done] == [0] * 5
