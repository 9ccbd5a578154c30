"""Limits on the work that other users' files can cause, which a site can raise; and reading within them.

They are kept for the whole process: a command reads its settings first (actions/start.py), and the code that reads
another user's file does not get the settings.
"""

import os
import stat
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from sifmod.config.pattern import Most, Searched, TooMuchError, found_by
from sifmod.config.text import size_in_bytes, whole_number
from sifmod.config.yaml.validate import Model
from sifmod.errors import PatternError

Count = Annotated[int, Field(ge=1, le=1 << 40), BeforeValidator(whole_number)]
Depth = Annotated[int, Field(ge=1, le=500), BeforeValidator(whole_number)]  # Python's stack ends behind 600
Size = Annotated[int, Field(ge=1 << 10, le=1 << 50), BeforeValidator(size_in_bytes)]


class Limits(Model):
    """Maximum sizes, counts and times for work on files that another user may have made."""

    stack_size: Size = 1 << 20
    """Bytes of a stack file."""
    include_depth: Depth = 11
    """Depth of nested includes in stack files."""
    included_files: Count = 1000
    """Files that a stack includes or a requirements.txt names, counted each time."""
    pattern_directories: Count = 5_000
    """Directories that the patterns of a stack, of a definition, or of a list of bind paths visit."""
    pattern_files: Count = 50_000
    """Files that these patterns match, or that are below a directory for `check` or `import`."""
    lock_size: Size = 64 << 20
    """Bytes of a lock (modules or packages), or of a list for `--without`."""
    lock_values: Count = 200_000
    """Texts in a lock of packages (names, versions, addresses, digests); objects and lists in a lock of modules."""
    uv_memory: Size = 2 << 30
    """Bytes of memory that git takes, and uv, which holds the pages of a package index."""
    package_size: Size = 8 << 30
    """Bytes of each file that uv writes (a wheel, or a file in it), or of a git repository with its checkout."""
    requirements_size: Size = 4 << 20
    """Bytes of a requirements.txt with the files that it names."""
    requirement_lines: Count = 10_000
    """Lines of a requirements.txt with the files that it names, without comments; each takes a millisecond."""
    requirement_size: Size = 64 << 10
    """Characters of one requirement in a requirements.txt, digests included, and of a text in a lock of packages."""
    bundle_files: Count = 50_000
    """Files in a bundle."""
    bundle_file_size: Size = 64 << 20
    """Bytes of a file in a bundle, except images and wheels."""
    bundle_size: Size = 256 << 20
    """Bytes of all files in a bundle, except images and wheels."""
    build_files: Count = 200_000
    """Files of a recipe, of the context of a Dockerfile, or of a git repository."""
    build_text_size: Size = 1 << 20
    """Bytes of a definition file, a Dockerfile, and its .dockerignore."""
    build_rules: Count = 1000
    """Lines of a .dockerignore; each is compared with each file."""
    build_images: Count = 100
    """Images that a definition or a Dockerfile starts or copies from; each is looked up in its registry."""
    layer_ratio: Count = 2000
    """Times its size that a layer of an image, or an image, unpacks to, beyond 16 GiB; gzip reaches 1032."""
    archive_files: Count = 1_000_000
    """Files in an archive of an image (oci-archive, docker-archive)."""
    header_size: Size = 1 << 20
    """Bytes of an extended header in a layer of an image."""
    sparse_file_size: Size = 1 << 41
    """Apparent bytes of a sparse file in a layer; each 128 KiB take 4 bytes of memory."""
    image_packages: Count = 20_000
    """Packages that are listed of an image."""
    image_files: Count = 2_000_000
    """Files of an image that are visited to list its packages."""
    wrappers: Count = 2000
    """Wrappers of one module, with `wrappers: auto`, or commands of a layer."""
    sanity_check_time: Count = 600
    """Seconds for each command of a sanity check; `sifmod test --timeout` has its own."""


_current = Limits()


def limits() -> Limits:
    """The limits in force."""
    return _current


def use_limits(own: Limits) -> None:
    """Use `own` from now on."""
    global _current
    _current = own


def bound(name: str) -> str:
    """The limit and how to raise it, for messages: `more than …`."""
    return f"{getattr(_current, name)}{raised(name)}"


def raised(name: str) -> str:
    """How to raise a limit, for a message that has named it."""
    return f" (`limits: {{{name}: N}}` in the settings raises the limit)"


class NotReadError(ValueError):
    """The file is larger than its limit, or is a pipe, a device or a directory."""


def read_bounded(path: Path, name: str) -> bytes:
    """The content of a file, within the limit `name`; never waits for a pipe. Raises OSError and NotReadError."""
    most: int = getattr(limits(), name)
    with open(path, "rb", opener=_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotReadError(f"{path} cannot be read: it is not a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise NotReadError(f"{path} has more bytes than {bound(name)}")
    return content


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def check_json(data: bytes, name: str) -> None:
    """Raise NotReadError for JSON whose objects and lists are more than `lock_values`; each takes 240 bytes."""
    if data.count(b"{") + data.count(b"[") > limits().lock_values:
        raise NotReadError(f"{name} has more values than {bound('lock_values')}")


def matches(pattern: str, searched: Searched | None = None) -> tuple[str, ...]:
    """The matches of a pattern, sorted. Raises PatternError beyond the limits."""
    try:
        return tuple(sorted(found_within_limits(pattern, pattern, searched)))
    except TooMuchError as error:
        raise PatternError(str(error), "name the paths, or use a narrower pattern") from error


def found_within_limits(
    pattern: str, word: str, searched: Searched | None = None, *, recursive: bool = False, hidden: bool = False
) -> tuple[str, ...]:
    """Like `found_by`; the message of its TooMuchError says how to raise the limit."""
    most = Most(limits().pattern_directories, limits().pattern_files)
    try:
        return found_by(pattern, word, most, recursive=recursive, hidden=hidden, searched=searched)
    except TooMuchError as error:
        raise TooMuchError(f"{error}{raised(error.limit) if error.limit else ''}", error.limit) from error
