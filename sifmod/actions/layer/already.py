"""The requested packages that an image already has."""

from collections.abc import Iterator

from packaging.requirements import Requirement

from sifmod.image.packages.image_python import Distribution, ImagePython
from sifmod.image.packages.request import PackageRequest, name_of, path_of
from sifmod.image.packages.resolve import Resolved


def already(wanted: PackageRequest, python: ImagePython, resolved: Resolved) -> tuple[Distribution, ...]:
    """The image's distributions, if they are all that was requested; () if a layer must add or keep something.

    A requirement that names a version goes into a layer, unless the image's package is protected and stays anyway.
    """
    if wanted.unnamed or wanted.editable or wanted.constraints is not None or wanted.digests:
        return ()
    found = tuple(_held(wanted, python, resolved))
    return found if len(found) == len(wanted.requirements) else ()


def _held(wanted: PackageRequest, python: ImagePython, resolved: Resolved) -> Iterator[Distribution]:
    for text in wanted.requirements:
        asked, name = Requirement(text), name_of(text)
        own = python.distributions.get(name)
        plain = path_of(text) is None and not (asked.url or asked.extras or asked.marker)
        if own and plain and name not in resolved.added and (name in python.protected or not asked.specifier):
            yield own
