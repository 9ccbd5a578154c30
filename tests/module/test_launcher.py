"""What a wrapper tells the runtime, seen by a runtime that only says what it was told."""

import os
import subprocess
from pathlib import Path

import pytest

from plans import Published, plan, publish
from sifmod.actions.script_output import AS_FIELDS, said
from sifmod.config.name import ModuleName
from sifmod.image.child import Ended
from sifmod.module.plan import Activation, Bind, Plan, Runtime, Wrapper
from support.command import Result, run

SAYS = '#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done\nprintf "==\\0"\nexec env -0\n'
OF_THE_RUNTIME = ("SINGULARITY", "APPTAINER")


class Told:
    """The words and the variables that a runtime was started with."""

    def __init__(self, result: Result) -> None:
        assert (result.code, result.stderr) == (0, ""), result
        words, _, variables = result.stdout.partition("==\0")
        self.words = words.split("\0")[:-1]
        self.variables = dict(each.split("=", 1) for each in variables.split("\0")[:-1])

    def both(self, suffix: str) -> str | None:
        """A variable of the runtime, which has the same value in either spelling or is in neither."""
        one, other = (self.variables.get(f"{prefix}{suffix}") for prefix in OF_THE_RUNTIME)
        assert one == other
        return one


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory whose name is a pattern that fits another one."""
    (tmp_path / "a bx").mkdir()
    return tmp_path / "a b*"


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    path = tmp_path / "the runtime" / "apptainer"
    path.parent.mkdir()
    path.write_text(SAYS)
    path.chmod(0o755)
    return path


def wanted(place: Path, runtime: Path, **changes: object) -> Plan:
    made = plan(
        prefix=str(place), runtime=Runtime("apptainer", str(runtime)), activation=Activation("true", ""), gpu_flags=(),
        binds=(), env=(), path=(), wrappers=(Wrapper("say", ("say it", "*")),), runscripts=(),
    )  # fmt: skip
    return plan(**{**made.__dict__, **changes})


def launch(published: Published, *words: str, **variables: str) -> Result:
    return run((published.root / "bin" / "say", *words), env={"PATH": "/usr/bin:/bin", **variables})


def told(published: Published, *words: str, **variables: str) -> Told:
    return Told(launch(published, *words, **variables))


def test_words_arrive_as_they_are(place: Path, runtime: Path) -> None:
    published = publish(wanted(place, runtime))
    words = ("a b", "*", "", "$HOME", "it's", "-q")
    assert told(published, *words).words == ["-q", "exec", str(published.image), "say it", "*", *words]
    assert told(publish(wanted(place, runtime, verb="run"))).words[:2] == ["-q", "run"]


def test_the_users_own_variables_stay_and_ours_do_not_show(place: Path, runtime: Path) -> None:
    found = told(publish(wanted(place, runtime)), IFSX="1", MINE="x y").variables
    assert (found["IFSX"], found["MINE"]) == ("1", "x y")
    assert not [name for name in found if name.startswith("sifmod_")]


def test_a_virtual_environment_of_the_host_is_told_on_a_terminal(place: Path, runtime: Path) -> None:
    commands = (Wrapper("python", ("python",)), Wrapper("say", ("say",)))
    published = publish(wanted(place, runtime, wrappers=commands))
    expected = "PyTorch/2.2.0-rocm-5.6.1: its Python does not see the virtual environment /my/venv; use `sifmod add`"
    for name, variables, told_there in (
        ("python", {"VIRTUAL_ENV": "/my/venv"}, True),
        ("python", {}, False),
        ("say", {"VIRTUAL_ENV": "/my/venv"}, False),
    ):
        ours, theirs = os.openpty()
        command, env = (str(published.root / "bin" / name),), {"PATH": "/usr/bin:/bin", **variables}
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=theirs, check=True)
        os.write(theirs, b"end\n")
        said = ""
        while "end" not in said:
            said += os.read(ours, 4096).decode()
        assert (expected in said, said.count("\n")) == (told_there, 1 + told_there), said
        os.close(ours)
        os.close(theirs)
    silent = run((published.root / "bin" / "python",), env={"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "/my/venv"})
    assert (silent.code, silent.stderr) == (0, "")


def test_binds_of_the_module(place: Path, runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "there *").mkdir()
    binds = (
        Bind(f"{tmp_path}/there *", "/in side"),
        Bind(f"{tmp_path}/there *", "/opt/x", ("ro",), optional=True),
        Bind("/no/such/place", "/no/such/place", optional=True),
        Bind("/usr", "/usr"),
    )
    published = publish(wanted(place, runtime, binds=binds))
    assert told(published).variables["SINGULARITY_BINDPATH"] == ",".join(
        (
            *(f"{published.root}/runscripts:/runscripts:ro", f"{tmp_path}/there *:/in side"),
            *(f"{tmp_path}/there *:/opt/x:ro", "/usr"),
        )
    )
    assert told(published).both("_BINDPATH") is not None


def test_binds_of_the_user_come_first_from_every_variable(place: Path, runtime: Path) -> None:
    published = publish(wanted(place, runtime, binds=(Bind("/usr", "/data"),)))
    found = told(
        published,
        SINGULARITY_BIND="/a*:/b:ro,image-src=/x,id=2",
        APPTAINER_BIND="/c:/d:rw",
        SINGULARITY_BINDPATH="/e,/f:/b/",
        APPTAINER_BINDPATH="/g:/data/,,/e/",
    )
    assert found.variables["APPTAINER_BINDPATH"] == (
        f"/a*:/b:ro,image-src=/x,id=2,/c:/d:rw,/e,/g:/data/,{published.root}/runscripts:/runscripts:ro"
    )
    assert found.both("_BIND") is None


@pytest.mark.parametrize("option", ["ro", "rw", "image-src=/x", "id=2"])
def test_an_option_behind_a_comma_stays_with_its_bind(place: Path, runtime: Path, option: str) -> None:
    published = publish(wanted(place, runtime))
    found = told(published, SINGULARITY_BIND=f"/a:/b:x,{option},/c:/d:x,{option}").variables["SINGULARITY_BINDPATH"]
    assert found == f"/a:/b:x,{option},/c:/d:x,{option},{published.root}/runscripts:/runscripts:ro"
    lists = {"SINGULARITY_BINDPATH": f"/a:/b:x,{option},/c", "_SIFMOD_BINDS": f"/a:/b:x,{option}"}
    assert told(published, **lists).variables["SINGULARITY_BINDPATH"].startswith("/c,")


def test_a_name_that_is_a_pattern_is_just_that(place: Path, runtime: Path) -> None:
    published = publish(wanted(place, runtime, path=("/runscripts",)))
    found = told(published, SINGULARITY_BIND="/us*,/et?", SINGULARITYENV_PREPEND_PATH="/us*", _SIFMOD_LOADED="*")
    assert found.variables["SINGULARITY_BINDPATH"].startswith("/us*,/et?,/")
    assert found.both("ENV_PREPEND_PATH") == "/us*:/runscripts"


def test_binds_that_a_loaded_module_has_put_there_are_not_the_users(place: Path, runtime: Path) -> None:
    published = publish(wanted(place, runtime))
    lists = {"SINGULARITY_BINDPATH": "/mine,/theirs:/t:ro,id=1,/last", "_SIFMOD_BINDS": "/theirs:/t:ro,id=1,/last"}
    found = told(published, **lists).variables["SINGULARITY_BINDPATH"]
    assert found == f"/mine,{published.root}/runscripts:/runscripts:ro"


def test_a_required_bind_that_is_missing_is_named(place: Path, runtime: Path) -> None:
    published = publish(wanted(place, runtime, binds=(Bind("/no/such*", "/data"),)))
    failed = launch(published)
    assert (failed.code, failed.stdout) == (127, "")
    assert failed.stderr == (
        "PyTorch/2.2.0-rocm-5.6.1: the bind source /no/such* is missing on this machine\n\n"
        "hint: the module needs it; run this where it exists\n"
    )
    assert "/usr:/data" in told(published, SINGULARITY_BIND="/usr:/data").variables["SINGULARITY_BINDPATH"]


def test_the_users_software_is_a_squashfs_else_a_directory_else_nothing(place: Path, runtime: Path) -> None:
    published = publish(wanted(place, runtime, user_software=True))
    scripts = f"{published.root}/runscripts:/runscripts:ro"
    assert told(published).variables["SINGULARITY_BINDPATH"] == scripts
    directory = published.root / "user-software"
    directory.mkdir()
    assert told(published).variables["SINGULARITY_BINDPATH"] == f"{scripts},{directory}:/user-software"
    (published.root / "user-software.squashfs").touch()
    assert told(published).variables["SINGULARITY_BINDPATH"] == (
        f"{scripts},{directory}.squashfs:/user-software:ro,image-src=/"
    )


def test_the_image_is_looked_for_where_the_site_keeps_it_too(place: Path, runtime: Path, tmp_path: Path) -> None:
    image = plan().required_image.__class__(
        **{**plan().required_image.__dict__, "image_dirs": (f"{tmp_path}/im ages", "/none")}
    )
    published = publish(wanted(place, runtime, image=image), image=False)
    failed = launch(published)
    places = f"{published.image}, {tmp_path}/im ages/{image.filename}, /none/{image.filename}"
    assert (failed.code, failed.stderr) == (
        127,
        f"PyTorch/2.2.0-rocm-5.6.1: the image is missing; looked for {places}\n\n"
        f"hint: sifmod install PyTorch-2.2.0 --prefix {place} brings it back\n",
    )
    published.image.symlink_to("nowhere")
    central = tmp_path / "im ages" / image.filename
    central.parent.mkdir()
    central.touch()
    assert told(published).words[2] == str(central)
    published.image.unlink()
    published.image.touch()
    assert told(published).words[2] == str(published.image)


def test_the_runtime_is_looked_for_on_path_where_it_was_is_no_more(place: Path, runtime: Path, tmp_path: Path) -> None:
    published = publish(wanted(place, tmp_path / "gone"))
    for directory in ("/usr/bin", "/bin"):
        (tmp_path / "path").mkdir(exist_ok=True)
        for name in ("sh", "env"):
            if not (tmp_path / "path" / name).exists():
                (tmp_path / "path" / name).symlink_to(f"{directory}/{name}")
    failed = launch(published, PATH=str(tmp_path / "path"))
    assert (failed.code, failed.stderr) == (
        127,
        "PyTorch/2.2.0-rocm-5.6.1: neither apptainer nor singularity is installed here\n\n"
        "hint: sifmod doctor says what is missing\n",
    )
    as_fields = launch(published, PATH=str(tmp_path / "path"), **AS_FIELDS)
    assert said(Ended(as_fields.code, as_fields.stderr.encode())) == (
        (
            "PyTorch/2.2.0-rocm-5.6.1: neither apptainer nor singularity is installed here",
            "sifmod doctor says what is missing",
        ),
    )
    (tmp_path / "path" / "singularity").symlink_to(runtime)
    assert told(published, PATH=str(tmp_path / "path")).words[:2] == ["-q", "exec"]


ENV = (("PLAIN", "x y"), ("SIGNS", "a$b`c\\d\"e'f"))


@pytest.mark.parametrize("value", ["", "0", "f", "F", "false", "False", "FALSE"])
@pytest.mark.parametrize("name", ["SINGULARITY_NO_EVAL", "APPTAINER_NO_EVAL"])
def test_values_are_spelled_for_a_runtime_that_evaluates(place: Path, runtime: Path, name: str, value: str) -> None:
    found = told(publish(wanted(place, runtime, env=ENV, path=("/a$b",))), **{name: value})
    assert found.both("ENV_PLAIN") == "x y"
    assert found.both("ENV_SIGNS") == "a\\$b\\`c\\\\d\"e'f"
    assert found.both("ENV_PREPEND_PATH") == "/a\\$b"
    assert found.variables[name] == value


@pytest.mark.parametrize("value", ["1", "t", "true", "yes", "no", " "])
@pytest.mark.parametrize("name", ["SINGULARITY_NO_EVAL", "APPTAINER_NO_EVAL"])
def test_values_are_plain_for_one_that_does_not(place: Path, runtime: Path, name: str, value: str) -> None:
    found = told(publish(wanted(place, runtime, env=ENV, path=("/a$b",))), **{name: value})
    assert (found.both("ENV_PLAIN"), found.both("ENV_SIGNS")) == ENV[0][1:] + ENV[1][1:]
    assert found.both("ENV_PREPEND_PATH") == "/a$b"
    assert found.both("_NO_EVAL") == "1"


def test_what_an_entrypoint_gets_is_never_evaluated(place: Path, runtime: Path) -> None:
    found = told(publish(wanted(place, runtime, env=ENV, verb="run")))
    assert (found.both("ENV_SIGNS"), found.both("_NO_EVAL")) == (ENV[1][1], "1")
    assert told(publish(wanted(place, runtime, env=ENV))).both("_NO_EVAL") is None


@pytest.mark.parametrize("value", ["mine", "", "a;b*"])
@pytest.mark.parametrize("prefix", OF_THE_RUNTIME)
def test_the_users_own_value_goes_first_in_both_spellings(place: Path, runtime: Path, prefix: str, value: str) -> None:
    found = told(publish(wanted(place, runtime, env=ENV)), **{f"{prefix}ENV_PLAIN": value})
    assert (found.both("ENV_PLAIN"), found.both("ENV_SIGNS")) == (value, "a\\$b\\`c\\\\d\"e'f")


def test_what_the_plan_sets_inside_is_not_taken_from_the_host(place: Path, runtime: Path) -> None:
    hosts = {"PYTHONPATH": "/x", "LD_PRELOAD": ""}
    kept_out = told(publish(wanted(place, runtime, env=(("LD_PRELOAD", ""), ("PYTHONPATH", "")))), **hosts).variables
    assert not {"PYTHONPATH", "LD_PRELOAD"} & set(kept_out)
    assert told(publish(wanted(place, runtime)), **hosts).variables["PYTHONPATH"] == "/x"


def test_the_users_directories_are_in_front_once(place: Path, runtime: Path) -> None:
    published = publish(wanted(place, runtime, path=("/runscripts", "/opt/bin")))
    lists = {"SINGULARITYENV_PREPEND_PATH": "/a*:/opt/bin::/b", "APPTAINERENV_PREPEND_PATH": "/b:/c:/a*"}
    assert told(published, **lists).both("ENV_PREPEND_PATH") == "/a*:/b:/c:/runscripts:/opt/bin"
    assert told(published).both("ENV_PREPEND_PATH") == "/runscripts:/opt/bin"
    record = "1;apptainer;;/theirs:/more;X=1"
    loaded = {"_SIFMOD_LOADED": "Other", "_SIFMOD_WANT_Other": record}
    lists = {"SINGULARITYENV_PREPEND_PATH": "/theirs:/mine:/more"}
    assert told(published, **lists, **loaded).both("ENV_PREPEND_PATH") == "/mine:/runscripts:/opt/bin"


GPUS = ("_NV", "_NVCCLI", "_ROCM")


@pytest.mark.skipif(
    any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd"))),
    reason="it is about a machine without GPUs, and this machine has GPUs",
)
@pytest.mark.parametrize("flags", [(), ("nv",), ("nvccli",), ("rocm",)])
def test_a_runtime_is_told_of_no_gpu_where_there_is_none(place: Path, runtime: Path, flags: tuple[str, ...]) -> None:
    published = publish(wanted(place, runtime, gpu_flags=flags))
    users = {f"{prefix}{flag}": "1" for prefix in OF_THE_RUNTIME for flag in GPUS}
    for variables in ({}, users):
        found = told(published, **variables)
        assert [found.both(flag) for flag in GPUS] == [None] * 3


def forgotten(published: Published, record: str, keys: str = "A", **variables: str) -> dict[str, str]:
    """What is left of some variables of the runtime where modules are loaded that have set them."""
    found = told(published, _SIFMOD_LOADED=keys, _SIFMOD_WANT_A=record, **variables).variables
    return {name: found[name] for name in variables if name in found}


def test_what_loaded_modules_have_set_is_forgotten_and_what_the_user_has_is_not(place: Path, runtime: Path) -> None:
    published = publish(wanted(place, runtime))
    record = (
        "1;apptainer;/x;/y;SINGULARITYENV_A=1;APPTAINERENV_B=a%3Bb%25c%3B;SINGULARITYENV_C=old;OTHER=1;SINGULARITY=2"
    )
    mine = {"SINGULARITYENV_C": "new", "OTHER": "1", "SINGULARITY": "2", "SINGULARITYENV_D": "1"}
    theirs = {"SINGULARITYENV_A": "1", "APPTAINERENV_B": "a;b%c;"}
    assert forgotten(published, record, **mine, **theirs) == mine
    assert forgotten(published, record, keys="other:A:more", **mine, **theirs) == mine


def test_without_a_load_the_host_is_as_after_one(place: Path, runtime: Path) -> None:
    host = (("HOSTS", "a b"), ("USERS", "module's"))
    published = publish(wanted(place, runtime, host_env=host, default_env=(("DEFAULT", "$HOME"),)))
    given = {"USERS": "mine", "EMPTY": "", "SIF": "/another.sif", "CONTAINERROOT": "/another"}
    found = told(published, **given).variables
    names = ("HOSTS", "USERS", "DEFAULT", "SIF", "CONTAINERROOT", "EBVERSIONPYTORCH")
    assert [found[name] for name in names] == [
        "a b", "mine", "$HOME", str(published.image), str(published.root), "2.2.0",
    ]  # fmt: skip
    loaded = told(published, _SIFMOD_GENERATION_PyTorch=str(published.root), **given).variables
    assert "HOSTS" not in loaded  # which the user has taken away since
    assert loaded["SIF"] == "/another.sif"


@pytest.mark.parametrize(
    ("keys", "record"),
    [
        ("A", "2;apptainer;;;SINGULARITYENV_A=1"),
        ("A", "1;apptainer;SINGULARITYENV_A=1"),
        ("A", ""),
        ("", "1;apptainer;;;SINGULARITYENV_A=1"),
        ("A-B", "1;apptainer;;;SINGULARITYENV_A=1"),
        ("A", "1;apptainer;;;SINGULARITYENV_A-=1"),
        ("A", "1;apptainer;;;SINGULARITYENV_A=11"),
    ],
)
def test_a_record_that_says_something_else_forgets_nothing(place: Path, runtime: Path, keys: str, record: str) -> None:
    left = forgotten(publish(wanted(place, runtime)), record, keys, SINGULARITYENV_A="1")
    assert left == {"SINGULARITYENV_A": "1"}


@pytest.fixture
def inside(place: Path, runtime: Path, tmp_path: Path) -> Published:
    """A module whose launcher takes `tmp_path / "sing"` for the directory that every container has."""
    published = publish(wanted(place, runtime, wrappers=(Wrapper("tool", ("tool", "a b")),)))
    launcher = published.root / "share" / "launch.sh"
    launcher.write_text(launcher.read_text().replace("/.singularity.d", str(tmp_path / "sing")))
    tool = tmp_path / "us*r bin" / "tool"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "real" "$PATH" "$@"\n')
    tool.chmod(0o755)
    return published


def called(inside: Published, path: str, **variables: str) -> Result:
    return run((inside.root / "bin" / "tool", "c*", ""), env={"PATH": path, **variables})


@pytest.mark.parametrize("name", ["APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"])
def test_in_its_own_container_the_command_itself_is_run(inside: Published, tmp_path: Path, name: str) -> None:
    (tmp_path / "sing").mkdir()
    stable = Path(inside.plan.prefix) / "software" / str(inside.plan.module) / "bin"
    (tmp_path / "link").symlink_to(inside.root / "bin")
    (tmp_path / "a l*nk.sif").symlink_to(inside.image)
    rest = f"{tmp_path}/us*r bin:/usr/bin:/bin"
    for wrappers in (inside.root / "bin", stable, tmp_path / "link", f"{inside.root}/bin/"):
        found = called(inside, f"{wrappers}:{rest}:{wrappers}", **{name: f"{tmp_path}/a l*nk.sif"}).ok()
        assert (found.stdout.splitlines(), found.stderr) == (["real", rest, "a b", "c*", ""], "")


KEY = "0123456789abcdef"


def said_inside(published: Published, **variables: str) -> str:
    """SIFMOD_CONTAINER, as a wrapper outside has the runtime set it."""
    (published.root / "share" / "image").write_text(f"{KEY}\n/usr/bin/apptainer\n")
    return str(told(published, **variables).both("ENV_SIFMOD_CONTAINER"))


def test_a_wrapper_says_inside_which_container_it_starts(place: Path, runtime: Path) -> None:
    names = (ModuleName("PyTorch", version) for version in "1234")
    one, other = (publish(wanted(place, runtime, module=next(names))) for _ in range(2))
    conda = publish(wanted(place, runtime, module=next(names), path=("/opt/conda/bin",)))
    activated = publish(wanted(place, runtime, module=next(names), activation=Activation("x", "source x")))
    python = said_inside(one).split(":")[1]
    assert said_inside(one, SINGULARITYENV_SIFMOD_CONTAINER="of:another:/module") == f"{KEY}:{python}:{one.image}"
    assert said_inside(other).split(":")[:2] == [KEY, python]
    assert len({said_inside(each).split(":")[1] for each in (one, conda, activated)}) == 3


@pytest.fixture
def another(inside: Published, tmp_path: Path) -> Published:
    """The module in a container of another image, in which no runtime is."""
    (inside.root / "share" / "image").write_text(f"{KEY}\n/usr/bin/apptainer\n")
    (tmp_path / "sing").mkdir()
    (tmp_path / "other.sif").touch()
    Path(inside.plan.runtime.path).rename(tmp_path / "kept")
    return inside


def test_in_the_container_of_another_image_it_fails(another: Published, tmp_path: Path) -> None:
    path, other = f"{another.root}/bin:{tmp_path}/us*r bin", f"{tmp_path}/other.sif"
    python = "0" * 8
    for variables in (
        {},
        {"SIFMOD_CONTAINER": f"{KEY}:{python}:{other}"},  # another Python
        {"SIFMOD_CONTAINER": f"{'f' * 16}:{python}:{other}"},
        {"SIFMOD_CONTAINER": f"{'f' * 16}:{python}:"},
        {"SIFMOD_CONTAINER": "::"},
    ):
        found = called(another, path, APPTAINER_CONTAINER=other, **variables)
        assert (found.code, found.stdout) == (127, "")
        assert found.stderr.startswith(
            f"{another.plan.module}: this is the container of {other}, and tool belongs to another"
        )
        assert found.stderr.endswith("SIFMOD_ANY_CONTAINER=1 runs what is called tool in this one\n")
    there = called(another, path, APPTAINER_CONTAINER=other, SIFMOD_ANY_CONTAINER="1").ok()
    assert there.stdout.startswith("real\n")


def test_a_copy_and_another_module_of_the_image_are_its_own(another: Published, tmp_path: Path) -> None:
    path, other = f"{another.root}/bin:{tmp_path}/us*r bin", f"{tmp_path}/other.sif"
    path += ":/usr/bin:/bin"
    (tmp_path / "kept").rename(another.plan.runtime.path)
    (tmp_path / "sing").rmdir()
    python = str(Told(called(another, path)).both("ENV_SIFMOD_CONTAINER")).split(":")[1]
    (tmp_path / "sing").mkdir()
    said = f"{KEY}:{python}:{other}"
    assert called(another, path, APPTAINER_CONTAINER=other, SIFMOD_CONTAINER=said).ok().stdout.startswith("real\n")
    for place in ("/the/image/outside.sif", ""):  # and then another container was started by hand
        stale = f"{KEY}:{python}:{place}"
        started = Told(called(another, path, APPTAINER_CONTAINER=other, SIFMOD_CONTAINER=stale))
        assert started.words[:3] == ["-q", "exec", str(another.image)]  # there is a runtime


def test_a_variable_or_a_directory_alone_is_no_container(inside: Published, tmp_path: Path) -> None:
    path = f"{tmp_path}/us*r bin:/usr/bin:/bin"
    assert called(inside, path, APPTAINER_CONTAINER="/x.sif").ok().stdout.startswith("-q\0exec\0")
    (tmp_path / "sing").mkdir()
    assert called(inside, path).ok().stdout.startswith("-q\0exec\0")
    assert called(inside, path, SINGULARITY_CONTAINER="").ok().stdout.startswith("-q\0exec\0")
