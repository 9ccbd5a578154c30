"""The promises of an easyconfig about its image, held against what was fetched."""

from sifmod.errors import ImageError
from sifmod.image.convert.tree_digest import tree_digest
from sifmod.image.sources.fetched import Fetched
from sifmod.image.sources.reference import Reference
from sifmod.module.plan import ConversionPlan, ImagePlan

_READY_MADE = ("name", "path", "https", "http", "oras", "library")  # the same bytes each time


def check_promise(reference: Reference, image: ImagePlan, fetched: Fetched) -> tuple[str, ...]:
    """Raise ImageError unless `fetched` is what `image` promises; gives what its author could add to promise more.

    A docker or oci image is converted, and other versions of the tools, or another processor, may make another SIF of
    it: whenever the bytes differ the files in it are compared.
    """
    if image.sha256 is None:
        return _to_pin(reference, fetched)
    if image.sha256 == fetched.sha256:
        return ()
    promised = image.conversion
    if reference.kind in _READY_MADE:
        raise _broken(image, fetched, "the file was replaced at its source, or damaged on its way")
    if promised is None:
        raise _broken(image, fetched, "a SIF made elsewhere has other bytes; `sifmod fetch` says what to promise")
    return _compare(image, promised, fetched)


def _compare(image: ImagePlan, promised: ConversionPlan, fetched: Fetched) -> tuple[str, ...]:
    found = tree_digest(fetched.path)
    if found != promised.tree:
        raise ImageError(
            f"the files in {image.filename} are not the promised ones, and nothing of it was kept\n"
            f"    expected {promised.tree}\n    got      {found}",
            "the image was replaced at its source; correct `conversion:` only if you know why it changed",
        )
    made = fetched.origin
    same = (made.compression, sorted(made.tools)) == (promised.compression, sorted(promised.tools))
    what = "the same tools on another machine" if same else "other versions of the tools"
    return (f"{what} made another SIF than the promised one; the files in it are the same",)


def _broken(image: ImagePlan, fetched: Fetched, likely: str) -> ImageError:
    return ImageError(
        f"the SHA-256 of {image.filename} is not the promised one, and nothing of it was kept\n"
        f"    expected {image.sha256}\n    got      {fetched.sha256}",
        f"{likely}; correct `sha256:` in the easyconfig only if you know why it changed",
    )


def _to_pin(reference: Reference, fetched: Fetched) -> tuple[str, ...]:
    if reference.kind in _READY_MADE:
        return (f"no digest was promised; to pin this image add to `image:`  sha256: {fetched.sha256}",)
    if reference.kind == "docker" and not reference.digest:
        digest = fetched.origin.index or fetched.origin.manifest
        pinned = f"docker://{reference.location}@{digest}"
        return (f"no digest was promised; to pin this image write its source as  {pinned}",)
    return ()
