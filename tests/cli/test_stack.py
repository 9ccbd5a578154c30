"""Stacks: one file names the modules of a tree; planned, applied, locked, promoted."""

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sifmod.actions.lock import lock_beside
from sifmod.cli.main import run
from sifmod.system import user_name
from sifmod.tree.layout import Layout
from sifmod.tree.life import read_life
from sifmod.tree.receipt import Installation, installations
from support.answer import answer
from support.command import SIFMOD
from support.config import write
from support.disk_state import disk_state, is_there
from support.images import Images
from support.oci import Entry, layer, write_layout
from support.registry import Registry
from support.steps import some
from support.user import ONLY_ROOT
from support.victim import Victim

STACK = """\
name: our-cluster
sifmod: '>=0.1'
include: [common.yaml]
easyconfigs:
  - easyconfig: Many-1.yaml
    variants: [a, b]
  - 'own/*.yaml'
"""
IMAGE = "image: {{sources: ['{source}'], filename: tiny.sif}}\nwrappers: [sh]\n"
SKIP = "--skip-sanity-check"
NO_NETWORK = ("unshare", "--user", "--map-root-user", "--net")


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a stack of five modules over one image."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.chdir(tmp_path)
    image = IMAGE.format(source=images.tiny_sif)
    write(tmp_path / "Good-1.yaml", f"name: Good\nversion: '1'\n{image}")
    variants = "variants: {a: {versionsuffix: -a}, b: {versionsuffix: -b}}"
    write(tmp_path / "Many-1.yaml", f"name: Many\nversion: '1'\n{image}{variants}\n")
    for number in (1, 2):
        write(tmp_path / f"own/Own-{number}.yaml", f"name: Own\nversion: '{number}'\n{image}")
    write(tmp_path / "common.yaml", "easyconfigs: [Good-1.yaml]\n")
    write(tmp_path / "stack.yaml", STACK)
    return tmp_path


def test_a_stack_is_planned_and_applied_and_then_there_is_nothing_to_do(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(here)
    assert run(["stack", "plan", "stack.yaml"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines() == [" [ ] Good/1", " [ ] Many/1-a", " [ ] Many/1-b", " [ ] Own/1", " [ ] Own/2"]
    assert err.splitlines()[0] == "== our-cluster, 5 modules: 5 new"
    assert err.splitlines()[1].startswith("== 1 image to fetch: ")
    assert disk_state(here) == before
    assert run(["stack", "apply", "stack.yaml", SKIP, "-j", "3"]) == 0
    err = capfd.readouterr().err
    assert "5 of 5 modules match " in err
    layout = Layout(here / "prefix")
    assert [str(one.module) for one in installations(layout)] == ["Good/1", "Many/1-a", "Many/1-b", "Own/1", "Own/2"]
    assert "installed, generation 1" in (here / "prefix/log/stacks/our-cluster/Own@1.log").read_text()
    assert len(list(layout.images.glob("*.sif"))) == 1
    there = disk_state(here)
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert capfd.readouterr().err == "== our-cluster, 5 modules: 5 installed\n"
    assert disk_state(here) == there
    assert run(["install", "Good-1.yaml", SKIP]) == 0  # what a stack installs is what an install gives
    assert disk_state(here) == there


def test_how_the_prefix_was_named_does_not_matter(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = here / "prefix"
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    there = disk_state(prefix)
    monkeypatch.delenv("SIFMOD_PREFIX")
    for words in (["--prefix", str(prefix)], ["--prefix", "prefix"]):
        for verb in ("plan", "apply"):
            capfd.readouterr()
            assert run(["stack", verb, "stack.yaml", SKIP, *words]) == 0
            assert capfd.readouterr().err.splitlines()[0] == "== our-cluster, 5 modules: 5 installed"
            assert disk_state(prefix) == there
    assert run(["install", "Good-1.yaml", SKIP, "--prefix", str(prefix)]) == 0
    assert disk_state(prefix) == there


def test_a_site_of_one_module_moves_it_into_no_other_tree(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SIFMOD_PREFIX")
    monkeypatch.setenv("SIFMOD_SITE", str(write(here / "ours.yaml", f"prefix: '{here}/our tree'\n")))
    write(here / "theirs.yaml", f"prefix: '{here}/their tree'\nmodule_syntax: tcl\n")
    write(here / "stack.yaml", "easyconfigs: [Good-1.yaml, {easyconfig: own/Own-1.yaml, site: ./theirs.yaml}]\n")
    for said in ("2 of 2 modules match ", "2 modules: 2 installed"):
        assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
        assert said in capfd.readouterr().err
    assert sorted(os.listdir(here / "our tree/modules")) == ["Good", "Own"]
    assert not (here / "their tree").exists()


def test_the_spider_cache_is_made_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After all modules of an apply, and not where nothing has changed."""
    program = write(here / "lmod/update_lmod_system_cache_files", f"#!/bin/sh\necho x >>'{here}/calls'\n")
    program.chmod(0o755)
    monkeypatch.setenv("LMOD_DIR", str(program.parent))
    site = write(here / "site.yaml", f"spider_cache: {{directory: {here}/cache, timestamp: {here}/stamp}}\n")
    monkeypatch.setenv("SIFMOD_SITE", str(site))
    for _ in range(2):
        assert run(["stack", "apply", "stack.yaml", SKIP, "-q"]) == 0
        assert (here / "calls").read_text() == "x\n"


def test_an_apply_renews_the_spider_cache_after_one_that_died(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write(here / "lmod/update_lmod_system_cache_files", f"#!/bin/sh\ntouch \"$4\"\necho x >>'{here}/calls'\n")
    program.chmod(0o755)
    monkeypatch.setenv("LMOD_DIR", str(program.parent))
    write(here / "etc-sifmod.d/x.yaml", f"spider_cache: {{directory: {here}/cache, timestamp: {here}/cache/stamp}}\n")
    write(here / "stack.yaml", "easyconfigs: [Good-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP, "-q"]) == 0
    edited = here / "Good-1.yaml"
    edited.write_text(f"{edited.read_text()}env: {{A: b}}\n")
    with monkeypatch.context() as died:
        died.setattr("sifmod.actions.stack.apply.refresh_spider_cache", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        assert run(["stack", "apply", "stack.yaml", SKIP, "-q"]) == 130
    for _ in range(2):
        assert run(["stack", "apply", "stack.yaml", SKIP, "-q"]) == 0
        assert (here / "calls").read_text() == "x\nx\n"


def test_what_of_the_environment_has_changed_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`this machine or its environment has changed` did not say what."""
    write(here / "stack.yaml", "easyconfigs: [Good-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    monkeypatch.setenv("SIFMOD_LINK", "reference")
    capfd.readouterr()
    assert run(["stack", "plan", "stack.yaml"]) == 0
    why = "this machine or its environment has changed: variable SIFMOD_LINK"
    assert capfd.readouterr().out == f" [R] Good/1: {why}\n"
    assert run(["stack", "lock", "stack.yaml"]) == 18
    assert f"is not installed as described in {here}/Good-1.yaml: {why}\n" in capfd.readouterr().err


def test_why_a_module_is_made_anew_and_what_is_no_longer_named(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    edited = here / "own/Own-1.yaml"
    edited.write_text(f"{edited.read_text()}env: {{A: b}}\n")
    (here / "prefix/software/Own/2/bin").chmod(0o755)
    (here / "prefix/software/Own/2/bin/sh").unlink()
    (here / "common.yaml").write_text("easyconfigs: []\n")
    capfd.readouterr()
    assert run(["stack", "plan", "stack.yaml"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == " [x] Many/1-a"
    assert lines[2] == f" [R] Own/1: {edited} has changed"
    assert lines[3].startswith(" [R] Own/2: ")
    assert "bin/sh was changed or removed" in lines[3]
    assert lines[4].startswith(" [-] Good/1: the stack no longer names it")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["uninstall", "Good/1"]) == 0
    capfd.readouterr()
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert capfd.readouterr().err == "== our-cluster, 4 modules: 4 installed\n"


def test_what_another_stack_installed_too_is_not_simply_retired(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The advice was to retire a module that the other stack still names."""
    for name in ("small", "other", "third"):
        write(here / f"{name}.yaml", "easyconfigs: [Good-1.yaml]\n")
    assert run(["stack", "apply", "small.yaml", SKIP]) == run(["stack", "apply", "other.yaml", SKIP]) == 0
    write(here / "small.yaml", "easyconfigs: []\n")
    write(here / "prefix/stacks/third.json", "{")
    capfd.readouterr()
    assert run(["stack", "plan", "small.yaml"]) == 0
    said = " [-] Good/1: the stack no longer names it, but the stack other may; `sifmod retire Good/1` retires it"
    assert said in capfd.readouterr().out.splitlines()


def test_why_a_module_of_another_checkout_is_reinstalled(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No reason was given, or that the same file has changed once the other checkout was gone."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    text = f"name: Own\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\nwrappers: [sh]\n"
    for checkout in (tmp_path / "one", tmp_path / "two"):
        write(checkout / "Own-1.yaml", f"extends: common.yaml\n{text}")
        write(checkout / "common.yaml", "env: {A: b}\n")
        write(checkout / "stack.yaml", "easyconfigs: [Own-1.yaml]\n")
    assert run(["stack", "apply", str(tmp_path / "one/stack.yaml"), SKIP]) == 0
    for _ in range(2):
        capfd.readouterr()
        assert run(["stack", "plan", str(tmp_path / "two/stack.yaml")]) == 0
        said = f" [R] Own/1: it was installed from {tmp_path}/one/Own-1.yaml, which its files name\n"
        assert capfd.readouterr().out == said
        shutil.rmtree(tmp_path / "one", ignore_errors=True)


def test_it_goes_on_after_a_failure_and_says_so(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "own/Own-3.yaml", "name: Own\nversion: '3'\nimage: {sources: [/no/such.sif]}\n")
    write(here / "own/Own-4.yaml", "name: Own\nversion: '4'\nimage: {sources: [/no/such.sif]}\n")
    write(here / "own/Own-5.yaml", "name: Own\nversion: 5\nimage: {sources: [/no/such.sif]}\n")
    assert run(["stack", "apply", "stack.yaml", SKIP, "--json"]) == 10
    out, err = capfd.readouterr()
    rows = {row["easyconfig"].rpartition("/")[2]: row for row in json.loads(out)["members"]}
    assert rows["Own-3.yaml"]["exit_code"] == 10
    assert rows["Own-4.yaml"]["error"] == "not tried: the image of Own/3 was not fetched"
    assert rows["Own-5.yaml"]["exit_code"] == 5
    assert rows["Own-2.yaml"]["changed"]
    assert "5 of 8" not in err  # with --json the rows say it
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 10
    err = capfd.readouterr().err
    assert "5 of 8 modules match " in err
    assert "  Own/3: failed (10): no source of the image Own-3.sif worked" in err


def test_a_quiet_apply_names_what_failed(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It printed nothing, and only its exit code was not 0."""
    write(here / "stack.yaml", "easyconfigs: [Good-1.yaml]\n")
    (here / "Good-1.yaml").write_text("name: Good\nversion: '1'\nimage: {sources: ['/nowhere/x.sif']}\n")
    code = run(["stack", "apply", "stack.yaml", SKIP, "-q"])
    assert code != 0
    assert f"Good/1: failed ({code}): " in capfd.readouterr().err


def test_its_logs_are_as_open_as_the_prefix(here: Path) -> None:
    """Whatever the umask: another of the group writes into the same ones."""
    prefix = here / "prefix"
    prefix.mkdir()
    prefix.chmod(0o2775)
    before = os.umask(0o077)
    try:
        assert run(["stack", "apply", "stack.yaml", "--only", "Good/1", SKIP, "-q"]) == 0
    finally:
        os.umask(before)
    logs = prefix / "log" / "stacks" / "our-cluster"
    modes = [path.stat().st_mode & 0o777 for path in (logs, logs / "Good@1.log")]
    assert modes == [0o775, 0o664]


def test_every_problem_of_a_stack_is_told_at_once(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "common.yaml", "include: [stack.yaml]\neasyconfigs: [{easyconfig: x, variant: [a]}]\n")
    write(
        here / "stack.yaml",
        STACK.replace("0.1'", "'") + "  - none/*.yaml\n  - {easyconfig: Many-1.yaml, variants: [a], default: c}\n"
        "  - {easyconfig: Good-1.yaml, deprecated: {since: 2026-13-01}}\n",
    )
    assert run(["stack", "apply", "stack.yaml"]) == 5
    err = capfd.readouterr().err
    assert "expected versions such as" in err
    assert "expected a date of 2000 to 2999, such as 2026-10-01, got '2026-13-01'" in err
    write(here / "stack.yaml", STACK + "  - none/*.yaml\n  - {easyconfig: Many-1.yaml, variants: [a]}\n")
    assert run(["stack", "apply", "stack.yaml"]) == 5
    err = capfd.readouterr().err
    assert f"{here}/common.yaml:2:31: easyconfigs[0].variant: unknown key; did you mean variants?" in err
    assert f"{here}/stack.yaml:8:5: easyconfigs[2]: none/*.yaml" in err
    assert "Many-1.yaml is named twice" in err
    write(here / "stack.yaml", STACK.replace(">=0.1", ">=99"))
    assert run(["stack", "apply", "stack.yaml"]) == 1
    assert "needs sifmod >=99" in capfd.readouterr().err
    assert not (here / "prefix").exists()


def test_what_was_tested_is_what_is_published(
    here: Path, images: Images, registry: Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    """Staging, then production when the tag has moved and the registry is gone: the same images, the same files."""
    tagged = registry.push_layout(images.tiny_layout("promoted"), "promoted:1")
    for path in (here / "Good-1.yaml", here / "own/Own-1.yaml"):
        path.write_text(path.read_text().replace(str(images.tiny_sif), tagged))
    staging, production = here / "staging", here / "production"
    command = ["stack", "apply", "stack.yaml", SKIP]
    assert run([*command, "--prefix", str(staging)]) == 0
    assert run(["stack", "lock", "stack.yaml", "--prefix", str(staging)]) == 0
    text = (here / "stack.lock").read_text()
    capfd.readouterr()
    registry.push_layout(images.tiny_layout("promoted later"), "promoted:1")
    write(here / "later/Good-2.yaml", (here / "Good-1.yaml").read_text().replace("'1'", "'2'"))
    assert run(["stack", "outdated", "stack.yaml", "--prefix", str(staging), "--robot-paths", "later"]) == 0
    out = capfd.readouterr().out
    assert out.count(f"{tagged} is sha256:") == 2
    assert "Good/1: Good-2.yaml has version 2\n" in out
    assert run([*command, "--locked", "--offline", "--from", str(staging), "--prefix", str(production)]) == 0
    assert same_but_for_the_prefix(staging, production)
    assert f"== copying tiny.sif from {staging}: " in capfd.readouterr().err
    for made in installations(Layout(production)):
        assert made.required_image.path.startswith(f"{production}/")
    assert run(["stack", "lock", "stack.yaml", "--prefix", str(production)]) == 0
    assert (here / "stack.lock").read_text() == text
    other = here / "other"  # an empty store, and the registry: the digest is fetched, not what the tag names now
    assert run([*command, "--locked", "--prefix", str(other)]) == 0
    assert same_but_for_the_prefix(staging, other)
    there = disk_state(other)
    assert run([*command, "--locked", "--prefix", str(other)]) == 0
    assert disk_state(other) == there


def test_of_what_is_built_nothing_is_asked(here: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    built = f"image: {{build: {{from: {images.tiny_sif}, env: {{A: b}}}}}}"
    write(here / "Built-1.yaml", f"name: Built\nversion: '1'\naccelerator: none\n{built}\n")
    write(here / "built.yaml", "name: built\neasyconfigs: [Built-1.yaml]\n")
    assert run(["stack", "apply", "built.yaml", SKIP, "--prefix", str(here / "prefix")]) == 0
    capfd.readouterr()
    assert run(["stack", "outdated", "built.yaml", "--prefix", str(here / "prefix")]) == 0
    told = capfd.readouterr().err
    assert "warning" not in told
    assert "nothing newer was found" in told
    assert run(["stack", "outdated", "built.yaml", "--prefix", str(here / "empty")]) == 0
    assert f"none of the stack's modules is installed in {here}/empty" in capfd.readouterr().err


def test_an_image_that_is_one_of_several_by_now_is_not_outdated(
    here: Path, images: Images, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    registry = Registry(here / "registry")
    registry.start()
    request.addfinalizer(registry.stop)
    tagged = registry.push_layout(images.tiny_layout(), "several:1")
    write(here / "Good-1.yaml", f"name: Good\nversion: '1'\n{IMAGE.format(source=tagged)}")
    assert run(["stack", "apply", "common.yaml", SKIP]) == 0
    assert run(["push", str(images.foreign("arm64")), tagged, "--add-to-index"]) == 0
    capfd.readouterr()
    assert run(["stack", "outdated", "common.yaml"]) == 0
    assert "nothing newer was found" in capfd.readouterr().err


def test_the_log_of_a_stack_is_no_other_name_of_a_file(here: Path) -> None:
    log, mine = here / "prefix/log/stacks/our-cluster/Own@1.log", here / "mine"
    mine.write_text("of years")
    log.parent.mkdir(parents=True)
    os.link(mine, log)
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert mine.read_text() == "of years"


THEIRS = ("their own file", "their closed file, where all may write")


@pytest.mark.parametrize("planted", ["a link", "a file", *(pytest.param(one, marks=ONLY_ROOT) for one in THEIRS)])
def test_a_bundle_is_written_into_no_file_of_a_neighbour(
    here: Path, capfd: pytest.CaptureFixture[str], planted: str
) -> None:
    """At the name of what is not finished: else it would be theirs still when it is a bundle."""
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    mine, part, folder = here / "mine", here / ".a b.tar.part", here / "folder"
    mine.write_text("of years")
    if planted == "a link":
        part.symlink_to(mine)
    elif planted == "a file":
        os.link(mine, part)
    else:  # which they can go on writing into
        part.touch(0o666)
        os.chown(part, 65534, 65534)
    mode = here.stat().st_mode
    if "closed" in planted:
        here.chmod(0o1777)  # where Linux does not even let root open it
    capfd.readouterr()
    before = disk_state(here)
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "a b.tar"]) == 2
    owner = user_name(65534 if planted in THEIRS else os.geteuid())
    assert f"{part.name} of {owner} is no plain file of yours alone" in capfd.readouterr().err
    assert disk_state(here) == before
    here.chmod(mode)
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", str(folder)]) == 0
    (folder / "stack.yaml").write_text("")  # is written once more
    part.rename(folder / ".stack.yaml.part")
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", str(folder)]) == 0
    assert not list(folder.glob(".*.part"))
    assert mine.read_text() == "of years"


def test_a_bundle_brings_it_all_without_a_network(
    here: Path, images: Images, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """With an easyconfig of another directory and a site of one's own; as a tar file that was cut, and a directory."""
    registry = Registry(here / "registry")
    registry.start()
    request.addfinalizer(registry.stop)
    tagged = registry.push_layout(images.tiny_layout("bundled"), "bundled:1")
    good = here / "Good-1.yaml"
    write(here / "robot/Good/Good-1.yaml", good.read_text().replace(str(images.tiny_sif), tagged))
    good.unlink()
    write(here / "home/.config/sifmod/sites/ours.yaml", f"robot_paths: ['{here}/robot']\nenv: {{A: b}}\n")
    monkeypatch.setenv("SIFMOD_SITE", "ours")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "bundle", "stack.yaml", "-o", "whole.tar", "--no-wheels"]) == 2  # no lock
    assert run(["stack", "lock", "stack.yaml"]) == 0
    write_bundle = ["stack", "bundle", "stack.yaml", "--no-wheels", "-o"]
    assert run([*write_bundle, "whole.tar"]) == 0
    whole = (here / "whole.tar").read_bytes()
    for cut in (0, 700, len(whole) // 2, len(whole) - 1):
        damaged = bytearray(whole[:cut])
        damaged[cut // 3 : cut // 3 + 1] = b"x"
        (here / ".again.tar.part").write_bytes(damaged)
        assert run([*write_bundle, "again.tar"]) == 0
        assert (here / "again.tar").read_bytes() == whole
        (here / "again.tar").unlink()
    assert run([*write_bundle, "folder"]) == 0
    (here / "list").write_text(" ".join(os.listdir(here / "prefix/images/sha256")[:2]))
    assert run([*write_bundle, "less", "--without", "list"]) == 0
    assert len(list((here / "folder/images/sha256").iterdir())) == 2
    assert len(list((here / "less").rglob("*.sif"))) < 2
    for path in (here / "stack.yaml", here / "common.yaml", here / "robot", here / "own"):
        path.rename(path.with_name(f"gone-{path.name}"))
    registry.stop()
    for bundle in ("whole.tar", "folder"):
        other = here / f"other-{bundle}"
        apply = ("stack", "apply", "--bundle", bundle, SKIP, "--prefix", str(other))
        subprocess.run((*NO_NETWORK, *SIFMOD, *apply), check=True)
        first, second = installations(Layout(here / "prefix")), installations(Layout(other))
        assert [made.required_image.sha256 for made in first] == [made.required_image.sha256 for made in second]
        assert [made.required_image.origin for made in first] == [made.required_image.origin for made in second]
        place = other / "stacks/our-cluster/robot"
        assert list(map(texts, first)) == [texts(made, f" --robot-paths {place}") for made in second]
        assert len(second) == 5
        logged = [json.loads(line) for line in (other / "log/store.log").read_text().splitlines()]
        assert {(one["what"], one["image"]) for one in logged} == {
            ("fetched", image.stem) for image in other.glob("images/sha256/*.sif")
        }
        there = disk_state(other / "software", other / "images", other / "stacks")
        assert run(["stack", "apply", "--bundle", bundle, SKIP, "--prefix", str(other)]) == 0
        assert disk_state(other / "software", other / "images", other / "stacks") == there


def test_a_directory_with_files_of_another_bundle_is_refused(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An older sifmod's wheel stayed, and pip would have installed it; left images that no lock names are unused."""
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    words = ["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "folder"]
    assert run(words) == 0
    whole = disk_state(here / "folder")
    write(here / "folder/NOTES.txt", "of the user\n")
    write(here / "folder/images/sha256/.unfinished.sif.part", "of a killed run")
    assert run(words) == 0
    (here / "folder/images/sha256/.unfinished.sif.part").unlink()
    write(here / "folder/images/sha256" / f"{'0' * 64}.sif", "of another bundle\n")
    for name in ("wheels/sifmod-9.0-py3-none-any.whl", "robot/Old-1.yaml", "Old.yaml"):
        old = write(here / "folder" / name, "of another bundle\n")
        before = disk_state(here / "folder")
        write(here / "stack.lock", f"{(here / 'stack.lock').read_text()}\n")  # this bundle differs
        capfd.readouterr()
        assert run(words) == 2
        assert f"folder has files of another bundle, which this one has not: {name}\n" in capfd.readouterr().err
        assert disk_state(here / "folder") == before
        old.unlink()
    assert run(words) == 0
    assert {*disk_state(here / "folder")} >= {*whole}


def test_a_layer_of_a_bundle_is_the_old_one_or_the_new_one(here: Path) -> None:
    """Killed at any step: its switch changes as that of a layer which is made here."""
    write(here / "stack.yaml", "name: small\neasyconfigs: [Good-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP, "-q"]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "first"]) == 0
    shutil.copytree(here / "first", here / "second")
    layer, other = Path("layers/Good/1/default", "0" * 12), here / "other"
    for name, number in (("first", "1"), ("second", "2")):
        write(here / name / layer / number / "layer.json", "{}")
        write(here / name / layer / number / "layer.squashfs", number)
    live = other / "stacks/small" / layer / "live"
    apply = ("stack", "apply", SKIP, "-q", "--prefix", other, "--bundle")
    with Victim(os.environ) as victim:
        whole = victim.run((*apply, here / "first"))
        assert (whole.code, os.readlink(live)) == (0, "1")
        whole = victim.run((*apply, here / "second"))
        assert (whole.code, os.readlink(live)) == (0, "2")
        for step in some(1, whole.steps, 5):
            shutil.rmtree(live.parent / "2")
            live.unlink()
            live.symlink_to("1")
            assert victim.run((*apply, here / "second"), "killed", step).code == -9
            assert os.readlink(live) in ("1", "2")
            assert victim.run((*apply, here / "second")).code == 0
            assert (os.readlink(live), (live / "layer.squashfs").read_text()) == ("2", "2")


def test_a_bundle_that_is_refused_and_killed_is_in_no_ones_way(here: Path) -> None:
    """Its files in the tree, without the head that says whose they are, would be the user's."""
    assert run(["stack", "apply", "stack.yaml", SKIP, "-q"]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "whole"]) == 0
    shutil.copytree(here / "whole", here / "damaged")
    image = next((here / "damaged/images/sha256").iterdir())
    image.write_bytes(bytes(image.stat().st_size))
    apply = ("stack", "apply", SKIP, "-q", "--prefix", here / "other", "--bundle")
    with Victim(os.environ) as victim:
        whole = victim.run((*apply, here / "damaged"))
        assert whole.code == 10
        for step in some(1, whole.steps, 30):
            shutil.rmtree(here / "other", ignore_errors=True)
            assert victim.run((*apply, here / "damaged"), "killed", step).code == -9
            again = victim.run((*apply, here / "damaged"))
            assert again.code == 10, (step, again.stderr)
        assert victim.run((*apply, here / "whole")).code == 0


def test_a_bundle_that_is_damaged_changes_nothing(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    assert run(["stack", "bundle", "stack.yaml", "-o", "it.tar", "--no-wheels"]) == 0
    whole = bytearray((here / "it.tar").read_bytes())
    whole[-9000] ^= 1
    (here / "it.tar").write_bytes(whole)
    other = ["stack", "apply", "--bundle", "it.tar", SKIP, "--prefix", str(here / "other")]
    assert run(other) == 10
    assert "is damaged: its SHA-256 is" in capfd.readouterr().err
    assert not list((here / "other/images/sha256").glob("*"))
    for content in (b"", b"no tar", bytes(whole[:2000])):
        (here / "it.tar").write_bytes(content)
        assert run(other) == 2
    with tarfile.open(here / "it.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("../out"))
    assert run(other) == 2
    assert "unexpected file" in capfd.readouterr().err
    assert not installations(Layout(here / "other"))
    assert not (here / "out").exists()


@pytest.mark.parametrize("row", ["image", "settings"])
def test_a_damaged_bundle_leaves_the_files_of_the_one_before(here: Path, images: Images, row: str) -> None:
    """From these an install would render what is installed."""
    to = ("--prefix", str(here / "other"))
    for name, env in (("first", ()), ("second", ("A=1",))):
        write(here / "Good-1.yaml", f"name: Good\nversion: '1'\n{IMAGE.format(source=images.tiny('x', env=env))}")
        for words in (["apply", "stack.yaml", SKIP], ["lock", "stack.yaml"]):
            assert run(["stack", *words]) == 0
        assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", name]) == 0
    assert run(["stack", "apply", "--bundle", "first", SKIP, *to]) == 0
    before = contents(here / "other/stacks")
    if row == "image":
        for file in (here / "second/images/sha256").glob("*"):
            file.write_bytes(file.read_bytes()[:-1] + b"x")
    else:
        head = json.loads((here / "second/bundle.json").read_text())
        write(here / "second/bundle.json", json.dumps(head | {"settings": {"no key": 1}}))
    assert run(["stack", "apply", "--bundle", "second", SKIP, *to]) == (10 if row == "image" else 5)
    assert contents(here / "other/stacks") == before


def texts(installation: Installation, words: str = "") -> dict[str, str]:
    """Its generated files, whole, but without these words, and with one word for the path of its easyconfig."""
    own, found = installation.provenance.easyconfig, {}
    for file in installation.files:
        text = Path(installation.root, file.path).read_text()
        found[file.path] = (text.replace(words, "") if words else text).replace(own, "EASYCONFIG")
    return found


def same_but_for_the_prefix(one: Path, other: Path) -> bool:
    """Whether two trees have the same live generations, images and files."""
    first, second = installations(Layout(one)), installations(Layout(other))
    assert [made.module for made in first] == [made.module for made in second]
    for made, again in zip(first, second, strict=True):
        assert (made.required_image.sha256, made.required_image.source, made.required_image.origin) == (
            *(again.required_image.sha256, again.required_image.source, again.required_image.origin),
        )
        assert made.files == again.files
    return True


def test_what_is_not_what_the_lock_says_is_not_installed(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "apply", "stack.yaml", SKIP, "--locked"]) == 2
    assert "there is no lock" in capfd.readouterr().err
    assert run(["stack", "lock", "stack.yaml"]) == 0
    good = here / "Good-1.yaml"
    text = good.read_text()
    good.write_text(f"{text}env: {{A: b}}\n")
    other = ["stack", "apply", "stack.yaml", SKIP, "--locked", "--prefix", str(here / "other")]
    before = disk_state(here)
    assert run(other) == 18
    assert "Good/1: does not match the lock: Good-1.yaml changed after" in capfd.readouterr().err
    assert run(["stack", "lock", "stack.yaml"]) == 18
    assert "Good/1 is not installed as described in Good-1.yaml" in capfd.readouterr().err.replace(f"{here}/", "")
    assert disk_state(here) == before
    good.write_text(text)
    assert run([*other, "--module-syntax", "tcl"]) == 18
    assert "would differ" in capfd.readouterr().err
    assert not installations(Layout(here / "other"))
    for module in ("../x", ["Good/1"], None):
        (here / "stack.lock").write_text(json.dumps({"format": 1, "modules": [{"module": module}]}))
        assert run(other) == 2
        assert "is not a readable lock: modules.0.module: " in capfd.readouterr().err
    (here / "stack.lock").unlink()
    os.mkfifo(here / "stack.lock")  # it is not waited for
    assert run(other) == 2
    assert "it is not a regular file" in capfd.readouterr().err


def test_an_image_that_is_not_what_the_lock_says_is_told(
    here: Path, images: Images, registry: Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    tagged = registry.push_layout(images.tiny_layout("single"), "told:1")
    write(here / "Single-1.yaml", f"name: Single\nversion: '1'\n{IMAGE.format(source=tagged)}")
    write(here / "stack.yaml", "name: one\neasyconfigs: [Single-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    lock = json.loads((here / "stack.lock").read_text())
    other = f"sha256:{'0' * 64}"
    apply = ["stack", "apply", "stack.yaml", SKIP, "--locked"]
    there = disk_state(here / "prefix")
    for change, told in (
        (("source", "docker://else.org/where:1"), "docker://else.org/where:1 is not a source of its image"),
        (("manifest", other), f"its image came from {tagged.rpartition(':')[0]}@"),
        (("layers", [other]), "its image has different layers or a different compression"),
        (("compression", "gzip"), "its image has different layers or a different compression"),
    ):
        image, (name, value) = lock["modules"][0]["image"], change
        changed = image | {name: value} if name in image else image | {"origin": image["origin"] | {name: value}}
        write(here / "stack.lock", json.dumps({**lock, "modules": [{**lock["modules"][0], "image": changed}]}))
        for words in ([], ["--from", "prefix", "--prefix", "other"]):
            capfd.readouterr()
            assert run([*apply, *words]) == 18
            assert f"Single/1: does not match the lock: {told}" in capfd.readouterr().err
    assert disk_state(here / "prefix") == there
    assert not (here / "other/software").exists()
    # what no store knows yet is compared when it was fetched
    assert run([*apply, "--prefix", "third"]) != 0
    assert not installations(Layout(here / "third"))


def test_one_easyconfig_is_locked_too(
    here: Path, images: Images, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    tagged = registry.push_layout(images.tiny_layout("single"), "single:1")
    write(here / "Single-1.yaml", f"name: Single\nversion: '1'\n{IMAGE.format(source=tagged)}")
    assert run(["install", "Single-1.yaml", SKIP]) == 0
    assert run(["lock", "Single-1.yaml"]) == 0
    registry.push_layout(images.tiny_layout("single later"), "single:1")
    other = here / "other"
    monkeypatch.setenv("SIFMOD_PREFIX", str(other))
    again = ["install", "Single-1.yaml", SKIP]
    assert run([*again, "--locked"]) == 0
    assert same_but_for_the_prefix(here / "prefix", other)
    assert run([*again, "--force"]) == 0  # what the tag names now
    assert not same_images(here / "prefix", other)
    assert run([*again, "--locked"]) == 0
    assert same_images(here / "prefix", other)


@pytest.mark.parametrize(
    ("easyconfig", "lock"),
    [
        ("PyTorch-2.2.0", "PyTorch-2.2.0.lock"),
        ("PyTorch-2.2.0.yaml", "PyTorch-2.2.0.lock"),
        ("easyconfigs/a.yml", "easyconfigs/a.lock"),
    ],
)
def test_a_lock_is_beside_its_file_and_knows_a_version(easyconfig: str, lock: str) -> None:
    assert lock_beside(easyconfig) == Path(lock)


def same_images(one: Path, other: Path) -> bool:
    """Whether the live modules of two trees use the same images."""
    first, second = ([made.required_image.sha256 for made in installations(Layout(tree))] for tree in (one, other))
    return first == second


def test_a_stack_of_what_is_installed(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "init", "again.yaml"]) == 0
    there = disk_state(here)
    capfd.readouterr()
    assert run(["stack", "plan", "again.yaml"]) == 0
    assert [line[:4] for line in capfd.readouterr().out.splitlines()] == [" [x]"] * 5
    assert run(["stack", "init", "again.yaml"]) == 2
    assert disk_state(here) == there


def test_an_option_that_apply_has_only_as_a_variable(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["install", "--link", "hardlink", SKIP, str(here / "own" / "Own-1.yaml")]) == 0
    assert run(["stack", "init", "linked.yaml"]) == 0
    set_it = "SIFMOD_LINK=hardlink"
    assert f"it was installed with --link; for `sifmod stack apply` set {set_it}\n" in capfd.readouterr().err
    monkeypatch.setenv(*set_it.split("="))
    assert run(["stack", "apply", "linked.yaml", SKIP]) == 0
    capfd.readouterr()
    assert run(["show", "Own/1"]) == 0
    assert ", hardlink)" in capfd.readouterr().out


def test_killed_it_goes_on_where_it_was(here: Path) -> None:
    for number in range(10, 40):
        write(here / f"own/Own-{number}.yaml", (here / "own/Own-1.yaml").read_text().replace("'1'", f"'{number}'"))
    command = [*SIFMOD, "stack", "apply", "stack.yaml", SKIP]
    for wanted in (3, 8):
        victim = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        while victim.poll() is None and len(list((here / "prefix/software").glob("*/[0-9]*"))) < wanted:
            time.sleep(0.005)
        with suppress(ProcessLookupError):
            os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
    done = {made.module: made.generation for made in installations(Layout(here / "prefix"))}
    assert len(done) < 35
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    after = {made.module: made.generation for made in installations(Layout(here / "prefix"))}
    assert len(after) == 35
    assert {module: after[module] for module in done} == done
    assert not list(Layout(here / "prefix").staging.iterdir())


def test_terminated_it_leaves_no_process_and_whole_modules(here: Path) -> None:
    for number in range(10, 70):
        write(here / f"own/Own-{number}.yaml", (here / "own/Own-1.yaml").read_text().replace("'1'", f"'{number}'"))
    victim = subprocess.Popen(
        [*SIFMOD, "stack", "apply", "stack.yaml", SKIP], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while victim.poll() is None and not is_there(here / "prefix/software", "*/[0-9]*"):
        time.sleep(0.005)
    victim.send_signal(signal.SIGTERM)
    _, err = victim.communicate(timeout=60)
    assert victim.returncode == 143
    assert "repeat the command to continue where it stopped" in err
    with pytest.raises(ProcessLookupError):
        os.killpg(victim.pid, 0)
    assert run(["verify"]) == 0


def test_a_stack_is_checked_with_its_easyconfigs(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "stack.yaml"]) == 0
    assert capfd.readouterr().out == "stack.yaml: ok: a stack of 4 easyconfigs\n"
    write(here / "own/Own-2.yaml", "name: Own\nversion: 2\n")
    (here / "stack.yaml").write_text(STACK + "  - nope\n  - {easyconfig: Good-1.yaml, site: lumy}\n")
    before = disk_state(here)
    assert run(["check", "stack.yaml"]) == 5
    out = capfd.readouterr().out
    assert f"{here}/own/Own-2.yaml:2:10: version: expected text" in out
    assert f"{here}/stack.yaml:8:5: easyconfigs: no easyconfig is called 'nope'" in out
    assert f"{here}/stack.yaml:9:5: easyconfigs: there is no site 'lumy'; did you mean lumi-g?" in out
    twice = "easyconfigs:\n  - {easyconfig: Good-1.yaml, default: true}\n  - {easyconfig: again.yaml, default: true}\n"
    write(here / "twice.yaml", twice)
    write(here / "again.yaml", (here / "Good-1.yaml").read_text())
    assert run(["check", "twice.yaml"]) == 5
    first = f"as {here}/Good-1.yaml does ({here}/twice.yaml:2)"
    assert capfd.readouterr().out.splitlines()[:2] == [
        f"{here}/twice.yaml:3:5: easyconfigs: gives Good/1, {first}",
        f"{here}/twice.yaml:3:5: easyconfigs: gives the default of Good, {first}",
    ]
    (here / "twice.yaml").unlink()
    (here / "again.yaml").unlink()
    assert run(["schema", "--stack"]) == 0
    assert "deprecated" in json.loads(capfd.readouterr().out)["$defs"]["Entry"]["properties"]
    assert disk_state(here) == before


def test_layers_that_images_share_are_fetched_once(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The large one of three images; it is there while it is needed, and gone at the end."""
    registry = Registry(here / "registry")
    registry.start()
    try:
        large = layer([Entry("large", os.urandom(3_000_000))])
        for number in range(3):
            own = layer([Entry(f"own-{number}", os.urandom(number * 1_000_000))])
            tagged = registry.push_layout(write_layout(here / f"layout-{number}", (large, own)), f"shared:{number}")
            text = f"name: Shared\nversion: '{number}'\n{IMAGE.format(source=tagged)}"
            write(here / f"shared/Shared-{number}.yaml", text)
        write(here / "shared.yaml", "easyconfigs: ['shared/*.yaml']\n")
        for jobs, room in (("1", 20), ("2", 24)):  # 3, 4 and 5 MB, the shared 3, and the largest that come at once
            needed = answer(capfd, ("stack", "plan", "shared.yaml", "--jobs", jobs))
            assert [needed[key] // 1_000_000 for key in ("shared_size", "size", "room")] == [3, 6, room]
        assert run(["stack", "apply", "shared.yaml", SKIP, "-j", "3"]) == 0
        log = (registry.directory / "registry.log").read_text()
        sent = [int(size) for size in re.findall(r"method=GET .*blobs/sha256.* http.response.written=(\d+)", log)]
        assert sorted(size // 1_000_000 for size in sent if size > 1_000_000) == [1, 2, 3]
        assert len(installations(Layout(here / "prefix"))) == 3
        assert not list(Layout(here / "prefix").partials.glob("*"))
    finally:
        registry.stop()


def test_what_a_stack_decides_about_its_modules(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is told by plan, done by apply, undone when the stack no longer says it; what staff do by hand stays."""
    text = """\
name: our-cluster
easyconfigs:
  - {easyconfig: Many-1.yaml, variants: [a, b], default: b, labels: {team: ai}}
  - {easyconfig: own/Own-1.yaml, hidden: true}
  - {easyconfig: own/Own-2.yaml, deprecated: {since: 2026-10-01, until: 2999-03-31, message: use 3}}
  - Good-1.yaml
"""
    write(here / "stack.yaml", text)
    assert run(["stack", "plan", "stack.yaml"]) == 0
    assert capfd.readouterr().out.splitlines()[-5:] == [
        " [D] Many/1-a: labelled",
        " [D] Many/1-b: labelled",
        " [D] Many/1-b: made the default",
        " [D] Own/1: hidden",
        " [D] Own/2: deprecated",
    ]
    assert run(["stack", "plan", "stack.yaml", "--only", "Own/1"]) == 0
    assert "[D]" not in capfd.readouterr().out  # `apply --only` decides nothing
    apply = ["stack", "apply", "stack.yaml", SKIP]
    assert run(apply) == 0
    assert run(["hide", "Good/1"]) == 0
    layout = Layout(here / "prefix")
    assert read_life(layout, "Many").default == "1-b"
    assert read_life(layout, "Own").of("1").hidden
    assert "Many/1-b" in (here / "prefix/modules/Many/.modulerc.lua").read_text()
    there = disk_state(here / "prefix/modules", here / "prefix/life")
    capfd.readouterr()
    assert run(["stack", "plan", "stack.yaml"]) == 0
    assert "[D]" not in capfd.readouterr().out
    assert run(apply) == 0
    assert disk_state(here / "prefix/modules", here / "prefix/life") == there
    write(here / "stack.yaml", text.replace(", hidden: true", "").replace(", default: b", ""))
    assert run([*apply, "--json"]) == 0
    decided = {one["module"]: one["what"] for one in json.loads(capfd.readouterr().out)["decided"]}
    assert decided == {"Many/1-b": "no longer the default", "Own/1": "shown"}
    assert not read_life(layout, "Own").of("1").hidden
    assert read_life(layout, "Good").of("1").hidden
    write(here / "stack.yaml", text.replace("  - Good-1.yaml", "  - {easyconfig: Good-1.yaml, default: true}\n"
          "  - {easyconfig: again/Good-2.yaml, default: true}"))  # fmt: skip
    write(here / "again/Good-2.yaml", (here / "Good-1.yaml").read_text().replace("'1'", "'2'"))
    assert run(apply) == 5
    assert "Good/2 and Good/1 cannot both be the default" in capfd.readouterr().err


@pytest.mark.parametrize("first", ["refused", "taken over"])
def test_a_default_that_staff_chose_outlives_the_stacks(here: Path, first: str) -> None:
    """A refused apply counted as the stack's decision, so that a later one ended the default of somebody else."""
    own = "name: our-cluster\neasyconfigs: [{easyconfig: own/Own-1.yaml%s}, own/Own-2.yaml]\n"
    apply, layout = ["stack", "apply", "stack.yaml", SKIP], Layout(here / "prefix")
    write(here / "stack.yaml", own % "")
    assert run(apply) == 0
    if first == "refused":
        assert run(["default", "Own/2"]) == run(["hide", "Own/1"]) == 0
        write(here / "stack.yaml", own % ", default: true")
        assert run(apply) == 2  # Own/1 cannot be the default and hidden
    else:
        write(here / "stack.yaml", own % ", default: true")
        assert run(apply) == 0
        assert run(["default", "Own/2"]) == 0
    assert read_life(layout, "Own").default == "2"
    for _ in range(2):
        write(here / "stack.yaml", own % "")
        assert run(apply) == 0
        assert read_life(layout, "Own").default == "2"


def test_an_error_in_an_easyconfig_ends_no_module_that_it_has_made(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (here / "stack.yaml").read_text().replace("[a, b]", "all\n    default: a")
    write(here / "stack.yaml", text + "  - {easyconfig: own/Own-1.yaml, default: true}\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    before = disk_state(here / "prefix/modules"), (here / "prefix/stacks/our-cluster.json").read_text()
    for name in ("Many-1.yaml", "own/Own-1.yaml"):
        (here / name).write_text("wrong: [\n")
    capfd.readouterr()
    assert run(["stack", "plan", "stack.yaml"]) == 5
    out = capfd.readouterr().out
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        " [x] Good/1",
        " [!] Many/1-a",
        " [!] Many/1-b",
        " [x] Own/2",
        " [!] Own/1",
    ]
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 5
    assert (disk_state(here / "prefix/modules"), (here / "prefix/stacks/our-cluster.json").read_text()) == before


def test_a_default_is_listed(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "stack.yaml", "easyconfigs: [{easyconfig: Good-1.yaml, default: true, hidden: true}]\n")
    assert run(["check", "stack.yaml"]) == 5
    assert "stack.yaml:1:15: easyconfigs[0]: the default cannot be hidden or retired" in capfd.readouterr().out


@pytest.mark.parametrize("entry", ["labels: {doc: URL}", "deprecated: {since: 2026-01-01, message: see URL}"])
def test_a_stack_says_no_login_to_all_users(here: Path, entry: str, capfd: pytest.CaptureFixture[str]) -> None:
    text = entry.replace("URL", "'https://me:hunter2@x.org'").replace("see '", "'see ")
    write(here / "stack.yaml", f"easyconfigs: [{{easyconfig: Good-1.yaml, {text}}}]\n")
    for words in (["check", "stack.yaml"], ["stack", "apply", "stack.yaml", SKIP]):
        assert run(words) == 5
        told = "".join(capfd.readouterr())
        assert "a login cannot be used here, because all users would read it" in told
        assert "hunter2" not in told


@pytest.mark.parametrize("digest", ["../../../../etc/passwd", "A" * 64, ""])
def test_a_lock_with_a_digest_that_is_none_is_refused(
    here: Path, capfd: pytest.CaptureFixture[str], digest: str
) -> None:
    origin = {"index": "", "manifest": "", "layers": [], "compression": "", "tools": []}
    image = {"sha256": digest, "source": "x", "origin": origin}
    row = {"module": "Good/1", "sifmod": "1", "words": "", "generation": 1}
    row |= {"inputs": {}, "files": {}, "layers": {}, "contents": {}, "image": image}
    write(here / "stack.lock", json.dumps({"format": 1, "modules": [row]}))
    assert run(["stack", "apply", "stack.yaml", "--locked"]) == 2
    assert "stack.lock is not a readable lock: modules.0.image.sha256: String should match" in capfd.readouterr().err
    assert not (here / "prefix").exists()


@pytest.mark.parametrize("row", ["no image", "an image", "twice"])
def test_a_lock_that_names_no_image_or_a_module_twice_is_refused(
    here: Path, row: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """As edited by hand or merged: without its image a module was installed with any."""
    write(here / "View-1.yaml", "name: View\nversion: '1'\nmodules: [Good/1]\n")
    write(here / "stack.yaml", "easyconfigs: [Good-1.yaml, View-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    lock = json.loads((here / "stack.lock").read_text())
    good, view = lock["modules"]
    if row == "twice":
        lock["modules"].append(good)
    elif row == "an image":
        view["image"] = good["image"]
    else:
        good["image"] = None
    write(here / "stack.lock", json.dumps(lock))
    capfd.readouterr()
    words = ["stack.yaml", "--locked", "--from", "prefix", "--prefix", str(here / "other")]
    assert run(["stack", "plan", *words]) == (2 if row == "twice" else 18)
    assert run(["stack", "apply", *words, SKIP]) == (2 if row == "twice" else 18)
    said = {
        "no image": "Good/1: does not match the lock: it has an image, and the lock names none",
        "an image": "View/1: does not match the lock: it has no image, and the lock names one",
        "twice": "stack.lock is not a readable lock: it names Good/1 twice",
    }
    assert said[row] in capfd.readouterr().err
    assert not (here / "other").exists()


FORGED = "x\nerror: forged"


@pytest.mark.parametrize("field", ["source", "input", "file", "layer", "sifmod", "key", "format"])
def test_a_lock_forges_no_line_of_a_message(here: Path, field: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    lock = json.loads((here / "stack.lock").read_text())
    first = lock["modules"][0]
    match field:
        case "source":
            first["image"]["source"] = FORGED
        case "input":
            first["inputs"][FORGED] = "0" * 64
        case "file":
            first["files"][FORGED] = "0" * 64
        case "layer":
            first["layers"], first["contents"] = {FORGED: "0" * 64}, {FORGED: "0" * 64}
        case "sifmod":
            first["sifmod"], first["files"] = FORGED, {}
        case "key":
            first["inputs"][FORGED] = "0"
        case _:
            lock["format"] = FORGED
    write(here / "stack.lock", json.dumps(lock))
    capfd.readouterr()
    for verb in (["plan", "stack.yaml", "--locked"], ["bundle", "stack.yaml", "--no-wheels", "-o", "it.tar"]):
        assert run(["stack", *verb]) == 2
        assert "forged" not in [line.removeprefix("error: ") for line in capfd.readouterr().err.splitlines()]


def test_a_bundle_forges_no_line_of_a_message(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["apply", "stack.yaml", SKIP], ["lock", "stack.yaml"], ["bundle", "stack.yaml", "-o", "it"]):
        assert run(["stack", *words, *(["--no-wheels"] if words[0] == "bundle" else [])]) == 0
    head = json.loads((here / "it/bundle.json").read_text())
    for changed in ({"sifmod": {"version": FORGED, "sha256": "0"}}, {"variables": {f"LD_{FORGED}": ""}}):
        write(here / "it/bundle.json", json.dumps(head | changed))
        capfd.readouterr()
        run(["stack", "apply", "--bundle", "it", SKIP, "--prefix", str(here / "other")])
        err = capfd.readouterr().err
        assert "forged" in err
        assert "forged" not in [line.removeprefix("error: ") for line in err.splitlines()]


def test_a_bundle_that_ends_too_soon_is_told(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "stack.tar"]) == 0
    whole = (here / "stack.tar").read_bytes()
    (here / "stack.tar").write_bytes(whole[:-200_000])  # in the image
    capfd.readouterr()
    assert run(["stack", "apply", "--bundle", "stack.tar", "--prefix", str(here / "other")]) == 2
    assert "stack.tar cannot be read: unexpected end of data" in capfd.readouterr().err
    for name, said in (("none.tar", "cannot be read: No such file"), ("stack.yaml", "is not a readable bundle")):
        assert run(["stack", "apply", "--bundle", name, "--prefix", str(here / "other")]) == 2
        assert f"error: {name} {said}" in capfd.readouterr().err
    assert not [*(here / "other").glob("images/**/*.sif"), *(here / "other").glob("software/*")]
    (here / "stack.tar").write_bytes(whole)
    assert run(["stack", "apply", "--bundle", "stack.tar", "--prefix", str(here / "other"), SKIP]) == 0


def test_gc_keeps_what_the_last_lock_names_until_it_is_forgotten(
    here: Path, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the tree where it was written and where it was applied, though no module uses the image any more."""
    source, staging, production = here / "source.sif", here / "staging", here / "production"
    shutil.copyfile(images.tiny_sif, source)
    write(here / "Good-1.yaml", f"name: Good\nversion: '1'\n{IMAGE.format(source=source)}")
    write(here / "stack.yaml", "name: small\neasyconfigs: [Good-1.yaml]\n")
    apply = ["stack", "apply", "stack.yaml", SKIP, "-q", "--prefix"]
    locked = [*apply, str(production), "--locked", "--offline", "--from", str(staging)]
    assert run([*apply, str(staging)]) == run(["stack", "lock", "stack.yaml", "--prefix", str(staging)]) == 0
    assert run(locked) == 0
    source.unlink()
    sif = next((staging / "images/sha256").glob("*.sif")).name
    for tree in (staging, production):
        assert run(["uninstall", "Good/1", "--prefix", str(tree)]) == 0
        capfd.readouterr()
        assert run(["gc", "--yes", "--now", "--ignore-jobs", "--prefix", str(tree)]) == 0
        assert f"{sif}  (the lock of small names it, until `sifmod stack lock --forget`)" in capfd.readouterr().out
        assert (tree / "images/sha256" / sif).is_file()
        assert not (tree / "software").exists()
    assert run([*locked[:-2]]) == 0  # from its own store
    record = staging / "stacks/small.json"
    text, before = record.read_text(), disk_state(staging / "images")
    record.write_text(text[:-9])
    assert run(["gc", "--yes", "--now", "--ignore-jobs", "--prefix", str(staging)]) == 0
    assert f"(the locks cannot be read: {record} is not a readable record" in capfd.readouterr().out
    assert disk_state(staging / "images") == before
    damages: tuple[Callable[[], None], ...] = (
        lambda: record.symlink_to("gone"),
        lambda: record.symlink_to(record),
        lambda: os.mkfifo(record),
        record.mkdir,
    )
    for damage in damages:
        shutil.rmtree(record) if record.is_dir() else record.unlink()
        damage()
        capfd.readouterr()
        assert run(["gc", "--yes", "--now", "--ignore-jobs", "--prefix", str(staging)]) == 0
        assert f"(the locks cannot be read: {record} is not a readable record" in capfd.readouterr().out
        assert disk_state(staging / "images") == before
    record.rmdir()
    record.write_text(text)
    assert run(["stack", "lock", "stack.yaml", "--forget", "--prefix", str(staging)]) == 0
    assert run(["gc", "--yes", "--now", "--ignore-jobs", "--prefix", str(staging)]) == 0
    assert not (staging / "images/sha256" / sif).exists()
    assert (production / "images/sha256" / sif).is_file()


def test_a_decision_that_fails_leaves_what_was_installed_recorded(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also in Lmod's cache: the next apply may find nothing more to change."""
    program = write(here / "lmod/update_lmod_system_cache_files", '#!/bin/sh\ntouch "$4"\nls modules >calls\n')
    hook = write(here / "hook", "#!/bin/sh\nexit 1\n")
    for file in (program, hook):
        file.chmod(0o755)
    monkeypatch.setenv("LMOD_DIR", str(program.parent))
    cache = f"spider_cache: {{directory: {here}/cache, timestamp: {here}/cache/stamp}}\n"
    write(here / "etc-sifmod.d/x.yaml", f"{cache}hooks: {{after_retire: [{hook}]}}\n")
    write(here / "stack.yaml", "easyconfigs: [{easyconfig: Good-1.yaml, retired: {since: 2026-01-01}}]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 18
    assert "the module was retired anyway" in capfd.readouterr().err
    assert (here / "prefix/calls").read_text() == "Good\n"
    assert json.loads((here / "prefix/stacks/stack.json").read_text())["modules"] == ["Good/1"]
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0


def test_a_decision_that_failed_is_made_by_the_next_apply(here: Path) -> None:
    """Its stack forgot that the default was its own, so it contradicted the retirement for ever."""
    hook = write(here / "hook", f"#!/bin/sh\n[ -e '{here}/allowed' ]\n")
    hook.chmod(0o755)
    write(here / "etc-sifmod.d/x.yaml", f"hooks: {{before_retire: [{hook}]}}\n")
    write(here / "stack.yaml", "easyconfigs: [{easyconfig: Good-1.yaml, default: true}]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    write(here / "stack.yaml", "easyconfigs: [{easyconfig: Good-1.yaml, retired: {since: 2026-01-01}}]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 18
    assert read_life(Layout(here / "prefix"), "Good").default == "1"
    write(here / "allowed", "")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    life = read_life(Layout(here / "prefix"), "Good")
    assert life.default is None
    assert life.of("1").retired


def test_a_view_that_a_decision_of_the_stack_breaks_is_named(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(here / "View-1.yaml", "name: View\nversion: '1'\nmodules: [Good]\n")
    write(here / "stack.yaml", "easyconfigs: [Good-1.yaml, View-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    write(here / "stack.yaml", "easyconfigs: [{easyconfig: Good-1.yaml, hidden: true}, View-1.yaml]\n")
    for told in (1, 0):
        capfd.readouterr()
        assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
        assert capfd.readouterr().err.count("Good/1: View/1 loads it and can no longer be loaded") == told


@pytest.mark.usefixtures("here")
def test_from_without_a_lock_says_that_it_fetches(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    for words, told in (([], True), (["--locked"], False)):
        capfd.readouterr()
        assert run(["stack", "plan", "stack.yaml", "--from", "prefix", "--prefix", "other", *words]) == 0
        assert ("warning: 1 image to fetch despite --from" in capfd.readouterr().err) is told


def test_a_list_of_what_is_there_has_an_end(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    with (here / "there").open("wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(here / "pipe")
    for name, why in (("there", "has more bytes than"), ("pipe", "is not a regular file"), (".", "Is a directory")):
        capfd.readouterr()
        assert run(["stack", "bundle", "stack.yaml", "--without", name, "-o", "it.tar"]) == 2
        assert why in capfd.readouterr().err
    assert not (here / "it.tar").exists()


def test_a_default_that_stays_is_still_the_stacks(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As long as what follows it stays uninstalled; the stack forgot that the default was its own."""
    own, layout = "own/Own-1.yaml", Layout(here / "prefix")
    write(here / "stack.yaml", f"easyconfigs: [{{easyconfig: {own}, default: true}}]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["install", "own/Own-2.yaml", SKIP]) == 0
    assert run(["retire", "Own/2"]) == 0
    assert run(["gc", "--yes", "--now", "--ignore-jobs"]) == 0
    write(here / "stack.yaml", f"easyconfigs: [{own}, {{easyconfig: own/Own-2.yaml, default: true}}]\n")
    capfd.readouterr()
    assert run(["stack", "plan", "stack.yaml"]) == 0
    assert " [E] Own/2: " in capfd.readouterr().out
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert read_life(layout, "Own").default == "1"
    write(here / "stack.yaml", f"easyconfigs: [{own}]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert read_life(layout, "Own").default is None


def test_a_module_is_not_retired_before_its_successor_is_there(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its notice named a module that nobody could load."""
    layout, retired = (
        Layout(here / "prefix"),
        "{easyconfig: own/Own-1.yaml, retired: {since: 2020-01-01, successor: Own/2}}",
    )
    write(here / "stack.yaml", "easyconfigs: [own/Own-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    own_2 = (here / "own/Own-1.yaml").read_text().replace("version: '1'", "version: '2'")
    write(here / "own/Own-2.yaml", "name: Own\nversion: '2'\nimage: {sources: [none.sif]}\n")
    write(here / "stack.yaml", f"easyconfigs: [own/Own-2.yaml, {retired}]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) != 0
    assert "warning: Own/1 was not retired: Own/2 is not installed" in capfd.readouterr().err
    assert read_life(layout, "Own").of("1").retired is None
    write(here / "own/Own-2.yaml", own_2)
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert read_life(layout, "Own").of("1").retired
    assert "successor" not in capfd.readouterr().err
    write(here / "stack.yaml", f"easyconfigs: [own/Own-2.yaml, {retired.replace('Own/2', 'Own/9')}]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert "warning: Own/1: its successor Own/9 is not installed here" in capfd.readouterr().err


def test_a_default_stays_until_its_successor_is_there(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where the install of the new default fails, or its job only waits, users keep the old one."""
    layout, stack = Layout(here / "prefix"), "easyconfigs: [{{easyconfig: own/Own-{0}.yaml, default: true}}{1}]\n"
    write(here / "stack.yaml", stack.format(1, ""))
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    write(here / "own/Own-2.yaml", "name: Own\nversion: '2'\nimage: {sources: [none.sif]}\n")
    write(here / "stack.yaml", stack.format(2, ", own/Own-1.yaml"))
    assert run(["stack", "apply", "stack.yaml", SKIP]) != 0
    assert "Own/2 is not installed, so it was not made the default" in capfd.readouterr().err
    assert read_life(layout, "Own").default == "1"
    write(here / "stack.yaml", stack.format(2, ", {easyconfig: own/Own-1.yaml, hidden: true}"))
    assert run(["stack", "apply", "stack.yaml", SKIP]) != 0
    assert read_life(layout, "Own").default is None
    assert read_life(layout, "Own").of("1").hidden


def test_a_refused_bundle_leaves_the_files_of_the_one_before(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """From these files what is installed is rendered again: a refused easyconfig went live by `--module-only`."""
    write(here / "stack.yaml", "name: one\neasyconfigs: [own/Own-1.yaml]\n")
    other = here / "other"
    for number, more in (1, ""), (2, "env: {REFUSED: x}\n"):
        with (here / "own/Own-1.yaml").open("a") as file:
            file.write(more)
        assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
        assert run(["stack", "lock", "stack.yaml"]) == 0
        assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", f"{number}.tar"]) == 0
    apply = ["stack", "apply", SKIP, "--prefix", str(other), "--bundle"]
    assert run([*apply, "2.tar", "--module-syntax", "tcl"]) == 18
    assert not [path for path in (other / "stacks").rglob("*") if path.is_file()]
    assert run([*apply, "1.tar"]) == 0
    before = contents(other / "stacks")
    capfd.readouterr()
    assert run([*apply, "2.tar", "--module-syntax", "tcl"]) == 18
    said = capfd.readouterr().err
    assert "does not match the lock" in said
    assert "hint: without --module-syntax the bundle's settings are used" in said
    assert contents(other / "stacks") == before
    assert run([*apply, "2.tar"]) == 0
    assert contents(other / "stacks") != before


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
