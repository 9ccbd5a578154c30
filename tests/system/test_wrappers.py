"""The wrappers, run with real Apptainer by root and by an ordinary user, from a prefix and an image with spaces."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sifmod.config.name import ModuleName
from sifmod.module.plan import Activation, Bind, Runtime, Wrapper
from support.command import run
from support.generation import SHELLS, make_generation
from support.images import Images
from support.runtime import RUNTIME
from support.wrappers import Somebody, tiny_plan

pytest_plugins = ("support.wrapper_fixtures",)

ODD = (
    "a b",
    "",
    " ",
    "*",
    "$HOME",
    "$(touch pwned)",
    "`id`",
    "'",
    '"',
    "\\",
    "new\nline",
    "\n",
    "é ü 漢",
    "-x",
    "--",
    "=",
)


def test_arguments_arrive_as_they_are(somebody: Somebody, switch: Path) -> None:
    result = somebody.run((switch / "bin" / "show", *ODD))
    assert (result.code, result.stderr) == (0, "")
    assert tuple(result.stdout.split("\0")[:-1]) == ODD
    assert not list(somebody.home.rglob("pwned"))


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_every_sh_reads_the_wrappers(shell: tuple[str, ...], switch: Path) -> None:
    result = run((*shell, switch / "bin" / "show", *ODD))
    assert (result.code, result.stderr) == (0, "")
    assert tuple(result.stdout.split("\0")[:-1]) == ODD


@settings(max_examples=25)
@given(args=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=20))
def test_any_arguments_arrive_as_they_are(args: list[str], switch: Path) -> None:
    result = run((switch / "bin" / "show", *args))
    assert result.stdout.split("\0")[:-1] == args or not args
    assert (result.code, result.stderr) == (0, "")


@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 200, 255])
def test_the_exit_code_is_the_commands(somebody: Somebody, switch: Path, code: int) -> None:
    result = somebody.run((switch / "bin" / "in-sh", "-c", f"echo out; echo err >&2; exit {code}"))
    assert (result.code, result.stdout, result.stderr) == (code, "out\n", "err\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGKILL])
def test_a_command_killed_by_a_signal_looks_like_that(somebody: Somebody, switch: Path, number: signal.Signals) -> None:
    assert somebody.run((switch / "bin" / "in-sh", "-c", f"kill -{int(number)} $$")).code == -number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(somebody: Somebody, switch: Path, number: signal.Signals) -> None:
    script = f"trap 'echo caught; exit 9' {int(number)}; echo ready; while :; do sleep 0.05; done"
    process = somebody.start((switch / "bin" / "in-sh", "-c", script))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (9, "caught\n", "")


def test_standard_input_is_the_commands(somebody: Somebody, switch: Path) -> None:
    assert somebody.run((switch / "bin" / "in-sh", "-c", "cat"), stdin="a\nb\x00ü").ok().stdout == "a\nb\x00ü"


def test_a_command_that_is_not_in_the_image(switch: Path) -> None:
    result = run((switch / "bin" / "nothing",))
    assert result.code == 255  # the runtime's own
    assert "no-such-command" in result.stderr


def test_the_way_through_a_symbolic_link_is_the_same(somebody: Somebody, switch: Path, shared_tmp: Path) -> None:
    link = shared_tmp / "python of an IDE"
    link.symlink_to(switch / "bin" / "show")
    assert somebody.run((link, "a")).ok().stdout == "a\0"


def test_nothing_is_started_before_the_runtime(switch: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    users = {
        "SINGULARITY_BINDPATH": "/usr:/mnt",
        "APPTAINERENV_PREPEND_PATH": "/opt:/srv",
        "SINGULARITYENV_PIP_USER": "1",
    }
    traced = ("strace", "-f", "-o", log, "-e", "trace=execve,fork,vfork,clone,clone3")
    run((*traced, switch / "bin" / "in-sh", "-c", ":"), env={**os.environ, **users}).ok()
    calls = [line.split(None, 1)[1] for line in log.read_text().splitlines()]
    assert calls[0].startswith("execve(")
    assert calls[0].endswith("= 0")
    assert calls[1].startswith(f'execve("{RUNTIME.path}"')
    assert calls[1].endswith("= 0")


def test_the_image_is_looked_for_at_home_then_centrally(shared_tmp: Path, tiny: Path, images: Images) -> None:
    central = shared_tmp / "central images"
    base = tiny_plan(shared_tmp / "pre fix")
    wanted = replace(base, image=replace(base.required_image, image_dirs=("/nonexistent", str(central))))
    switch = make_generation(wanted, tiny)
    ask = (switch / "bin" / "in-sh", "-c", "cat /etc/variant")
    assert run(ask).ok().stdout == "tiny\n"

    (switch / "tiny.sif").unlink()
    missing = run(ask)
    assert (missing.code, missing.stdout) == (127, "")
    root = switch.resolve()
    places = f"{root}/tiny.sif, /nonexistent/tiny.sif, {central}/tiny.sif"
    assert missing.stderr == (
        f"{base.module}: the image is missing; looked for {places}\n\n"
        f"hint: sifmod install {base.easyconfig} --prefix {shared_tmp / 'pre fix'} brings it back\n"
    )

    central.mkdir()
    shutil.copyfile(images.tiny("central"), central / "tiny.sif")
    assert run(ask).ok().stdout == "central\n"


def test_the_runtime_is_looked_for_on_path_when_it_has_moved(shared_tmp: Path, tiny: Path) -> None:
    moved = tiny_plan(shared_tmp / "pre fix", runtime=Runtime(RUNTIME.kind, "/opt/old/bin/runtime"))
    switch = make_generation(moved, tiny)
    assert run((switch / "bin" / "in-sh", "-c", "echo ran")).ok().stdout == "ran\n"
    result = run(("/bin/sh", switch / "bin" / "in-sh"), env={"PATH": "/nonexistent"})
    assert (result.code, result.stdout) == (127, "")
    assert result.stderr.startswith(f"{moved.module}: neither apptainer nor singularity is installed here\n\nhint: ")


def test_in_a_container_already_the_command_itself_is_run(switch: Path, tiny: Path) -> None:
    """Bound into a container and even first on PATH there, a wrapper finds the real command; it starts no other one."""
    root = switch.resolve()
    inside = (RUNTIME.path, "-q", "exec", "-B", f"{switch.parents[2]},{tiny.parent}", tiny, "sh", "-c")
    script = (
        f"PATH='{switch}/bin:{root}/bin':$PATH; export PATH; "
        "show 'a b'; "
        "sh -c 'test -n \"$SINGULARITY_CONTAINER\" && echo inside'; sh -c 'exit 7'; echo $?; nothing; echo $?"
    )
    result = run((*inside, script))
    assert result.stdout == "a b\0inside\n7\n127\n"
    assert "no-such-command" in result.stderr


def test_in_the_container_of_another_image_a_wrapper_starts_nothing_of_it(
    somebody: Somebody, shared_tmp: Path, images: Images
) -> None:
    """Three modules with one command, two of them of one image: from each to each."""
    prefix = shared_tmp / "pre fix"
    made: dict[str, Path] = {}
    for name, image in (("one", "first"), ("two", "first"), ("three", "second")):
        file = Path(shutil.copyfile(images.tiny(image), shared_tmp / f"{image}.sif"))
        bind = Bind(str(prefix), str(prefix))
        switch = make_generation(tiny_plan(prefix, module=ModuleName("Tiny", name), binds=(bind,)), file)
        (switch / "share").resolve().joinpath("image").write_text(f"{image:0>16}\n")
        made[name] = switch
    for outer, out in made.items():
        for inner, switch in made.items():
            words = (out / "bin" / "in-sh", "-c", f"'{switch}/bin/in-sh' -c 'echo $APPTAINER_CONTAINER'")
            found = somebody.run(words)
            if (outer == "three") == (inner == "three"):
                assert (found.code, found.stderr) == (0, "")
                assert found.stdout.endswith("/tiny.sif\n")
            else:
                assert (found.code, found.stdout) == (127, "")
                assert (
                    f"Tiny/{inner}: this is the container of {out.resolve()}/tiny.sif, and sh belongs to another image"
                    in found.stderr
                )
                forced = somebody.run(words, env={"APPTAINERENV_SIFMOD_ANY_CONTAINER": "1"})
                assert forced.stdout == f"{out.resolve()}/tiny.sif\n"


def test_an_activation_command_is_run_by_bash_inside(somebody: Somebody, shared_tmp: Path, images: Images) -> None:
    image = Path(shutil.copyfile(images.python_sif, shared_tmp / "python.sif"))
    command = "source /opt/miniconda3/bin/activate pytorch"
    wrappers = (Wrapper("python", ("python",)), Wrapper("list-packages", ("/runscripts/list-packages",)))
    wanted = tiny_plan(
        shared_tmp / "pre fix",
        activation=Activation(command, command),
        wrappers=wrappers,
        runscripts=("list-packages",),
    )
    switch = make_generation(wanted, image)
    show = "import os, sys; print(sys.prefix, os.environ['WITH_CONDA'], sys.argv[1:]); sys.exit(7)"
    result = somebody.run((switch / "bin" / "python", "-c", show, "a b", "$x"), env={"PYTHONPATH": "/host"})
    assert (result.code, result.stderr) == (7, "")
    assert result.stdout == f"/opt/miniconda3/envs/pytorch {command} ['a b', '$x']\n"
    listed = somebody.run((switch / "bin" / "list-packages",))
    assert (listed.code, listed.stderr) == (0, "")
    assert "\npip " in listed.stdout


def test_a_shell_without_bash_in_the_image(somebody: Somebody, switch: Path) -> None:
    result = somebody.run((switch / "bin" / "start-shell", "-c", 'echo "$1"', "sh", "a b"))
    assert (result.code, result.stdout, result.stderr) == (0, "a b\n", "")
