"""`sifmod self`."""

import os
from pathlib import Path

import click

from sifmod.cli.command import argument, command, group
from sifmod.cli.later import later
from sifmod.cli.output import echo, print_json, say
from sifmod.cli.shared_options import JsonOption

with later():
    from sifmod.actions import own_module
    from sifmod.config import kinds
    from sifmod.module import own


class ModuleOptions(JsonOption):
    directory: Path = argument("DIRECTORY", Path)
    syntax: str = "both"
    force: bool = False


@command("self module", ModuleOptions)
def module(given: ModuleOptions) -> None:
    """Write a module for this sifmod itself into DIRECTORY, which users give to `module use`, or print it (-).

    It is for the installation that runs the command, however it was made (uv tool, pip, EasyBuild, Spack), and sets
    PATH, MANPATH and the completion of bash, zsh and fish. Where a Python is in the directory of the command, as in a
    virtual environment, that directory goes to the end of PATH, so that it hides no other Python.
    """
    syntaxes = tuple(syntax for syntax in kinds.SYNTAXES if given.syntax in (syntax, "both"))
    if str(given.directory) == "-":
        if given.as_json or len(syntaxes) > 1:
            raise click.UsageError("with - give --syntax lua or --syntax tcl, and no --json")
        echo(own.modulefile(own_module.own_installation(os.environ), syntaxes[0]), nl=False)
        return
    made = own_module.write_modules(given.directory.absolute(), syntaxes, os.environ, force=given.force)
    if given.as_json:
        print_json(made)
        return
    if not made.first:
        say(f"{made.bin} goes to the end of PATH, because a Python is in it too")
    if not made.man:
        say("no man pages are beside this sifmod, so MANPATH is left alone")
    for path in made.paths:
        echo(path)


self_command = group("self", "Write a module for sifmod itself.", module)
