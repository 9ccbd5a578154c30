"""`sifmod verify`."""

import click

from sifmod.cli.options import json_option, prefix_option


@click.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@prefix_option
@json_option
def command(names: tuple[str, ...], prefix: str | None, as_json: bool) -> int:
    """Hash the image and every file of the modules again (all by default) and compare with the receipts."""
    from sifmod.actions.verify import Finding, installed, verify
    from sifmod.cli.context import layout_for
    from sifmod.cli.names import resolve
    from sifmod.cli.output import print_json, say
    from sifmod.errors import ModuleError
    from sifmod.tree.receipt import live_modules

    layout = layout_for(prefix)
    known = [module for module, _ in live_modules(layout)]
    modules = [resolve(name, known) for name in names] if names else known
    report: dict[str, tuple[Finding, ...]] = {}
    for module in modules:
        try:
            report[str(module)] = verify(layout, installed(layout, module))
        except ModuleError as error:  # the others are looked at all the same
            report[str(module)] = (Finding("unreadable", str(layout.switch(module)), "a receipt", error.message),)
    if as_json:
        print_json({module: [finding._asdict() for finding in findings] for module, findings in report.items()})
    else:
        for name, findings in report.items():
            faults = sum(finding.fault for finding in findings)
            click.echo(f"{name}: {'ok' if not faults else _counted(faults)}")
            for finding in findings:
                click.echo(f"  {finding.kind}: {finding.path}: expected {finding.expected}, found {finding.found}")
        if any(finding.fault for findings in report.values() for finding in findings):
            say("`sifmod install --rebuild` with the module's easyconfig (`sifmod show` names it) puts it right")
    return 1 if any(finding.fault for findings in report.values() for finding in findings) else 0


def _counted(faults: int) -> str:
    return "1 fault" if faults == 1 else f"{faults} faults"
