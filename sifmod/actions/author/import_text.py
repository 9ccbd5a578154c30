"""An easyconfig's keys as its text: YAML in block style, with what was not carried over as comments at its top."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping

from sifmod.actions.author.draft import quoted
from sifmod.image.inspect.printable import line
from sifmod.imports.imported import Imported, Value

_ORDER = (
    *("name", "version", "versionsuffix", "description", "homepage", "docurls", "whatis", "moduleclass", "license"),
    *("contents", "accelerator", "image", "verb", "conda", "venv", "activate", "user_software", "binds", "env"),
    *("host_env", "path+", "wrappers", "runscripts", "conflict", "family", "sanity_check"),
)
_NOT_PRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ue000-\uf8ff]")


def easyconfig_text(imported: Imported, source: str) -> str:
    """The YAML that reads back as the keys; the same keys, notes and source give the same text."""
    head = f"Made from {line(source, 300)} by `sifmod import`, which has read it and run nothing."
    lines = textwrap.wrap(head, 118, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
    if imported.notes:
        lines.append("# Not carried over, or not exactly:")
        for note in imported.notes:
            lines += textwrap.wrap(line(note, 600), 117, initial_indent="# - ", subsequent_indent="#   ")
    for key in sorted(imported.keys, key=_ORDER.index):
        lines += _entry(key, imported.keys[key], "")
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Value, indent: str) -> Iterator[str]:
    name = f"{indent}{key if key.endswith('+') else _scalar(key)}:"
    if isinstance(value, Mapping):
        yield name if value else f"{name} {{}}"
        for inner, item in value.items():
            yield from _entry(inner, item, f"{indent}  ")
    elif isinstance(value, tuple):
        yield name if value else f"{name} []"
        for item in value:
            yield from _item(item, f"{indent}  ")
    elif isinstance(value, bool):
        yield f"{name} {'true' if value else 'false'}"
    elif key == "description" and "\n" in (text := _paragraphs(value)):
        yield f"{name} |2" if text.startswith(" ") else f"{name} |"
        yield from (f"{indent}  {text}".rstrip() for text in text.split("\n"))
    else:
        text = " ".join(value.split()) if key == "description" else value
        yield f"{name} {_scalar(text, always=key == 'version' or indent != '')}"


def _item(item: Value, indent: str) -> Iterator[str]:
    if isinstance(item, Mapping):
        entries = [text for key, value in item.items() for text in _entry(key, value, f"{indent}  ")]
        yield f"{indent}- {entries[0].lstrip()}"
        yield from entries[1:]
    else:
        yield f"{indent}- {_scalar(str(item))}"


def _scalar(text: str, *, always: bool = False) -> str:
    """On one line, and read back as exactly this text."""
    return json.dumps(text) if _NOT_PRINTABLE.search(text) else quoted(text, always=always)


def _paragraphs(text: str) -> str:
    """A description without blanks at the ends of its lines, tabs and control characters."""
    lines = (_NOT_PRINTABLE.sub(" ", part).rstrip() for part in text.expandtabs(4).split("\n"))
    return textwrap.dedent("\n".join(lines)).strip("\n")
