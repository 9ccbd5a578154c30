"""The pages for users of other tools: their commands, on files of these tools and an image of a registry."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from sifmod.cli.main import run as run_sifmod
from support.command import ROOT, run
from support.config import write
from support.documents import BLOCK, blocks
from support.images import Images
from support.oci import Entry
from support.registry import Registry

DOCS = ROOT / "docs"
RECIPE = """\
docker: quay.io/biocontainers/samtools
url: https://biocontainers.pro/tools/samtools
maintainer: '@vsoch'
description: Tools for sequences
latest: {{'1.17': '{digest}'}}
tags: {{'1.17': '{digest}'}}
aliases: {{samtools: /usr/local/bin/samtools}}
"""


pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    return tmp_path


def type_all(page: str) -> None:
    lines = "".join(blocks(DOCS / page)).splitlines()
    assert len(lines) >= 3
    for line in lines:
        assert run_sifmod(shlex.split(line)[1:]) == 0, line


def test_from_singularity_hpc(
    here: Path, registry: Registry, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    program = Entry("usr/local/bin/samtools", b"#!/bin/sh\necho samtools 1.17\n", mode=0o755)
    layout = images.tiny_layout("samtools", entries=[program])
    pushed = registry.push_layout(layout, "biocontainers/samtools:1.17")
    digest = run(("skopeo", "inspect", "--tls-verify=false", "--format", "{{.Digest}}", pushed)).ok().stdout.strip()
    write(here / "registry/quay.io/biocontainers/samtools/container.yaml", RECIPE.format(digest=digest))
    settings = f"mirrors: {{quay.io: [{registry.address}]}}\n"
    write(here / "home/.config/sifmod/config.yaml", settings)
    type_all("from-shpc.md")
    assert "samtools/1.17: installed, generation 1" in capfd.readouterr().err
    assert run_sifmod(["show", "samtools", "--json"]) == 0
    assert digest in capfd.readouterr().out


def test_from_easybuild(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copy(ROOT / "tests" / "import" / "easybuild" / "Demo-1.2.3-rocm-6.0-test.eb", here)
    type_all("from-easybuild.md")
    assert "* [ ] Demo-1.2.3-rocm-6.0-test.yaml (module: Demo/1.2.3-rocm-6.0-test)" in capfd.readouterr().out


def test_from_conda(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The easyconfig is one; its image is not built, because there is no conda-forge here."""
    (text,) = (
        match["text"] for match in BLOCK.finditer((DOCS / "from-conda.md").read_text()) if match["language"] == "yaml"
    )
    write(here / "environment.yml", "dependencies: [r-base]\n")
    write(here / "Analysis-1.0.yaml", text)
    assert run_sifmod(["check", "Analysis-1.0.yaml"]) == 0, capfd.readouterr().err


@pytest.mark.parametrize("page", sorted(DOCS.glob("from-*.md")), ids=lambda page: page.name)
def test_a_page_says_what_to_type_and_how_to_import(page: Path) -> None:
    text = page.read_text("utf-8")
    headings = re.findall("(?m)^## (.*)$", text)
    assert {"What you type"} <= {*headings}
    assert any("differs" in heading for heading in headings)
    assert "mport" in text and "migrate" in text
