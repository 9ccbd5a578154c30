"""Written: where the data blocks and fragments of a squashfs lie, as its tables need it."""

from array import array

from sifmod.errors import ImageError

MOST_BLOCKS = 1 << 25  # 4 TiB of files in blocks of 128 KiB, 128 MiB of memory


class Written:
    """Sizes of all blocks in the order given (holes have 0), starts of those stored, and the fragments."""

    def __init__(self) -> None:
        self.sizes = array("I")
        self.starts = array("Q")  # of stored blocks
        self.fragment_starts = array("Q")
        self.fragment_sizes = array("I")

    def reserve(self, count: int) -> None:
        """Add blocks; they are holes until they are noted. Raises ImageError when there are too many."""
        if len(self.sizes) + count > MOST_BLOCKS:
            raise ImageError("the image's files have more than 4 TiB in all, holes included")
        self.sizes.frombytes(bytes(4 * count))

    def note(self, place: int, position: int, word: int) -> None:
        """Note one stored block, or for a place below 0 a fragment, in the order of the file."""
        if place < 0:
            self.fragment_starts.append(position)
            self.fragment_sizes.append(word)
        else:
            self.sizes[place] = word
            self.starts.append(position)
