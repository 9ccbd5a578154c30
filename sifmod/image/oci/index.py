"""An Index: the images for several platforms under one name, and the choice of one of them.

OCI image specification 1.1 (index) and Docker's manifest list. Any error in one is an ImageError.
"""

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from sifmod.digest import sha256_bytes
from sifmod.errors import ImageError
from sifmod.image.oci.content import Content, plain, read_content
from sifmod.image.oci.manifest import (
    DOCKER_MANIFEST,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    architecture,
    check_digest,
    parse_descriptor,
    parse_manifest,
)

_CPUINFO = Path("/proc/cpuinfo")
# flags as Linux spells them, of the levels of the x86-64 psABI
_LEVELS = (
    (2, "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"),
    (3, "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"),
    (4, "avx512f avx512bw avx512cd avx512dq avx512vl"),
)
_LOWEST = {"amd64": (1,), "arm64": (8,)}
_NUMBERS = re.compile(r"v([0-9]{1,4})(?:\.([0-9]{1,4}))?")

Rank = tuple[int, ...]
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
ACCEPTED = (OCI_MANIFEST, DOCKER_MANIFEST, OCI_INDEX, DOCKER_INDEX)

_INDEXES = (OCI_INDEX, DOCKER_INDEX)
_TAG = "org.opencontainers.image.ref.name"  # an annotation in the index of a layout
_ATTESTS = "vnd.docker.reference.type"  # an annotation of an entry that describes another one
_SILENT = ("", "unknown")
_MOST_ENTRIES = 10_000
_DEEPEST = 4  # indexes inside indexes
_LISTED = 20  # platforms in a message


@dataclass(frozen=True)
class Entry:
    """An entry of an index: an image for one platform, or another index. Missing values are empty.

    Only the chosen entry is validated; entries for other machines do not matter here.
    """

    content: Content
    media_type: str
    digest: str  # as the index has it; `descriptor` has the validated one
    os: str
    arch: str  # Go's name
    variant: str
    tag: str
    is_attestation: bool

    @property
    def is_index(self) -> bool:
        return self.media_type in _INDEXES

    @property
    def platform(self) -> str:
        """The platform for messages: `linux/arm64/v8`, `amd64`, or `unknown`."""
        return plain("/".join(part for part in (self.os, self.arch, self.variant) if part)) or "unknown"

    @property
    def descriptor(self) -> Descriptor:
        """The entry's descriptor. Raises ImageError if it is invalid."""
        return parse_descriptor(self.content)


@dataclass(frozen=True)
class Index:
    """Images for several platforms, in the order of the index."""

    digest: str
    raw: bytes
    entries: tuple[Entry, ...]


def parse(raw: bytes, name: str, digest: str = "") -> Manifest | Index:
    """Parse `raw`, called `name` in messages. `digest` is the expected digest, or "".

    Raises ImageError unless it is a manifest or an index of at most 4 MiB with this digest, and for the retired schema
    1.
    """
    check_digest(raw, name, digest)
    content = read_content(raw, name)
    if content.number("schemaVersion") == 1:
        raise ImageError(f"{name} has a format that registries no longer support (schema 1)", "push the image again")
    media_type = content.text("mediaType")
    if media_type in _INDEXES or (not media_type and "manifests" in content):
        return Index(f"sha256:{sha256_bytes(raw)}", raw, parse_entries(content))
    return parse_manifest(raw, name)


def parse_entries(content: Content) -> tuple[Entry, ...]:
    """The entries of an index, attestations included. Raises ImageError if it has no list of them, or too many."""
    if "manifests" not in content:
        raise content.wrong("manifests", "a list")
    entries = content.children("manifests")
    if len(entries) > _MOST_ENTRIES:
        raise ImageError(f"{content.name}: {len(entries)} entries, more than {_MOST_ENTRIES}")
    return tuple(_entry(entry) for entry in entries)


def choose(entries: tuple[Entry, ...], arch: str, name: str) -> Entry:
    """The entry for linux on `arch`, the lowest of several variants.

    If none fits, the only entry without a platform is chosen (its config has it), or the first if all are indexes.
    Raises ImageError, which lists the available platforms, and for a variant that is too high for this machine.
    """
    images = [entry for entry in entries if not entry.is_attestation]
    if any(entry.arch not in _SILENT for entry in images):
        images = [entry for entry in images if entry.arch != "unknown"]  # others attest, without the annotation
    if fitting := lowest(tuple(images), arch):
        found = fitting[0]
        if not runs_here(arch, found.variant):
            raise ImageError(
                f"{name} exists for linux/{arch} as {plain(found.variant)} and higher, which this machine does not run",
                f"for machines that do, name that image itself: …@{plain(found.digest)}",
            )
        return found
    silent = [entry for entry in images if entry.arch in _SILENT]
    if len(silent) == 1 or (silent and all(entry.is_index for entry in silent)):
        return silent[0]
    platforms = sorted({entry.platform for entry in images})
    more = f" and {len(platforms) - _LISTED} more" if len(platforms) > _LISTED else ""
    have = f"{', '.join(platforms[:_LISTED])}{more}" or "no image at all"
    raise ImageError(
        f"{name} does not exist for linux/{arch}; it has: {have}",
        "use a source for this machine, or set the image's `arch:` in the easyconfig",
    )


def manifest_behind(read: Callable[[str], tuple[Manifest | Index, str]], digest: str, arch: str, name: str) -> Manifest:
    """The manifest for linux on `arch` of the image `name`, through indexes inside indexes.

    `read` returns the content of a digest and its name for messages. Raises as `read`, and ImageError as `choose` does.
    """
    index_digest = ""
    for _ in range(_DEEPEST + 1):
        found, called = read(digest)
        if not isinstance(found, Index):
            return replace(found, index_digest=index_digest)
        index_digest = index_digest or found.digest
        digest = choose(found.entries, arch, called).descriptor.digest
    raise ImageError(f"{name}: indexes inside indexes, more than {_DEEPEST} deep")


def lowest(entries: tuple[Entry, ...], arch: str) -> tuple[Entry, ...]:
    """The entries for linux on `arch` with the lowest variant, in the order of the index."""
    fitting = [entry for entry in entries if entry.arch == arch and entry.os in ("linux", *_SILENT)]
    least = min((rank(arch, entry.variant) for entry in fitting), default=())
    return tuple(entry for entry in fitting if rank(arch, entry.variant) == least)


def _entry(content: Content) -> Entry:
    arch = _said(content, "platform", "architecture")
    return Entry(
        content,
        _said(content, "mediaType"),
        _said(content, "digest"),
        _said(content, "platform", "os"),
        architecture(arch) or arch,
        _said(content, "platform", "variant"),
        _said(content, "annotations", _TAG),
        is_attestation=bool(_said(content, "annotations", _ATTESTS)),
    )


def _said(content: Content, *keys: str) -> str:
    """The text at these keys; "" if it is missing or not a text."""
    try:
        for key in keys[:-1]:
            content = content.child(key)
        return content.text(keys[-1])
    except ImageError:
        return ""


def rank(arch: str, variant: str) -> Rank:
    """The key to sort variants of `arch` by: every processor of the architecture runs the lowest one.

    No variant is the lowest (v1 of amd64, v8 of arm64); an unknown form comes after all others.
    """
    if not variant:
        return _LOWEST.get(arch, ())
    found = _NUMBERS.fullmatch(variant)
    if found is None:
        return (1 << 32,)
    return tuple(int(number) for number in found.groups() if number)


def level(flags: str) -> int:
    """The level of the x86-64 psABI, 1 to 4, of a processor with these `flags`."""
    have, found = set(flags.split()), 1
    for number, needed in _LEVELS:
        if not have.issuperset(needed.split()):
            break
        found = number
    return found


def runs_here(arch: str, variant: str) -> bool:
    """Whether this machine runs `variant` of `arch`; True if that is unknown, as for another architecture."""
    own = _own_level()
    return arch != "amd64" or own is None or rank(arch, variant) <= (own,)


@cache
def _own_level() -> int | None:
    if platform.machine() != "x86_64":
        return None
    try:
        found = re.search(r"(?m)^flags\s*:(.*)$", _CPUINFO.read_text())
    except OSError:
        return None
    return level(found[1]) if found else None
