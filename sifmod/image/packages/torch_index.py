"""The site's index for packages that are built around the image's torch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from packaging.version import Version

from sifmod.errors import NoPageError
from sifmod.image.packages.image_python import ImagePython
from sifmod.image.packages.request import FIND_LINKS, PackageRequest, name_of
from sifmod.image.packages.resolve import Resolved


@dataclass
class TorchIndex:
    """The site's index for the local version of the image's torch; `url` is "" if there is none.

    `names`: the packages that were searched there.
    """

    local: str
    url: str
    names: set[str] = field(default_factory=set)

    def resolved(
        self, python: ImagePython, wanted: PackageRequest, resolve: Callable[[tuple[str, ...]], Resolved]
    ) -> Resolved:
        """Call `resolve` with more arguments for uv, so that packages linked against torch come from this index.

        Only such packages are searched there: first the requested ones, then dependencies.
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
        """The argument that makes uv search this index for this package only."""
        return f"{FIND_LINKS}{self.url.rstrip('/')}/{name}/"


def torch_index(python: ImagePython, indexes: Iterable[tuple[str, str]]) -> TorchIndex:
    """The one of `indexes` (key, URL) with the longest key that begins the local version of the image's torch."""
    torch = python.distributions.get("torch")
    local = (Version(torch.version).local or "") if torch else ""
    fitting = [(len(key), url) for key, url in indexes if local and local.startswith(key)]
    return TorchIndex(local, max(fitting)[1] if fitting else "")


def _linked(python: ImagePython, names: Iterable[str]) -> set[str]:
    """Those of `names` that the image lacks, and would protect: packages built around torch."""
    return {name for name in names if name not in python.distributions and python.is_protected_name(name)}
