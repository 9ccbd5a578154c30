"""All that an uninstall says of one module, with and without --purge; of its neighbours it says nothing."""

import errno
import os
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.tree.durable import read
from sifmod.tree.kernelspec import Kernelspec, kernels_directory, write_kernelspec
from sifmod.tree.layout import Layout
from sifmod.tree.mark import leave
from support.answer import answer
from support.config import write
from support.tree import MODULE, install, kept_for

OTHER = ModuleName("Tiny", "2.0")
LOADED = "shells that have it loaded"


@pytest.fixture
def layout(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A default with two generations, a kernel for it and one of its layer, what its user added, and a view of it."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "my tree"))
    layout = Layout(tmp_path / "my tree")
    for tag, module in (("a", MODULE), ("b", MODULE), ("c", OTHER)):
        install(layout, tag, module)
    kernels = kernels_directory({"HOME": str(own_home)})
    for spec in (Kernelspec(MODULE, ""), Kernelspec(MODULE, "mine"), Kernelspec(OTHER, "")):
        write_kernelspec(kernels, spec, "#!/bin/sh\n")
    write(layout.user_software(MODULE) / "file", "x")
    for module in (MODULE, OTHER):
        write(layout.prefix / "layers" / str(module) / "default" / "x", "x")
    for name in ("One", "Two"):
        loads = MODULE if name == "One" else OTHER
        easyconfig = write(tmp_path / f"{name}-1.yaml", f"name: {name}\nversion: '1'\nmodules: [{loads}]\n")
        assert run(["install", "-q", str(easyconfig)]) == 0
    assert run(["default", str(MODULE)]) == 0
    return layout


@pytest.mark.parametrize("purge", [False, True])
def test_what_is_said(layout: Layout, purge: bool, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert run(["uninstall", "Tiny/1.0", *(["--purge", "--ignore-jobs"] if purge else [])]) == 0
    said = capfd.readouterr().err.splitlines()
    said[6:8] = sorted(said[6:8], key=len)  # in no order
    software, prefix = layout.user_software(MODULE), layout.prefix
    kernel = "Tiny/1.0: Jupyter still lists its kernel;"
    later = "" if purge else f"; {kept_for('Tiny/1.0')}"
    go_on = "lose it" if purge else "keep using it but cannot unload it"
    assert (
        said[:8]
        == [
            f"== Tiny/1.0: {LOADED} {go_on}: start a new one",
            f"== Tiny/1.0: uninstalled{later}",
            "== Tiny/1.0: it was the default; `sifmod default` makes another Tiny module the default",
            "== Tiny/1.0: One/1 loads it and can no longer be loaded",
            f"== Tiny/1.0: your own files stay in {software}",
            f"== Tiny/1.0: its layers stay in {prefix}/layers/Tiny/1.0; "
            "`sifmod layer list Tiny/1.0` says what removes them",
            f"== {kernel} `sifmod jupyter Tiny/1.0 --remove` removes it",
            f"== {kernel} `sifmod jupyter Tiny/1.0 --layer mine --remove` removes it",
        ]
        or sorted(said[6:8]) != said[6:8]
    )
    assert len(said) == 8 + purge
    if not purge:
        assert run(["uninstall", "Tiny/1.0"]) == 0
        assert f"== Tiny/1.0: was already uninstalled{later}\n" in capfd.readouterr().err


def test_the_answer_for_programs_says_the_same(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    """For two modules at once."""
    capfd.readouterr()
    rows = answer(capfd, ("uninstall", "Tiny/2.0", "Tiny/1.0"))["uninstalled"]
    told = [(row["module"], row["generation"], row["user_software"], row["default"], row["views"]) for row in rows]
    assert told == [
        ("Tiny/2.0", 1, None, False, ["Two/1"]),
        ("Tiny/1.0", 2, str(layout.user_software(MODULE)), True, ["One/1"]),
    ]
    assert [len(row["kernels"]) for row in rows] == [1, 2]
    assert rows[1]["user_layers"] == f"{layout.prefix}/layers/Tiny/1.0"


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("before", [False, True])
def test_a_purge_says_that_it_ends_a_hold(before: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """The content that was rolled back came back with the next install, and nobody had said so."""
    assert run(["rollback", "Tiny/1.0"]) == 0
    ended = "== Tiny/1.0: the rollback no longer holds the content of generation 2, which is gone"
    if before:
        capfd.readouterr()
        assert run(["uninstall", "Tiny/1.0"]) == 0
        assert "no longer holds" not in capfd.readouterr().err
        done = answer(capfd, ("uninstall", "Tiny/1.0"))
        assert [one["generation"] for one in done["uninstalled"][0]["held"]] == [2]
    capfd.readouterr()
    assert run(["uninstall", "Tiny/1.0", "Tiny/2.0", "--purge", "--ignore-jobs"]) == 0
    said = [line for line in capfd.readouterr().err.splitlines() if "no longer holds" in line]
    assert [line.partition(":")[0] for line in said] == ["== Tiny/1.0"]
    assert said[0].startswith(ended)


def test_a_hold_that_a_purge_leaves_is_not_said_to_have_ended(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a job may still use stays, and is held: here Slurm does not answer."""
    assert run(["rollback", "Tiny/1.0"]) == 0
    monkeypatch.setenv("SLURM_CONF", str(write(tmp_path / "slurm.conf", "ClusterName=broken\n")))
    capfd.readouterr()
    assert run(["uninstall", "Tiny/1.0", "--purge"]) == 0
    assert "no longer holds" not in capfd.readouterr().err
    assert layout.generation(MODULE, 2).exists()


def test_an_image_that_other_trees_refer_to_outlives_a_purge(
    layout: Layout, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    layout.marks.mkdir()
    layout.marks.chmod(0o1777)
    sha256 = next(path.stem for path in layout.images.glob("*.sif") if path.read_bytes().startswith(b"image b"))
    leave(layout, sha256, tmp_path / "user's")
    capfd.readouterr()
    purged = answer(capfd, ("uninstall", "--purge", "--ignore-jobs", "Tiny/1.0"))["purged"]
    images = {row["path"]: (row["removed"], bool(row["keep"])) for row in purged if row["kind"] == "image"}
    assert sorted(images.values()) == [(False, True), (True, False)]
    assert images[str(layout.image(sha256))] == (False, True)


def test_a_purge_asks_slurm_unless_the_user_knows_better(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a job may still use stays: here Slurm does not answer."""
    monkeypatch.setenv("SLURM_CONF", str(write(tmp_path / "slurm.conf", "ClusterName=broken\n")))
    roots = [str(layout.generation(MODULE, number)) for number in (1, 2)]
    capfd.readouterr()
    for options, stays in (((), True), (("--ignore-jobs",), False)):
        purged = answer(capfd, ("uninstall", "--purge", *options, "Tiny/1.0"))["purged"]
        rows = {row["path"]: row for row in purged if row["kind"] == "generation"}
        assert [rows[root]["removed"] for root in roots] == [not stays] * 2
        assert ["by a job: squeue failed" in (rows[root]["keep"] or "") for root in roots] == [stays] * 2
        assert [Path(root).exists() for root in roots] == [stays] * 2


def test_the_worst_code_of_several(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    """Whichever comes last."""
    stub = next(layout.modules.glob("Tiny/1.0*"))
    stub.write_text("edited\n")
    assert run(["uninstall", "Tiny/1.0", "Tiny/2.0"]) == 18
    assert "Tiny/2.0: uninstalled" in capfd.readouterr().err


def test_a_history_that_cannot_be_read_keeps_no_other_module(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    history = layout.history(MODULE)

    def refused(path: Path) -> bytes:
        if path == history:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path)

    monkeypatch.setattr("sifmod.tree.history.read", refused)
    failed, gone = answer(capfd, ("uninstall", "Tiny/1.0", "Tiny/2.0"), code=25)["uninstalled"]
    assert failed["error"] == f"{history}: Permission denied"
    assert gone["module"] == "Tiny/2.0"
    assert not layout.switch(OTHER).is_symlink()
    assert layout.switch(MODULE).is_symlink()


def test_the_space_is_freed_by_the_commands_that_are_named(layout: Layout) -> None:
    root = layout.generation(MODULE, 1)
    assert run(["uninstall", "Tiny/1.0"]) == 0
    assert run(["gc", "--yes", "--ignore-jobs"]) == 0
    assert root.exists(), "within 14 days"
    assert run(["uninstall", "--purge", "--ignore-jobs", "Tiny/1.0"]) == 0
    assert not root.exists()
