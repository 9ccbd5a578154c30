"""Options of `add` and `sync` that say how a layer is made, and not what is in it."""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from support.command import run
from support.config import write
from support.images import Images
from support.layered import BACKEND, NAME, PLAIN, Machine, make_machine
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

    # what a lock does not name by a digest could be anything
    lock = machine.top / "lo ck.toml"
    lock.write_text(re.sub(r", hashes = \{[^}]*\}", "", lock.read_text()))
    before = machine.listing()
    refused = machine.sifmod("sync", NAME, "lo ck.toml", "--layer", "new", "--find-links", str(machine.wheels))
    assert (refused.code, "error: the lock has no file of other" in refused.stderr) == (2, True)
    assert machine.listing() == before

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


def test_only_the_image_and_what_is_asked_for_decide(shared_tmp: Path, images: Images) -> None:
    """Not what lies in directories above the prefix, or what variables say of other Pythons and packages."""
    machine = make_machine(shared_tmp / "ma chine", images)
    home = machine.top / "home"
    plain = machine.add("demo", env={"HOME": str(home)}).ok()
    lock, packed = ((machine.live() / name).read_bytes() for name in ("pylock.toml", "layer.squashfs"))
    machine.sifmod("remove", NAME, "--all").ok()

    top = machine.prefix  # a directory above that where uv works
    run((sys.executable, "-m", "venv", "--without-pip", top / ".venv")).ok()
    run((sys.executable, "-m", "venv", "--without-pip", home / ".venv")).ok()
    for place in (machine.top, top):
        (place / ".python-version").write_text("3.8\n")
        (place / "uv.toml").write_text('constraint-dependencies = ["helper<2"]\n[pip]\npython-version = "3.9"\n')
        (place / "pyproject.toml").write_text(
            '[project]\nname = "above"\nversion = "1"\nrequires-python = "<3.9"\n'
            '[tool.uv]\nconstraint-dependencies = ["helper<2"]\n'
        )
    write(
        home / ".config/uv/uv.toml",
        'constraint-dependencies = ["helper<2"]\n[pip]\nresolution = "lowest"\n',
    )
    odd = {
        "HOME": str(home),
        "UV_PYTHON": "3.8",
        "UV_CONSTRAINT": str(write(machine.top / "constraints.txt", "helper<2\n")),
        "UV_RESOLUTION": "lowest",
        "VIRTUAL_ENV": str(home / ".venv"),
        "CONDA_PREFIX": str(home / ".venv"),
        "PYTHONPATH": str(machine.top),
        "PIP_CONSTRAINT": "/nowhere",
        "SINGULARITYENV_UV_RESOLUTION": "lowest",
        "SINGULARITYENV_UV_PYTHON": "3.8",
        "APPTAINERENV_PYTHONPATH": str(machine.top / "own"),  # whose packages are not the image's
        "SINGULARITYENV_PYTHONOPTIMIZE": "2",  # of which the layer would have the bytecode
        "APPTAINERENV_PYTHONHOME": "/nowhere",
    }
    write(machine.top / "own/helper-2.5.dist-info/METADATA", "Metadata-Version: 2.1\nName: helper\nVersion: 2.5\n")
    write(machine.top / "own/re.py", "raise SystemExit('not mine')\n")
    told = machine.add("demo", env=odd).ok()
    assert (machine.live() / "pylock.toml").read_bytes() == lock
    assert (machine.live() / "layer.squashfs").read_bytes() == packed
    assert told.stderr.splitlines()[:1] == plain.stderr.splitlines()[:1]


def test_a_layer_for_another_image_is_not_passed_over(shared_tmp: Path, images: Images) -> None:
    """R3: without a terminal a command went on with the image's own packages, exit code 0, and nobody said so."""
    machine = make_machine(shared_tmp / "ma chine", images)
    machine.add("demo").ok()
    build = f"image:\n  build:\n    from: {images.python_sif}\n    labels: {{new: image}}\n"
    text = f"name: Python\nversion: '3.11'\ndescription: Python\n{PLAIN}\nsanity_check: {{}}\n{build}"
    easyconfig = write(machine.top / "Python-3.11.yaml", text)
    told = machine.sifmod("install", str(easyconfig), "--skip-sanity-check", "--rebuild").ok().stderr
    again = "`sifmod add Python/3.11 --onto Python/3.11`"
    assert again in told
    done = machine.python("print(1)").ok()
    assert done.stdout == "1\n"
    assert (
        f"the layer default was made for another image, and is not used; {again} makes it for this one" in done.stderr
    )


def test_packages_of_a_kind_share_a_warning(shared_tmp: Path, images: Images) -> None:
    """R9: each of them had its own, and the one that mattered was lost among fourteen."""
    machine = make_machine(shared_tmp / "ma chine", images)
    kind = ("torch", "nvidia-cublas-cu12", "nvidia-nccl-cu12", "nvidia-nvjitlink-cu12", "triton")
    wheel(machine.wheels, "torch", "2.5.1", requires=kind[1:])
    for name in kind[1:]:
        wheel(machine.wheels, name.replace("-", "_"))
    said = [line for line in machine.add("torch").ok().stderr.splitlines() if "warning" in line]
    assert said == [
        "== warning: torch 2.5.1 and 4 more of its kind are not in the image, and may not be built for the drivers and "
        "libraries of this machine"
    ]


def test_the_users_settings_of_indexes_count(shared_tmp: Path, images: Images) -> None:
    machine = make_machine(shared_tmp / "ma chine", images)
    home = machine.top / "home"
    write(home / ".config/uv/uv.toml", f'no-index = true\n[pip]\nfind-links = ["{machine.wheels}"]\n')
    machine.sifmod("add", NAME, "demo", env={"HOME": str(home)}).ok()
    relative = f'no-index = true\nfind-links = ["{os.path.relpath(machine.wheels, home / ".config/uv")}"]\n'
    write(home / ".config/uv/uv.toml", relative)
    machine.sifmod("add", NAME, "helper", env={"HOME": str(home)}).ok()
    before = machine.listing()
    write(home / ".config/uv/uv.toml", f"{relative}no-proxy = [2024-01-01]\n")
    assert "uv could not resolve this" in machine.sifmod("add", NAME, "helper", env={"HOME": str(home)}).stderr
    write(home / ".config/uv/uv.toml", "index-url = [")
    failed = machine.sifmod("add", NAME, "helper", env={"HOME": str(home)})
    assert failed.code == 2
    assert f"error: {home}/.config/uv/uv.toml, which uv reads, cannot be read: " in failed.stderr
    assert machine.listing() == before


def test_a_lock_of_a_module_names_every_layer_or_fails(shared_tmp: Path, images: Images) -> None:
    """A directory, which has no digest, was left out, and what was published had no packages."""
    machine = make_machine(shared_tmp / "ma chine", images)
    env = {"SIFMOD_MODULE_SYNTAX": "both"}
    stack = write(machine.top / "stack.yaml", "name: small\neasyconfigs: [Python-3.11.yaml]\n")
    machine.sifmod("stack", "apply", str(stack), "--skip-sanity-check", env=env).ok()
    machine.sifmod("stack", "lock", str(stack), env=env).ok()
    unlocked = (machine.top / "stack.lock").read_text()
    machine.add("demo", "--layer", "loose", "--unpacked").ok()
    ways = (("lock", "Python-3.11.yaml"), ("stack", "lock", "stack.yaml"), ("stack", "bundle", "stack.yaml", "-o", "b"))
    before = machine.listing()
    for way in ways:
        refused = machine.sifmod(*way, env=env)
        assert refused.code == 18, refused
        assert f"the layer loose of {NAME} is a directory" in refused.stderr
    assert machine.listing() == before
    assert (machine.top / "stack.lock").read_text() == unlocked
    assert not (machine.top / "Python-3.11.lock").exists()
    assert not (machine.top / "b").exists()
    found = re.search("`sifmod (layer sync [^`]*)`", refused.stderr)
    assert found, refused
    machine.sifmod(*shlex.split(found[1])).ok()
    machine.sifmod("stack", "lock", "stack.yaml", env=env).ok()
    (locked,) = json.loads((machine.top / "stack.lock").read_text())["modules"]
    assert locked["layers"].keys() == {"loose"}
    machine.sifmod("stack", "bundle", "stack.yaml", "-o", "b", "--no-wheels", env=env).ok()
    assert list(machine.top.glob("b/layers/**/layer.squashfs"))
    (receipt,) = machine.top.glob("**/layers/Python/**/live/layer.json")
    receipt.parent.resolve().chmod(0o755)
    receipt.chmod(0o644)
    receipt.write_text("{}")
    for way in (("lock", "Python-3.11.yaml"), ("stack", "lock", "stack.yaml")):
        assert f"the receipt of the layer loose of {NAME} cannot be read" in machine.sifmod(*way, env=env).stderr
    refused = machine.sifmod("stack", "bundle", "stack.yaml", "-o", "c", env=env)
    assert f"the layer loose of {NAME} does not match the lock" in refused.stderr


def test_the_files_of_a_directory_are_as_open_as_the_tree(
    shared_tmp: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had the modes of the wheel, or those that uv's cache got from an earlier umask: readers saw no packages."""
    machine = make_machine(shared_tmp / "ma chine", images)
    before = os.umask(0o077)
    try:
        machine.add("demo", "--unpacked", "--dir", "else where").ok()
        settings = write(machine.top / "settings/it.yaml", f"prefix: {machine.prefix}\nsharing: site\n")
        monkeypatch.setenv("SIFMOD_CONFIG_DIR", str(settings.parent))
        machine.sifmod("verify", "--repair-modes").ok()
        machine.add("demo", "--unpacked").ok()
    finally:
        os.umask(before)
    assert (machine.live() / "tree/lib/demo/__init__.py").stat().st_mode & 0o777 == 0o644
    assert (machine.live() / "tree/bin/demo-says").stat().st_mode & 0o777 == 0o755
    machine.sifmod("verify", "--modes").ok()
    machine.sifmod("verify").ok()
