"""Small promises of the configuration: each was once broken by fuzz/faults.py without a test that noticed."""

import json
import os
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.bind_paths import tops_of_links
from sifmod.errors import ConfigError, OptionError, SifmodError
from sifmod.system import abbreviated
from support.config import Configuration, lines, write

SHARED_TMP = "/tmp"  # not below /dev, which is the operating system's
EASYCONFIG = "name: App\nversion: '1'\nimage: {sources: [a.sif]}\n"


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(tmp_path)


def test_an_error_is_its_message() -> None:
    assert str(OptionError("what is wrong", "what to do")) == "what is wrong"
    assert isinstance(OptionError("x"), SifmodError)


def test_what_was_found_on_the_machine_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = write(tmp_path / "bin" / "apptainer", "#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert run(["config", "show", "--site", "generic", "--json"]) == 0
    origins = {row["key"]: row["origin"] for row in json.loads(capfd.readouterr().out)}
    assert f"{program} is on PATH" in origins["runtime"]
    assert "the module tool in use" in origins["module_syntax"]
    assert "machine" in origins["arch"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["config", "show", "--site", "generic", "--json"]) == 0
    origins = {row["key"]: row["origin"] for row in json.loads(capfd.readouterr().out)}
    assert "no apptainer or singularity on PATH" in origins["runtime"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b: c\n", "1:5: a second ': ' in one value: quote the text, or check the indentation"),
        ("a:\n\tb: c\n", "2:1: a tab cannot be used here: indent with spaces"),
        ("a: @b\n", "1:4: a text that starts with @ must be quoted"),
        ("a: 1\n---\nb: 2\n", "2:1: a second document starts here: a file must have only one"),
        ("a: [1, 2\n", "2:1: not YAML: did not find expected ',' or ']' while parsing a flow sequence"),
    ],
)
def test_what_is_no_yaml(configuration: Configuration, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configuration.load(write(configuration.root / "App-1.yaml", text))
    assert lines(caught.value) == [f"App-1.yaml:{problem}"]


def test_links_in_a_directory_that_is_reached_by_a_link(shared_tmp: Path) -> None:
    """A relative link is followed from where its directory really is."""
    deep = shared_tmp / "one" / "more" / "deep"
    deep.mkdir(parents=True)
    (shared_tmp / "data").mkdir()
    (deep / "data").symlink_to(os.path.relpath(shared_tmp / "data", deep))
    (shared_tmp / "short").symlink_to("one/more")
    assert tops_of_links(f"{shared_tmp}/short/deep") == (str(shared_tmp),)


def test_what_a_quirk_sets_inside_is_not_set_elsewhere(configuration: Configuration) -> None:
    """What it unsets inside is unset everywhere, and nothing else is."""
    quirk = "description: d\nreason: r\nlink: https://example.org/1\nmatch: {name: App}\nenv: {GONE: null, SET: x}\n"
    write(configuration.root / "etc" / "quirks" / "q.yaml", quirk)
    variables = "env: {GONE: 1, A: 1}\nhost_env: {GONE: 2, B: 2}\nrunscript_env: {GONE: 3, C: 3}\n"
    made = configuration.load(write(configuration.root / "ec" / "App-1.yaml", EASYCONFIG + variables)).easyconfig
    assert {"A", "SET"} <= {*dict(made.env)}
    assert not {"GONE", "B", "C"} & {*dict(made.env)}
    assert dict(made.host_env) == {"B": "2"}
    assert dict(made.runscript_env) == {"C": "3"}


def test_a_match_that_cannot_be_bound_is_left_out(configuration: Configuration) -> None:
    for name in ("a.so", "b,c.so", "d:e.so"):
        write(configuration.root / "lib" / name, "")
    write(configuration.root / "etc" / "own.yaml", f"binds: {{libs: ['{configuration.root}/lib/*.so']}}\n")
    found = configuration.site(site="generic").site.binds
    assert [bind.source for bind in found] == [f"{configuration.root}/lib/a.so"]


def test_empty_parts_of_a_list_in_a_variable(tmp_path: Path) -> None:
    configuration = Configuration(tmp_path, {"SIFMOD_ROBOT_PATHS": f":{tmp_path}/a::{tmp_path}/b:"})
    paths = configuration.site(site="generic").site.robot_paths
    assert paths[:-1] == (tmp_path / "a", tmp_path / "b")  # and what is shipped


@pytest.mark.parametrize(
    ("mirror", "right"),
    [
        ("mirror.example", True),
        ("mirror.example:1/hub/x", True),
        ("[::1]:65535", True),
        ("mirror.example:0", False),
        ("mirror.example:65536", False),
        ("https://mirror.example", False),
        ("mirror.example/", False),
        ("-mirror.example", False),
    ],
)
def test_what_a_mirror_may_be(configuration: Configuration, mirror: str, right: bool) -> None:
    write(configuration.root / "etc" / "own.yaml", f"mirrors: {{docker.io: ['{mirror}']}}\n")
    if right:
        assert str(mirror) in str(configuration.site(site="generic").site.mirrors)
    else:
        with pytest.raises(ConfigError, match="expected a registry and perhaps a path"):
            configuration.site(site="generic")


def test_what_is_wrong_in_a_preset_is_told_with_what_is_wrong_in_the_file(configuration: Configuration) -> None:
    configuration.variables["SIFMOD_ROBOT_PATHS"] = str(configuration.root / "ec")
    write(configuration.root / "ec" / "presets" / "odd.yaml", "a: [1, 2\n")
    path = write(configuration.root / "ec" / "App-1.yaml", f"{EASYCONFIG}preset: odd\nwrong: 1\n")
    with pytest.raises(ConfigError) as caught:
        configuration.load(path)
    told = lines(caught.value)
    assert sorted(line.partition(": ")[0] for line in told) == ["App-1.yaml:5:1", "odd.yaml:2:1"], told


def test_an_image_may_have_no_source_but_not_lose_all(configuration: Configuration) -> None:
    """Of the variables in a source, one that is not set leaves that source out."""
    text = "name: App\nversion: '1'\nimage: {filename: a.sif, sources: [%s]}\n"
    made = configuration.load(write(configuration.root / "App-1.yaml", text % "'b.sif', '${UNSET}/a.sif'"))
    assert made.easyconfig.required_image.sources == ("b.sif",)
    assert [note for note in made.notes if "UNSET" in note]
    none = configuration.load(write(configuration.root / "App-3.yaml", (text % "").replace("}", ", build: a.def}")))
    assert none.easyconfig.required_image.sources == ()
    with pytest.raises(ConfigError, match="UNSET"):
        configuration.load(write(configuration.root / "App-2.yaml", text % "'${UNSET}/a.sif'"))


def test_of_many_names_the_first_five_are_told() -> None:
    assert abbreviated(list("abcde"), 5) == "a, b, c, d, e"
    assert abbreviated(list("abcdef"), 5) == "a, b, c, d, e and 1 more"
