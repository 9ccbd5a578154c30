"""A Verdict: what an answer is good for, decided from its headers and from what is known so far."""

from dataclasses import dataclass
from enum import Enum

from sifmod.errors import FetchError
from sifmod.image.download.answer import Answer
from sifmod.image.download.remote import Piece, Remote


class Ranges(Enum):
    """Whether a server gives a resource in ranges."""

    UNKNOWN = "it has not answered yet"
    GOOD = "it does"
    NONE = "it does not"


@dataclass(frozen=True)
class Known:
    """What is known of a resource: its size in bytes or None, its validator or "", whether bytes of it are there."""

    size: int | None
    validator: str
    begun: bool
    ranges: Ranges


@dataclass(frozen=True)
class Verdict:
    """Take the answer's bytes; or, where `why` says something, start over, without ranges where they are no good."""

    why: str = ""
    without_ranges: bool = False


_TAKE = Verdict()
_CHANGED = Verdict("the content changed")


def judge(answer: Answer, asked: Piece, known: Known, remote: Remote) -> Verdict:
    """What to do with `answer` to the request for `asked`; pure. Raises FetchError where nothing can be done."""
    differs = answer.differs(known.validator) and not remote.by_digest
    if answer.status == 206 and known.ranges is not Ranges.NONE:
        verdict = _judge_range(answer, asked, known)
    elif answer.status == 200:
        verdict = Verdict("it gives no ranges", without_ranges=True) if known.begun or asked.start else _TAKE
    elif known.ranges is Ranges.NONE:
        raise FetchError(f"the server answers {answer.status} to a request for all of {remote.name}")
    else:
        verdict = Verdict("it has no such range", without_ranges=not asked.start)
    if differs and (verdict.why or answer.status == 206):
        return _CHANGED
    if verdict.why or answer.total is None or known.size in (None, answer.total):
        return verdict
    if remote.size is None and answer.validator != known.validator:
        return _CHANGED
    raise FetchError(
        f"the server announces {answer.total} bytes of {remote.name}, and {known.size} were promised",
        "the file was replaced at its source, or a proxy is in the way",
    )


def _judge_range(answer: Answer, asked: Piece, known: Known) -> Verdict:
    if asked.end is None or answer.encoded or answer.start != asked.start or answer.end is None:
        return Verdict("it sends another range than was asked for", without_ranges=True)
    if not asked.start < answer.end <= min(asked.end, answer.total or asked.end):
        return Verdict("it sends another range than was asked for", without_ranges=True)
    if answer.total is None and known.size is None:
        return Verdict("it does not say how long the whole is", without_ranges=True)
    return _TAKE
