"""`sifmod export`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, site_options

if TYPE_CHECKING:
    from sifmod.actions.export import Form

_FORMS = ("sif", "sqsh", "oci-archive", "docker-archive", "sandbox")
_USED = {
    "sif": "apptainer exec {} COMMAND",
    "sqsh": "srun --container-image={} COMMAND",
    "oci-archive": "podman load -i {}",
    "docker-archive": "docker load -i {}",
    "sandbox": "apptainer exec {} COMMAND",
}


@click.command("export")
@click.argument("name", metavar="MODULE|FILE|DIGEST")
@click.option("--to", type=click.Choice(_FORMS), required=True, help="What to write.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="PATH", help="Write it here.")
@click.option("-f", "--force", is_flag=True, help="Replace a file that is there; a directory is never replaced.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@site_options
@json_option
def command(name: str, to: "Form", output: Path | None, **given: str | bool | None) -> None:
    """Write an image as a file or a directory for other tools, and print its path.

    sqsh is what enroot and pyxis start; oci-archive and docker-archive are for podman, docker and skopeo; sandbox is a
    directory with the files, for apptainer or to look into. Without -o it goes into the current directory, under the
    name of the module or image.
    """
    from sifmod.actions.export import ENDINGS, export
    from sifmod.actions.reporter import Reporter
    from sifmod.cli.context import load_context, tree
    from sifmod.cli.output import echo, print_json, quiet, say
    from sifmod.cli.progress import progress
    from sifmod.cli.subject import subject
    from sifmod.errors import OptionError
    from sifmod.system import size_text

    if output == Path("-"):
        raise OptionError("-o -: an image is not written to standard output", "name a file: -o FILE")
    site = load_context({key: value for key, value in given.items() if isinstance(value, str)}).site
    speak = quiet if given["quiet"] else say
    meant = subject(name, tree(site.prefix))
    module = meant.installation.module if meant.installation else None
    called = str(module).replace("/", "-") if module else meant.path.stem[: 12 if meant.sha256 else None]
    target = (output or Path(f"{called}{ENDINGS[to]}")).absolute()
    with progress(speak is say) as update:
        made = export(meant.path, to, target, site, Reporter(speak, update), force=bool(given["force"]))
    for note in made.notes:
        speak(f"note: {note}")
    if given["as_json"]:
        print_json({"path": str(target), "form": to, "size": made.size, "notes": list(made.notes)})
        return
    size = f", {size_text(made.size)}" if made.size is not None else ""
    speak(f"written: {to} of {meant.name}{size}; use it by {_USED[to].format(shlex.quote(str(target)))}")
    echo(target)
