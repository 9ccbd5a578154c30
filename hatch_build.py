"""Man pages of the commands, made when the wheel is built.

click-man 0.6 was looked at: it starts from click's own texts, so that it knows neither the examples nor what the
options are about. Both come from sifmod/cli/examples.py and sifmod/config/option.py here, as in `--help`.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface):
    """Put `share/man/man1/sifmod.1` and a page for each verb into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Write the pages below build/, and tell the wheel of them."""
        sys.path.insert(0, self.root)
        import click

        from sifmod.cli.commands import COMMANDS
        from sifmod.cli.main import cli

        folder = Path(self.root, "build", "man")
        folder.mkdir(parents=True, exist_ok=True)
        with click.Context(cli, info_name="sifmod", **cli.context_settings) as context:
            pages = {"sifmod": _page(cli, context, self.metadata.version)}
            for name in COMMANDS:
                command = cli.get_command(context, name)
                assert command is not None  # noqa: S101
                pages |= _pages(command, click.Context(command, context, name), self.metadata.version)
        for name, text in pages.items():
            path = folder / f"{name}.1"
            path.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(path)] = f"share/man/man1/{name}.1"


def _pages(command: Any, context: Any, version: str) -> dict[str, str]:
    """The page of a verb, and those of the verbs within it."""
    found = {context.command_path.replace(" ", "-"): _page(command, context, version)}
    for name, inner in getattr(command, "commands", {}).items():
        found |= _pages(inner, type(context)(inner, context, name), version)
    return found


def _page(command: Any, context: Any, version: str) -> str:
    """One command in roff (man(7))."""
    from sifmod.cli.command_help import option_groups, words
    from sifmod.cli.commands import COMMANDS, EXIT_CODES
    from sifmod.cli.examples import EXAMPLES

    name, verb = context.command_path.replace(" ", "-"), words(context)
    text = [*(command.help or "").replace("\b\n", "").split("\n\n")]
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f'.TH "{name.upper()}" "1" "" "sifmod {version}" "sifmod"', ".SH NAME"]
    lines += [f"{_roff(name)} \\- {_roff(' '.join(text[0].split()))}", ".SH SYNOPSIS"]
    lines += [f".B {_roff(context.command_path)}", _roff(usage), ".SH EXAMPLES"]
    for example, purpose in EXAMPLES[verb]:
        lines += [".TP", f".B {_roff(example)}", _roff(purpose) or "\\&"]
    lines.append(".SH DESCRIPTION")
    for paragraph in text:
        lines += [".PP", _roff(" ".join(paragraph.split()))]
    inner = {each: entry.text for each, entry in COMMANDS.items()} if not verb else {}
    inner |= {each: sub.get_short_help_str(200) for each, sub in getattr(command, "commands", {}).items()}
    if inner:
        lines.append(".SH COMMANDS")
    for each, about in inner.items():
        lines += [".TP", f".B {_roff(each)}", _roff(about)]
    for title, rows in option_groups(command, context):
        lines.append(f".SH OPTIONS: {title.upper()}")
        for option, about in rows:
            lines += [".TP", f".B {_roff(option)}", _roff(" ".join(about.split()))]
    if verb:
        lines += [".SH SEE ALSO", ".BR sifmod (1)"]
    else:
        lines.append(".SH EXIT CODES")
        for code, about in EXIT_CODES:
            lines += [".TP", f".B {code}", _roff(about)]
        lines += [".SH SEE ALSO", ", ".join(f"\\fBsifmod\\-{each}\\fR(1)" for each in COMMANDS)]
        lines.append(
            ".PP\nThe documents are in share/doc/sifmod of the place where sifmod is installed: begin with tutorial.md."
        )
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    """Text that roff prints as it is, in any locale."""
    escaped = (
        text.replace("…", "...").replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
