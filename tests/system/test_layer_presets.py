"""Packages over the images of presets: each has its Python elsewhere, and starts it in its own way."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from support.command import BUILD, ROOT
from support.images import Images, converted, made
from support.layered import Machine
from support.module_tool import ModuleTool
from support.oci import Entry, layer, write_layout
from support.runtime import RUNTIME
from support.wheels import wheel

TORCH = "2.14.0a0+4fdf77b940"  # NVIDIA's own build, which is on no index
COMMAND = "import torch, demo, sys; print(demo.__version__, torch.__version__, sys.prefix)"


@dataclass(frozen=True)
class Place:
    """Where the images of some presets have their Python: its prefix, and the variable PATH of the image."""

    prefix: str
    packages: str
    path: str = "/usr/local/bin:/usr/bin:/bin"


SYSTEM = Place("/usr", "/usr/local/lib/python3.11/dist-packages")
OWN = Place("/opt/venv", "/opt/venv/lib/python3.11/site-packages", "/opt/venv/bin:/usr/bin:/bin")
CONDA = Place("/opt/miniconda3/envs/pytorch", "/opt/miniconda3/envs/pytorch/lib/python3.11/site-packages")
PRESETS = {
    "ngc": SYSTEM,
    "rocm-docker": OWN,
    "laif": OWN,
    "lumi-g1": CONDA,
    "lumi-g2": CONDA,
    "lumi-g3": OWN,
}


def image(place: Place, images: Images) -> Path:
    """Debian's Python, or an environment of it, with a small torch and its `torchrun`, without pip and ensurepip."""
    python = f"{place.prefix}/bin/python"
    own = place.prefix != "/usr"
    entries = {
        f"{place.packages}/torch/__init__.py": f"__version__ = '{TORCH}'\n",
        f"{place.packages}/torch-{TORCH}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH}\n",
        f"{'/usr/local' if not own else place.prefix}/bin/torchrun": f"#!{python}\n{COMMAND}\n",
    }
    if own:
        entries[f"{place.prefix}/pyvenv.cfg"] = "home = /usr/bin\ninclude-system-site-packages = false\n"
    files = [Entry(name[1:], text.encode()) for name, text in entries.items()]
    files.append(Entry(python[1:], link="/usr/bin/python3.11"))
    if own:
        files.append(Entry(f"{python[1:]}3", link="python"))
    assert images.python_layout.exists()  # whose base is kept as a tar
    base = (ROOT / "build" / "debian-base.tar").read_bytes()
    name = f"python-{place.prefix.strip('/').replace('/', '-')}"
    env = (f"PATH={place.path}",)
    layout = made(BUILD / f"{name}.oci", lambda to: write_layout(to, (base, layer(files)), env=env))
    return made(BUILD / f"{name}.sif", lambda to: converted(to, layout))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_package_is_added_over_an_image_of_a_preset(
    preset: str, shared_tmp: Path, images: Images, lmod: ModuleTool
) -> None:
    place = PRESETS[preset]
    machine = Machine(shared_tmp)
    machine.wheels.mkdir()
    wheel(machine.wheels, "demo", requires=("torch>=2.10",), scripts=("demo-says",))
    machine.install(image(place, images), "--link", "reference", rest=f"preset: {preset}")
    told = machine.add("demo").ok()
    assert f"the image keeps torch {TORCH}; 1 package is added" in told.stderr
    shown = f"1.0 {TORCH} {place.prefix}\n"
    assert machine.python(COMMAND).ok().stdout == shown
    start = f"{RUNTIME.path} exec $SIF"
    loaded = lmod.run(
        f"module load Python; python -c '{COMMAND}'; demo-says;"
        f" {start} conda-python-simple -c '{COMMAND}'; {start} sh -c '$WITH_CONDA; torchrun'",
        machine.prefix / "modules",
        env=machine.env(),
    )
    says = f"demo-says 1.0 {place.prefix}\n"
    assert loaded.stdout == f"{shown}{says}{shown}{shown}", loaded.stderr
