"""Every page of the documents, and the page of a catalogue of many installed modules, as a reader sees them.

    python -m tests.fuzz.pages [--modules 500] [--pictures DIR] [--only site|catalogue]

The site is built, the modules are installed into a prefix of their own, and `sifmod stack catalogue` writes the page.
Chromium opens each at 400, 1 280 and 1 920 pixels, light and dark; the catalogue as it opens, after a search, with the
page of a name, and with six modules of each name unfolded. Prints what axe-core finds, what is wider than its page,
tables and code that scroll at 1 280, what the browser complains about, and a search that is slow; ends with 1 where
there is anything. `--pictures` keeps a screenshot of each. The modules have the names, descriptions and contents of the
shipped easyconfigs.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent))

import yaml

from support.chromium import Page, browser
from support.command import ROOT, SIFMOD, run
from support.config import write
from support.inside import programs, sif

WIDTHS = (400, 1280, 1920)
IMAGES = 20
SLOW = 200  # ms of a processor
SITE = """\
name: hilltop
description: Hilltop
accelerator: none
catalogue:
  text: "Modules for everybody on Hilltop.\\n\\nAsk us for what is missing."
  contact: help@hilltop.example
  home: https://hilltop.example
"""
VIEWS = {"top": "", "search": "#q=torch", "name": "#PyTorch/", "unfolded": ""}
# six of a name: axe-core takes an hour for all of them
UNFOLD = """document.querySelectorAll('section').forEach(one =>
        [...one.querySelectorAll('article')].slice(6).forEach(one => one.remove()));
    document.querySelectorAll('main details').forEach(one => one.open = true)"""
SETTLE = "new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))"
SCROLLING = """[...document.querySelectorAll('.md-typeset__scrollwrap, pre > code')]
    .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.trim().slice(0, 60))"""


def main(arguments: Sequence[str]) -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=500, metavar="N", help="installed modules (500)")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="keep a screenshot of each view")
    parser.add_argument("--only", choices=("site", "catalogue"))
    given = parser.parse_args(arguments)
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="sifmod-pages-") as directory:
        here, found = Path(directory), 0
        with browser(here / "profile") as page:
            if given.only != "catalogue":
                found += len(look_at_site(page, built_site(here / "site"), given.pictures))
            if given.only != "site":
                found += len(look_at_catalogue(page, made_catalogue(here, given.modules), given.pictures))
    print(f"{found} findings")
    return 1 if found else 0


def built_site(to: Path) -> Path:
    """The site, built strictly."""
    words = (sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(ROOT / "mkdocs.yml"), "-d", str(to))
    subprocess.run(words, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return to


def names_of(site: Path) -> list[str]:
    """The files of its pages, sorted."""
    return sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if path.name != "404.html")


def look_at_site(page: Page, site: Path, pictures: Path | None) -> list[str]:
    """What is wrong with its pages; each finding is printed."""
    names = names_of(site)
    found = list[str]()
    for width, dark in themes(page):
        for name in names:
            page.open(site / name)
            more = wrong(page, width)
            more += [f"scrolls: {text}" for text in page.run(SCROLLING)] if width == 1280 else []
            found += report(f"{name} {width} {dark}", more)
            keep(page, pictures, f"site-{name.removesuffix('.html').replace('/', '-')}-{width}-{dark}")
    print(f"site: {len(names)} pages, each at {len(WIDTHS)} widths in both themes: {len(found)} findings", flush=True)
    return found


def made_catalogue(here: Path, modules: int) -> Path:
    """The page of a catalogue of so many installed modules."""
    site = write(here / "hilltop.yaml", SITE)
    environment = {
        **os.environ,
        "HOME": str(here),
        "SIFMOD_PREFIX": str(here / "prefix"),
        "SIFMOD_SITE": str(site),
        "SIFMOD_LINK": "reference",
    }
    images = [image(here / f"image{number}.sif", number) for number in range(IMAGES)]
    names = list[str]()
    for number, (easyconfig, made) in enumerate(zip(easyconfigs(modules), cycle(images), strict=False)):
        path = write(
            here / f"easyconfigs/{number}.yaml", yaml.safe_dump({**easyconfig, "image": {"sources": [str(made)]}})
        )
        label = ("climate", "imaging", "language")[number % 3]
        names.append(f"{{easyconfig: {path}, labels: {{team: {label}}}}}")
    write(here / "stack.yaml", "name: hilltop\neasyconfigs:\n" + "".join(f"- {name}\n" for name in names))
    sifmod = (*SIFMOD, "stack")
    apply = (*sifmod, "apply", here / "stack.yaml", "--skip-sanity-check", "-q")
    run(apply, env=environment).ok()
    for number, easyconfig in enumerate(easyconfigs(modules)):
        decide(environment, number, f"{easyconfig['name']}/{easyconfig['version']}{easyconfig['versionsuffix']}")
    started = time.monotonic()
    run((*sifmod, "catalogue", "-o", here / "catalogue"), env=environment).ok()
    page = here / "catalogue/index.html"
    print(f"catalogue: {time.monotonic() - started:.1f} s, {page.stat().st_size / 1e6:.1f} MB", flush=True)
    return page


def decide(environment: Mapping[str, str], number: int, module: str) -> None:
    """What staff decide about some of the modules."""
    if number % 50 == 7:
        run(
            (*SIFMOD, "deprecate", module, "--message", "Use a newer one.", "--until", "2099-01-01"), env=environment
        ).ok()
    elif number % 50 == 8:
        run((*SIFMOD, "retire", module, "--message", "It has a fault."), env=environment).ok()
    elif number % 50 == 9:
        run((*SIFMOD, "default", module), env=environment).ok()


def easyconfigs(modules: int) -> Iterator[dict[str, object]]:
    """As many as are wanted: the shipped ones, then releases of them that are not shipped."""
    index = json.loads((ROOT / "easyconfigs/index.json").read_text("utf-8"))
    offers = [one for file in index["easyconfigs"].values() for one in file["offers"]]
    shipped = {f"{one['name']} {one['versionsuffix']}": one for one in offers}
    releases = ((number, one) for number in count() for one in shipped.values())
    for number, one in islice(releases, modules):
        version = f"{one['version']}.{number}" if number else one["version"]
        keys = {
            key: one[key] for key in ("name", "versionsuffix", "accelerator", "description", "contents") if one[key]
        }
        yield {
            **keys,
            "version": version,
            "versionsuffix": one["versionsuffix"],
            "homepage": f"https://hilltop.example/{one['name']}",
            "license": "BSD-3-Clause",
            "wrappers": ["python", "sh"],
        }


def image(path: Path, number: int) -> Path:
    """A SIF with a Python of many packages, as images of frameworks have."""
    packages = {f"package{each}": f"{number}.{each}" for each in range(200)} | {"numpy": f"2.{number}"}
    packages |= {} if number % 3 else {"torch": f"2.{number}"}
    place = "usr/lib/python3.11/site-packages"
    metadata = {f"{place}/{name}-{version}.dist-info/METADATA": "" for name, version in packages.items()}
    return sif(path, {**programs("usr/bin/python3.11", "usr/bin/python", "bin/sh"), **metadata})


def look_at_catalogue(page: Page, path: Path, pictures: Path | None) -> list[str]:
    """What is wrong with its page; each finding is printed."""
    found = list[str]()
    for width, dark in themes(page):
        for view, hash_ in VIEWS.items():
            page.open(path, hash_)
            if view == "unfolded":
                page.run(UNFOLD)
            page.run(SETTLE)
            found += report(f"catalogue {view} {width} {dark}", wrong(page, width))
            keep(page, pictures, f"catalogue-{view}-{width}-{dark}")
        found += report(f"catalogue search {width} {dark}", slow_keys(page, path))
    print(
        f"catalogue: {len(VIEWS)} views, each at {len(WIDTHS)} widths in both themes: {len(found)} findings", flush=True
    )
    return found


def slow_keys(page: Page, path: Path) -> list[str]:
    """Letters of a search that take more of the processor's time than a reader notices."""
    page.open(path)
    page.call("Performance.enable", timeDomain="threadTicks")
    spent = list[float]()
    for word in ("pytorch", "numpy 2.1"):
        for end in range(1, len(word) + 1):
            before = used(page)
            page.run(f"q.value = {word[:end]!r}; q.dispatchEvent(new Event('input', {{bubbles: true}}))")
            page.run(SETTLE)
            spent.append(1000 * (used(page) - before))
    print(f"a letter of a search: {max(spent):.0f} ms of a processor at most", flush=True)
    return [f"a letter of a search takes {max(spent):.0f} ms"] if max(spent) > SLOW else []


def used(page: Page) -> float:
    """The seconds of a processor that the page has used."""
    metrics = {one["name"]: one["value"] for one in page.call("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def themes(page: Page) -> Iterator[tuple[int, str]]:
    """Each width in each theme; the page is set to it."""
    for width in WIDTHS:
        for dark in ("light", "dark"):
            page.look(width=width, dark=dark == "dark")
            yield width, dark


def wrong(page: Page, width: int) -> list[str]:
    """What is wrong with the page that is open."""
    wide, complaints = page.run("document.documentElement.scrollWidth"), [*page.complaints]
    faults = page.faults()
    page.complaints.clear()  # also those about the style sheets, which axe-core asks for
    return [*faults, *([f"{wide} pixels wide"] if wide > width else []), *complaints]


def report(where: str, found: list[str]) -> list[str]:
    for one in found:
        print(f"{where}: {one}", flush=True)
    return found


def keep(page: Page, pictures: Path | None, name: str) -> None:
    if pictures:
        page.picture(pictures / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
