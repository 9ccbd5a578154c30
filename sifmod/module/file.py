"""A file that render gives and the tree writes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """`path` is relative to the generation's root."""

    path: str
    text: str
    executable: bool = False
