"""The list of digests that a SIF's signature signs, compared with the SIF."""

import hashlib
import hmac
import json
from dataclasses import dataclass
from pathlib import Path

from sifmod.errors import SignatureError
from sifmod.image.convert.sif.header import SifObject, SifTable
from sifmod.image.disk import reading

_ALGORITHMS = ("sha224", "sha256", "sha384", "sha512")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class SignedObject:
    """One object of the list; `relative` is its number, less the lowest one of its group."""

    relative: int
    descriptor: str  # digests, as sha256:hex
    content: str


@dataclass(frozen=True)
class SignedList:
    header: str
    objects: tuple[SignedObject, ...]


class Digests:
    """Digests of a SIF's objects, each taken once however many signatures ask."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[int, str], str] = {}

    def content(self, entry: SifObject, algorithm: str) -> str:
        """The digest of the data of `entry`, as sha256:hex."""
        if (entry.id, algorithm) not in self._known:
            digest, left = hashlib.new(algorithm), entry.size
            with reading(self._path), self._path.open("rb") as file:
                file.seek(entry.offset)
                while left > 0 and (chunk := file.read(min(left, _CHUNK))):
                    digest.update(chunk)
                    left -= len(chunk)
            self._known[entry.id, algorithm] = f"{algorithm}:{digest.hexdigest()}"
        return self._known[entry.id, algorithm]


def parse_list(text: bytes) -> SignedList | None:
    """The list in `text`; None where it is none of version 1."""
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


def check_list(path: Path, table: SifTable, group: int, signed: tuple[SignedList, str], digests: Digests) -> set[int]:
    """The numbers of the objects of `group` that are as the list says; `signed` is the list, and who signed it.

    Raises SignatureError where the header, or an object of the list, is not as it was when the list was signed.
    """
    made, signer = signed
    changed = f"{path} was changed after {signer} signed it: "
    hint = "do not use it: fetch it again, or ask who signed it"
    if not _same(made.header, table.header):
        raise SignatureError(f"{changed}its header is another one", hint)
    objects = {entry.id: entry for entry in table.objects if entry.group == group}
    first = table.first(group)
    for row in made.objects:
        entry = objects.get(first + row.relative)
        if entry is None:
            raise SignatureError(f"{changed}object {first + row.relative} is gone", hint)
        if not _same(row.descriptor, entry.covered(row.relative)):
            raise SignatureError(f"{changed}the descriptor of the {entry.title} is another one", hint)
        if not hmac.compare_digest(digests.content(entry, _algorithm(row.content)), row.content.lower()):
            raise SignatureError(f"{changed}the content of the {entry.title} is another one", hint)
    return {first + row.relative for row in made.objects}


def _same(expected: str, content: bytes) -> bool:
    found = hashlib.new(_algorithm(expected), content).hexdigest()
    return hmac.compare_digest(f"{_algorithm(expected)}:{found}", expected.lower())


def _algorithm(digest: str) -> str:
    """The hash of a digest; "" for one that is not known."""
    name = digest.partition(":")[0]
    return name if name in _ALGORITHMS and digest.isascii() else ""
