"""The record of a test: a line in the module's log, where this user may write one."""

import os
from pathlib import Path

from sifmod.actions.changing_prefix import site_umask
from sifmod.actions.log import record
from sifmod.actions.reporter import Reporter
from sifmod.config.site import Site
from sifmod.errors import SifmodError
from sifmod.tree.generation import module_lock
from sifmod.tree.layout import Layout
from sifmod.tree.log import TEST_FAILED, TEST_PASSED, Done
from sifmod.tree.receipt import Installation


def record_test(installation: Installation, site: Site, reporter: Reporter, *, passed: bool) -> None:
    """Say in the log of the module what became of a test. A reader of the tree writes nothing; a test is none less."""
    layout = Layout(Path(installation.root).parents[4])
    if not os.access(layout.prefix, os.W_OK):
        return
    module, number, what = installation.module, installation.generation, TEST_PASSED if passed else TEST_FAILED
    try:
        with site_umask(site), module_lock(layout, module, site.lock_lease, reporter.waiting(module)) as held:
            record(layout, Done(what, module, number, number, installation.digest or None), held, reporter)
    except SifmodError as error:
        reporter.warn_once("the log", f"the test is not in the log: {error.message}")
