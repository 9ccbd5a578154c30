"""`sifmod config`, `site`, `doctor` and `init`: commands about this machine."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sifmod.actions.start import site_in_force, trees_for
from sifmod.cli.command import argument, command, group
from sifmod.cli.context import load_facts
from sifmod.cli.output import echo, hanging, print_json, print_origins, say, terminal_width, write
from sifmod.cli.shared_options import JsonOption, PrefixOption, SiteOptions
from sifmod.config.option import KEYS

if TYPE_CHECKING:
    from sifmod.actions.machine import Finding
    from sifmod.config.load_site import LoadedSite
    from sifmod.config.origin import Origin


class SiteShowOptions(SiteOptions):
    name: str | None = argument("[NAME|FILE]", default=None)


class SiteNewOptions(JsonOption):
    name: str = argument("NAME")
    output: str | None = None


@command("config show", SiteOptions)
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


def _every(loaded: "LoadedSite") -> "Iterator[Origin]":
    """All keys in the order of config/site.py; an unset one with its default, if it has one."""
    from sifmod.actions.fetch_settings import fetch_settings
    from sifmod.config.origin import Origin, of_default

    left = list(loaded.origins)
    for key, default in _keys():
        found = [origin for origin in left if origin.key == key or origin.key.startswith((f"{key}.", f"{key}["))]
        left = [origin for origin in left if origin not in found]
        value = str(fetch_settings(loaded.site).processors) if key == "processors" else None
        unset = f"not set: {KEYS[key].unset}" if key in KEYS and KEYS[key].unset else "not set"
        yield from found or of_default(key, default) or [Origin(key, value, unset)]
    yield from left


def _keys() -> Iterator[tuple[str, object]]:
    """Every key of a site file (`key.name` in a map) with its default, except `detect` and `extends`."""
    from sifmod.config.site import keys_in_order
    from sifmod.config.yaml.validate import Model

    for key, field in keys_in_order().items():
        default = field.get_default()
        if isinstance(default, Model) and key not in ("detect", "extends"):
            yield from ((f"{key}.{name}", getattr(default, name)) for name in type(default).model_fields)
        elif key not in ("detect", "extends"):
            yield key, default


def _shorter(origin: str) -> str:
    """The origin; `site NAME` instead of a position in a shipped site's file."""
    from sifmod.config.find import shipped

    path = Path(origin.rpartition(":")[0])
    return f"site {path.stem}" if path.parent == shipped() / "sites" else origin


@command("site detect", JsonOption)
def site_detect(given: JsonOption) -> None:
    """Print the site that this machine belongs to, by its paths and devices; runs no program."""
    from sifmod.actions.author.site import DetectedSite
    from sifmod.actions.author.site import detect as look

    found = look(os.environ)
    if given.as_json:
        print_json(DetectedSite(found.name, found.how, found.left_out))
        return
    for problem in found.left_out:
        say(f"warning: {problem}")
    say(found.how)
    echo(found.name)


@command("site show", SiteShowOptions)
def site_show(given: SiteShowOptions) -> None:
    """Print the settings of a site (default: the active one), the origin of each value, and warnings."""
    from sifmod.actions.author.site import show

    shown = show(load_facts(given.settings | ({"site": given.name} if given.name else {})))
    if given.as_json:
        print_json(shown)
        return
    print_origins(row._replace(origin=_shorter(row.origin)) for row in shown.origins)
    for problem in shown.warnings:
        say(f"warning: {problem}")


@command("site new", SiteNewOptions)
def site_new(given: SiteNewOptions) -> None:
    """Draft a site file from the properties of this machine, and print its path.

    By default it goes to ~/.config/sifmod/sites/NAME.yaml, where --site NAME finds it; existing files are never
    overwritten.
    """
    from sifmod.actions.author.site import NewSite, shadowed_by, site_text, write_site

    name, path, hidden = given.name, None, None
    if given.output == "-":
        text = site_text(name, os.environ)
    else:
        text, path = write_site(name, Path(given.output) if given.output else None, os.environ)
        hidden = shadowed_by(path, os.environ)
    if hidden:
        say(f"the new file is your site {name} from now on, and hides {hidden}")
    if given.as_json:
        print_json(NewSite(path and path.absolute(), name, text, hidden))
    elif path:
        echo(path)
    else:
        echo(text, nl=False)


config_command = group("config", "Show the configuration and the origin of each value.", config_show)
site_command = group("site", "Detect, show or draft the site of this machine.", site_detect, site_show, site_new)


@command("doctor", SiteOptions)
def doctor_command(given: SiteOptions) -> int:
    """Check this machine: runtime, user namespaces, squashfs, GPUs, module tool, Slurm, disk space, prefix."""
    from sifmod.actions.doctor import diagnose, diagnose_settings

    loaded = site_in_force(given.settings)
    findings = (*diagnose(loaded.site, os.environ), *diagnose_settings(os.environ))
    if given.as_json:
        print_json(findings)
    else:
        for line in in_order_of_need(findings, terminal_width()):
            echo(line)
    return 1 if any(finding.status == "missing" for finding in findings) else 0


def in_order_of_need(findings: "tuple[Finding, ...]", width: int) -> Iterator[str]:
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
    from sifmod.module.quote import shell as quoted

    trees = trees_for(given.prefix, named=True)
    # each `module use` puts its directory before the earlier ones
    use = "; ".join(f"module use {quoted(str(one.modules))}" for one in reversed(trees))
    # a shell without a module tool has no `module`
    if given.shell == "fish":
        write(f"if type -q module; {use}; end" if trees[1:] else f"type -q module; and {use}")
    elif given.shell == "tcsh":  # here `module` is an alias
        write(f"""if ("`alias module`" != "") then\n  {use}\nendif""")
    else:
        write(f"if command -v module >/dev/null 2>&1; then {use}; fi")
    if COMPLETION[given.shell]:
        write(COMPLETION[given.shell])
