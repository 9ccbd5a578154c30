"""A rollback holds: what was rolled back from does not come back unasked."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.tree.history import held_since, read_history
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live_number
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.oci import layers_of, write_layout
from support.registry import Registry
from support.steps import some
from support.victim import Victim

SKIP = "--skip-sanity-check"
APPLY = ["stack", "apply", "stack.yaml", SKIP]
GOOD, BAD = "{A: good}", "{A: bad}"


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack of two modules; App/1 was rolled back from generation 2, and another module goes on."""
    directory = tmp_path / "a place"
    directory.mkdir()
    monkeypatch.setenv("SIFMOD_PREFIX", str(directory / "prefix"))
    monkeypatch.chdir(directory)
    for name in ("App", "Other"):
        easyconfig(directory, name, images, GOOD)
    write(directory / "stack.yaml", "easyconfigs: [App-1.yaml, Other-1.yaml]\n")
    assert run([*APPLY, "-q"]) == 0
    easyconfig(directory, "App", images, BAD)
    assert run([*APPLY, "-q"]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    assert run(["rollback", "App/1"]) == 0
    assert generation(directory) == 1
    return directory


def easyconfig(here: Path, name: str, images: Images, env: str) -> None:
    image = f"image: {{sources: ['{images.tiny_sif}'], filename: tiny.sif}}\nwrappers: [sh]\n"
    write(here / f"{name}-1.yaml", f"name: {name}\nversion: '1'\nenv: {env}\n{image}")


def generation(here: Path) -> int | None:
    return live_number(Layout(here / "prefix"), ModuleName("App", "1"))


@pytest.mark.parametrize("more", [[], ["--locked"], ["--rebuild"], ["--locked", "--rebuild"], ["--only", "App/1"]])
def test_a_nightly_apply_leaves_what_was_rolled_back(
    here: Path, more: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    before = disk_state(here / "prefix/software/App")
    capfd.readouterr()
    for verb in (["stack", "plan", "stack.yaml", SKIP], APPLY):
        assert run([*verb, *more]) == 0
        told = "".join(capfd.readouterr())
        assert " [H] App/1: App/1 was rolled back from the same content: generation 2 is held since 20" in told
        assert "`sifmod rollback --release App/1` releases it" in told
        assert "1 held" in told
    assert disk_state(here / "prefix/software/App") == before
    for name in ("plan", "apply"):
        assert run(["stack", name, "stack.yaml", SKIP, *more, "--fail-on-held"]) == 1
    capfd.readouterr()
    assert run([*APPLY, *more, "--fail-on-held", "-q"]) == 1
    assert "App/1: held; release it with" in capfd.readouterr().err
    assert generation(here) == 1
    capfd.readouterr()
    assert run(["stack", "plan", "stack.yaml", SKIP, *more, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["members"][0]["mark"] == "H"


def test_a_dry_run_says_it(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["App-1.yaml"], ["App-1.yaml", "--rebuild"], ["App-1.yaml", "--module-only"]):
        capfd.readouterr()
        assert run(["install", "-D", *words]) == 0
        assert " * [H] App-1.yaml (module: App/1)\n" in capfd.readouterr().out.replace(f"{here}/", "")
    assert run(["uninstall", "App/1"]) == 0
    capfd.readouterr()
    assert run(["install", "-D", "App-1.yaml", "--json"]) == 0
    assert [row["mark"] for row in json.loads(capfd.readouterr().out)] == ["H"]
    assert run(["rollback", "--release", "App/1"]) == 0
    assert run(["install", "-D", "App-1.yaml"]) == 0
    assert " * [ ] " in capfd.readouterr().out


def test_it_is_held_since_the_rollback(here: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    """And not since what was installed later, with the content that is live."""
    path = Layout(here / "prefix").history(ModuleName("App", "1"))
    events = json.loads(path.read_text())
    path.write_text(json.dumps([[event[0], 1.7e9 + day * 86400, *event[2:]] for day, event in enumerate(events)]))
    easyconfig(here, "App", images, GOOD)
    assert run(["install", "-q", SKIP, "App-1.yaml", "--rebuild"]) == 0
    assert generation(here) == 3
    easyconfig(here, "App", images, BAD)
    capfd.readouterr()
    assert run(["stack", "plan", "stack.yaml", SKIP]) == 0
    assert "generation 2 is held since 2023-11-16T22:13:20Z" in capfd.readouterr().out


def test_another_variant_of_the_same_easyconfig_is_not_held(here: Path, images: Images) -> None:
    """Both give one module, of the same image; only one of them was rolled back from."""
    easyconfig(here, "App", images, f"{GOOD}\nvariants: {{a: {{env: {{A: third}}}}, b: {{env: {{A: fourth}}}}}}")
    words = ["install", "-q", SKIP, "App-1.yaml", "--variant"]
    assert run([*words, "a"]) == 0
    assert run(["rollback", "App/1"]) == 0
    assert run([*words, "a"]) != 0
    assert generation(here) == 1
    assert run([*words, "b"]) == 0
    assert generation(here) == 4


def test_a_comment_and_another_place_end_no_hold(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = here / "App-1.yaml"
    path.write_text(f"# checked on Tuesday\n{path.read_text()}")
    assert run([*APPLY]) == 0
    assert generation(here) == 1
    elsewhere = write(here / "else where/App-1.yaml", path.read_text())
    capfd.readouterr()
    before = disk_state(here / "prefix/software")
    for words in ([], ["--rebuild"], ["--force"], ["--module-only"]):
        assert run(["install", str(elsewhere), SKIP, *words]) == 18
        assert "sifmod rollback --release App/1" in capfd.readouterr().err
    assert disk_state(here / "prefix/software") == before


@pytest.mark.parametrize("way", ["extends", "variant", "source", "copy"])
def test_the_same_image_and_files_by_another_way_end_no_hold(
    here: Path, images: Images, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is made is the same, but for the words by which the module says how it is installed again."""
    words = [str(write(here / "else where/App-1.yaml", "extends: ../App-1.yaml\n"))]
    if way == "variant":
        text = (here / "App-1.yaml").read_text().replace(f"env: {BAD}", f"env: {GOOD}")
        words = [
            str(write(here / "else where/App-1.yaml", f"{text}variants: {{v: {{env: {BAD}}}}}\n")),
            "--variant",
            "v",
        ]
    if way == "source":
        words = ["App-1.yaml", "--source", str(images.tiny_sif)]
    if way == "copy":
        copy = shutil.copyfile(images.tiny_sif, here / "copied.sif")
        text = (here / "App-1.yaml").read_text().replace(f"['{images.tiny_sif}'], filename: tiny.sif", f"[{copy}]")
        words = [str(write(here / "else where/App-1.yaml", text))]
    before = disk_state(here / "prefix/software")
    capfd.readouterr()
    assert run(["install", SKIP, *words]) == 18
    assert "App/1 was rolled back from the same content: generation 2 is held since" in capfd.readouterr().err
    assert disk_state(here / "prefix/software") == before


def test_the_good_content_from_another_place_ends_no_hold(here: Path, images: Images) -> None:
    """A colleague's checkout of it made a new generation, and the next apply of what was held installed that."""
    for name, env in (("good", f"{GOOD}\ndescription: of a colleague"), ("bad", BAD)):
        easyconfig(here / name, "App", images, env)
        write(here / name / "stack.yaml", "easyconfigs: [App-1.yaml]\n")
    assert run(["stack", "apply", "good/stack.yaml", SKIP]) == 0
    assert generation(here) == 3
    assert run(["stack", "apply", "bad/stack.yaml", SKIP, "--fail-on-held"]) == 1
    assert generation(here) == 3


def test_a_plan_says_that_the_image_decides(here: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    """It said [R] alone, and the apply then skipped the module as held."""
    copy = shutil.copyfile(images.tiny_sif, here / "copied.sif")
    text = (here / "App-1.yaml").read_text().replace(f"'{images.tiny_sif}'", str(copy))
    write(here / "App-1.yaml", text)
    says = "its image shows during the install whether it has the held content, which is skipped"
    for before in (True, False):
        capfd.readouterr()
        assert run(["stack", "plan", "stack.yaml", SKIP]) == 0
        told = "".join(capfd.readouterr())
        assert f" [{'R' if before else ' '}] App/1: " in told
        assert says in told
        assert run([*APPLY, "--fail-on-held"]) == 1
        assert generation(here) == (1 if before else None)
        assert run(["uninstall", "App/1"]) == 0


@pytest.mark.parametrize("way", ["layout", "archive", "compression"])
def test_the_same_manifest_by_another_way_is_held(
    here: Path, images: Images, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """An OCI layout, its archive, or another compression gave other bytes, and the nightly apply installed them."""
    for name in ("good", "bad", "copy"):
        label = "good" if name == "good" else "bad"
        write_layout(here / name, layers_of(images.tiny_layout(env=())), labels={"is": label}, entrypoint=("/bin/sh",))

    def install(source: str, *words: str) -> int:
        write(here / "App-1.yaml", f"name: App\nversion: '1'\nimage: {{sources: ['{source}']}}\n")
        return run([*APPLY, *words])

    assert install(f"oci:{here}/good") == 0
    assert install(f"oci:{here}/bad") == 0
    assert run(["rollback", "App/1"]) == 0
    now = generation(here)
    if way == "archive":
        with tarfile.open(here / "bad.tar", "w") as tar:
            tar.add(here / "bad", ".")
    source = {"layout": f"oci:{here}/copy", "archive": f"oci-archive:{here}/bad.tar"}.get(way, f"oci:{here}/bad")
    words = ("--compression", "gzip:1") if way == "compression" else ()
    capfd.readouterr()
    assert install(source, *words) == 0
    assert generation(here) == now
    assert "was rolled back from the same content" in "".join(capfd.readouterr())
    assert install(f"oci:{here}/good") == 0  # what it was rolled back to is not held, nor another manifest
    assert run(["rollback", "--release", "App/1"]) == 0
    assert install(source, *words) == 0
    assert generation(here) != now


def test_other_content_ends_it(here: Path, images: Images) -> None:
    easyconfig(here, "App", images, "{A: better}")
    assert run([*APPLY, "--fail-on-held"]) == 0
    assert generation(here) == 3
    easyconfig(here, "App", images, BAD)
    assert run([*APPLY, "--fail-on-held"]) == 0
    assert generation(here) == 4


def test_what_a_moved_tag_names_next_ends_it(here: Path, images: Images, registry: Registry) -> None:
    """The request is the same, so that the hold stayed, and stopped each later install of the new image."""

    def moved(label: str) -> None:
        layout = here / label
        write_layout(layout, layers_of(images.tiny_layout(env=())), labels={"is": label}, entrypoint=("/bin/sh",))
        registry.push_layout(layout, "moved:1")

    def held() -> tuple[int, ...]:
        return tuple(held_since(read_history(Layout(here / "prefix"), ModuleName("App", "1"))))

    moved("good")
    source = f"docker://{registry.address}/moved:1"
    write(here / "App-1.yaml", f"name: App\nversion: '1'\nimage: {{sources: ['{source}']}}\n")
    assert run(APPLY) == 0
    moved("bad")
    assert run(["install", "--force", "App-1.yaml", SKIP]) == 0
    assert run(["rollback", "App/1"]) == 0
    bad = held()
    assert len(bad) == 1
    assert run(["install", "--force", "App-1.yaml", SKIP]) == 18
    assert held() == bad
    moved("better")
    assert run(["install", "--force", "App-1.yaml", SKIP]) == 0
    assert held() == ()
    assert run(["install", "App-1.yaml", "--rebuild", SKIP]) == 0


def test_the_same_content_for_a_changed_site_ends_none(here: Path, images: Images) -> None:
    easyconfig(here, "App", images, GOOD)
    write(here.parent / "home/.config/sifmod/config.yaml", "env: {OF_THE_SITE: x}\n")
    assert run(["install", "--module-only", "--installed", SKIP, "-q", "--yes"]) == 0
    assert generation(here) == 3
    easyconfig(here, "App", images, BAD)
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert generation(here) == 3


@pytest.mark.parametrize("words", [["stack", "apply", "stack.yaml"], ["install", "App-1.yaml"]])
def test_a_changed_site_ends_none_in_an_install_either(here: Path, images: Images, words: list[str]) -> None:
    """The nightly apply after a change of the site installed the good content again, and the hold was gone."""
    easyconfig(here, "App", images, GOOD)
    write(here.parent / "home/.config/sifmod/config.yaml", "env: {OF_THE_SITE: x}\n")
    assert run([*words, SKIP]) == 0
    assert generation(here) == 3
    easyconfig(here, "App", images, BAD)
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert generation(here) == 3


def test_new_content_without_its_image_ends_it(here: Path, images: Images) -> None:
    easyconfig(here, "App", images, "{A: better}")
    assert run(["install", "--module-only", "App-1.yaml", SKIP]) == 0
    assert generation(here) == 3
    easyconfig(here, "App", images, BAD)
    assert run([*APPLY, "--fail-on-held"]) == 0
    assert generation(here) == 4


@pytest.mark.parametrize(
    "ends",
    [
        ["rollback", "--release", "App/1"],
        ["rollback", "App/1", "--to", "2"],
    ],
)
def test_what_ends_it(here: Path, ends: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(ends) == 0
    assert run([*APPLY, "--locked", "--fail-on-held"]) == 0
    assert generation(here) == (3 if "--release" in ends else 2)
    capfd.readouterr()
    assert run(["list", "App"]) == 0
    assert "held" not in capfd.readouterr().out


def test_the_same_rollback_by_another_member_does_not_end_it(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["rollback", "App/1"]) == 24
    assert "App/1 was rolled back already" in capfd.readouterr().err
    assert generation(here) == 1


def test_it_is_seen(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    for verb in (["list"], ["show", "App/1"]):
        assert run(verb) == 0
        assert "generation 2 is held since 20" in "".join(capfd.readouterr())
    assert run(["list", "--json"]) == 0
    held = {one["module"]: one["held"] for one in json.loads(capfd.readouterr().out)}
    assert held["Other/1"] == []
    assert [one["generation"] for one in held["App/1"]] == [2]
    assert run(["log", "App"]) == 0
    assert "held App/1, generation 2" in capfd.readouterr().out
    assert run(["rollback", "--release", "App/1"]) == 0
    assert "App/1: generation 2 is no longer held" in capfd.readouterr().err
    assert run(["log", "App"]) == 0
    assert "released App/1, generation 2" in capfd.readouterr().out
    before = disk_state(here)
    assert run(["rollback", "--release", "App/1"]) == 24
    assert "App/1 is not held" in capfd.readouterr().err
    assert disk_state(here) == before


def test_gc_keeps_what_is_held(here: Path) -> None:
    assert run(["gc", "--now", "--rollbacks", "--yes"]) == 0
    assert (here / "prefix/software/App/.generations/1/2").is_dir()
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert generation(here) == 1


def test_killed_at_any_step_it_is_rolled_back_and_held_or_neither(here: Path) -> None:
    layout, module = Layout(here / "prefix"), ModuleName("App", "1")
    env = {"HOME": str(here), "SIFMOD_SITE": "generic", "PATH": "/none", "SIFMOD_CONFIG_DIR": "/none"}
    back = ("rollback", str(module), "--to", "1", "--prefix", layout.prefix)
    forward = (*back[:3], "2", *back[4:])
    found = set()
    with Victim(env) as victim:
        assert victim.run(forward).code == 0
        assert held_since(read_history(layout, module)) == {}
        steps = victim.run(back).steps
        for step in some(1, steps, 4):
            assert victim.run(forward).code == 0
            assert victim.run(back, "killed", step).code == -9
            for _ in range(2):
                held = tuple(held_since(read_history(layout, module)))
                assert held == {1: (2,), 2: ()}[generation(here) or 0]
                assert victim.run(("gc", "--yes", "--prefix", layout.prefix)).code == 0
            found.add(held)
    assert found == {(), (2,)}


def test_a_hold_that_nobody_wrote_is_none(here: Path) -> None:
    """What is no list of generations is no history."""
    history = Layout(here / "prefix").history(ModuleName("App", "1"))
    history.write_text("[[1, 1780000000.0, []], [2, 1780000001.0, []], [1, 1780000002.0, []]]\n")
    assert run(["rollback", "--release", "App/1"]) == 24
    assert run([*APPLY, "--fail-on-held"]) == 0
    assert generation(here) == 3
    assert run(["rollback", "App/1"]) == 0
    history.write_text(history.read_text().replace("[3]", "[true]"))
    assert run(["list"]) == 0


def test_it_is_asked_on_a_terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    assert run(["install", "App-1.yaml", SKIP]) == 18
    assert generation(here) == 1
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "y")
    assert run(["install", "App-1.yaml", SKIP]) == 0
    assert generation(here) == 3
    assert run([*APPLY, "--fail-on-held"]) == 0


@pytest.mark.parametrize("more", [["-y"], ["-D"], ["-y", "--fail-fast"]])
def test_what_is_installed_is_rendered_again_without_it(
    here: Path, more: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """A changed site reaches the other modules; the one whose easyconfig is held is named, and stays."""
    write(here / "site.yaml", "name: s\nenv: {B: new}\n")
    before = disk_state(here / "prefix/software/App")
    capfd.readouterr()
    assert run(["install", "--module-only", "--installed", "--site", "./site.yaml", *more, SKIP]) == 0
    told = "".join(capfd.readouterr())
    assert "App/1: " in told
    assert "`sifmod rollback --release App/1`" in told
    assert disk_state(here / "prefix/software/App") == before
    other = live_number(Layout(here / "prefix"), ModuleName("Other", "1"))
    assert other == (1 if more == ["-D"] else 2)


@pytest.mark.parametrize("words", ["description: works now", "env: {A: repaired}", "wrappers: [sh, ls]"])
def test_a_bad_image_stays_held_whatever_is_said_of_it(
    here: Path, images: Images, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where the rollback changed the image, its digest is held: no text tells a repair from a remark."""
    bad = images.tiny("bad")
    text = f"name: App\nversion: '1'\nimage: {{sources: ['{bad}'], filename: tiny.sif}}\n"
    write(here / "App-1.yaml", f"{text}wrappers: [sh]\nenv: {{A: third}}\n")
    assert run([*APPLY, "-q"]) == 0
    assert generation(here) == 3
    assert run(["rollback", "App/1"]) == 0
    assert generation(here) == 1
    before = disk_state(here / "prefix/software/App")
    key = words.partition(":")[0]
    others = "".join(f"{line}\n" for line in ("wrappers: [sh]", "env: {A: third}") if not line.startswith(key))
    write(here / "App-1.yaml", f"{text}{others}{words}\n")
    copy = shutil.copyfile(bad, here / "copied.sif")
    elsewhere = write(here / "else where/App-1.yaml", (here / "App-1.yaml").read_text().replace(str(bad), str(copy)))
    for path in ("App-1.yaml", str(elsewhere)):
        capfd.readouterr()
        assert run(["install", SKIP, path]) == 18
        assert "generation 3 is held since" in capfd.readouterr().err
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert disk_state(here / "prefix/software/App") == before
    easyconfig(here, "App", images, "{A: fourth}")
    assert run([*APPLY, "--fail-on-held"]) == 0  # another image
    assert generation(here) == 4


@pytest.mark.parametrize("words", ["description: works now", "homepage: https://example.org", "whatis: [x]"])
def test_other_words_about_the_same_content_end_no_hold(
    here: Path, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = here / "App-1.yaml"
    path.write_text(f"{path.read_text()}{words}\n")
    before = disk_state(here / "prefix/software")
    capfd.readouterr()
    assert run(["install", SKIP, str(path)]) == 18
    assert "generation 2 is held since" in capfd.readouterr().err
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert disk_state(here / "prefix/software") == before


def test_a_description_that_was_rolled_back_from_is_held(here: Path, images: Images) -> None:
    """Where nothing else differs, the words are what was bad."""
    easyconfig(here, "App", images, f"{GOOD}\ndescription: right")
    assert run([*APPLY, "-q"]) == 0
    easyconfig(here, "App", images, f"{GOOD}\ndescription: wrong")
    assert run([*APPLY, "-q"]) == 0
    assert run(["rollback", "App/1"]) == 0
    assert generation(here) == 3
    assert run([*APPLY, "--fail-on-held"]) == 1
    easyconfig(here, "App", images, f"{GOOD}\ndescription: better")
    assert run([*APPLY, "--fail-on-held"]) == 0
    assert generation(here) == 5


@pytest.mark.parametrize("back", [[], ["rollback", "App/1"]])
def test_an_uninstall_ends_no_hold(
    here: Path, back: list[str], images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["uninstall", "App/1"]) == 0
    assert not back or run(back) == 0
    live = generation(here)
    capfd.readouterr()
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert "App/1 was rolled back from the same content" in capfd.readouterr().err
    assert generation(here) == live
    easyconfig(here, "App", images, GOOD)  # what was live before the uninstall, which ends no hold either
    assert run([*APPLY, "-q"]) == 0
    assert generation(here) == (1 if back else 3)
    easyconfig(here, "App", images, BAD)
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert run(["rollback", "--release", "App/1"]) == 0
    assert run([*APPLY, "--fail-on-held"]) == 0


def test_a_rollback_to_a_later_generation_ends_no_hold(here: Path, images: Images) -> None:
    """What was rolled back from has a lower number than the good content, rendered again since."""
    easyconfig(here, "App", images, GOOD)
    assert run(["install", "App-1.yaml", SKIP, "--rebuild"]) == 0
    assert generation(here) == 3
    assert run(["uninstall", "App/1"]) == 0
    assert run(["rollback", "App/1"]) == 0
    assert generation(here) == 3
    easyconfig(here, "App", images, BAD)
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert generation(here) == 3


def test_a_rollback_after_an_uninstall_holds_what_was_uninstalled(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Staff remove a bad generation in a hurry, and then bring the good one back."""
    assert run(["rollback", "--to", "2", "App/1"]) == 0
    assert run(["uninstall", "App/1"]) == 0
    assert run(["rollback", "--to", "1", "App/1"]) == 0
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert generation(here) == 1
    capfd.readouterr()
    assert run(["log", "App"]) == 0
    assert capfd.readouterr().out.count("held App/1, generation 2") == 2


def test_a_hold_outlives_a_retirement_and_its_gc(here: Path) -> None:
    assert run(["retire", "App/1"]) == 0
    assert run(["gc", "--now", "--yes"]) == 0
    assert generation(here) is None
    assert run(["retire", "--undo", "App/1"]) == 0
    assert run(["gc", "--now", "--yes"]) == 0  # a nightly one, before the apply
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert generation(here) is None
    assert run(["rollback", "--release", "App/1"]) == 0
    assert run(APPLY) == 0


def test_an_uninstall_of_what_was_retired_and_removed_lets_gc_end_its_hold(here: Path) -> None:
    for words in (["retire", "App/1"], ["gc", "--now", "--yes"], ["retire", "--undo", "App/1"], ["uninstall", "App/1"]):
        assert run(words) == 0
    assert run(["gc", "--now", "--yes"]) == 0
    assert run([*APPLY, "--fail-on-held"]) == 0
    assert generation(here)


def test_a_gc_of_what_was_retired_that_is_killed_at_any_step_ends_no_hold(here: Path) -> None:
    layout, module = Layout(here / "prefix"), ModuleName("App", "1")
    env = {"HOME": str(here), "SIFMOD_SITE": "generic", "PATH": "/none", "SIFMOD_CONFIG_DIR": "/none"}
    gc, place = ("gc", "--now", "--yes", "--prefix", layout.prefix), ("App/1", "--prefix", layout.prefix)
    with Victim(env) as victim:
        assert victim.run(("retire", *place)).code == 0
        shutil.copytree(layout.prefix, here / "before", symlinks=True)
        for step in some(1, victim.run(gc).steps, 12):
            shutil.move(layout.prefix, here / f"after {step}")
            shutil.copytree(here / "before", layout.prefix, symlinks=True)
            assert victim.run(gc, "killed", step).code == -9
            assert victim.run(("retire", "--undo", *place)).code == 0
            assert victim.run(gc).code == 0
            assert held_since(read_history(layout, module)).keys() == {2}, step
            assert layout.generation(module, 2).is_dir(), step


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("uninstalled", [False, True])
def test_a_hold_outlives_what_was_rolled_back_to(here: Path, images: Images, gone: bool, uninstalled: bool) -> None:
    """Nothing shows any more what the rollback undid: the held content is known, and does not come back."""
    assert not uninstalled or run(["uninstall", "App/1"]) == 0
    root = here / "prefix/software/App/.generations/1/1"
    if gone:
        shutil.rmtree(root)
    else:
        (root / "receipt.json").chmod(0o644)
        (root / "receipt.json").write_text("{")
    switch = here / "prefix/software/App/1"
    before = os.path.lexists(switch) and os.readlink(switch)
    assert run([*APPLY, "--fail-on-held"]) == 1
    assert run(["install", "App-1.yaml", SKIP, "--force"]) == 18
    assert (os.path.lexists(switch) and os.readlink(switch)) == before
    easyconfig(here, "App", images, GOOD)
    assert run([*APPLY, "--fail-on-held"]) == 0
    assert generation(here) == 3
    easyconfig(here, "App", images, BAD)
    assert run([*APPLY, "--fail-on-held"]) == 1


def test_an_uninstalled_hold_can_be_released_and_purged(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["uninstall", "App/1"]) == 0
    assert run(["install", "App-1.yaml", SKIP]) == 18
    capfd.readouterr()
    assert run(["rollback", "--release", "App/1"]) == 0
    assert "generation 2 is no longer held" in capfd.readouterr().err
    assert run(["install", "App-1.yaml", SKIP]) == 0
    assert run(["rollback", "--to", "1", "App/1"]) == 0
    assert run(["uninstall", "--purge", "App/1"]) == 0
    assert not (here / "prefix/software/App").exists()
    assert run(["install", "App-1.yaml", SKIP]) == 0


@pytest.mark.parametrize("words", ["description: works now", "homepage: https://example.org"])
def test_a_view_stays_held_whatever_is_said_of_it(here: Path, words: str) -> None:
    view, apply = "name: View\nversion: '1'\nmodules: [Other/1]\nhost_env: {A: %s}\n", ["stack", "apply", "v.yaml"]
    write(here / "v.yaml", "easyconfigs: [Other-1.yaml, View-1.yaml]\n")
    for value in ("good", "bad"):
        write(here / "View-1.yaml", view % value)
        assert run([*apply, SKIP, "-q"]) == 0
    assert run(["rollback", "View/1"]) == 0
    write(here / "View-1.yaml", view % "bad" + words)
    assert run([*apply, SKIP, "-q"]) == 0
    assert live_number(Layout(here / "prefix"), ModuleName("View", "1")) == 1
    write(here / "View-1.yaml", view % "repaired" + words)
    assert run([*apply, SKIP, "-q"]) == 0
    assert live_number(Layout(here / "prefix"), ModuleName("View", "1")) == 3
