"""What the verbs that look at a tree print, line by line: list, show, rollback, uninstall, gc, config."""

import json
import os
import time
from pathlib import Path

import pytest

from sifmod.actions.author.check import settings_kind
from sifmod.actions.install.how_to_load import commands_to_load, stale_spider_cache
from sifmod.cli.main import run
from sifmod.cli.output import print_rows
from sifmod.cli.progress import figures, log_lines
from sifmod.config.name import ModuleName
from sifmod.config.option import option_of
from sifmod.tree.layout import RECEIPT, Layout
from sifmod.tree.receipt import Installation
from support.answer import answer
from support.config import write
from support.disk_state import disk_state
from support.tree import MODULE, install, kept_for

OTHER = ModuleName("Other", "2.0")


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    return Layout(tmp_path / "prefix")


@pytest.fixture
def installation(layout: Layout) -> Installation:
    return install(layout, "a")


def test_rows_are_columns_without_blanks_at_their_ends(capfd: pytest.CaptureFixture[str]) -> None:
    print_rows([("a", "bb", ""), ("aaa", "b", "c"), ("", "", "")])
    assert capfd.readouterr().out == "a    bb\naaa  b   c\n\n"
    print_rows([])
    assert capfd.readouterr().out == ""


def test_list(layout: Layout, installation: Installation, capfd: pytest.CaptureFixture[str]) -> None:
    other = install(layout, "b", OTHER)
    install(layout, "c", OTHER)
    Path(layout.generation(OTHER, 2), RECEIPT).unlink()
    lost = f"the receipt in {layout.generation(OTHER, 2)} is missing or cannot be read"
    assert run(["list"]) == 0
    size = f"{installation.required_image.size / 1000:.1f} kB"
    assert capfd.readouterr() == (
        f"MODULE     {'SIZE'.ljust(len(size))}  GENERATION  STATE\n"
        f"Other/2.0  {'?'.ljust(len(size))}  2           {lost}\nTiny/1.0   {size}  1\n",
        "",
    )
    first, second = answer(capfd, ("list",))
    assert (first["module"], first["generation"], first["installation"]) == ("Other/2.0", 2, None)
    assert [problem["message"] for problem in first["problems"]] == [lost]
    assert (second["module"], second["generation"], second["problems"]) == ("Tiny/1.0", 1, [])
    assert (second["installation"]["module"], second["installation"]["path"]) == ("Tiny/1.0", installation.root)
    assert run(["list", "zzz"]) == 0
    assert capfd.readouterr() == ("", "no installed module matches 'zzz'\n")
    there = f"no modules are installed in {layout.prefix}/none"
    assert run(["list", "--prefix", f"{layout.prefix}/none"]) == 0
    assert capfd.readouterr() == ("", f"{there}, which does not exist yet\n")
    Path(f"{layout.prefix}/none").mkdir()
    assert run(["list", "--prefix", f"{layout.prefix}/none"]) == 0
    assert capfd.readouterr() == ("", f"{there}\n")
    assert other.generation == 1


def test_show_of_a_module(layout: Layout, installation: Installation, capfd: pytest.CaptureFixture[str]) -> None:
    image = installation.required_image
    for name in ("Tiny", "Tiny-1", "Tiny/1.0"):
        assert run(["show", name]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        assert out.splitlines() == [
            "module          Tiny/1.0",
            f"generation      1 ({installation.root})",
            f"stable path     {layout.prefix}/software/Tiny/1.0",
            f"modulefiles     {layout.prefix}/modules/Tiny/1.0.lua",
            "wrappers        python",
            f"image           tiny.sif (amd64, {image.size / 1000:.1f} kB, copy)",
            f"sha256          {image.sha256}",
            f"stored in       {image.path}",
            "easyconfig      /easyconfigs/tiny.yaml",
            "site            test, accelerator none",
            f"your own files  {layout.user_software(MODULE)}",
            "installed by    sifmod 0.1",
        ]
    assert run(["show", "--json", "Tiny"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["module"], data["generation"], data["image"]["sha256"]) == ("Tiny/1.0", 1, image.sha256)


@pytest.mark.usefixtures("installation")
@pytest.mark.parametrize("option", ["--origins", "--variant"])
def test_an_option_of_easyconfigs_with_a_module(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = [option, "x"] if option == "--variant" else [option]
    assert run(["show", *words, "Tiny/1"]) == 2
    assert capfd.readouterr().err == (
        f"error: {option} needs an easyconfig, and Tiny/1.0 is an installed module\n\nhint: its easyconfig: `sifmod "
        "show /easyconfigs/tiny.yaml --origins`\n"
    )
    assert run(["show", *words, "Tiny-1.0"]) == 4


def test_show_of_an_easyconfig(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "name: Tiny\nversion: '1.0'\nimage: {sources: [/x.sif]}\nvariants: {a: {env: {V: ü}}, cpu: {env: {V: b}}}\n"
    path = write(tmp_path / "Tiny-1.0.yaml", text)
    assert run(["show", "--variant", "a", str(path)]) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"# {path}, variant a\nname: Tiny\nversion: '1.0'\n")
    assert "\n  V: ü\n" in out
    assert not out.endswith("\n\n")
    assert run(["show", "--variant", "a", "--json", str(path)]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["path"], data["variant"], data["keys"]["env"]["V"]) == (str(path), "a", "ü")
    assert None not in data["keys"].values()
    assert run(["show", "--variant", "a", "--json", "--origins", str(path)]) == 0
    rows = json.loads(capfd.readouterr().out)
    assert {"key": "env.V", "value": "ü", "origin": f"{path}:4"} in [
        {**row, "origin": row["origin"].split(" ")[0]} for row in rows
    ]


def test_rollback(layout: Layout, installation: Installation, capfd: pytest.CaptureFixture[str]) -> None:
    install(layout, "b")
    assert run(["rollback", "Tiny"]) == 0
    out, err = capfd.readouterr()
    live, held = err.splitlines()
    assert (out, live) == ("", "== Tiny/1.0: generation 1 is live")
    assert held.startswith("== Tiny/1.0: generation 2 is held since 2")
    assert held.endswith("; `sifmod rollback --release Tiny/1.0` releases it")
    assert run(["rollback", "Tiny", "--to", "2", "--json"]) == 0
    out, err = capfd.readouterr()
    assert (json.loads(out)["generation"], json.loads(out)["module"], err) == (2, "Tiny/1.0", "")
    assert run(["rollback", "Tiny", "--to", "1"]) == 0
    assert json.loads(Path(installation.root, RECEIPT).read_text())["generation"] == 1


@pytest.mark.usefixtures("installation")
def test_uninstall(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    install(layout, "b", OTHER)
    place = layout.user_software(OTHER)
    write(place / "mine", "x")
    assert run(["uninstall", "Tiny", "Other"]) == 0
    said = [
        [
            f"== {name}: shells that have it loaded keep using it but cannot unload it: start a new one",
            f"== {name}: uninstalled; {kept_for(name)}",
        ]
        for name in ("Tiny/1.0", "Other/2.0")
    ]
    lines = capfd.readouterr().err.splitlines()
    stays = f"== Other/2.0: your own files stay in {place}"
    assert [line for line in lines if "your own files" not in line] == said[0] + said[1]
    assert lines[-1] == stays


def test_gc(layout: Layout, installation: Installation, capfd: pytest.CaptureFixture[str]) -> None:
    old, third = install(layout, "b"), install(layout, "c")
    users = sorted(((old.required_image.path, "Tiny/1.0 generation 2"), (third.required_image.path, "Tiny/1.0")))
    used = [text for user in users for text in user]
    second, stored = layout.generation(MODULE, 2), installation.required_image.path
    words = ["gc", "--ignore-jobs", "--days", "0"]
    assert run(words) == 0
    size = f"{installation.required_image.size / 1000:.1f} kB"
    out, err = capfd.readouterr()
    own = "".join(line for line in out.splitlines(keepends=True) if "  /tmp/sifmod-" not in line)
    assert (own, err) == (
        f"remove  Tiny/1.0 generation 1  {installation.root}\nkeep    Tiny/1.0 generation 2  {second}  (`sifmod "
        f"rollback` would restore it)\nremove  image {size}  {stored}\nkeep    image {size}  {used[0]}  (used by "
        f"{used[1]})\nkeep    image {size}  {used[2]}  (used by {used[3]})\n",
        "== --now also removes recently used files and --rollbacks also removes what `rollback` would restore\n"
        f"== {size} can be freed: run `sifmod gc --ignore-jobs --days 0 --yes`\n",
    )
    assert [(row["kind"], row["path"], row["keep"]) for row in answer(capfd, tuple(words))] == [
        ("generation", installation.root, None),
        ("generation", str(second), "`sifmod rollback` would restore it"),
        ("image", stored, None),
        ("image", used[0], f"used by {used[1]}"),
        ("image", used[2], f"used by {used[3]}"),
    ]
    assert Path(installation.root).exists()
    assert run([*words, "--yes"]) == 0
    assert capfd.readouterr().err.splitlines()[1:] == [
        f"== removed 1 generation, 1 image, 0 downloads, 0 layers: {size}"
    ]
    assert not Path(installation.root).exists()
    assert Path(third.root).exists()
    assert run(words) == 0
    assert capfd.readouterr().err.splitlines()[1:] == ["== nothing large can be freed"]
    for days in ("-1", "nan"):
        assert run(["gc", "--days", days]) == 2
        assert f"expected a number such as 14 or 2.5, got {days!r}" in capfd.readouterr().err


def test_gc_says_where_jobs_are_not_known(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    install(layout, "a")
    squeue = write(tmp_path / "bin/squeue", "#!/bin/sh\nexit 1\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{squeue.parent}:/usr/bin:/bin")
    hint = "; if you know that no job uses these files, add --ignore-jobs\n"
    assert run(["gc", "--days", "0"]) == 0
    said = capfd.readouterr().err
    assert hint in said
    assert "also removes" not in said  # which no option would
    assert run(["gc", "--days", "0", "--ignore-jobs"]) == 0
    assert hint not in capfd.readouterr().err


def test_config_of_what_is_not_set(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--site", "generic"]) == 0
    rows = {line.split()[0]: line for line in capfd.readouterr().out.splitlines()}
    for key, said in {
        "umask": "(not set: yours)",
        "group": "(not set: yours)",
        "memory": "(not set: a quarter of the memory of the machine or control group)",
        "processors": "(not set: all available, at most 8)",
        "mirrors": "(not set)",
    }.items():
        assert rows[key].endswith(f"  {said}")
    assert not [key for key in rows if key.startswith("detect")]
    assert "accelerators" not in rows
    assert rows["accelerators.rocm"].split()[1:] == ["=", "rocm", "(default)"]


def test_directories_of_options_are_recorded_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("robot_paths", "image_dirs"):
        assert option_of("install", name).in_full("a/../b::/c") == f"{tmp_path}/b:/c"
    assert option_of("install", "prefix").in_full("a/../b:c") == f"{tmp_path}/b:c"  # one directory, as it is taken


def test_other_options_are_recorded_as_they_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.sif").touch()
    for name, text, expected in (
        ("site", "lumi-g", "lumi-g"),
        ("site", "x.yaml", f"{tmp_path}/x.yaml"),
        ("site", "a/x", f"{tmp_path}/a/x"),
        ("source", "x.sif", f"{tmp_path}/x.sif"),
        ("source", "y.sif", "y.sif"),
        ("source", "docker://x/y:1", "docker://x/y:1"),
        ("runtime", "x.sif", "x.sif"),
        ("variants", "a/b.yaml", "a/b.yaml"),
    ):
        assert option_of("install", name).in_full(text) == expected


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("sites/x.yaml", "version: '1'\n", "site"),
        ("quirks/x.yaml", "", "quirk"),
        ("x.yaml", "version: '1'\ndetect: {paths: [/x]}\n", None),
        ("x.yaml", "match: {name: A}\n", "quirk"),
        ("x.yaml", "detect: {paths: [/x]}\n", "site"),
        ("x.yaml", "umask: '022'\n", "site"),
        ("x.yaml", "image_dirs+: [/x]\n", "site"),
        ("x.yaml", "binds: {a: [/x]}\n", "site"),
        ("x.yaml", "binds: [/x]\n", None),
        *(("x.yaml", f"binds: {{a: [/x]}}\n{key}: x\n", None) for key in ("image", "extends", "preset", "variants")),
        ("x.yaml", "name: x\n", None),
        ("x.yaml", "[\n", None),
    ],
)
def test_what_kind_of_file_it_is(
    path: str, text: str, kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the directory, which a bare name has too, else by its keys."""
    file = write(tmp_path / "here" / path, text)
    assert settings_kind(file) == kind
    monkeypatch.chdir(file.parent)
    assert settings_kind(Path(file.name)) == kind


def test_a_quirk_for_a_site_that_nobody_knows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    head = "description: d\nreason: r\nlink: l\nenv: {B: '1'}\n"
    quirk = write(tmp_path / "quirks/x.yaml", f"{head}match: {{site: [lumi-g, lumi-q]}}\n")
    assert run(["check", str(quirk)]) == 0
    first, second = capfd.readouterr().out.splitlines()
    assert first.startswith(f"{quirk}:5:")
    assert "match.site: no site here is named lumi-q; did you mean lumi-g" in first
    assert first.endswith(" (warning)")
    assert second == f"{quirk}: ok: a quirk"
    quirk.write_text(f"{head}match: {{name: A}}\n")
    assert run(["check", str(quirk)]) == 0
    assert capfd.readouterr().out == f"{quirk}: ok: a quirk\n"


def test_the_commands_that_load_a_module(layout: Layout, installation: Installation) -> None:
    modules = str(layout.modules)
    load = "module load Tiny/1.0"
    assert commands_to_load(installation, {}) == (f"module use {modules}", load)
    assert commands_to_load(installation, {"MODULEPATH": f"/x:{modules}"}) == (load,)
    assert commands_to_load(installation, {"MODULEPATH": f"{modules}x"}) == (f"module use {modules}", load)


@pytest.mark.parametrize("folder", [".cache/lmod", ".lmod.d/.cache"])
def test_a_cache_of_lmod_hides_what_is_newer(
    folder: str, layout: Layout, installation: Installation, tmp_path: Path
) -> None:
    environ = {"LMOD_VERSION": "8", "HOME": str(tmp_path / "a home")}
    cache = write(tmp_path / "a home" / folder / "spiderT.x86_64.lua", f'"{layout.modules}"\n')
    stub, now = layout.module_file(MODULE, "lua"), time.time()
    for written, published, hides in (
        (-600, -60, True),
        (-60, -600, False),
        (-60, -60, False),
        (-2 * 86400, -60, False),
    ):
        os.utime(cache, (now + written,) * 2)
        os.utime(stub, (now + published,) * 2)
        assert (stale_spider_cache(installation, environ) is not None) == hides
    os.utime(cache, (now - 600,) * 2)
    assert stale_spider_cache(installation, environ) == (
        "Lmod's cache of your modules is older than this module: until it is refreshed, `module avail` needs "
        f"--ignore_cache (or remove it: rm '{cache}')"
    )
    assert stale_spider_cache(installation, {"HOME": environ["HOME"]}) is None
    cache.write_text("elsewhere")
    os.utime(cache, (now - 600,) * 2)
    assert stale_spider_cache(installation, environ) is None
    stub.unlink()
    assert stale_spider_cache(installation, environ) is None


def test_figures_of_each_kind() -> None:
    assert figures(0, 10, None) == "  0 %, 0 B of 10 B"
    assert figures(5, None, None) == "5 B"
    assert figures(0, None, 3.9) == "3 B/s"
    assert figures(10, 100, 1.0) == " 10 %, 10 B of 100 B, 1 B/s, 1:30 left"
    assert figures(10, 100, 0.9) == " 10 %, 10 B of 100 B, 0 B/s"


def test_lines_of_a_log_that_starts_over(capfd: pytest.CaptureFixture[str]) -> None:
    """No speed where less is there than before, or no time has passed; a tenth is a tenth of what there is."""
    now = [0.0]
    show = log_lines(interval=60, clock=lambda: now[0])
    show("x", 0, 1000)
    show("x", 99, 1000)
    show("x", 100, 1000)
    now[0] = 59.9
    show("x", 199, 1000)
    now[0] = 60.0
    show("x", 50, 1000)
    now[0] = 61.0
    show("x", 500, 1000)
    assert capfd.readouterr().err.splitlines() == [
        "== x: 0 % of 1.0 kB",
        "== x: 10 % of 1.0 kB",
        "== x: 5 % of 1.0 kB",
        "== x: 50 % of 1.0 kB, 450 B/s",
    ]


def test_gc_of_all_that_can_go_now(
    layout: Layout, installation: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    live = install(layout, "b")
    words = ["gc", "--ignore-jobs", "--yes"]
    assert run([*words, "--now"]) == 0
    assert Path(installation.root).exists()
    assert run([*words, "--now", "--rollbacks"]) == 0
    assert capfd.readouterr().err.endswith(
        f"\n== removed 1 generation, 1 image, 0 downloads, 0 layers: {installation.required_image.size / 1000:.1f} kB\n"
    )
    assert not Path(installation.root).exists()
    assert Path(live.root, live.required_image.filename).exists()
    assert run(["rollback", "Tiny"]) == 24


@pytest.mark.usefixtures("installation")
def test_uninstall_that_frees_its_space(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    """All that the module has, whatever its age; not what other modules use, or what the user has added."""
    second = install(layout, "b")
    other, old = install(layout, "b", OTHER), install(layout, "c", OTHER)
    added = write(Path(second.root) / "mine", "x")
    before = disk_state(Path(other.root), Path(old.root))
    assert run(["uninstall", "--purge", "--ignore-jobs", "Tiny"]) == 0
    assert capfd.readouterr().err.splitlines() == [
        "== Tiny/1.0: shells that have it loaded lose it: start a new one",
        "== Tiny/1.0: uninstalled",
        f"== Tiny/1.0: generation 2 stays in {second.root}: it holds files that sifmod did not write: mine",
        f"== {second.required_image.path} stays: used by Other/2.0 generation 1, Tiny/1.0 generation 2",
        f"== removed 1 generation, 1 image: {second.required_image.size / 1000:.1f} kB",
    ]
    assert added.read_text() == "x"
    assert disk_state(Path(other.root), Path(old.root)) == before
    assert Path(other.required_image.path).exists()
    added.unlink()
    assert run(["uninstall", "--purge", "--ignore-jobs", "Tiny", "Other"]) == 0
    assert not list(layout.images.glob("*"))
    assert not layout.software.exists()
