"""Upload: blobs and manifests into a repository (OCI distribution specification 1.1, "Pushing").

An existing blob is not sent; an interrupted upload resumes at the registry's position. Nothing is stored on this
machine for that.
"""

import hashlib
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass

import requests

from sifmod.errors import FetchError, ImageError
from sifmod.image.oci.index import ACCEPTED
from sifmod.image.oci.manifest import Descriptor
from sifmod.image.registry.http import RequestSpec, read_beginning
from sifmod.image.registry.network import BROKEN, SLOWEST, Attempts, RetryPolicy, TransientError
from sifmod.image.registry.registry import Repository
from sifmod.image.registry.sent import quoted
from sifmod.image.registry.url import Url

_CHUNK = 16 << 20  # bytes of one request; proxies in front of registries limit them
_SMALLER = 4 << 20  # bytes after a failure: the limit of ghcr.io, and less to repeat if a connection breaks
_PATIENCE = RetryPolicy(attempts=12, stalls=12)  # Docker's registry forgets a blob that is cut within a request
_CHANGED = "the file was changed, or its registry sends something else: push it again"
_COMMIT = 600.0  # seconds for the answer to the end of an upload: the registry reads all of it then


@dataclass(frozen=True)
class Blob:
    """A blob to upload. `read` returns its bytes from a position on, the same each time.

    `mount` is another repository of the registry that has the blob, "" if unknown.
    """

    descriptor: Descriptor
    read: Callable[[int], Iterator[bytes]]
    mount: str = ""


def has_blob(repository: Repository, blob: Descriptor) -> bool:
    """Whether the repository says that it has the blob. Raises FetchError."""
    with repository.get(f"blobs/{blob.digest}", RequestSpec("HEAD", good=(200, 404)))({}) as response:
        return response.status_code == 200


def _gives_blob(repository: Repository, blob: Descriptor) -> bool:
    """Whether the repository sends the last byte of a blob that it says it has. Raises FetchError.

    Docker's registry keeps what it had in a cache, and answers a HEAD and a mount from that after a blob was lost.
    """
    last = {"Range": f"bytes={blob.size - 1}-"} if blob.size else {}
    asked = RequestSpec(good=(200, 206, 404, 416))
    with repository.get(f"blobs/{blob.digest}", asked)(last) as response:
        size = str(blob.size)
        if response.status_code == 206:
            return response.headers.get("Content-Range", "").endswith((f"/{size}", "/*")) and bool(_byte(response))
        whole = response.status_code == 200 and response.headers.get("Content-Length", size) == size
        return whole and (not blob.size or bool(_byte(response)))


def _byte(response: requests.Response) -> bytes:
    with suppress(*BROKEN):
        return response.raw.read(1) or b""
    return b""


def upload(repository: Repository, blob: Blob, report: Callable[[int], None]) -> int:
    """Upload `blob`; returns the number of bytes sent, 0 if the repository had or mounted it.

    `report` is called with the number of bytes at the registry. Raises FetchError if the registry refuses the blob, and
    after too many attempts without progress.
    """
    transfer = _Upload(repository, blob, report)
    attempts, furthest = Attempts(_PATIENCE), 0
    while True:
        try:
            transfer.run()
        except TransientError as error:
            came, furthest = transfer.offset - furthest, max(furthest, transfer.offset)
            hopeful = transfer.answered and error.status != 500  # a full disk gives 500
            time.sleep(attempts.failed(error, came=came, answered=hopeful))
            transfer.take_less()
        else:
            return transfer.sent


class _Upload:
    """The upload of one blob. `offset`: bytes that the registry has by its own count; `sent`: bytes sent."""

    def __init__(self, repository: Repository, blob: Blob, report: Callable[[int], None]) -> None:
        self._repository = repository
        self._blob = blob
        self._report = report
        self._location: Url | None = None
        self._chunk = _CHUNK
        self._least = 0
        self._sum, self._summed = hashlib.sha256(), 0  # of the blob's first bytes, as they were sent
        self._doubted = False  # whether the registry did not give what it said it has
        self.offset = 0
        self.sent = 0
        self.answered = False

    def run(self) -> None:
        """Send the missing bytes. Raises TransientError if another call may succeed, else FetchError."""
        digest, size = self._blob.descriptor.digest, self._blob.descriptor.size
        if (self._is_there() and self._is_given()) or not (self._resumed() or self._begun()):
            self._report(size)
            return
        while (before := self.offset) < size:
            with closing(_chunks(self._blob.read(self.offset), self._chunk)) as chunks:
                for data in chunks:
                    if (end := self.offset + len(data)) > size:
                        raise FetchError(f"{digest} has more than {size} bytes", _CHANGED)
                    self._sum.update(data[max(0, self._summed - self.offset) :])
                    self._summed = max(self._summed, end)
                    self._patch(data)
                    if self.offset != end:
                        break  # the registry has taken less: continue at its position
            if self.offset == before:
                raise FetchError(f"{digest} ends after {before} of {size} bytes", _CHANGED)
        if self._summed and digest.startswith("sha256:") and digest[7:] != self._sum.hexdigest():
            raise FetchError(f"{digest} has other bytes than its digest says; it was not stored", _CHANGED)
        with self._repository.get(
            self._place().asking(f"digest={digest}"), RequestSpec("PUT", good=(201, 204), seconds=_COMMIT)
        )(_BYTES):
            pass
        without = f"{self._repository.place.host} accepted {digest}, but does not have it"
        if not self._is_there():
            raise TransientError(without)
        if self._doubted and not self._is_given():
            raise FetchError(without, "the registry has lost it, or another server between answers: try again later")

    def take_less(self) -> None:
        """Send smaller parts from now on, if the registry accepts them."""
        self._chunk = max(self._least, min(self._chunk, _SMALLER))

    def _is_there(self) -> bool:
        return has_blob(self._repository, self._blob.descriptor)

    def _is_given(self) -> bool:
        given = _gives_blob(self._repository, self._blob.descriptor)
        self._doubted = self._doubted or not given
        return given

    def _begun(self) -> bool:
        """Start the upload; False if the registry has mounted the blob instead."""
        digest, self.offset = self._blob.descriptor.digest, 0
        if self._blob.mount:
            with suppress(FetchError):  # then it is sent
                mount = f"blobs/uploads/?mount={digest}&from={self._blob.mount}"
                with self._repository.get(mount, RequestSpec("POST", good=(201, 202)))({}) as response:
                    self._heard(response)
                    mounted = response.status_code == 201
                if not mounted:
                    return True
                if self._is_given():
                    return False
        with self._repository.get("blobs/uploads/", RequestSpec("POST", good=(202,)))({}) as response:
            self._heard(response)
            least = response.headers.get("OCI-Chunk-Min-Length", "")
            self._least = int(least) if re.fullmatch("[0-9]{1,8}", least) else 0
            self._chunk = max(self._chunk, self._least)
        return True

    def _resumed(self) -> bool:
        """Ask for the position of an interrupted upload; False if there is none, or the registry does not know it."""
        if self._location is None:
            return False
        try:
            with self._repository.get(self._location, RequestSpec(good=(200, 202, 204)))({}) as response:
                self._heard(response)
        except TransientError:
            raise
        except FetchError:
            self._location = None
        return self._location is not None

    def _place(self) -> Url:
        """The URL for the next bytes. Raises FetchError if the registry has not sent one."""
        if self._location is None:
            raise FetchError(f"{self._repository.place.host} sent no upload location for a blob")
        return self._location

    def _patch(self, data: bytes) -> None:
        before, begun = self.offset, time.monotonic()
        self.sent += len(data)
        headers = {**_BYTES, "Content-Range": f"{before}-{before + len(data) - 1}"}
        asked = RequestSpec("PATCH", data, good=(202, 404, 413, 416))
        with self._repository.get(self._place(), asked)(headers) as response:
            if response.status_code == 202:
                self.offset = before + len(data)  # unless it names another position
                self._heard(response)
            else:
                status = response.status_code
                raise TransientError(
                    f"{self._repository.place.host} answered {status} to a part of a blob", status=status
                )
        taken = self.offset - before
        if taken <= 0 or (taken < len(data) and taken < SLOWEST * (time.monotonic() - begun)):
            raise TransientError(f"{self._repository.place.host} accepted {max(0, taken)} of {len(data)} bytes")
        self._report(self.offset)

    def _heard(self, response: requests.Response) -> None:
        """Set the URL and the position to continue from. Raises FetchError for an unusable URL."""
        self.answered = True
        if location := response.headers.get("Location", ""):
            what = f"{self._repository.place.host} wants a blob at"
            own = Url.parse(response.url)
            target = own.join(location, what, lambda text: quoted(text, response.request))
            if own.scheme == "https" and target.scheme != "https":
                where = quoted(target.shown, response.request)
                raise FetchError(f"{what} {where}, which is not https; nothing was sent there")
            self._location = target
        self._place()
        if found := re.fullmatch(r"(?:bytes=)?0-([0-9]{1,18})", response.headers.get("Range", "")):
            last = int(found[1])
            # registries answer 0-0 if they have nothing
            self.offset = min(last + 1, self._blob.descriptor.size) if last else 0
        read_beginning(response)


_BYTES: Mapping[str, str] = {"Content-Type": "application/octet-stream"}


def _chunks(pieces: Iterable[bytes], size: int) -> Generator[bytes, None, None]:
    """The bytes of `pieces` in chunks of `size`; the last may be shorter."""
    gathered = bytearray()
    for piece in pieces:
        gathered += piece
        while len(gathered) >= size:
            with memoryview(gathered) as whole, whole[:size] as part:
                chunk = bytes(part)
            del gathered[:size]
            yield chunk
    if gathered:
        yield bytes(gathered)


def read_manifest(repository: Repository, tag: str) -> bytes | None:
    """The manifest or index under `tag`; None if there is none. Raises FetchError or ImageError."""
    with repository.get(f"manifests/{tag}", RequestSpec("HEAD", good=(200, 404)))(
        {"Accept": ", ".join(ACCEPTED)}
    ) as response:
        if response.status_code == 404:
            return None
    raw, _ = repository.read(f"manifests/{tag}", ", ".join(ACCEPTED), f"{repository.place}:{tag}")
    return raw


def put_manifest(repository: Repository, name: str, raw: bytes, media_type: str) -> None:
    """Put a manifest or an index, and check that the registry returns its bytes. Raises FetchError or ImageError.

    `name` is a tag or a digest.
    """
    asked = RequestSpec("PUT", raw, good=(200, 201, 202))
    with repository.get(f"manifests/{name}", asked)({"Content-Type": media_type}) as response:
        read_beginning(response)
    there, _ = repository.read(f"manifests/{name}", media_type, f"{repository.place}: {name}")
    if there != raw:
        raise ImageError(
            f"{repository.place} returns another manifest under {name} than the pushed one", "push it again"
        )
