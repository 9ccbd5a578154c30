"""`sifmod verify`."""

from pathlib import Path

import click

from sifmod.actions.start import site_in_force, trees_for
from sifmod.cli.command import argument, command
from sifmod.cli.context import reporter
from sifmod.cli.later import later
from sifmod.cli.output import counted, echo, print_json, say
from sifmod.cli.shared_options import SiteOptions
from sifmod.config.redact import has_login, shown
from sifmod.system import one_line
from sifmod.tree.layout import Layout

with later():
    from sifmod.actions import sharing, verify
    from sifmod.module import quote


class VerifyOptions(SiteOptions):
    names: tuple[str, ...] = argument("[NAME|FILE.sif...]", default=(), many=True)
    signature: bool = False
    keys: tuple[str, ...] = ()
    modes: bool = False
    repair_modes: bool = False


@command("verify", VerifyOptions, lambda: list[verify.Verified] | list[verify.SignedImage] | list[sharing.WrongMode])
def verify_command(given: VerifyOptions) -> int:
    """Hash image, files and layers of the modules again (all by default) and compare with the receipts.

    With --signature, check instead who signed the images of modules or any SIFs; the exit code is 1 if one of them has
    no valid signature over all of it by a known key. With --modes or --repair-modes, check instead the group and modes
    of sifmod's own files in the prefix; the exit code is 1 if one of them is wrong and not repaired.
    """
    if given.modes or given.repair_modes:
        if given.names or given.signature or given.keys:
            raise click.UsageError(
                "--modes and --repair-modes apply to the whole prefix: leave out names, --signature and --keys"
            )
        return _verify_modes(given)
    layout, *others = trees_for(given.prefix)
    if url := next((name for name in given.names if "://" in name or has_login(name)), None):
        raise click.UsageError(f"{shown(url)} is a URL; fetch the image with `sifmod fetch`, then verify the file")
    if given.signature:
        return _verify_signatures(given, layout)
    if given.keys:
        raise click.UsageError("--keys needs --signature")
    if file := next((name for name in given.names if name.endswith(".sif")), None):
        problem = f"{shown(file)} has no receipt to compare with; use --signature to see who signed it"
        raise click.UsageError(problem)
    code = _verify_files(given, layout, tuple(others))
    return max(code, _verify_sharing(given.settings, layout))


def _verify_files(given: VerifyOptions, layout: "Layout", others: "tuple[Layout, ...]") -> int:
    found = verify.verify_modules(layout, given.names, others)
    if given.as_json:
        print_json(found.modules)
    else:
        if not found.modules:
            echo("no module is installed here", err=True)
        for one in found.modules:
            echo(f"{one.module}: {counted(len(one.faults), 'fault') if one.faults else 'ok'}")
            for finding in one.findings:
                where = one_line(f"{finding.kind}: {finding.path}")
                echo(f"  {where}: expected {finding.expected}, found {finding.found}")
        _say_what_helps(found)
    return 1 if found.layers or found.own else 0


def _say_what_helps(found: "verify.VerifiedTree") -> None:
    for layer in found.layers:
        top = layer.top
        words = f"--layer {layer.name}{'' if top.name == 'layers' else f' --dir {quote.shell(str(top))}'}"
        say(f"`sifmod layer sync {layer.module} {quote.shell(f'{layer.root}/pylock.toml')} {words}` rebuilds the layer")
    if found.own:
        say("`sifmod install --rebuild` of its easyconfig (see `sifmod show`) repairs a module, --force its image too")


def _verify_sharing(settings: dict[str, str], layout: "Layout") -> int:
    """Report where the prefix's intended users lack access; returns the exit code, 1 if somewhere."""
    facts = site_in_force(settings).site
    found = tuple(sharing.closed(facts)) if facts.prefix == layout.prefix else ()
    for text in found:
        say(text)
    return 1 if found else 0


def _verify_modes(given: VerifyOptions) -> int:
    facts = site_in_force(given.settings).site
    found = sharing.modes(facts, reporter(), repair=given.repair_modes)
    left = [wrong for wrong in found if not wrong.repaired]
    if given.as_json:
        print_json(found)
    else:
        for wrong in found:
            state = "repaired" if wrong.repaired else "left" if given.repair_modes else "wrong"
            text = f"{state}: {wrong.path} of {wrong.owner}: expected {wrong.expected}, found {wrong.found}"
            echo(one_line(text))
        repaired = f" ({len(found) - len(left)} repaired)" if given.repair_modes else ""
        total = f"{counted(len(found), 'path')} with a wrong group or mode{repaired}"
        echo(f"{facts.prefix}: {total if found else 'ok' if facts.prefix.is_dir() else 'does not exist yet'}")
    if left and not given.repair_modes:
        say("`sifmod verify --repair-modes` corrects the files that are yours")
    for oddity in sharing.sharing_warnings(facts):
        say(f"warning: {oddity}")
    for text in (unread := sharing.closed_files(facts)):
        say(text)
    return 1 if left or unread else 0


def _verify_signatures(given: VerifyOptions, layout: "Layout") -> int:
    keys = (*map(Path, site_in_force(given.settings).site.signatures.keys), *map(Path, given.keys))
    report = []
    for one in verify.signed_images(layout, given.names, keys):
        report.append(one)
        if given.as_json:
            continue
        if one.error and not one.module:
            echo(one.error.error)  # it names the file
        else:
            text = one.error.error if one.error else f"signed by {', '.join(one.signers)}"
            echo(f"{one.module or one_line(str(one.given))}: {text}")
        if one.error and one.error.hint:
            echo(f"  {one.error.hint}")
    if given.as_json:
        print_json(report)
    return 1 if any(one.error for one in report) else 0
