"""Sizes as the user sees them."""

from sifmod.system import size_text


def test_sizes_as_people_read_them() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 1_090_000_000, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.1 GB",
        "5.0 TB",
    ]
