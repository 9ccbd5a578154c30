"""fetch: get an image by its reference into the store or a file; and what the fetch of an install shares with it."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from sifmod.actions.changing_prefix import changing_prefix
from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.hooks import of_image, run_hooks
from sifmod.actions.log import record_fetched
from sifmod.actions.reporter import Reporter
from sifmod.config.site import Site
from sifmod.digest import sha256_bytes
from sifmod.errors import Error, ImageError, OptionError, PermissionsError, SifmodError, UnstartableError
from sifmod.image.artifact import Artifact
from sifmod.image.fetch import announced_size, fetch_image
from sifmod.image.inspect.rootfs import tree_digest
from sifmod.image.reference import Reference
from sifmod.image.settings import Settings
from sifmod.image.sources.source_kinds import parse
from sifmod.module.plan import ImagePlan, Runtime
from sifmod.result import Beside, Described, Sha256
from sifmod.system import size_text
from sifmod.tree.generation import tidy
from sifmod.tree.store import Store
from sifmod.tree.target_store import target_store

LARGE = 2 * 10**9  # bytes


def ask_home(what: str, site: Site, how_large: Callable[[], int | None], reporter: Reporter) -> None:
    """Ask before a large download, or one of unknown size, goes to a home directory that the user did not choose.

    `how_large`, in bytes, is only called if the size matters. Raises what `how_large` raises, OptionError without an
    answer, and SifmodError if the answer is no.
    """
    if not site.prefix_is_default or not site.prefix.is_relative_to(Path.home()):
        return
    size = how_large()
    if size is not None and size <= LARGE:
        return
    large = f"{size_text(size)} large" if size else "of unknown size (most are 2 to 20 GB)"
    about = f"{what} is {large} and would go to {site.prefix}, in your home directory"
    choice = "choose a larger disk with --prefix DIR or SIFMOD_PREFIX=DIR, or repeat the command with --yes"
    agreed = reporter.confirm(about, f"Fetch it into {site.prefix} anyway?")
    if agreed is None:
        raise OptionError(f"{about}, and nobody answered; nothing was fetched", choice)
    if not agreed:
        raise SifmodError("nothing was fetched, as you chose", choice)


def into_store(image: ImagePlan, runtime: Runtime, store: Store, reporter: Reporter, settings: Settings) -> Artifact:
    """Like `fetch_image`; with `fresh` settings the store's image is not used, even if it has the expected digest.

    If `fetch_image` rejects an image of the expected digest in the store, and it is damaged, it is fetched again.
    """
    try:
        return fetch_image(image, runtime, store.refetching() if settings.fresh else store, reporter.progress, settings)
    except UnstartableError:
        raise
    except ImageError:
        if settings.fresh or image.sha256 is None or not store.damaged(image.sha256):
            raise
    reporter.say(f"the stored image {image.sha256[:12]}… is damaged and is fetched again")
    return fetch_image(image, runtime, store, reporter.progress, settings)


@dataclass(frozen=True)
class FetchOptions:
    """The options of one fetch."""

    sha256: str | None = None  # the expected digest
    arch: str | None = None  # default: the site's
    output: Path | None = None  # instead of the store
    force: bool = False  # fetch again what the store has, and replace the output file
    offline: bool = False
    keep_blobs: bool = False
    into_home: bool = False  # do not ask before a large image goes to the home directory


@dataclass(frozen=True)
class Conversion:
    """The compression and tools that make the same SIF again, and the digest of its root file system."""

    compression: str
    tools: tuple[tuple[str, str], ...]
    tree: Sha256


@dataclass(frozen=True)
class Promise:
    """The keys of `image` that promise a conversion."""

    sha256: Sha256
    conversion: Conversion


@dataclass(frozen=True)
class FetchedImage(Artifact):
    """A verified SIF, and the promise of its conversion."""

    promise: Annotated[Promise | None, Described("keys for an easyconfig; null for a SIF as it came")] = None


@dataclass(frozen=True)
class FetchedReference:
    """One of several references, and its image, or the error if it could not be fetched."""

    reference: str
    outcome: Beside[FetchedImage | Error]


def with_promise(artifact: Artifact) -> FetchedImage:
    """The image; a converted one with the keys that promise the conversion, which takes reading the whole SIF."""
    made, promise = artifact.origin, None
    if made.compression:
        conversion = Conversion(made.compression, made.tools, tree_digest(artifact.path))
        promise = Promise(artifact.sha256, conversion)
    return FetchedImage(**vars(artifact), promise=promise)


def fetch(source: str, site: Site, options: FetchOptions, reporter: Reporter) -> Artifact:
    """The image of `source`, verified, in the store or at `options.output`; idempotent.

    Raises the errors of `fetch_image` and of `ask_home`, and HookError.
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
    tree = reporter.tree(site)
    if options.output is not None:
        with target_store(options.output, tree, replace=options.force) as one:
            return fetch_image(image, runtime, one, reporter.progress, settings)
    name = f"fetch-{sha256_bytes(f'{image.sources[0]} {image.arch}'.encode())[:16]}"
    with changing_prefix(site), ExitStack() as stack:
        tidy(tree)  # leftovers of a killed run may take the space that is needed
        try:
            held = stack.enter_context(tree.lock(name, reference.shown))
        except PermissionsError as error:
            error.hint += "; for a single file use -o FILE"
            raise
        store = Store(tree.layout, held, reporter.waiting(reference.shown), others=site.stores)
        if not options.into_home:
            what = f"the image {reference.shown}"
            ask_home(what, site, lambda: announced_size(image, runtime, store, settings), reporter)
        artifact = into_store(image, runtime, store, reporter, settings)
        record_fetched(tree, store, reporter)
        return artifact
