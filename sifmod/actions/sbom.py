"""sbom: the packages of an image, and of the user's layers over it, as a CycloneDX 1.6 document.

The same image, layers and sifmod give the same bytes: the date is SOURCE_DATE_EPOCH, or that of the image, and the
serial number comes from the digest of all that goes in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Literal
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.bom_ref import BomRef
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.component_evidence import ComponentEvidence, Occurrence
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import License, LicenseAcknowledgement
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from sifmod import __version__
from sifmod.actions.subject import Subject
from sifmod.digest import sha256_bytes, sha256_file
from sifmod.errors import OptionError
from sifmod.image.inspect.description import ImageDescription
from sifmod.image.inspect.package import Package
from sifmod.image.inspect.python import normalized
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.printable import line
from sifmod.module.plan import LAYER_TARGET
from sifmod.tree.layer import Layer

Format = Literal["json", "xml"]
_TOP = "image"  # the bom-ref of the image
_LATEST = 253402300799  # seconds since 1970: the year 9999


@dataclass(frozen=True)
class Sbom:
    """A document, and what was counted in it."""

    text: str
    sha256: str  # of the image
    packages: int  # of the image
    layers: tuple[str, ...]  # their names
    notes: tuple[str, ...]  # what could not be read


def sbom(subject: Subject, layers: Iterable[Layer], form: Format, environ: Mapping[str, str]) -> Sbom:
    """The document of the image, with the packages of these layers over it.

    Raises ModuleError where the image is gone, ImageError where it cannot be looked into, OptionError for a
    SOURCE_DATE_EPOCH that is no number.
    """
    over = tuple(sorted(layers, key=lambda layer: (layer.name, layer.root)))
    inventory, described = subject.inventory, describe_sif(subject.path)
    sha256 = subject.sha256 or sha256_file(subject.path)
    when = _when(environ.get("SOURCE_DATE_EPOCH", ""), described.created)
    parts = [_component(package, inventory.system, _TOP) for package in inventory.packages]
    tops = [*parts, *(_layer(layer, number) for number, layer in enumerate(over, 1))]
    image = _image(subject, sha256, described, inventory.notes)
    tool = Component(name="sifmod", version=__version__, type=ComponentType.APPLICATION, bom_ref=BomRef("sifmod"))
    locks = [(layer.name, sha256_bytes(layer.lock.encode())) for layer in over]
    inputs = repr((__version__, subject.name, sha256, str(when), inventory, locks))
    document = Bom(
        serial_number=uuid5(NAMESPACE_URL, sha256_bytes(inputs.encode("utf-8", "backslashreplace"))),
        metadata=BomMetaData(tools=ToolRepository(components=[tool]), component=image, timestamp=when),
        components=tops,
        # its `register_dependency` would look through all of them for each
        dependencies=[Dependency(image.bom_ref, [Dependency(one.bom_ref) for one in tops])],
    )
    kind = {"json": OutputFormat.JSON, "xml": OutputFormat.XML}[form]
    text = make_outputter(document, kind, SchemaVersion.V1_6).output_as_string(indent=2)
    names = tuple(layer.name for layer in over)
    return Sbom(text + "\n", sha256, len(parts), names, (*inventory.notes, *described.notes))


def _when(epoch: str, created: str) -> datetime:
    if epoch and not (epoch.isdecimal() and int(epoch) <= _LATEST):
        raise OptionError(f"SOURCE_DATE_EPOCH={epoch} is no number of seconds since 1970", "unset it")
    if epoch:
        return datetime.fromtimestamp(int(epoch), UTC)
    return datetime.fromisoformat(created) if created else datetime.fromtimestamp(0, UTC)


def _image(subject: Subject, sha256: str, described: ImageDescription, notes: tuple[str, ...]) -> Component:
    """The image, under its module's name where it is one's; and where it comes from, as properties."""
    installation, origin = subject.installation, subject.origin
    source = subject.source or described.origin
    said = [
        ("source", source),
        ("index", origin.index),
        ("manifest", origin.manifest or described.manifest),
        *(("layer", layer) for layer in origin.layers),
        *(("signature", signer) for signer in described.signers),  # as the image says; nothing is checked here
        *(("note", note) for note in notes),
    ]
    if installation:
        made = installation.provenance
        name = made.easyconfig.rpartition("/")[2]
        said += [("module", str(installation.module)), ("easyconfig", name), ("site", made.site)]
    name, version = (installation.module.name, installation.module.version) if installation else (subject.name, "")
    return Component(
        name=line(name),
        version=version or f"sha256:{sha256}",
        type=ComponentType.CONTAINER,
        bom_ref=BomRef(_TOP),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
        properties=[Property(name=f"sifmod:image:{key}", value=line(text)) for key, text in said if text],
        external_references=[_distribution(source)] if "://" in source else [],
    )


def _distribution(source: str) -> ExternalReference:
    return ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(line(source)))


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
    """As the specification of package URLs has it for each kind."""
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
    """An identifier or an expression of SPDX where it is one, else the name as it is."""
    return LicenseFactory().make_from_string(text, license_acknowledgement=LicenseAcknowledgement.DECLARED)


def _layer(layer: Layer, number: int) -> Component:
    """A layer of a user, and in it the packages that its lock has."""
    reference = f"layer-{number}"
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
