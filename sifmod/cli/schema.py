"""`sifmod schema`."""

import click


@click.command("schema")
@click.option(
    "--output",
    "verb",
    is_flag=False,
    flag_value="",
    metavar="[VERB]",
    help="That of what VERB (list, 'site show', …) prints with --json, of every verb without VERB.",
)
@click.option("--stack", is_flag=True, help="That of a stack's file.")
@click.option("--hooks", is_flag=True, help="That of what a hook has on its standard input.")
def command(verb: str | None, stack: bool, hooks: bool) -> None:
    """Print the JSON Schema of an easyconfig, of a stack, of what a verb prints with --json, or of a hook's input."""
    import json

    from sifmod.cli.output import write

    if verb is None and not hooks:
        from sifmod.config.schema import easyconfig_schema, stack_schema

        write(json.dumps(stack_schema() if stack else easyconfig_schema(), indent=2))
        return
    from sifmod.cli.outputs.verbs import OUTPUTS, hook_schema, output_schema

    if hooks:
        write(json.dumps(hook_schema(), indent=2))
        return

    if verb and verb not in OUTPUTS:
        raise click.BadParameter(f"expected one of {', '.join(OUTPUTS)}, got {verb!r}", param_hint="--output")
    found = output_schema(verb) if verb else {name: output_schema(name) for name in OUTPUTS}
    write(json.dumps(found, indent=2))
