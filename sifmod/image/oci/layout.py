"""An OCI image layout, a directory or an archive: the one image that a tag, a digest and an architecture name.

The format is the Image Layout of the OCI image specification 1.1: `oci-layout`, `index.json` and `blobs/`.
"""

from sifmod.errors import FetchError, ImageError
from sifmod.image.oci.content import plain, read_content
from sifmod.image.oci.image import Files, OciImage, Stored, of_files, read_json
from sifmod.image.oci.index import Entry, lowest, manifest_behind, parse, parse_entries
from sifmod.image.oci.manifest import Descriptor, check_digest, parse_config
from sifmod.image.reference import Reference


def read_layout(reference: Reference, files: Files, arch: str) -> OciImage:
    """The image of `reference` in the layout that `files` are, for linux on `arch`.

    Index, manifest and config are verified; of the layers only that they are there and as long as they should be.
    Raises FetchError where there is no layout or no such image in it, ImageError where it is damaged.
    """
    if files.find("index.json") is None or files.find("oci-layout") is None:
        raise FetchError(f"{files.name} is not an OCI layout: it has no oci-layout and index.json")
    name = f"{files.name}/index.json"
    entries = parse_entries(read_content(read_json(files, "index.json"), name))
    manifest = manifest_behind(
        lambda digest: (
            parse(read_json(files, _path(digest)), f"{files.name}: {digest}", digest),
            f"{files.name}: the image",
        ),
        _chosen(reference, files, entries, arch),
        arch,
        files.name,
    )
    config = manifest.config
    raw = read_json(files, _path(config.digest))
    check_digest(raw, f"{files.name}: the config", config.digest)
    blobs = tuple(_blob(files, layer) for layer in manifest.layers)
    return of_files(manifest, parse_config(raw, f"{files.name}: the config {config.digest}"), blobs)


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _blob(files: Files, descriptor: Descriptor) -> Stored:
    stored = files.find(_path(descriptor.digest))
    if stored is None:
        raise ImageError(f"{files.name} is not complete: the layer {descriptor.digest} is missing")
    if stored.size != descriptor.size:
        raise ImageError(
            f"{files.name}: the layer {descriptor.digest} has {stored.size} bytes, expected {descriptor.size}"
        )
    return stored


def _chosen(reference: Reference, files: Files, entries: tuple[Entry, ...], arch: str) -> str:
    """The digest of the manifest or index that the reference names."""
    tags = [entry.tag for entry in entries]
    if reference.digest:
        if files.find(_path(reference.digest)):  # also inside an index
            return reference.digest
        wanted: tuple[Entry, ...] = ()
    elif reference.tag and tags != [""]:  # a single image without a name has any tag
        wanted = tuple(entry for entry in entries if entry.tag == reference.tag)
    else:
        wanted = entries
    if len({entry.tag for entry in wanted}) == 1 and len({entry.digest for entry in wanted}) > 1:
        wanted = lowest(wanted, arch) or wanted  # one tag, an image for each architecture
    if len({entry.digest for entry in wanted}) == 1:
        return wanted[0].descriptor.digest
    asked = reference.digest or (f"the tag {reference.tag}" if reference.tag else "no tag")
    have = ", ".join(sorted({plain(tag) for tag in tags if tag})) or ", ".join(plain(entry.digest) for entry in entries)
    raise FetchError(
        f"{files.name}: asked for {asked}, which {len(wanted)} of its {len(entries)} images have",
        f"it has: {have}" if have else "",
    )
