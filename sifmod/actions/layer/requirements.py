"""Requirements and locks as files of people."""

from pathlib import Path

from sifmod.errors import OptionError

_LARGEST = 1 << 24  # bytes


def read_requirements(path: Path) -> tuple[str, ...]:
    """The requirements of a requirements.txt, and of those that it names (`-r`). Raises OptionError for anything else in it."""
    found: list[str] = []
    _take(path, found, 0)
    return tuple(found)


def _take(path: Path, found: list[str], depth: int) -> None:
    if depth > 10:
        raise OptionError(f"{path}: files of requirements name each other")
    for number, line in enumerate(_read(path).replace("\\\n", " ").splitlines(), 1):
        text = line.partition(" #")[0].strip()
        if not text or text.startswith("#"):
            continue
        option, _, rest = text.partition(" ")
        if option in ("-r", "--requirement"):
            _take(path.parent / rest.strip(), found, depth + 1)
        elif option.startswith("-"):
            raise OptionError(
                f"{path}:{number}: {option} is not read here", "give it to `sifmod add` itself, if it has it"
            )
        else:
            found.append(text.partition(" --hash")[0].strip())


def read_lock(path: Path) -> str:
    """The text of a lock."""
    return _read(path)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise OptionError(f"{path} has more than {_LARGEST} bytes")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise OptionError(f"there is no file {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from error
