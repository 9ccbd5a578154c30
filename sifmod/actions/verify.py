"""verify: check that an installation matches its receipt byte for byte."""

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from sifmod.actions.inventory import image_of, kept_inventory
from sifmod.actions.start import installed, live, resolve
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_file
from sifmod.errors import Error, FetchError, OptionError, PermissionsError, SifmodError, as_result
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.printable import line
from sifmod.image.signature.signatures import check, signatures
from sifmod.result import Beside, Described, Internal, ModuleText, PathText
from sifmod.tree.durable import names
from sifmod.tree.layer import IMAGE, TREE, Layer
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import FileRecord, ImageRecord, Installation
from sifmod.tree.state import additions

Kind = Literal["missing", "changed", "unreadable", "added", "released"]


class Finding(NamedTuple):
    """One difference from the receipt."""

    kind: Annotated[Kind, Described("added and released are the user's doing, and no fault")]
    path: PathText
    expected: str
    found: str

    @property
    def fault(self) -> bool:
        """Whether the module may not work as installed."""
        return self.kind not in ("added", "released")


@dataclass(frozen=True)
class Verified:
    """A module, compared with its receipt."""

    module: ModuleName
    findings: tuple[Finding, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.fault)


def verify(layout: Layout, installation: Installation, layers: Iterable[Layer] = ()) -> tuple[Finding, ...]:
    """Hash the image and every file again and compare; () if all match the receipt. Changes nothing.

    The `layers` of this module and image are hashed too.
    """
    root = Path(installation.root)
    findings: list[Finding] = []
    for record in installation.files:
        findings += _file(root / record.path, record)
    for stub in installation.stubs:
        findings += _file(layout.modules / stub.path, stub)
    for link in installation.links:
        if installation.image is None or link.path != installation.image.filename:
            findings += _link(root / link.path, link.target)
    if installation.image:
        findings += _image(installation.root, installation.image) or _inventory(layout, installation.image.sha256)
        for layer in layers:
            if layer.module == installation.module and layer.image in ("", installation.image.sha256):
                findings += verify_layer(layer)
    try:
        findings += [Finding("added", str(root / path), "nothing", "a file") for path in additions(installation)]
    except OSError as error:
        findings.append(Finding("unreadable", str(error.filename), "a directory", os.strerror(error.errno or 0)))
    return tuple(findings)


def verify_layer(layer: Layer) -> tuple[Finding, ...]:
    """The same for a layer; an unpacked layer, which its user may edit, only has to exist."""
    if not layer.image:
        return (Finding("unreadable", f"{layer.root}/layer.json", "a receipt", "none that can be read"),)
    root, found = Path(layer.root), _commands(layer)
    if layer.packed:
        return (*_file(root / IMAGE, FileRecord(IMAGE, layer.digest, 0o644)), *found)
    if (root / TREE).exists():
        return found
    return (Finding("missing", str(root / TREE), "the packages", "nothing"), *found)


def _commands(layer: Layer) -> tuple[Finding, ...]:
    """Its lock, and its commands on the host."""
    root = Path(layer.root)
    there = {f"bin/{name}" for name in names(root / "bin")}
    made = dict(layer.made)
    records = (FileRecord(path, digest, 0o755 if path in there else 0o644) for path, digest in sorted(made.items()))
    found = [finding for record in records for finding in _file(root / record.path, record)]
    more = [Finding("changed", str(root / path), "nothing", "a file") for path in sorted(there - made.keys())]
    return (*found, *more)


def _file(path: Path, record: FileRecord) -> list[Finding]:
    expected = f"sha256:{record.sha256}"
    if not os.path.lexists(path):
        return [Finding("missing", str(path), expected, "nothing")]
    if path.is_symlink() or not path.is_file():
        return [Finding("changed", str(path), expected, "not a regular file")]
    try:
        found = f"sha256:{sha256_file(path)}"
    except OSError as error:
        return [Finding("unreadable", str(path), expected, os.strerror(error.errno or 0))]
    if found != expected:
        return [Finding("changed", str(path), expected, found)]
    if record.mode & 0o111 and not path.stat().st_mode & 0o100:
        return [Finding("changed", str(path), f"mode {record.mode:o}", f"mode {path.stat().st_mode & 0o777:o}")]
    return []


def _link(path: Path, target: str) -> list[Finding]:
    if not os.path.lexists(path):
        return [Finding("missing", str(path), f"a link to {target}", "nothing")]
    found = os.readlink(path) if path.is_symlink() else None  # noqa: PTH115 (compared as text)
    if found == target:
        return []
    return [Finding("changed", str(path), f"a link to {target}", "no link" if found is None else f"a link to {found}")]


def _inventory(layout: Layout, sha256: str) -> list[Finding]:
    """Compare the stored inventory with the packages in the image."""
    path = layout.inventory(sha256)
    if not path.exists():
        return []
    from sifmod.image.inspect.inventory import read_inventory

    kept = kept_inventory(layout, sha256)
    if kept is None or not (found := read_inventory(layout.image(sha256))).complete or found == kept:
        return []  # an unreadable one is made again on demand
    return [
        Finding(
            "changed",
            str(path),
            "the packages in the image",
            "different packages; remove the file to have it made again",
        )
    ]


def _image(root: str, image: ImageRecord) -> list[Finding]:
    link = Path(root, image.filename)
    expected = f"sha256:{image.sha256}"
    if not os.path.lexists(link):
        # As on LUMI: a user who removes the link wants the site's copy instead.
        return [Finding("released", str(link), f"a link to {image.path}", "nothing")]
    try:
        size = link.stat().st_size
        if size != image.size:
            return [Finding("changed", image.path, f"{image.size} bytes", f"{size} bytes")]
        found = f"sha256:{sha256_file(link)}"
    except FileNotFoundError:
        gone = "nothing: its store removed it; `install` of the easyconfig fetches it again"
        return [Finding("missing", image.path, expected, gone if image.link == "reference" else "nothing")]
    except OSError as error:
        return [Finding("unreadable", image.path, expected, os.strerror(error.errno or 0))]
    return [] if found == expected else [Finding("changed", image.path, expected, found)]


@dataclass(frozen=True)
class SignedImage:
    """An image that owners of known keys have signed, or one without a good signature over all of it."""

    module: Annotated[ModuleText | None, Described("null for a file")]
    path: Path
    signers: Annotated[tuple[str, ...], Described("fingerprint and name")]
    error: Beside[Error | None]
    given: Internal[Path]  # as it was named


def signed_images(layout: Layout, names: Collection[str], keys: tuple[Path, ...]) -> Iterator[SignedImage]:
    """Whether owners of `keys` signed these SIFs and the images of these modules (of all without names), one by one.

    Raises what `check_image` raises, ModuleError where a name means no module or several, ViewError.
    """
    known = live(layout)
    for name in names or tuple(map(str, known)):
        if name.endswith(".sif") or ("/" in name and Path(name).is_file()):
            yield check_image(None, Path(name), keys)
            continue
        installation = installed(layout, resolve(name, known))
        if names or installation.image:
            yield check_image(str(installation.module), image_of(installation), keys)


def check_image(module: str | None, path: Path, keys: tuple[Path, ...]) -> SignedImage:
    """Check that owners of `keys` signed all of the SIF at `path`, the image of `module`; reads all of it.

    Raises RuntimeMissingError if gpgv is missing, OptionError if it is signed and no key is given, or for an invalid
    key file.
    """
    if missing := next((key for key in keys if not key.is_file()), None):
        raise OptionError(f"there is no public key file {missing}")
    try:
        info = read_sif(path)
        if not keys and (claimed := signatures(path, info)):
            raise OptionError(
                f"{path} claims to be signed by {', '.join(one.fingerprint or 'an unnamed key' for one in claimed)}; "
                "no public key is available to check that",
                "give a key file: --keys FILE, or signatures: {keys: [FILE]} in the site file",
            )
        signers = check(path, info, keys)
    except (FetchError, PermissionsError) as error:  # including SignatureError
        return SignedImage(module, path.absolute(), (), as_result(SifmodError(error.message, error.hint)), path)
    signed_by = tuple(f"{signer.fingerprint} {line(signer.name, 200)}".rstrip() for signer in signers)
    return SignedImage(module, path.absolute(), signed_by, None, path)
