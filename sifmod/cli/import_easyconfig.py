"""`sifmod import`."""

from pathlib import Path

import click

from sifmod.cli.options import json_option, site_options


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE|DIRECTORY...")
@click.option("-o", "--output", metavar="DIRECTORY", default=".", help="Write the easyconfigs here (default: here).")
@click.option("--force", is_flag=True, help="Replace easyconfigs that are there.")
@site_options
@json_option
def command(files: tuple[str, ...], output: str, force: bool, as_json: bool, **site: str | None) -> int:
    """Turn files of other tools into easyconfigs, and print their paths.

    A LUMI EasyBuild .eb, a container.yaml of singularity-hpc, or an NGC or Biocontainers Lua modulefile; of a directory
    all that are in it. They are read, never run. What could not be carried over stands at the top of each easyconfig
    and on standard error. A file that cannot be turned into an easyconfig that `sifmod check` accepts is refused with
    the reason; the others are written, and the exit code is 5.
    """
    from sifmod.actions.author.import_easyconfig import convert, find_sources, write
    from sifmod.cli.context import load_facts
    from sifmod.cli.main import show_error
    from sifmod.cli.output import echo, error_data, print_json, say
    from sifmod.errors import OptionError
    from sifmod.imports.budget import CannotImportError

    directory = Path(output)
    if not directory.is_dir():
        raise OptionError(f"there is no directory {directory}", f"mkdir -p {directory}")
    results: list[dict[str, object]] = []
    worst = 0
    for one in convert(find_sources(tuple(map(Path, files))), load_facts(site)):
        row = {"source": str(one.source), "notes": one.notes}
        try:
            if one.problem:
                raise CannotImportError(one.problem)
            path = write(one, directory, force)
        except (CannotImportError, OptionError) as error:
            worst = max(worst, error.exit_code)
            place = {"file": str(one.source), "line": error.line} if isinstance(error, CannotImportError) else {}
            results.append({**row, **error_data(error), **place})
            show_error(f"{one.source}: {error.message}{f'; {error.hint}' if error.hint else ''}")
            continue
        results.append({**row, "path": str(path.absolute()), "module": one.module})
        for note in one.notes:
            say(f"{one.source}: {note}")
        if not as_json:
            echo(path)
    if as_json:
        print_json(results)
    return worst
