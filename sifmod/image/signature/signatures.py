"""Signatures in a SIF: listed, and verified with public keys like `apptainer verify`, but more strictly.

A signature is a clear-signed list of digests: of the header, and of the descriptor and the data of each object (the
integrity format of SIF version 01, as Singularity 3.6 and later and Apptainer make it). gpgv checks the signer; this
file checks that the list is correct and complete, and compares it with the site's policy.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

from sifmod.errors import ImageError, SignatureError
from sifmod.image.convert.sif.header import SIGNATURE, SifInfo, SifObject
from sifmod.image.disk import reading
from sifmod.image.reference import Reference
from sifmod.image.settings import Settings
from sifmod.image.signature.openpgp import DamagedError, Verdict, parse_clear_signed, public_keys, verify

Form = Literal["pgp", "legacy", "dsse", "unknown"]

_MOST = 1 << 20  # bytes of a signature
_MOST_SIGNATURES = 40  # the table of apptainer's SIFs has no room for more
_MOST_KEYS = 16 << 20
_FETCH_AGAIN = "do not use it: fetch it again, or ask the signer"
_ALGORITHMS = ("sha224", "sha256", "sha384", "sha512")
_CHUNK = 1 << 20  # bytes
_FORMS: dict[str, str] = {
    "pgp": "is not for a group of objects, unlike those of Singularity 3.6 and later",
    "legacy": "was made by Singularity 3.5 or older, whose signatures do not cover the descriptors",
    "dsse": "is not an OpenPGP one, but was made with a PEM key or certificate",
    "unknown": "has an unknown format",
}
_OUTCOMES: dict[str, str] = {
    "expired-key": "made with an expired key",
    "revoked-key": "made with a revoked key",
    "expired": "expired",
    "weak": "made with a hash that can be forged (MD5, SHA-1 or RIPEMD-160)",
}


def refuse_unsigned_kind(reference: Reference, settings: Settings) -> None:
    """Raise SignatureError, before any fetch, if a signed SIF is required and the source or keys cannot give one."""
    if settings.policy != "require":
        return
    if missing := next((key for key in settings.keys if not key.is_file()), None):
        raise SignatureError(f"skipped: the site requires signed images, and its key file {missing} is missing")
    if not settings.keys:
        raise SignatureError(
            "skipped: the site requires signed images, but has no trusted keys",
            "add files with public keys: `signatures: {policy: require, keys: [FILE]}`",
        )
    if not reference.kind.ready_made:
        raise SignatureError(
            f"skipped: the site requires signed images, and a SIF made from a {reference.kind.name}: source has no "
            "signature",
            "use a signed SIF: a path, https: or oras:",
        )


def check_policy(path: Path, name: str, info: SifInfo, settings: Settings) -> tuple[str, ...]:
    """The notes about the signature of the image at `path`, called `name` in messages; none if the policy is `off`.

    Raises SignatureError if the policy is `require` and `check` raises it, and other errors of `check`.
    """
    if settings.policy == "off":
        return ()
    try:
        signers = check(path, info, settings.keys)
    except SignatureError as error:
        message = error.message.replace(str(path), name)
        if settings.policy == "require":
            raise SignatureError(message, error.hint) from error
        return (f"{message}; the site's policy is only to warn",)
    return (f"signed by {', '.join(map(str, signers))}",)


@dataclass(frozen=True)
class Signature:
    """One signature as the SIF describes it, unverified."""

    id: int  # its own object's number
    form: Form
    fingerprint: str  # of the primary key, upper case; empty where the SIF does not say


def signatures(path: Path, info: SifInfo) -> tuple[Signature, ...]:
    """The signatures in the SIF at `path`, unverified.

    Raises ImageError, PermissionsError or FetchError like read_sif.
    """
    return tuple(
        Signature(entry.id, _form(_content(path, entry)), _fingerprint(entry))
        for entry in _signature_objects(path, info)
    )


def check(path: Path, info: SifInfo, keys: tuple[Path, ...]) -> tuple[Verdict, ...]:
    """The owners of `keys` who together signed all of the SIF at `path`, whose checked header is `info`.

    A key file has OpenPGP public keys, armored or binary. Signatures that are not good (by other keys, expired,
    damaged) are ignored, but every object except signatures needs a good one, and every good one must match. Reads the
    whole file. Raises SignatureError with the reason, ImageError for a damaged SIF, RuntimeMissingError without gpgv.
    """
    if not (found := _signature_objects(path, info)):
        hint = "get a signed one from its author, or sign it (`apptainer sign`) before it is installed"
        raise SignatureError(f"{path} is not signed", hint)
    if len(found) > _MOST_SIGNATURES:
        raise SignatureError(f"{path} has {len(found)} signatures: expected at most {_MOST_SIGNATURES}", _FETCH_AGAIN)
    packets = _read_keys(keys)
    digest = cache(partial(_digest, path))
    signers: dict[str, Verdict] = {}
    covered: set[int] = set()
    refused: list[_RefusedError] = []
    for entry in found:
        try:
            signer, made = _vouched(path, entry, packets, keys)
        except _RefusedError as error:
            refused.append(error)
        else:
            covered |= _check_list(path, info, entry.link, (made, signer), digest)
            signers[signer.fingerprint] = signer
    if not signers:
        raise min(refused, key=lambda error: error.rank)
    _check_all_covered(path, info, tuple(signers.values()), covered)
    return tuple(signers.values())


@dataclass(frozen=True)
class SignedObject:
    """One object of a signed list; `relative` is its number minus the lowest number of its group."""

    relative: int
    descriptor: str  # digests, as sha256:hex
    content: str


@dataclass(frozen=True)
class SignedList:
    header: str
    objects: tuple[SignedObject, ...]


class _RefusedError(SignatureError):
    """A signature is not usable; the lowest rank is the most important for the user."""

    def __init__(self, rank: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.rank = rank


def _vouched(path: Path, entry: SifObject, packets: bytes, keys: Sequence[Path]) -> tuple[Verdict, SignedList]:
    """The signer and the signed list, if one of the keys made the signature `entry`. Raises _RefusedError."""
    content = _content(path, entry)
    what = f"the signature of {path} (object {entry.id})"
    if (form := _form(content)) != "pgp" or not entry.links_group:
        raise _RefusedError(3, f"{what} {_FORMS.get(form, _FORMS['unknown'])}", "sign it with `apptainer sign`")
    try:
        message = parse_clear_signed(content)
    except DamagedError as error:
        raise _RefusedError(1, f"{what} is damaged: {error}", _FETCH_AGAIN) from None
    verdict = verify(message, packets)
    if verdict.outcome != "good":
        raise _refusal(what, entry, verdict, keys)
    if _fingerprint(entry) not in ("", verdict.fingerprint):
        said = f"{_fingerprint(entry)}, but {verdict.fingerprint} made the signature"
        raise _RefusedError(1, f"{what} is damaged: its descriptor names the key {said}", _FETCH_AGAIN)
    made = parse_list(message.text)
    if made is None:
        raise _RefusedError(1, f"{what} is good, but the signed text is not a known list of digests")
    return verdict, made


def _refusal(what: str, entry: SifObject, verdict: Verdict, keys: Sequence[Path]) -> _RefusedError:
    match verdict.outcome:
        case "bad":
            return _RefusedError(0, f"{what} does not match its list of digests: one of them was changed", _FETCH_AGAIN)
        case "damaged":
            return _RefusedError(1, f"{what} is damaged, or of a kind that gpgv does not know", _FETCH_AGAIN)
        case "unknown-key":
            by = _fingerprint(entry)
            key = by if by.endswith(verdict.fingerprint) else verdict.fingerprint
            names = ", ".join(map(str, keys))
            message = f"{what} was made by the key {key}, which is not a trusted key ({names})"
            return _RefusedError(4, message, "if you trust this key, add its public part to `signatures: keys:`")
        case outcome:
            hint = "sign the image again, or for an expired key get the signer's renewed public key"
            return _RefusedError(2, f"{what} by {verdict} is {_OUTCOMES[outcome]}", hint)


def _check_all_covered(path: Path, info: SifInfo, signers: Sequence[Verdict], covered: set[int]) -> None:
    left = [entry for entry in info.descriptors if entry.type != SIGNATURE and entry.id not in covered]
    names = ", ".join(map(str, signers))
    hint = "sign the whole image: `apptainer sign` without --sif-id and --group-id"
    if any(entry.id == info.primary.id for entry in left):
        raise SignatureError(
            f"{path} is signed by {names}, but not its root file system (object {info.primary.id})", hint
        )
    if left:
        what = ", ".join(entry.title for entry in left)
        raise SignatureError(f"{path} is signed by {names}, but not all of it; unsigned: {what}", hint)


def _read_keys(keys: Sequence[Path]) -> bytes:
    if not keys:
        raise SignatureError("no public key to verify signatures", "add public keys to `signatures: keys:`")
    packets = b""
    for path in keys:
        with reading(path), path.open("rb") as file:
            data = file.read(_MOST_KEYS + 1)
        try:
            packets += public_keys(data[:_MOST_KEYS])
        except DamagedError as error:
            raise SignatureError(f"the key file {path} cannot be used: {error}", "`gpg --export` writes one") from None
    return packets


def _signature_objects(path: Path, info: SifInfo) -> tuple[SifObject, ...]:
    if len({entry.id for entry in info.descriptors}) != len(info.descriptors):
        raise ImageError(f"{path} is a damaged SIF: two of its objects have the same number")
    return tuple(entry for entry in info.descriptors if entry.type == SIGNATURE)


def _content(path: Path, entry: SifObject) -> bytes:
    """The signature's text, up to the limit."""
    with reading(path), path.open("rb") as file:
        file.seek(entry.offset)
        return file.read(min(entry.size, _MOST))


def _form(content: bytes) -> Form:
    text = content.lstrip()
    if text.startswith(b"-----BEGIN PGP SIGNED MESSAGE-----"):
        body = text.partition(b"\n\n")[2]
        return "legacy" if body.startswith(b"SIFHASH:") else "pgp"
    return "dsse" if text.startswith(b"{") and b'"payloadType"' in text else "unknown"


def _fingerprint(entry: SifObject) -> str:
    """The fingerprint in a signature's descriptor, 20 bytes after the number of a hash; "" if they are zero."""
    found = entry.extra[4:24]
    return found.hex().upper() if any(found) else ""


def parse_list(text: bytes) -> SignedList | None:
    """The signed list of digests in `text`; None if it is invalid or not of version 1."""
    try:
        found = json.loads(text)
        if found["version"] != 1:
            return None
        rows = found["objects"]
        objects = tuple(SignedObject(row["relativeId"], row["descriptorDigest"], row["objectDigest"]) for row in rows)
        made = SignedList(found["header"]["digest"], objects)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    digests = [made.header, *(digest for row in objects for digest in (row.descriptor, row.content))]
    numbers = [row.relative for row in objects]
    if not all(type(number) is int and 0 <= number < 1 << 32 for number in numbers) or len(set(numbers)) < len(numbers):
        return None
    return made if all(isinstance(digest, str) and _algorithm(digest) for digest in digests) else None


def _digest(path: Path, entry: SifObject, algorithm: str) -> str:
    digest, left = hashlib.new(algorithm), entry.size
    with reading(path), path.open("rb") as file:
        file.seek(entry.offset)
        while left > 0 and (chunk := file.read(min(left, _CHUNK))):
            digest.update(chunk)
            left -= len(chunk)
    return f"{algorithm}:{digest.hexdigest()}"


def _check_list(
    path: Path, info: SifInfo, group: int, signed: tuple[SignedList, Verdict], digest: Callable[[SifObject, str], str]
) -> set[int]:
    """The numbers of the objects of `group` that match the list; `signed` is the list and its signer.

    Raises SignatureError if the header, or an object of the list, was changed after signing.
    """
    made, signer = signed
    changed = f"{path} was changed after {signer} signed it: "
    if not _is_digest_of(made.header, info.header):
        raise SignatureError(f"{changed}its header differs", _FETCH_AGAIN)
    objects = {entry.id: entry for entry in info.descriptors if entry.group == group}
    first = min(objects, default=0)  # signatures count from the lowest number
    for row in made.objects:
        entry = objects.get(first + row.relative)
        if entry is None:
            raise SignatureError(f"{changed}object {first + row.relative} is missing", _FETCH_AGAIN)
        if not _is_digest_of(row.descriptor, entry.covered(row.relative)):
            raise SignatureError(f"{changed}the descriptor of the {entry.title} differs", _FETCH_AGAIN)
        if not hmac.compare_digest(digest(entry, _algorithm(row.content)), row.content.lower()):
            raise SignatureError(f"{changed}the content of the {entry.title} differs", _FETCH_AGAIN)
    return {first + row.relative for row in made.objects}


def _is_digest_of(expected: str, content: bytes) -> bool:
    found = hashlib.new(_algorithm(expected), content).hexdigest()
    return hmac.compare_digest(f"{_algorithm(expected)}:{found}", expected.lower())


def _algorithm(digest: str) -> str:
    """The hash of a digest; "" if it is unknown."""
    name = digest.partition(":")[0]
    return name if name in _ALGORITHMS and digest.isascii() else ""
