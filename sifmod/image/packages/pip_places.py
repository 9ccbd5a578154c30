"""Where the pip of an image finds packages: in the indexes and pages that uv searches here, and nowhere else."""

import re

from sifmod.errors import FetchError, NoWheelError
from sifmod.image.packages.request import INDEXES, NO_INDEX, PackageRequest
from sifmod.image.packages.uv import Uv, host_words
from sifmod.image.packages.uv_settings import names_default_index, takes_newest_of_all, would_send_login

_WHEEL = "build a wheel of it, and name the wheel's directory in UV_FIND_LINKS"


def pip_places(uv: Uv, wanted: PackageRequest, why: str) -> tuple[str, ...]:
    """The lines of a requirements file that make pip search where uv does by its settings and the words of `wanted`.

    Raises NoWheelError, which begins with `why`, if pip could not search there, or might take another package.
    """
    (uv.directory / "none.in").touch()
    words = ("--emit-index-url", "--emit-find-links", "--no-header", "--quiet")
    ended = uv.run("pip", "compile", f"{uv.place}/none.in", *wanted.words, *host_words(), *words)
    if ended.code != 0:
        raise FetchError("uv could not list its indexes:\n" + "\n".join(ended.lines[-12:]))
    said = ended.said.decode("utf-8", "replace").splitlines()
    places = [(option, place) for option, _, place in (line.partition(" ") for line in said) if option[:2] == "--"]
    for _, place in places:
        if would_send_login(place):
            host = re.sub("^[^:]*:/*(?:[^/?#]*@)?([^/?#]*).*", r"\1", place)
            raise NoWheelError(
                f"{why}, and the image's pip does not get your login for {host}",
                f"{_WHEEL}; if {host} needs no login, do not set one for it",
            )
        if not re.match("https?://", place):
            raise NoWheelError(f"{why}, and the image's pip cannot read {place}, where uv searches", _WHEEL)
    indexes = dict.fromkeys(place for option, place in places if option.endswith("-index-url"))
    own = {word.partition("=")[2] for word in wanted.words if word.startswith(INDEXES)}
    if not names_default_index():
        own |= {place for option, place in places if option == "--index-url"}  # the one that uv has of its own
    if len(indexes) > 1 and not (own.issuperset(indexes) or takes_newest_of_all()):
        raise NoWheelError(
            f"{why}, and the image's pip would take the newest from {', '.join(indexes)}, unlike uv",
            f"{_WHEEL}; or set UV_DEFAULT_INDEX to the only index, or UV_INDEX_STRATEGY=unsafe-best-match",
        )
    hosts = (found[1] for _, place in places if (found := re.match("http://([^/?#]*)", place)))
    trusted = (f"--trusted-host {host}" for host in dict.fromkeys(hosts))  # which uv asks without TLS too
    return (*map(" ".join, places), *(() if indexes else (NO_INDEX,)), *trusted)
