"""Options of `add` and `sync` that say how a layer is made, and not what is in it."""

import json
import shutil
from pathlib import Path

from support.images import Images
from support.layered import BACKEND, NAME, Machine, make_machine
from support.wheels import wheel


def row(machine: Machine, layer: str) -> dict[str, object]:
    rows = json.loads(machine.sifmod("layers", "--json").ok().stdout)
    return next(one for one in rows if one["layer"] == layer)


def test_how_a_layer_is_made(shared_tmp: Path, images: Images) -> None:
    machine = make_machine(shared_tmp / "ma chine", images)
    show = "import demo, helper; print(demo.__version__, helper.__version__)"

    # newer ones are taken where that is asked for, and not because something else is added
    machine.add("demo").ok()
    wheel(machine.wheels, "demo", "1.5", requires=("helper>=2",))
    wheel(machine.wheels, "helper", "3.0")
    wheel(machine.wheels, "other", "1.0")
    machine.add("other").ok()
    assert machine.python(show).ok().stdout == "1.0 2.5\n"
    machine.add("--upgrade").ok()
    assert machine.python(show).ok().stdout == "1.5 3.0\n"
    assert "layer default: nothing to do" in machine.add("--upgrade").ok().stderr

    # a directory in the place of one file, by `add` and by `sync`, and one file again
    for words in (("add", NAME, "other", "--unpacked"), ("sync", NAME, "lo ck.toml", "--unpacked")):
        told = machine.sifmod(*words, "--layer", "loose", "--no-index", "--find-links", str(machine.wheels)).ok()
        live = machine.live("loose")
        assert (live / "tree").is_dir()
        assert not (live / "layer.squashfs").exists()
        assert "a directory of " in told.stderr
        env = {"SIFMOD_LAYER": "loose"}
        assert machine.python("import other; print(other.__version__)", env=env).ok().stdout == "1.0\n"
        shutil.copyfile(live / "pylock.toml", machine.top / "lo ck.toml")
        machine.sifmod("remove", NAME, "--all", "--layer", "loose").ok()
    machine.sifmod(
        "sync", NAME, "lo ck.toml", "--layer", "loose", "--no-index", "--find-links", str(machine.wheels)
    ).ok()
    assert row(machine, "loose")["packed"]

    # what a build asks for is not brought where the image and the layer are to have it
    project = machine.top / "home" / "project"
    project.mkdir(parents=True)
    (project / "backend.py").write_text(BACKEND)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["nowhere"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "edited"\nversion = "0.1"\n'
    )
    env = {"HOME": str(project.parent)}
    words = ("-e", str(project), "--layer", "edited")
    before = machine.listing()
    assert "nowhere" in machine.add(*words, env=env).stderr
    assert machine.listing() == before
    machine.add(*words, "--no-build-isolation", env=env).ok()
