"""The runscripts keep what libraries compile on the node, apart for each user, job and image."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from plans import IMAGE, plan
from support.command import run
from support.generation import SHELLS
from support.runscripts import CACHES, SHOW, Runscripts, step
from support.user import ONLY_ROOT

BOTH = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
NAMES = {
    "rocm": {*BOTH, "MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "AITER_JIT_DIR"},
    "cuda": {*BOTH, "CUDA_CACHE_PATH"},
    "none": {*BOTH},
}


def caches(runscripts: Runscripts, env: dict[str, str], shell: tuple[str, ...] = ("dash",)) -> dict[str, str]:
    found = runscripts.environment(env, shell, caches=True)
    return {name: value for name, value in found.items() if name in CACHES}


def top(found: dict[str, str]) -> Path:
    """The one directory that all of them are in."""
    (directory,) = {Path(value).parent for value in found.values()}
    return directory


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("accelerator", NAMES)
def test_made_when_needed(tmp_path: Path, accelerator: str, shell: tuple[str, ...]) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator=accelerator))
    found = caches(runscripts, step(0), shell)
    assert set(found) == NAMES[accelerator]
    directory = top(found)
    assert (directory.parent, directory.stat().st_mode & 0o777) == (tmp_path, 0o700)
    assert directory.name.startswith(f"sifmod-{os.getuid()}-4711-")
    assert all(Path(value).is_dir() for value in found.values())


@pytest.mark.parametrize("name", ["conda-python-simple", "torchrun-distributed"])
def test_the_other_runscripts_have_them_too(tmp_path: Path, name: str) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator="cuda"))
    if name == "torchrun-distributed":  # torchrun here is a Python that says its environment
        module = tmp_path / "lib" / "torch" / "distributed"
        module.mkdir(parents=True)
        for package in (module, module.parent):
            (package / "__init__.py").touch()
        (module / "run.py").write_text(
            "import json, os, sys; json.dump([dict(os.environ), sys.argv[1:]], sys.stdout)\n"
        )
        result = runscripts.run(name, env={**step(0), "PYTHONPATH": str(tmp_path / "lib")})
    else:
        result = runscripts.run(name, *SHOW, env=step(0))
    assert result.ok().stderr == ""
    assert NAMES["cuda"] <= set(json.loads(result.stdout)[0])


def test_apart_for_each_job_and_image(tmp_path: Path) -> None:
    runscripts = Runscripts(tmp_path, plan())
    other = Runscripts(tmp_path / "other", plan(image=replace(IMAGE, sha256="1" * 64)))
    here = {"TMPDIR": str(tmp_path)}
    found = [
        top(caches(runscripts, {**step(0), **here})),
        top(caches(runscripts, {**step(0, job=4712), **here})),
        top(caches(other, {**step(0), **here})),
        top(caches(runscripts, here)),  # outside a job
    ]
    assert len(set(found)) == 4
    assert {directory.parent for directory in found} == {tmp_path}


def test_ranks_share_them_and_none_removes_any(tmp_path: Path) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator="rocm"))
    directory = top(caches(runscripts, step(0)))
    (directory / "miopen" / "kernels").write_text("compiled")
    for task in range(4):
        assert top(caches(runscripts, step(task))) == directory
    assert (directory / "miopen" / "kernels").read_text() == "compiled"


def test_many_ranks_at_once(tmp_path: Path) -> None:
    runscripts = Runscripts(tmp_path, plan(accelerator="rocm"))
    command = [
        "dash",
        str(runscripts.directory / "conda-python-distributed"),
        "-c",
        "import os; print(os.environ['AITER_JIT_DIR'])",
    ]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TMPDIR": str(tmp_path), **step(0)}
    ranks = [subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE) for _ in range(16)]
    assert len({rank.communicate()[0] for rank in ranks}) == 1
    assert {rank.returncode for rank in ranks} == {0}


@pytest.mark.parametrize("value", ["/mine", ""])
@pytest.mark.parametrize("name", sorted(NAMES["rocm"]))
def test_the_users_own_stay(tmp_path: Path, name: str, value: str) -> None:
    found = caches(Runscripts(tmp_path, plan(accelerator="rocm")), {**step(0), name: value})
    assert set(found) == NAMES["rocm"] - {name}


def test_where_the_site_says(tmp_path: Path) -> None:
    place = tmp_path / "local $(touch x) disk"
    runscripts = Runscripts(tmp_path, plan(cache_directory=str(place)))
    assert top(caches(runscripts, step(0))).parent == tmp_path  # it is not there: TMPDIR
    place.mkdir()
    assert top(caches(runscripts, step(0))).parent == place


@pytest.mark.parametrize("tmpdir", ["/nonexistent", "relative", "", "/proc"])
def test_elsewhere_where_tmpdir_cannot_be_used(tmp_path: Path, tmpdir: str) -> None:
    found = caches(Runscripts(tmp_path, plan()), {**step(0, job=os.getpid()), "TMPDIR": tmpdir})
    directory = top(found)
    assert directory.parent == Path("/tmp")
    for path in (*directory.iterdir(), directory):
        path.rmdir()


def test_not_on_a_network_file_system(tmp_path: Path) -> None:
    """The kernel's table of mounts is faked: there is no Lustre here."""
    runscripts = Runscripts(tmp_path, plan())
    script = runscripts.directory / "conda-python-distributed"
    mounts = tmp_path / "mounts"
    script.chmod(0o755)
    script.write_text(script.read_text().replace("/proc/self/mounts", str(mounts)))
    scratch = tmp_path / "scratch"
    (scratch / "local").mkdir(parents=True)
    (tmp_path / "link").symlink_to(scratch)
    for kind, mount, good in (
        ("lustre", scratch, False),
        ("nfs4", "/", False),
        ("fuse.juicefs", tmp_path, False),
        ("xfs", scratch, True),
        ("lustre", f"{scratch}-other", True),
    ):
        mounts.write_text(f"rootfs / ext4 rw 0 0\nx {mount} {kind} rw 0 0\nx /tmp/of-nobody tmpfs rw 0 0\n")
        for tmpdir in (scratch, tmp_path / "link"):
            found = caches(runscripts, {**step(0), "TMPDIR": str(tmpdir)})
            if good:
                assert top(found).parent == tmpdir
            elif found:  # /tmp then, where that is no network's
                assert top(found).parent == Path("/tmp")
                for path in (*top(found).iterdir(), top(found)):
                    path.rmdir()
    mounts.write_text(f"x / ext4 rw 0 0\nx {scratch} lustre rw 0 0\nx {scratch}/local xfs rw 0 0\n")
    assert top(caches(runscripts, {**step(0), "TMPDIR": f"{scratch}/local"})).parent == scratch / "local"


@pytest.mark.parametrize("kind", [pytest.param("directory", marks=ONLY_ROOT), "link", "file"])
def test_none_where_somebody_else_has_taken_the_name(tmp_path: Path, kind: str) -> None:
    """Neither a stranger's directory nor a link is used; the libraries then keep to their own ways."""
    runscripts = Runscripts(tmp_path, plan())
    directory = top(caches(runscripts, step(0)))
    for path in directory.iterdir():
        path.rmdir()
    directory.rmdir()
    if kind == "directory":
        directory.mkdir(mode=0o777)
        os.chown(directory, 65534, 65534)
    elif kind == "link":
        directory.symlink_to(tmp_path)
    else:
        directory.touch()
    found = caches(runscripts, step(0))
    assert top(found).parent == Path("/tmp")
    for path in (*top(found).iterdir(), top(found)):
        path.rmdir()


EXCHANGES = """
import ctypes, sys
one, other = (word.encode() for word in sys.argv[1:])
exchange = ctypes.CDLL(None).renameat2
while exchange(-100, one, -100, other, 2) == 0:
    pass
"""


@pytest.mark.usefixtures("needs_root")
def test_a_directory_that_changes_places_with_a_link_is_not_used(shared_tmp: Path) -> None:
    """Each process owns /proc/self, where a link of a stranger leads: seen between two looks, it made theirs ours."""
    shared_tmp.chmod(0o1777)
    runscripts = Runscripts(shared_tmp / "prefix", plan())
    script = runscripts.directory / "conda-python-simple"
    (shared_tmp / "script").write_text(re.sub("exec python3? ", "exec printenv ", script.read_text()))
    env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(shared_tmp), **step(0, job=os.getpid())}
    command = ("dash", shared_tmp / "script", "TRITON_CACHE_DIR")
    ours = Path(run(command, env=env).ok().stdout.strip()).parent
    shutil.rmtree(ours)
    (theirs := shared_tmp / "theirs").mkdir()
    for name in ("triton", "inductor"):
        (theirs / name).mkdir()
    ours.symlink_to("/proc/self")
    for path in (theirs, ours):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    stranger = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", EXCHANGES)
    with subprocess.Popen((*stranger, ours, theirs)) as exchanging:
        try:
            used = {run(command, env=env).ok().stdout.strip() for _ in range(100)}
        finally:
            exchanging.kill()
    assert {Path(path).parent.parent for path in used} == {Path("/tmp")}
    for one in used:
        shutil.rmtree(Path(one).parent)


@pytest.mark.usefixtures("needs_root")
def test_an_ordinary_user_has_his_own(shared_tmp: Path) -> None:
    shared_tmp.chmod(0o1777)
    runscripts = Runscripts(shared_tmp / "prefix", plan())
    env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(shared_tmp), **step(0)}
    code = "import os; print(os.environ['TRITON_CACHE_DIR'])"
    script = runscripts.directory / "conda-python-simple"
    text = script.read_text().replace("exec python ", "exec python3 ")
    own = shared_tmp / "script"
    own.write_text(text)
    said = [
        run((*user, "dash", own, "-c", code), env=env).ok().stdout.strip()
        for user in ((), ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
    ]
    assert [Path(path).parent.name.split("-")[1] for path in said] == ["0", "65534"]
    assert [Path(path).stat().st_uid for path in said] == [0, 65534]
