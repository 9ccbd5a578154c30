"""What hooks are told of an install, as what JSON can say; docs/hooks.md describes it."""

from sifmod.actions.hooks import OfInstall, of_image
from sifmod.actions.install.request import Request
from sifmod.image.artifact import Artifact
from sifmod.tree.receipt import Installation


def of_install(request: Request, found: Artifact | None = None, done: Installation | None = None) -> OfInstall:
    """The plan of an install; with the image that was found, or the generation that came of it."""
    plan = request.plan
    return {
        "module": str(plan.module),
        "easyconfig": str(request.loaded.path.absolute()),
        "variant": request.loaded.variant,
        "accelerator": plan.accelerator,
        "module_only": request.options.module_only,
        "loads": list(plan.modules),
        "image": of_image(plan.image, found or (done.image if done else None)) if plan.image else None,
        "wrappers": [wrapper.name for wrapper in plan.wrappers],
        "binds": [str(bind) for bind in plan.binds],
        "env": dict(plan.env),
        "host_env": dict(plan.host_env),
        "license": request.loaded.easyconfig.license,
        "contents": dict(plan.help.contents),
        "generation": done.generation if done else None,
        "path": done.root if done else None,
    }
