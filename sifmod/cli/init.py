"""`sifmod init`: the lines for a shell's start-up file."""

import click

COMPLETION = {
    "bash": 'if command -v sifmod >/dev/null 2>&1; then eval "$(_SIFMOD_COMPLETE=bash_source sifmod)"; fi',
    # without `compinit` zsh has no completion to add to
    "zsh": 'if (( $+commands[sifmod] && $+functions[compdef] )); then eval "$(_SIFMOD_COMPLETE=zsh_source sifmod)"; fi',
    "fish": "type -q sifmod; and _SIFMOD_COMPLETE=fish_source sifmod | source",
}


@click.command("init")
@click.argument("shell", type=click.Choice(sorted(COMPLETION)))
@click.option("--prefix", metavar="DIR", help="The prefix whose modules are wanted (default: the configured one).")
def command(shell: str, prefix: str | None) -> None:
    """Print the lines that make sifmod's modules and its completion available in SHELL.

    Add them to ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish, or evaluate them:

        eval "$(sifmod init bash)"
    """
    from sifmod.cli.context import layout_for
    from sifmod.cli.output import write
    from sifmod.module.quote import shell as quoted

    modules = quoted(str(layout_for(prefix).modules))
    # a shell in which no module tool is set up yet has no `module`
    if shell == "fish":
        write(f"type -q module; and module use {modules}")
    else:
        write(f"if command -v module >/dev/null 2>&1; then module use {modules}; fi")
    write(COMPLETION[shell])
