"""`sifmod install pytorch`: the newest that fits and whose image can be had; and what people who know `eb` type."""

import json
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.answer import answer
from support.command import SIFMOD
from support.command import run as run_program
from support.config import write
from support.devices import with_devices
from support.disk_state import disk_state
from support.images import Images
from support.terminal import EOF, answered

SKIP = "--skip-sanity-check"


@pytest.fixture
def robot(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Releases of Tool, of which the newest cannot be had, and others are for other machines."""
    here = f"image: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    gone = "image: {sources: [/no/such/place/x.sif]}\n"
    top = tmp_path / "the easyconfigs"
    both = f"variants: {{cuda: {{versionsuffix: -cuda, {here.splitlines()[0]}}}, cpu: {{versionsuffix: -cpu}}}}\n"
    write(top / "Tool-1.9.yaml", f"name: Tool\nversion: '1.9'\n{here}{both}")
    write(top / "Tool-1.10.yaml", f"name: Tool\nversion: '1.10'\n{here}{both}")
    write(top / "Tool-1.11-rocm.yaml", f"name: Tool\nversion: '1.11'\nversionsuffix: -rocm\naccelerator: rocm\n{here}")
    write(top / "Tool-1.12.yaml", f"name: Tool\nversion: '1.12'\naccelerator: none\n{gone}")
    arm = here.replace("}", ", arch: arm64}")
    write(top / "Tool-1.13.yaml", f"name: Tool\nversion: '1.13'\naccelerator: none\n{arm}")
    write(top / "Tool-20240801.yaml", f"name: Tool\nversion: '20240801'\naccelerator: none\n{here}")
    write(top / "Only-3.yaml", f"name: Only\nversion: '3'\naccelerator: cuda\n{here}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "tree"))
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", str(top))
    return top


def said(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capfd.readouterr().err.splitlines() if line.startswith(("== tool: ", "== TOOL: "))]


@pytest.mark.parametrize("word", ["tool", "TOOL"])
def test_the_newest_that_fits_is_installed(word: str, robot: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", word, SKIP, "--accelerator", "none"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[-1] == "module load Tool/1.10-cpu"
    first = f"== {word}: the newest for this machine is Tool/1.10-cpu: sifmod install Tool-1.10 --variant cpu"
    assert err.splitlines()[:2] == [
        first,
        f"== {word}: there are also 1.9, 20240801; `sifmod search {word}` lists all",
    ]
    assert f"Tool/1.10-cpu: installing from {robot}/Tool-1.10.yaml, variant cpu\n" in err
    before = disk_state(robot.parent / "tree")
    assert run(["install", word, SKIP, "--accelerator", "none"]) == 0
    assert "Tool/1.10-cpu: already installed, nothing to do" in capfd.readouterr().err
    assert disk_state(robot.parent / "tree") == before


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (("--accelerator", "rocm"), "Tool/1.11-rocm"),
        (("--accelerator", "cuda"), "Tool/1.10-cuda"),
        (("--site", "generic"), "Tool/1.10-cpu"),  # it was named
        (("--variant", "cuda"), "Tool/1.10-cuda"),
    ],
)
@pytest.mark.usefixtures("robot")
def test_which_one(words: tuple[str, ...], module: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "tool", *words, "-D"]) == 0
    assert f"(module: {module})" in capfd.readouterr().out


@pytest.mark.parametrize(("device", "module"), [("nvidiactl", "Tool/1.10-cuda"), ("kfd", "Tool/1.11-rocm")])
@pytest.mark.parametrize("words", [(), ("--accelerator", "auto")])
@pytest.mark.usefixtures("robot")
def test_a_gpu_of_this_machine_decides(device: str, module: str, words: tuple[str, ...], tmp_path: Path) -> None:
    scratch = tmp_path / "dev"
    scratch.mkdir()
    done = run_program((*with_devices(scratch, device), *SIFMOD, "install", "tool", "-D", *words))
    assert f"(module: {module})" in done.ok().stdout


@pytest.mark.usefixtures("robot")
def test_what_is_there_for_one_accelerator_only_needs_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "only", "-D"]) == 0
    assert "(module: Only/3)" in capfd.readouterr().out


COMMANDS = """\
  cuda  Tool/1.10-cuda: sifmod install Tool-1.10 --variant cuda
  none  Tool/1.10-cpu: sifmod install Tool-1.10 --variant cpu
  rocm  Tool/1.11-rocm: sifmod install Tool-1.11-rocm
"""
INSTALL = (*SIFMOD, "install", "tool", "-D")


def test_nothing_says_which_accelerator(robot: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """On a login node, without a terminal: all of them are listed, and none is installed."""
    for words in ((), ("--accelerator", "auto"), ("-q",)):
        assert run(["install", "tool", SKIP, *words]) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith(
            "error: tool has variants for several accelerators, and neither the site nor this machine"
        )
        assert sorted(err.splitlines()[1:4]) == COMMANDS.splitlines()
        assert "SIFMOD_ACCELERATOR=" in err
    assert not (robot.parent / "tree").exists()
    assert answer(capfd, ("install", "tool"), 2)[0]["exit_code"] == 2


@pytest.mark.parametrize(
    ("typed", "module"), [("cuda", "Tool/1.10-cuda"), ("none", "Tool/1.10-cpu"), ("cpu", "Tool/1.10-cpu")]
)
@pytest.mark.usefixtures("robot")
def test_on_a_terminal_it_is_asked(typed: str, module: str) -> None:
    """With the words of SIFMOD_ACCELERATOR; `cpu` is understood too."""
    code, said = answered(INSTALL, typed)
    assert code == 0
    assert "== tool is for none, cuda, rocm\r\nWhich accelerator will it use (none, cuda, rocm): " in said
    assert f"(module: {module})" in said


def test_the_end_of_the_input_is_no_answer(robot: Path) -> None:
    code, said = answered(INSTALL, EOF)
    assert code == 2, "as without a terminal"
    assert "(none, cuda, rocm): \r\n\x1b[31m" in said, "the error begins a line"
    assert "tool has variants for several accelerators" in said
    assert "SIFMOD_ACCELERATOR=cuda, rocm or none" in said
    assert "interrupted" not in said
    assert not (robot.parent / "tree").exists()


@pytest.mark.usefixtures("robot")
def test_a_setting_says_it_once_for_all(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write(own_home / ".config/sifmod/config.yaml", "accelerator: none\n")
    assert run(["install", "tool", "-D"]) == 0
    assert "(module: Tool/1.10-cpu)" in capfd.readouterr().out
    monkeypatch.setenv("SIFMOD_ACCELERATOR", "rocm")
    assert run(["install", "tool", "-D"]) == 0
    assert "(module: Tool/1.11-rocm)" in capfd.readouterr().out


@pytest.mark.usefixtures("robot")
def test_cpu_is_none(own_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Wherever an accelerator is typed; what is shown has one word."""
    assert run(["install", "tool", "-D", "--accelerator", "cpu"]) == 0
    assert run(["search", "tool", "--accelerator", "cpu"]) == 0
    listed = capfd.readouterr().out
    assert run(["search", "tool", "none"]) == 0
    assert listed.endswith(capfd.readouterr().out)
    assert "(module: Tool/1.10-cpu)" in listed
    monkeypatch.setenv("SIFMOD_ACCELERATOR", "cpu")
    assert run(["install", "tool", "-D"]) == 0
    capfd.readouterr()
    shown = {one["key"]: one["value"] for one in answer(capfd, ("config", "show"))}
    assert shown["accelerator"] == "none"
    monkeypatch.delenv("SIFMOD_ACCELERATOR")
    write(own_home / ".config/sifmod/config.yaml", "accelerator: cpu\n")
    assert run(["install", "tool", "-D"]) == 0
    assert "(module: Tool/1.10-cpu)" in capfd.readouterr().out


def test_none_fits(robot: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "only", "tool", SKIP, "--accelerator", "none"]) == 5
    err = capfd.readouterr().err
    assert "no Only with accelerator none and architecture amd64 has an image that is available here" in err
    assert "`sifmod search only` lists all variants (1)" in err
    assert "1 of 2 done, exit code 5" in err  # the other is installed all the same
    assert (robot.parent / "tree/software/Tool/1.10-cpu").exists()


@pytest.fixture
def driver(robot: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site whose driver runs ROCm 6.1 to 7.0, and modules of Roc for several."""
    image = f"accelerator: rocm\nimage: {{sources: ['{images.tiny_sif}']}}\n"
    for version, rocm in (("1", "6.0.3"), ("2", "6.4.4"), ("3", "7.0.2"), ("4", "7.1")):
        write(robot / f"Roc-{version}.yaml", f"name: Roc\nversion: '{version}'\nversionsuffix: -rocm-{rocm}\n{image}")
    write(robot / "Roc-5.yaml", f"name: Roc\nversion: '5'\ncontents: {{ROCm: '10.1'}}\n{image}")
    site = write(robot.parent / "hill.yaml", "name: hill\naccelerator: rocm\ndriver_runs: {rocm: ['>=6.1', '<7.1']}\n")
    monkeypatch.setenv("SIFMOD_SITE", str(site))
    return site


@pytest.mark.usefixtures("driver")
def test_what_the_driver_does_not_run_is_no_newest(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "roc", SKIP]) == 0
    err = capfd.readouterr().err
    assert "== roc: the newest for this machine is Roc/3-rocm-7.0.2: sifmod install Roc-3\n" in err
    assert "== roc: there are also 2; " in err
    assert "warning" not in err
    assert run(["outdated"]) == 0
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(("name", "what"), [("Roc-1", "6.0.3"), ("Roc-4", "7.1"), ("Roc-5", "10.1")])
@pytest.mark.usefixtures("driver")
def test_an_install_of_it_warns(name: str, what: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", name, SKIP]) == 0
    said = f"has rocm {what}, and the driver here runs rocm >=6.1 <7.1: expect it to fail on a GPU\n"
    assert said in capfd.readouterr().err


@pytest.mark.usefixtures("driver")
def test_a_search_marks_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "roc"]) == 0
    out = capfd.readouterr().out
    marked = {line.split()[0]: "[not on this driver]" in line for line in out.splitlines() if line.startswith("Roc/")}
    assert marked == {
        "Roc/1-rocm-6.0.3": True,
        "Roc/2-rocm-6.4.4": False,
        "Roc/3-rocm-7.0.2": False,
        "Roc/4-rocm-7.1": True,
        "Roc/5": True,
    }
    assert run(["search"]) == 0
    (row,) = (line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("Roc "))
    assert row[:4] == ["Roc", "3", "5", "rocm"]


def test_a_driver_that_is_written_wrongly(driver: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for text, said in (
        ("{rocm: ['6.x']}", "expected a comparison with a version, such as '>=6.1' or '<7.1', got '6.x'"),
        ("{hip: ['>=6']}", "driver_runs"),
    ):
        driver.write_text(f"name: hill\ndriver_runs: {text}\n")
        assert run(["install", "roc", "-D"]) == 5
        assert said in capfd.readouterr().err


def test_of_lumi_the_newest_is_what_its_driver_runs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SIFMOD_ROBOT_PATHS", raising=False)
    assert run(["install", "pytorch", "-D", "--site", "lumi-g"]) == 0
    assert "-rocm-7.0.2-" in capfd.readouterr().out
    assert run(["search", "pytorch", "2.2.0", "lumi", "--site", "lumi-g"]) == 0
    assert all("[not on this driver]" in line for line in capfd.readouterr().out.splitlines() if "rocm-5.6.1" in line)


def test_a_file_of_that_name_goes_first(robot: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    write(robot / "tool.yaml", f"name: Tool\nversion: '0'\nimage: {{sources: ['{images.tiny_sif}']}}\n")
    assert run(["install", "tool", "-D"]) == 0
    assert "(module: Tool/0)" in capfd.readouterr().out


@pytest.mark.usefixtures("robot")
def test_a_name_that_is_none(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "nosuch"]) == 4
    assert "no easyconfig is called 'nosuch'" in capfd.readouterr().err


def test_a_name_as_easybuild_has_it(robot: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "Tool-1.9.eb", SKIP]) == 0
    capfd.readouterr()
    assert run(["install", "Tool-1.9.eb", SKIP]) == 0
    assert "Tool/1.9-cpu: already installed, nothing to do" in capfd.readouterr().err
    (robot.parent / "Tool-1.9.eb").write_text("name = 'Tool'\n")  # a file of EasyBuild is another thing
    assert run(["install", "Tool-1.9.eb", "-D"]) == 4
    assert "`sifmod import Tool-1.9.eb` converts it to an easyconfig" in capfd.readouterr().err


@pytest.mark.usefixtures("robot")
def test_a_search_as_easybuild_has_it(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (("-S", "only"), ("--search", "only", "--json")):
        assert run(["search", *words[1:]]) == 0
        expected = capfd.readouterr()
        assert run(["install", *words]) == 0
        assert capfd.readouterr() == expected
    assert run(["install", "-S", "nosuch"]) == 1


@pytest.mark.usefixtures("robot")
def test_what_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "Tool-1.9", SKIP]) == 0
    capfd.readouterr()
    assert run(["install", "-M", "Tool-1.9", "Tool-1.10.eb"]) == 0
    out, err = capfd.readouterr()
    assert [line.partition(" (module: ")[2] for line in out.splitlines()] == ["Tool/1.10-cpu)"]
    assert err == "== missing: 1 of 2 modules\n"
    assert run(["install", "--missing-modules", "Tool-1.9", "--json"]) == 0
    assert [row["mark"] for row in json.loads(capfd.readouterr().out)] == ["x"]
    assert run(["install", "-M", "Tool-1.9", "nosuch"]) == 4


def test_a_check_alone_changes_nothing(robot: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["install", "Tool-1.9", "--sanity-check-only"]
    assert run(words) == 24
    assert "Tool/1.9-cpu is not installed in " in capfd.readouterr().err
    assert not (robot.parent / "tree").exists()
    assert run(["install", "Tool-1.9", SKIP]) == 0
    before = disk_state(robot.parent / "tree")
    capfd.readouterr()
    assert run(words) == 0
    assert capfd.readouterr() == ("", "== Tool/1.9-cpu: the sanity check found nothing wrong in generation 1\n")
    assert answer(capfd, (*words[:1], "--json", *words[1:]))[0]["changed"] is False
    easyconfig = robot / "Tool-1.9.yaml"
    easyconfig.write_text(easyconfig.read_text().replace("[sh]", "[sh, no-such-command]"))
    assert run(words) == 22
    assert "sanity check of Tool/1.9-cpu: not in the image: no-such-command" in capfd.readouterr().err
    assert disk_state(robot.parent / "tree") == before


def test_a_build_date_is_not_newer_than_a_release(robot: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for version in ("20240918", "2.4"):
        write(robot / f"Night-{version}.yaml", f"name: Night\nversion: '{version}'\nimage: {{sources: ['/x.sif']}}\n")
    assert run(["search"]) == 0
    (row,) = (line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("Night "))
    assert row[:3] == ["Night", "2.4", "2"]
