"""doctor: check this machine and report what works, what is missing and what to do about it. Changes nothing."""

import os
import shutil
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from sifmod.actions import sharing
from sifmod.actions.author.check import DIRECTORIES, check_settings
from sifmod.actions.disk_usage import disk_usage
from sifmod.actions.layer.places import found_layers, is_stale, known, layouts_of
from sifmod.actions.machine import Finding, machine_findings
from sifmod.actions.start import unreadable
from sifmod.config.input import module_tools
from sifmod.config.kinds import module_tool
from sifmod.config.prefix import settings_directories
from sifmod.config.site import Site
from sifmod.errors import ConfigError, PermissionsError, SifmodError
from sifmod.module.quote import shell
from sifmod.system import size_text, starts_programs
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live_modules

GB = 10**9
_FORM = {"lua": "Lua", "tcl": "Tcl"}
_BOTH = "`module_syntax: both` in ~/.config/sifmod/config.yaml makes later installs write both modulefiles"


def diagnose(site: Site, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """The findings about this machine, the prefix, the other trees, and this user's caches and layers."""
    parts = (
        machine_findings(site, environ),
        _modulefiles(site, environ),
        _space(site),
        _disk_usage(site),
        _trees(site),
        _stale_layers(site, environ),
        _sharing(site),
    )
    return tuple(chain.from_iterable(parts))


def _modulefiles(site: Site, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report modules, installed or future ones, that a module tool of this machine does not see."""
    layout = Layout(site.prefix)
    try:
        modules = [module for module, _ in live_modules(layout)]
        for syntax in module_tools(environ):
            tool = module_tool(syntax)
            if unseen := sum(not layout.module_file(module, syntax).exists() for module in modules):
                text = f"{tool} does not see {unseen} of {len(modules)} modules in {site.prefix}"
                own = f" --prefix {shell(str(site.prefix))}" if not site.prefix_is_default else ""
                again = f"sifmod install --module-only --installed --module-syntax both{own}"
                why = f"{text}: no {_FORM[syntax]} modulefile"
                yield Finding("modulefiles", "note", why, f"`{again}` adds it; {_BOTH}")
            elif syntax not in site.module_syntax:
                yield Finding(
                    "modulefiles",
                    "note",
                    f"{tool} is on this machine too, and will not see the modules that you install",
                    _BOTH,
                )
    except OSError as error:
        yield Finding("modulefiles", "note", f"{site.prefix} cannot be read: {error}")


def _space(site: Site) -> Iterator[Finding]:
    prefix = Path(site.prefix)
    place = next(folder for folder in (prefix, *prefix.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    in_home = prefix.is_relative_to(os.path.expanduser("~"))  # noqa: PTH111 (without a home it stays as it is)
    asks = "; sifmod asks before it fetches images over 2 GB" if in_home else ""
    chosen = f"default{asks}" if site.prefix_is_default else "configured"
    text = f"{prefix} ({chosen}), {free / GB:.1f} GB free"
    if not os.access(place, os.W_OK):
        yield Finding("prefix", "missing", f"{text}, not writable", "choose your own: export SIFMOD_PREFIX=DIR")
    elif not starts_programs(place):
        why = f"{text}, mounted noexec: no command of a module starts here"
        yield Finding("prefix", "missing", why, "choose another one: export SIFMOD_PREFIX=DIR")
    elif free < 10 * GB:
        yield Finding(
            "prefix", "note", text, "PyTorch images are 5 to 20 GB: export SIFMOD_PREFIX=DIR on a larger disk"
        )
    else:
        yield Finding("prefix", "ok", text)


def _disk_usage(site: Site) -> Iterator[Finding]:
    """Report the size of caches and temporary files, and the commands that free the space."""
    found = disk_usage(site)
    for room in found:
        if room.kind == "cache":
            text = f"{room.path} takes {room.text}: {room.why}"
            yield Finding(room.name, "note", text, f"`{room.command}` frees it")
    if temporary := [room for room in found if room.kind == "temporary files"]:
        size = size_text(sum(room.size for room in temporary))
        what = f"{len(temporary)} directories of jobs and commands, such as {temporary[0].path}, take {size}"
        yield Finding("temporary files", "note", what, "`sifmod gc` lists them, with the commands that free them")


def _trees(site: Site) -> Iterator[Finding]:
    """Report the site's other trees, which sifmod only reads: the readable and the unreadable ones."""
    others = tuple(map(Layout, site.trees))
    closed = unreadable(others)
    for one in others:
        if one in closed:
            yield Finding("trees", "missing", closed[one], "correct `trees`; `sifmod config show` says where it is set")
        else:
            yield Finding("trees", "ok", f"{one.prefix}, {len(live_modules(one))} modules, only read")


def _stale_layers(site: Site, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report the size of layers that match no installed image."""
    try:
        trees = layouts_of(site, environ)
        modules = known(trees)
    except (SifmodError, OSError):  # a tree that this user cannot read, which another line reports
        return
    try:
        stale = [layer for layer in found_layers(trees, environ) if is_stale(layer, modules)]
    except PermissionsError as error:
        yield Finding("layers", "missing", error.message, error.hint)
        return
    except OSError:
        return
    if stale:
        size = size_text(sum(layer.size for layer in stale))
        text = f"{len(stale)} layers for images that are no longer installed take {size}"
        yield Finding(
            "stale layers",
            "note",
            text,
            "`sifmod layer list` lists them, with the commands that remove them; then run `sifmod gc --yes --now`",
        )


def _sharing(site: Site) -> Iterator[Finding]:
    if site.sharing is None:
        return
    try:
        oddities = (*sharing.sharing_warnings(site), *sharing.closed(site))
    except SifmodError as error:  # an unknown group, or a prefix that this user cannot read
        oddities = (error.message,)
    for oddity in oddities:
        yield Finding("sharing", "missing", oddity)
    if not oddities:
        group = f", group {site.group}" if site.group else ""
        yield Finding("sharing", "ok", f"`{site.sharing}`{group}: its intended users can reach {site.prefix}")


def diagnose_settings(environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """A finding for each invalid site, quirk and MPI profile beside the shipped ones; one `ok` if all are valid."""
    hint = "`install`, `show` and `check` of an easyconfig may stop at it: correct it, or move it away"
    found, looked_at = list[Finding](), 0
    for directory in settings_directories(environ):
        for name, kind in DIRECTORIES.items():
            for path in sorted((directory / name).glob("*.yaml")):
                looked_at += 1
                try:
                    check_settings(path, kind, environ)
                except ConfigError as error:
                    found.append(Finding("settings", "missing", "; ".join(map(str, error.problems)), hint))
    well = f"{looked_at} site files, quirks and MPI profiles beside the shipped ones"
    return tuple(found) or (Finding("settings", "ok", well),)
