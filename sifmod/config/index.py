"""The index: what the shipped easyconfigs offer, in one file beside them, so that a search reads no YAML.

`scripts/index` writes it. An entry counts only while every file that it was made from has the bytes of then; an
easyconfig without an entry that counts is read itself. Imports neither pydantic nor a YAML parser.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from sifmod.config.offered import Offered
from sifmod.digest import sha256_bytes

NAME = "index.json"


def read_index(robot_paths: tuple[Path, ...], environ: Mapping[str, str]) -> dict[Path, tuple[Offered, ...]]:
    """What each easyconfig of the last directory offers, by its path: those whose files are as they were indexed."""
    root = robot_paths[-1]  # what ships
    try:
        data = json.loads((root / NAME).read_bytes())
        files, easyconfigs = data["files"], data["easyconfigs"]
        changed = {f"${name}" for name in environ}
        changed |= {file for file, digest in files.items() if _digest(root / file) != digest}
        changed |= set(_hidden(files, robot_paths))
        return {
            root / file: tuple(_offered(each) for each in entry["offers"])
            for file, entry in easyconfigs.items()
            if file not in changed and changed.isdisjoint(entry["reads"])
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # the easyconfigs themselves say the same, more slowly


def index_text(root: Path, offers: Mapping[str, tuple[Offered, ...]], reads: Mapping[str, tuple[str, ...]]) -> str:
    """The index of these easyconfigs, by their paths below `root`; `reads` are the files and `$VARIABLES` beside.

    One line a file and one a module, sorted. Raises OSError for a file that is not there.
    """
    files = sorted({*offers, *(name for names in reads.values() for name in names if not name.startswith("$"))})
    digests = [f"{_text(file)}: {_text(sha256_bytes((root / file).read_bytes()))}" for file in files]
    entries = []
    for file in sorted(offers):
        modules = ",\n".join(_text(asdict(each)) for each in offers[file])
        entries.append(f'{_text(file)}: {{"reads": {_text(sorted(reads[file]))}, "offers": [\n{modules}]}}')
    return "\n".join(('{"files": {', ",\n".join(digests), '}, "easyconfigs": {', ",\n".join(entries), "}}", ""))


def _text(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)


def _digest(path: Path) -> str | None:
    try:
        return sha256_bytes(path.read_bytes())
    except OSError:
        return None


def _hidden(files: Iterable[str], robot_paths: tuple[Path, ...]) -> Iterable[str]:
    """Presets of which another directory on the easyconfig path has one of the name."""
    others = [directory for directory in robot_paths if directory != robot_paths[-1]]
    presets = [file for file in files if file.startswith("presets/")] if others else []
    return (file for file in presets if any((directory / file).is_file() for directory in others))


def _offered(data: dict[str, object]) -> Offered:
    lists = {key: tuple(value) for key, value in data.items() if isinstance(value, list)}
    return Offered(**{**data, **lists})  # type: ignore[arg-type]
