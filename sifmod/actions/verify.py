"""verify: check that modules match their receipts byte for byte, and the signatures of their images."""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from sifmod.actions.finding import Finding, of_file, of_link, verify_layer
from sifmod.actions.inventory import image_of, kept_inventory
from sifmod.actions.layer.places import found_layers
from sifmod.actions.start import installed, live_names, resolve
from sifmod.actions.view_modules import lost_modules
from sifmod.config.name import ModuleName, is_part
from sifmod.digest import sha256_file
from sifmod.errors import (
    Error,
    FetchError,
    InstallError,
    ModuleError,
    OptionError,
    PermissionsError,
    SifmodError,
    as_result,
)
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.printable import line
from sifmod.image.signature.signatures import check, signatures
from sifmod.result import Beside, Described, Internal, ModuleText
from sifmod.system import starts_programs
from sifmod.tree.durable import names as names_in
from sifmod.tree.durable import read
from sifmod.tree.layer import Layer
from sifmod.tree.layout import Layout
from sifmod.tree.life import read_life
from sifmod.tree.receipt import ImageRecord, Installation, live_number
from sifmod.tree.state import additions


@dataclass(frozen=True)
class Verified:
    """A module, compared with its receipt."""

    module: ModuleName
    findings: tuple[Finding, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.fault)


def verify(
    layout: Layout, installation: Installation, layers: Iterable[Layer] = (), others: Iterable[Layout] = ()
) -> tuple[Finding, ...]:
    """Hash the image and every file again and compare; () if all match the receipt. Changes nothing.

    Also compares links, the stored inventory and the `layers` of this module and image; added files are findings too,
    and modules that a view loads and neither this tree nor the `others` have any more.
    """
    root = Path(installation.root)
    findings: list[Finding] = []
    for record in installation.files:
        findings += of_file(root / record.path, record)
    for stub in installation.stubs:
        findings += of_file(layout.modules / stub.path, stub)
    for link in installation.links:
        if installation.image is None or link.path != installation.image.filename:
            findings += of_link(root / link.path, link.target)
    if installation.image:
        copies = installation.provenance.image.directories
        found = _image(Path(installation.root), installation.image, copies)
        findings += found or _inventory(layout, installation.image.sha256)
        for layer in layers:
            if layer.module == installation.module and layer.image in ("", installation.image.sha256):
                findings += verify_layer(layer)
    if installation.image and not starts_programs(root):
        findings.append(Finding("unreadable", str(root / "bin"), "commands that start", "a file system mounted noexec"))
    try:
        findings += [Finding("added", str(root / path), "nothing", "a file") for path in additions(installation)]
    except OSError as error:
        findings.append(Finding("unreadable", str(error.filename), "a directory", os.strerror(error.errno or 0)))
    if installation.modules:
        findings += _lost(installation, (layout, *others))
    return (*findings, *_decisions(layout, installation.module.name))


def _lost(view: Installation, trees: tuple[Layout, ...]) -> list[Finding]:
    """The findings about modules that a view loads."""
    path = str(trees[0].switch(view.module))
    try:
        lost = lost_modules(view, trees, os.environ)
        return [Finding("missing", path, f"{name}, which it loads", found) for name, found in lost]
    except (ModuleError, InstallError, OSError) as error:
        found = error.message if isinstance(error, SifmodError) else os.strerror(error.errno or 0)
        return [Finding("unreadable", path, "the modules that it loads", found)]


def _decisions(layout: Layout, name: str) -> list[Finding]:
    """The findings about the default, the hidden and the retired modules of a name: loads follow them."""
    path = str(layout.life(name))
    try:
        default = read_life(layout, name).default
    except (InstallError, OSError) as error:
        found = error.message if isinstance(error, InstallError) else os.strerror(error.errno or 0)
        return [Finding("unreadable", path, "decisions about its modules", found)]
    if default is None or live_number(layout, ModuleName(name, default)) is not None:
        return []
    return [Finding("missing", path, f"the default {name}/{default}", "nothing")]


def _inventory(layout: Layout, sha256: str) -> list[Finding]:
    """The finding if the stored inventory differs from the packages in the image; none for an unreadable one."""
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


def _image(root: Path, image: ImageRecord, directories: Iterable[str]) -> list[Finding]:
    """The findings about the image that a load takes: the link's, or without a link a copy in `directories`."""
    link, expected = root / image.filename, f"sha256:{image.sha256}"
    copies = (copy for directory in directories if (copy := Path(directory, image.filename)).is_file())
    taken = link if os.path.lexists(link) else next(copies, None)
    if taken is None:
        return [Finding("missing", str(link), f"a link to {image.path}", "nothing, and no copy of the site")]
    path = image.path if taken == link else str(taken)
    try:
        size = taken.stat().st_size
        if size != image.size:
            return [Finding("changed", path, f"{image.size} bytes", f"{size} bytes")]
        found = f"sha256:{sha256_file(taken)}"
    except FileNotFoundError:
        gone = "nothing: it was removed there; `sifmod install` of the easyconfig fetches it again"
        return [Finding("missing", path, expected, gone if image.link == "reference" else "nothing")]
    except OSError as error:
        return [Finding("unreadable", path, expected, os.strerror(error.errno or 0))]
    if found != expected:
        return [Finding("changed", path, expected, found)]
    if taken != link:  # as on LUMI: a user who removes the link wants the site's copy instead
        return [Finding("released", str(link), f"a link to {image.path}", f"nothing, and the site's copy {taken}")]
    return []


@dataclass(frozen=True)
class SignedImage:
    """A checked image: owners of known keys have signed all of it, or `error` says what is not so or cannot be read."""

    module: Annotated[ModuleText | None, Described("the module of the image; null for a file")]
    path: Path
    signers: Annotated[tuple[str, ...], Described("fingerprint and name of each signer")]
    error: Beside[Error | None]
    given: Internal[Path]  # as it was named


def signed_images(layout: Layout, names: Collection[str], keys: tuple[Path, ...]) -> Iterator[SignedImage]:
    """Whether owners of `keys` signed these SIFs and the images of `names`, one by one; without names, of all modules.

    Raises what `check_image` raises, ModuleError where a name means no module or several, ViewError.
    """
    known = live_names(layout)
    for name in names or tuple(map(str, known)):
        if name.endswith(".sif") or ("/" in name and Path(name).is_file()):
            yield check_image(None, Path(name), keys)
            continue
        installation = installed(layout, resolve(name, known))
        if names or installation.image:
            yield check_image(str(installation.module), image_of(installation), keys)


def check_image(module: str | None, path: Path, keys: tuple[Path, ...]) -> SignedImage:
    """Check that signatures by these `keys` cover all of the SIF at `path`, the image of `module`; reads all of it.

    Raises RuntimeMissingError if gpgv is missing, OptionError if the SIF claims a signature and no key is given,
    or for a missing or invalid key file.
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


class VerifiedTree(NamedTuple):
    """The findings of modules, which layers have faults, and whether modules have faults besides."""

    modules: tuple[Verified, ...]
    layers: tuple[Layer, ...]  # that have faults
    own: bool  # modules have faults apart from their layers


def verify_modules(layout: Layout, names: Collection[str] = (), others: tuple[Layout, ...] = ()) -> VerifiedTree:
    """Compare the modules that these names mean, or all, with their receipts; a fault of one does not stop the others.

    Views may load modules of the `others`. Changes nothing. Raises ModuleError if a name means no module or several.
    """
    known = live_names(layout)
    look = f"it looks in {layout.prefix}: `sifmod list` shows all, --prefix names another tree"
    wanted = [resolve(name, known, look) for name in names] or known
    layers = tuple(found_layers((layout,), os.environ))
    found = tuple(_verified(layout, module, layers, others) for module in wanted)
    found += () if names else tuple(_without_software(layout, known))
    paths = {Path(fault.path) for one in found for fault in one.faults}
    of_layers = {layer: {path for path in paths if path.is_relative_to(layer.root)} for layer in layers}
    return VerifiedTree(
        found, tuple(layer for layer in layers if of_layers[layer]), bool(paths.difference(*of_layers.values()))
    )


def _without_software(layout: Layout, known: Collection[ModuleName]) -> Iterator[Verified]:
    """The modulefiles of sifmod that have no module, as after `rm -r` of its software."""
    seen = set(known)
    for name in filter(is_part, _open_names(layout.modules)):
        for file in _open_names(layout.modules / name):
            version = file.removesuffix(".lua")
            place, path = f"/software/{name}/{version}/modulefile.", layout.modules / name / file
            with suppress(OSError):  # a closed one is a matter of modes
                if is_part(version) and ModuleName(name, version) not in seen and place.encode() in read(path):
                    seen.add(module := ModuleName(name, version))
                    yield Verified(module, (Finding("missing", str(layout.switch(module)), "its software", "nothing"),))


def _open_names(directory: Path) -> list[str]:
    with suppress(PermissionError):
        return names_in(directory)
    return []


def _verified(layout: Layout, module: ModuleName, layers: Iterable[Layer], others: tuple[Layout, ...]) -> Verified:
    try:
        return Verified(module, verify(layout, installed(layout, module), layers, others))
    except ModuleError as error:
        return Verified(module, (Finding("unreadable", str(layout.switch(module)), "a receipt", error.message),))
