"""`sifmod push`."""

import click

from sifmod.cli.options import json_option, site_options


@click.command("push")
@click.argument("name", metavar="MODULE|FILE|DIGEST")
@click.argument("target", metavar="REFERENCE")
@click.option("-f", "--force", is_flag=True, help="Overwrite a tag that names another image.")
@click.option("--add-to-index", is_flag=True, help="Put the image beside those for other architectures under this tag.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@site_options
@json_option
def command(name: str, target: str, **given: str | bool | None) -> None:
    """Push an image to a registry, and print the reference that names just this image.

    To oras://REGISTRY/REPOSITORY:TAG goes the SIF itself, its signatures in it. To docker://… goes an OCI image: the
    layers that the SIF was converted from, or was built upon and one more, where a registry has them; else one layer of
    all its files. What the registry has already is not sent. Logins are those of fetch.
    """
    from sifmod.actions.push import PushOptions, push
    from sifmod.actions.reporter import Reporter
    from sifmod.cli.context import load_context, tree
    from sifmod.cli.output import echo, print_json, quiet, say
    from sifmod.cli.outputs.installed import PushedImage
    from sifmod.cli.outputs.shaped import shaped
    from sifmod.cli.progress import progress
    from sifmod.cli.subject import subject
    from sifmod.system import size_text

    site = load_context({key: value for key, value in given.items() if isinstance(value, str)}).site
    speak = quiet if given["quiet"] else say
    options = PushOptions(force=bool(given["force"]), add_to_index=bool(given["add_to_index"]))
    image = subject(name, tree(site.prefix)).path
    with progress(speak is say) as update:
        pushed = push(image, target, site, options, Reporter(speak, update))
    for note in pushed.notes:
        speak(f"note: {note}")
    if given["as_json"]:
        print_json(shaped(PushedImage, pushed))
        return
    speak(
        "it was there already"
        if pushed.there
        else f"sent {size_text(pushed.sent)} of {size_text(pushed.size)}; as a"
        f" source of an easyconfig:  sources: ['{pushed.reference}']"
    )
    echo(pushed.reference)
