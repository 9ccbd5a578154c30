"""`extends` in site files: what is taken from the parent, where each value comes from, and what is refused."""

import json
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.find import shipped
from support.config import write
from support.disk_state import disk_state
from support.images import Images

BASE = """
description: the whole cluster
accelerator: cuda
gpus_per_node: 4
binds: {slurm: [/run/munge], scratch: [/scratch]}
env: {A: base, B: base}
image_dirs: [/images]
detect: {paths: [/usr]}
"""
PARTITION = """
extends: cluster
description: nodes with more memory
gpus_per_node: 8
binds: {scratch: [/fast]}
env: {A: null, C: own}
image_dirs+: [/more]
"""


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    return tmp_path / "home/.config/sifmod/sites"


def origins(capfd: pytest.CaptureFixture[str], *words: str) -> dict[str, tuple[str, str]]:
    capfd.readouterr()
    assert run([*words, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    rows = found["origins"] if isinstance(found, dict) else found
    return {row["key"]: (row["value"], row["origin"]) for row in rows}


def says(prefix: Path, text: str) -> bool:
    """Whether the modulefiles of the last generation of Good/1 have this text."""
    files = (prefix / "software/Good/1").glob("**/*.lua")
    return any(text in path.read_text() for path in files)


@pytest.mark.parametrize("parent", ["cluster", "cluster.yaml", "../sites/cluster.yaml"])
def test_keys_of_the_file_win_over_its_parents(sites: Path, capfd: pytest.CaptureFixture[str], parent: str) -> None:
    base = write(sites / "cluster.yaml", BASE)
    own = write(sites / "big.yaml", PARTITION.replace("extends: cluster", f"extends: {parent}"))
    seen = origins(capfd, "config", "show", "--site", "big")
    assert seen["site"] == ("big", "named by --site")
    if parent.startswith(".."):
        base = sites / parent
    assert seen["accelerator"] == ("cuda", f"{base}:2")
    assert seen["gpus_per_node"] == ("8", f"{own}:3")
    assert seen["description"] == ("nodes with more memory", f"{own}:2")
    assert {key for key in seen if key.startswith("env")} == {"env.B", "env.C"}
    assert (seen["env.B"], seen["env.C"]) == (("base", f"{base}:5"), ("own", f"{own}:5"))
    assert seen["binds.slurm[0]"] == ("/run/munge", f"{base}:4")
    assert seen["binds.scratch[0]"] == ("/fast", f"{own}:4")  # a list replaces
    assert [seen[f"image_dirs[{number}]"][0] for number in (0, 1)] == ["/images", "/more"]  # `+` appends
    assert "extends" not in seen
    assert origins(capfd, "site", "show", "big")["gpus_per_node"] == ("8", f"{own}:3")
    assert run(["check", str(own)]) == 0


def test_a_parent_is_recognised_for_itself_only(sites: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`name` and `detect` are a file's own; but a file that hides its parent is recognised as that was."""
    write(sites / "cluster.yaml", BASE.replace("paths: [/usr]", f"paths: [{tmp_path}, /usr, /etc]"))
    write(sites / "big.yaml", PARTITION)
    assert run(["site", "detect"]) == 0
    assert capfd.readouterr().out == "cluster\n"
    hiding = write(tmp_path / "etc-sifmod.d/sites/big.yaml", f"detect: {{paths: [{tmp_path}, /usr, /etc, /tmp]}}\n")
    write(sites / "big.yaml", "extends: big\ngpus_per_node: 3\n")
    assert run(["site", "detect"]) == 0
    assert capfd.readouterr().out == "big\n"
    assert origins(capfd, "config", "show")["gpus_per_node"] == ("3", f"{sites}/big.yaml:2")
    hiding.unlink()
    write(sites / "lumi-g.yaml", "extends: lumi-g\nlink: hardlink\n")
    seen = origins(capfd, "config", "show", "--site", "lumi-g")
    assert (seen["accelerator"][0], seen["link"][0]) == ("rocm", "hardlink")
    assert seen["accelerator"][1].startswith(f"{shipped()}/sites/lumi-g.yaml:")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": "extends: nowhere"}, "a.yaml:1:10: extends: there is no site 'nowhere' in "),
        ({"a": "extends: lumi"}, "; did you mean lumi-"),
        ({"a": "extends: ./nowhere.yaml"}, "there is no site './nowhere.yaml' in "),
        ({"a": "extends: /etc/passwd"}, "there is no site '/etc/passwd' in "),
        ({"a": "extends: a"}, "there is no site 'a' in "),
        ({"a": "extends: ./a.yaml"}, "a site cannot extend itself: a.yaml → a.yaml"),
        ({"a": "extends: b", "b": "extends: c", "c": "extends: a"}, "a site cannot extend itself: a.yaml → b.yaml → "),
        ({f"{n}": f"extends: '{n + 1}'" for n in range(12)}, "more than 8 site files extend one another"),
        ({"a": "extends: b", "b": "gpus_per_node: 99"}, "b.yaml:1:16: gpus_per_node: "),
        ({"a": "extends: [b]"}, "a.yaml:1:10: extends: expected "),
    ],
)
def test_a_parent_that_cannot_be_used_is_refused(
    sites: Path, capfd: pytest.CaptureFixture[str], files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        write(sites / f"{name}.yaml", f"{text}\n")
    before = disk_state(sites)
    first = next(iter(files))
    for words in (("config", "show", "--site", first), ("check", f"{sites}/{first}.yaml")):
        capfd.readouterr()
        assert run([*words]) == 5
        said = capfd.readouterr()
        assert message in said.out + said.err
        assert "root:" not in said.out + said.err
    assert disk_state(sites) == before


def test_only_a_site_file_extends(sites: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(sites / "../config.yaml", "extends: lumi-g\n")
    assert run(["config", "show"]) == 5
    assert "config.yaml:1:1: extends: only a site file extends another" in capfd.readouterr().err


def test_a_change_of_the_parent_is_noticed_and_a_bundle_takes_it_along(
    sites: Path, tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    base = write(sites / "cluster.yaml", "env: {CLUSTER: one}\n")
    write(sites / "big.yaml", "extends: cluster\nenv: {BIG: two}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    image = f"image: {{sources: ['{images.tiny_sif}'], filename: tiny.sif}}"
    write(tmp_path / "Good-1.yaml", f"name: Good\nversion: '1'\n{image}\n")
    write(tmp_path / "stack.yaml", "name: ours\neasyconfigs: [{easyconfig: Good-1.yaml, site: big}]\n")
    words = ("install", "Good-1.yaml", "--skip-sanity-check", "--site", "big")
    assert run([*words]) == 0
    assert says(tmp_path / "prefix", "one")
    capfd.readouterr()
    assert run([*words]) == 0
    assert "nothing to do" in capfd.readouterr().err
    write(base, "env: {CLUSTER: three}\n")
    assert run([*words]) == 0
    assert "installed, generation 2" in capfd.readouterr().err

    write(sites / "../config.yaml", "site: big\n")
    write(tmp_path / "stack.yaml", "name: ours\neasyconfigs: [Good-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", "--skip-sanity-check"]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "it"]) == 0
    assert (tmp_path / "it/settings/sites/cluster.yaml").read_text() == "env: {CLUSTER: three}\n"
    for name in ("big.yaml", "cluster.yaml", "../config.yaml"):
        (sites / name).unlink()
    there = ("--prefix", str(tmp_path / "there"))
    assert run(["stack", "apply", "--bundle", "it", "--skip-sanity-check", *there]) == 0
    assert says(tmp_path / "there", "three")
