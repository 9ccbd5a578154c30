"""Offered: what one variant of an easyconfig can install, as far as a search asks. Imports no pydantic, no parser."""

import re
from dataclasses import dataclass

from sifmod.config.shown import LOCAL

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_SUFFIX_PAIR = re.compile(r"([A-Za-z][A-Za-z0-9]*)-([0-9][^-]*)")
NOT_PUBLIC = "not public"


@dataclass(frozen=True)
class Offered:
    """One variant of an easyconfig; `variant` is None where the easyconfig has none."""

    variant: str | None
    name: str
    version: str
    versionsuffix: str
    accelerator: str
    description: str
    keywords: tuple[str, ...]  # what whatis says, and the presets
    contents: dict[str, str]  # package → version
    sources: tuple[str, ...]  # without passwords; a definition file is `build:PATH`
    available: str  # where the image is, when it has no public source
    arch: str  # empty where it is the machine's

    @property
    def module(self) -> str:
        """`<name>/<version><versionsuffix>`."""
        return f"{self.name}/{self.version}{self.versionsuffix}"

    def fits(self, accelerator: str, arch: str) -> bool:
        """Whether it is for a machine with these."""
        return self.accelerator == accelerator and self.arch in ("", arch)

    @property
    def public(self) -> str | None:
        """The first source that is on a network; None where there is none, and the image is had at one site only."""
        for source in self.sources:
            if (scheme := _SCHEME.match(source)) and scheme[1].lower() not in (*LOCAL, "build"):
                return source
        return None

    @property
    def where(self) -> str:
        """Where the image comes from, for people: a repository with its registry, or that it has no public source.

        What a view loads, which has no source at all.
        """
        if not self.sources:
            return self.available
        if self.public is None:
            return f"{NOT_PUBLIC}: {' '.join(self.available.split()) or ', '.join(self.sources)}"
        rest = self.public.removeprefix("docker://")
        if rest == self.public or re.match(r"[^/]*[.:][^/]*/|localhost/", rest):
            return rest
        return f"docker.io/{rest}"

    @property
    def components(self) -> tuple[tuple[str, str], ...]:
        """(name, version) in lower case of what is in the image, as the contents and the versionsuffix say."""
        said = (*self.contents.items(), *_SUFFIX_PAIR.findall(self.versionsuffix))
        return tuple((name.lower(), version) for name, version in said)
