"""verify --signature: who signed an image, checked against public keys."""

from dataclasses import dataclass
from pathlib import Path

from sifmod.errors import FetchError, OptionError, PermissionsError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.printable import line
from sifmod.image.signature.check import check, signatures
from sifmod.tree.receipt import Installation


@dataclass(frozen=True)
class Outcome:
    """What came of one image: who signed it, or what is wrong and what to do about it."""

    path: Path
    signers: tuple[str, ...] = ()  # fingerprint and name
    problem: str = ""
    hint: str = ""


def check_image(path: Path, keys: tuple[Path, ...]) -> Outcome:
    """Check that owners of `keys` signed all of the SIF at `path`; reads all of it.

    Raises RuntimeMissingError where there is no gpgv, OptionError where it is signed and no key is given, or for a file
    of keys that is none.
    """
    if missing := next((key for key in keys if not key.is_file()), None):
        raise OptionError(f"there is no file {missing} with public keys")
    try:
        info = read_sif(path)
        if not keys and (claimed := signatures(path, info)):
            raise OptionError(
                f"{path} says that it is signed by {', '.join(one.fingerprint or 'an unnamed key' for one in claimed)};"
                " no public key is known that this could be checked with",
                "name a file with one: --keys FILE, or signatures: {keys: [FILE]} in the site file",
            )
        signers = check(path, info, keys)
    except (FetchError, PermissionsError) as error:  # SignatureError among them
        return Outcome(path, problem=error.message, hint=error.hint)
    return Outcome(path, tuple(f"{signer.fingerprint} {line(signer.name, 200)}".rstrip() for signer in signers))


def image_of(installation: Installation) -> Path:
    """The image that the module runs: its own link, or where that was removed what the receipt names."""
    link = Path(installation.root, installation.own_image.filename)
    return link if link.exists() else Path(installation.own_image.path)
