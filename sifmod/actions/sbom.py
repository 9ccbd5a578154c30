"""sbom: the packages of an image and of the user's layers over it, as a CycloneDX 1.6 document.

The same image, layers and sifmod give the same bytes: the date is SOURCE_DATE_EPOCH or the image's, and the serial
number is derived from all that decides the document.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.bom_ref import BomRef
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.component_evidence import ComponentEvidence, Occurrence
from cyclonedx.model.dependency import Dependable, Dependency
from cyclonedx.model.license import License, LicenseAcknowledgement
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from sifmod import __version__
from sifmod.actions.subject import Subject, of_installation
from sifmod.actions.view_modules import loaded_by
from sifmod.config.name import ModuleName
from sifmod.digest import sha256_bytes, sha256_file
from sifmod.errors import OptionError
from sifmod.image.disk import check_holes
from sifmod.image.inspect.description import ImageDescription
from sifmod.image.inspect.package import Package
from sifmod.image.inspect.python_environments import normalized
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.printable import line
from sifmod.module.plan import LAYER_TARGET
from sifmod.result import Described, Notes, Number, OrNull, Sha256
from sifmod.tree.layer import Layer
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation

Format = Literal["json", "xml"]
_LATEST = 253402300799  # seconds since 1970: the year 9999


@dataclass(frozen=True)
class Sbom:
    """A software bill of materials."""

    module: Annotated[ModuleName | None, Described("null for an image without a module")]
    generation: Number | None
    sha256: Annotated[OrNull[Sha256], Described("SHA-256 of the image; null for a view")]
    format: Format
    package_count: Annotated[int, Described("packages of the image, or of all modules that a view loads", ge=0)]
    layers: Annotated[tuple[str, ...], Described("names of the user's layers in the document")]
    notes: Notes  # what could not be read
    text: Annotated[str, Described("the document, CycloneDX 1.6")]
    path: Annotated[Path | None, Described("the written file; null without -o")] = None


def sbom(
    subject: Subject,
    layers: Sequence[Layer],
    form: Format,
    environ: Mapping[str, str],
    modules: Mapping[ModuleName, Layout],
) -> Sbom:
    """The document of an image with its `layers`, or of the modules that a view loads; `modules`: the installed ones.

    Raises ModuleError if the image is gone, ImageError if it cannot be read, FetchError for a file that is mostly
    holes, OptionError for an invalid SOURCE_DATE_EPOCH.
    """
    notes: list[str] = []
    if view := subject.view:
        loaded, missing = loaded_by(view, modules)
        notes += (f"{name}, which {view.module} loads, is not installed here" for name in missing)
        parts = [_part(of_installation(one), layers, f"module-{number}") for number, one in enumerate(loaded, 1)]
        for part in parts:
            part.component.components = part.inside
        top = _view(view)
        tops = [part.component for part in parts]
    else:
        parts = [_part(subject, layers, "image")]
        top, tops = parts[0].component, parts[0].inside
    notes += [note for part in parts for note in part.notes]
    epoch = environ.get("SOURCE_DATE_EPOCH", "")
    when = max((_when(epoch, part.created) for part in parts), default=_when(epoch, ""))
    tool = Component(name="sifmod", version=__version__, type=ComponentType.APPLICATION, bom_ref=BomRef("sifmod"))
    inputs = repr((__version__, subject.name, str(when), *(part.inputs for part in parts)))
    document = Bom(
        serial_number=uuid5(NAMESPACE_URL, sha256_bytes(inputs.encode("utf-8", "backslashreplace"))),
        metadata=BomMetaData(tools=ToolRepository(components=[tool]), component=top, timestamp=when),
        components=tops,
        dependencies=[
            Dependency(top.bom_ref, [Dependency(one.bom_ref) for one in tops]),
            *(Dependency(one.bom_ref) for one in tops),
        ],
    )
    # The output would register each dependency again, with a search through all: minutes for 10 000 packages.
    document.register_dependency = _registered  # type: ignore[method-assign]
    kind = {"json": OutputFormat.JSON, "xml": OutputFormat.XML}[form]
    text = make_outputter(document, kind, SchemaVersion.V1_6).output_as_string(indent=2)
    names = tuple(name for part in parts for name in part.layers)
    return Sbom(
        module=subject.installation.module if subject.installation else None,
        generation=subject.installation.generation if subject.installation else None,
        sha256="" if view else parts[0].sha256,
        format=form,
        package_count=sum(part.packages for part in parts),
        layers=names,
        notes=tuple(notes),
        text=text + "\n",
    )


def _registered(target: Dependable, depends_on: Iterable[Dependable] | None = None) -> None:
    """Do nothing, in place of `Bom.register_dependency`, for a document that has all dependencies."""


class _Part(NamedTuple):
    """The part of the document about one image, its packages and its layers."""

    component: Component
    inside: list[Component]
    sha256: str
    packages: int
    layers: tuple[str, ...]
    notes: tuple[str, ...]
    created: str
    inputs: object  # everything that decides this part of the document


def _part(subject: Subject, layers: Iterable[Layer], reference: str) -> _Part:
    if not subject.sha256:  # the whole image is read for the digest
        check_holes((subject.path,), subject.path.parent, "make a copy without the holes, or install the image first")
    inventory, described = subject.inventory, describe_sif(subject.path)
    sha256 = subject.sha256 or sha256_file(subject.path)
    made = subject.installation
    own = made and (made.module, made.image_sha256)
    mine = (layer for layer in layers if own is None or (layer.module, layer.image) == own)
    over = sorted(mine, key=lambda layer: (layer.name, layer.root))
    inside = [_component(package, inventory.system, reference) for package in inventory.packages]
    tops = [*inside, *(_layer(layer, f"{reference}-layer-{number}") for number, layer in enumerate(over, 1))]
    image = _image(subject, sha256, described, inventory.notes, reference)
    notes = (*inventory.notes, *described.notes)
    locks = [(layer.name, sha256_bytes(layer.lock.encode())) for layer in over]
    names = tuple(layer.name for layer in over)
    inputs = (subject.name, sha256, inventory, locks)
    return _Part(image, tops, sha256, len(inside), names, notes, described.created, inputs)


def _view(view: Installation) -> Component:
    made, module = view.provenance, view.module
    said = {"module": str(module), "easyconfig": made.easyconfig.rpartition("/")[2], "site": made.site}
    return Component(
        name=module.name,
        version=module.version,
        type=ComponentType.PLATFORM,
        bom_ref=BomRef("view"),
        properties=[Property(name=f"sifmod:view:{key}", value=line(text)) for key, text in said.items()],
    )


def _when(epoch: str, created: str) -> datetime:
    if epoch and not (epoch.isdecimal() and int(epoch) <= _LATEST):
        raise OptionError(f"SOURCE_DATE_EPOCH={epoch} is not a number of seconds since 1970", "unset it")
    if epoch:
        return datetime.fromtimestamp(int(epoch), UTC)
    return datetime.fromisoformat(created) if created else datetime.fromtimestamp(0, UTC)


def _image(
    subject: Subject, sha256: str, described: ImageDescription, notes: tuple[str, ...], reference: str
) -> Component:
    """The image as a component, named after its module if there is one, with its origin as properties."""
    installation, origin = subject.installation, subject.origin
    source = subject.source or described.source
    said = [
        ("source", source),
        ("index", origin.index),
        ("manifest", origin.manifest or described.manifest),
        *(("layer", layer) for layer in origin.layers),
        *(("base", base) for base in described.bases),
        *(("signature", signer) for signer in described.signers),  # as the image states; not verified here
        *(("note", note) for note in notes),
    ]
    if installation:
        made = installation.provenance
        name = made.easyconfig.rpartition("/")[2]
        said += [("module", str(installation.module)), ("easyconfig", name), ("site", made.site)]
    place = ExternalReferenceType.DISTRIBUTION
    name, version = (installation.module.name, installation.module.version) if installation else (subject.name, "")
    return Component(
        name=line(name),
        version=version or f"sha256:{sha256}",
        type=ComponentType.CONTAINER,
        bom_ref=BomRef(reference),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
        properties=[Property(name=f"sifmod:image:{key}", value=line(text)) for key, text in said if text],
        external_references=[ExternalReference(type=place, url=XsUri(line(source)))] if "://" in source else [],
    )


def _component(package: Package, system: str, above: str) -> Component:
    purl = _purl(package, system)
    return Component(
        name=package.name,
        version=package.version,
        bom_ref=BomRef(f"{above}:{package.place}:{purl}"),
        purl=purl,
        licenses=[_license(package.licence)] if package.licence else [],
        evidence=ComponentEvidence(occurrences=[Occurrence(location=package.place)]),
    )


def _purl(package: Package, system: str) -> PackageURL:
    """The package URL, by the rules for each kind of package."""
    vendor = system.partition("-")[0]
    distro = {"distro": system} if system else {}
    match package.kind:
        case "python":
            return PackageURL("pypi", None, normalized(package.name), package.version)
        case "conda":
            return PackageURL("conda", None, package.name, package.version)
        case "deb":
            return PackageURL("deb", vendor or "debian", package.name, package.version, distro)
        case "rpm":
            epoch, _, version = package.version.rpartition(":")
            more = {**distro, **({"epoch": epoch} if epoch else {})}
            return PackageURL("rpm", vendor or None, package.name, version, more)


@cache
def _license(text: str) -> License:
    """The licence: an SPDX identifier or expression if `text` is one, else a plain name."""
    return LicenseFactory().make_from_string(text, license_acknowledgement=LicenseAcknowledgement.DECLARED)


def _layer(layer: Layer, reference: str) -> Component:
    """A user's layer as a component, with the packages that it adds."""
    packages = [Package("python", name, version, LAYER_TARGET) for name, version in layer.added]
    said = {"lock": f"sha256:{sha256_bytes(layer.lock.encode())}", "python": layer.version}
    return Component(
        name=f"layer {layer.name}",
        version=str(layer.number),
        type=ComponentType.FILE,
        bom_ref=BomRef(reference),
        components=[_component(package, "", reference) for package in packages],
        properties=[Property(name=f"sifmod:layer:{key}", value=value) for key, value in said.items()],
    )
