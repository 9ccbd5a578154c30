"""Projects in git repositories: cloned by this machine's git, so that an image needs none."""

import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote

from sifmod.config.limits import bound, limits
from sifmod.config.redact import without_logins
from sifmod.errors import FetchError, OptionError
from sifmod.image.child import HEAVY, NO_LIMIT, Ended, Most, run_child
from sifmod.system import remove_directory, walk

_URL = re.compile(r"(?:https?|ssh|git|file)://[^\s\0-\x1f]+")
_COMMIT = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")
# what a server says, which may repeat a login that git has from a helper
_OF_SERVER = re.compile(r"(?m)^remote: .*\n?|(?s:(?<=remote error): .*)")
_BETWEEN = 1.0  # seconds between two looks at the size of a clone
_SILENCE = "300"  # seconds, which a server may need for a large repository
# variables that select another repository
_OF_ANOTHER = re.compile("GIT_(?:DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|COMMON_DIR|NAMESPACE|PREFIX)")


@dataclass(frozen=True)
class GitSource:
    """A project in a repository; `revision` as requested, "" for the default branch."""

    url: str
    revision: str = ""
    subdirectory: str = ""
    commit: str = ""  # "" until it is looked up

    def __post_init__(self) -> None:
        """Raise OptionError unless the fields can be a repository's URL, a revision, a directory in it and a commit."""
        if not _URL.fullmatch(self.url):
            raise OptionError(
                f"{without_logins(self.url)} is not a repository", "write git+https://…, git+ssh://… or git+file:///…"
            )
        if self.revision.startswith("-") or re.search(r"[\s\0-\x1f]", self.revision):
            raise OptionError(f"{self.revision!r} is not a revision of a repository")
        if self.subdirectory.startswith("/") or ".." in self.subdirectory.split("/"):
            raise OptionError(f"{self.subdirectory} is not a directory in a repository")
        if self.commit and not _COMMIT.fullmatch(self.commit):
            raise OptionError(f"{self.commit!r} is not a commit")

    @property
    def spelled(self) -> str:
        """The project as in a requirement, with its commit if known."""
        revision = self.commit or self.revision
        subdirectory = f"#subdirectory={quote(self.subdirectory)}" if self.subdirectory else ""
        return f"git+{self.url}{f'@{revision}' if revision else ''}{subdirectory}"

    @property
    def asked(self) -> "GitSource":
        return replace(self, commit="")


def git_source(requirement: str) -> GitSource | None:
    """The project of a requirement with `git+…`; None for any other. Raises OptionError for an invalid repository."""
    found = re.search(r"(?:^|@ )git\+(\S+)", requirement)
    if not found:
        return None
    url, _, fragment = found[1].partition("#")
    subdirectory = parse_qs(fragment).get("subdirectory", [""])[-1]
    head, scheme, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    path, _, revision = path.rpartition("@") if "@" in path else (path, "", "")
    return GitSource(f"{head}{scheme}{host}{slash}{path}", unquote(revision), subdirectory)


@dataclass
class Checkouts:
    """The trees checked out below `directory`, each once."""

    directory: Path
    made: dict[GitSource, GitSource] = field(default_factory=dict)

    def take(self, asked: GitSource) -> GitSource:
        """Check out a project; returns it with its commit. Raises FetchError with git's messages, and OptionError.

        OptionError: this machine has no git, or the repository has no such directory.
        """
        if asked not in self.made:
            self.made[asked] = self._take(asked)
        return self.made[asked]

    def path(self, source: GitSource) -> Path:
        """The directory of the project that `source` names, after it was checked out."""
        return self.directory / source.commit / source.subdirectory

    def _take(self, asked: GitSource) -> GitSource:
        self.directory.mkdir(parents=True, exist_ok=True)
        clone, revision = self.directory / "clone", asked.commit or asked.revision
        remove_directory(clone)
        filtered = () if asked.url.startswith("file:") else ("--filter=blob:none",)
        self._git(asked, "clone", "--quiet", "--no-checkout", *filtered, "--", asked.url, str(clone))
        commit = self._commit(clone, revision)
        if not commit:  # it is in no branch: of a pull request, or replaced
            self._git(asked, "-C", str(clone), "fetch", "--quiet", "origin", "--", revision)
            commit = self._commit(clone, "FETCH_HEAD")
        source, within = replace(asked, commit=commit), self.directory / commit
        self._git(asked, "-C", str(clone), "checkout", "--quiet", "--detach", commit, "--")
        self._git(asked, "-C", str(clone), "submodule", "--quiet", "update", "--init", "--recursive")
        remove_directory(within)
        clone.rename(within)
        if not self.path(source).resolve().is_relative_to(within.resolve()) or not self.path(source).is_dir():
            raise OptionError(f"{without_logins(asked.url)} has no directory {asked.subdirectory}")
        return source

    def _commit(self, clone: Path, revision: str) -> str:
        for name in (f"refs/remotes/origin/{revision}", f"refs/tags/{revision}", revision) if revision else ("HEAD",):
            words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
            ended = _run(clone, *words)
            if ended.code == 0 and ended.lines and _COMMIT.fullmatch(ended.lines[-1]):
                return ended.lines[-1]
        return ""

    def _git(self, asked: GitSource, *words: str) -> None:
        size = _Size(self.directory / "clone")
        ended = _run(self.directory, *words, size=size, most=Most(limits().uv_memory))
        if beyond := size.measure():
            raise FetchError(f"{without_logins(asked.url)} has more {beyond}")
        if ended.code == HEAVY:
            raise FetchError(f"git took more bytes of memory than {bound('uv_memory')} for {without_logins(asked.url)}")
        if ended.code != 0:
            what = f"{asked.url}{f' at {asked.commit or asked.revision}' if asked.commit or asked.revision else ''}"
            said = "\n".join(_OF_SERVER.sub("", "\n".join(ended.lines)).splitlines()[-4:])
            raise FetchError(
                f"git cannot fetch {what}:\n{said}",
                "if it needs a login: git takes it from its credential helper or ~/.netrc, a key from ssh-agent; what "
                f"the server says: git ls-remote {asked.url}",
            )


@dataclass
class _Size:
    """The size of a clone that git is writing: a small repository may have a checkout without an end."""

    clone: Path
    next: float = 0.0

    def __call__(self) -> str:
        """What exceeds its limit, looked at from time to time: a look takes longer with each file."""
        began = time.monotonic()
        if began < self.next:
            return ""
        found = self.measure()
        self.next = time.monotonic() + max(_BETWEEN, 5 * (time.monotonic() - began))
        return found

    def measure(self) -> str:
        """What exceeds its limit; "" for nothing."""
        count = size = 0
        for place, _, names in walk(self.clone):
            for name in names:
                count += 1
                with suppress(OSError):  # git removes its temporary files
                    size += os.lstat(f"{place}/{name}").st_blocks * 512
            count += 1
            if count > limits().build_files:
                return f"files than {bound('build_files')}"
            if size > limits().package_size:
                return f"bytes than {bound('package_size')}"
        return ""


def _run(directory: Path, *words: str, size: Callable[[], object] = bool, most: Most = NO_LIMIT) -> Ended:
    program = shutil.which("git")
    if program is None:
        raise OptionError("a package is in a git repository, but this machine has no git", "load a module with git")
    kept = {name: value for name, value in os.environ.items() if not _OF_ANOTHER.fullmatch(name)}
    ssh = f"ssh -o BatchMode=yes -o ConnectTimeout={_SILENCE} -o ServerAliveInterval={_SILENCE}"
    given_up = {"GIT_HTTP_LOW_SPEED_LIMIT": "1", "GIT_HTTP_LOW_SPEED_TIME": _SILENCE, "GIT_SSH_COMMAND": ssh}
    silent = {**given_up, **kept, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}
    return run_child((program, *words), cwd=directory, env=silent, most=most, too_much=size)
