"""The directories from which Jupyter starts kernels."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from sifmod.config.name import ModuleName
from sifmod.errors import FullError, InstallError
from sifmod.tree.kernelspec import (
    Kernelspec,
    kernels_directory,
    our_kernelspecs,
    remove_kernelspec,
    write_kernelspec,
)
from support.disk_state import disk_state
from support.small_disk import PAGE, small_disk

TORCH = Kernelspec(ModuleName("PyTorch", "2.13.0+cu126"), "")


def test_where_jupyter_looks() -> None:
    assert kernels_directory({"JUPYTER_DATA_DIR": "/data", "HOME": "/h"}) == Path("/data/kernels")
    assert kernels_directory({"XDG_DATA_HOME": "/x", "HOME": "/h"}) == Path("/x/jupyter/kernels")
    assert kernels_directory({"XDG_DATA_HOME": "x", "HOME": "/h"}) == Path("/h/.local/share/jupyter/kernels")


def test_a_name_that_jupyter_takes_and_one_that_people_understand() -> None:
    from jupyter_client.kernelspec import _is_valid_kernel_name  # what it skips a directory for

    named = Kernelspec(TORCH.module, "my+layer")
    assert (TORCH.kernel, TORCH.display_name) == ("pytorch-2.13.0_2bcu126", "PyTorch 2.13.0+cu126")
    assert (named.kernel, named.display_name) == (
        "pytorch-2.13.0_2bcu126--my_2blayer",
        "PyTorch 2.13.0+cu126, layer my+layer",
    )
    assert _is_valid_kernel_name(named.kernel)


def test_written_found_and_removed(tmp_path: Path) -> None:
    from jupyter_client.kernelspec import KernelSpecManager

    kernels, other = tmp_path / "jupyter" / "kernels", Kernelspec(ModuleName("JAX", "0.5"), "mine")
    assert write_kernelspec(kernels, TORCH, "#!/bin/sh\n")
    assert write_kernelspec(kernels, other, "#!/bin/sh\n")
    before = disk_state(kernels)
    assert not write_kernelspec(kernels, TORCH, "#!/bin/sh\n")
    assert disk_state(kernels) == before
    found = KernelSpecManager(kernel_dirs=[str(kernels)], ensure_native_kernel=False).get_all_specs()
    assert {one["spec"]["display_name"] for one in found.values()} == {"PyTorch 2.13.0+cu126", "JAX 0.5, layer mine"}
    assert set(our_kernelspecs(kernels)) == {TORCH, other}
    (kernels / other.kernel / "logo-64x64.png").write_bytes(b"of the user")
    for spec in (TORCH, other):
        remove_kernelspec(kernels, spec)
    assert [path.name for path in kernels.rglob("*")] == [other.kernel, "logo-64x64.png"]
    assert write_kernelspec(kernels, other, "#!/bin/sh\n")


@pytest.mark.parametrize(
    "said",
    ["{", "[]", '{"metadata": {"sifmod": 1}}', '{"metadata": {"sifmod": {"module": "PyTorch/2", "layer": ""}}}'],
)
def test_one_of_somebody_else_stays(tmp_path: Path, said: str) -> None:
    place = tmp_path / TORCH.kernel
    place.mkdir()
    (place / "kernel.json").write_text(said)
    before = disk_state(tmp_path)
    with pytest.raises(InstallError, match="exists already"):
        write_kernelspec(tmp_path, TORCH, "#!/bin/sh\n")
    assert disk_state(tmp_path) == before
    assert list(our_kernelspecs(tmp_path)) == []


def test_a_link_that_is_planted_leads_to_no_other_kernel(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/kernel.json").write_text("{}")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / TORCH.kernel).symlink_to(tmp_path / "own")
    before = disk_state(tmp_path)
    with pytest.raises(InstallError, match="is a link, so nothing behind it was removed"):
        remove_kernelspec(tmp_path / "kernels", TORCH)
    assert disk_state(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own another user's link")
def test_a_link_above_that_is_planted_leads_to_no_other_kernel(tmp_path: Path) -> None:
    write_kernelspec(tmp_path / "own", TORCH, "#!/bin/sh\n")
    (tmp_path / "kernels").symlink_to(tmp_path / "own")
    write_kernelspec(tmp_path / "kernels", TORCH, "#!/bin/sh\n")
    os.chown(tmp_path / "kernels", 1, 1, follow_symlinks=False)
    before = disk_state(tmp_path)
    with pytest.raises(InstallError, match="is a link of"):
        remove_kernelspec(tmp_path / "kernels", TORCH)
    with pytest.raises(InstallError, match="is a link of"):
        write_kernelspec(tmp_path / "kernels", TORCH, "#!/bin/sh\n")
    assert disk_state(tmp_path) == before


def test_two_modules_whose_names_are_spelled_the_same(tmp_path: Path) -> None:
    assert write_kernelspec(tmp_path, TORCH, "#!/bin/sh\n")
    before = disk_state(tmp_path)
    with pytest.raises(InstallError, match=r"not the kernelspec of pytorch 2.13.0\+cu126"):
        write_kernelspec(tmp_path, Kernelspec(ModuleName("pytorch", "2.13.0+cu126"), ""), "#!/bin/sh\n")
    assert disk_state(tmp_path) == before


def test_what_a_killed_run_has_left_is_no_kernel_and_no_hindrance(tmp_path: Path) -> None:
    place = tmp_path / TORCH.kernel
    place.mkdir()
    (place / ".python.new").write_text("#!/b")
    assert list(our_kernelspecs(tmp_path)) == []
    assert write_kernelspec(tmp_path, TORCH, "#!/bin/sh\n")
    assert {path.name for path in place.iterdir()} == {"python", "kernel.json"}
    assert json.loads((place / "kernel.json").read_text())["argv"][0] == str(place / "python")


def killed_at(step: int, spec: Kernelspec, kernels: Path, start: str) -> bool:
    """Write it in a child that ends just before its change of this number; whether it came so far."""
    if (pid := os.fork()) == 0:
        left = step

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event in ("os.rename", "os.mkdir", "os.remove") or (event == "open" and arguments[1] is None):
                left -= 1
                if not left:
                    os._exit(9)

        sys.addaudithook(count)
        write_kernelspec(kernels, spec, start)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


@pytest.mark.parametrize("before", [False, True])
def test_killed_at_any_step_there_is_a_kernel_that_starts_or_none(tmp_path: Path, before: bool) -> None:
    from jupyter_client.kernelspec import KernelSpecManager

    old, new, found = "#!/bin/sh\n# old\n", "#!/bin/sh\n# new\n", []
    for step in range(1, 40):
        kernels = tmp_path / str(step)
        if before:
            write_kernelspec(kernels, TORCH, old)
        died = killed_at(step, TORCH, kernels, new)
        all_of_it = KernelSpecManager(kernel_dirs=[str(kernels)], ensure_native_kernel=False).get_all_specs()
        starts = [Path(one["spec"]["argv"][0]) for one in all_of_it.values()]
        assert all(os.access(start, os.X_OK) for start in starts), f"at step {step}"
        found.append("".join("new" if start.read_text() == new else "old" for start in starts))
        if not died:
            break
        write_kernelspec(kernels, TORCH, new)
        remove_kernelspec(kernels, TORCH)  # and all that the killed run has left
        assert list(kernels.iterdir()) == []
    assert found == sorted(found, key=["old" if before else "", "new"].index)
    assert (len(found) > 4, found[0], found[-1]) == (True, "old" if before else "", "new")


@pytest.mark.parametrize("fit", [0, 1], ids=["no file fits", "one of the two fits"])
def test_a_full_disk_leaves_nothing(fit: int, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 14) as disk:
        (disk / "rest").write_bytes(bytes(shutil.disk_usage(disk).free - fit * PAGE))
        with pytest.raises(FullError):
            write_kernelspec(disk / "kernels", TORCH, "#!/bin/sh\n")
        assert [path.name for path in disk.iterdir()] == ["rest"]
