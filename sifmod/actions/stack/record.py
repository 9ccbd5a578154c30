"""The record that a tree keeps of a stack, changed under the stack's lock."""

from collections.abc import Callable

from sifmod.actions.changing_prefix import site_umask
from sifmod.actions.reporter import Reporter
from sifmod.config.site import Site
from sifmod.tree.layout import Layout
from sifmod.tree.lock import lock
from sifmod.tree.stack import Applied, read_applied, write_applied


def change_record(
    layout: Layout, name: str, change: Callable[[Applied | None], Applied], site: Site, reporter: Reporter
) -> None:
    """Make it what `change` makes of it; none is begun that would say nothing. Raises LockError, InstallError."""
    before = read_applied(layout, name)
    wanted = change(before)
    if wanted == before or (before is None and not wanted.modules and not wanted.images):
        return
    with (
        site_umask(site),
        lock(layout, f"stack-{name}", site.lock_lease, reporter.waiting(f"the stack {name}")) as held,
    ):
        write_applied(layout, change(read_applied(layout, name)), held)  # another run may have written meanwhile
