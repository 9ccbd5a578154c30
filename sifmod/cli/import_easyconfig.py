"""`sifmod import`."""

from pathlib import Path

import click

from sifmod.cli.options import json_option, site_options


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE|DIRECTORY...")
@click.option(
    "-o",
    "--output",
    metavar="DIRECTORY",
    default=".",
    help="Write the easyconfigs here (default: the current directory); it is made where it is missing.",
)
@click.option(
    "--name-from",
    type=click.Choice(["path", "whatis"]),
    default="path",
    help="Name a Lua modulefile's module by its path, NAME/VERSION.lua (default), or by what it says of itself.",
)
@click.option(
    "--module-tree",
    metavar="DIRECTORY",
    help="What users give to `module use`, for Lua modulefiles that are not NAME/VERSION.lua right below it.",
)
@click.option("--force", is_flag=True, help="Replace easyconfigs that are there.")
@site_options
@json_option
def command(
    files: tuple[str, ...],
    output: str,
    name_from: str,
    module_tree: str | None,
    force: bool,
    as_json: bool,
    **site: str | None,
) -> int:
    """Turn files of other tools into easyconfigs, and print their paths.

    A LUMI EasyBuild .eb, a container.yaml of singularity-hpc, or an NGC or Biocontainers Lua modulefile; of a directory
    all that are in it. They are read, never run. A modulefile keeps the name under which users load it. What could not
    be carried over stands at the top of each easyconfig and on standard error. A file that cannot be turned into an
    easyconfig that `sifmod check` accepts is refused with the reason; the others are written, and the exit code is 5.
    """
    from sifmod.actions.author.import_easyconfig import convert, find_sources, write
    from sifmod.cli.context import load_facts
    from sifmod.cli.main import show_error
    from sifmod.cli.output import counted, echo, error_data, print_json, say
    from sifmod.errors import OptionError
    from sifmod.imports.budget import CannotImportError
    from sifmod.imports.modulefile_name import Naming
    from sifmod.system import one_line

    directory = Path(output)
    if directory.exists() and not directory.is_dir():
        raise OptionError(f"{directory} is not a directory")
    if module_tree and not Path(module_tree).is_dir():
        raise OptionError(f"--module-tree: there is no directory {module_tree}")
    naming = Naming(name_from == "whatis", Path(module_tree) if module_tree else None)
    results: list[dict[str, object]] = []
    failed: dict[Path, dict[str, object]] = {}
    worst, repeated, left = 0, 0, 0
    for one in convert(find_sources(tuple(map(Path, files))), load_facts(site), naming):
        row = {"source": str(one.source), "notes": one.notes}
        if one.same_as in failed:
            left += 1
            results.append({**row, **failed[one.same_as], "notes": [f"the same as {one.same_as}"]})
            continue
        if one.same_as:
            repeated += 1
            told = {"path": str((directory / one.filename).absolute()), "module": one.module}
            results.append({**row, **told, "notes": [f"the same as {one.same_as}, imported once"]})
            continue
        try:
            if one.problem:
                raise CannotImportError(one.problem)
            path = write(one, directory, force)
        except (CannotImportError, OptionError) as error:
            worst = max(worst, error.exit_code)
            place = {"file": str(one.source), "line": error.line} if isinstance(error, CannotImportError) else {}
            failed[one.source] = {**error_data(error), **place}
            results.append({**row, **failed[one.source]})
            show_error(f"{one_line(str(one.source))}: {error.message}{f'; {error.hint}' if error.hint else ''}")
            continue
        results.append({**row, "path": str(path.absolute()), "module": one.module})
        for note in one.notes:
            say(f"{one.source}: {note}")
        if not as_json:
            echo(path)
    if repeated:
        say(f"{counted(repeated, 'file')} of the same content as another: imported once")
    if left:
        say(f"{counted(left, 'file')} of the same content as one that was not written: not imported either")
    if as_json:
        print_json(results)
    return worst
