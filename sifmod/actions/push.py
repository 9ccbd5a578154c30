"""push: upload an image to a registry, as a SIF (ORAS) or as an OCI image."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.reporter import Reporter
from sifmod.config.site import Site
from sifmod.digest import sha256_bytes, sha256_file
from sifmod.errors import FetchError, ImageError, OptionError
from sifmod.image.artifact import Progress
from sifmod.image.convert.sif.header import ARCHES, HEADER, arch_code, read_sif
from sifmod.image.oci.content import read_content
from sifmod.image.oci.index import OCI_INDEX, Index, parse, parse_entries
from sifmod.image.oci.manifest import OCI_MANIFEST, SIF_LAYER, Descriptor, Manifest, parse_config
from sifmod.image.reference import Reference
from sifmod.image.registry.http import Http
from sifmod.image.registry.mirrors import own_place, token_servers
from sifmod.image.registry.network import retry
from sifmod.image.registry.registry import Registry, Repository
from sifmod.image.registry.upload import Blob, put_manifest, read_manifest, upload
from sifmod.image.sif_to_oci import Base, convert, descriptor_data, from_byte, layer_bytes
from sifmod.image.sources.source_kinds import parse as parse_source
from sifmod.module.plan import Runtime
from sifmod.result import Arch, Described, Digest, Notes, Source
from sifmod.tree.layout import Layout
from sifmod.tree.stored_image import has_its_size, read_stored

_SIF_CONFIG = "application/vnd.sylabs.sif.config.v1+json"  # the same values as `apptainer push` writes
_EMPTY = b"{}"
_UNIT = 1 << 20
_MOST_BASES = 40  # limit of a chain of images, each built on the next


@dataclass(frozen=True)
class PushOptions:
    """The options of a push."""

    force: bool = False  # overwrite a tag that names another image
    add_to_index: bool = False  # put the image into the tag's index, for its architecture


@dataclass(frozen=True)
class Pushed:
    """The result of a push."""

    reference: Annotated[Source, Described("source with the digest that the tag has now")]
    digest: Annotated[Digest, Described("digest that the tag has: of the manifest, or an index with it")]
    manifest: Digest
    arch: Arch
    size: Annotated[int, Described("bytes of all blobs of the image", ge=0)]
    sent: Annotated[int, Described("bytes of blobs that went out", ge=0)]
    there: Annotated[bool, Described("whether the tag named this image before")]
    notes: Notes


@dataclass(frozen=True)
class _Image:
    """An image to push: its manifest and its blobs."""

    manifest: bytes
    blobs: tuple[Blob, ...]
    arch: str
    variant: str = ""
    notes: tuple[str, ...] = ()


def push(path: Path, target: str, site: Site, options: PushOptions, reporter: Reporter) -> Pushed:
    """Push the SIF at `path` to `target`; idempotent. Blobs that the registry has are not sent.

    Blobs are sent before the manifest that names them, and the tag is written last: a pull meanwhile gets the old image
    or the new one. Raises OptionError for an invalid target, FetchError for errors of network or registry or another
    image under the tag, ImageError for a damaged SIF.
    """
    reference = _target(target)
    place, settings, tag = own_place(reference), fetch_settings(site), reference.tag or "latest"
    servers = token_servers(place, settings.token_servers)
    repository = Repository(Http(settings.insecure_registries), place, servers, "pull,push")
    before = retry(lambda: read_manifest(repository, tag))
    image = _sif(path) if reference.kind.ready_made else _oci(path, repository, site, reporter.progress)
    digest = f"sha256:{sha256_bytes(image.manifest)}"
    top = _index(repository, image, before, force=options.force) if options.add_to_index else image.manifest
    if before not in (None, top) and not (options.force or options.add_to_index):
        raise FetchError(
            f"{place}:{tag} already names another image: sha256:{sha256_bytes(before or b'')}",
            "use another tag, --force to overwrite it, or --add-to-index to have both architectures under one tag",
        )
    size, sent, done = sum(blob.descriptor.size for blob in image.blobs), 0, 0
    for blob in image.blobs:  # also of an image that the tag names: the registry may have lost one
        report = partial(_tell, reporter.progress, f"pushing {place}", done, size)
        sent += upload(repository, blob, report)
        done += blob.descriptor.size
    manifests = ((digest, image.manifest), (tag, top)) if options.add_to_index else ((tag, top),)
    for name, raw in manifests if before != top else ():
        retry(partial(put_manifest, repository, name, raw, _media_type(raw)))
    named = f"sha256:{sha256_bytes(top)}"
    shown = f"{reference.kind.name}://{reference.location}:{tag}@{named}"
    return Pushed(shown, named, digest, image.arch, size, sent, before == top, image.notes)


def _tell(progress: Progress, what: str, before: int, size: int, there: int) -> None:
    progress(what, before + there, size)


def _target(text: str) -> Reference:
    reference = parse_source(text)
    if reference.kind.location != "repository" or reference.digest:
        raise OptionError(
            f"{reference.shown} is not a valid push target",
            "expected docker://REGISTRY/REPOSITORY:TAG for an OCI image, or oras://… for the SIF itself",
        )
    return reference


def _sif(path: Path) -> _Image:
    """The unchanged SIF with its signatures, in a manifest like that of `apptainer push`."""
    info, sha256, real = read_sif(path), sha256_file(path), path.resolve()
    if _is_in_store(real) and sha256 != real.stem:
        raise ImageError(
            f"{real} is damaged: its SHA-256 is {sha256}; nothing was pushed", "`sifmod verify` names its modules"
        )
    digest = f"sha256:{sha256}"
    config = Descriptor(_SIF_CONFIG, f"sha256:{sha256_bytes(_EMPTY)}", len(_EMPTY))
    layer = Descriptor(SIF_LAYER, digest, info.size)
    named = {"annotations": {"org.opencontainers.image.title": path.name}}
    parts = {"config": _as_apptainer(config), "layers": [{**_as_apptainer(layer), **named}]}
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, **parts}
    blobs = (Blob(layer, partial(_file, path)), Blob(config, lambda start: iter((_EMPTY[start:],))))
    return _Image(json.dumps(manifest, separators=(",", ":")).encode(), blobs, info.arch)


def _as_apptainer(descriptor: Descriptor) -> dict[str, object]:
    """A descriptor with the key order of `apptainer push`, so that both give a SIF the same digest."""
    return {"mediaType": descriptor.media_type, "size": descriptor.size, "digest": descriptor.digest}


def _oci(path: Path, repository: Repository, site: Site, progress: Progress) -> _Image:
    """The image that the SIF was converted from, plus one layer if needed; without one, one layer with all files."""
    lineage, runtime = _lineage(path), Runtime(site.runtime_kind, site.runtime_path)
    if lineage.source is None:
        return _converted(path, None, (), (lineage.note,) if lineage.note else (), runtime, progress)
    place = own_place(lineage.source)
    settings = replace(fetch_settings(site), named=place.host == repository.place.host)
    registry = Registry(lineage.source, settings, read_sif(path).arch)
    try:
        manifest = registry.manifest()
        config = registry.config(manifest)
    except FetchError as error:
        error.message = (
            f"the layers of {lineage.source.shown}, which the image was made from, are needed: {error.message}"
        )
        error.hint = "; ".join(
            filter(None, (error.hint, "to push it as one layer, give a copy of the SIF by its path"))
        )
        raise
    mount = place.repository if place.host == repository.place.host and place != repository.place else ""
    wanted = {one.digest: one for one in (*manifest.layers, manifest.config)}
    blobs = {digest: Blob(one, partial(_remote, registry, one), mount) for digest, one in wanted.items()}
    if lineage.path == path.resolve():
        return _Image(manifest.raw, tuple(blobs.values()), config.arch or read_sif(path).arch, config.variant)
    del blobs[manifest.config.digest]
    base = Base(lineage.path, config, manifest.layers)
    return _converted(path, base, tuple(blobs.values()), (), runtime, progress)


def _converted(
    path: Path,
    base: Base | None,
    below: tuple[Blob, ...],
    notes: tuple[str, ...],
    runtime: Runtime,
    progress: Progress,
) -> _Image:
    made = convert(path, base, runtime, lambda _, done: progress(f"packing {path.name}", done, None))
    config = Blob(made.config_descriptor, lambda start: iter((made.config[start:],)))
    layer = Blob(made.layer, partial(layer_bytes, made.content))
    return _Image(made.manifest, (*below, layer, config), made.arch, made.variant, (*notes, *made.notes))


def _is_in_store(path: Path) -> bool:
    return path.parent.parts[-2:] == ("images", "sha256")


class _Lineage(NamedTuple):
    """The image at `path`, converted from `source`, which is None if no registry is known to have the layers."""

    path: Path
    source: Reference | None = None
    note: str = ""


def _lineage(path: Path) -> _Lineage:
    """The image or its nearest base whose layers a registry has."""
    path = path.resolve()
    if not _is_in_store(path):
        return _Lineage(path)
    layout, sha256 = Layout(path.parents[2]), path.stem
    for _ in range(_MOST_BASES):
        known = read_stored(layout, sha256)
        if known is None or not has_its_size(known):
            note = f"its base sha256:{sha256} is no longer in the store, so everything goes into one layer"
            return _Lineage(path, None, "" if sha256 == path.stem else note)
        if given := next((one for one in known.given if one.source.startswith("docker://")), None):
            return _Lineage(known.path.resolve(), parse_source(f"{given.source}@{given.manifest}"))
        base = known.origin.layers[0].removeprefix("sha256:") if len(known.origin.layers) == 1 else sha256
        if base == sha256:  # an image fetched as a SIF is its own layer
            break
        sha256 = base
    return _Lineage(path)


def _file(path: Path, start: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while data := file.read(_UNIT):
            yield data


def _remote(registry: Registry, blob: Descriptor, start: int) -> Iterator[bytes]:
    with registry.blob(blob)({"Range": f"bytes={start}-"} if start else {}) as response:
        skip = start if response.status_code == 200 else 0
        yield from from_byte(iter(partial(response.raw.read, _UNIT, decode_content=False), b""), skip)


def _index(repository: Repository, image: _Image, before: bytes | None, *, force: bool) -> bytes:
    """The tag's index with `image` for its platform. Raises FetchError if what the tag names prevents it."""
    found = parse(before, str(repository.place)) if before else None
    content: dict[str, Any] = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    if isinstance(found, Index):
        content = json.loads(found.raw)
    elif found:
        arch, variant = _platform(repository, found)
        if not arch:
            raise FetchError(
                f"the image that {repository.place} has under this tag does not state its architecture",
                "use another tag",
            )
        content["manifests"] = [_entry(found.raw, arch, variant)]
    new = _entry(image.manifest, image.arch, image.variant)
    name = f"the index of {repository.place}"
    listed = parse_entries(read_content(json.dumps(content).encode(), name))
    alike = [one for one in listed if (one.os, one.arch, one.variant) == ("linux", image.arch, image.variant)]
    if isinstance(found, Index) and any(one.digest == new["digest"] for one in alike):
        return found.raw
    others = [one for one in alike if one.digest != new["digest"]]
    if others and not force:
        raise FetchError(
            f"{repository.place} already has a different image for {others[0].platform} under this tag: "
            f"{others[0].digest}",
            "use another tag, or --force to overwrite it",
        )
    kept = [raw for raw, one in zip(content["manifests"], listed, strict=True) if one not in alike]
    return json.dumps({**content, "manifests": [*kept, new]}, separators=(",", ":")).encode()


def _entry(manifest: bytes, arch: str, variant: str) -> dict[str, object]:
    descriptor = Descriptor(_media_type(manifest), f"sha256:{sha256_bytes(manifest)}", len(manifest))
    platform = {"architecture": arch, "os": "linux", **({"variant": variant} if variant else {})}
    return {**descriptor_data(descriptor), "platform": platform}


def _media_type(manifest: bytes) -> str:
    return read_content(manifest, "the manifest").text("mediaType") or OCI_MANIFEST


def _platform(repository: Repository, manifest: Manifest) -> tuple[str, str]:
    """Architecture and variant of a tag's image, from its config, or from its SIF header without the variant."""
    sif = next((layer for layer in manifest.layers if layer.media_type == SIF_LAYER), None)
    if sif is None:
        raw, _ = repository.read(f"blobs/{manifest.config.digest}", "*/*", f"the config in {repository.place}")
        config = parse_config(raw, f"the config in {repository.place}")
        return config.arch, config.variant
    with repository.get(f"blobs/{sif.digest}")({"Range": f"bytes=0-{HEADER.size - 1}"}) as response:
        head = response.raw.read(HEADER.size)
    code = HEADER.unpack(head)[3] if len(head) == HEADER.size else b""
    return next((arch for arch in ARCHES if arch_code(arch) == code), ""), ""
