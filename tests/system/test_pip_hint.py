"""`pip install` into an image, which is read-only: answered at once, by the command that does what was meant."""

import os
import re
import shlex
import sys
import time
from pathlib import Path

import pytest

from support.command import run
from support.images import Images
from support.layered import NAME, Machine, make_machine
from support.wheels import wheel

REAL = ("--no-index", "--retries", "0")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, images: Images) -> Machine:
    return make_machine(tmp_path_factory.mktemp("pip hint") / "ma chine", images)


def inside(machine: Machine, *words: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Start a command in the module's container, where it is found on PATH."""
    starts = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
    given = {**machine.env(), **(env or {})}
    found = run((machine.commands / "python", "-c", starts, *words), env=given, cwd=machine.top)
    return found.code, found.stdout, found.stderr


def command_of(told: str) -> list[str]:
    """The command that was answered, as a shell reads it."""
    (line,) = re.findall(r"^  (sifmod add .*)$", told, re.MULTILINE)
    return shlex.split(line)


WORDS = {
    "x y>=2": "x y>=2",
    "-U --user x": "--upgrade x",
    "--find-links whl x": "--find-links whl x",
    "-f whl --no-index -c c.txt -r all.txt": "--find-links whl --no-index -c c.txt -r all.txt",
    "-qUrall.txt": "--upgrade -r all.txt",
    "--index-url=https://example.org/s --extra-index-url https://me:pw@example.org/e x": (
        "--index-url https://example.org/s --extra-index-url https://example.org/e x"
    ),
    "--no-build-isolation --no-cache-dir --progress-bar off ./pp x.whl": "--no-build-isolation ./pp x.whl",
    "-e .[dev] git+https://example.org/a": "-e .[dev] git+https://example.org/a",
    "-e git+https://example.org/a#egg=a": "git+https://example.org/a#egg=a",
    "--pre -- x": "--pre x",
    "--no-deps --timeou 3 x": "x",
}


@pytest.mark.parametrize("words", WORDS)
def test_the_same_words_for_sifmod(machine: Machine, words: str) -> None:
    code, out, told = inside(machine, "pip", "install", *words.split())
    assert (code, out) == (1, "")
    assert command_of(told) == ["sifmod", "add", NAME, *WORDS[words].split()]
    assert ("without --no-deps" in told) == ("--no-deps" in words)
    assert ("belongs in ~/.netrc" in told, "pw" in told) == ("pw" in words, False)


@pytest.mark.parametrize(
    "words",
    [("pip", "install", "x"), ("python", "-m", "pip", "install", "x"), ("python3", "-mpip", "-q", "install", "x")],
)
def test_wherever_it_is_typed(machine: Machine, words: tuple[str, ...]) -> None:
    """In the container, as `!pip` and `%pip` of a kernel do, and by the wrapper; at once."""
    for env in ({}, {"SIFMOD_LAYER": ""}):
        code, _, told = inside(machine, *words, env=env)
        assert (code, command_of(told)) == (1, ["sifmod", "add", NAME, "x"])
    if words[0] == "pip":
        began = time.monotonic()
        found = run((machine.commands / "pip", *words[1:]), env=machine.env(), cwd=machine.top)
        assert (found.code, command_of(found.stderr)) == (1, ["sifmod", "add", NAME, "x"])
        assert time.monotonic() - began < 3


def test_the_command_works_when_it_is_pasted(machine: Machine) -> None:
    words = f"install --user --no-index -f {shlex.quote(str(machine.wheels))} demo".split(" -f ")
    code, _, told = inside(machine, "pip", *words[0].split(), "-f", *shlex.split(words[1]))
    assert code == 1
    machine.sifmod(*command_of(told)[1:]).ok()
    assert machine.python("import demo; print(demo.__version__)").ok().stdout == "1.0\n"
    # over a layer it is the same, and for another one its name is in it
    machine.add("demo", "--layer", "other").ok()
    for env, more in (({}, []), ({"SIFMOD_LAYER": "other"}, ["--layer", "other"])):
        _, _, told = inside(machine, "pip", "install", "x", env=env)
        assert command_of(told) == ["sifmod", "add", NAME, *more, "x"]
    machine.sifmod("remove", NAME, "--all", "--layer", "other").ok()
    machine.sifmod("remove", NAME, "--all").ok()


def test_pip_itself_for_all_else(machine: Machine) -> None:
    where = str(machine.top / "else where")
    wheels = ("--find-links", str(machine.wheels), *REAL)
    for option in ("--target", "--prefix", "--root"):
        code, _, told = inside(machine, "pip", "install", option, where, *wheels, "demo")
        assert (code, "sifmod" in told) == (0, False), told
    assert list(Path(where).rglob("demo-1.0.dist-info"))
    for words in (("list",), ("--version",), ("install", "--help"), ("install", "--dry-run", *wheels, "demo")):
        code, out, told = inside(machine, "pip", *words)
        assert (code, bool(out), "sifmod" in told) == (0, True, False), told
    code, _, told = inside(machine, "pip", "download", *wheels, "-d", where, "demo")
    assert (code, "sifmod" in told) == (0, False)
    for env in ({"SIFMOD_PIP": "1"}, {"PIP_TARGET": where, "PIP_UPGRADE": "1"}):
        code, out, told = inside(machine, "pip", "install", *wheels, "demo", env=env)
        assert ("Successfully installed" in out, "sifmod" in told) == ("PIP_TARGET" in env, False)
    code, _, told = inside(machine, "pip", "install", "nothing-of-this", *REAL, env={"SIFMOD_PIP": "1"})
    assert (code, "No matching distribution" in told) == (1, True)


def test_a_virtual_environment_is_written(machine: Machine) -> None:
    place = machine.top / "venv"
    code, _, told = inside(machine, "python", "-m", "venv", "--without-pip", str(place))
    assert code == 0, told
    own = machine.python("import pip, os; print(os.path.dirname(os.path.dirname(pip.__file__)))").ok().stdout
    (library,) = place.glob("lib/python3*/site-packages")
    (library / "image.pth").write_text(own)
    words = ("-m", "pip", "install", "--find-links", str(machine.wheels), *REAL, "demo")
    code, out, told = inside(machine, str(place / "bin" / "python"), *words)
    assert (code, "Successfully installed demo" in out) == (0, True), told
    assert (library / "demo").is_dir()


def test_who_imports_pip_has_the_images_own(machine: Machine) -> None:
    code = (
        "import pip, sys; from pip._internal.cli.main import main; import importlib.metadata as m;"
        " print(pip.__version__ == m.version('pip'), '.pip' in pip.__file__, sys.modules['pip'] is pip,"
        " any('.pip' in place for place in sys.path))"
    )
    assert machine.python(code).ok().stdout == "True False True False\n"
    hides = "import sys; sys.path = [p for p in sys.path if 'packages' not in p]\ntry: import pip\n"
    found = machine.python(hides + "except ModuleNotFoundError as error: print(error.name)")
    assert found.ok().stdout == "pip\n"
    # a program of another name whose words look the same
    script = machine.top / "mine.py"
    script.write_text("import pip, sys; print(sys.argv[1:])")
    assert inside(machine, "python", str(script), "install", "x")[:2] == (0, "['install', 'x']\n")


@pytest.mark.parametrize("python", ["python2.7", "python3.6", "python3.8", "python3.13"])
def test_any_python_of_an_image_reads_it(machine: Machine, python: str) -> None:
    """By those that this machine has; that of the tests is one of them."""
    text = machine.prefix / "software" / NAME / "runscripts" / ".pip" / "pip" / "__init__.py"
    program = next(
        (path for place in os.environ["PATH"].split(":") if (path := Path(place, python)).is_file()), sys.executable
    )
    check = "import ast, sys; ast.parse(open(sys.argv[1]).read())"
    found = run((program, "-c", check, text))
    if "shims" not in str(program):
        found.ok()


def test_a_build_does_not_ask(machine: Machine) -> None:
    """What uv builds for a layer may run pip."""
    project = machine.top / "home" / "builds"
    project.mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "builds"\n'
        'dynamic = ["version"]\n'
    )
    (project / "backend.py").write_text(
        "import os\nfrom zipfile import ZipFile\n\n\n"
        "def build_wheel(directory, settings=None, metadata=None):\n"
        "    name = 'builds-0.1-py3-none-any.whl'\n"
        "    with ZipFile(directory + '/' + name, 'w') as file:\n"
        "        file.writestr('builds.py', 'PIP = %r' % os.environ.get('SIFMOD_PIP'))\n"
        "        for what, text in (('METADATA', 'Metadata-Version: 2.1\\nName: builds\\nVersion: 0.1\\n'),\n"
        "                           ('WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'),\n"
        "                           ('RECORD', '')):\n"
        "            file.writestr('builds-0.1.dist-info/' + what, text)\n"
        "    return name\n"
    )
    wheel(machine.wheels, "unused")
    machine.add(str(project)).ok()
    assert machine.python("import builds; print(builds.PIP)").ok().stdout == "1\n"
