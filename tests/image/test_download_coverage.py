"""Coverage against a plain set of bytes, and pieces that make up what is missing."""

from hypothesis import given
from hypothesis import strategies as st

from sifmod.image.download.journal import Span
from sifmod.image.download.pieces import Coverage, cut

SIZE = 60
spans = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=20)


def flat(found: tuple[Span, ...]) -> list[int]:
    return [byte for start, end in found for byte in range(start, end)]


@given(spans)
def test_it_holds_what_was_added(added: list[Span]) -> None:
    coverage, held = Coverage(), set[int]()
    for start, end in added:
        coverage.add(start, end)
        held |= set(range(start, end))
        assert flat(coverage.spans) == sorted(held)
        assert coverage.total == len(held)
        assert flat(coverage.missing(SIZE)) == sorted(set(range(SIZE)) - held)
        assert coverage.front == next(byte for byte in range(SIZE + 1) if byte not in held)
        starts = [span[0] for span in coverage.spans]
        ends = [span[1] for span in coverage.spans]
        assert all(end < start for end, start in zip(ends, starts[1:], strict=False)), "no two touch"
    assert Coverage(coverage.spans).spans == coverage.spans


@given(spans, st.integers(1, 20), st.integers(0, SIZE))
def test_pieces_make_up_what_is_missing(added: list[Span], length: int, size: int) -> None:
    missing = Coverage(tuple(added)).missing(size)
    pieces = cut(missing, length)
    assert flat(pieces) == flat(missing)
    assert all(0 < end - start <= length and start // length == (end - 1) // length for start, end in pieces)
