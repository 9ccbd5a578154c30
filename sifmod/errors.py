"""Errors: one family per boundary, each with its exit code (EasyBuild 5's numbers).

A message names the subject, what was expected, what was found, and what was done; the hint is the next command. Both
are plain text, lower-case start, no full stop on a single sentence.
"""

import errno
import re
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from sifmod.result import Described, Hint, OrNull
from sifmod.secret import without_secrets
from sifmod.system import limit_hint, meaning, one_line, reason

LINKED = "put a directory in its place; --prefix and, for layers, SIFMOD_LAYERS name a place on another disk"
_QUOTES = re.compile(r"""[\n"'\[\]]""")
BUG = 70  # the exit code of a bug
BUG_REPORT = "this is a bug in sifmod: please report it with the lines above and the command that you ran"


class SifmodError(Exception):
    """An error for the user: a message, and a hint for the next step."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "", *, short: str = "") -> None:
        self.message = without_secrets(message)
        super().__init__(self.message)
        self.hint = hint
        self._short = without_secrets(short)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error unchanged, whatever its constructor takes."""
        return SifmodError.__new__, (type(self), self.message), self.__dict__

    @property
    def text(self) -> str:
        """The text for people, without the hint."""
        return self.message

    @property
    def short(self) -> str:
        """The message for one line of a list: the `short` that was given, or else the first line of the message."""
        return self._short or self.message.partition("\n")[0]


class OptionError(SifmodError):
    """The command cannot be done as given: an option, argument, variable or file is missing, invalid or unsuitable."""

    exit_code = 2


class EasyconfigNotFoundError(SifmodError):
    """No easyconfig, or file to import, has this name or path, or it is something else, such as an image."""

    exit_code = 4


class Problem(NamedTuple):
    """One thing that is wrong, or odd, at one place."""

    file: Annotated[OrNull[str], Described("path of the file, or the option or the variable that gave the value")]
    line: Annotated[OrNull[int], Described("number of the line, from 1")]
    column: Annotated[OrNull[int], Described("number of the column, from 1")]
    key: Annotated[OrNull[str], Described("path of the key, as in image.sources[0]")]
    message: str

    def __str__(self) -> str:
        """`file:line:column: [key.path: ]message`, the form that editors and `grep -n` understand."""
        place = f"{one_line(self.file)}:{self.line}:{self.column}: "
        return f"{place}{self.key}: {self.message}" if self.key else f"{place}{self.message}"


class ConfigError(SifmodError):
    """One or more files, options or variables are invalid; `problems` has every problem."""

    exit_code = 5

    def __init__(self, problems: tuple[Problem, ...], hint: str = "") -> None:
        super().__init__("\n".join(str(problem) for problem in problems), hint)
        self.problems = problems

    @property
    def text(self) -> str:
        """The number of problems, then each problem on its own line, so that an editor finds the position."""
        number = len(self.problems)
        return f"{'a problem' if number == 1 else f'{number} problems'} in the configuration\n{self.message}"


class Error(NamedTuple):
    """The error as `--json` prints it, with the position of the first problem."""

    error: Annotated[str, Described("the message, without the hint")]
    hint: OrNull[Hint]
    exit_code: int
    file: OrNull[str]
    line: OrNull[int]
    column: OrNull[int]
    problems: tuple[Problem, ...]


def as_result(error: SifmodError) -> Error:
    """The error as `--json` prints it."""
    problems = error.problems if isinstance(error, ConfigError) else ()
    first = problems[0] if problems else Problem("", 0, 0, "", "")
    return Error(error.message, error.hint, error.exit_code, first.file, first.line, first.column, problems)


class PatternError(SifmodError):
    """A pattern exceeds a limit: on its matches, or on the directories that it visits."""

    exit_code = 5


class VariantError(SifmodError):
    """There is no such variant, or none that fits this machine and has an image that is available here."""

    exit_code = 5


class FetchError(SifmodError):
    """Something could not be fetched, or an image could not be built, converted, read, pushed or exported.

    `status` is the HTTP status of a server's response; None without one.
    """

    exit_code = 10

    def __init__(self, message: str, hint: str = "", status: int | None = None) -> None:
        super().__init__(message, hint)
        self.status = status


class ImageError(FetchError):
    """An image, a bundle or a package is damaged, unsuitable or not the expected one, or cannot be read."""


class NoWheelError(FetchError):
    """A package has no wheel for an image and would have to be compiled."""


class NoPackageError(OptionError):
    """The packages `names` are in none of the searched places."""

    def __init__(self, message: str, hint: str, names: tuple[str, ...]) -> None:
        super().__init__(message, hint)
        self.names = names


class NoPageError(FetchError):
    """The page at `url`, where packages were searched, does not exist or was refused (HTTP 403, 404, 410)."""

    def __init__(self, message: str, url: str) -> None:
        super().__init__(message)
        self.url = url


class SignatureError(ImageError):
    """A SIF, or a part of it, has no accepted signature by a trusted key, or there is no usable key to verify it."""


class UnstartableError(ImageError):
    """The site's runtime cannot start the SIF, or could not start one with the requested compression."""


class RuntimeMissingError(SifmodError):
    """A program that this step needs (Apptainer, Singularity, gpgv) is missing."""

    exit_code = 10


class InstallError(SifmodError):
    """A tree could not be read or changed as planned, does not match its lock, or cannot be put into a bundle."""

    exit_code = 18


class FullError(InstallError):
    """The disk or a quota is full."""


class HeldError(InstallError):
    """The content to install is held, because a rollback replaced it."""


class LockError(InstallError):
    """A lock was lost: another process has taken it over, or its files were removed."""


class HookError(InstallError):
    """A hook of the site failed, took too long, or was not run: it is missing, or others could have written it."""


class SanityCheckError(SifmodError):
    """The sanity check of a module, or a step of its test, failed; an install does not publish the module.

    `output`: the last lines that the failed command printed.
    """

    exit_code = 22

    def __init__(self, message: str, hint: str = "", output: Iterable[str] = ()) -> None:
        self.output = tuple(output)
        super().__init__("\n".join((message, *self.output)), hint, short=message)


class ModuleError(SifmodError):
    """A name means no module or stored image, or several; or a module lacks what is needed, or cannot be rendered."""

    exit_code = 24


class ViewError(ModuleError):
    """The module is a view, but a module with an image is needed."""

    def __init__(self, module: object, modules: tuple[str, ...]) -> None:
        super().__init__(
            f"{module} is a view without its own image", f"name a module that it loads: {', '.join(modules)}"
        )


class PermissionsError(SifmodError):
    """The user may not read or change a path, or give it to a group, or other users could change it."""

    exit_code = 25


class LinkInPrefixError(OSError):
    """A directory of the prefix is a symlink."""


def explained(error: BaseException) -> SifmodError | None:
    """The error for a failing or limited machine or a name that is no text, with advice; None for another: a bug."""
    if str(error) == "can't start new thread" or (isinstance(error, BlockingIOError) and not error.filename):  # fork
        hint = "`ulimit -u` shows the limit of processes, `ulimit -v` that of memory: raise it"
        return InstallError("no further process or thread may be started here", hint)
    if isinstance(error, MemoryError):
        hint = "`ulimit -v` shows the limit, and a job has one of its own: raise it"
        return InstallError("there is too little memory here", hint)
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        before, after = (_QUOTES.split(part) for part in (error.object[: error.end], error.object[error.end :]))
        message = f"'{one_line(before[-1] + after[0])}' is not UTF-8, so sifmod cannot record it"
        return InstallError(message, "rename it, then run the command again")
    if not isinstance(error, OSError):
        return None
    place = f"{one_line(str(error.filename))}: " if error.filename else ""
    match meaning(error):
        case "denied":
            hint = "ask its owner for access, or choose a place of your own; --prefix or SIFMOD_PREFIX names the tree"
            return PermissionsError(f"{place}{reason(error)}", hint)
        case "full":
            hint = (
                "free some space, or choose another disk with --prefix or SIFMOD_PREFIX; `sifmod gc` shows what it "
                "can remove"
            )
            return InstallError(f"{place}{reason(error)}, nothing was published", hint)
        case "limited":
            return InstallError(f"{place}{reason(error)}", limit_hint(error))
    if error.errno == errno.ENOENT and not error.filename:
        if error.strerror != reason(error):  # what tempfile says
            hint = "free some space there, or set TMPDIR to a directory that you can write"
            return InstallError(str(error.strerror), hint)
        return SifmodError("the current directory has been removed", "go to another directory and repeat the command")
    if isinstance(error, LinkInPrefixError):
        return InstallError(str(error), LINKED)
    if error.errno in (errno.EIO, errno.ESTALE) and not error.filename:  # of `read` and `close`
        message = f"a file cannot be read or written: {reason(error)}"
        return InstallError(message, "the disk or its server has failed; repeat the command when it works again")
    return InstallError(f"{place}{reason(error)}", "fix this, then run the command again") if error.filename else None


def error_of(error: SifmodError | OSError) -> SifmodError:
    """The error as it is; an OSError as `explained`."""
    return error if isinstance(error, SifmodError) else explained(error) or SifmodError(str(error))


def with_code(message: str, hint: str, exit_code: int) -> SifmodError:
    """A SifmodError of no family, with this exit code."""
    error = SifmodError(message, hint)
    error.exit_code = exit_code
    return error
