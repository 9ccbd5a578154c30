"""OpenPGP's outer forms (RFC 9580, sections 6 and 7): ASCII armor, clear-signed texts, files of public keys."""

import base64
import binascii
import re
from dataclasses import dataclass

_BEGIN, _END = b"-----BEGIN PGP ", b"-----END PGP "
_PUBLIC = b"PUBLIC KEY BLOCK"
_PUBLIC_KEY, _SECRET_KEYS = 6, (5, 7)  # packet tags


class DamagedError(Exception):
    """The text is not of the expected form; the message says how."""


@dataclass(frozen=True)
class ClearSigned:
    """A clear-signed message: what was signed, byte for byte as it was hashed, and the signature's packets."""

    signed: bytes  # lines end with CR LF, the last one with nothing
    signature: bytes

    @property
    def text(self) -> bytes:
        """The signed text with plain line ends."""
        return self.signed.replace(b"\r\n", b"\n")


def parse_clear_signed(data: bytes) -> ClearSigned:
    """The one message that is all of `data`, zero bytes at the end apart. Raises DamagedError."""
    lines = [line.rstrip(b" \t\r") for line in data.rstrip(b"\0").split(b"\n")]
    if not lines or lines[0] != _BEGIN + b"SIGNED MESSAGE-----":
        raise DamagedError("it does not begin as a clear-signed message")
    if b"" not in lines:
        raise DamagedError("it ends in its headers")
    begin = lines.index(b"") + 1
    if any(not line.startswith(b"Hash: ") for line in lines[1 : begin - 1]):
        raise DamagedError("it has a header that is not Hash")
    armor = _BEGIN + b"SIGNATURE-----"
    if armor not in lines[begin:]:
        raise DamagedError("it ends before its signature")
    end = lines.index(armor, begin)
    signed = []
    for line in lines[begin:end]:
        if line.startswith(b"-") and not line.startswith(b"- "):
            raise DamagedError("a line of its text begins with an unescaped dash")
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
            raise DamagedError("it holds a private key: export the public one")
        if line == begin:
            end = next((at for at in range(number, len(lines)) if lines[at].startswith(_END)), len(lines) - 1)
            found.append(_checked(_dearmor(lines[number : end + 1], _PUBLIC)))
    return _checked(b"".join(found))


def _dearmor(lines: list[bytes], kind: bytes) -> bytes:
    """The content of armor that is all of `lines`, from its BEGIN on; empty lines may follow its END."""
    while lines and not lines[-1]:
        lines = lines[:-1]
    if not lines or lines[-1] != _END + kind + b"-----":
        raise DamagedError("its armor has no end")
    if b"" not in lines:
        raise DamagedError("its armor has no empty line after the headers")
    body = lines[lines.index(b"") + 1 : -1]
    if body and re.fullmatch(rb"=[A-Za-z0-9+/]{4}", body[-1]):
        body = body[:-1]  # a checksum, which means nothing where a signature is checked
    try:
        content = base64.b64decode(b"".join(body), validate=True)
    except binascii.Error:
        raise DamagedError("its armor is not base64") from None
    if not content:
        raise DamagedError("its armor is empty")
    return content


def _checked(packets: bytes) -> bytes:
    """`packets`, which begin with a public key."""
    tag = packets[0] if packets else 0
    number = tag & 0x3F if tag & 0x40 else tag >> 2 & 0x0F
    if tag & 0x80 and number in _SECRET_KEYS:
        raise DamagedError("it holds a private key: export the public one")
    if not tag & 0x80 or number != _PUBLIC_KEY:
        raise DamagedError("it holds no OpenPGP public key, armored or binary")
    return packets
