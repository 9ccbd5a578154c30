"""The how-to `docs/howto/publish.md`, run from its first line to its last."""

import json
import re
from functools import partial
from pathlib import Path

from support.command import BUILD, ROOT, run
from support.documents import BLOCK, blocks
from support.images import Images, made
from support.module_tool import ModuleTool
from support.oci import Entry, layer, write_layout
from support.registry import Registry
from support.runtime import RUNTIME

PAGE = ROOT / "docs" / "howto" / "publish.md"
COMPRESSION = "lz4" if RUNTIME.kind == "apptainer" else "gzip"  # what is fastest
PROFILE = """\
{initialise}
export PATH={path}
export APPTAINER_USERNS=1 SINGULARITY_USERNS=1
"""
SETTINGS = "accelerator: none\ncompression: {compression}\nmirrors: {{docker.io: [{mirror}]}}\n"


def layout_of(images: Images, version: str, suffix: str, patch: int = 1) -> Path:
    """An image with a Python that only says its version; of Python 3.11, which is tested, a real one."""
    names = [f"usr/local/bin/{name}" for name in ("python", "python3")]
    if version == "3.11" and not suffix:
        return made(BUILD / "publish-3.11.oci", partial(with_python, images, names))
    script = f"#!/bin/sh\necho Python {version}.{patch}\n".encode()
    return images.tiny_layout(f"publish{suffix}", entries=[Entry(name, script) for name in names])


def with_python(images: Images, names: list[str], to: Path) -> Path:
    """The layout with Debian and a Python 3.11, which is found in PATH."""
    blobs = images.python_layout / "blobs"
    index = json.loads((images.python_layout / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"].replace(":", "/")).read_text())
    layers = [(blobs / one["digest"].replace(":", "/")).read_bytes() for one in manifest["layers"]]
    links = [Entry(name, link="/opt/miniconda3/envs/pytorch/bin/python3") for name in names]
    return write_layout(to, [*layers, layer(links)])


def pushing(registry: Registry, layout: Path, tag: str) -> tuple[str, ...]:
    """The words that push an image with its layers as they are, which are not compressed."""
    to = f"docker://{registry.address}/library/python:{tag}"
    options = ("--dest-tls-verify=false", "--preserve-digests", "--quiet")
    return ("skopeo", "--insecure-policy", "copy", *options, f"oci:{layout}", to)


def test_ten_modules_are_published(lmod: ModuleTool, images: Images, registry: Registry, shared_tmp: Path) -> None:
    """A tag moves after the test in staging: what is published is what was tried."""
    for version in ("3.9", "3.10", "3.11", "3.12", "3.13"):
        for suffix in ("", "-slim"):
            run(pushing(registry, layout_of(images, version, suffix), f"{version}{suffix}")).ok()
    moved = " ".join(pushing(registry, layout_of(images, "3.13", "", 2), "3.13"))
    settings = lmod.home / ".config" / "sifmod" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(SETTINGS.format(mirror=registry.address, compression=COMPRESSION))
    path = f"{ROOT}/.venv/bin:{RUNTIME.search_path}:/usr/sbin:/sbin"
    (lmod.home / ".bash_profile").write_text(PROFILE.format(initialise=lmod.initialise, path=path))
    before, publish, after = "\n".join(blocks(PAGE)).partition("sifmod stack apply stack.yaml --locked")
    script = f"{before}{moved}\n{publish}{after}"
    environment = {**lmod.clean_environment(), "PATH": path}
    page = run(("bash", "--norc", "-e", "-c", script), env=environment, cwd=shared_tmp)
    assert page.code == 0, page.stdout + page.stderr
    said = [line.strip() for line in (page.stdout + page.stderr).splitlines()]
    shown = [match["text"] for match in BLOCK.finditer(PAGE.read_text()) if match["language"] == "text"]
    missing = [line for text in shown for line in text.splitlines() if line.strip() and not is_said(line, said)]
    assert not missing, page.stdout + page.stderr
    assert [line for line in said if "warning: " in line] == []
    assert "Python/3.9" in (shared_tmp / "python-stack" / "catalogue" / "index.html").read_text()


def is_said(line: str, said: list[str]) -> bool:
    """Whether a line of the page is one that a command printed; `…` stands for anything."""
    pattern = re.compile(".*".join(map(re.escape, line.strip().split("…"))))
    return any(pattern.fullmatch(one) for one in said)
