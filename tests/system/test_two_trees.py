"""A site's tree to read and one's own to write: what each command shows of both, and what the module tools load."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from sifmod.cli.main import cli
from sifmod.cli.main import run as in_process
from support.command import Result
from support.config import write
from support.disk_state import disk_state
from support.identity import call_as, sifmod
from support.images import Images
from support.module_tool import ModuleTool, Step
from support.user import OrdinaryUser
from support.victim import import_all
from support.wheels import wheel

pytestmark = pytest.mark.usefixtures("needs_root")
EASYCONFIG = "name: {0}\nversion: '{1}'\ndescription: {0} for a test\nimage: {{sources: ['{2}']}}\nwrappers: [{3}]\n"
PYTHON = "preset: pytorch\npath+: [/opt/miniconda3/envs/pytorch/bin]\nrunscripts: []\n"


@dataclass(frozen=True)
class Trees:
    """The site's tree with Tiny/1.0 and Note/1.0, which root has published; and a user of it."""

    top: Path
    user: OrdinaryUser

    @property
    def site(self) -> Path:
        return self.top / "site"

    @property
    def own(self) -> Path:
        return self.user.home / "mine"

    @property
    def env(self) -> dict[str, str]:
        settings = {"SIFMOD_CONFIG_DIR": f"{self.top}/etc", "UV_CACHE_DIR": f"{self.user.home}/uv"}
        return {**self.user.environment(), **settings}

    def sifmod(self, *words: str, **more: str) -> Result:
        """A command of the user."""
        return call_as(self.user.user, lambda: sifmod(words, {**self.env, **more}, self.user.home))

    def shell(self, tool: ModuleTool, *steps: str) -> tuple[Step, ...]:
        """A shell of the user that has evaluated what `init` prints."""
        lines = self.sifmod("init", "bash").ok().stdout.replace("command -v sifmod", "false")
        return tool.session((lines, *steps), "", {**self.env, "HOME": str(self.user.home)}, self.user.user)[1:]


@pytest.fixture
def trees(shared_tmp: Path, ordinary_user: OrdinaryUser, images: Images, monkeypatch: pytest.MonkeyPatch) -> Trees:
    import_all()  # the user may be unable to read what has not been imported
    made = Trees(shared_tmp, ordinary_user)
    settings = f"prefix: {made.site}\nuser_prefix: ~/mine\nsharing: site\ngroup: root\nmodule_syntax: both\n"
    write(shared_tmp / "etc/tree.yaml", f"{settings}robot_paths: [{shared_tmp}]\nlink: copy\n")
    image = shared_tmp / "tiny.sif"  # where the user can read it
    image.write_bytes(images.tiny_sif.read_bytes())
    for name, version in (("Tiny", "1.0"), ("Tiny", "2.0"), ("Note", "1.0")):
        write(shared_tmp / f"{name}-{version}.yaml", EASYCONFIG.format(name, version, image, "cat"))
    monkeypatch.setenv("SIFMOD_CONFIG_DIR", f"{shared_tmp}/etc")
    monkeypatch.delenv("MODULEPATH", raising=False)
    assert in_process(["install", "--skip-sanity-check", "Tiny-1.0", "Note-1.0"]) == 0
    assert (made.site / "modules/Tiny/1.0.lua").exists()
    return made


def unchanged(trees: Trees, do: Callable[[], Result]) -> Result:
    """What a command of the user says, which leaves the site's tree as it is."""
    before = disk_state(trees.site)
    result = do()
    assert disk_state(trees.site) == before
    return result


def test_each_command_knows_both_trees(trees: Trees, capfd: pytest.CaptureFixture[str]) -> None:
    said = unchanged(trees, lambda: trees.sifmod("install", "Tiny-1.0", "Tiny-2.0", "--skip-sanity-check")).ok().stderr
    assert f"== Tiny/1.0: {trees.site} has this module too; `sifmod init` puts your tree first\n" in said
    assert "Tiny/2.0: it is in" not in said
    assert sorted(path.name for path in (trees.own / "modules/Tiny").glob("*.lua")) == ["1.0.lua", "2.0.lua"]

    listed = [line.split(maxsplit=5) for line in trees.sifmod("list").ok().stdout.splitlines()]
    assert listed[0] == ["MODULE", "SIZE", "GENERATION", "TREE", "STATE"]
    assert [(row[0], row[4], row[5:]) for row in listed[1:]] == [
        ("Tiny/1.0", str(trees.own), []),
        ("Tiny/2.0", str(trees.own), []),
        ("Note/1.0", str(trees.site), []),
        ("Tiny/1.0", str(trees.site), [f"the module of {trees.own} is used"]),
    ]
    data = json.loads(trees.sifmod("list", "--json", "Tiny/1").ok().stdout)
    assert [(one["prefix"], one["shadowed_by"]) for one in data] == [
        (str(trees.own), None),
        (str(trees.site), str(trees.own)),
    ]
    alone = trees.sifmod("list", "--prefix", str(trees.own)).ok().stdout
    assert ("TREE" in alone, "Note" in alone) == (False, False)

    found = trees.sifmod("search", "Tiny").ok()
    assert [line.split()[:2] for line in found.stdout.splitlines()] == [
        ["Tiny/1.0", "[installed]"],
        ["Tiny/2.0", "[installed]"],
    ]
    assert f"== installed in {trees.own}: Tiny/1.0, Tiny/2.0\n" in found.stderr
    assert f"== installed in {trees.site}: Tiny/1.0\n" in found.stderr
    rows = json.loads(trees.sifmod("search", "Tiny 1.0", "--json").ok().stdout)
    assert [one["prefix"] for one in rows[0]["installed"]] == [str(trees.own), str(trees.site)]
    shown = trees.sifmod("show", "Note/1.0").ok().stdout
    assert f"{trees.site}/software/Note/1.0" in shown

    fields = dict(line.split("  ", 1) for line in trees.sifmod("config", "show").ok().stdout.splitlines())
    rows_of = {key.strip(): value for key, value in fields.items()}
    assert str(trees.own) in rows_of["prefix"]
    assert f"{trees.top}/etc/tree.yaml:2" in rows_of["prefix"]
    assert f"the prefix of {trees.top}/etc/tree.yaml:1" in rows_of["trees"]
    capfd.readouterr()
    assert in_process(["list"]) == 0  # who publishes has one tree
    assert "TREE" not in capfd.readouterr().out


def test_the_own_tree_comes_first_and_a_layer_goes_to_ones_own_place(
    trees: Trees, images: Images, module_tool: ModuleTool
) -> None:
    easyconfig = EASYCONFIG.format("Python", "3.11", images.python_sif, "python") + PYTHON
    write(trees.top / "Python-3.11.yaml", easyconfig)
    assert in_process(["install", "--skip-sanity-check", "Python-3.11"]) == 0
    wheels = trees.top / "wheels"
    wheels.mkdir()
    wheel(wheels, "demo", "1.0")
    trees.sifmod("install", "Tiny-1.0", "--skip-sanity-check").ok()
    add = ("add", "Python", "--no-index", "--find-links", str(wheels))
    unchanged(trees, lambda: trees.sifmod(*add, "demo")).ok()
    assert (trees.user.home / ".local/share/sifmod/layers/Python/3.11/default").is_dir()
    code = "import demo; print(demo.__version__)"
    steps = trees.shell(
        module_tool,
        "module load Tiny/1.0; command -v cat",
        "module load Python/3.11; command -v python",
        f'python -c "{code}"',
    )
    assert [step.code for step in steps] == [0, 0, 0], steps
    assert steps[0].stdout.startswith(f"{trees.own}/software/Tiny/")
    assert steps[1].stdout.startswith(f"{trees.site}/software/Python/")
    assert steps[2].stdout == "1.0\n"
    listed = trees.sifmod("layer", "list").ok().stdout
    assert "Python/3.11" in listed
    assert "demo" in listed


def test_a_module_in_both_trees_is_ones_own_for_add_and_that_is_said(trees: Trees) -> None:
    wheels = trees.top / "wheels"
    wheels.mkdir()
    wheel(wheels, "demo", "1.0")
    trees.sifmod("install", "Tiny-1.0", "--skip-sanity-check").ok()
    refused = trees.sifmod("add", "Tiny/1.0", "demo", "--no-index", "--find-links", str(wheels))
    assert f"== Tiny/1.0 of {trees.own} is used; {trees.site} has this module too\n" in refused.stderr


def test_a_view_of_ones_own_loads_a_module_of_the_site(trees: Trees, module_tool: ModuleTool) -> None:
    view = write(trees.top / "course-1.yaml", "name: course\nversion: '1'\ndescription: x\nmodules: [Tiny/1.0]\n")
    said = trees.sifmod("install", str(view), "--skip-sanity-check").ok().stderr
    assert "warning" not in said
    (loaded,) = trees.shell(module_tool, "module load course/1; command -v cat")
    assert loaded.stdout.startswith(f"{trees.site}/software/Tiny/")


@pytest.mark.parametrize(
    "words", ["uninstall", "uninstall --purge", "rollback", "hide", "deprecate", "retire --message x"]
)
def test_a_command_that_changes_a_tree_names_the_other_one(trees: Trees, words: str) -> None:
    trees.sifmod("install", "Tiny-2.0", "--skip-sanity-check").ok()
    before = disk_state(trees.own)
    refused = unchanged(trees, lambda: trees.sifmod(*words.split(), "Note/1.0"))
    said = f"error: Note/1.0 is in {trees.site}, and this command changes {trees.own}\n"
    assert (refused.code, refused.stderr) == (24, f"{said}\nhint: `--prefix {trees.site}` names the other tree\n")
    assert disk_state(trees.own) == before
    verified = trees.sifmod("verify", "Note/1.0")
    assert (verified.code, f"hint: it looks in {trees.own}: " in verified.stderr) == (24, True)
    unknown = trees.sifmod(*words.split(), "Nothing/1")
    assert (unknown.code, "no module is called `Nothing/1`" in unknown.stderr) == (24, True)


def test_a_tree_that_is_gone_or_closed_is_said(trees: Trees) -> None:
    for what, said in (("gone", "is not there, has no modules, or is closed to this user"), ("site", "cannot be read")):
        tree = trees.top / what
        if what == "site":
            (trees.site / "software").chmod(0o700)
        listed = trees.sifmod("list", SIFMOD_TREES=str(tree)).ok()
        assert listed.stdout == ""
        (warning,) = [line for line in listed.stderr.splitlines() if "warning" in line]
        assert str(tree) in warning
        assert said in warning
        found = trees.sifmod("doctor", SIFMOD_TREES=str(tree))
        assert found.code == 1
        assert str(tree) in found.stdout
        assert trees.sifmod("search", "Tiny", SIFMOD_TREES=str(tree)).ok().stdout.count("[installed]") == 0
        missing = trees.sifmod("add", "Note/1.0", "demo", SIFMOD_TREES=str(tree))
        assert missing.code == 24
        assert "no module is called" in missing.stderr


@pytest.mark.parametrize("shell", ["fish", "tcsh"])
def test_init_of_the_other_shells_uses_the_own_tree_last(trees: Trees, shell: str) -> None:
    """A later `module use` comes before an earlier one."""
    lines = trees.sifmod("init", shell).ok().stdout
    assert lines.index(f"module use {trees.site}/modules") < lines.index(f"module use {trees.own}/modules")


def test_tab_offers_modules_of_both(trees: Trees) -> None:
    trees.sifmod("install", "Tiny-2.0", "--skip-sanity-check").ok()

    def offered(*words: str) -> list[str]:
        os.environ.clear()
        os.environ.update(trees.env)
        completion = BashComplete(cli, {}, "sifmod", "_SIFMOD_COMPLETE")
        return [item.value for item in completion.get_completions([*words], "T")]

    both = call_as(trees.user.user, lambda: offered("add"))
    assert sorted(both) == ["Tiny/1.0", "Tiny/2.0"]
    assert call_as(trees.user.user, lambda: offered("uninstall", "--prefix", str(trees.own))) == ["Tiny/2.0"]
