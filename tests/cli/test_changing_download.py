"""A SIF on a web server that changes while the command line fetches it: all of one of the two, and no mixture."""

from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.images import Images
from support.ranged import Ranged
from support.web import Handler, Web

MORE = 30_000_000  # bytes, so that it comes in several ranges


@pytest.mark.parametrize("etags", [('W/"one"', 'W/"two"'), ("", ""), ('"one"', '"two"')])
def test_it_is_fetched_again_from_the_beginning(tmp_path: Path, images: Images, etags: tuple[str, str]) -> None:
    """E5: with a weak ETag, or none, half of the file was of the old content, exit code 0."""
    sif, to = images.tiny_sif.read_bytes(), tmp_path / "new.sif"
    old = Ranged(sif + bytes([1]) * MORE, etags[0])
    new = Ranged(sif + bytes([2]) * MORE, etags[1])

    def answer(handler: Handler) -> None:
        (new if new.log or old.log else old)(handler)

    server = Web()
    server.answers["/x.sif"] = answer
    server.start()
    try:
        assert run(["fetch", "-q", f"http://127.0.0.1:{server.server_address[1]}/x.sif", "-o", str(to)]) == 0
    finally:
        server.stop()
    assert len(old.log) == 1
    counted = {value: to.read_bytes()[len(sif) :].count(value) for value in (1, 2)}
    assert counted == {1: 0, 2: MORE}
