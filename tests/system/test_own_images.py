"""Images of one's own, from a recipe to a module that is used: by whom nothing is allowed, and after a kill."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sifmod.digest import sha256_file
from support.command import SIFMOD, Result, run
from support.config import write
from support.disk_state import is_there
from support.images import Images
from support.layered import Machine
from support.recipes import base, contents
from support.runtime import RUNTIME
from support.user import OrdinaryUser
from support.wheels import wheel

RECIPE = """
name: {name}
version: '1.0'
image:
  build:
    from: {base}
    pip: [demo]
    files: {{data/: /opt/data}}
    env: {{FLAVOUR: 'sour $1'}}
conda: {{prefix: /opt/miniconda3, env: pytorch}}
wrappers: [python, demo-says]
"""
# there can be no user namespace, there is no runtime, and nobody has a capability
_NOTHING = (
    *("unshare", "--user", "--map-root-user", "sh", "-ec"),
    "echo 0 >/proc/sys/user/max_user_namespaces; ! unshare --user true 2>&-; ! command -v apptainer singularity;"
    ' exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"',
    "sh",
)


def wheels_of(machine: Machine) -> dict[str, str]:
    """The variables with which uv finds wheels in the machine's directory alone."""
    machine.wheels.mkdir()
    wheel(machine.wheels, "demo", requires=("torch",), scripts=("demo-says",))
    wheel(machine.wheels, "fsspec", "9999.0")
    return {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(machine.wheels)}


def test_it_is_built_without_namespaces_capabilities_or_runtime(tmp_path: Path, images: Images) -> None:
    machine = Machine(tmp_path / "machine")
    machine.top.mkdir()
    variables = {**machine.env(), **wheels_of(machine)}
    write(machine.top / "data/a.txt", "file\n")
    recipe = RECIPE.format(name="Own", base=images.pytorch_sif)
    easyconfig = write(machine.top / "Own-1.0.yaml", recipe.replace("[demo]", "[demo, fsspec==9999]"))
    words = (*SIFMOD, "install", easyconfig, "--skip-sanity-check", "--module-syntax", "lua")
    told = run((*_NOTHING, *words), env={**variables, "PATH": "/usr/bin:/bin"}).ok().stderr
    assert "the image keeps torch 2" in told
    assert "fsspec 9999.0 is used instead of the image's" in told

    code = (
        "import torch, demo, fsspec, os, importlib.metadata as m; "
        "print(demo.__version__, fsspec.__version__, m.version('fsspec'), os.environ['FLAVOUR'],"
        " open('/opt/data/a.txt').read(), hasattr(fsspec, 'core'))"
    )
    commands = machine.prefix / "software/Own/1.0/bin"
    env = machine.env()
    assert run((commands / "python", "-c", code), env=env).ok().stdout == "1.0 9999.0 9999.0 sour $1 file\n False\n"
    says = run((commands / "demo-says",), env=env).ok()
    assert says.stdout == "demo-says 1.0 /opt/miniconda3/envs/pytorch\n"


CONDA = """
name: Own
version: '1.0'
image:
  build:
    from: {base}
    pip: [demo, packaging==24.2]
    files: {{data/: /opt/data}}
    env: {{FLAVOUR: sour}}
path+: [/opt/conda/bin]
wrappers: [python, demo-says]
"""


# an ordinary user without any capability, who can make no user namespace
_CLOSED = (
    *("unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-ec"),
    "echo 0 >/proc/sys/user/max_user_namespaces;"
    ' exec setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs -- "$@"',
    "sh",
)
_PYTHON = "/usr/bin/python3"  # that of the tests may be closed to an ordinary user
_SAME = run((_PYTHON, "-c", "import sys; print(*sys.version_info[:2])")).stdout.split() == list(
    map(str, sys.version_info[:2])
)


@pytest.mark.skipif(not _SAME, reason="the machine's Python cannot take what is installed for that of the tests")
@pytest.mark.skipif(RUNTIME.kind != "apptainer", reason="a runtime with setuid builds without namespaces")
def test_a_user_builds_it_where_no_namespace_can_be_made(
    shared_tmp: Path, ordinary_user: OrdinaryUser, images: Images
) -> None:
    """Where the runtime cannot build; it has the same bytes elsewhere, and is used where namespaces are open again."""
    machine = Machine(shared_tmp / "machine")
    machine.top.mkdir()
    variables = {**wheels_of(machine), "UV_CACHE_DIR": str(machine.top / "uv")}
    wheel(machine.wheels, "demo", requires=("tqdm",), scripts=("demo-says",))
    wheel(machine.wheels, "packaging", "24.2")
    write(machine.top / "data/a.txt", "file\n")
    base = shutil.copyfile(images.conda_sif, machine.top / "base.sif")
    easyconfig = write(machine.top / "Own-1.0.yaml", CONDA.format(base=base))
    definition = write(machine.top / "x.def", f"Bootstrap: localimage\nFrom: {base}\n%post\n  true\n")
    ordinary_user.own(machine.top)

    path = os.pathsep.join(entry for entry in sys.path if not entry.startswith(sys.base_prefix))
    install = (_PYTHON, "-m", "sifmod", "install", easyconfig, "--skip-sanity-check")

    def there(*words: str | Path) -> Result:
        env = {**variables, "PYTHONPATH": path, "SIFMOD_PREFIX": str(machine.prefix)}
        return ordinary_user.run((*_CLOSED, *words), env=env, cwd=machine.top)

    assert "unshare failed" in there("unshare", "--user", "true").stderr
    before = sorted(machine.top.iterdir())
    for options in ((), ("--fakeroot",)):
        refused = there(RUNTIME.path, "build", *options, machine.top / "new.sif", definition)
        assert re.search("unprivileged user namespaces|no user namespace available for fakeroot", refused.stderr)
        assert (refused.code, sorted(machine.top.iterdir())) == (255, before)
    there(*install).ok()
    (sif,) = machine.prefix.glob("software/Own/1.0/*.sif")
    assert sif.resolve().stat().st_uid == ordinary_user.user.uid

    elsewhere = machine.top / "elsewhere"
    run((*SIFMOD, *install[3:]), env={**machine.env(), **variables, "SIFMOD_PREFIX": str(elsewhere)}).ok()
    (same,) = elsewhere.glob("software/Own/1.0/*.sif")
    assert same.resolve().name == sif.resolve().name == f"{sha256_file(sif)}.sif"
    says = ordinary_user.run((machine.prefix / "software/Own/1.0/bin/demo-says",)).ok()
    assert says.stdout == "demo-says 1.0 /opt/conda\n"


def test_a_package_of_conda_is_replaced_as_a_whole(tmp_path: Path, images: Images) -> None:
    """In an environment that a real conda implementation has made; tqdm, which is conda's too, stays conda's."""
    machine = Machine(tmp_path / "machine")
    machine.top.mkdir()
    variables = wheels_of(machine)
    wheel(machine.wheels, "demo", requires=("tqdm",), scripts=("demo-says",))
    wheel(machine.wheels, "packaging", "24.2")
    write(machine.top / "data/a.txt", "file\n")
    write(machine.top / "Own-1.0.yaml", CONDA.format(base=images.conda_sif))
    before = contents(images.conda_sif, "/opt/conda")
    (record,) = (path for path in before if path.startswith("/opt/conda/conda-meta/packaging-23.2-"))
    owned = {f"/opt/conda/{path}" for path in json.loads(before[record])["files"]}
    told = machine.sifmod("install", "Own-1.0.yaml", "--skip-sanity-check", env=variables).ok().stderr
    assert "packaging 24.2 is used instead of the image's 23.2" in told

    (sif,) = machine.prefix.glob("software/Own/1.0/*.sif")
    after = contents(sif, "/opt/conda")
    new = "/opt/conda/lib/python3.11/site-packages/packaging/__init__.py"
    assert len(owned) > 20
    assert before.keys() - after.keys() == {record, *owned} - {new}
    code = (
        "import packaging, demo, tqdm, os, sys; print(packaging.__version__, tqdm.__version__, os.environ['FLAVOUR'])"
    )
    commands = machine.prefix / "software/Own/1.0/bin"
    assert run((commands / "python", "-c", code), env=machine.env()).ok().stdout == "24.2 4.66.1 sour\n"
    assert run((commands / "demo-says",), env=machine.env()).ok().stdout == "demo-says 1.0 /opt/conda\n"
    bill = json.loads(machine.sifmod("sbom", "Own/1.0").ok().stdout)
    said = {(one["name"], one["value"]) for one in bill["metadata"]["component"]["properties"]}
    assert ("sifmod:image:base", f"sha256:{sha256_file(images.conda_sif)}") in said
    named = [one.get("purl", "") for one in bill["components"]]
    assert {purl for purl in named if "/packaging@" in purl} == {"pkg:pypi/packaging@24.2"}
    assert {purl for purl in named if "/tqdm@" in purl} == {"pkg:conda/tqdm@4.66.1", "pkg:pypi/tqdm@4.66.1"}


def test_one_easyconfig_is_the_base_of_two(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine")
    machine.top.mkdir()
    variables, sif = wheels_of(machine), base(machine.top)
    write(machine.top / "data/a.txt", "file\n")
    write(machine.top / "Base-1.0.yaml", f"name: Base\nversion: '1.0'\nimage: {{sources: [{sif}]}}\n")
    recipe = RECIPE.replace("conda: {{prefix: /opt/miniconda3, env: pytorch}}", "path+: [/opt/env/bin]")
    for name in ("One", "Two"):
        write(machine.top / f"{name}-1.0.yaml", recipe.format(name=name, base="./Base-1.0.yaml"))

    def sifmod(*words: str) -> str:
        return machine.sifmod(*words, env=variables).ok().stderr

    assert machine.sifmod("check", "One-1.0.yaml").ok().stdout == "One-1.0.yaml: ok: One/1.0\n"
    shown = machine.sifmod("show", "One-1.0.yaml").ok().stdout
    assert "    from: ./Base-1.0.yaml\n" in shown
    assert "      data/: /opt/data\n" in shown
    machine.top.chmod(0o755)
    listed = run((*SIFMOD, "search", "one"), env={**machine.env(), "SIFMOD_ROBOT_PATHS": str(machine.top)}).ok().stdout
    assert listed.endswith("built from ./Base-1.0.yaml\n")
    dry = machine.sifmod("install", "--dry-run", "One-1.0.yaml", env=variables).ok().stdout
    assert f"image        build {sif} with demo, data" in dry
    assert "1 package is added" in sifmod("install", "One-1.0.yaml", "--skip-sanity-check")
    second = sifmod("install", "Two-1.0.yaml", "--skip-sanity-check")
    assert "an earlier build of the same recipe is used" in second
    images = machine.prefix.glob("software/*/1.0/*.sif")
    assert len({path.resolve().name for path in images}) == 1

    sifmod("install", "One-1.0.yaml", "--skip-sanity-check")
    write(machine.top / "data/a.txt", "another\n")
    assert "1 package is added" in sifmod("install", "One-1.0.yaml", "--skip-sanity-check")
    own = next(machine.prefix.glob("software/One/1.0/*.sif"))
    assert contents(own, "/opt/data") == {"/opt/data/a.txt": b"another\n"}

    there = machine.listing()
    (machine.top / "data/a.txt").unlink()
    (machine.top / "data").rmdir()
    failed = machine.sifmod("install", "One-1.0.yaml", "--skip-sanity-check", env=variables)
    assert (failed.code, "the image One-1.0.sif could not be built" in failed.stderr) == (10, True)
    assert machine.listing() == there


def test_new_writes_a_recipe_that_can_be_installed(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine")
    machine.top.mkdir()
    variables, sif = wheels_of(machine), base(machine.top)
    words = ("new", "--from", str(sif), "--pip", "demo", "--name", "Own", "--version", "1.0", "-o", "Own.yaml")
    machine.sifmod(*words, env=variables).ok()
    text = (machine.top / "Own.yaml").read_text()
    assert f"  build:\n    # the base: a file on this machine\n    from: {sif}\n" in text
    assert "    pip: [demo]\n" in text
    machine.sifmod("install", "Own.yaml", "--skip-sanity-check", env=variables).ok()
    (made,) = machine.prefix.glob("software/Own/*/*.sif")
    assert "/opt/env/lib/python3.11/site-packages/demo/__init__.py" in contents(made)
    for asked, message in (
        (("--from", str(sif)), "give either an image, or --from BASE with --pip PACKAGE"),
        (("--from", str(sif), "--pip", "-r x", "-o", "x.yaml"), "--pip: '-r x' is not a requirement"),
        ((str(sif), "--pip", "six"), "give either an image, or --from BASE with --pip PACKAGE"),
    ):
        refused = machine.sifmod("new", *asked)
        assert (refused.code, message in refused.stderr) == (2, True)
    assert sorted(path.name for path in machine.top.glob("*.yaml")) == ["Own.yaml"]


@pytest.mark.parametrize("part", range(4))
def test_a_killed_build_leaves_nothing_that_is_used(tmp_path: Path, part: int) -> None:
    machine = Machine(tmp_path / "machine")
    machine.top.mkdir()
    variables, sif = wheels_of(machine), base(machine.top)
    write(machine.top / "data/a.bin", os.urandom(1 << 20).hex())
    recipe = RECIPE.replace("conda: {{prefix: /opt/miniconda3, env: pytorch}}", "path+: [/opt/env/bin]")
    write(machine.top / "Own-1.0.yaml", recipe.format(name="Own", base=sif))
    words = (*SIFMOD, "install", "Own-1.0.yaml", "--skip-sanity-check")
    process = subprocess.Popen(
        words, env={**machine.env(), **variables}, cwd=machine.top, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    seen = ("**/wanted.in", "**/pinned.txt", "**/*.extending", "images/sha256/*.sif")[part]
    while process.poll() is None and not is_there(machine.prefix, seen):
        time.sleep(0.002)
    if process.poll() is None:
        os.killpg(process.pid, 9)
    process.wait()
    for image in machine.prefix.glob("images/sha256/*.sif"):
        assert sha256_file(image) == image.stem
    machine.sifmod("install", "Own-1.0.yaml", "--skip-sanity-check", env=variables).ok()
    (made,) = machine.prefix.glob("software/Own/1.0/*.sif")
    assert sha256_file(made) == made.resolve().stem
    assert "/opt/env/lib/python3.11/site-packages/demo/__init__.py" in contents(made)
    assert not list(machine.prefix.rglob("*.extending"))
