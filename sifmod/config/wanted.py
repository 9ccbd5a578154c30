"""What a word on the command line means: the easyconfig of that path or name, or else what should be typed instead."""

import difflib
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sifmod.config.find import SUFFIXES, find_easyconfig, known_names
from sifmod.config.shown import LOCAL, REGISTRIES, shown
from sifmod.config.site import Site
from sifmod.config.version import version_key
from sifmod.errors import ConfigError, EasyconfigNotFoundError

_IMAGE = re.compile(rf"({'|'.join((*LOCAL, *REGISTRIES, 'https?'))}):", re.IGNORECASE)
_REPOSITORY = re.compile(
    r"[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9._-]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]*|@sha256:[0-9a-f]+)"
)
_VERSION = re.compile("-v?[0-9]")
_ENDINGS = (*SUFFIXES, ".eb", ".lua")
_DATE = re.compile("[12][0-9]{7}")
_MOST = 5  # easyconfigs that are offered
_IMPORTED = {
    ".eb": "an easyconfig of EasyBuild",
    ".lua": "a modulefile",
    "container.yaml": "a recipe of singularity-hpc",
}


def wanted_easyconfig(word: str, site: Site) -> Path:
    """As `find_easyconfig`; the hint of the error is for what people type who come from other tools.

    Raises EasyconfigNotFoundError, also for files and images that only another verb takes.
    """
    path = Path(word)
    if foreign := _IMPORTED.get(path.suffix) or _IMPORTED.get(path.name):
        if _is_file(path):
            hint = f"`sifmod import {shlex.quote(word)}` makes an easyconfig of it"
            raise EasyconfigNotFoundError(f"{word} is {foreign}, not an easyconfig of sifmod", hint)
    elif _IMAGE.match(word) or (path.suffix == ".sif" and _is_file(path)):
        raise _image(word, word)
    try:
        return find_easyconfig(word, site.robot_paths)
    except EasyconfigNotFoundError as error:
        if _REPOSITORY.fullmatch(word):
            raise _image(word, f"docker://{word}") from None
        error.hint = _hint(word, site)
        raise


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _image(word: str, reference: str) -> EasyconfigNotFoundError:
    return EasyconfigNotFoundError(
        f"{shown(word)} is an image, not an easyconfig",
        f"`sifmod new {shlex.quote(shown(reference))}` writes an easyconfig for it; install that",
    )


def _hint(word: str, site: Site) -> str:
    file = word.endswith(_ENDINGS) or word.startswith((".", "/", "~"))
    name = word.rpartition("/")[2] if file else word.replace("/", "-")  # PyTorch/2.2.0 is a module's name
    name = next((name.removesuffix(end) for end in _ENDINGS if name.endswith(end)), name).lower()
    known = {stem.lower(): path for stem, path in known_names(site.robot_paths).items()}
    meant = _begins(name, known)
    if not meant and not _VERSION.search(name):
        names = {_VERSION.split(stem)[0]: "" for stem in known}
        name = "".join(difflib.get_close_matches(name, names, 1)) or name
        meant = _begins(name, known)
    rows = _offered(meant or [known[stem] for stem in difflib.get_close_matches(name, known, 3, 0.6)], name, site)
    lines = [text for fits, text in rows if fits][:_MOST] or [
        f"{text} (not for this machine)" for _, text in rows[:_MOST]
    ]
    if others := len(rows) - len(lines):
        lines.append(f"and {others} more: `sifmod search {shlex.quote(name)}`")
    match lines:
        case [] if word.endswith(tuple(_IMPORTED)):
            return "`sifmod import FILE` makes an easyconfig of a file of another tool, once it is here"
        case []:
            return "`sifmod search WORDS` lists what there is"
        case [only]:
            return f"did you mean {only}?"
        case several:
            return "did you mean one of these?\n  " + "\n  ".join(several)


def _begins(name: str, known: Mapping[str, Path]) -> list[Path]:
    """The easyconfigs whose name begins so, else those that such a module can come of, which has a suffix more."""
    if not name:
        return []
    ends = ("", "-", ".", "_", "+")
    found = [path for stem, path in known.items() if stem.startswith(name) and stem[len(name) :][:1] in ends]
    return found or [path for stem, path in known.items() if name.startswith(f"{stem}-")]


def _offered(paths: list[Path], module: str, site: Site) -> list[tuple[bool, str]]:
    """Whether each is for this machine, and what to type for it; the newest first, and of two the one that fits."""
    from sifmod.config.load_easyconfig import outlines

    rows = []
    for path in sorted(paths):
        version, fits, text = "", False, path.stem
        with suppress(ConfigError):  # `check` tells
            for one in outlines(path, site):
                version, fits = one.version, fits or one.fits
                if one.variant and f"{one.name}-{one.version}{one.versionsuffix}".lower() == module:
                    fits, text = True, f"{path.stem} --variant {one.variant}"
                    break
        # a build of a day (20240918) is not newer than 2.4 for its number
        rows.append(((not _DATE.match(version), version_key(version), fits), (fits, text)))
    return [row for _, row in sorted(rows, key=lambda row: row[0], reverse=True)]
