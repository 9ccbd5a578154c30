"""`sifmod log`."""

from typing import TYPE_CHECKING

import click

from sifmod.cli.options import json_option, prefix_option

if TYPE_CHECKING:
    from sifmod.cli.outputs.tree import Logged
    from sifmod.tree.log import Done, Entry


@click.command("log")
@click.argument("modules", nargs=-1, metavar="[MODULE]...")
@prefix_option
@json_option
def command(modules: tuple[str, ...], prefix: str | None, as_json: bool) -> None:
    """Show what was changed in the tree: when (UTC), by whom, on which host and by which command, the newest last.

    MODULE is a name with a version, or without one, or with the beginning of some; an uninstalled one has its log
    still. Without MODULE the images and downloads that were fetched by themselves or removed are shown too.
    """
    from sifmod.actions.log import changes
    from sifmod.cli.context import layout_for
    from sifmod.cli.output import echo, print_json, print_rows, say

    log = changes(layout_for(prefix), modules)
    for problem in log.problems:
        say(f"warning: {problem}")
    if as_json:
        print_json([_data(entry) for entry in log.entries])
        return
    print_rows([_row(entry) for entry in log.entries])
    if not log.entries and not modules:
        echo("no change is recorded here", err=True)


def _data(entry: "Entry") -> "Logged":
    done = entry.done
    return {
        "time": entry.time,
        "user": entry.user,
        "uid": entry.uid,
        "login": entry.login,
        "host": entry.host,
        "sifmod": entry.sifmod,
        "command": entry.command,
        "what": done.what,
        "module": str(done.module) if done.module else None,
        "generation": done.after,
        "before": done.before,
        "sha256": done.image,
        "size": done.size,
        "layer": done.layer,
    }


def _row(entry: "Entry") -> tuple[str, ...]:
    who = f"{entry.login} as {entry.user}" if entry.login else entry.user
    return (entry.time[:16].replace("T", " "), who, entry.host, _told(entry.done), entry.command)


def _told(done: "Done") -> str:
    from sifmod.system import size_text

    if done.module is None:
        size = size_text(done.size or 0)
        return f"{done.what} image {done.image[:12]}…, {size}" if done.image else f"{done.what} download, {size}"
    number = done.before if done.after is None else done.after
    was = f" (was {done.before})" if done.after is not None and done.before not in (None, done.after) else ""
    of = f"layer {done.layer} of " if done.layer else ""
    return f"{done.what} {of}{done.module}{f', generation {number}' if number else ''}{was}"
