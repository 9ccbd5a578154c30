"""A stack that is promoted, bundled, and applied by the bundle's own sifmod, elsewhere, without a network."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from sifmod.actions.stack.own_wheels import write_own_wheels
from support.config import write
from support.disk_state import disk_state
from support.identity import sifmod
from support.images import Images
from support.user import ordinary_user

SKIP = "--skip-sanity-check"
NO_NETWORK = ("unshare", "--user", "--map-root-user", "--net")
HERE = """\
site: ours
module_syntax: both
image_dirs: [/no/images]
driver_runs: {cuda: ['<12']}
warn_without_version: true
"""
ELSEWHERE = """\
site: theirs
module_syntax: tcl
warn_without_version: false
env: {FOREIGN: here}
"""


def _sifmod(*words: object, env: Mapping[str, str], cwd: Path) -> str:
    return sifmod([str(word) for word in words], env, cwd).ok().stderr


def _python(place: Path) -> Path:
    """A Python that every user can run: a copy, where the one of the tests is in a closed home directory."""
    python = Path(sys.executable).resolve()
    if all(directory.stat().st_mode & 0o001 for directory in python.parents):
        return python
    library = Path(os.__file__).parent
    without = shutil.ignore_patterns("test", "__pycache__", "site-packages", "config-*", "idlelib", "*.a")
    shutil.copytree(library, place / "lib" / library.name, ignore=without)
    for shared in library.parent.glob("libpython*.so*"):
        shutil.copy(shared, place / "lib")
    (place / "bin").mkdir()
    return Path(shutil.copy(python, place / "bin"))


def _tree(prefix: Path, stack: Path) -> dict[str, bytes]:
    """Every generated file, with a word for the two places that it may name: the prefix, and that of the stack."""
    found = {}
    for path in (*prefix.glob("modules/**/*"), *prefix.glob("software/**/*")):
        if path.is_file() and path.suffix not in (".json", ".sif"):
            text = path.read_bytes().replace(os.fsencode(stack), b"STACK").replace(os.fsencode(prefix), b"PREFIX")
            found[str(path.relative_to(prefix))] = text
    return found


def test_elsewhere_the_bundle_gives_the_same_bytes(shared_tmp: Path, images: Images) -> None:
    """As another user, by the sifmod of its wheels, with settings that differ; then with one more site file."""
    here = shared_tmp / "a place"
    stack, home = here / "stack", here / "home"
    repository = here / "some images"
    write(repository / "tiny.sif", "")
    (repository / "tiny.sif").write_bytes(images.tiny_sif.read_bytes())
    for name, more in (("One", "env: {ONE: x}"), ("Two", "variants: {a: {versionsuffix: -a}, b: {versionsuffix: -b}}")):
        image = "image: {sources: ['${IMAGES}/tiny.sif'], filename: tiny.sif}\nwrappers: [sh]"
        write(stack / f"{name}-1.yaml", f"name: {name}\nversion: '1'\n{image}\n{more}\n")
    two = "  - easyconfig: Two-1.yaml\n    variants: [a, b]\n"
    write(stack / "stack.yaml", f"name: ours\neasyconfigs:\n  - One-1.yaml\n{two}")
    write(home / ".config/sifmod/config.yaml", HERE)
    write(home / ".config/sifmod/sites/ours.yaml", "env: {OF_THE_SITE: ours}\ngpus_per_node: 7\n")
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SIFMOD_", "XDG_"))},
        "HOME": str(home),
        "IMAGES": str(repository),
        "SIFMOD_PREFIX": str(here / "staging"),
    }
    _sifmod("stack", "apply", "stack.yaml", SKIP, env=env, cwd=stack)
    _sifmod("stack", "lock", "stack.yaml", env=env, cwd=stack)
    production = {**env, "SIFMOD_PREFIX": str(here / "production")}
    _sifmod("stack", "apply", "stack.yaml", SKIP, "--locked", "--from", here / "staging", env=production, cwd=stack)
    bundle = here / "it.tar"
    _sifmod("stack", "bundle", "stack.yaml", "-o", bundle, env=production, cwd=stack)
    with tarfile.open(bundle) as archive, archive.extractfile("bundle.json") as file:  # type: ignore[union-attr]
        head = json.loads(file.read())
    assert head["variables"] == {"IMAGES": str(repository)}

    elsewhere = shared_tmp / "else where"
    elsewhere.mkdir(mode=0o755)
    subprocess.run(("tar", "-xf", bundle, "-C", elsewhere, "--wildcards", "wheels/*"), check=True)
    subprocess.run((_python(elsewhere / "a python"), "-m", "venv", elsewhere / "venv"), check=True)
    pip = (elsewhere / "venv/bin/pip", "install", "-q", "--no-index", "--find-links", elsewhere / "wheels", "sifmod")
    subprocess.run((*NO_NETWORK, *pip), check=True)
    their_home = elsewhere / "home of them"
    their_home.mkdir()
    write(their_home / ".config/sifmod/config.yaml", ELSEWHERE)
    write(their_home / ".config/sifmod/sites/theirs.yaml", "gpus_per_node: 2\n")
    (repository / "tiny.sif").unlink()
    user = ordinary_user(their_home)
    user.own(elsewhere)
    bundle.chmod(0o644)
    prefix = their_home / "tree"
    their = {"LD_LIBRARY_PATH": str(elsewhere / "a python/lib")}  # of a Python that was copied
    theirs = (*NO_NETWORK, str(elsewhere / "venv/bin/sifmod"))
    apply = (*theirs, "stack", "apply", "--bundle", str(bundle), SKIP, "--prefix")
    done = user.run((*apply, str(prefix)), their)
    assert done.code == 0, done.stderr
    for said in ("image_dirs: /no/images in the bundle, (none) here", "gpus_per_node: 7 in the bundle, 2 here"):
        assert said in done.stderr
    wanted = _tree(here / "production", stack)
    assert len(wanted) > 10
    assert _tree(prefix, prefix / "stacks/ours") == wanted

    write(their_home / ".config/sifmod/sites/another.yaml", "gpus_per_node: 3\ndetect: {paths: [/]}\n")
    user.own(their_home)
    done = user.run((*apply, str(their_home / "second")), their)
    assert done.code == 0, done.stderr
    assert _tree(their_home / "second", their_home / "second/stacks/ours") == wanted
    done = user.run((*apply, str(their_home / "third"), "--local-settings"), their)
    assert done.code != 0
    assert "warn_without_version: True in the bundle, False here" in done.stderr
    assert not [*(their_home / "third").glob("software/*")]


def test_what_a_sifmod_lacks_is_told_and_no_bundle_is_left(tmp_path: Path, images: Images) -> None:
    """Of an ordinary install, and of a clone as `pip install -e` has it."""
    here, wheels, venv, clone = (tmp_path / name for name in ("a place", "the wheels", "venv", "a clone"))
    wheels.mkdir()
    write_own_wheels(wheels)
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", venv), check=True)
    words = ("-q", "--offline", "--no-index", "--find-links", wheels, "--python", venv / "bin/python", "sifmod")
    subprocess.run((Path(sys.executable).with_name("uv"), "pip", "install", *words), check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    image = f"image: {{sources: ['{images.tiny_sif}'], filename: tiny.sif}}"
    write(here / "One-1.yaml", f"name: One\nversion: '1'\n{image}\n")
    write(here / "stack.yaml", "name: ours\neasyconfigs: [One-1.yaml]\n")
    (here / "temporary").mkdir()
    env = {**os.environ, "SIFMOD_PREFIX": str(here / "prefix"), "TMPDIR": str(here / "temporary")}
    for verb in (("apply", SKIP), ("lock",)):
        _sifmod("stack", verb[0], "stack.yaml", *verb[1:], env=env, cwd=here)
    bundle = (venv / "bin/sifmod", "stack", "bundle", "stack.yaml", "-o", "it.tar")

    def refused(gone: Path, said: str) -> None:
        kept = gone.rename(tmp_path / "kept")
        before = disk_state(here)
        done = subprocess.run(bundle, env=env, cwd=here, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert said in done.stderr
        assert disk_state(here) == before
        kept.rename(gone)

    easyconfig = packages / "sifmod/easyconfigs/PyTorch/PyTorch-2.13.0.yaml"
    refused(easyconfig, f"sifmod is incomplete: {easyconfig} cannot be read")
    refused(packages / "idna/py.typed", f"idna is incomplete: {packages}/idna/py.typed cannot be read")
    refused(next(packages.glob("zstandard-*.dist-info")), "zstandard, which sifmod needs, is not installed")

    clone.mkdir()
    for name in ("sifmod/easyconfigs", "sifmod", "sifmod_command.py"):
        (packages / name).rename(clone / Path(name).name)
    write(packages / "_editable_impl_sifmod.pth", f"{clone}\n")
    record = next(packages.glob("sifmod-*.dist-info")) / "RECORD"
    lines = record.read_text().splitlines()
    kept = (line for line in lines if line[:7] not in ("sifmod/", "sifmod_"))
    record.write_text("\n".join(["_editable_impl_sifmod.pth,,", *kept]))
    refused(clone / "easyconfigs", f"there is no site 'generic' in {clone}/easyconfigs/sites")
    refused(clone, "No module named 'sifmod")
    subprocess.run(bundle, env=env, cwd=here, check=True)
    subprocess.run(("tar", "-xf", here / "it.tar", "-C", tmp_path), check=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "wheels").iterdir()} == {
        path.name: path.read_bytes() for path in wheels.iterdir()
    }
