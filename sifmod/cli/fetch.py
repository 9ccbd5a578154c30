"""`sifmod fetch`."""

from collections.abc import Callable
from pathlib import Path

import click

from sifmod.actions.batch import worst
from sifmod.actions.start import site_in_force
from sifmod.cli.batch import Reported, reported_batch, result_of, summary
from sifmod.cli.command import argument, command
from sifmod.cli.context import reporter
from sifmod.cli.later import later
from sifmod.cli.output import echo, print_json, quiet, say
from sifmod.cli.shared_options import ConversionOptions
from sifmod.config.redact import shown
from sifmod.errors import OptionError

with later():
    from sifmod.actions import fetch
    from sifmod.cli import progress


class FetchCommand(ConversionOptions):
    references: tuple[str, ...] = argument("REFERENCE...", many=True)
    output: Path | None = None
    sha256: str | None = None
    arch: str | None = None
    force: bool = False
    fail_fast: bool = False
    keep_blobs: bool = False


@command("fetch", FetchCommand, lambda: fetch.FetchedImage | list[fetch.FetchedReference])
def fetch_command(given: FetchCommand) -> int:
    """Fetch images into the store or a file, verify them, and print the paths of their SIFs.

    REFERENCE is a source as in an easyconfig: docker://, oras://, https://, oci:, oci-archive:, docker-archive:,
    library://, a path, or a name in the site's image directories. An interrupted download is resumed. If one of several
    references fails, the others are still fetched.
    """
    references = given.references
    if len(references) > 1 and (given.output or given.sha256):
        raise click.UsageError("-o and --sha256 take a single REFERENCE")
    if given.output == Path("-"):
        raise OptionError("-o -: a SIF cannot be written to standard output", "name a file: -o FILE.sif")
    one = _fetch(given)
    if len(references) == 1:
        reported = one(references[0])
        if given.as_json:
            print_json(reported.result)
        return 0
    batch = reported_batch(references, one, fail_fast=given.fail_fast)
    ended = [(shown(reference), one) for reference, one in batch]
    code = worst([one for _, one in ended])
    for line in summary(ended) if code or not given.quiet else ():
        say(line)
    if given.as_json:
        print_json([fetch.FetchedReference(reference, result_of(one)) for reference, one in ended])
    return code


def _fetch(given: FetchCommand) -> Callable[[str], Reported]:
    """A function that fetches an image by its reference and, without --json, prints its path."""
    site = site_in_force(given.settings).site
    options = fetch.FetchOptions(
        sha256=_digest(given.sha256) if given.sha256 else None,
        arch=given.arch,
        output=given.output and given.output.absolute(),
        force=given.force,
        offline=given.offline,
        keep_blobs=given.keep_blobs,
        into_home=given.yes,
    )
    speak = quiet if given.quiet else say

    def fetched(reference: str) -> Reported:
        speak(f"fetching {shown(reference)}")
        with progress.progress(speak is say) as update:
            artifact = fetch.fetch(reference, site, options, reporter(speak, update))
        state = "fetched" if update.used else "already in the store"
        if given.as_json:
            return Reported(state, fetch.with_promise(artifact))
        if not update.used:
            speak("the image is already in the store")
        if options.keep_blobs and not update.used:
            speak(progress.NOTHING_KEPT)
        for note in artifact.notes:
            speak(note)
        # print once: the store's path and the line that pins a SIF contain it
        if not any(artifact.sha256 in text for text in (*artifact.notes, str(artifact.path))):
            speak(f"SHA-256 {artifact.sha256}")
        echo(artifact.path)
        return Reported(state)

    return fetched


def _digest(text: str) -> str:
    digest = text.removeprefix("sha256:").lower()
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise OptionError(f"--sha256: expected 64 hexadecimal digits, got {text!r}")
    return digest
