"""A recipe upon bases with other Pythons than Debian's and conda's: where its packages go, and what stays."""

import shutil
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.image.artifact import Artifact
from sifmod.image.fetch import fetch_image
from sifmod.module.plan import ImagePlan
from support.config import write
from support.extending import base_of
from support.fetching import Prefix, plan
from support.recipes import contents, held, recipe
from support.wheels import wheel

DEBIAN, RED_HAT, UPSTREAM = ("'dist-packages'", "if 'RPM_BUILD_ROOT' not in os.environ:", "'site-packages'")
GLIBC, MUSL = "#!ELF /lib64/ld-linux-x86-64.so.2", "#!ELF /lib/ld-musl-x86_64.so.1"
NATIVE = "Root-Is-Purelib: false\n"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all that uv can take packages from."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    for version in ("2.0", "2.1"):
        wheel(directory, "torch", version)
    wheel(directory, "helper", "2.0", scripts=("helper-says",))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(directory))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return directory


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path / "prefix")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A base without a Python, to be filled."""
    top = tmp_path / "top"
    write(top / "lib/x86_64-linux-gnu/libc.so.6", "GNU C Library (Test GLIBC 2.36) stable release version 2.36.\n")
    write(top / ".singularity.d/env/10-docker2singularity.sh", "#!/bin/sh\nexport LANG=C\n")
    return top


def python(top: Path, prefix: str, version: str, site: str, *, lib: str = "lib", program: str = GLIBC) -> None:
    """A Python in `prefix` of the base, `site`: what its site.py says."""
    write(top / f"{prefix}/bin/python{version}", program).chmod(0o755)
    (top / f"{prefix}/bin/python3").symlink_to(f"python{version}")
    write(top / f"{prefix}/{lib}/python{version}/os.py", "")
    write(top / f"{prefix}/{lib}/python{version}/site.py", site)
    if site != DEBIAN:
        write(top / f"{prefix}/{lib}/python{version}/site-packages/README.txt", "")  # as each Python has it


def sif(top: Path) -> Path:
    return base_of(top, top.parent / "base.sif", "-all-root")


def made(prefix: Prefix, image: ImagePlan) -> Artifact:
    with prefix.store() as store:
        return fetch_image(image, plan().runtime, store)


def upon(prefix: Prefix, base: Path, *pip: str, **build: object) -> tuple[set[str], set[str], Artifact]:
    """The paths that a recipe adds and takes, without those of packages' metadata, and the image."""
    artifact = made(prefix, recipe(base, pip=pip, **{"path": (), **build}))
    before, after = contents(base), contents(artifact.path)
    changed = {path for path in after if before.get(path) != after[path]}
    ours = ("/.singularity", "dist-info")
    new, gone = changed, before.keys() - after.keys()
    return (
        {path for path in new if not any(each in path for each in ours)},
        {path for path in gone if not any(each in path for each in ours)},
        artifact,
    )


@pytest.mark.usefixtures("wheels")
def test_a_red_hat_python(top: Path, prefix: Prefix) -> None:
    """It has site-packages, in lib64 too, and in /usr/local; Debian's dist-packages mean nothing there."""
    python(top, "usr", "3.9", RED_HAT, lib="lib64")
    held(top / "usr/local/lib64/python3.9/site-packages", "torch", "2.0", wheel=NATIVE)
    base = sif(top)
    new, gone, image = upon(prefix, base, "helper")
    assert (new, gone) == ({"/usr/lib/python3.9/site-packages/helper/__init__.py", "/usr/bin/helper-says"}, set())
    assert contents(image.path)["/usr/bin/helper-says"].startswith(b"#!/usr/bin/python3.9\n")
    assert "the image keeps torch 2.0; 1 package is added" in image.notes
    with pytest.raises(FetchError, match=r"torch==2\.1 is required; the image has torch 2\.0, which stays"):
        upon(prefix, base, "torch==2.1")


@pytest.mark.usefixtures("wheels")
def test_upstreams_python_in_usr(top: Path, prefix: Prefix) -> None:
    python(top, "usr", "3.12", UPSTREAM)
    new, _, _ = upon(prefix, sif(top), "helper")
    assert new == {"/usr/lib/python3.12/site-packages/helper/__init__.py", "/usr/bin/helper-says"}


@pytest.mark.usefixtures("wheels")
def test_of_two_in_one_directory_the_one_that_python3_is(top: Path, prefix: Prefix) -> None:
    python(top, "usr", "3.11", DEBIAN)
    write(top / "usr/bin/python3.12", GLIBC).chmod(0o755)
    write(top / "usr/lib/python3.12/os.py", "")
    write(top / "usr/lib/python3.12/site.py", DEBIAN)
    new, _, image = upon(prefix, sif(top), "helper")
    assert new == {"/usr/local/lib/python3.11/dist-packages/helper/__init__.py", "/usr/local/bin/helper-says"}
    assert contents(image.path)["/usr/local/bin/helper-says"].startswith(b"#!/usr/bin/python3.11\n")


@pytest.mark.usefixtures("wheels")
def test_a_venv_with_the_systems_packages(top: Path, prefix: Prefix) -> None:
    """They stay as its own do; what is used in the place of one of the system's is put beside it."""
    python(top, "usr", "3.11", DEBIAN)
    held(top / "usr/local/lib/python3.11/dist-packages", "torch", "2.0", wheel=NATIVE)
    held(top / "usr/local/lib/python3.11/dist-packages", "helper", "1.0", ("old.py",))
    (top / "opt/venv/bin").mkdir(parents=True)
    (top / "opt/venv/bin/python3").symlink_to("/usr/bin/python3")
    write(top / "opt/venv/bin/activate", "")
    write(top / "opt/venv/lib/python3.11/site-packages/_virtualenv.pth", "")
    write(top / "opt/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\n")
    base, path = sif(top), {"path": ("/opt/venv/bin",)}
    new, gone, image = upon(prefix, base, "helper==2.0", **path)
    library = "/opt/venv/lib/python3.11/site-packages"
    assert (new, gone) == ({f"{library}/helper/__init__.py", "/opt/venv/bin/helper-says"}, set())
    assert any(note.startswith("the image keeps torch 2.0") for note in image.notes)
    assert not any("warning" in note for note in image.notes)
    with pytest.raises(FetchError, match=r"torch==2\.1 is required; the image has torch 2\.0, which stays"):
        upon(prefix, base, "torch==2.1", **path)


@pytest.mark.usefixtures("wheels")
def test_what_pythonpath_names_is_held_and_replaced_there(top: Path, prefix: Prefix) -> None:
    """And a RECORD there takes nothing out of other places."""
    python(top, "usr/local", "3.12", UPSTREAM)
    write(top / ".singularity.d/env/10-docker2singularity.sh", "#!/bin/sh\nexport PYTHONPATH=/opt/more\n")
    held(top / "opt/more", "helper", "1.0", ("__init__.py", "old.py", "../../etc/passwd"))
    new, gone, _ = upon(prefix, sif(top), "helper==2.0")
    library = "/usr/local/lib/python3.12/site-packages"
    assert new == {f"{library}/helper/__init__.py", "/usr/local/bin/helper-says"}
    assert gone == {"/opt/more/helper/__init__.py", "/opt/more/helper/old.py"}


@pytest.mark.usefixtures("wheels")
def test_the_c_library_is_that_of_the_python(top: Path, prefix: Prefix, wheels: Path) -> None:
    """Though the image has the other one's loader too."""
    wheel(wheels, "native", "1.0").rename(wheels / "native-1.0-cp312-abi3-manylinux_2_28_x86_64.whl")
    wheel(wheels, "native", "2.0").rename(wheels / "native-2.0-cp312-abi3-musllinux_1_2_x86_64.whl")
    python(top, "usr/local", "3.12", UPSTREAM)
    write(top / "lib/ld-musl-x86_64.so.1", "")
    _, _, image = upon(prefix, sif(top), "native")
    library = "/usr/local/lib/python3.12/site-packages"
    assert f"{library}/native-1.0.dist-info/METADATA" in contents(image.path)
    shutil.rmtree(top / "usr")
    python(top, "usr/local", "3.12", UPSTREAM, program=MUSL)
    _, _, image = upon(prefix, sif(top), "native")
    assert f"{library}/native-2.0.dist-info/METADATA" in contents(image.path)


@pytest.mark.usefixtures("wheels")
def test_a_file_of_two_distributions_stays_with_the_other(top: Path, prefix: Prefix) -> None:
    python(top, "usr/local", "3.12", UPSTREAM)
    library = top / "usr/local/lib/python3.12/site-packages"
    held(library, "helper", "1.0", ("old.py", "../shared/both.py"))
    held(library, "other", "1.0", ("__init__.py", "../shared/both.py"))
    _, gone, _ = upon(prefix, sif(top), "helper==2.0")
    assert gone == {"/usr/local/lib/python3.12/site-packages/helper/old.py"}


def test_a_file_in_the_place_of_another_takes_its_bytecode_along(top: Path, prefix: Prefix, tmp_path: Path) -> None:
    for name in (
        "x.py",
        "__pycache__/x.cpython-311.pyc",
        "__pycache__/x.cpython-311.opt-1.pyc",
        "__pycache__/xy.1.pyc",
    ):
        write(top / "opt/app" / name, "old")
    write(tmp_path / "x.py", "new\n")
    new, gone, _ = upon(prefix, sif(top), files=((f"{tmp_path}/x.py", "/opt/app/x.py"),))
    assert new == {"/opt/app/x.py"}
    assert gone == {f"/opt/app/__pycache__/x.cpython-311{each}.pyc" for each in ("", ".opt-1")}


def test_two_files_that_would_be_one_of_the_image_are_refused(top: Path, prefix: Prefix, tmp_path: Path) -> None:
    for name in ("one/deep/x", "two/deep/x", "two/deep/y"):
        write(tmp_path / "files" / name, name)
    both = ((f"{tmp_path}/files/one", "/opt"), (f"{tmp_path}/files/two", "/opt/"))
    base = sif(top)
    there = prefix.state(top)
    with pytest.raises(FetchError, match=r"/one/deep/x and .*/two/deep/x would both become /opt/deep/x in the image"):
        upon(prefix, base, files=both)
    assert prefix.state(top) == there
    (tmp_path / "files/two/deep/x").unlink()
    new, _, _ = upon(prefix, base, files=both)
    assert new == {"/opt/deep/x", "/opt/deep/y"}


@pytest.mark.parametrize("name", ["a\n%post\n    touch x", "a\rb", "a\tb", "a\x9bb", "a\u202eb"])
def test_a_name_that_would_be_a_section_of_the_definition_is_refused(
    top: Path, prefix: Prefix, tmp_path: Path, name: str
) -> None:
    write(tmp_path / "files" / name, "")
    base = sif(top)
    there = prefix.state(top)
    with pytest.raises(FetchError, match="has an unprintable character in its name") as caught:
        upon(prefix, base, files=((f"{tmp_path}/files", "/opt"),))
    assert name not in caught.value.message
    assert prefix.state(top) == there


@pytest.mark.usefixtures("wheels")
def test_where_what_stays_is_in_another_python_the_author_says_which(top: Path, prefix: Prefix) -> None:
    python(top, "usr", "3.11", DEBIAN)
    python(top, "opt/conda/envs/ml", "3.11", UPSTREAM)
    write(top / "opt/conda/conda-meta/history", "")
    held(top / "opt/conda/envs/ml/lib/python3.11/site-packages", "torch", "2.0", wheel=NATIVE)
    base = sif(top)
    there = prefix.state(top)
    with pytest.raises(FetchError) as caught:
        upon(prefix, base, "helper")
    told = "packages would go to the Python in /usr, but torch of the base is in /opt/conda/envs/ml"
    ways = "`conda: {prefix: /opt/conda, env: ml}` in the easyconfig, or `path: [/usr/bin]`"
    assert told in caught.value.message
    assert f"select one of them: {ways}" in f"{caught.value.message}{caught.value.hint}"
    assert prefix.state(top) == there
    new, _, _ = upon(prefix, base, "helper", path=("/usr/bin",))
    assert new == {"/usr/local/bin/helper-says", "/usr/local/lib/python3.11/dist-packages/helper/__init__.py"}
