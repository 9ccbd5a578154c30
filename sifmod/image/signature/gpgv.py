"""GnuPG's gpgv, which does the mathematics of OpenPGP: is this signature of this text by one of these keys?"""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from sifmod.errors import RuntimeMissingError
from sifmod.image.disk import writing
from sifmod.image.signature.clear_sign import ClearSigned

Outcome = Literal["good", "bad", "unknown-key", "expired-key", "revoked-key", "expired", "weak", "damaged"]

_OUTCOMES: tuple[tuple[str, Outcome], ...] = (  # the first that gpgv reports counts
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


@dataclass(frozen=True)
class Verdict:
    """What gpgv says. `fingerprint` is the primary key's, or for a key that is not known its number; upper case."""

    outcome: Outcome
    fingerprint: str = ""
    name: str = ""


def verify(message: ClearSigned, keys: bytes) -> Verdict:
    """Whether one of `keys`, the packets of public keys, made the signature of `message`.

    Only the good outcome means that it did, with a key that is in force today and a hash that still is safe. Raises
    RuntimeMissingError where there is no gpgv.
    """
    with writing(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="sifmod-gpgv-") as work:
        files = {"keys.gpg": keys, "text.sig": message.signature, "text": message.signed}
        paths = [Path(work, name) for name in files]
        for path, content in zip(paths, files.values(), strict=True):
            path.write_bytes(content)
        command = ("gpgv", "--homedir", work, "--status-fd", "1", "--keyring", *map(str, paths))
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "GNUPGHOME": work, "HOME": work}
        try:
            done = subprocess.run(command, capture_output=True, env=environment, stdin=subprocess.DEVNULL, check=False)
        except FileNotFoundError:
            raise RuntimeMissingError(
                "gpgv was not found, and signatures are checked with it", "install GnuPG (the package gpgv or gnupg2)"
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
    """A key's user ID, fit for a message."""
    text = unquote(" ".join(words))
    return "".join(letter if letter.isprintable() else "?" for letter in text)
