"""The key `limits`: each bound is in the documentation, is named by the error, and can be raised."""

import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.limits import Limits, use_limits
from support.command import ROOT
from support.config import write
from support.images import Images

EASYCONFIG = "name: Tiny\nversion: '1'\ndescription: none\naccelerator: none\nwrappers: []\nimage:\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "con fig"))
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "pre fix"))
    return tmp_path


def test_the_page_has_each_with_its_value() -> None:
    page = (ROOT / "docs/site.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([0-9]+)(MiB|TiB|) \|$", page, re.MULTILINE)
    factors = {"": 1, "MiB": 1 << 20, "TiB": 1 << 40}
    assert {name: int(number) * factors[unit] for name, number, unit in rows} == Limits().model_dump()


def test_the_code_names_no_other() -> None:
    """Where a limit is named by a text, no type holds it."""
    named = re.compile(r"\b(?:(?:bound|raised)\(|(?:read_bounded|read_text)\([\w.]+, )[\"'](\w+)[\"']")
    found = {name for file in (ROOT / "sifmod").rglob("*.py") for name in named.findall(file.read_text())}
    assert len(found) > 12
    assert found <= Limits.model_fields.keys()


def a_stack(here: Path, images: Images) -> list[str]:
    write(here / "Tiny-1.yaml", f"{EASYCONFIG}  sources: ['{images.tiny_sif}']\n")
    write(here / "in.yaml", "easyconfigs: ['*/Tiny-*.yaml', Tiny-1.yaml]\n")
    for number in range(3):
        write(here / f"d{number}/Tiny-1{number}.yaml", f"extends: ../Tiny-1.yaml\nversion: '1{number}'\n")
    write(here / "in 2.yaml", "include: [in.yaml]\n")
    return ["stack", "plan", str(write(here / "st ack.yaml", "name: ours\ninclude: [in 2.yaml]\n"))]


def a_large_stack(here: Path, images: Images) -> list[str]:
    words = a_stack(here, images)
    with (here / "st ack.yaml").open("a") as file:
        file.write("#" * 2000)
    return words


def a_lock(here: Path, images: Images) -> list[str]:
    stack = a_stack(here, images)[-1]
    for verb in ("apply", "lock"):
        assert run(["stack", verb, stack]) == 0
    return ["stack", "apply", stack, "--locked"]


def a_bundle(here: Path, images: Images) -> list[str]:
    stack = a_lock(here, images)[2]
    bundle = str(here / "it.tar")
    assert run(["stack", "bundle", stack, "--no-wheels", "-o", bundle]) == 0
    return ["stack", "apply", "--bundle", bundle, "--prefix", str(here / "another")]


def a_recipe(here: Path, images: Images) -> list[str]:
    for number in range(3):
        write(here / f"data/{number}", "x")
    text = f"{EASYCONFIG}  build: {{from: '{images.tiny_sif}', files: {{data: /data}}}}\n"
    return ["install", str(write(here / "Tiny-1.yaml", text)), "--skip-sanity-check"]


def requirements(here: Path, images: Images) -> list[str]:
    write(here / "wanted.txt", f"-e {'x' * 2000}\n")
    text = f"{EASYCONFIG}  build: {{from: '{images.tiny_sif}', requirements: wanted.txt}}\n"
    return ["install", str(write(here / "Tiny-1.yaml", text)), "--skip-sanity-check"]


def lines_of_requirements(here: Path, images: Images) -> list[str]:
    write(here / "more.txt", "# none\nsix\nsix\n")
    write(here / "wanted.txt", "six\n-r more.txt\n")
    text = f"{EASYCONFIG}  build: {{from: '{images.tiny_sif}', requirements: wanted.txt}}\n"
    return ["install", str(write(here / "Tiny-1.yaml", text)), "--skip-sanity-check"]


def a_lock_of_packages(here: Path, images: Images) -> list[str]:
    packages = "".join(f'[[packages]]\nname = "p{number}"\nversion = "1"\n' for number in range(9))
    write(here / "pylock.toml", f'lock-version = "1.0"\ncreated-by = "x"\n{packages}')
    text = f"{EASYCONFIG}  build: {{from: '{images.tiny_sif}', requirements: pylock.toml}}\n"
    return ["install", str(write(here / "Tiny-1.yaml", text)), "--skip-sanity-check"]


def an_archive(here: Path, images: Images) -> list[str]:  # noqa: ARG001
    with tarfile.open(here / "x.tar", "w") as archive:
        for name in ("oci-layout", "index.json", "b", "c"):
            member = tarfile.TarInfo(name)
            member.pax_headers = {"comment": "x" * 2000}
            archive.addfile(member)
    text = f"{EASYCONFIG}  sources: ['oci-archive:{here}/x.tar']\n"
    return ["install", "-q", str(write(here / "Tiny-1.yaml", text))]


CASES: dict[str, tuple[Callable[[Path, Images], list[str]], str]] = {
    "stack_size": (a_large_stack, "1KiB"),
    "include_depth": (a_stack, "1"),
    "included_files": (a_stack, "1"),
    "pattern_directories": (a_stack, "2"),
    "pattern_files": (a_stack, "2"),
    "bundle_files": (a_bundle, "3"),
    "bundle_file_size": (a_bundle, "1KiB"),
    "bundle_size": (a_bundle, "1KiB"),
    "lock_size": (a_lock, "1KiB"),
    "lock_values": (a_lock_of_packages, "9"),
    "requirements_size": (requirements, "1KiB"),
    "requirement_size": (requirements, "1KiB"),
    "requirement_lines": (lines_of_requirements, "3"),
    "build_files": (a_recipe, "2"),
    "archive_files": (an_archive, "1"),
    "header_size": (an_archive, "1KiB"),
}
ELSEWHERE = {  # and the tests that have it
    "image_packages": "test_inventory.py",
    "image_files": "test_inventory.py",
    "layer_ratio": "test_layers_decompress.py",
    "wrappers": "test_find_wrappers.py",
    "sparse_file_size": "test_layers_sparse.py",
    "build_text_size": "test_hostile_builds.py",
    "build_rules": "test_hostile_builds.py",
    "build_images": "test_hostile_builds.py",
    "uv_memory": "../actions/test_layer_parts.py",
    "package_size": "../actions/test_layer_parts.py",
    "sanity_check_time": "../actions/test_sanity.py",
}


def test_each_is_tried() -> None:
    assert {*CASES, *ELSEWHERE} == {*Limits.model_fields}
    assert all(name in (ROOT / "tests/image" / file).read_text() for name, file in ELSEWHERE.items())


@pytest.mark.parametrize("name", CASES)
def test_the_error_names_it_and_raising_it_helps(
    here: Path, images: Images, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make, low = CASES[name]
    use_limits(Limits())
    words = make(here, images)
    settings = write(here / "con fig/sifmod/config.yaml", f"limits: {{{name}: {low}}}\n")
    capfd.readouterr()
    assert run(words) in (2, 5, 10, 11)
    assert f"(`limits: {{{name}: N}}` in the settings raises the limit)" in capfd.readouterr().err
    settings.write_text(f"limits: {{{name}: 10000000}}\n")
    run(words)
    assert "limits:" not in capfd.readouterr().err


def test_a_large_requirements_file(here: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "wanted.txt", f"six\n{'#' * 2000}\n")
    text = f"{EASYCONFIG}  build: {{from: '{images.tiny_sif}', requirements: wanted.txt}}\n"
    write(here / "con fig/sifmod/config.yaml", "limits: {requirements_size: 1KiB}\n")
    assert run(["install", str(write(here / "Tiny-1.yaml", text)), "--skip-sanity-check"]) != 0
    assert "wanted.txt has more bytes than 1024 (`limits: {requirements_size: N}`" in capfd.readouterr().err


@pytest.mark.parametrize("verb", ["check", "import"])
def test_a_directory_with_too_many_files(here: Path, verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    """`sifmod check /` listed all the machine's files before it said anything."""
    for number in range(3):
        write(here / f"data/{number}/x.txt", "")
    settings = write(here / "con fig/sifmod/config.yaml", "limits: {pattern_files: 6}\n")
    assert run([verb, str(here / "data")]) == 2
    assert "more files are below " in (error := capfd.readouterr().err)
    assert "/data than 6 (`limits: {pattern_files: N}` in the settings raises the limit)" in error
    settings.write_text("limits: {pattern_files: 7}\n")
    run([verb, str(here / "data")])
    assert "limits:" not in capfd.readouterr().err


@pytest.mark.parametrize("words", [("add", "Tiny/1", "-r"), ("layer", "sync", "Tiny/1")])
def test_a_layers_files_are_read_within_the_sites_limits(
    here: Path, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """They were read before the settings, so that the key which the error named changed nothing."""
    name = write(here / "wanted.txt", f"one @ https://host/{'x' * 70_000}\n")
    said = "has more characters than 65536 (`limits: {requirement_size: N}`"
    assert run([*words, str(name)]) == 2
    assert said in capfd.readouterr().err
    write(here / "con fig/sifmod/config.yaml", "limits: {requirement_size: 1MiB}\n")
    run([*words, str(name)])
    assert "limits:" not in capfd.readouterr().err
