"""The site's policy about signatures, held against an image."""

from pathlib import Path

from sifmod.errors import SignatureError
from sifmod.image.convert.sif.header import SifInfo
from sifmod.image.reference import Reference
from sifmod.image.settings import Settings
from sifmod.image.signature.check import check


def refuse_unsigned_kind(reference: Reference, settings: Settings) -> None:
    """Raise SignatureError for what cannot end in a signed SIF, where one must be; before any fetch."""
    if settings.policy != "require":
        return
    if missing := next((key for key in settings.keys if not key.is_file()), None):
        raise SignatureError(f"not tried: the site requires signed images, and its file of keys {missing} is missing")
    if not settings.keys:
        raise SignatureError(
            "not tried: the site requires signed images and names no key whose signature counts",
            "name files with public keys: `signatures: {policy: require, keys: [FILE]}`",
        )
    if not reference.kind.ready_made:
        raise SignatureError(
            f"not tried: the site requires signed images, and a SIF made from a {reference.kind.name}: source bears no"
            " signature",
            "give a signed SIF: a path, https: or oras:",
        )


def check_policy(path: Path, name: str, info: SifInfo, settings: Settings) -> tuple[str, ...]:
    """What is to be said about the signature of the image at `path`, called `name` in messages.

    Raises SignatureError where the policy is `require` and no good signature by one of the site's keys covers it.
    """
    if settings.policy == "off":
        return ()
    try:
        signed = check(path, info, settings.keys)
    except SignatureError as error:
        message = error.message.replace(str(path), name)
        if settings.policy == "require":
            raise SignatureError(message, error.hint) from error
        return (f"{message}; the site only warns of it",)
    names = ", ".join(f"{signer.name} ({signer.fingerprint})" for signer in signed.signers)
    return (f"signed by {names}",)
