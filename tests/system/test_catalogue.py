"""`sifmod stack catalogue`: of modules that are really installed; and its page in a real browser."""

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.actions.catalogue.catalogue import write_catalogue
from sifmod.actions.catalogue.entry import AboutSite
from sifmod.actions.catalogue.gather import installed
from sifmod.actions.reporter import Reporter
from sifmod.actions.test.test import record_test
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.life import today
from sifmod.tree.log import read_log
from support.answer import answer, held
from support.catalogues import ALL, NOT_INSTALLED, PLAIN, catalogue
from support.chromium import Page, browser
from support.config import Configuration, write
from support.disk_state import disk_state
from support.identity import call_as
from support.images import Images
from support.inside import programs, sif
from support.tree import install
from support.user import OrdinaryUser

LOGO = (
    "data:image/svg+xml;base64,"
    + base64.b64encode(b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"/>').decode()
)
EASYCONFIG = """
name: Tiny
version: '{version}'
description: A tiny one
license: MIT
accelerator: none
contents: {{tiny: '{version}'}}
image: {{sources: ['{image}']}}
wrappers: [sh]
"""


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.chdir(tmp_path)
    for version in ("1.0", "2.0"):
        write(tmp_path / f"Tiny-{version}.yaml", EASYCONFIG.format(version=version, image=images.tiny_sif))
    assert run(["install", "-q", "--skip-sanity-check", "--link", "reference", "Tiny-1.0.yaml"]) == 0
    return tmp_path


def test_of_what_is_installed_and_of_what_can_be(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (made,) = answer(capfd, ("list",))
    (one,) = answer(capfd, ("stack", "catalogue"))["entries"]
    modules = f"module use {here}/prefix/modules"
    expected: dict[str, object] = {
        "module": "Tiny/1.0",
        "status": "current",
        "license": "MIT",
        "contents": {"tiny": "1.0"},
        "add": None,
    }
    expected |= {"load": [modules, "module load Tiny/1.0"], "sha256": made["installation"]["image"]["sha256"]}
    assert expected.items() <= one.items()
    script = answer(capfd, ("jobscript", "Tiny"))["text"]
    assert (one["job_script"], one["last_test"]) == (script, None)
    assert run(["test", "Tiny"]) == 0
    capfd.readouterr()
    two, one = answer(capfd, ("stack", "catalogue", "Tiny-1.0.yaml", "Tiny-2.0.yaml", "-o", "out"))["entries"]
    assert one["last_test"]["passed"]
    assert (two["status"], two["installed_at"], two["load"][0]) == ("not installed", None, modules)
    assert two["install"] == f"sifmod install {here}/Tiny-2.0.yaml"
    assert two["changes"]["differences"] == [{"name": "tiny", "was": "1.0", "now": "2.0"}]
    assert json.loads((here / "out/catalogue.json").read_text())["entries"] == [two, one]
    listed = answer(capfd, ("stack", "catalogue", "--all", "--robot-paths", str(here)))["entries"]
    assert {"Tiny/1.0": "current", "Tiny/2.0": "not installed", "PyTorch/2.2.0-cpu": "not installed"}.items() <= {
        found["module"]: found["status"] for found in listed
    }.items()


def test_of_a_stack(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its modules alone, installed or not, with the labels that it gives them; not those that it hides."""
    for name in ("Other", "Hidden"):
        write(here / f"{name}.yaml", (here / "Tiny-2.0.yaml").read_text().replace("Tiny", name))
    assert run(["install", "-q", "--skip-sanity-check", "--link", "reference", "Tiny-2.0.yaml"]) == 0
    members = "{easyconfig: Tiny-1.0.yaml, labels: {team: ai}}, Other.yaml, {easyconfig: Hidden.yaml, hidden: true}"
    write(here / "stack.yaml", f"name: ours\neasyconfigs: [{members}, None.yaml]\n")
    capfd.readouterr()
    assert run(["stack", "catalogue", "stack.yaml", "--json"]) == 0
    out, err = capfd.readouterr()
    found = {one["module"]: (one["status"], one["labels"]) for one in held("stack catalogue", out)["entries"]}
    assert found == {"Other/2.0": ("not installed", {}), "Tiny/1.0": ("current", {"team": "ai"})}
    assert json.loads(out)["title"] == "Modules of ours"
    assert "warning: None.yaml is left out: " in err


def test_a_module_of_an_earlier_sifmod_and_a_damaged_one(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = here / "prefix/software/Tiny/1.0"
    (root / "share").chmod(0o755)
    about = json.loads((root / "share/job.json").read_text())["about"]
    for text in (None, "{", '{"about": {"contents": 1}}', json.dumps({"about": about}), "[]"):
        (root / "share/job.json").unlink(missing_ok=True)
        if text:
            (root / "share/job.json").write_text(text)
        (one,) = answer(
            capfd,
            (
                "stack",
                "catalogue",
            ),
        )["entries"]
        assert (one["module"], one["description"], one["job_script"]) == ("Tiny/1.0", "", None)
    assert run(["install", "-q", "--module-only", "--installed"]) == 0
    capfd.readouterr()
    assert (
        answer(
            capfd,
            (
                "stack",
                "catalogue",
            ),
        )["entries"][0]["description"]
        == "A tiny one"
    )
    root.chmod(0o755)
    receipt = root / "receipt.json"
    fields = json.loads(receipt.read_text())
    fields["provenance"] |= {"version": "9" * 5000, "site": "\x1b</script>", "accelerator": "__proto__"}
    receipt.unlink()
    receipt.write_text(json.dumps(fields))
    history = here / "prefix/software/Tiny/.generations/1.0/history.json"
    history.write_text("[[2, 1e17, []]]")
    (one,) = answer(capfd, ("stack", "catalogue", "-o", "out"))["entries"]
    assert (one["version"], one["installed_at"], one["site"]) == ("1.0", None, "\x1b</script>")
    assert "\\x1b&lt;/script&gt;" in (here / "out/index.html").read_text()
    receipt.unlink()
    assert run(["stack", "catalogue", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["entries"] == []
    assert "Tiny/1.0 is left out: its receipt cannot be read" in err


@pytest.mark.parametrize(
    ("words", "code"),
    [(("bad.yaml", "-o", "out"), 5), ((), 2), (("--all", "Tiny-1.0.yaml", "-o", "out"), 2), (("-o", "mine"), 2)],
)
def test_what_cannot_be_written(
    here: Path, words: tuple[str, ...], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    write(here / "bad.yaml", "name: Bad\nversion: 1\n")
    write(here / "mine/index.html", "mine")
    before = disk_state(here)
    assert run(["stack", "catalogue", *words]) == code
    assert capfd.readouterr().out == ""
    assert disk_state(here) == before


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, Path]]:
    directory = tmp_path_factory.mktemp("catalogue")
    write_catalogue(catalogue("Modules of hilltop", ALL), directory)
    with browser(directory / "profile") as found:
        yield found, directory / "index.html"


def visible(page: Page) -> list[str]:
    """The modules that a reader sees: those in a folded list are not there."""
    summaries = "[...document.querySelectorAll('article > details > summary')]"
    found: list[str] = page.run(f"{summaries}.filter(one => one.checkVisibility()).map(one => one.id)")
    return found


def matching(page: Page) -> list[str]:
    """The modules that fit the search, folded or not."""
    summaries = "[...document.querySelectorAll('article:not([hidden]) > details > summary')]"
    found: list[str] = page.run(f"{summaries}.map(one => one.id)")
    return found


def test_found_opened_and_copied_by_keyboard(page: tuple[Page, Path]) -> None:
    browser, file = page
    browser.look(width=1280)
    browser.open(file)
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    assert visible(browser) == ["PyTorch/2.4.0-cuda-12.4", "vLLM/0.11.2-rocm"]
    browser.press("/", *"deepspeed")
    assert visible(browser) == ["PyTorch/2.4.0-cuda-12.4"]
    assert browser.run("[count.textContent, location.hash]") == ["1 of 4 modules", "#q=deepspeed"]
    assert browser.run("document.querySelector('article:not([hidden]) .has').textContent") == "deepspeed 0.14.2"
    browser.press("ArrowDown", "Enter")
    while browser.run("document.activeElement.textContent") != "Copy" or not browser.run(
        "!!document.activeElement.closest('.job')"
    ):
        browser.press("Tab")
        browser.run(
            "document.activeElement.matches('.job > summary') && (document.activeElement.parentNode.open = true)"
        )
    browser.press("Enter")
    deadline = time.monotonic() + 5
    while not browser.run("count.textContent").startswith("Copied") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert browser.run("count.textContent") == "Copied: the job script"
    assert browser.run("navigator.clipboard.readText()") == PLAIN.job_script
    browser.press("Escape")
    assert browser.run("[document.activeElement.tagName, document.activeElement.parentNode.open]") == ["SUMMARY", False]
    browser.press("ArrowUp", "Escape")
    assert browser.run("[document.activeElement.id, q.value, location.hash]") == ["q", "", ""]
    assert len(matching(browser)) == 4
    browser.press("ArrowDown", "ArrowDown", "ArrowDown")  # what is folded is passed over
    assert browser.run("document.activeElement.id") == "vLLM/0.11.2-rocm"


@pytest.mark.parametrize(
    ("hash_", "expected"),
    [
        ("#q=torch+2.4", ["PyTorch/2.4.0-cuda-12.4"]),
        ("#q=pytorch+2", ["PyTorch/2.4.0-cuda-12.4", "PyTorch/2.2.0-cuda-12.1"]),
        ("#q=numpy%3D%3D1.26.0", ["PyTorch/2.2.0-cuda-12.1"]),
        ("#q=amd", ["vLLM/0.11.2-rocm"]),
        ("#q=cuda+2.2", ["PyTorch/2.2.0-cuda-12.1"]),  # the module's version, where it is not CUDA's
        ("#accelerator=cuda&status=deprecated", ["PyTorch/2.2.0-cuda-12.1"]),
        ("#status=default&site=hilltop", ["PyTorch/2.4.0-cuda-12.4"]),
        ("#q=llm", ["vLLM/0.11.2-rocm"]),
        ("#q=peed", []),
        ("#q=2.4", ["PyTorch/2.4.0-cuda-12.4"]),
        ("#label=team:+vision", ["PyTorch/2.2.0-cuda-12.1"]),
        ("#q=%5B(", []),
        ("#accelerator=tpu&q=vllm", ["vLLM/0.11.2-rocm"]),
    ],
)
def test_a_link_brings_back_a_search(page: tuple[Page, Path], hash_: str, expected: list[str]) -> None:
    browser, file = page
    browser.open(file)
    browser.run(f"location.hash = {json.dumps(hash_)}; new Promise(done => setTimeout(done, 20))")
    assert matching(browser) == expected
    assert set(visible(browser)) <= set(expected)
    assert bool(visible(browser)) == bool(expected)  # a list is unfolded where all that was found is in it


def test_a_page_for_a_name(page: tuple[Page, Path]) -> None:
    """It has the old ones unfolded; a search leaves it, and the address holds it."""
    browser, file = page
    browser.look(width=1280)
    browser.open(file, "#PyTorch/")
    assert visible(browser) == ["PyTorch/2.4.0-cuda-12.4", "PyTorch/2.2.0-cuda-12.1"]
    assert browser.run("[document.title, scrollY]") == ["PyTorch · Modules of hilltop", 0]
    browser.run("document.querySelector('#back a').click(); new Promise(done => setTimeout(done, 20))")
    assert visible(browser) == ["PyTorch/2.4.0-cuda-12.4", "vLLM/0.11.2-rocm"]
    assert browser.run("document.title") == "Modules of hilltop"
    browser.run("document.querySelector('h2 a').click(); new Promise(done => setTimeout(done, 20))")
    browser.press("/", *"vllm")
    assert matching(browser) == ["vLLM/0.11.2-rocm"]


FIVE_HUNDRED = tuple(
    replace(
        PLAIN if number % 2 else NOT_INSTALLED,
        module=ModuleName(f"Program{number % 100}", f"{number // 100}.{number % 7}-cuda-12.{number}"),
        version=f"{number // 100}.{number % 7}",
        packages=tuple((name, "1.0") for name in ("numpy", *(f"package{each}" for each in range(number % 9, 40))))
        if number % 2
        else (),
        default=False,
    )
    for number in range(499)
)
NUMPY = replace(PLAIN, module=ModuleName("TinyNumPy", "1.0"), version="1.0", packages=(), default=False)


def test_five_hundred_modules(tmp_path: Path) -> None:
    """A name that has the word comes before packages that have it; nothing is cut at any width.

    axe-core takes minutes for so many modules; it sees the same page with four.
    """
    site = AboutSite("Welcome.", "help@hilltop.example", "https://hilltop.example", LOGO)
    write_catalogue(catalogue("Modules of hilltop", (*FIVE_HUNDRED, NUMPY), site), tmp_path)
    with browser(tmp_path / "profile") as page:
        for width in (400, 1280, 1920):
            for dark in (False, True):
                page.look(width=width, dark=dark)
                page.open(tmp_path / "index.html")
                assert page.run("count.textContent") == "500 modules"
                assert page.run("document.documentElement.scrollWidth") <= width
                assert page.run("document.querySelector('.logo img').naturalWidth") == 8
                page.press("/", *"numpy")
                assert visible(page)[0] == "TinyNumPy/1.0"
                assert page.run("count.textContent") == "250 of 500 modules"
        started = time.monotonic()
        page.open(tmp_path / "index.html", "#Program7/")
        assert len(visible(page)) == 5
        assert time.monotonic() - started < 20
        assert page.complaints == []


def test_on_a_telephone_in_the_dark_and_without_a_script(page: tuple[Page, Path]) -> None:
    browser, file = page
    for width, dark in ((1280, False), (390, True), (1920, True), (400, False)):
        browser.look(width=width, dark=dark)
        browser.open(file, "#PyTorch/2.4.0-cuda-12.4")
        browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert browser.run("document.activeElement.id") == "PyTorch/2.4.0-cuda-12.4"
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.faults() == []
    assert browser.run("document.title") == "Modules of hilltop"
    assert {url.partition(":")[0] for url in browser.asked} == {"file"}
    assert browser.complaints == []
    browser.look(width=1280, script=False)
    browser.open(file)
    assert len(matching(browser)) == 4
    assert len(visible(browser)) == 2
    assert not browser.run("document.getElementById('filters').checkVisibility()")


def test_packages_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One image of two modules is told once; one that cannot be read is said."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.chdir(tmp_path)
    packages = {"numpy": "1.26.4", "deepspeed": "0.14.2"}
    place = "usr/lib/python3.11/site-packages"
    metadata = {f"{place}/{name}-{version}.dist-info/METADATA": "" for name, version in packages.items()}
    image = sif(tmp_path / "image.sif", {**programs("usr/bin/python3.11", "bin/sh"), **metadata})
    for version in ("1.0", "2.0"):
        file = write(tmp_path / f"Tiny-{version}.yaml", EASYCONFIG.format(version=version, image=image))
        assert run(["install", "-q", "--skip-sanity-check", "--link", "reference", str(file)]) == 0
    capfd.readouterr()
    (inventory,) = answer(capfd, ("stack", "catalogue", "-o", "out"))["inventories"]
    assert {one["name"]: one["version"] for one in inventory["all_packages"]} == packages
    assert (tmp_path / "out/index.html").read_text().count("deepspeed 0.14.2") == 1
    assert "deepspeed 0.14.2" in (tmp_path / "out/pages/Tiny/index.md").read_text()
    image.unlink()
    assert run(["stack", "catalogue", "--json"]) == 0
    out, err = capfd.readouterr()
    assert (len(json.loads(out)["entries"]), json.loads(out)["inventories"]) == (2, [])
    assert err.count("the packages in the image of Tiny/1.0 are not known: ") == 1


def test_what_staff_have_decided(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Installed modules that are hidden are left out; one that is retired is told with its successor."""
    for version in ("2.0", "3.0", "4.0"):
        text = (here / "Tiny-1.0.yaml").read_text().replace("1.0", version)
        file = write(here / f"Tiny-{version}.yaml", text)
        assert run(["install", "-q", "--skip-sanity-check", "--link", "reference", str(file)]) == 0
    for words in (
        ("default", "Tiny/3.0"),
        ("hide", "Tiny/4.0"),
        ("deprecate", "Tiny/2.0", "--since", "2026-01-01", "--until", "2099-03-31", "--message", "Use 3.0."),
        ("retire", "Tiny/1.0", "--successor", "Tiny/3.0"),
    ):
        assert run([*words]) == 0
    capfd.readouterr()
    found = answer(
        capfd,
        (
            "stack",
            "catalogue",
        ),
    )["entries"]
    assert [(one["module"], one["status"], one["default"], one["message"]) for one in found] == [
        *(("Tiny/3.0", "current", True, ""), ("Tiny/2.0", "deprecated", False, "Use 3.0.")),
        ("Tiny/1.0", "retired", False, ""),
    ]
    assert (found[1]["until"], found[2]["successor"]) == ("2099-03-31", "Tiny/3.0")
    assert [bool(one["load"]) for one in found] == [True, True, False]
    assert (found[1]["since"], found[2]["since"]) == ("2026-01-01", str(today()))


def test_a_reader_of_the_tree_tests_and_leaves_nothing(
    shared_tmp: Path, ordinary_user: OrdinaryUser, capfd: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(shared_tmp / "prefix")
    installation, reporter = install(layout, "a"), Reporter(print, command="sifmod test Tiny")
    site = Configuration(shared_tmp).site(site="generic", prefix=str(layout.prefix)).site
    layout.prefix.chmod(0o555)
    before = disk_state(layout.prefix)
    call_as(ordinary_user.user, lambda: record_test(installation, site, reporter, passed=True))
    assert (disk_state(layout.prefix), capfd.readouterr().out) == (before, "")
    layout.prefix.chmod(0o755)
    record_test(installation, site, reporter, passed=False)
    (line,) = read_log(layout, installation.module).entries
    assert (line.done.what, line.done.generation, line.command) == ("test failed", 1, "sifmod test Tiny")
    record_test(replace(installation, generation=2), site, reporter, passed=True)  # of one that is not live
    (entry,) = installed(layout, print)
    assert entry.last_test == (line.time, line.host, False)


def test_a_test_of_another_trees_module_is_logged_there(shared_tmp: Path) -> None:
    """Under that tree's lock and modes: the run made a lock in the user's own tree, which it does not concern."""
    layout = Layout(shared_tmp / "theirs")
    installation = install(layout, "a")
    facts = Configuration(shared_tmp).site(site="generic", prefix=f"{shared_tmp}/mine").site
    site = replace(facts, sharing="group", group="no-such-group", umask=0o027)
    record_test(installation, site, Reporter(print), passed=True)
    assert not site.prefix.exists()
    assert [one.done.what for one in read_log(layout, installation.module).entries] == ["test passed"]
    assert layout.log(installation.module).stat().st_mode & 0o777 == 0o644


SITE = """
name: hilltop
accelerator: rocm
driver_runs: {{rocm: ['>=6.1']}}
catalogue: {{text: 'Ours.', contact: help@hilltop.example, home: 'https://hilltop.example', logo: '{logo}'}}
"""


def test_what_a_site_says_and_what_runs_there(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of what is not installed, only what this machine could run; what its driver does not run is marked."""
    logo = write(here / "logo.svg", '<svg xmlns="http://www.w3.org/2000/svg"/>')
    monkeypatch.setenv("SIFMOD_SITE", str(write(here / "hilltop.yaml", SITE.format(logo=logo))))
    text = (here / "Tiny-2.0.yaml").read_text()
    for version, accelerator in (("rocm-5.7", "rocm"), ("rocm-6.2", "rocm"), ("cuda-12", "cuda")):
        own = text.replace("'2.0'", f"'3.0'\nversionsuffix: -{version}", 1).replace("none", accelerator)
        write(here / f"Tiny-3.0-{version}.yaml", own)
    capfd.readouterr()
    found = answer(capfd, ("stack", "catalogue", "--all", "--robot-paths", str(here), "-o", "out"))
    tiny = [one["module"] for one in found["entries"] if one["module"].startswith("Tiny/")]
    assert tiny == ["Tiny/3.0-rocm-6.2", "Tiny/2.0", "Tiny/1.0"]
    assert not [one for one in found["entries"] if one["accelerator"] == "cuda"]
    assert (found["text"], found["contact"], found["home"]) == (
        "Ours.",
        "help@hilltop.example",
        "https://hilltop.example",
    )
    page = (here / "out/index.html").read_text()
    assert '<img src="data:image/svg+xml;base64,' in page
    assert run(["install", "-q", "--skip-sanity-check", "--link", "reference", "Tiny-3.0-rocm-5.7.yaml"]) == 0
    logo.unlink()
    capfd.readouterr()
    assert run(["stack", "catalogue", "-o", "out", "--json"]) == 0
    out, err = capfd.readouterr()
    assert f"warning: {logo}: No such file or directory; the catalogue has no logo" in err
    first = json.loads(out)["entries"][0]
    assert (first["module"], first["driver"]) == (
        "Tiny/3.0-rocm-5.7",
        "rocm 5.7, and the driver here runs rocm >=6.1",
    )
    page = (here / "out/index.html").read_text()
    assert "<img" not in page
    assert '<span class="badge driver">not on this driver</span>' in page
    assert "<title>Tiny/3.0-rocm-5.7: installed</title>" in (here / "out/feed.xml").read_text()
