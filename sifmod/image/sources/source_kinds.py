"""The kinds of sources, one per line; and the references of an image, each with its kind."""

import difflib
import re
from pathlib import Path

from sifmod.config.redact import shown
from sifmod.errors import FetchError
from sifmod.image.reference import Reference, in_a_registry, refused
from sifmod.image.sources.build import BUILD, inputs
from sifmod.image.sources.docker import DOCKER
from sifmod.image.sources.docker_archive import DOCKER_ARCHIVE
from sifmod.image.sources.dockerfile import DOCKERFILE, context_files
from sifmod.image.sources.file import FILE
from sifmod.image.sources.https import HTTPS
from sifmod.image.sources.library import LIBRARY
from sifmod.image.sources.oci import OCI
from sifmod.image.sources.oci_archive import OCI_ARCHIVE
from sifmod.image.sources.oras import ORAS
from sifmod.image.sources.recipe import RECIPE, recipe_files
from sifmod.module.plan import ImagePlan

KINDS = (
    FILE,
    HTTPS,
    OCI,
    OCI_ARCHIVE,
    DOCKER_ARCHIVE,
    DOCKER,
    ORAS,
    LIBRARY,
    BUILD,
    DOCKERFILE,
    RECIPE,
)
_SCHEMES = {scheme: kind for kind in KINDS for scheme in kind.schemes}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def parse(source: str) -> Reference:
    """Parse a source; pure. Raises FetchError for an invalid source, so that it is never misread.

    A text without a scheme is a path if it contains a `/`, and else a bare name, such as `tool:1.0.sif`.
    """
    if not source or source != source.strip() or not source.isprintable():
        raise FetchError(
            f"source {shown(source)!r} is empty, has a blank at an end or a control character in it, or is not UTF-8"
        )
    if scheme := _SCHEME.match(source):
        kind = _SCHEMES.get(scheme[1])
        if kind is None and source.endswith(".sif") and "/" not in source:
            kind = FILE
        if kind is None:
            raise _unknown(source, scheme[1])
    else:
        first, slashes, _ = source.partition("//")
        if slashes and first.lower() in _SCHEMES:
            raise refused(source, f"a colon is missing after {first}", f"for a file of that name write ./{first}//…")
        kind = FILE
    return kind.reference(source)


def references(image: ImagePlan) -> tuple[Reference, ...]:
    """The sources of an image, in order; raises FetchError for an invalid one before any is tried."""
    if build := image.build:
        kind = BUILD if build.definition else DOCKERFILE if build.dockerfile else RECIPE
        return (kind.reference(build.definition or build.dockerfile or f"build:{build}"),)
    return tuple(map(parse, image.sources))


def local_files(image: ImagePlan) -> tuple[str, ...]:
    """The local files that identify the image: SIFs, archives, an OCI layout's index, the inputs of a build."""
    if image.build and image.build.definition:
        return tuple(map(str, inputs(Path(image.build.definition), image.build.arguments)))
    if image.build and image.build.dockerfile:
        return tuple(map(str, context_files(image.build)))
    found = (reference.kind.watched(reference, image.image_dirs) for reference in references(image))
    own = tuple(path for paths in found for path in paths)
    return (
        (*own, *recipe_files(image.build), *local_files(image.build.base)) if image.build and image.build.base else own
    )


def _unknown(source: str, scheme: str) -> FetchError:
    close = difflib.get_close_matches(scheme.lower(), _SCHEMES, 1)
    known = f"known are {', '.join(f'{name}:' for name in _SCHEMES)}"
    meant = f"did you mean {close[0]}:?" if close else f"{in_a_registry(source) or known}."
    return refused(source, f"unknown scheme {scheme}:", f"{meant} For a file of that name write ./ before it")
