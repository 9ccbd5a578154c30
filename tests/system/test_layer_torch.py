"""Packages that are linked against an image's torch of a local version: from the index that the site names for it."""

from pathlib import Path

import pytest

from support.config import write
from support.images import Images
from support.layered import NAME, PLAIN, Machine, make_machine
from support.package_index import Index, serving
from support.wheels import wheel

LIBRARY = "/opt/miniconda3/envs/pytorch/lib/python3.11/site-packages"
OPERATOR = "raise RuntimeError('operator torchvision::nms does not exist')"


@pytest.fixture
def machine(shared_tmp: Path, images: Images) -> Machine:
    """Its image has a torch 2.5.1+cpu; PyPI's torchvision, in `wheels`, is for another one."""
    made = make_machine(shared_tmp / "ma chine", images)
    held = made.top / "torch"
    write(held / "__init__.py", "__version__ = '2.5.1+cpu'\n")
    info = made.top / "torch-2.5.1+cpu.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.5.1+cpu\n")
    write(info / "RECORD", f"torch/__init__.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    write(info / "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n")
    files = f"{{torch/: {LIBRARY}/torch, '{info.name}/': '{LIBRARY}/{info.name}'}}"
    easyconfig = write(
        made.top / "Python-3.11.yaml",
        f"name: Python\nversion: '3.11'\ndescription: Python\n{PLAIN}\nsanity_check: {{}}\n"
        f"image:\n  build:\n    from: {images.python_sif}\n    files: {files}\n",
    )
    made.sifmod("install", str(easyconfig), "--skip-sanity-check", "--rebuild").ok()
    body = {"torchvision/__init__.py": OPERATOR}
    wheel(made.wheels, "torchvision", "0.20.1", requires=("torch==2.5.1",), files=body)
    wheel(made.wheels, "faces", requires=("torchvision", "helper"))
    return made


@pytest.fixture
def fitting(machine: Machine) -> Path:
    """The wheels of an index for +cpu, which has old ones of other packages too."""
    place = machine.top / "fitting"
    place.mkdir()
    wheel(place, "torchvision", "0.20.1+cpu", requires=("torch==2.5.1",))
    wheel(place, "helper", "9.0")
    return place


def add(machine: Machine, pypi: Index, *words: str) -> tuple[int, str]:
    found = machine.sifmod("add", NAME, *words, "--index-url", pypi.url)
    return found.code, found.stderr


def site(machine: Machine, indexes: str) -> None:
    write(machine.top / "site.yaml", f"name: here\npackage_indexes: {indexes}\n")


SHOW = "import torchvision, helper; print(torchvision.__version__, helper.__version__)"


def test_the_site_names_the_index(machine: Machine, fitting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for what is linked against torch alone, also where that comes with something else."""
    with serving(machine.wheels) as pypi, serving(fitting) as own, serving(fitting) as other:
        site(machine, f"{{cpu: '{own.url}', cu12: '{other.url}'}}")
        monkeypatch.setenv("SIFMOD_SITE", str(machine.top / "site.yaml"))
        given = {"SIFMOD_SITE": str(machine.top / "site.yaml")}
        for asked in ("torchvision", "faces"):
            words = ("add", NAME, asked, "helper", "--index-url", pypi.url)
            told = machine.sifmod(*words, env=given).ok().stderr
            assert f"torchvision: taken from {own.url}, to match the image's torch +cpu" in told
            assert machine.python(SHOW).ok().stdout == "0.20.1+cpu 2.5\n"
            assert {path for path in own.asked if "simple" in path} == {"/simple/torchvision/"}
            machine.sifmod("remove", NAME, "--all").ok()
        own.asked.clear()
        machine.sifmod("add", NAME, "demo", "--index-url", pypi.url, env=given).ok()
        machine.add("helper", env=given).ok()
        assert (own.asked, other.asked) == ([], [])
        # what the index does not have is looked for where everything is
        wheel(machine.wheels, "apex", "1.0")
        machine.sifmod("add", NAME, "apex", "--index-url", pypi.url, env=given).ok()
        assert "/simple/apex/" in own.asked
        assert machine.python("import apex; print(apex.__version__)").ok().stdout == "1.0\n"


def test_an_error_names_the_option(machine: Machine, fitting: Path) -> None:
    with serving(machine.wheels) as pypi, serving(fitting) as own:
        before = machine.listing()
        code, told = add(machine, pypi, "torchvision")
        assert (code, machine.listing(), own.asked) == (2, before, [])
        assert "torchvision 0.20.1 was built for something else than the image's torch 2.5.1+cpu" in told
        assert "--extra-index-url URL" in told
        assert "`package_indexes: {cpu: URL}`" in told
        assert told.count("warning: ") == 1
        add(machine, pypi, "torchvision", "--extra-index-url", own.url)
        assert machine.python("import torchvision as t; print(t.__version__)").ok().stdout == "0.20.1+cpu\n"


NO_INDEXES = ("{cpu: 'https://me:pw@example.org/'}", "{'+cpu': 'https://example.org/'}", "{cpu: x}")


@pytest.mark.parametrize("indexes", NO_INDEXES)
def test_what_is_no_index(machine: Machine, indexes: str) -> None:
    site(machine, indexes)
    found = machine.sifmod("check", "site.yaml")
    assert found.code != 0
    assert "package_indexes" in found.stderr + found.stdout
