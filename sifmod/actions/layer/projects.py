"""Projects of a layer: check out those in repositories, and build those without a static name."""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from sifmod.actions.layer.inside import Inside
from sifmod.errors import OptionError
from sifmod.image.packages.direct_requirement import static_name
from sifmod.image.packages.git_tree import Checkouts, GitSource, git_source
from sifmod.image.packages.image_python import ImagePython
from sifmod.image.packages.package_lock import repositories
from sifmod.image.packages.request import PackageRequest, name_of, path_of
from sifmod.image.packages.resolve import Trees

_NAMED = "pylock.named.toml"


@dataclass(frozen=True)
class Projects:
    """The parts of a layer that are built from source trees."""

    inside: Inside
    python: ImagePython
    checkouts: Checkouts

    def named(self, wanted: PackageRequest) -> PackageRequest:
        """The request with all projects' names. Raises OptionError if a build gives none, FetchError if git fails."""
        found = tuple(f"{self._name(rest, wanted.words)}{rest}" for rest in wanted.unnamed)
        return replace(wanted, requirements=(*wanted.requirements, *found), unnamed=())

    def trees(self, wanted: PackageRequest, earlier: str) -> Trees:
        """The source tree of each requested repository, at the commit in the `earlier` lock if it has one."""
        before = repositories(earlier)
        found = {}
        for text in wanted.requirements:
            if asked := git_source(text):
                known = before.get(name_of(text))
                commit = known.commit if known and known.asked == asked else ""
                found[asked] = self.tree(replace(asked, commit=commit))
        return found

    def tree(self, source: GitSource) -> tuple[GitSource, str]:
        """A source with its commit, and the path of its source tree in the container."""
        taken = self.checkouts.take(source)
        place = self.checkouts.path(taken).relative_to(self.inside.directory)
        return taken, f"{self.inside.target}/{place}"

    def _name(self, rest: str, words: tuple[str, ...]) -> str:
        here, place = path_of(rest), ""
        if source := git_source(rest):
            taken, place = self.tree(source)
            here = self.checkouts.path(taken)
        if here and (known := static_name(here)):
            return known
        work = self.inside.directory / "work"
        (work / "named.in").write_text(f"{Path(place).as_uri() if place else here and here.as_uri()}\n")
        inside = f"{self.inside.target}/work"
        words = (
            "pip",
            "compile",
            f"{inside}/named.in",
            "--python",
            self.python.executable,
            *words,
            "--no-deps",
            "--refresh",
        )
        ended = self.inside.uv(*words, "--no-header", "--quiet", "--format", "pylock.toml", "-o", f"{inside}/{_NAMED}")
        if ended.code == 0:
            return str(tomllib.loads((work / _NAMED).read_text())["packages"][0]["name"])
        said = "\n".join(ended.lines[-8:])
        raise OptionError(f"{rest.partition('@ ')[2]} does not give its name:\n{said}", "write NAME @ PLACE")
