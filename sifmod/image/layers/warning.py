"""Warnings: what of the layers did not get into the root file system, counted."""

from collections import Counter


class Warnings:
    """Counts by kind; `texts` says them, in the order in which they were first met."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def dropped(self, what: str) -> None:
        """An attribute of one file."""
        self._count(f"{what} of {{}} {{files}} dropped")

    def skipped(self, what: str) -> None:
        """A whole entry."""
        self._count(f"{{}} {{entries}} skipped: {what}")

    def said(self, text: str) -> None:
        """Something about a layer."""
        self._count(text.replace("{", "{{").replace("}", "}}"))

    def _count(self, template: str) -> None:
        if template not in self._counts and len(self._counts) >= _KINDS:
            template = "and {} more of other kinds"
        self._counts[template] += 1

    def texts(self) -> tuple[str, ...]:
        """One line for each kind."""
        return tuple(_text(template, count) for template, count in self._counts.items())


_KINDS = 100  # so that an image cannot fill the memory with names


def _text(template: str, count: int) -> str:
    one = count == 1
    return template.format(count, files="file" if one else "files", entries="entry" if one else "entries")
