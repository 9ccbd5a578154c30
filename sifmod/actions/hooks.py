"""Hooks: the site's own programs run before and after a step, get its data, and can stop it."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from typing_extensions import TypedDict

from sifmod import __version__
from sifmod.config.hook import Hook, Moment, distrusted
from sifmod.config.redact import shown
from sifmod.config.site import Site
from sifmod.errors import HookError
from sifmod.system import scratch_directory
from sifmod.tree.locking import HOOK

if TYPE_CHECKING:
    from sifmod.image.artifact import Artifact
    from sifmod.module.plan import ImagePlan
    from sifmod.tree.receipt import ImageRecord

_SHOWN = 10  # lines of a hook's output
_STATE = {
    "before_fetch": "nothing was fetched",
    "after_install": "the module is as it was",
    "before_publish": "the module is as it was",
    "after_fetch": "the image was fetched anyway",
    "after_publish": "the module was published anyway",
    "after_retire": "the module was retired anyway",
}


class _Head(TypedDict):
    """Data for every hook."""

    sifmod: str
    prefix: str
    site: str


class OfImage(TypedDict):
    """The image's origin; its size and path are null before the fetch."""

    sources: list[str]
    build: str | None
    arch: str
    sha256: str | None
    size: int | None
    path: str | None


class OfInstall(TypedDict):
    """The plan of an install; generation and path are null before the generation exists."""

    module: str
    easyconfig: str
    variant: str | None
    accelerator: str
    module_only: bool
    loads: list[str]
    image: OfImage | None
    wrappers: list[str]
    binds: list[str]
    env: dict[str, str]
    host_env: dict[str, str]
    license: str
    contents: dict[str, str]
    generation: int | None
    path: str | None


class OfFetch(TypedDict):
    """A fetch of an image without a module."""

    module: None
    image: OfImage


class OfRetire(TypedDict):
    """A module that is to be retired, or was."""

    module: str


class InstallHook(_Head, OfInstall):
    """The standard input of an install hook."""

    hook: Literal[
        "before_fetch", "after_fetch", "before_install", "after_install", "before_publish", "after_publish"
    ]  # fmt: skip


class FetchHook(_Head, OfFetch):
    """The standard input of a fetch hook."""

    hook: Literal["before_fetch", "after_fetch"]


class RetireHook(_Head, OfRetire):
    """The standard input of a retire hook."""

    hook: Literal["before_retire", "after_retire"]


def run_hooks(site: Site, moment: Moment, data: OfInstall | OfFetch | OfRetire, say: Callable[[str], None]) -> None:
    """Run the site's hooks of this moment, one after the other, each with `data` as JSON on its standard input.

    `say` gets the last lines of a hook that succeeds. Raises HookError for the first one that fails, takes too long, is
    missing, or that other users could have written.
    """
    head: _Head = {"sifmod": __version__, "prefix": str(site.prefix), "site": site.name}
    for hook in site.hooks:
        if hook.moment == moment:
            _run(hook, {"hook": moment, **head, **data}, say)


def of_image(image: "ImagePlan", found: "Artifact | ImageRecord | None" = None) -> OfImage:
    """The image's origin, and the image once it is known, as hook data."""
    return {
        "sources": [shown(source) for source in image.sources],
        "build": str(image.build) if image.build else None,
        "arch": image.arch,
        "sha256": found.sha256 if found else image.sha256,
        "size": found.size if found else None,
        "path": str(found.path) if found else None,
    }


def _run(hook: Hook, data: Mapping[str, object], say: Callable[[str], None]) -> None:
    from sifmod.image.child import LATE, run_child

    after = _STATE.get(hook.moment, "nothing was changed")
    name = f"the hook {hook.program} ({hook.moment})"
    if why := distrusted(hook):
        hint = (
            f"the program, its interpreter, {hook.said_in}, and the directories above must exist and belong to root or "
            "you, and others must not write there: chmod go-w"
        )
        raise HookError(f"{name} was not run: {why}; {after}", hint)
    with scratch_directory() as directory:
        file = directory / "data.json"
        file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        start = ("/bin/sh", "-c", 'exec "$1" <"$2"', "sh", hook.program, str(file))
        env = {**os.environ, HOOK: f"{os.getpid()} {name}"}
        ended = run_child(start, cwd=Path("/"), env=env, limit=hook.seconds)
    lines = ended.lines[-_SHOWN:]
    if ended.code == 0:
        for line in lines:
            say(f"{Path(hook.program).name}: {line}")
    if ended.code == 0:
        return
    how = f"did not finish within {hook.seconds} s" if ended.code == LATE else f"failed with exit code {ended.code}"
    said = "".join(f"\n  {line}" for line in lines)
    raise HookError(f"{name} {how}; {after}{said}", f"{hook.said_in} configures it")
