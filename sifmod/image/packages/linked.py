"""Packages that are linked against an image's torch of a local version (+cpu, +cu126): from the index for that."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from packaging.version import Version

from sifmod.errors import NoPageError
from sifmod.image.packages.image_python import ImagePython
from sifmod.image.packages.resolve import Resolved
from sifmod.image.packages.wanted import FIND_LINKS, Wanted, name_of


@dataclass
class TorchIndex:
    """The index that a site names for the local version of the image's torch; `url` is "" where it names none.

    `names`: what has been looked for there.
    """

    local: str
    url: str
    names: set[str] = field(default_factory=set)

    def resolved(self, python: ImagePython, wanted: Wanted, resolve: Callable[[tuple[str, ...]], Resolved]) -> Resolved:
        """What `resolve` gives with more words of uv: packages that are linked against torch come from the index too.

        It is asked for these alone: first for those that are asked for, then for those that come with something else.
        """
        if not self.url or "--no-index" in wanted.words:
            return resolve(())
        self.names, refused = _linked(python, map(name_of, wanted.requirements)), set[str]()
        while True:
            try:
                resolved = resolve(tuple(map(self._word, sorted(self.names))))
            except NoPageError as error:
                missing = {name for name in self.names if self._word(name) == f"{FIND_LINKS}{error.url}"}
                if not missing:
                    raise
                refused |= missing
                self.names -= missing
                continue
            if not (more := _linked(python, resolved.added) - self.names - refused):
                return resolved
            self.names |= more

    def _word(self, name: str) -> str:
        """The word of uv by which one package is looked for there, and no other."""
        return f"{FIND_LINKS}{self.url.rstrip('/')}/{name}/"


def torch_index(python: ImagePython, indexes: Iterable[tuple[str, str]]) -> TorchIndex:
    """Of the site's `package_indexes` the one whose key is the longest beginning of the local version."""
    torch = python.distributions.get("torch")
    local = (Version(torch.version).local or "") if torch else ""
    fitting = [(len(key), url) for key, url in indexes if local and local.startswith(key)]
    return TorchIndex(local, max(fitting)[1] if fitting else "")


def _linked(python: ImagePython, names: Iterable[str]) -> set[str]:
    """Those of the names that would stay if the image had them: what is built around torch."""
    return {name for name in names if name not in python.distributions and python.is_protected_name(name)}
