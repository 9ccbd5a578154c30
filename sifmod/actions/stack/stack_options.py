"""StackOptions: the options for a stack; and the stack, read with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.install.options import InstallOptions
from sifmod.actions.lock import Lock, lock_beside, read_lock
from sifmod.actions.start import layout_at, site_in_force
from sifmod.config.load_site import LoadedSite
from sifmod.config.stack import Stack, load_stack
from sifmod.tree.layout import Layout

Given = Mapping[str, str]


@dataclass(frozen=True)
class StackOptions:
    """The options of the command line for a stack."""

    site: Given = field(default_factory=dict)  # options by key of the site (option.KEYS)
    install: InstallOptions = field(default_factory=InstallOptions)
    locked: bool = False  # every module must match the lock beside the stack's file
    only: tuple[str, ...] = ()  # these modules, by their names or beginnings, and no others
    jobs: int | None = None  # modules at the same time; None: as many as processors
    whole: bool = False  # the stack is a bundle's, which may only name files below its directory


class Planned(NamedTuple):
    """A stack, and the options for all of its modules."""

    stack: Stack
    layout: Layout
    site: LoadedSite  # of a member that names none
    given: Given  # options of the command line by key of the site
    options: InstallOptions  # of the command line, without those that decide what is installed
    lock: Lock | None = None  # which every module must match
    redecide: bool = False  # everything is decided again, though a receipt says that nothing has changed
    jobs: int = 1  # how many are installed at the same time


def read_stack(stack: Path | Stack, options: StackOptions) -> Planned:
    """A stack, or the one in this file, with its options.

    Raises the errors of `load_stack`, PermissionsError; OptionError, also for a lock that cannot be read.
    """
    site = site_in_force(options.site)
    found = load_stack(stack, whole=options.whole) if isinstance(stack, Path) else stack
    layout = layout_at(site.site.prefix)
    lock = read_lock(lock_beside(found.path)) if options.locked else None
    jobs = options.jobs or fetch_settings(site.site).processors
    return Planned(found, layout, site, options.site, options.install, lock, jobs=jobs)
