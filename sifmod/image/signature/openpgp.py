"""OpenPGP: verify that one of some keys made the signature of a text.

The formats (RFC 9580, sections 6 and 7: ASCII armor, clear-signed texts, files of public keys) are read here; GnuPG's
gpgv does the cryptography.
"""

import base64
import binascii
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from sifmod.errors import RuntimeMissingError
from sifmod.image.disk import writing
from sifmod.system import scratch_directory

_BEGIN, _END = b"-----BEGIN PGP ", b"-----END PGP "
_PUBLIC = b"PUBLIC KEY BLOCK"
_PUBLIC_KEY, _SECRET_KEYS = 6, (5, 7)  # packet tags
Outcome = Literal["good", "bad", "unknown-key", "expired-key", "revoked-key", "expired", "weak", "damaged"]

_OUTCOMES: tuple[tuple[str, Outcome], ...] = (  # of those in gpgv's report the first in this order counts
    ("BADSIG", "bad"),
    ("NO_PUBKEY", "unknown-key"),
    ("REVKEYSIG", "revoked-key"),
    ("EXPKEYSIG", "expired-key"),
    ("EXPSIG", "expired"),
    ("ERRSIG", "damaged"),
    ("NODATA", "damaged"),
    ("UNEXPECTED", "damaged"),
)
_HASHES = ("8", "9", "10", "11", "12", "14")  # SHA-2 and SHA-3 (RFC 9580, section 9.5)


class DamagedError(Exception):
    """The text does not have the expected format; the message says why."""


@dataclass(frozen=True)
class ClearSigned:
    """A clear-signed message: the signed bytes as they were hashed, and the signature's packets."""

    signed: bytes  # lines end with CR LF, the last one with nothing
    signature: bytes

    @property
    def text(self) -> bytes:
        """The signed text with plain line ends."""
        return self.signed.replace(b"\r\n", b"\n")


def parse_clear_signed(data: bytes) -> ClearSigned:
    """The single message in `data`; only empty lines, then zero bytes may follow it. Raises DamagedError."""
    lines = [line.rstrip(b" \t\r") for line in data.rstrip(b"\0").split(b"\n")]
    if not lines or lines[0] != _BEGIN + b"SIGNED MESSAGE-----":
        raise DamagedError("it does not start like a clear-signed message")
    if b"" not in lines:
        raise DamagedError("it ends in its headers")
    begin = lines.index(b"") + 1
    if any(not line.startswith(b"Hash: ") for line in lines[1 : begin - 1]):
        raise DamagedError("it has a header other than Hash")
    armor = _BEGIN + b"SIGNATURE-----"
    if armor not in lines[begin:]:
        raise DamagedError("it ends before its signature")
    end = lines.index(armor, begin)
    signed = []
    for line in lines[begin:end]:
        if line.startswith(b"-") and not line.startswith(b"- "):
            raise DamagedError("a line of its text starts with an unescaped dash")
        signed.append(line[2:] if line.startswith(b"- ") else line)
    return ClearSigned(b"\r\n".join(signed), _dearmor(lines[end:], b"SIGNATURE"))


def public_keys(data: bytes) -> bytes:
    """The packets of the public keys in `data`, armored (one block or several) or binary. Raises DamagedError."""
    if _BEGIN not in data:
        return _checked(data)
    lines = [line.strip() for line in data.split(b"\n")]
    found, begin = [], _BEGIN + _PUBLIC + b"-----"
    for number, line in enumerate(lines):
        if line.startswith(_BEGIN) and b"PRIVATE" in line:
            raise DamagedError("it contains a private key: export the public key")
        if line == begin:
            end = next((at for at in range(number, len(lines)) if lines[at].startswith(_END)), len(lines) - 1)
            found.append(_checked(_dearmor(lines[number : end + 1], _PUBLIC)))
    return _checked(b"".join(found))


def _dearmor(lines: list[bytes], kind: bytes) -> bytes:
    """The content of the armor in `lines`, from BEGIN on; only empty lines may follow END. Raises DamagedError."""
    while lines and not lines[-1]:
        lines = lines[:-1]
    if not lines or lines[-1] != _END + kind + b"-----":
        raise DamagedError("its armor has no end")
    if b"" not in lines:
        raise DamagedError("its armor has no empty line after the headers")
    body = lines[lines.index(b"") + 1 : -1]
    if body and re.fullmatch(rb"=[A-Za-z0-9+/]{4}", body[-1]):
        body = body[:-1]  # a checksum, which a verified signature makes needless
    try:
        content = base64.b64decode(b"".join(body), validate=True)
    except binascii.Error:
        raise DamagedError("its armor is not base64") from None
    if not content:
        raise DamagedError("its armor is empty")
    return content


def _checked(packets: bytes) -> bytes:
    """Return `packets` if they start with a public key. Raises DamagedError."""
    tag = packets[0] if packets else 0
    number = tag & 0x3F if tag & 0x40 else tag >> 2 & 0x0F
    if tag & 0x80 and number in _SECRET_KEYS:
        raise DamagedError("it contains a private key: export the public key")
    if not tag & 0x80 or number != _PUBLIC_KEY:
        raise DamagedError("it contains no OpenPGP public key, armored or binary")
    return packets


@dataclass(frozen=True)
class Verdict:
    """The result of gpgv. `fingerprint` is the primary key's, or the id of an unknown key; upper case."""

    outcome: Outcome
    fingerprint: str = ""
    name: str = ""

    def __str__(self) -> str:
        """The signer, for messages."""
        return f"{self.name} ({self.fingerprint})"


def verify(message: ClearSigned, keys: bytes) -> Verdict:
    """Whether one of `keys`, the packets of public keys, made the signature of `message`.

    Only the outcome `good` means yes, by a key that is valid today and with a safe hash. Raises RuntimeMissingError
    without gpgv.
    """
    with writing(Path(tempfile.gettempdir())), scratch_directory() as work:
        files = {"keys.gpg": keys, "text.sig": message.signature, "text": message.signed}
        paths = [work / name for name in files]
        for path, content in zip(paths, files.values(), strict=True):
            path.write_bytes(content)
        command = ("gpgv", "--homedir", str(work), "--status-fd", "1", "--keyring", *map(str, paths))
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "GNUPGHOME": str(work),
            "HOME": str(work),
        }
        try:
            done = subprocess.run(command, capture_output=True, env=environment, stdin=subprocess.DEVNULL, check=False)
        except FileNotFoundError:
            raise RuntimeMissingError(
                "gpgv is needed to verify signatures, and was not found", "install GnuPG (the package gpgv or gnupg2)"
            ) from None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    status = [line.split(" ", 3)[1:] for line in lines if line.startswith("[GNUPG:] ")]
    return _judge([words for words in status if words], done.returncode)


def _judge(status: Sequence[Sequence[str]], code: int) -> Verdict:
    said = {words[0]: words[1:] for words in reversed(status)}
    valid = " ".join(said.get("VALIDSIG", ())).split(" ")
    for keyword, outcome in _OUTCOMES:
        if keyword in said:
            number, *name = said[keyword] or ("",)
            fingerprint = valid[9] if len(valid) > 9 else number
            return Verdict(outcome, fingerprint.upper(), _name(name))
    signatures = sum(words[0] in ("GOODSIG", "NEWSIG") for words in status)
    if code != 0 or "GOODSIG" not in said or len(valid) < 10 or signatures > 2:
        return Verdict("damaged")
    outcome = "good" if valid[7] in _HASHES else "weak"
    return Verdict(outcome, valid[9].upper(), _name(said["GOODSIG"][1:]))


def _name(words: Sequence[str]) -> str:
    """A key's user ID in printable characters, for messages."""
    text = unquote(" ".join(words))
    return "".join(letter if letter.isprintable() else "?" for letter in text)
