"""`sifmod doctor`."""

import os

import click

from sifmod.cli.options import json_option, site_options


@click.command("doctor")
@site_options
@json_option
def command(as_json: bool, **site: str | None) -> int:
    """Look at this machine: runtime, user namespaces, squashfs, GPUs, module tool, Slurm, space, prefix."""
    from dataclasses import asdict

    from sifmod.actions.doctor import diagnose, diagnose_settings
    from sifmod.cli.context import load_context
    from sifmod.cli.output import echo, print_json

    loaded = load_context(site)
    findings = (*diagnose(loaded.site, os.environ), *diagnose_settings(os.environ))
    if as_json:
        print_json([{**asdict(finding), "hint": finding.hint or None} for finding in findings])
    else:
        width = max(len(finding.subject) for finding in findings)
        marks = {"ok": "[ok]", "note": "[--]", "missing": "[!!]"}
        for finding in findings:
            echo(f"{marks[finding.status]} {finding.subject.ljust(width)}  {finding.text}")
            if finding.hint:
                echo(f"     {' ' * width}  {finding.hint}")
    return 1 if any(finding.status == "missing" for finding in findings) else 0
