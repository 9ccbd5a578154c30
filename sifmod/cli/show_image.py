"""`sifmod show` of an image."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sifmod.config.site import Site
    from sifmod.image.inspect.description import ImageDescription

WIDE = 300  # letters of one value; --json has all of it


def names_image(text: str) -> bool:
    """Whether `text` means an image, and not a module or an easyconfig.

    That is a text with a scheme, one that ends in .sif, the path of a file, and a bare name where a SIF is called so.
    """
    from sifmod.image.convert.sif.header import START, what_it_is

    if text.endswith((".yaml", ".yml")):
        return False
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text) or text.endswith(".sif"):
        return True
    path = Path(text)
    try:
        if not path.is_file():
            return False
        if "/" in text:
            return True
        with path.open("rb") as file:
            return not what_it_is(file.read(START))
    except (OSError, ValueError):
        return False


def show_image(text: str, site: "Site", arch: str | None, as_json: bool) -> None:
    """Print what the image that `text` names says about itself."""
    from sifmod.actions.show_image import describe
    from sifmod.cli.output import echo, print_json, print_rows

    described = describe(text, site, arch or site.arch)
    if as_json:
        print_json(_data(described))
        return
    print_rows([("image", _short(text)), *_rows(described)])
    for title, pairs in (("labels", described.config.labels), ("environment", described.config.environment)):
        if pairs:
            echo(f"\n{title}")
            print_rows([("", name, _short(value)) for name, value in pairs])
    for title, script in (("runscript", described.runscript), ("definition", described.definition)):
        if script.strip():
            echo(f"\n{title}")
            for line in script.strip("\n").splitlines():
                echo(f"  {line}".rstrip())


def _rows(described: "ImageDescription") -> "Iterator[tuple[str, str]]":
    from sifmod.system import size_text

    config, parts = described.config, described.parts
    of_a_sif = described.kind == "SIF"
    layers = "" if of_a_sif or not parts else f" in {len(parts)} {'layer' if len(parts) == 1 else 'layers'}"
    signed = [f"{signer} (not checked: sifmod verify --signature)" for signer in described.signers]
    rows = (
        ("kind", described.kind),
        ("architecture", described.arch),
        ("size", f"{size_text(described.size)} ({described.size} bytes){layers}"),
        ("SHA-256", described.sha256),
        ("manifest", described.manifest),
        ("index", described.index),
        ("created", described.created),
        ("made from", described.origin),
        ("compression", described.compression),
        *(("signed by", signer) for signer in (signed or (["nobody"] if of_a_sif else []))),
        ("entrypoint", _words(config.entrypoint)),
        ("command", _words(config.cmd)),
        ("directory", config.working_dir),
        ("user", config.user),
        *((("holds", f"{part.kind}, {size_text(part.size)}") for part in parts) if of_a_sif else ()),
        *(("note", note) for note in described.notes),
    )
    return ((name, _short(value)) for name, value in rows if value)


def _words(words: tuple[str, ...]) -> str:
    import shlex

    return shlex.join(words)


def _short(text: str) -> str:
    from sifmod.image.printable import line

    return line(text, WIDE)


def _data(described: "ImageDescription") -> dict[str, object]:
    config = described.config
    texts = ("sha256", "manifest", "index", "created", "compression", "runscript", "definition")
    data = {
        **asdict(described),
        **{name: getattr(described, name) or None for name in texts},
        "source": described.origin or None,
        "parts": [{**part._asdict(), "digest": part.digest or None} for part in described.parts],
        "config": {
            "labels": dict(config.labels),
            "environment": dict(config.environment),
            "entrypoint": config.entrypoint,
            "cmd": config.cmd,
            "working_dir": config.working_dir or None,
            "user": config.user or None,
        },
    }
    del data["origin"]
    return data
