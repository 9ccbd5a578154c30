"""Which programs of an image are worth a wrapper: where they are looked for, and what speaks of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from sifmod.errors import ImageError
from sifmod.image.find_wrappers import Found, Search, find_wrappers
from sifmod.image.inspect.description import Config, ImageDescription
from sifmod.image.sources.source_kinds import parse
from support.inside import Files, programs, rootfs

PATH = "/usr/local/bin:/usr/bin:/bin"
SHELL = ("start-shell", "")


def found(
    tmp_path: Path,
    files: Files,
    *,
    path: Sequence[str] = (),
    activate: str = "",
    named: Sequence[str] = (),
    environment: str = PATH,
    source: str = "./thing.sif",
    **config: object,
) -> Found:
    said = Config(environment=(("PATH", environment),), labels=config.pop("labels", ()))  # type: ignore[arg-type]
    said = said._replace(**{key: config[key] for key in ("entrypoint", "cmd") if key in config})  # type: ignore[arg-type]
    described = ImageDescription("SIF", "amd64", 1, config=said, runscript=str(config.get("runscript", "")))
    search = Search(parse(source), tuple(path), activate, frozenset(named))
    with rootfs(tmp_path / "image", files) as inside:
        return find_wrappers(inside, described, search)


def names(result: Found) -> tuple[str, ...]:
    return tuple(name for name, _ in result.commands)


EVERYWHERE = programs("/opt/a/bin/tool-a", "/opt/b/bin/tool-b", "/usr/local/bin/ours", "/usr/bin/dist", "/bin/base")


def test_software_is_in_the_image_s_path_but_for_the_distribution(tmp_path: Path) -> None:
    assert found(tmp_path, EVERYWHERE) == Found((("ours", ""), SHELL), ())
    result = found(tmp_path, EVERYWHERE, environment=f"/opt/b/bin:/opt/a/bin:{PATH}")
    assert result == Found((("ours", ""), ("tool-a", ""), ("tool-b", ""), SHELL), ())


def test_what_the_easyconfig_puts_in_front_is_the_software(tmp_path: Path) -> None:
    result = found(tmp_path, EVERYWHERE, path=("/opt/a/bin/", "/opt/nowhere", "/usr/bin"))
    assert result == Found((("tool-a", ""), SHELL), ())
    for directory in ("/usr/bin", "/bin", "/sbin", "/usr/sbin"):
        files = {**EVERYWHERE, **programs(f"{directory}/more")}
        assert names(found(tmp_path, files, path=(directory,))) == ("ours", "start-shell")


@pytest.mark.parametrize("place", ["/runscripts", "/user-software", "/user-software/bin", "/opt/conda/condabin"])
def test_directories_that_are_not_the_software_s(tmp_path: Path, place: str) -> None:
    files = {**EVERYWHERE, **programs(f"{place}/own")}
    assert names(found(tmp_path, files, path=(place,))) == ("ours", "start-shell")
    assert names(found(tmp_path, programs(f"{place}-x/own"), path=(f"{place}-x",))) == (
        ("start-shell",) if place == "/user-software/bin" else ("own", "start-shell")
    )


def test_an_activated_environment_comes_first(tmp_path: Path) -> None:
    files = {**EVERYWHERE, **programs("/c/envs/e/bin/tool-e", "/c/envs/e/bin/tool-a")}
    result = found(tmp_path, files, path=("/opt/a/bin",), activate="source /c/bin/activate e")
    assert result.commands == (("tool-a", ""), ("tool-e", ""), SHELL)


def test_an_environment_that_path_does_not_lead_to(tmp_path: Path) -> None:
    """Its programs are started by their paths; those that PATH leads to elsewhere too."""
    files = {**programs("/venv/bin/python", "/venv/bin/tool", "/usr/local/bin/tool", "/usr/local/bin/other")}
    result = found(tmp_path, files)
    assert result.commands == (
        ("python", "/venv/bin/python"),
        ("tool", "/venv/bin/tool"),
        SHELL,
        ("list-packages", ""),
    )


def test_the_system_s_python_and_its_commands(tmp_path: Path) -> None:
    library = "/usr/lib/python3/dist-packages/numpy-1.0.dist-info"
    result = found(tmp_path, {**programs("/usr/bin/python3", "/usr/bin/dist", "/usr/local/bin/x"), library: None})
    assert result.commands == (("python3", ""), ("x", ""), SHELL, ("list-packages", ""))


def test_python_in_another_place_than_the_easyconfig_s_is_not_its(tmp_path: Path) -> None:
    files = programs("/venv/bin/python", "/venv/bin/ray", "/opt/a/bin/pip", "/opt/a/bin/tool")
    result = found(tmp_path, files, path=("/opt/a/bin",))
    assert result.commands == (("pip", ""), ("tool", ""), SHELL, ("list-packages", ""))


@pytest.mark.parametrize(
    ("name", "expected"), [(name, True) for name in ("pip", "pip3", "python", "python3")] + [("ray", False)]
)
def test_packages_are_listed_where_there_is_a_python(tmp_path: Path, name: str, expected: bool) -> None:
    result = found(tmp_path, programs(f"/opt/a/bin/{name}"), path=("/opt/a/bin",))
    assert ("list-packages" in names(result)) == expected


def test_scripts_that_the_easyconfig_names_are_not_given_again(tmp_path: Path) -> None:
    files = programs("/opt/a/bin/python", "/opt/a/bin/start-shell", "/opt/a/bin/tool")
    assert names(found(tmp_path, files, path=("/opt/a/bin",))) == ("python", "tool", "start-shell", "list-packages")
    named = ("list-packages", "tool")
    assert names(found(tmp_path, files, path=("/opt/a/bin",), named=named)) == ("python", "start-shell")


def test_names_that_are_left_to_the_host(tmp_path: Path) -> None:
    files = programs(*(f"/opt/a/bin/{name}" for name in ("git", "ls", "tool", "-x", "a b", "aarch64-linux-gnu-ld")))
    assert found(tmp_path, files, path=("/opt/a/bin",), named=("ls",)) == Found(
        (("tool", ""), SHELL), ("git",), ("-x", "a b")
    )


def test_names_of_toolchains_and_entrypoints_are_not_given(tmp_path: Path) -> None:
    bad = ("x86_64-conda-linux-gnu-ld", "a-linux-musl-b", "x-conda-y", "my-entrypoint.py", "x" * 101)
    files = programs(*(f"/opt/a/bin/{name}" for name in (*bad, "x" * 100, "conda-x", "linux-gnu")))
    result = found(tmp_path, files, path=("/opt/a/bin",))
    assert names(result) == ("conda-x", "linux-gnu", "x" * 100, "start-shell")
    assert result.unusable == ("x" * 101,)


USED = programs("/usr/bin/used", "/usr/bin/unused", "/opt/x/used", "/usr/bin/git")


@pytest.mark.parametrize("words", [
    ("used",), ("/usr/bin/used", "unused"), ("tini", "used"), ("/sbin/dumb-init", "--", "/bin/used"),
    ("env", "A=1", "used"), ("/usr/bin/tini", "-g", "-s", "--", "used"),
])  # fmt: skip
@pytest.mark.parametrize("key", ["entrypoint", "cmd"])
def test_what_is_started_has_a_wrapper(tmp_path: Path, key: str, words: tuple[str, ...]) -> None:
    assert found(tmp_path, USED, **{key: words}).commands == (("used", ""), SHELL)  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [("A=1",), ("tini", "--"), ("-c", "used"), ("git",), ("/opt/none/at-all",)])
def test_what_is_started_but_has_none(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert found(tmp_path, USED, entrypoint=words) == Found((SHELL,), ())


def test_a_program_outside_of_path_is_started_by_its_path(tmp_path: Path) -> None:
    files = programs("/opt/x/used", "/opt/y$/used")
    assert found(tmp_path, files, entrypoint=("/opt/x/used",)).commands == (("used", "/opt/x/used"), SHELL)
    assert found(tmp_path, files, entrypoint=("/opt/y$/used",)).commands == (SHELL,)
    assert found(tmp_path, files, entrypoint=("opt/x/used",)).commands == (SHELL,)


@pytest.mark.parametrize(
    ("runscript", "expected"),
    [
        ("#!/bin/sh\n  exec used -x\nexec unused\n", True),
        ("exec\t/usr/bin/used;", True),
        ("#!/bin/sh\nexec /bin/sh\nexec used\n", False),
        ("# exec used\n", False),
        ('exec "$@"\n', False),
    ],
)
def test_a_runscript_speaks_of_what_it_becomes(tmp_path: Path, runscript: str, expected: bool) -> None:
    assert names(found(tmp_path, USED, runscript=runscript)) == (("used",) if expected else ()) + ("start-shell",)


@pytest.mark.parametrize("label", ["org.opencontainers.image.title", "org.label-schema.name", "software", "name"])
def test_a_label_speaks_of_its_software(tmp_path: Path, label: str) -> None:
    files = programs("/usr/bin/Used", "/usr/bin/used", "/usr/bin/group")
    result = found(tmp_path, files, labels=((label, " group/Used "),))
    assert set(names(result)) == {"Used", "used", "start-shell"}
    assert names(found(tmp_path, files, labels=((f"{label}.x", "used"),))) == ("start-shell",)


def test_very_many_commands_are_an_error(tmp_path: Path) -> None:
    files = programs(*(f"/opt/a/bin/n{number}" for number in range(2001)))
    with pytest.raises(ImageError) as caught:
        found(tmp_path, files, path=("/opt/a/bin",))
    assert caught.value.message == (
        "the image has 2001 commands for wrappers, more than 2000 (`limits: {wrappers: N}` in the settings raises "
        "the limit)"
    )
    assert len(found(tmp_path, files, path=("/opt/a/bin",), named=("n1",)).commands) == 2001
