"""`sifmod new`."""

from pathlib import Path

import click

from sifmod.cli.options import conversion_options, json_option, site_options, yes_option


@click.command("new")
@click.argument("reference", metavar="[REFERENCE|FILE]", required=False)
@click.option("--from", "base", metavar="BASE", help="Build an image upon this one, or upon an easyconfig's.")
@click.option("--pip", metavar="PACKAGE", multiple=True, help="With --from: a package to add, as pip spells it.")
@click.option("-o", "--output", metavar="FILE", help="Write the easyconfig here; - for standard output.")
@click.option("--name", metavar="NAME", help="The module's name (default: guessed).")
@click.option("--version", metavar="VERSION", help="Its version (default: guessed).")
@click.option("--arch", type=click.Choice(["amd64", "arm64"]), help="Architecture (default: the site's).")
@click.option("--offline", is_flag=True, help="Use only what is on this machine.")
@yes_option
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@conversion_options
@site_options
@json_option
def command(reference: str | None, base: str | None, pip: tuple[str, ...], **given: str | bool | None) -> None:
    """Write a first easyconfig for an image, and print its path.

    Name, version, accelerator, Python environment and wrappers are guessed from what the image says and from the files
    in it, which is not started. An image that is not on this machine is fetched into the store; a SIF that is here is
    read where it is. With --from the easyconfig builds an image of its own. The file is
    <Name>-<version><versionsuffix>.yaml in this directory; none is ever overwritten.
    """
    from sifmod.actions.author.new import NewOptions, make_draft
    from sifmod.actions.author.new_file import check_target, write_text
    from sifmod.actions.reporter import Reporter
    from sifmod.cli.context import load_facts, typed
    from sifmod.cli.output import ask, echo, print_json, quiet, say
    from sifmod.cli.progress import progress
    from sifmod.errors import OptionError

    if (reference is None) == (base is None) or bool(pip) != (base is not None):
        raise OptionError("give an image, or --from BASE with --pip PACKAGE, and not both")
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    output, show = texts.pop("output", None), not given["quiet"]
    if output not in (None, "-"):
        check_target(Path(str(output)))
    options = NewOptions(
        name=texts.pop("name", None),
        version=texts.pop("version", None),
        arch=texts.get("arch"),
        offline=bool(given["offline"]),
        into_home=bool(given["yes"]),
        pip=pip or None,
        own_name=output is None,
    )
    with progress(show) as update:
        reporter = Reporter(say if show else quiet, update, ask, typed())
        draft = make_draft(reference or str(base), load_facts(texts), options, reporter)
    target = None if output == "-" else Path(output or draft.filename)
    if target is not None:
        write_text(draft.text, target)
    if given["as_json"]:
        path = str(target.absolute()) if target else None
        module, sif = str(draft.loaded.easyconfig.module), str(draft.image.absolute())
        print_json({"path": path, "module": module, "sif": sif, "text": draft.text})
    elif target is None:
        echo(draft.text, nl=False)
    else:
        echo(target)
        if show:
            say(f"{draft.loaded.easyconfig.module}: read what was guessed, then `sifmod install {target}`")
