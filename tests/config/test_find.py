"""Which file a name means."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sifmod.config.find import easyconfigs, find_easyconfig, name_of, places_before, quick_robot_paths, shipped
from sifmod.errors import EasyconfigNotFoundError
from support.command import SIFMOD
from support.config import Configuration, write
from support.user import OrdinaryUser


@pytest.fixture
def directories(tmp_path: Path) -> tuple[Path, Path]:
    """Two directories of an easyconfig path."""
    first, second = tmp_path / "first", tmp_path / "second"
    write(first / "App-1.0.yaml", "x: 1")
    write(first / "my-tool/my-tool-2.0-cuda.yaml", "x: 1")
    write(first / "presets/App-preset.yaml", "x: 1")
    write(first / "sites/App-site.yaml", "x: 1")
    write(second / "App/App-1.0.yaml", "x: 1")
    write(second / "App/App-1.1.yml", "x: 1")
    write(second / "App/notes.txt", "x")
    return first, second


def missing(name: str, directories: tuple[Path, ...]) -> EasyconfigNotFoundError:
    with pytest.raises(EasyconfigNotFoundError) as caught:
        find_easyconfig(name, directories)
    assert caught.value.exit_code == 4
    return caught.value


def test_a_name_is_looked_up_in_order_with_or_without_its_ending(directories: tuple[Path, Path]) -> None:
    first, second = directories
    for name in ("App-1.0", "App-1.0.yaml"):
        assert find_easyconfig(name, directories) == first / "App-1.0.yaml"
        assert find_easyconfig(name, (second, first)) == second / "App/App-1.0.yaml"
    assert find_easyconfig("App-1.1", directories) == second / "App/App-1.1.yml"
    assert find_easyconfig("my-tool-2.0-cuda", directories) == first / "my-tool/my-tool-2.0-cuda.yaml"


def test_a_path_is_that_file_and_nothing_else(directories: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = directories
    assert find_easyconfig(str(second / "App/App-1.0.yaml"), (first,)) == second / "App/App-1.0.yaml"
    monkeypatch.chdir(second)
    assert find_easyconfig("App/App-1.1.yml", (first,)) == Path("App/App-1.1.yml")
    assert missing("./App-1.0.yaml", directories).message == "no such file: ./App-1.0.yaml"


def test_a_file_here_comes_before_the_path(directories: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directories[1] / "App")
    assert find_easyconfig("App-1.0.yaml", directories) == Path("App-1.0.yaml")
    assert find_easyconfig("App-1.0", directories) == directories[0] / "App-1.0.yaml"


def test_what_is_not_found_is_told_with_the_places(directories: tuple[Path, Path]) -> None:
    error = missing("Ap-1.0", directories)
    assert error.message == f"no easyconfig is called 'Ap-1.0'; looked in\n  {directories[0]}\n  {directories[1]}"
    assert missing("", directories).message.startswith("no easyconfig is called ''")


@pytest.mark.parametrize("name", ["presets", "App-preset", "App-site", "..", ".", "x" * 5000, "a\0b", "App-1.0.txt"])
def test_what_is_no_easyconfigs_name_is_not_found(directories: tuple[Path, Path], name: str) -> None:
    missing(name, directories)


def test_every_easyconfig_of_the_path_is_found_once(directories: tuple[Path, Path]) -> None:
    first, second = directories
    found = (first / "App-1.0.yaml", first / "my-tool/my-tool-2.0-cuda.yaml", second / "App/App-1.1.yml")
    assert easyconfigs(directories) == found
    assert easyconfigs((first / "absent", second)) == tuple(sorted((second / "App").glob("App-*")))


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ({}, {}),
        ({"robot_paths": "/a:b:/a"}, {}),
        ({"robot_paths": "/a"}, {"SIFMOD_ROBOT_PATHS": "/c:/a:", "SIFMOD_PREFIX": "/p"}),
        ({"site": "lumi-g"}, {"SIFMOD_SITE": "nowhere"}),
        *(({}, {"SIFMOD_SITE": path.stem}) for path in sorted((shipped() / "sites").glob("*.yaml"))),
    ],
)
def test_the_path_is_known_without_settings_files(
    tmp_path: Path, options: dict[str, str], variables: dict[str, str]
) -> None:
    configuration = Configuration(tmp_path, variables)
    quick = quick_robot_paths(options.get("site"), options.get("robot_paths"), configuration.environ)
    assert quick == configuration.site(**options).site.robot_paths


@pytest.mark.parametrize(
    ("site", "variables", "settings"),
    [
        ("nowhere", {}, ""),
        ("../sites/generic", {}, ""),
        (None, {"SIFMOD_SITE": "/x.yaml"}, ""),
        (None, {"SIFMOD_ROBOT_PATHS": "a"}, ""),
        (None, {"SIFMOD_ROBOT_PATHS": "/a/${USER}"}, ""),
        (None, {"SIFMOD_ROBOTPATHS": "/a"}, ""),
        (None, {}, "etc"),
        (None, {}, "home/.config/sifmod"),
    ],
)
def test_the_path_is_left_to_settings_and_to_who_refuses_it(
    tmp_path: Path, site: str | None, variables: dict[str, str], settings: str
) -> None:
    (tmp_path / settings).mkdir(parents=True, exist_ok=True)
    assert quick_robot_paths(site, None, Configuration(tmp_path, variables).environ) is None


def test_what_to_type_for_a_file(directories: tuple[Path, Path]) -> None:
    first, second = directories
    assert name_of(second / "App/App-1.1.yml", directories) == "App-1.1"
    assert name_of(second / "App/App-1.0.yaml", directories) == str(second / "App/App-1.0.yaml"), "another hides it"
    odd = write(first / "tools/App-9.yaml", "x: 1")
    assert name_of(odd, directories) == str(odd), "not where a name is looked up"


def test_shipped_easyconfigs_are_there() -> None:
    assert (shipped() / "PyTorch/PyTorch-2.2.0.yaml").is_file()
    assert find_easyconfig("PyTorch-2.2.0", (shipped(),)) == shipped() / "PyTorch/PyTorch-2.2.0.yaml"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(max_size=30))
def test_no_name_gives_anything_but_a_file_or_a_message(directories: tuple[Path, Path], name: str) -> None:
    try:
        assert find_easyconfig(name, directories).exists()
    except EasyconfigNotFoundError as error:
        assert error.message


@pytest.mark.parametrize("module", ["input", "index", "find", "prefix"])
def test_cheap_parts_import_neither_pydantic_nor_yaml(module: str) -> None:
    code = f"import sys, sifmod.config.{module}; print(sorted({{'pydantic', 'yaml', 'difflib'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_file_that_would_hide_a_found_one_is_known(directories: tuple[Path, Path]) -> None:
    first, second = directories
    names = ("App-1.1.yaml", "App-1.1.yml", "App/App-1.1.yaml", "App/App-1.1.yml")
    before = tuple(first / name for name in names) + tuple(second / name for name in names[:3])
    assert places_before(second / "App/App-1.1.yml", "App-1.1", directories) == before
    assert places_before(first / "App-1.0.yaml", "App-1.0", directories) == ()
    assert places_before(second / "App/App-1.1.yml", "App/App-1.1.yml", directories) == ()
    assert places_before(Path("elsewhere.yaml"), "elsewhere.yaml", directories) == ()


def test_a_name_does_not_lead_out_of_a_directory(directories: tuple[Path, Path]) -> None:
    write(directories[0].parent / "..-1.yaml", "x: 1")
    missing("..-1", directories)


def test_the_files_of_a_directory_come_in_order(tmp_path: Path) -> None:
    names = [f"{letter}-1" for letter in "hgfedcba"]
    for name in names:
        write(tmp_path / f"{name}.yaml", "x: 1")
        write(tmp_path / "sub" / f"s{name}.yml", "x: 1")
    found = [path.stem for path in easyconfigs((tmp_path,))]
    assert found == [*sorted(names), *(f"s{name}" for name in sorted(names))]


def test_only_files_one_level_deep_are_easyconfigs(tmp_path: Path) -> None:
    for name in (
        "a.yaml",
        "b.txt",
        "X/c.yml",
        "X/d.txt",
        "X/Y/e.yaml",
        "quirks/f.yaml",
        "sites/g.yaml",
        "presets/h.yaml",
    ):
        write(tmp_path / name, "x: 1")
    (tmp_path / "i.yaml").mkdir()
    (tmp_path / "X" / "j.yaml").mkdir()
    assert easyconfigs((tmp_path,)) == (tmp_path / "X/c.yml", tmp_path / "a.yaml")


def test_a_directory_that_cannot_be_read_hides_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/a-1.yaml", "b/b-1.yaml"):
        write(tmp_path / name, "x: 1")
    entries = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path.name == "a":
            raise PermissionError(13, "Permission denied", str(path))
        return entries(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert easyconfigs((tmp_path,)) == (tmp_path / "b/b-1.yaml",)


def test_closed_directories_end_no_command(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    """What a user cannot enter has no easyconfig, no preset and no cache for him."""
    closed, robot = shared_tmp / "closed", shared_tmp / "robot"
    closed.mkdir(0)
    write(robot / "presets/small.yaml", "accelerator: none\n")
    write(robot / "App-1.yaml", "name: App\nversion: '1'\npreset: small\nimage: {sources: [/no/such.sif]}\n")
    write(robot / "Tool/Tool-1.yaml", "name: Tool\nversion: '1'\nimage: {sources: [/no/such.sif]}\n")
    for link in (robot / "App-2.yaml", robot / "Closed", robot / "Tool/Tool-0.yaml"):
        link.symlink_to(closed / link.name)
    env = {"SIFMOD_ROBOT_PATHS": f"{closed}:{robot}", "UV_CACHE_DIR": f"{closed}/uv"}
    for words in (("search", "app"), ("search", "tool"), ("check", robot / "App-1.yaml"), ("gc",)):
        ended = ordinary_user.run((*SIFMOD, *words), env)
        assert ended.code == 0, ended.stderr
