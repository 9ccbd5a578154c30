"""The site's policy about signatures, held against an image."""

from pathlib import Path

from sifmod.errors import SignatureError
from sifmod.image.reference import Kind
from sifmod.image.settings import Settings
from sifmod.image.sif.header import SifInfo
from sifmod.image.signature.check import check

_MADE_HERE = ("docker", "oci", "oci-archive", "docker-archive", "build")


def refuse_unsigned_kind(kind: Kind, settings: Settings) -> None:
    """Raise SignatureError for a kind of source that cannot give a signed SIF, where one must be; before any fetch."""
    if settings.policy == "require" and kind in _MADE_HERE:
        raise SignatureError(
            f"not tried: the site requires signed images, and a SIF made from a {kind}: source bears no signature",
            "give a signed SIF: a path, https: or oras:",
        )


def check_policy(path: Path, info: SifInfo, settings: Settings) -> tuple[str, ...]:
    """What is to be said about the signature of the image at `path`.

    Raises SignatureError where the policy is `require` and no good signature by one of the site's keys covers it.
    """
    if settings.policy == "off":
        return ()
    try:
        signed = check(path, info, settings.keys)
    except SignatureError as error:
        if settings.policy == "require":
            raise
        return (f"{error.message}; the site only warns of it",)
    names = ", ".join(f"{signer.name} ({signer.fingerprint})" for signer in signed.signers)
    return (f"signed by {names}",)
