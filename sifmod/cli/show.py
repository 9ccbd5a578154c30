"""`sifmod show`."""

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, site_options

if TYPE_CHECKING:
    from sifmod.tree.layout import Layout
    from sifmod.tree.receipt import Installation


@click.command("show")
@click.argument("name", metavar="NAME|FILE|REFERENCE")
@click.option("--origins", is_flag=True, help="Of an easyconfig: where each of its values came from.")
@click.option("--variant", metavar="NAME", help="Of an easyconfig: which variant.")
@click.option("--arch", type=click.Choice(["amd64", "arm64"]), help="Of an image: architecture (default: the site's).")
@site_options
@json_option
def command(name: str, origins: bool, variant: str | None, arch: str | None, as_json: bool, **site: str | None) -> None:
    """Show an installed module, an easyconfig with everything that is merged into it, or an image.

    An image is a SIF or a reference (docker://, oras://, oci:, oci-archive:, docker-archive:); what it says about
    itself is read without starting it and without fetching its layers.
    """
    from sifmod.actions.verify import installed
    from sifmod.cli.context import layout_for, resolve
    from sifmod.cli.life import say_life
    from sifmod.cli.output import print_json, print_rows, receipt_data
    from sifmod.cli.show_image import names_image, show_image
    from sifmod.tree.receipt import live_modules

    if not origins and variant is None and names_image(name):
        from sifmod.cli.context import load_context

        show_image(name, load_context(site).site, arch, as_json)
        return
    layout = layout_for(site["prefix"])
    of_easyconfigs = "--origins" if origins else "--variant" if variant is not None else ""
    if not name.endswith((".yaml", ".yml")):
        modules = [module for module, _ in live_modules(layout)]
        if of_easyconfigs:
            if "/" in name and not Path(name).exists() and any(str(module).startswith(name) for module in modules):
                raise _of_a_module(installed(layout, resolve(name, modules)), of_easyconfigs)
        elif any(
            str(module).startswith(name) or f"{module.name}-{module.version}".startswith(name) for module in modules
        ):
            found = installed(layout, resolve(name, modules))
            say_life(found)
            if as_json:
                print_json(receipt_data(found))
            else:
                print_rows(_rows(layout, found))
            return
    _show_easyconfig(name, variant, site, as_json, origins)


def _of_a_module(found: "Installation", option: str) -> Exception:
    """The error for an option of easyconfigs that is given with an installed module."""
    from sifmod.errors import OptionError

    made = found.provenance
    variant = f" --variant {made.variant}" if made.variant else ""
    return OptionError(
        f"{option} takes an easyconfig, and {found.module} is an installed module",
        f"its easyconfig: `sifmod show {shlex.quote(made.easyconfig)}{variant} --origins`",
    )


def _rows(layout: "Layout", installation: "Installation") -> list[tuple[str, str]]:
    from sifmod.system import size_text

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
        ("stable path", str(layout.switch(installation.module))),
        ("modulefiles", " ".join(str(layout.modules / stub.path) for stub in installation.stubs)),
        *of_image,
        *([("mpi", made.image.mpi.told)] if made.image.mpi and made.image.mpi.told else []),
        ("easyconfig", f"{made.easyconfig}{f', variant {made.variant}' if made.variant else ''}"),
        ("site", f"{made.site}, accelerator {made.accelerator}"),
        *([("your own place", str(layout.user_software(installation.module)))] if image else []),
        ("installed by", f"sifmod {made.sifmod}"),
    ]


def _show_easyconfig(name: str, variant: str | None, site: dict[str, str | None], as_json: bool, origins: bool) -> None:
    from sifmod.cli.context import load_context
    from sifmod.cli.output import echo, origins_data, print_json, print_rows
    from sifmod.config.load_easyconfig import load_easyconfig
    from sifmod.config.wanted import wanted_easyconfig
    from sifmod.system import one_line

    context = load_context(site)
    loaded = load_easyconfig(wanted_easyconfig(name, context.site), context, variant, {}, os.environ)
    data = json.loads(loaded.easyconfig.model_dump_json(exclude_none=True, by_alias=True))
    if origins and as_json:
        print_json(origins_data(loaded.origins))
    elif origins:
        print_rows([(origin.key, "=", origin.value, f"({origin.origin})") for origin in loaded.origins])
    elif as_json:
        print_json({"path": str(loaded.path.absolute()), "variant": loaded.variant, "keys": data})
    else:
        echo(one_line(f"# {loaded.path}{f', variant {loaded.variant}' if loaded.variant else ''}"))
        import yaml

        echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100).rstrip())
