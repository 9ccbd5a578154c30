"""file: a SIF on this machine, given by its path or its bare name, which is copied, hard-linked or only referenced."""

import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from sifmod.errors import FetchError
from sifmod.image.artifact import Fetched, Fetching, FetchRequest
from sifmod.image.convert.sif.header import check_sif
from sifmod.image.disk import Sink, reading, reserve, writing
from sifmod.image.reference import (
    Directories,
    Reference,
    SourceKind,
    in_a_registry,
    nothing,
    refused,
    says_nothing,
    size_here,
)
from sifmod.image.startable import check_startable
from sifmod.system import open_to_others

CHUNK = 1 << 20  # bytes

_FILE = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)")
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file
_NO_CLONE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EBADF, errno.EPERM)


def _parse(kind: SourceKind, source: str) -> Reference:
    if not source.startswith("file:"):
        return Reference(kind, source, source)
    path = _FILE.fullmatch(source)
    if path is None:
        raise refused(source, "a file: source is file:///absolute/path", "or give only the path")
    return Reference(kind, source, unquote(path[1]))


def _places(reference: Reference, directories: Directories) -> tuple[str, ...]:
    """The possible paths of the file: a bare name is looked up in each of `directories`, in order."""
    location = reference.location
    return (location,) if "/" in location else tuple(f"{directory}/{location}" for directory in directories)


def _find(reference: Reference, directories: Directories, is_there: Callable[[Path], bool]) -> Path | None:
    """The file of a path, which may be missing; for a bare name the first one that this user sees, or None."""
    places = map(Path, _places(reference, directories))
    return next((path for path in places if "/" in reference.location or is_there(path)), None)


def _local_sif(reference: Reference, image_dirs: Directories) -> Path:
    """The named file; one with a bare name is in the current directory, else in the image directories.

    Raises FetchError if it is in none, and for a missing path that looks like an image in a registry.
    """
    hint = in_a_registry(reference.source)
    if found := _find(reference, (".", *image_dirs), os.path.isfile):
        if hint and not found.exists():
            raise FetchError(f"there is no file {reference.source}", hint)
        return found
    where = ", ".join(image_dirs) or "no image_dirs are set"
    message = (
        f"there is no file {reference.location} in the current directory or the site's image directories ({where})"
    )
    raise FetchError(message, hint)


def _announced(request: FetchRequest) -> int | None:
    image = request.image
    size = size_here(_places(request.reference, image.image_dirs))
    return 0 if size is not None and image.link == "reference" else size


def _fetch(request: Fetching) -> Fetched:
    reference, image_dirs = request.reference, request.image.image_dirs
    if found := _find(reference, image_dirs, os.path.exists):
        return take_file(found.absolute(), request)
    where = ", ".join(image_dirs) or "no image_dirs are set (site file, SIFMOD_IMAGE_DIRS)"
    raise FetchError(f"no file with this name; searched in: {where}")


def hashed(path: Path, request: FetchRequest, notes: tuple[str, ...] = ()) -> Fetched:
    """The complete file at `path`, hashed. Raises FetchError if it changes meanwhile."""
    digest = hashlib.sha256()
    with reading(path), path.open("rb") as file:
        for chunk in _chunks(file, f"hashing {request.image.filename}", request):
            digest.update(chunk)
        return Fetched(path, digest.hexdigest(), os.fstat(file.fileno()).st_size, notes)


def take_file(path: Path, request: Fetching) -> Fetched:
    """The SIF at `path`, copied, hard-linked (if impossible, copied) or only referenced, as the image's `link` says.

    Raises FetchError unless it is a SIF for this image's architecture, and UnstartableError as `check_startable` does.
    """
    with reading(path):
        status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise FetchError(f"{path} is a directory, not a SIF", f"convert it to a SIF: apptainer build image.sif {path}")
    if not stat.S_ISREG(status.st_mode):
        raise FetchError(f"{path} is not a regular file")
    check_startable(check_sif(path, request.image.arch), request)  # before gigabytes are copied
    match request.image.link:
        case "reference":
            return hashed(path, request)
        case "hardlink":
            if refusal := _link(path, status, request.incoming):
                return _copy(path, request, (f"{path} was copied, not hard-linked: {refusal}",))
            return hashed(request.incoming, request)
        case "copy":
            return _copy(path, request, ())


def _link(path: Path, status: os.stat_result, incoming: Path) -> str:
    """Make `incoming` a hard link to `path`; returns why that is impossible, or "". The inode's mode and owner stay."""
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}, who could change it"
    if mode != 0o444:
        return f"its mode is {mode:04o}, but images in the store must be read-only (0444)"
    if open_to_others(path.parent):  # as an unfinished download of a group
        return "others can write to its directory, and may still have it open for writing"
    try:
        os.link(path, incoming)
    except OSError as error:
        return f"{error.strerror}"
    if not os.path.samestat(incoming.stat(), status):  # `path` is another file since `status` was read
        incoming.unlink()
        return "it was replaced meanwhile"
    return ""


def _copy(path: Path, request: Fetching, notes: tuple[str, ...]) -> Fetched:
    from_other_store = request.store.can_lend(path)  # the file's name is a digest then
    name = f"{request.image.filename} from {path.parents[2]}" if from_other_store else path.name
    with reading(path), path.open("rb") as file, Sink(request.incoming) as sink:
        cloned = _clone(file, sink)
        if not cloned:
            reserve(sink.fileno(), request.incoming, os.fstat(file.fileno()).st_size)
            for chunk in _chunks(file, f"copying {name}", request):
                sink.write(chunk)
    return hashed(request.incoming, request, notes) if cloned else Fetched(sink.path, sink.sha256, sink.size, notes)


def _clone(source: BinaryIO, sink: Sink) -> bool:
    """Share the blocks of `source` (reflink); False if the file system does not support it."""
    with writing(sink.path):
        try:
            fcntl.ioctl(sink.fileno(), _FICLONE, source.fileno())
        except OSError as error:
            if error.errno in _NO_CLONE:
                return False
            raise
    return True


def _chunks(file: BinaryIO, what: str, request: FetchRequest) -> Iterator[bytes]:
    before = os.fstat(file.fileno())
    done = 0
    while chunk := file.read(CHUNK):
        yield chunk
        done += len(chunk)
        request.progress(what, done, before.st_size)
    after = os.fstat(file.fileno())
    if (done, after.st_size, after.st_mtime_ns) != (before.st_size, before.st_size, before.st_mtime_ns):
        raise FetchError(f"{file.name} was changed while it was read", "try again when it is complete")


FILE = SourceKind(
    name="file",
    schemes=("file",),
    example="file:///images/x.sif",
    location="path",
    parse=_parse,
    watched=_places,
    local_sif=_local_sif,
    open=None,
    describe=says_nothing,
    pinned=nothing,
    announced=_announced,
    fetch=_fetch,
)
