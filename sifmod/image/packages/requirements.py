"""The user's request, in arguments and requirements files: one value, or every problem at once."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from sifmod.errors import OptionError
from sifmod.image.packages.direct_requirement import RECIPE, direct_requirement, editable
from sifmod.image.packages.request import (
    FIND_LINKS,
    PackageRequest,
    check_login,
    check_open,
    index_word,
    name_of,
    place,
)
from sifmod.image.packages.requirement_lines import Line, read_lines
from sifmod.secret import cut

_NAMED = re.compile(r"([A-Za-z0-9][\w.-]*(?:\s*\[[^\]]*\])?)\s*@\s*(.+)", re.DOTALL)
_SHA256 = re.compile("sha256:([0-9a-f]{64})")
_FRAGMENT = re.compile("#(?:[^\\s]*&)?sha256=([0-9a-f]{64})")
_AGAIN = "`uv pip compile --generate-hashes` writes a file with digests on every line"
# options that are not supported, and the remedy for each
_REMEDIES = {
    "--prefer-binary": "remove it; --only-binary NAME uses only wheels",
    "--trusted-host": "remove it; set UV_INSECURE_HOST=HOST in the environment instead",
    "--use-feature": "remove it: it is an option of pip itself",
    "--global-option": "remove it; environment variables reach the build",
    "--config-settings": "remove it; environment variables reach the build",
}
_NOT_IN_RECIPES = ("--editable", "--find-links", "--no-index", "--no-binary")


@dataclass
class _Requests:
    """The requests that were read so far, and their problems."""

    recipe: bool = False
    requirements: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    editable: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    digests: dict[str, list[str]] = field(default_factory=dict)
    bare: list[tuple[str, str]] = field(default_factory=list)  # place and text of requirements without a digest
    hashed: bool = False
    problems: list[str] = field(default_factory=list)
    files: dict[Path, None] = field(default_factory=dict)

    def read(self, path: Path, *, constrains: bool = False) -> None:
        self.files[path] = None
        for line in read_lines(path, constrains=constrains):
            self.files[line.path] = None
            with self._collecting(line.where):
                lists = (self.requirements, self.unnamed, self.editable, self.words)
                counts = tuple(map(len, lists))
                self._take(line)
                named, unnamed, projects, words = (tuple(one[n:]) for one, n in zip(lists, counts, strict=True))
                check_open(PackageRequest(named, unnamed, projects, words).texts, line.path)

    def word(self, text: str) -> None:
        with self._collecting(""):
            self.bare.append((text, self._require(text)))

    def project(self, text: str, where: str = "") -> None:
        with self._collecting(where):
            self.editable.append(editable(text))
            self.bare.append((where or f"-e {text}", text))

    @contextmanager
    def _collecting(self, where: str) -> Iterator[None]:
        try:
            yield
        except OptionError as error:
            self.problems.append(_problem(where, error))
        except RecursionError:
            self.problems.append(_problem(where, OptionError("a marker is nested too deep")))
        except OSError as error:  # a path that is too long
            self.problems.append(_problem(where, OptionError(f"{cut(str(error.filename), 60)}…: {error.strerror}")))

    def _take(self, line: Line) -> None:
        if line.problem:
            raise OptionError(line.problem)
        names = dict.fromkeys(name for name, _ in line.options)
        for name in names:
            check = _REMEDIES.get(name) or (RECIPE if self.recipe and name in _NOT_IN_RECIPES else "")
            if check:
                raise OptionError(f"{name} is not supported", check)
            if line.requirement and name != "--hash":
                raise OptionError(f"{name} after a requirement is not supported", "give it its own line")
        if line.requirement:
            self._take_requirement(line)
        elif "--hash" in names:
            raise OptionError("a digest without a requirement", "end the previous line with a backslash")
        for name, value in line.options:
            self._take_option(line, name, value)

    def _take_requirement(self, line: Line) -> None:
        digests = line.values("--hash")
        good = [found[1] for text in digests if (found := _SHA256.fullmatch(text))]
        if digests and not good:
            raise OptionError(f"{cut(digests[0], 80)} is not supported: use SHA-256, as sha256:HEX", _AGAIN)
        if line.constrains:
            check_login(line.requirement, "the constraint")
            try:
                name = Requirement(line.requirement)
            except InvalidRequirement as error:
                raise OptionError(f"{line.requirement!r} is not a constraint", "write NAME<2") from error
            if name.url or name.extras:
                raise OptionError(
                    f"{line.requirement} cannot be a constraint", "write NAME==VERSION, without extras, path or URL"
                )
            self.constraints.append(line.requirement)
            what = line.requirement
        else:
            what = self._require(line.requirement)
            if not digests and not _FRAGMENT.search(line.requirement):
                self.bare.append((line.where, line.requirement))
            elif what and not _is_pinned(what):
                raise OptionError(f"{line.requirement} has a digest, but no version", "write NAME==VERSION")
        if good:
            self.hashed = True
            if not what:
                raise OptionError(f"{line.requirement} has a digest, but no name", "write NAME @ URL")
            self.digests.setdefault(name_of(what), []).extend(good)

    def _take_option(self, line: Line, name: str, value: str) -> None:
        if name == "--editable":
            self.project(value, line.where)
        elif name == "--find-links":
            beside = line.path.parent / value
            self.words.append(f"{FIND_LINKS}{place(str(beside) if beside.exists() else value)}")
        elif name in ("--index-url", "--extra-index-url"):
            self.words.append(index_word(name, value))
        elif name in ("--no-binary", "--only-binary"):
            for each in filter(None, value.split(",")):
                if each not in (":all:", ":none:"):
                    name_of(each)
                self.words.append(f"{name}={each}")
        elif name == "--no-index":
            self.words.append(name)
        elif name == "--pre":
            self.words.append("--prerelease=allow")
        elif name == "--require-hashes":
            self.hashed = True

    def _require(self, text: str) -> str:
        """Add a requirement; returns it as it is stored, "" if its name is unknown yet. Raises OptionError."""
        check_login(text, "the requirement")
        if "${" in text:
            raise OptionError(f"{text}: a variable is only replaced in a file, and only once")
        is_url = "://" in text.partition("@")[0] or text.startswith("file:")
        found = None if is_url else _NAMED.fullmatch(text)
        name, spelled = (found[1].replace(" ", ""), found[2]) if found else ("", text)
        kept = direct_requirement(name, spelled, recipe=self.recipe) or text
        if kept.startswith((" @", "[")):
            name_of(f"unnamed{kept}")
            self.unnamed.append(kept)
            return ""
        self.digests.setdefault(name_of(kept), []).extend(_FRAGMENT.findall(kept))
        self.requirements.append(kept)
        return kept

    def checked(self) -> PackageRequest:
        """All that was read, as one request. Raises OptionError with all problems."""
        for where, text in self.bare if self.hashed else ():
            problem = (
                f"{text} has no digest, but others have" if any(self.digests.values()) else f"{text} has no digest"
            )
            self.problems.append(f"{where}: {problem}; {_AGAIN}" if where != text else f"{problem}; add it separately")
        if len(self.problems) == 1:
            raise OptionError(self.problems[0])
        if self.problems:
            listed = "\n".join(f"  {one}" for one in self.problems)
            raise OptionError(f"{len(self.problems)} requirements cannot be used:\n{listed}")
        digests = ((name, tuple(dict.fromkeys(found))) for name, found in self.digests.items() if found)
        return PackageRequest(
            tuple(self.requirements), tuple(self.unnamed), tuple(self.editable), tuple(dict.fromkeys(self.words)),
            tuple(self.constraints), tuple(digests),
        )  # fmt: skip


def parse_requests(
    requirements: Iterable[str] = (),
    editable: Iterable[str] = (),
    files: Iterable[Path] = (),
    constraints: Iterable[Path] = (),
    *,
    all_hashed: bool = False,
) -> PackageRequest:
    """The request of a command. Relative paths start at the working directory, except those of -r, -c and -f in files.

    `all_hashed`: each requirement needs a digest. Raises OptionError with all problems, each line with its file and
    number.
    """
    found, limits = _Requests(hashed=all_hashed), tuple(constraints)
    for text in requirements:
        found.word(text)
    for text in editable:
        found.project(text)
    for path in files:
        if path.suffix == ".toml":
            raise OptionError(
                f"{path} is a lock or a project", "use `sifmod layer sync MODULE LOCK` for a lock, -e for a project"
            )
        found.read(path)
    for path in limits:
        found.read(path, constrains=True)
    wanted = found.checked()
    return wanted if limits or wanted.constraints else replace(wanted, constraints=None)


def parse_recipe_requests(path: Path) -> tuple[PackageRequest, tuple[Path, ...]]:
    """The request of a recipe's requirements file, and the files that were read.

    Raises OptionError for requirements that are not packages of an index.
    """
    found = _Requests(recipe=True)
    found.read(path)
    return found.checked(), tuple(found.files)


def _problem(where: str, error: OptionError) -> str:
    return "; ".join(filter(None, (f"{where}: {error.message}" if where else error.message, error.hint)))


def _is_pinned(requirement: str) -> bool:
    read = Requirement(requirement)
    return bool(read.url) or any(one.operator in ("==", "===") and "*" not in one.version for one in read.specifier)
