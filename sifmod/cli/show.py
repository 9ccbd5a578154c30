"""`sifmod show`."""

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from sifmod.actions.start import resolve, site_in_force, trees_for
from sifmod.cli.command import argument, command
from sifmod.cli.later import later
from sifmod.cli.output import echo, print_json, print_origins, print_rows
from sifmod.cli.shared_options import SiteOptions
from sifmod.errors import OptionError
from sifmod.result import Described, Variant
from sifmod.system import one_line, size_text
from sifmod.tree.layout import Layout

with later():
    from sifmod.actions import list as lists
    from sifmod.actions import start, subject
    from sifmod.actions.layer import places
    from sifmod.cli import life
    from sifmod.config import load_easyconfig, origin, word
    from sifmod.image import printable
    from sifmod.image.convert.sif import header
    from sifmod.image.inspect import description as images
    from sifmod.tree import history, receipt


class ShownEasyconfig(NamedTuple):
    """An easyconfig with all that is merged into it."""

    path: Path
    variant: Variant | None
    keys: Annotated[dict[str, Any], Described("keys of the easyconfig, as `sifmod schema` describes them")]


class ShowOptions(SiteOptions):
    name: str = argument("NAME|FILE|REFERENCE")
    origins: bool = False
    variant: str | None = None
    arch: str | None = None


@command(
    "show",
    ShowOptions,
    lambda: lists.Installed | ShownEasyconfig | list[origin.Origin] | images.ImageDescription,
)
def show(given: ShowOptions) -> None:
    """Show an installed module, an easyconfig with everything merged into it, or an image.

    An image is a SIF or a reference (docker://, oras://, oci:, oci-archive:, docker-archive:); its metadata is read
    without starting it and without fetching its layers.
    """
    name = given.name
    of_easyconfigs = "--origins" if given.origins else "--variant" if given.variant is not None else ""
    if not of_easyconfigs and names_image(name):
        show_image(given)
        return
    if not name.endswith((".yaml", ".yml")):
        modules = places.known(places.layouts(trees_for(given.prefix), os.environ))
        if of_easyconfigs:
            if "/" in name and not Path(name).exists() and any(str(module).startswith(name) for module in modules):
                module = resolve(name, modules)
                raise _of_a_module(start.installed(modules[module], module), of_easyconfigs)
        elif any(
            str(module).startswith(name) or f"{module.name}-{module.version}".startswith(name) for module in modules
        ):
            module = resolve(name, modules)
            found = start.installed(modules[module], module)
            life.say_life(found)
            if given.as_json:
                print_json(lists.installed_data(found))
            else:
                print_rows(_rows(modules[module], found))
            return
    _show_easyconfig(given)


def _of_a_module(found: "receipt.Installation", option: str) -> Exception:
    """The error for an easyconfig option with an installed module."""
    made = found.provenance
    variant = f" --variant {made.variant}" if made.variant else ""
    return OptionError(
        f"{option} needs an easyconfig, and {found.module} is an installed module",
        f"its easyconfig: `sifmod show {shlex.quote(made.easyconfig)}{variant} --origins`",
    )


def _rows(layout: "Layout", installation: "receipt.Installation") -> list[tuple[str, str]]:
    held = history.held_since(history.read_history(layout, installation.module))
    made, image = installation.provenance, installation.image
    of_image = [("loads", " ".join(installation.modules))]
    if image:
        of_image = [
            ("wrappers", " ".join(Path(f.path).name for f in installation.files if f.path.startswith("bin/"))),
            ("image", f"{image.source} ({image.arch}, {size_text(image.size)}, {image.link})"),
            ("sha256", image.sha256),
            ("stored in", image.path),
        ]
    return [
        ("module", str(installation.module)),
        ("generation", f"{installation.generation} ({installation.root})"),
        *([("rolled back", history.format_held(held))] if held else []),
        ("stable path", str(layout.switch(installation.module))),
        ("modulefiles", " ".join(str(layout.modules / stub.path) for stub in installation.stubs)),
        *of_image,
        *([("mpi", made.image.mpi.text)] if made.image.mpi and made.image.mpi.text else []),
        ("easyconfig", f"{made.easyconfig}{f', variant {made.variant}' if made.variant else ''}"),
        ("site", f"{made.site}, accelerator {made.accelerator}"),
        *([("your own files", str(layout.user_software(installation.module)))] if image else []),
        ("installed by", f"sifmod {made.sifmod}"),
    ]


def _show_easyconfig(given: ShowOptions) -> None:
    context = site_in_force(given.settings)
    loaded = load_easyconfig.load_easyconfig(
        word.resolve_easyconfig(given.name, context.site), context, given.variant, {}, os.environ
    )
    data = json.loads(loaded.easyconfig.model_dump_json(exclude_none=True, by_alias=True))
    if given.origins and given.as_json:
        print_json(loaded.origins)
    elif given.origins:
        print_origins(loaded.origins)
    elif given.as_json:
        print_json(ShownEasyconfig(loaded.path.absolute(), loaded.variant, data))
    else:
        echo(one_line(f"# {loaded.path}{f', variant {loaded.variant}' if loaded.variant else ''}"))
        import yaml

        if build := data.get("image", {}).get("build"):
            data["image"]["build"] = _as_written(build, f"{loaded.path.absolute().parent}/")
        echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100).rstrip())


WIDE = 300  # characters per value; --json has all


def _as_written(build: dict[str, object], here: str) -> dict[str, object]:
    """A build; its paths below `here`, the easyconfig's directory, are relative to it."""
    files = build.get("files")
    short = {key: text.removeprefix(here) if isinstance(text, str) else text for key, text in build.items()}
    return (
        {**short, "files": {key.removeprefix(here): to for key, to in files.items()}}
        if isinstance(files, dict)
        else short
    )


def names_image(text: str) -> bool:
    """Whether `text` names an image rather than a module or an easyconfig.

    These do: a scheme, the ending .sif, a file's path with a slash, and the bare name of an existing SIF; never YAML.
    """
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
            return not header.file_kind(file.read(header.START))
    except (OSError, ValueError):
        return False


def show_image(given: ShowOptions) -> None:
    """Print an image's metadata."""
    site = site_in_force(given.settings).site
    described = subject.describe(given.name, site, given.arch or site.arch)
    if given.as_json:
        print_json(described)
        return
    print_rows([("image", _short(given.name)), *_image_rows(described)])
    for title, pairs in (("labels", described.config.labels), ("environment", described.config.environment)):
        if pairs:
            echo(f"\n{title}")
            print_rows([("", name, _short(value)) for name, value in pairs])
    for title, script in (("runscript", described.runscript), ("definition", described.definition)):
        if script.strip():
            echo(f"\n{title}")
            for line in script.strip("\n").splitlines():
                echo(f"  {line}".rstrip())


def _image_rows(described: "images.ImageDescription") -> "Iterator[tuple[str, str]]":
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
        ("made from", described.source),
        *(("built on", base) for base in described.bases),
        ("compression", described.compression),
        *(("signed by", signer) for signer in (signed or (["nobody"] if of_a_sif else []))),
        ("entrypoint", shlex.join(config.entrypoint)),
        ("command", shlex.join(config.cmd)),
        ("directory", config.working_dir),
        ("user", config.user),
        *((("holds", f"{part.kind}, {size_text(part.size)}") for part in parts) if of_a_sif else ()),
        *(("note", note) for note in described.notes),
    )
    return ((name, _short(value)) for name, value in rows if value)


def _short(text: str) -> str:
    return printable.line(text, WIDE)
