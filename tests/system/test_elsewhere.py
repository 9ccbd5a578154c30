"""Each flow of sifmod in one odd place (support/odd_place.py), and that its result is right: `scripts/test ELSEWHERE`.

A new flow is one function, listed once in FLOWS.
"""

import json
import os
from collections.abc import Callable, Iterator

import pytest

from support import module_tool as tools
from support.images import Images
from support.odd_place import INSTALL, LIBRARY, MODULE, PYTHON_HOME, OddPlace, odd_place
from support.runtime import RUNTIME
from support.slurm import Slurm

Flow = Callable[[OddPlace], None]

ITS_PYTHON = "import sys; print(sys.version_info[:2], sys.prefix)"
SAID = f"(3, 11) {PYTHON_HOME}\n"
ADDED = "import demo, helper; print(demo.__version__, helper.__version__)"
TRAIN = """
import os, sys, demo
words = *map(os.environ.get, ("RANK", "WORLD_SIZE", "SLURMD_NODENAME")), demo.__version__, sys.prefix, os.getcwd()
os.write(1, f"{' '.join(words)}\\n".encode())
"""
# what a load sets, but for the module tool's own
OURS = ("SIF", "_SIFMOD", "SINGULARITY", "APPTAINER", "PATH", "EB", "RUNSCRIPTS", "CONTAINERROOT", "WITH_CONDA")


@pytest.fixture(scope="module")
def place_of(images: Images, slurm: Slurm) -> Iterator[Callable[[str], OddPlace]]:
    with odd_place(images, slurm.env) as made:
        yield made


def install(place: OddPlace) -> None:
    place.install()
    assert place.python(ITS_PYTHON) == SAID
    (listed,) = json.loads(place.sifmod("list", "--json").stdout)
    assert (listed["module"], listed["problems"]) == (MODULE, [])
    place.sifmod("verify")
    assert {path.lstat().st_uid for path in place.prefix.rglob("*")} == {place.user.user.uid}


def load(place: OddPlace) -> None:
    """In both module systems; unloaded, all is as before."""
    place.install()
    code = f"python -c '{ITS_PYTHON}'"
    for tool in (tools.lmod(place.home), tools.environment_modules(place.home)):
        steps = ("true", f"module load {MODULE}", code, f'{RUNTIME.path} exec "$SIF" {code}', "module unload Python")
        before, _, wrapped, bare, after = place.loaded(tool, *steps)
        assert (wrapped.stdout, bare.stdout) == (SAID, SAID)
        kept = [
            {name: value for name, value in step.environment.items() if name.startswith(OURS)}
            for step in (before, after)
        ]
        assert kept[0] == kept[1]


def add(place: OddPlace) -> None:
    place.install()
    place.sifmod("add", MODULE, "demo")
    assert place.python(ADDED) == "1.0 2.5\n"
    place.sifmod("remove", MODULE, "demo")
    assert place.python("import importlib.util as u; print(u.find_spec('demo'))") == "None\n"


def sync(place: OddPlace) -> None:
    place.install()
    place.sifmod("add", MODULE, "demo")
    (lock,) = place.prefix.glob("layers/*/*/default/*/live/pylock.toml")
    text = lock.read_text()
    place.write("pylock.toml", text)
    place.sifmod("remove", MODULE, "--all")
    place.sifmod("sync", MODULE, "pylock.toml")
    assert place.python(ADDED) == "1.0 2.5\n"
    (lock,) = place.prefix.glob("layers/*/*/default/*/live/pylock.toml")
    assert lock.read_text() == text


def recipe(place: OddPlace) -> None:
    place.write("own/data", "of the recipe\n")
    build = f"{{from: '{place.image}', pip: [demo], files: {{own/: /opt/own}}, env: {{OWN: of the recipe}}}}"
    place.sifmod("install", place.easyconfig("Own", f"{{build: {build}}}"), *INSTALL[2:])
    assert place.python(f"{ADDED}; print(demo.__file__)", "Own/3.11") == f"1.0 2.5\n{LIBRARY}/demo/__init__.py\n"
    look = "import os; print(open('/opt/own/data').read().strip(), os.environ['OWN'], sep=', ')"
    assert place.python(look, "Own/3.11") == "of the recipe, of the recipe\n"


def stack(place: OddPlace) -> None:
    for name in ("Python", "Other"):
        place.easyconfig(name, f"{{sources: ['{place.image}']}}")
    place.write("stack.yaml", "easyconfigs: [Python-3.11.yaml, Other-3.11.yaml]\n")
    place.sifmod("stack", "apply", "stack.yaml")
    place.sifmod("stack", "lock", "stack.yaml")
    place.sifmod("uninstall", "--purge", "--ignore-jobs", "Other")
    place.sifmod("stack", "apply", "stack.yaml", "--locked")
    for module in (MODULE, "Other/3.11"):
        assert place.python(ITS_PYTHON, module) == SAID
    assert ": 2 installed" in place.sifmod("stack", "apply", "stack.yaml").stderr


def job(place: OddPlace) -> None:
    """Two ranks on two nodes, with a package that was added."""
    place.install()
    place.sifmod("add", MODULE, "demo")
    place.write("train.py", TRAIN)
    place.sifmod("jobscript", MODULE, "--account", "project_1", "--partition", "main", "-o", "job.sh")
    (shell,) = place.loaded(tools.lmod(place.home), "export -f module ml")
    done = place.run(("sbatch", "--wait", "--output=output", "job.sh"), env=shell.environment)
    said = (place.work / "output").read_text()
    assert done.code == 0, (done, said)
    ranks = sorted(line for line in said.splitlines() if line[:1].isdigit())
    here = os.path.realpath(place.work)
    assert ranks == [f"{rank} 2 n{rank + 1} 1.0 {PYTHON_HOME} {here}" for rank in (0, 1)], said


def uninstall(place: OddPlace) -> None:
    place.install()
    first = place.listing()
    place.sifmod("add", MODULE, "demo")
    assert place.listing() > first
    place.sifmod("remove", MODULE, "--all")
    place.sifmod("uninstall", "--purge", "--ignore-jobs", MODULE)
    place.sifmod("gc", "--yes", "--now", "--ignore-jobs")
    assert place.listing() == set()
    assert place.image.exists()


FLOWS: tuple[Flow, ...] = (install, load, add, sync, recipe, stack, job, uninstall)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_a_flow(place_of: Callable[[str], OddPlace], flow: Flow) -> None:
    flow(place_of(flow.__name__))
