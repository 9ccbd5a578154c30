"""Resolve an argument of the command line: the easyconfig of that path or name, or a suggestion."""

import difflib
import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sifmod.config.find import SUFFIXES, easyconfigs, find_easyconfig
from sifmod.config.index import read_index
from sifmod.config.redact import LOCAL, REGISTRIES, shown
from sifmod.config.site import Site
from sifmod.config.version import release_key
from sifmod.errors import ConfigError, EasyconfigNotFoundError
from sifmod.system import one_line

_IMAGE = re.compile(rf"({'|'.join((*LOCAL, *REGISTRIES, 'https?'))}):", re.IGNORECASE)
_REPOSITORY = re.compile(
    r"[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9._-]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]*|@sha256:[0-9a-f]+)"
)
_BETWEEN = re.compile(r"[\s/:=@]+|(?<![^/])[.~]+/")  # between a name and its version, or before both
_VERSION = re.compile("-v?[0-9]")
_ENDINGS = (*SUFFIXES, ".eb", ".lua")
_MOST = 5  # easyconfigs to suggest
_IMPORTED = {
    ".eb": "an easyconfig of EasyBuild",
    ".lua": "a modulefile",
    "container.yaml": "a recipe of singularity-hpc",
}


def resolve_easyconfig(word: str, site: Site) -> Path:
    """The file that `find_easyconfig` finds for a word; the error's hint says what the user may have meant.

    Raises EasyconfigNotFoundError, also for files and images that only another command accepts.
    """
    path = Path(word)
    if foreign := _IMPORTED.get(path.suffix) or _IMPORTED.get(path.name):
        if os.path.isfile(path):  # noqa: PTH113 (any text may be asked)
            hint = f"`sifmod import {shlex.quote(one_line(word))}` converts it to an easyconfig"
            raise EasyconfigNotFoundError(f"{one_line(word)} is {foreign}, not an easyconfig of sifmod", hint)
    elif _IMAGE.match(word) or (path.suffix == ".sif" and os.path.isfile(path)):  # noqa: PTH113
        raise _image(word, word)
    try:
        return find_easyconfig(word, site.robot_paths)
    except EasyconfigNotFoundError as error:
        known = {path.stem.lower(): path for path in easyconfigs(site.robot_paths)}
        name, meant = _meant(word, known)
        if _REPOSITORY.fullmatch(word):
            if "/" in word or not meant:
                raise _image(word, f"docker://{word}") from None
            image = f"\nfor the image of this name: `sifmod new docker://{word}`"
        else:
            image = ""
        error.hint = _hint(word, name, meant, site) + image
        raise


def _image(word: str, reference: str) -> EasyconfigNotFoundError:
    return EasyconfigNotFoundError(
        f"{one_line(shown(word))} is an image, not an easyconfig",
        f"`sifmod new {shlex.quote(one_line(shown(reference)))}` writes an easyconfig for it; install that",
    )


def _meant(word: str, known: Mapping[str, Path]) -> tuple[str, list[Path]]:
    """The name to look for, and candidate easyconfigs; A/1.0, A==1.0 and mods/A/1.0.lua mean A-1.0."""
    file = word.endswith(_ENDINGS) or word.startswith((".", "/", "~"))
    bare = next((word.removesuffix(end) for end in _ENDINGS if word.endswith(end)), word).lower()
    parts = [part for part in _BETWEEN.split(bare) if part]
    names = ["-".join(parts[-count:]) for count in ((1, 2) if file else (len(parts),))]
    for name in names:
        if found := _begins(name, known):
            return name, found
    name = names[0]
    if close := difflib.get_close_matches(name, known, 3, 0.9):
        return name, [known[stem] for stem in close]
    modules = {_VERSION.split(stem)[0] for stem in known}
    of = _VERSION.split(names[-1])[0]
    if names[-1] == of or of not in modules:
        of = "".join(difflib.get_close_matches(of, modules, 1))
    return of or name, _begins(of, known)


def _hint(word: str, name: str, meant: list[Path], site: Site) -> str:
    rows = _offered(meant, name, site)
    here = [one_line(f"./{path.name}") for path in _files_here() if name and _is_begun(path.stem.lower(), name)]
    lines = [text for fits, text in rows if fits][:_MOST] or [
        f"{text} (not for this machine)" for _, text in rows[:_MOST]
    ]
    if others := len(rows) - len(lines):
        lines.append(f"and {others} more: `sifmod search {shlex.quote(name)}`")
    match [*here, *lines]:
        case [] if word.endswith(tuple(_IMPORTED)):
            return "`sifmod import FILE` converts another tool's file to an easyconfig; copy it to this machine first"
        case []:
            return "`sifmod search WORDS` finds easyconfigs"
        case [only]:
            return f"did you mean {only}?"
        case several:
            return "did you mean one of these?\n  " + "\n  ".join(several)


def _files_here() -> list[Path]:
    """The YAML files in the working directory; a name does not find them outside the easyconfig path."""
    try:
        return sorted(path for path in Path().iterdir() if path.suffix in SUFFIXES)
    except OSError:
        return []


def _is_begun(stem: str, name: str) -> bool:
    return stem.startswith(name) and stem[len(name) :][:1] in ("", "-", ".", "_", "+")


def _begins(name: str, known: Mapping[str, Path]) -> list[Path]:
    """The easyconfigs whose names start with `name`, else those with whose names, and a `-`, it starts."""
    if not name:
        return []
    found = [path for stem, path in known.items() if _is_begun(stem, name)]
    return found or [path for stem, path in known.items() if name.startswith(f"{stem}-")]


def _offered(paths: list[Path], module: str, site: Site) -> list[tuple[bool, str]]:
    """Whether each is for this machine, and the argument for it; the newest first, within a version those for it."""
    from sifmod.config.variants import outlines

    index = read_index(site.robot_paths, os.environ) if paths else {}
    rows = []
    for path in sorted(paths):
        version, fits, text = "", False, one_line(path.stem)
        with suppress(ConfigError):  # `sifmod check` reports it
            for one in index.get(path) or outlines(path, site):
                version, fits = one.version, fits or one.fits(site.accelerator, site.arch)
                if one.variant and f"{one.name}-{one.version}{one.versionsuffix}".lower() == module:
                    fits, text = True, f"{path.stem} --variant {one.variant}"
                    break
        rows.append(((release_key(version), fits), (fits, text)))
    return [row for _, row in sorted(rows, key=lambda row: row[0], reverse=True)]
