"""fetch: an image by its reference, without an easyconfig."""

from dataclasses import dataclass
from pathlib import Path

from sifmod.actions.ask_home import ask_home
from sifmod.actions.changing_prefix import changing_prefix, site_umask
from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.hooks import of_image, run_hooks
from sifmod.actions.into_store import into_store
from sifmod.actions.log import record_fetched
from sifmod.actions.reporter import Reporter
from sifmod.config.site import Site
from sifmod.digest import sha256_bytes
from sifmod.image.artifact import Artifact
from sifmod.image.fetch import announced_size, fetch_image
from sifmod.image.reference import Reference
from sifmod.image.sources.kinds import parse
from sifmod.module.plan import ImagePlan, Runtime
from sifmod.tree.generation import tidy
from sifmod.tree.layout import Layout
from sifmod.tree.lock import lock
from sifmod.tree.partial import beside
from sifmod.tree.store import Store


@dataclass(frozen=True)
class FetchOptions:
    """What the command line asks of one fetch."""

    sha256: str | None = None  # the promise
    arch: str | None = None  # the site's where it is not given
    output: Path | None = None  # instead of the store
    force: bool = False  # fetch again what is there, and replace the file
    offline: bool = False
    keep_blobs: bool = False
    into_home: bool = False  # a large image may go to the home directory without a question


def fetch(source: str, site: Site, options: FetchOptions, reporter: Reporter) -> Artifact:
    """The image of `source`, verified, in the store or at `options.output`; idempotent.

    Raises FetchError, ImageError, NoSpaceError, RuntimeMissingError as `fetch_image` does, and what `ask_home` does.
    """
    reference = parse(source)
    if (path := reference.kind.local_sif(reference, site.image_dirs)) is not None:
        source = str(path.absolute())
    image = ImagePlan(
        filename=options.output.name if options.output else reference.name,
        sources=(source,),
        image_dirs=site.image_dirs,
        build=None,
        sha256=options.sha256,
        arch=options.arch or site.arch,
        link="copy",
        offline=options.offline,
    )
    run_hooks(site, "before_fetch", {"module": None, "image": of_image(image)}, reporter.say)
    artifact = _fetched(image, reference, site, options, reporter)
    run_hooks(site, "after_fetch", {"module": None, "image": of_image(image, artifact)}, reporter.say)
    return artifact


def _fetched(image: ImagePlan, reference: Reference, site: Site, options: FetchOptions, reporter: Reporter) -> Artifact:
    settings = fetch_settings(site, keep_blobs=options.keep_blobs, fresh=options.force)
    runtime = Runtime(site.runtime_kind, site.runtime_path)
    if options.output is not None:
        waiting = reporter.waiting(options.output)
        with (
            site_umask(site),
            beside(options.output, site.lock_lease, waiting, replace=options.force) as one,
        ):
            return fetch_image(image, runtime, one, reporter.progress, settings)
    layout, waiting = Layout(site.prefix), reporter.waiting(reference.shown)
    name = f"fetch-{sha256_bytes(f'{image.sources[0]} {image.arch}'.encode())[:16]}"
    with changing_prefix(site):
        tidy(layout, site.lock_lease, waiting)  # what a killed run has left may take the room that is needed
        with lock(layout, name, site.lock_lease, waiting) as held:
            store = Store(layout, held, waiting, others=site.stores)
            if not options.into_home:
                what = f"the image {reference.shown}"
                ask_home(what, site, lambda: announced_size(image, runtime, store, settings), reporter)
            artifact = into_store(image, runtime, store, reporter, settings)
            record_fetched(layout, store, site.lock_lease, reporter)
            return artifact
