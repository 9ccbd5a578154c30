"""dry runs: what an install would do, without doing it."""

from pathlib import Path

from sifmod.actions.install.current import is_complete
from sifmod.actions.install.mpi import with_recorded_mpi
from sifmod.actions.install.request import Request
from sifmod.actions.install.wrappers import with_recorded_wrappers
from sifmod.config.shown import shown
from sifmod.module.plan import Plan
from sifmod.module.render import render, render_stub
from sifmod.tree.history import read_history
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation, live, numbers


def mark(request: Request) -> str:
    """EasyBuild's mark: `x` installed, `F` forced, `R` rebuilt, blank to install."""
    if request.options.force:
        return "F"
    layout = Layout(Path(request.plan.prefix))
    before = live(layout, request.plan.module)
    if before is None:
        return " "
    return "x" if is_complete(layout, before, request) else "R"


def overview(request: Request) -> tuple[str, ...]:
    """The decisions a user wants to see before an install, a line each."""
    plan = request.plan
    layout = Layout(Path(plan.prefix))
    runtime = f"{plan.runtime.kind} ({plan.runtime.path or 'not found here'})"
    return (
        f"site         {request.site.site.name}, accelerator {plan.accelerator}, runtime {runtime}",
        f"variant      {request.loaded.variant or '-'}",
        f"modulefile   {', '.join(str(layout.module_file(plan.module, syntax)) for syntax in plan.syntaxes)}",
        f"software     {layout.switch(plan.module)}",
        *_image(plan),
        *(f"bind         {bind}{' (optional)' if bind.optional else ''}" for bind in plan.binds),
        *((f"wrappers     {_wrappers(plan, live(layout, plan.module))}",) if plan.image else ()),
    )


def _image(plan: Plan) -> tuple[str, ...]:
    """Where the image comes from; of a view, what it loads."""
    image = plan.image
    if image is None:
        return tuple(f"loads        {module}" for module in plan.modules)
    sources = tuple(map(shown, image.sources)) or (f"build {image.build}",)
    promise = image.sha256 or "not stated: install prints it"
    return (*(f"image        {source}" for source in sources), f"sha256       {promise}")


def _wrappers(plan: Plan, before: Installation | None) -> str:
    """Their names; those that `auto` finds as they were found in the image that is installed."""
    known = with_recorded_wrappers(plan, before)
    later = ("(auto: those found in the image)",) if plan.wrappers_auto and known is plan else ()
    return " ".join((*(wrapper.name for wrapper in known.wrappers), *later, *known.packers))


def texts(request: Request) -> tuple[tuple[str, str], ...]:
    """Every file that would be written, as (path, text); exact, since rendering needs no image.

    But for the wrappers that `auto` stands for: those of an image that is not there yet are not among them.
    """
    layout = Layout(Path(request.plan.prefix))
    before = live(layout, request.plan.module)
    plan = with_recorded_mpi(with_recorded_wrappers(request.plan, before), before)
    used = {event.generation or 0 for event in read_history(layout, plan.module)}
    number = 1 + max((*used, *numbers(layout, plan.module)), default=0)
    root = layout.generation(plan.module, number)
    files = [(str(root / file.path), file.text) for file in render(plan, number)]
    stubs = [(str(layout.modules / file.path), file.text) for file in render_stub(plan)]
    return tuple(files + stubs)
