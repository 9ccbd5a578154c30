"""`sifmod config`, `site`, `doctor`, `init` and `self`: commands about this machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import click

from sifmod.actions.start import site_in_force, trees_for
from sifmod.cli.command import argument, command, group
from sifmod.cli.context import load_facts
from sifmod.cli.later import later
from sifmod.cli.output import echo, hanging, print_json, print_origins, say, terminal_width, write
from sifmod.cli.shared_options import JsonOption, PrefixOption, SiteOptions
from sifmod.config.option import KEYS

with later():
    from sifmod.actions import doctor, fetch_settings, machine, own_module
    from sifmod.actions.author import site as sites
    from sifmod.config import find, kinds, load_site
    from sifmod.config import origin as origins
    from sifmod.config import site as config_site
    from sifmod.config.yaml import validate
    from sifmod.module import own, quote


class SiteShowOptions(SiteOptions):
    name: str | None = argument("[NAME|FILE]", default=None)


class SiteNewOptions(JsonOption):
    name: str = argument("NAME")
    output: str | None = None


@command("config show", SiteOptions, lambda: list[origins.Origin])
def config_show(given: SiteOptions) -> None:
    """Print every setting, its value (- if it is not set) and its origin.

    Precedence: command line > SIFMOD_* variables > ~/.config/sifmod/config.yaml > /etc/sifmod.d/*.yaml > the site >
    defaults.
    """
    origins = [row._replace(value=row.value or None) for row in _every(load_facts(given.settings))]
    if given.as_json:
        print_json(origins)
    else:
        print_origins(row._replace(origin=_shorter(row.origin)) for row in origins)


def _every(loaded: "load_site.LoadedSite") -> "Iterator[origins.Origin]":
    """All keys in the order of config/site.py; an unset one with its default, if it has one."""
    left = list(loaded.origins)
    for key, default in _keys():
        found = [origin for origin in left if origin.key == key or origin.key.startswith((f"{key}.", f"{key}["))]
        left = [origin for origin in left if origin not in found]
        value = str(fetch_settings.fetch_settings(loaded.site).processors) if key == "processors" else None
        unset = f"not set: {KEYS[key].unset}" if key in KEYS and KEYS[key].unset else "not set"
        yield from found or origins.of_default(key, default) or [origins.Origin(key, value, unset)]
    yield from left


def _keys() -> Iterator[tuple[str, object]]:
    """Every key of a site file (`key.name` in a map) with its default, except `detect` and `extends`."""
    for key, field in config_site.keys_in_order().items():
        default = field.get_default()
        if isinstance(default, validate.Model) and key not in ("detect", "extends"):
            yield from ((f"{key}.{name}", getattr(default, name)) for name in type(default).model_fields)
        elif key not in ("detect", "extends"):
            yield key, default


def _shorter(origin: str) -> str:
    """The origin; `site NAME` instead of a position in a shipped site's file."""
    path = Path(origin.rpartition(":")[0])
    return f"site {path.stem}" if path.parent == find.shipped() / "sites" else origin


@command("site detect", JsonOption, lambda: sites.DetectedSite)
def site_detect(given: JsonOption) -> None:
    """Print the site that this machine belongs to, by its paths and devices; runs no program."""
    found = sites.detect(os.environ)
    if given.as_json:
        print_json(sites.DetectedSite(found.name, found.how, found.left_out))
        return
    for problem in found.left_out:
        say(f"warning: {problem}")
    say(found.how)
    echo(found.name)


@command("site show", SiteShowOptions, lambda: sites.ShownSite)
def site_show(given: SiteShowOptions) -> None:
    """Print the settings of a site (default: the active one), the origin of each value, and warnings."""
    shown = sites.show(load_facts(given.settings | ({"site": given.name} if given.name else {})))
    if given.as_json:
        print_json(shown)
        return
    print_origins(row._replace(origin=_shorter(row.origin)) for row in shown.origins)
    for problem in shown.warnings:
        say(f"warning: {problem}")


@command("site new", SiteNewOptions, lambda: sites.NewSite)
def site_new(given: SiteNewOptions) -> None:
    """Draft a site file from the properties of this machine, and print its path.

    By default it goes to ~/.config/sifmod/sites/NAME.yaml, where --site NAME finds it; existing files are never
    overwritten.
    """
    name, path, hidden = given.name, None, None
    if given.output == "-":
        text = sites.site_text(name, os.environ)
    else:
        text, path = sites.write_site(name, Path(given.output) if given.output else None, os.environ)
        hidden = sites.shadowed_by(path, os.environ)
    if hidden:
        say(f"the new file is your site {name} from now on, and hides {hidden}")
    if given.as_json:
        print_json(sites.NewSite(path and path.absolute(), name, text, hidden))
    elif path:
        echo(path)
    else:
        echo(text, nl=False)


config_command = group("config", "Show the configuration and the origin of each value.", config_show)
site_command = group("site", "Detect, show or draft the site of this machine.", site_detect, site_show, site_new)


@command("doctor", SiteOptions, lambda: list[machine.Finding])
def doctor_command(given: SiteOptions) -> int:
    """Check this machine: runtime, user namespaces, squashfs, GPUs, module tool, Slurm, disk space, prefix."""
    loaded = site_in_force(given.settings)
    findings = (*doctor.diagnose(loaded.site, os.environ), *doctor.diagnose_settings(os.environ))
    if given.as_json:
        print_json(findings)
    else:
        for line in in_order_of_need(findings, terminal_width()):
            echo(line)
    return 1 if any(finding.status == "missing" for finding in findings) else 0


def in_order_of_need(findings: "tuple[machine.Finding, ...]", width: int) -> Iterator[str]:
    """Lines of findings: what is missing, then notes, then what is ok; at most `width` wide, with a hanging indent."""
    subjects = max(len(finding.subject) for finding in findings)
    for status, mark in (("missing", "[!!]"), ("note", "[--]"), ("ok", "[ok]")):
        for finding in (one for one in findings if one.status == status):
            start = f"{mark} {finding.subject.ljust(subjects)}  "
            yield from hanging(start, finding.text, width)
            if finding.hint:
                yield from hanging(" " * len(start), f"=> {finding.hint}", width)


COMPLETION = {
    "bash": 'if command -v sifmod >/dev/null 2>&1; then eval "$(_SIFMOD_COMPLETE=bash_source sifmod)"; fi',
    # zsh has no completion without `compinit`
    "zsh": 'if (( $+commands[sifmod] && $+functions[compdef] )); then eval "$(_SIFMOD_COMPLETE=zsh_source sifmod)"; fi',
    "fish": "type -q sifmod; and _SIFMOD_COMPLETE=fish_source sifmod | source",
    "tcsh": "",  # click has no completion for it
}


class InitOptions(PrefixOption):
    shell: str = argument(kind=click.Choice(sorted(COMPLETION)))


@command("init", InitOptions)
def init_command(given: InitOptions) -> None:
    """Print the lines that make sifmod's modules and its completion available in SHELL.

    Modules of the prefix are found first, then those of the other trees (key `trees`).

    Add the lines to ~/.bashrc, ~/.zshrc, ~/.config/fish/config.fish or ~/.tcshrc, or evaluate them:

        eval "$(sifmod init bash)"

    tcsh has no completion.
    """
    trees = trees_for(given.prefix, named=True)
    # each `module use` puts its directory before the earlier ones
    use = "; ".join(f"module use {quote.shell(str(one.modules))}" for one in reversed(trees))
    # a shell without a module tool has no `module`
    if given.shell == "fish":
        write(f"if type -q module; {use}; end" if trees[1:] else f"type -q module; and {use}")
    elif given.shell == "tcsh":  # here `module` is an alias
        write(f"""if ("`alias module`" != "") then\n  {use}\nendif""")
    else:
        write(f"if command -v module >/dev/null 2>&1; then {use}; fi")
    if COMPLETION[given.shell]:
        write(COMPLETION[given.shell])


class ModuleOptions(JsonOption):
    directory: Path = argument("DIRECTORY", Path)
    syntax: str = "both"
    force: bool = False


@command("self module", ModuleOptions, lambda: own_module.WrittenModule)
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
