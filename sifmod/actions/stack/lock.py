"""stack lock: write down what is installed, so that exactly that can be installed elsewhere."""

from pathlib import Path

from sifmod.actions.layer.places import own_layers
from sifmod.actions.lock import LockedModule, locked_module, spelled_inputs
from sifmod.actions.stack.plan import Planned, plan_stack
from sifmod.errors import InstallError
from sifmod.tree.receipt import live


def locked_modules(planned: Planned, path: Path) -> tuple[LockedModule, ...]:
    """What a lock at `path` says of a stack that is installed as it says; `planned` has `anew`.

    Raises InstallError for a module that is not, and what is wrong with an easyconfig.
    """
    modules = []
    plan = plan_stack(planned)
    for step in plan.steps:
        if step.error:
            raise step.error
        installation = live(planned.layout, step.module) if step.module else None
        if step.mark != "x" or installation is None:
            why = f": {'; '.join(step.why)}" if step.why else ""
            raise InstallError(f"{step} is not installed as {step.member.easyconfig} says{why}", "install it first")
        request = plan.decide(step)
        inputs = spelled_inputs(request.inputs, path.parent, request.site.site.robot_paths)
        layers = own_layers(planned.layout, installation)
        modules.append(locked_module(installation, request.plan, inputs, layers))
    return tuple(sorted(modules))
