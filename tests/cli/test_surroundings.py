"""What is around a command and not for it to choose: modules on PYTHONPATH, few open files, a store of another tree."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sifmod import __version__
from sifmod.cli.main import run
from support.command import SIFMOD
from support.command import run as run_command
from support.images import Images
from support.steps import some
from support.trial import Place, make_place
from support.user import OrdinaryUser

INSTALLED = str(Path(sys.executable).with_name("sifmod"))


@pytest.fixture
def place(images: Images, tmp_path: Path) -> Place:
    return make_place(images, tmp_path)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, "{}") for name in ("sifmod", "yaml", "click", "json", "pathlib")),
        *(("sifmod", how) for how in (":/nothing", ".:/nothing", "/nothing:{}")),
    ],
)
def test_a_module_of_the_users_is_not_taken_for_one_of_ours(tmp_path: Path, name: str, how: str) -> None:
    """On PYTHONPATH, where an empty place is the current directory."""
    (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')\n")
    env = {**os.environ, "PYTHONPATH": how.format(tmp_path)}
    for words, said in ((("--version",), f"sifmod {__version__}"), (("check", "PyTorch-2.2.0"), ": ok: PyTorch/2.2.0")):
        done = subprocess.run((INSTALLED, *words), env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert said in done.stdout


def test_where_sifmod_itself_is_on_that_path_its_order_stays(tmp_path: Path) -> None:
    """As EasyBuild installs it: what it needs lies in such a place too, perhaps newer than elsewhere."""
    command = Path(__file__).parents[2] / "sifmod_command.py"
    (tmp_path / "site" / "sifmod").mkdir(parents=True)
    (tmp_path / "site" / command.name).write_text(command.read_text())
    (tmp_path / "site" / "sifmod" / "__init__.py").touch()
    (tmp_path / "site" / "sifmod" / "__main__.py").write_text("import yaml\ndef main(): return yaml.NUMBER\n")
    (tmp_path / "site" / "yaml.py").write_text("NUMBER = 7\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    start = (sys.executable, "-P", "-c", "import sys, sifmod_command; sys.exit(sifmod_command.main())")
    assert subprocess.run(start, env=env, cwd=tmp_path, check=False).returncode == 7


def test_a_umask_that_closes_files_to_their_owner_does_not(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    """A command could read no file of its own, and left its temporary directory behind, which nothing removed."""
    temporary = ordinary_user.own(shared_tmp)
    (shared_tmp / "old.eb").write_bytes(
        Path(__file__).parents[1].joinpath("import/easybuild/Demo-1.2.3-rocm-6.0-test.eb").read_bytes()
    )
    words = ("/bin/sh", "-c", 'umask 0777; exec "$@"', "sh", *SIFMOD, "import", "old.eb", "-o", "new")
    done = ordinary_user.run(words, {"TMPDIR": str(temporary)}, cwd=temporary)
    assert done.code == 0, done.stderr
    assert not [*temporary.glob("sifmod-scratch-*")]
    assert {path.stat().st_mode & 0o777 for path in (shared_tmp / "new").iterdir()} == {0o600}


@pytest.mark.parametrize("source", ["SIF", "layout"])
def test_too_few_open_files_are_told_with_what_to_do(place: Place, images: Images, source: str) -> None:
    """Wherever the limit is met, and never as a bug of ours."""
    given = ("--source", images.tiny_sif if source == "SIF" else f"oci:{images.tiny_layout()}")
    found = set()
    for limit in (5, *some(6, 30, 2 if source == "SIF" else 4)):
        done = subprocess.run(
            (*SIFMOD, *place.install("a"), *given, "--rebuild"),
            env={**os.environ, **place.env, "PYTHONDONTWRITEBYTECODE": "1"},
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),  # type: ignore[misc]
            capture_output=True,
            text=True,
            check=False,
        )
        found.add(done.returncode)
        assert "Traceback" not in done.stderr
        assert "a bug" not in done.stderr
        if done.returncode == 0:
            break
        assert "Too many open files" in done.stderr
        assert "hint: allow more open files (`ulimit -n 1024`), then repeat the command" in done.stderr
    assert 0 in found
    assert found - {0} <= {10, 18}
    assert found != {0}


@pytest.mark.parametrize(
    ("limit", "more", "where"), [(1000, ("--rebuild", "--module-only"), "cannot stage"), (200_000, (), "cannot write")]
)
def test_a_limit_of_a_files_size_is_told_with_what_to_do(
    tmp_path: Path, images: Images, limit: int, more: tuple[str, ...], where: str
) -> None:
    """It was the fault of each of the image's sources, and there was no hint."""
    place = make_place(images, tmp_path)
    env = {**os.environ, **place.env}
    if more:
        run_command((*SIFMOD, *place.install("a")), env=env).ok()
    done = subprocess.run(
        (*SIFMOD, *place.install("a"), *more),
        env=env,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, f"error: {where} " in done.stderr, "File too large" in done.stderr) == (18, True, True)
    hint = "allow larger files (`ulimit -f` shows the limit; a file system may have one too)"
    assert done.stderr.endswith(f"\nhint: {hint}\n")
    assert len([*place.prefix.rglob("images/sha256/*.sif")]) == bool(more)
    assert not [*place.prefix.rglob("*.incoming")]


def test_a_limit_of_processes_is_told_with_what_to_do(
    shared_tmp: Path, images: Images, ordinary_user: OrdinaryUser
) -> None:
    sif = shutil.copy(images.tiny_sif, shared_tmp / "tiny.sif")
    words = ("bash", "-c", 'ulimit -u 1; exec "$@"', "sh", *SIFMOD, "fetch", sif, "-o", "other.sif")
    done = ordinary_user.run(words)
    assert done.code == 18
    hint = "`ulimit -u` shows the limit of processes, `ulimit -v` that of memory: raise it"
    assert done.stderr.endswith(f"error: no further process or thread may be started here\n\nhint: {hint}\n")
    assert "Traceback" not in done.stderr
    assert not [*ordinary_user.home.rglob("*other.sif*")]  # nor is a lock left that nobody holds


def test_a_disk_without_a_place_for_temporary_files_is_told(tmp_path: Path) -> None:
    """No file may have a byte here: Python tries each place, and gives an error without a file name."""
    easyconfig = Path(__file__).parents[1] / "import/easybuild/Demo-1.2.3-rocm-6.0-test.eb"
    done = subprocess.run(
        (*SIFMOD, "import", str(easyconfig), "-o", "new"),
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 18
    assert "\nerror: No usable temporary directory found in [" in f"\n{done.stderr}"
    assert done.stderr.endswith("\n\nhint: free some space there, or set TMPDIR to a directory that you can write\n")
    assert not (tmp_path / "new").exists()


def test_a_run_that_is_killed_while_it_asks_the_runtime_leaves_what_the_next_one_removes(tmp_path: Path) -> None:
    runtime = tmp_path / "apptainer"
    runtime.write_text("#!/bin/sh\nkill -9 $PPID\n")
    runtime.chmod(0o755)
    (temporary := tmp_path / "temporary").mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "SIFMOD_RUNTIME": str(runtime)}
    words = (*SIFMOD, "doctor", "--prefix", str(tmp_path / "tree"))
    assert subprocess.run(words, env=env, capture_output=True, check=False).returncode == -9
    (left,) = temporary.iterdir()
    os.utime(left, (0, 0))
    runtime.write_text("#!/bin/sh\necho apptainer version 1.3.6\n")
    subprocess.run(words, env=env, capture_output=True, check=False)
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize("through", ["the store", "a link", "a link of a module"])
def test_an_image_in_the_store_of_another_tree_is_a_warning(
    place: Place, tmp_path: Path, through: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """What that tree does not need goes with its gc, and then this module has no image."""
    assert run([str(word) for word in place.install("a")]) == 0
    (stored,) = place.prefix.glob("images/sha256/*.sif")
    (tmp_path / "x.sif").symlink_to(stored)
    source = {"the store": stored, "a link": tmp_path / "x.sif"}.get(
        through, place.prefix / "software" / "Tiny" / "1.0" / "tiny.sif"
    )
    words = ["install", str(tmp_path / "b" / "Tiny-1.0.yaml"), "--source", str(source), "--skip-sanity-check"]
    mine = str(tmp_path / "mine")
    capfd.readouterr()
    assert run([*words, "--link", "reference", "--prefix", mine]) == 0
    said = capfd.readouterr().err
    assert f"warning: Tiny/1.0 uses {source}, and no mark can be left in {place.prefix} (" in said
    assert run(["uninstall", "--purge", "--ignore-jobs", "Tiny", "--prefix", str(place.prefix)]) == 0
    capfd.readouterr()
    assert run(["list", "--prefix", mine]) == 0
    assert "is missing" in capfd.readouterr().out


@pytest.mark.parametrize("link", ["copy", "hardlink", "reference"])
def test_an_image_that_no_other_tree_keeps_is_none(
    place: Place, tmp_path: Path, link: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([str(word) for word in place.install("a")]) == 0
    (stored,) = place.prefix.glob("images/sha256/*.sif")
    own = tmp_path / "images" / "sha256" / "own.sif"
    own.parent.mkdir(parents=True)
    own.write_bytes(stored.read_bytes())
    sources = [(own, tmp_path / "mine"), (stored, place.prefix)]
    for source, prefix in sources if link == "reference" else [*sources, (stored, tmp_path / "other")]:
        words = ["install", str(tmp_path / "b" / "Tiny-1.0.yaml"), "--source", str(source), "--skip-sanity-check"]
        assert run([*words, "--link", link, "--prefix", str(prefix)]) == 0
    assert "warning" not in capfd.readouterr().err
