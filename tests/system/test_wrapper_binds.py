"""The binds and GPUs of a wrapper: the module's and the user's, whichever variables they are in, and silently."""

import os
import re
from pathlib import Path

import pytest

from sifmod.module.plan import Bind
from support.command import run
from support.devices import with_devices
from support.generation import make_generation
from support.module_tool import ModuleTool
from support.runtime import RUNTIME
from support.wrappers import Somebody, loaded, tiny_plan

pytest_plugins = ("support.wrapper_fixtures",)

SHARED_TMP = "/tmp"  # of the host, which a container has, or has not
NAMES = ("SINGULARITY_BIND", "APPTAINER_BIND", "SINGULARITY_BINDPATH", "APPTAINER_BINDPATH")


@pytest.mark.parametrize("name", NAMES)
def test_the_users_binds_come_along(somebody: Somebody, switch: Path, shared_tmp: Path, name: str) -> None:
    (shared_tmp / "da ta").mkdir()
    (shared_tmp / "da ta" / "file").write_text("mine")
    (shared_tmp / "plain").mkdir()
    value = f"{shared_tmp}/da ta:/mnt:ro,{shared_tmp}/plain"
    script = f"cat /mnt/file; ls -d {shared_tmp}/plain /runscripts/start-shell; touch /mnt/x 2>/dev/null || echo ro"
    result = somebody.run((switch / "bin" / "in-sh", "-c", script), {name: value})
    assert (result.stderr, result.code) == ("", 0)
    assert result.stdout == f"mine/runscripts/start-shell\n{shared_tmp}/plain\nro\n"


def test_binds_from_every_variable_are_merged(
    somebody: Somebody, shared: Path, switch: Path, shared_tmp: Path, module_tool: ModuleTool
) -> None:
    """Also when the user adds them to what a loaded module has put there, and in the two spellings different ones."""
    added = {}
    for number, name in enumerate(NAMES):
        (shared_tmp / name).mkdir()
        (shared_tmp / name / "file").write_text(name)
        added[name] = f"{shared_tmp}/{name}:/mnt/{number},{shared_tmp}/{name}:/mnt/same/"
    for base in ({}, loaded(module_tool, tiny_plan(shared / "pre fix"))):
        env = {name: ",".join(filter(None, (base.get(name), value))) for name, value in added.items()}
        cat = (switch / "bin" / "in-sh", "-c", "cat /mnt/[0-3]/file /mnt/same/file")
        result = somebody.run(cat, {**base, **env})
        assert (result.code, result.stderr) == (0, "")
        assert result.stdout == "".join((*NAMES, NAMES[0]))


def test_the_users_bind_of_a_target_goes_first(somebody: Somebody, shared_tmp: Path, tiny: Path) -> None:
    for name in ("module's", "user's"):
        (shared_tmp / name).mkdir()
        (shared_tmp / name / "file").write_text(name)
    module = Bind(f"{shared_tmp}/module's", "/mnt")
    wanted = make_generation(tiny_plan(shared_tmp / "prefix", binds=(module,)), tiny)
    cat = (wanted / "bin" / "in-sh", "-c", "cat /mnt/file")
    assert somebody.run(cat).ok().stdout == "module's"
    users = somebody.run(cat, {"SINGULARITY_BINDPATH": f"{shared_tmp}/user's:/mnt/:ro"})
    assert (users.code, users.stdout, users.stderr) == (0, "user's", "")


def test_options_stay_with_their_bind(somebody: Somebody, switch: Path, shared_tmp: Path) -> None:
    """A second bind of a target is dropped together with its options."""
    for name in ("first", "second"):
        (shared_tmp / name).mkdir()
        (shared_tmp / name).chmod(0o777)
    env = {"SINGULARITY_BIND": f"{shared_tmp}/first:/mnt,{shared_tmp}/second:/mnt:rw,ro,/etc:/mnt/etc:rw,ro"}
    result = somebody.run((switch / "bin" / "in-sh", "-c", "touch /mnt/file && touch /mnt/etc/x"), env)
    assert result.code == 1
    assert result.stderr == "touch: /mnt/etc/x: Read-only file system\n"
    assert (shared_tmp / "first" / "file").exists()


@pytest.mark.parametrize("option", ["image-src=/inner,ro", "ro,id=1,image-src=/inner", "ro", "rw"])
def test_every_option_of_a_users_bind_stays_with_it(
    somebody: Somebody, switch: Path, shared_tmp: Path, option: str
) -> None:
    """Of two binds that have the same one, and of a third that is dropped, for its target has a bind already."""
    (shared_tmp / "packed" / "inner").mkdir(parents=True)
    (shared_tmp / "packed" / "inner" / "file").write_text("inner")
    source = shared_tmp / "packed" / "inner"
    if "=" in option:
        source = shared_tmp / "packed.squashfs"
        run(("mksquashfs", shared_tmp / "packed", source, "-quiet", "-no-progress")).ok()
    value = ",".join(f"{source}:/mnt/{target}:{option}" for target in "abaab")
    cat = (switch / "bin" / "in-sh", "-c", "cat /mnt/a/file /mnt/b/file")
    result = somebody.run(cat, {"SINGULARITY_BIND": f"{value},/etc:/mnt/etc:ro"})
    assert (result.code, result.stdout, result.stderr) == (0, "innerinner", "")


def test_an_optional_bind_is_left_out_where_it_is_missing(somebody: Somebody, shared_tmp: Path, tiny: Path) -> None:
    optional = Bind(f"{shared_tmp}/there later", "/mnt", optional=True)
    wanted = make_generation(tiny_plan(shared_tmp / "prefix", binds=(optional,)), tiny)
    look = (wanted / "bin" / "in-sh", "-c", "test -e /mnt/file && echo there || echo absent")
    before = somebody.run(look)
    (shared_tmp / "there later").mkdir()
    (shared_tmp / "there later" / "file").touch()
    after = somebody.run(look)
    assert [(result.code, result.stdout, result.stderr) for result in (before, after)] == [
        (0, "absent\n", ""),
        (0, "there\n", ""),
    ]


def test_a_bind_that_was_there_at_load_and_is_not_here(shared_tmp: Path, tiny: Path, module_tool: ModuleTool) -> None:
    """Loaded where it exists, run where it does not: a login node and a compute node."""
    source = shared_tmp / "scratch"
    source.mkdir()
    wanted = tiny_plan(shared_tmp / "prefix", binds=(Bind(str(source), "/mnt", optional=True),))
    switch = make_generation(wanted, tiny)
    env = {**os.environ, **loaded(module_tool, wanted)}
    source.rmdir()
    result = run((switch / "bin" / "in-sh", "-c", "echo ran"), env=env)
    assert (result.code, result.stdout, result.stderr) == (0, "ran\n", "")


def test_a_required_bind_that_is_missing_is_named(somebody: Somebody, shared_tmp: Path, tiny: Path) -> None:
    wanted = tiny_plan(shared_tmp / "prefix", binds=(Bind(f"{shared_tmp}/not here", "/mnt"),))
    echo = (make_generation(wanted, tiny) / "bin" / "in-sh", "-c", "echo ran")
    result = somebody.run(echo)
    assert (result.code, result.stdout) == (127, "")
    message, hint = result.stderr.split("\n\nhint: ")
    assert message == f"{wanted.module}: the bind source {shared_tmp}/not here is missing on this machine"
    assert hint
    assert somebody.run(echo, {"SINGULARITY_BIND": f"{shared_tmp}:/mnt"}).ok().stdout == "ran\n"


def test_hostile_names_of_directories(somebody: Somebody, shared_tmp: Path, tiny: Path) -> None:
    odd = shared_tmp / "$(touch pwned) `touch pwned` 'q' *"
    (odd / "bin").mkdir(parents=True)
    target = "/mnt/$(touch pwned) 'x'"
    wanted = tiny_plan(shared_tmp / "prefix", binds=(Bind(str(odd), target),), path=(f"{odd}/bin", "/runscripts"))
    switch = make_generation(wanted, tiny)
    result = somebody.run((switch / "bin" / "in-sh", "-c", 'echo "$PATH"; ls /mnt'))
    assert (result.code, result.stderr) == (0, "")
    path, listed = result.stdout.splitlines()
    assert path.startswith(f"{odd}/bin:/runscripts:/usr/")
    assert listed == Path(target).name
    assert not list(shared_tmp.rglob("pwned"))


@pytest.mark.parametrize(
    ("flags", "devices", "expected"),
    [
        (("rocm",), "kfd", {"rocm"}),
        (("rocm",), "", set()),
        (("rocm",), "nvidiactl", set()),
        (("nv",), "nvidiactl", {"legacy binds for nv"}),
        (("nv", "nvccli"), "nvidiactl", {"nvidia-container-cli for"}),
        (("nv",), "kfd", set()),
        ((), "kfd nvidiactl", set()),
    ],
)
def test_the_runtime_is_told_of_gpus_where_they_are(
    shared_tmp: Path,
    tiny: Path,
    module_tool: ModuleTool,
    flags: tuple[str, ...],
    devices: str,
    expected: set[str],
) -> None:
    wanted = tiny_plan(shared_tmp / "pre fix", gpu_flags=flags)
    switch = make_generation(wanted, tiny)
    dev = shared_tmp / "dev"
    dev.mkdir()
    command = (*with_devices(dev, devices), switch / "bin" / "in-sh", "-c", ":")
    users = {"SINGULARITY_ROCM": "1", "APPTAINER_NV": "1"} if not devices else {}
    bare = ({}, users) if module_tool.name == "lmod" else ()  # without a load, once
    for base in (*bare, loaded(module_tool, wanted)):
        debugging = run(command, env={**os.environ, **base, f"{RUNTIME.prefix}_DEBUG": "1"})
        assert set(re.findall("Using (.*) GPU setup", debugging.stderr)) == expected, debugging.stderr
        if not expected:
            silent = run(command, env={**os.environ, **base})
            assert (silent.code, silent.stderr) == (0, "")
