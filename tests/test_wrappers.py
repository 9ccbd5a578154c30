"""The wrappers, run with real Apptainer by root and by an ordinary user, from a prefix and an image with spaces."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import plan
from sifmod.module.launch import container_env, literal
from sifmod.module.plan import Activation, Bind, ImagePlan, Plan, Runtime, Wrapper
from support.command import Result, run
from support.generation import SHELLS, make_generation
from support.images import Images
from support.user import OrdinaryUser

ODD = ("a b", "", " ", "*", "$HOME", "$(touch pwned)", "`id`", "'", '"', "\\", "new\nline", "\n", "é ü 漢", "-x", "--", "=")
WRAPPERS = (
    Wrapper("sh", ("sh",)),
    Wrapper("env", ("env",)),
    Wrapper("show", ("sh", "-c", 'printf "%s\\0" "$@"', "it's $0")),
    Wrapper("start-shell", ("/runscripts/start-shell",)),
    Wrapper("nothing", ("no-such-command",)),
)


def tiny_plan(prefix: Path, **changes: object) -> Plan:
    """A module of the busybox image, with an image name of its own."""
    image = ImagePlan("tiny.sif", (), (), None, None, "amd64", "copy", False)
    found = shutil.which("apptainer")
    assert found, "apptainer is missing: run scripts/provision"
    wanted = plan(
        prefix=str(prefix),
        image=image,
        runtime=Runtime("apptainer", found),
        accelerator="none",
        gpu_flags=(),
        activation=Activation("true", ""),
        binds=(),
        env=(("LD_PRELOAD", ""), ("PIP_USER", "0"), ("PYTHONNOUSERSITE", "1"), ("PYTHONPATH", "")),
        path=("/runscripts",),
        wrappers=WRAPPERS,
        runscripts=("start-shell",),
    )
    return replace(wanted, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Somebody:
    """Runs commands as root, or as the ordinary user."""

    ordinary: OrdinaryUser | None
    home: Path

    def run(
        self,
        args: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: str = "",
    ) -> Result:
        if self.ordinary is not None:
            return self.ordinary.run(args, env=env, cwd=cwd, stdin=stdin)
        return run(args, env={**os.environ, "HOME": str(self.home), **(env or {})}, cwd=cwd or self.home, stdin=stdin)


@pytest.fixture(params=["root", "ordinary user"])
def somebody(request: pytest.FixtureRequest, shared_tmp: Path, ordinary_user: OrdinaryUser) -> Somebody:
    return Somebody(None if request.param == "root" else ordinary_user, ordinary_user.home)


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A directory for this file's tests that every user can reach, with a space in its name."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sifmod test ") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def tiny(shared: Path, images: Images) -> Path:
    return Path(shutil.copyfile(images.tiny_sif, shared / "tiny image.sif"))


@pytest.fixture(scope="module")
def switch(shared: Path, tiny: Path) -> Path:
    return make_generation(tiny_plan(shared / "pre fix"), tiny)


def environment(result: Result) -> dict[str, str]:
    """What `env` printed, when no value has a newline; nothing else may have been said."""
    assert (result.code, result.stderr) == (0, "")
    return dict(line.split("=", 1) for line in result.stdout.splitlines())


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
@given(args=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))), max_size=20))
def test_any_arguments_arrive_as_they_are(args: list[str], switch: Path) -> None:
    result = run((switch / "bin" / "show", *args))
    assert result.stdout.split("\0")[:-1] == args or not args
    assert (result.code, result.stderr) == (0, "")


@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 200, 255])
def test_the_exit_code_is_the_commands(somebody: Somebody, switch: Path, code: int) -> None:
    result = somebody.run((switch / "bin" / "sh", "-c", f"echo out; echo err >&2; exit {code}"))
    assert (result.code, result.stdout, result.stderr) == (code, "out\n", "err\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGKILL])
def test_a_command_killed_by_a_signal_looks_like_that(switch: Path, number: signal.Signals) -> None:
    assert run((switch / "bin" / "sh", "-c", f"kill -{int(number)} $$")).code == -number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(switch: Path, tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    script = f"trap 'echo caught; exit 9' {int(number)}; : >ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [switch / "bin" / "sh", "-c", script], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        end = time.monotonic() + 60
        while not ready.exists():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (9, "caught\n", "")


def test_standard_input_is_the_commands(somebody: Somebody, switch: Path) -> None:
    assert somebody.run((switch / "bin" / "sh", "-c", "cat"), stdin="a\nb\x00ü").ok().stdout == "a\nb\x00ü"


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
    bind = {"SINGULARITY_BINDPATH": "/usr:/mnt", "APPTAINERENV_PREPEND_PATH": "/opt:/srv", "SINGULARITYENV_PIP_USER": "1"}
    traced = ("strace", "-f", "-o", log, "-e", "trace=execve,fork,vfork,clone,clone3")
    run((*traced, switch / "bin" / "sh", "-c", ":"), env={**os.environ, **bind}).ok()
    calls = [line.split(None, 1)[1] for line in log.read_text().splitlines()]
    assert calls[0].startswith("execve(")
    assert calls[0].endswith("= 0")
    assert calls[1].startswith('execve("/usr/local/bin/apptainer"') or "apptainer" in calls[1]
    assert calls[1].endswith("= 0")


def test_the_environment_inside(somebody: Somebody, switch: Path) -> None:
    host = {"PYTHONPATH": "/host/lib", "LD_PRELOAD": "", "MINE": "kept", "PIP_USER": "1"}
    found = environment(somebody.run((switch / "bin" / "env",), env=host))
    assert found["PATH"].startswith("/runscripts:/usr/local/sbin:")
    wanted = {"PIP_USER": "0", "PYTHONNOUSERSITE": "1", "PYTHONPATH": "", "WITH_CONDA": "true", "MINE": "kept"}
    assert {name: found.get(name) for name in wanted} == wanted
    assert not found.get("LD_PRELOAD")
    assert not [name for name in found if name.startswith("sifmod_")]


def test_the_hosts_preloads_stay_out(switch: Path, tmp_path: Path) -> None:
    """The host's LD_PRELOAD must not even reach the runtime; ld.so would complain inside, where the file is not."""
    library = next(Path("/usr/lib").glob("*/libSegFault.so"), None) or next(Path("/usr/lib").glob("*/libm.so.6"))
    preload = Path(shutil.copyfile(library, tmp_path / "lib host.so".replace(" ", "-")))
    found = environment(run((switch / "bin" / "env",), env={**os.environ, "LD_PRELOAD": str(preload)}))
    assert found.get("LD_PRELOAD", "") == ""


def test_an_easyconfig_can_let_them_in(shared_tmp: Path, tiny: Path) -> None:
    wanted = make_generation(tiny_plan(shared_tmp, env=()), tiny)
    found = environment(run((wanted / "bin" / "env",), env={**os.environ, "PYTHONPATH": "/host/lib"}))
    assert found["PYTHONPATH"] == "/host/lib"


@pytest.mark.parametrize(
    "name", ["SINGULARITY_BIND", "APPTAINER_BIND", "SINGULARITY_BINDPATH", "APPTAINER_BINDPATH"]
)
def test_the_users_binds_come_along(somebody: Somebody, switch: Path, shared_tmp: Path, name: str) -> None:
    (shared_tmp / "da ta").mkdir()
    (shared_tmp / "da ta" / "file").write_text("mine")
    (shared_tmp / "plain").mkdir()
    value = f"{shared_tmp}/da ta:/mnt:ro,{shared_tmp}/plain"
    script = f"cat /mnt/file; ls -d {shared_tmp}/plain /runscripts/start-shell; touch /mnt/x 2>/dev/null || echo ro"
    result = somebody.run((switch / "bin" / "sh", "-c", script), env={name: value})
    assert (result.stderr, result.code) == ("", 0)
    assert result.stdout == f"mine/runscripts/start-shell\n{shared_tmp}/plain\nro\n"


def test_binds_from_every_variable_are_merged(somebody: Somebody, switch: Path, shared_tmp: Path) -> None:
    names = ("SINGULARITY_BIND", "APPTAINER_BIND", "SINGULARITY_BINDPATH", "APPTAINER_BINDPATH")
    env = {}
    for number, name in enumerate(names):
        (shared_tmp / name).mkdir()
        (shared_tmp / name / "file").write_text(name)
        env[name] = f"{shared_tmp}/{name}:/mnt/{number},{shared_tmp}/{name}:/mnt/same/"
    result = somebody.run((switch / "bin" / "sh", "-c", "cat /mnt/[0-3]/file /mnt/same/file"), env=env)
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout == "".join((*names, names[0]))


def test_the_users_bind_of_a_target_goes_first(somebody: Somebody, shared_tmp: Path, tiny: Path) -> None:
    for name in ("module's", "user's"):
        (shared_tmp / name).mkdir()
        (shared_tmp / name / "file").write_text(name)
    module = Bind(f"{shared_tmp}/module's", "/mnt")
    wanted = make_generation(tiny_plan(shared_tmp / "prefix", binds=(module,)), tiny)
    cat = (wanted / "bin" / "sh", "-c", "cat /mnt/file")
    assert somebody.run(cat).ok().stdout == "module's"
    users = somebody.run(cat, env={"SINGULARITY_BINDPATH": f"{shared_tmp}/user's:/mnt/:ro"})
    assert (users.code, users.stdout, users.stderr) == (0, "user's", "")


def test_what_another_loaded_module_binds_is_not_the_users(switch: Path, shared_tmp: Path) -> None:
    theirs = f"{shared_tmp}:/mnt/theirs:ro,{shared_tmp}:/mnt/theirs too"
    env = {"SINGULARITY_BINDPATH": f"{shared_tmp}:/mnt/mine,{theirs}", "_SIFMOD_BINDS": theirs}
    env["APPTAINER_BINDPATH"] = env["SINGULARITY_BINDPATH"]
    result = run((switch / "bin" / "sh", "-c", "ls /mnt"), env={**os.environ, **env})
    assert (result.code, result.stdout, result.stderr) == (0, "mine\n", "")


def test_an_optional_bind_is_left_out_where_it_is_missing(somebody: Somebody, shared_tmp: Path, tiny: Path) -> None:
    optional = Bind(f"{shared_tmp}/there later", "/mnt", optional=True)
    wanted = make_generation(tiny_plan(shared_tmp / "prefix", binds=(optional,)), tiny)
    look = (wanted / "bin" / "sh", "-c", "ls /mnt")
    before = somebody.run(look)
    (shared_tmp / "there later").mkdir()
    (shared_tmp / "there later" / "file").touch()
    after = somebody.run(look)
    assert (before.stderr, after.code, after.stdout, after.stderr) == (before.stderr, 0, "file\n", "")
    assert "file" not in before.stdout


def test_a_required_bind_that_is_missing_is_named(somebody: Somebody, shared_tmp: Path, tiny: Path) -> None:
    required = Bind(f"{shared_tmp}/not here", "/mnt")
    wanted = make_generation(tiny_plan(shared_tmp / "prefix", binds=(required,)), tiny)
    result = somebody.run((wanted / "bin" / "sh", "-c", "echo ran"))
    assert (result.code, result.stdout) == (127, "")
    message, hint = result.stderr.split("\n\nhint: ")
    assert message == f"{plan().module}: the bind source {shared_tmp}/not here is missing on this machine"
    assert hint
    own = {"SINGULARITY_BIND": f"{shared_tmp}:/mnt"}
    assert somebody.run((wanted / "bin" / "sh", "-c", "echo ran"), env=own).ok().stdout == "ran\n"


def test_the_image_is_looked_for_at_home_then_centrally(shared_tmp: Path, tiny: Path, images: Images) -> None:
    central = shared_tmp / "central images"
    base = tiny_plan(shared_tmp / "pre fix")
    wanted = replace(base, image=replace(base.image, image_dirs=("/nonexistent", str(central))))
    switch = make_generation(wanted, tiny)
    ask = (switch / "bin" / "sh", "-c", "cat /etc/variant")
    assert run(ask).ok().stdout == "tiny\n"

    (switch / "tiny.sif").unlink()
    missing = run(ask)
    assert (missing.code, missing.stdout) == (127, "")
    root = switch.resolve()
    places = f"{root}/tiny.sif, /nonexistent/tiny.sif, {central}/tiny.sif"
    assert missing.stderr == (
        f"{base.module}: the image is missing; looked for {places}\n\n"
        f"hint: sifmod install {base.easyconfig} brings it back\n"
    )

    central.mkdir()
    shutil.copyfile(images.tiny("central"), central / "tiny.sif")
    assert run(ask).ok().stdout == "central\n"


def test_the_runtime_is_looked_for_on_path_when_it_has_moved(shared_tmp: Path, tiny: Path) -> None:
    moved = tiny_plan(shared_tmp / "pre fix", runtime=Runtime("apptainer", "/opt/old/bin/apptainer"))
    switch = make_generation(moved, tiny)
    assert run((switch / "bin" / "sh", "-c", "echo ran")).ok().stdout == "ran\n"
    result = run(("/bin/sh", switch / "bin" / "sh"), env={"PATH": "/nonexistent"})
    assert (result.code, result.stdout) == (127, "")
    assert result.stderr.startswith(f"{moved.module}: neither apptainer nor singularity is installed here\n\nhint: ")


def test_in_a_container_already_the_command_itself_is_run(switch: Path, tiny: Path) -> None:
    """Bound into a container and even first on PATH there, a wrapper finds the real command; it starts no other one."""
    root = switch.resolve()
    inside = ("apptainer", "exec", "-B", str(switch.parents[2]), tiny, "sh", "-c")
    script = (
        f"PATH='{switch}/bin:{root}/bin':$PATH; export PATH; "
        "show 'a b'; sh -c 'echo \"$APPTAINER_CONTAINER\"'; sh -c 'exit 7'; echo $?; nothing; echo $?"
    )
    result = run((*inside, script))
    assert result.stdout == f"a b\0{tiny}\n7\n127\n"
    assert "no-such-command" in result.stderr


@pytest.mark.parametrize("spelling", ["SINGULARITYENV_", "APPTAINERENV_"])
def test_the_users_own_value_for_a_variable_goes_first(somebody: Somebody, switch: Path, spelling: str) -> None:
    module = {f"{prefix}ENV_PIP_USER": "0" for prefix in ("SINGULARITY", "APPTAINER")}
    for base in ({}, module):  # the module is not loaded, the module is loaded
        found = environment(somebody.run((switch / "bin" / "env",), env={**base, f"{spelling}PIP_USER": "yes"}))
        assert found["PIP_USER"] == "yes"


def test_the_users_other_variables_come_along_silently(somebody: Somebody, switch: Path) -> None:
    env = {"SINGULARITYENV_NCCL_DEBUG": "INFO", "APPTAINERENV_OTHER": "$((1 + 1))", "SINGULARITY_NO_HOME": "1"}
    found = environment(somebody.run((switch / "bin" / "env",), env=env))
    assert (found["NCCL_DEBUG"], found["OTHER"]) == ("INFO", "2")  # evaluated by the runtime, as the user expects it


@pytest.mark.parametrize("spelling", ["SINGULARITYENV_", "APPTAINERENV_"])
def test_the_users_directories_stay_in_front_of_the_modules(switch: Path, spelling: str) -> None:
    env = {f"{spelling}PREPEND_PATH": "/mine/bin:/runscripts:/my $((1 + 1))"}
    found = environment(run((switch / "bin" / "env",), env={**os.environ, **env}))
    assert found["PATH"].startswith("/mine/bin:/my 2:/runscripts:/usr/")


def test_warnings_and_errors_of_the_runtime_are_not_hidden(switch: Path) -> None:
    env = {**os.environ, "SINGULARITYENV_X": "1", "APPTAINERENV_X": "2"}
    result = run((switch / "bin" / "sh", "-c", ":"), env=env).ok()
    assert "SINGULARITYENV_X and APPTAINERENV_X have different values" in result.stderr


HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    '"; touch pwned; "',
    '\\"; touch pwned; \\"',
    "'; touch pwned; '",
    "${PATH}",
    "$((1+1))",
    "\\",
    'a\\"b\\\\"c\\\\\\"',
    "]==] [exec touch pwned]",
    "~ * ? !",
    "é 漢 🚀",
    "\\u000A",
    "",
    "a=b",
    "--",
)


def test_hostile_values_arrive_as_text(somebody: Somebody, shared_tmp: Path, tiny: Path) -> None:
    env = tuple((f"HOSTILE{number}", value) for number, value in enumerate(HOSTILE))
    wanted = tiny_plan(shared_tmp / "$(touch pwned) `x` 'q'", env=env)
    switch = make_generation(wanted, tiny)
    for told in ({}, {"APPTAINER_NO_EVAL": "1"}):
        found = environment(somebody.run((switch / "bin" / "env",), env=told))
        assert {name: found[name] for name, _ in env} == dict(env)
    loaded = {f"{prefix}ENV_{name}": value for prefix in ("SINGULARITY", "APPTAINER") for name, value in container_env(wanted)}
    for args in ((switch / "bin" / "env",), ("apptainer", "exec", tiny, "env")):  # and with the module loaded
        found = environment(somebody.run(args, env=loaded))
        assert {name: found[name] for name, _ in env} == dict(env)
    assert not list(shared_tmp.rglob("pwned"))


@settings(max_examples=25)
@given(
    values=st.lists(
        st.text(
            st.sampled_from("\\\\\"'$`(){}; \u00e9~!*#&|<>ab")
            | st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="\u0085")
        ),
        min_size=8,
        max_size=32,
    )
)
def test_any_value_arrives_as_text(values: list[str], tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both by the wrapper's sh and by the runtime's evaluation."""
    env = tuple((f"X{number}", value) for number, value in enumerate(values))
    switch = make_generation(tiny_plan(tmp_path_factory.mktemp("any value"), env=env), tiny)
    result = run((switch / "bin" / "sh", "-c", 'n=0; while eval "[ \\"\\${X$n+set}\\" ]"; do eval "printf \'%s\\0\' \\"\\$X$n\\""; n=$((n+1)); done'))
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.split("\0")[:-1] == values


def test_hostile_names_of_directories(somebody: Somebody, shared_tmp: Path, tiny: Path) -> None:
    odd = shared_tmp / "$(touch pwned) `touch pwned` 'q' *"
    (odd / "bin").mkdir(parents=True)
    wanted = tiny_plan(shared_tmp / "prefix", binds=(Bind(str(odd), "/mnt/$(touch pwned) 'x'"),), path=(f"{odd}/bin", "/runscripts"))
    switch = make_generation(wanted, tiny)
    result = somebody.run((switch / "bin" / "sh", "-c", 'echo "$PATH"; ls /mnt'))
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout == f"{odd}/bin:/runscripts:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n$(touch pwned) 'x'\n"
    assert not list(shared_tmp.rglob("pwned"))


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


# No machine of the tests has a GPU: a file with the device's name stands for it, in a /dev of this test's own.
WITH_DEVICES = """
mount -t tmpfs none "$1" && for device in null zero full random urandom tty fuse; do
  : >"$1/$device" && mount --bind "/dev/$device" "$1/$device"
done && mkdir "$1/shm" "$1/pts" && mount --bind /dev/shm "$1/shm" && mount --bind /dev/pts "$1/pts" &&
ln -s /proc/self/fd "$1/fd" && for device in $2; do : >"$1/$device"; done && mount --rbind "$1" /dev && shift 2 && exec "$@"
"""


@pytest.mark.parametrize(
    ("flags", "devices", "expected"),
    [
        (("rocm",), "kfd", {"rocm"}),
        (("rocm",), "", set()),
        (("rocm",), "nvidiactl", set()),
        (("nv",), "nvidiactl", {"legacy binds for nv"}),
        (("nv", "nvccli"), "nvidiactl", {"nvidia-container-cli"}),
        (("nv",), "kfd", set()),
        ((), "kfd nvidiactl", set()),
    ],
)
@pytest.mark.parametrize("loaded", [False, True])
def test_the_runtime_is_told_of_gpus_where_they_are(
    shared_tmp: Path, tiny: Path, flags: tuple[str, ...], devices: str, expected: set[str], loaded: bool
) -> None:
    switch = make_generation(tiny_plan(shared_tmp / "pre fix", gpu_flags=flags), tiny)
    env = {f"{prefix}_{flag.upper()}": "1" for prefix in ("SINGULARITY", "APPTAINER") for flag in flags if loaded}
    dev = shared_tmp / "dev"
    dev.mkdir()
    own_dev = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", WITH_DEVICES, "sh", dev, devices)
    result = run((*own_dev, switch / "bin" / "sh", "-c", ":"), env={**os.environ, **env, "APPTAINER_DEBUG": "1"})
    told = {found.removesuffix(" for") for found in re.findall("Using (.*) GPU setup", result.stderr)}
    assert told == expected
    if not expected:
        silent = run((*own_dev, switch / "bin" / "sh", "-c", ":"), env={**os.environ, **env})
        assert (silent.code, silent.stderr) == (0, "")


def test_the_spelling_for_the_runtime() -> None:
    assert literal('a "b" \\ $c `d` é') == 'a "b" \\\\ \\$c \\`d\\` é'
