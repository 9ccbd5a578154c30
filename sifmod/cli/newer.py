"""`sifmod outdated` and `sifmod upgrade`."""

import click

from sifmod.actions.start import layout_at, resolve
from sifmod.cli.command import argument, command
from sifmod.cli.context import load_facts
from sifmod.cli.later import later
from sifmod.cli.output import counted, echo, print_json, say
from sifmod.cli.shared_options import ConversionOptions, SiteOptions

with later():
    from sifmod import errors
    from sifmod.actions import batch as batches
    from sifmod.actions import outdated
    from sifmod.actions.install import install_easyconfigs, newest, row
    from sifmod.cli import batch, install
    from sifmod.config import name
    from sifmod.tree import layout, receipt


class OutdatedOptions(SiteOptions):
    modules: tuple[str, ...] = argument("[NAME|MODULE]...", default=(), many=True)


@command("outdated", OutdatedOptions, lambda: outdated.Outdated)
def outdated_command(given: OutdatedOptions) -> int:
    """Show which installed modules have something newer: a later version, or another image under their tag.

    A later version is that of an easyconfig for the same accelerator whose image is available here. NAME means all of
    its installed versions. Nothing is changed; `sifmod upgrade` installs what is newer. A server that cannot be asked
    and an easyconfig with problems are named, and the exit code is then 10.
    """
    site = load_facts(given.settings)
    found = outdated.outdated(_installed(layout_at(site.site.prefix), given.modules), site)
    if given.as_json:
        print_json(found)
    else:
        say_newer(found, "`sifmod upgrade MODULE` installs what is newer")
    return unasked(found)


def unasked(found: "outdated.Outdated") -> int:
    """The exit code if a server could not be asked or an easyconfig not be read, else 0."""
    return errors.FetchError.exit_code if found.notes else 0


def say_newer(found: "outdated.Outdated", hint: str, none: str = "no module is installed here") -> None:
    """Print what is newer; say what there is to do and what could not be looked at, or `none` of no module."""
    for one in found.newer:
        echo(f"{one.module}: {one.note}")
    _say_unasked(found)
    if not found.looked_at:
        say(none)
    elif not found.newer:
        where = "in what could be looked at" if found.notes else f"for {counted(found.looked_at, 'module')}"
        say(f"nothing newer was found {where}")
    elif hint:
        say(f"{counted(len(found.newer), 'update')} for {counted(found.looked_at, 'module')}: {hint}")


def _say_unasked(found: "outdated.Outdated") -> None:
    for note in found.notes:
        say(f"warning: {note}")


class UpgradeCommand(ConversionOptions):
    modules: tuple[str, ...] = argument("[NAME|MODULE]...", default=(), many=True)
    everything: bool = False
    dry_run_short: bool = False


@command("upgrade", UpgradeCommand, lambda: list[row.Row])
def upgrade_command(given: UpgradeCommand) -> int:
    """Install newer versions and images of installed modules, with the site options of their last install.

    NAME means all of its installed versions. A later version is a module of its own: the earlier one stays, for running
    jobs and for loads by version. Another image under the same tag becomes a new generation, and `sifmod rollback`
    switches back.
    """
    if bool(given.modules) == given.everything:
        raise click.UsageError("name modules, or give --all; `sifmod outdated` shows what is newer")
    site = load_facts(given.settings)
    there = _installed(layout_at(site.site.prefix), given.modules)
    found = outdated.outdated(there, site, offline=given.offline)
    options = install_easyconfigs.InstallOptions(offline=given.offline, into_home=given.yes)
    todo = tuple(newest.upgrades(there, found.newer, site, given.settings, options))
    if todo or given.quiet:
        _say_unasked(found)
    else:
        say_newer(found, "")
    ended = batch.reported_batch(todo, lambda one: _upgrade(one, given))
    code = batches.worst([one for _, one in ended]) or unasked(found)
    if len(ended) > 1 and (code or not (given.dry_run_short or given.quiet)):
        for line in batch.summary(ended):
            say(line)
    if given.as_json:
        print_json([install.row_of(one.target, end) for one, end in ended])
    return code


def _upgrade(one: "newest.Upgrade", given: UpgradeCommand) -> "batch.Reported":
    """Install an upgrade as `sifmod install` does, or show what that would do."""
    shared = {name: value for name, value in vars(given).items() if name in vars(ConversionOptions())}
    asked = install.InstallCommand(easyconfigs=(one.target.easyconfig,), dry_run_short=given.dry_run_short, **shared)
    if given.dry_run_short:
        return install.dry_run(one.installer, one.target, asked)
    if not given.quiet:
        say(f"{one.module}: upgrading to {one.target}")
    return install.install(one.installer, one.target, asked)


def _installed(layout: "layout.Layout", names: tuple[str, ...]) -> "tuple[receipt.Installation, ...]":
    """The live installations of these names or modules, or all. Raises ModuleError for a name that no module has."""
    known = [module for module, _ in receipt.live_modules(layout)]
    wanted = set[name.ModuleName]()
    for text in names:
        wanted |= {one for one in known if one.name.casefold() == text.casefold()} or {resolve(text, known)}
    return tuple(one for module in known if (module in wanted or not names) and (one := receipt.live(layout, module)))
