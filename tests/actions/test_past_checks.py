"""A sanity check that passed is made once: what starts a container, and what starts none."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command import SIFMOD, run
from support.counted import CountedMachine
from support.images import Images
from support.oci import Entry
from support.runtime import RUNTIME

SANITY_CHECK_FAILED = 22


@pytest.fixture
def machine(tmp_path: Path, images: Images) -> CountedMachine:
    image = tmp_path / "image.sif"
    shutil.copy(images.tiny_sif, image)
    return CountedMachine(tmp_path, image)


@pytest.fixture
def known(machine: CountedMachine) -> CountedMachine:
    """The module is installed, and what was found is kept."""
    machine.write()
    machine.install().ok()
    assert machine.started() == 1
    return machine


@pytest.mark.parametrize("jobs", ["1", "4"])
def test_modules_of_one_image_start_it_once_and_other_texts_never(
    machine: CountedMachine, images: Images, tmp_path: Path, jobs: str
) -> None:
    """The second image is there before the stack, with another module."""
    commands = ["sh", "cat", "ls", "sort", "/bin/wc", "start-shell"]
    second = images.tiny("past-checks")
    for number, command in enumerate(commands):
        for image, path in (("a", machine.image), ("b", second)):
            machine.image = path
            machine.write(f"Tiny{image}{number}", f"{{run: {command}}}" if "/" in command else command)
    (tmp_path / "stack.yaml").write_text("name: small\neasyconfigs: ['Tiny*.yaml']\n")
    machine.sifmod("install", tmp_path / "Tinyb0-1.yaml").ok()
    assert machine.started() == 1
    machine.sifmod("stack", "apply", tmp_path / "stack.yaml", "--jobs", jobs).ok()
    assert machine.started() == 2
    for path in tmp_path.glob("Tiny*.yaml"):
        path.write_text(path.read_text().replace("description: a", "description: another"))
    machine.sifmod("stack", "apply", tmp_path / "stack.yaml", "--jobs", jobs).ok()
    modules = json.loads(machine.sifmod("list", "--json").ok().stdout)
    assert {one["generation"] for one in modules} == {2}
    assert len(modules) == 12
    assert machine.started() == 0


def test_a_module_whose_wrapper_is_missing_fails_alone(machine: CountedMachine, tmp_path: Path) -> None:
    for name, command in (("TinyA", "sh"), ("TinyB", "no-such"), ("TinyC", "cat")):
        machine.write(name, command)
    (tmp_path / "stack.yaml").write_text("name: small\neasyconfigs: ['Tiny*.yaml']\n")
    done = machine.sifmod("stack", "apply", tmp_path / "stack.yaml")
    assert done.code == SANITY_CHECK_FAILED
    assert "sanity check of TinyB/1: not in the image: no-such" in done.stderr
    assert sorted(path.name for path in (machine.prefix / "modules").iterdir()) == ["TinyA", "TinyC"]
    assert machine.started() == 2  # TinyB asks again for itself


def test_a_module_rendered_again_starts_no_container(known: CountedMachine) -> None:
    known.write(description="another")
    done = known.sifmod("install", "--module-only", "--installed", "--yes")
    assert "generation 2" in done.ok().stderr + done.stdout
    assert known.started() == 0


def test_a_failure_is_looked_for_again_each_time(known: CountedMachine) -> None:
    known.write(wrappers="sh, no-such")
    before = known.state
    for _ in range(2):
        done = known.install()
        assert (done.code, known.started()) == (SANITY_CHECK_FAILED, 1)
        assert "not in the image: no-such" in done.stderr
        assert known.state == before


def test_commands_of_the_easyconfig_run_each_time(known: CountedMachine) -> None:
    """They may ask for anything: here for a file of the host."""
    marker = known.top / "marker"
    more = f"binds: ['{known.top}']\nsanity_check: {{commands: ['test -e {marker}']}}\n"
    marker.touch()
    assert known.again(more=more) == 2
    assert known.again(more=more, wrappers="cat, sh") == 1 + 1
    marker.unlink()
    known.write(more=more)
    assert known.install().code == SANITY_CHECK_FAILED


def _other_runtime(machine: CountedMachine) -> None:
    machine.runtime.write_text(machine.runtime.read_text() + "# another\n")


def _other_bytes(machine: CountedMachine) -> None:
    """As a disk or an administrator would change them, and sifmod does not."""
    stored = next((machine.prefix / "images" / "sha256").glob("*.sif"))
    stored.chmod(0o644)
    with stored.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    stored.chmod(0o444)


CHANGES: dict[str, Callable[[CountedMachine], object]] = {
    "the runtime's program": _other_runtime,
    "the image's bytes": _other_bytes,
    "another wrapper": lambda machine: machine.write(wrappers="cat"),
    "a variable inside": lambda machine: machine.write(more="env: {PATH_OF_MINE: /x}\n"),
    "a path": lambda machine: machine.write(more="sanity_check: {paths: [/etc/variant]}\n"),
    "PATH inside": lambda machine: machine.write(more="path: [/opt/x]\n"),
    "a bind": lambda machine: machine.write(more="binds: ['/usr:/opt/usr']\n"),
    "an activation": lambda machine: machine.write(more="activate: '. /etc/variant || true'\n"),
    "a variable of the runtime": lambda machine: machine.env.update({f"{RUNTIME.prefix}_NO_MOUNT": "tmp"}),
    "a variable of the user": lambda machine: machine.env.update(MY_OWN="1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_decides_is_looked_at_again(known: CountedMachine, change: str) -> None:
    known.write(description="another")
    CHANGES[change](known)
    known.install()
    assert known.started() >= 1, change


def test_variables_of_a_session_decide_nothing(known: CountedMachine) -> None:
    known.env |= {"SSH_CONNECTION": "1 2 3 4", "SLURM_JOB_ID": "77", "TERM": "vt100", "XDG_SESSION_ID": "9"}
    assert known.again() == 0


@pytest.mark.usefixtures("needs_root")
def test_another_machine_looks_again(known: CountedMachine) -> None:
    """A home that two clusters share: the name of the node stands for all that differs."""
    known.write(description="another")
    command = ("unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh", *SIFMOD)
    run((*command, "install", known.top / "Tiny-1.yaml"), env=known.environment).ok()
    assert known.started() == 1
    known.write()
    known.install().ok()
    assert known.started() == 0


@pytest.mark.parametrize("link", [False, True])
def test_what_lies_behind_a_bind_path_is_looked_for_each_time(known: CountedMachine, link: bool) -> None:
    """Also a link there to a file of the image, as `bin/python` of a venv on a bound disk is: the link may go."""
    tools = known.top / "tools"
    tools.mkdir()
    if link:
        (tools / "mine").symlink_to("/bin/sh")
    else:
        (tools / "mine").write_text("#!/bin/sh\n")
        (tools / "mine").chmod(0o755)
    changes = {"wrappers": "{mine: /opt/tools/mine}", "more": f"binds: ['{tools}:/opt/tools']\n"}
    for text in ("b", "c"):
        known.write(description=text, **changes)
        known.install().ok()
        assert known.started() == 1
    (tools / "mine").unlink()
    before = known.state
    known.write(description="d", **changes)
    done = known.install()
    assert (done.code, known.started()) == (SANITY_CHECK_FAILED, 1)
    assert "not in the image: /opt/tools/mine" in done.stderr
    assert known.state == before


def test_a_bind_path_whose_source_has_gone_is_looked_at_again(known: CountedMachine) -> None:
    (source := known.top / "source").mkdir()
    more = f"binds: [{{source: '{source}', target: /opt/s, optional: true}}]\n"
    assert known.again(more=more) == 1
    source.rmdir()
    known.write(more=more)
    known.install().ok()
    assert known.started() == 1


def test_what_changes_while_it_is_looked_for_is_looked_for_again(machine: CountedMachine) -> None:
    """A link to the source of a bind path leads elsewhere while the container starts, and then back."""
    for name in ("one", "two"):
        (machine.top / name).mkdir()
    (link := machine.top / "link").symlink_to("one")
    script = machine.runtime.read_text()
    machine.runtime.write_text(script.replace(f">>{machine.log} ;;", f">>{machine.log}; ln -sfn two {link} ;;"))
    for _ in range(2):
        assert machine.again(more=f"binds: ['{link}:/opt/link']\n") == 1
        assert link.readlink() == Path("two")
        link.unlink()
        link.symlink_to("one")


@pytest.mark.parametrize("option", ["--rebuild", "--force"])
def test_who_asks_for_a_new_generation_has_it_looked_for(known: CountedMachine, option: str) -> None:
    known.install(option).ok()
    assert known.started() == 1
    assert known.again() == 0


def test_a_stack_that_is_rebuilt_starts_each_image_once(known: CountedMachine, tmp_path: Path) -> None:
    known.write("TinyB", "cat")
    known.write("TinyC", "sh")
    (tmp_path / "stack.yaml").write_text("name: small\neasyconfigs: ['Tiny*.yaml']\n")
    known.sifmod("stack", "apply", tmp_path / "stack.yaml").ok()
    known.started()
    known.sifmod("stack", "apply", tmp_path / "stack.yaml", "--rebuild").ok()
    assert known.started() == 1


def test_the_test_of_a_module_looks_each_time(known: CountedMachine) -> None:
    done = known.sifmod("test", "Tiny/1", "--json")
    steps = {step["name"]: step["outcome"] for step in json.loads(done.stdout)["steps"]}
    assert steps["sanity check"] == "passed"
    assert any(" -c " in line and "not there" in line for line in known.log.read_text().splitlines())


def test_a_damaged_image_is_started_and_told(known: CountedMachine) -> None:
    stored = next((known.prefix / "images" / "sha256").glob("*.sif"))
    stored.chmod(0o644)
    with stored.open("r+b") as file:
        file.truncate(200_000)
    known.write(description="another")
    known.install()
    assert known.started() >= 1


def test_two_installs_at_once_start_an_image_once(machine: CountedMachine) -> None:
    machine.runtime.write_text(machine.runtime.read_text().replace("\nexec ", "\nsleep 0.5\nexec "))
    paths = [machine.write(f"Tiny{number}") for number in range(3)]
    runs = [subprocess.Popen((*SIFMOD, "install", "-q", path), env=machine.environment) for path in paths]
    assert [one.wait() for one in runs] == [0, 0, 0]
    assert machine.started() == 1


def test_an_overlay_of_the_users_is_looked_into_each_time(known: CountedMachine) -> None:
    overlay = known.top / "overlay"
    overlay.mkdir()
    known.env[f"{RUNTIME.prefix}_OVERLAY"] = str(overlay)
    for text in ("b", "c"):
        known.write(description=text)
        known.install()
        assert known.started() == 1


def test_a_command_of_an_activation_that_reads_variables_is_looked_for_each_time(machine: CountedMachine) -> None:
    more = "activate: 'cd $HOME'\n"
    machine.write(more=more)
    machine.install().ok()
    assert machine.started() == 1
    assert machine.again(more=more) == 1


def test_an_activation_of_the_images_own_is_kept(machine: CountedMachine, images: Images) -> None:
    entries = (Entry("opt/activate", b"true\n", mode=0o644), Entry("bin/bash", b'#!/bin/sh\nexec sh "$@"\n'))
    machine.image = images.tiny("past-checks-activated", entries=entries)
    machine.write(more="activate: . /opt/activate\n")
    machine.install().ok()
    assert machine.started() == 1
    assert machine.again(more="activate: . /opt/activate\n") == 0
