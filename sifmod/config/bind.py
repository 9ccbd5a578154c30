"""Bind paths: their spelling in configuration, what they are on this machine, and warnings about questionable ones."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from posixpath import normpath
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema, model_validator

from sifmod.config.bind_paths import tops_of_links, within
from sifmod.config.input import Input, read_input
from sifmod.config.limits import matches
from sifmod.config.pattern import Searched, is_pattern
from sifmod.config.text import BindPath, can_be_bound, is_root
from sifmod.config.yaml.node import Node, join_key, printable_text, problem_at
from sifmod.config.yaml.validate import Model
from sifmod.errors import Problem
from sifmod.secret import secret_parts
from sifmod.system import abbreviated

_OPTION = re.compile(r"ro|rw|id=[0-9]+|image-src=/?[^,:\"\\\x00-\x1f\x7f]*")


def _not_the_root(target: str) -> str:
    if is_root(target):
        raise ValueError(
            f"a bind to {printable_text(target)} would hide the whole image: bind single directories, or give a "
            "target other than /"
        )
    return target


def _known_options(options: tuple[str, ...]) -> tuple[str, ...]:
    for option in options:
        if not _OPTION.fullmatch(option):
            raise ValueError(
                f"unknown bind option {printable_text(option)}: expected ro, rw, id=NUMBER or image-src=PATH"
            )
    return options


class BindSpec(Model):
    """One bind path; `target` is where it appears inside, an `optional` one is skipped if its source is missing.

    With `links`, the places that the source or the links directly in it lead to are bound too (see `expand`).
    """

    source: BindPath
    target: Annotated[BindPath, AfterValidator(_not_the_root)] = ""
    options: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda value: tuple(value.split(",")) if isinstance(value, str) else value),
        AfterValidator(_known_options),
        WithJsonSchema({"type": "string", "description": "comma-separated: ro, rw, id=NUMBER, image-src=PATH"}),
    ] = ()
    optional: bool = False
    links: bool = False

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, value: Any) -> Any:
        if isinstance(value, str):
            if secret_parts((value,)):  # parts of it would be quoted
                raise ValueError(f"expected source[:target[:options]] without a URL, got {printable_text(value)}")
            parts = value.split(":", 2)
            value = dict(zip(("source", "target", "options"), parts, strict=False))
        source = value.get("source") if isinstance(value, dict) else None
        return {"target": source, **value} if isinstance(source, str) and can_be_bound(source) else value


BindItem = Annotated[
    BindSpec,
    WithJsonSchema(
        {
            "title": "bind path",
            "anyOf": [
                {"type": "string", "description": "source[:target[:options]]"},
                {
                    "type": "object",
                    "properties": {
                        "source": {"type": "string"},
                        "target": {"type": "string"},
                        "options": {"type": "string"},
                        "optional": {"type": "boolean"},
                        "links": {"type": "boolean"},
                    },
                    "required": ["source"],
                    "additionalProperties": False,
                },
            ],
        }
    ),
]


def expand(binds: tuple[BindSpec, ...], environ: Mapping[str, str]) -> tuple[tuple[BindSpec, ...], tuple[Input, ...]]:
    """Bind paths with patterns and links resolved on this machine; and the inputs that were read.

    Matches of a pattern are optional, since another node may have other matches; a required pattern without matches
    stays as it is, a missing source. If the pattern has a target of its own, the matches go into that directory. The
    top directories of links (bind_paths.py) are bound last, unless a bind path covers them already.
    """
    spelled: list[BindSpec] = []
    tops: list[str] = []
    inputs: list[Input] = []
    searched = Searched()
    for bind in binds:
        found: tuple[BindSpec, ...] = (bind,)
        if is_pattern(bind.source):
            inputs.append(read_input(f"*{bind.source}", environ))
            found = _matching(bind, searched)
        spelled += found
        for source in (each.source for each in found if bind.links):
            inputs.append(read_input(f"@{source}", environ))
            tops += tops_of_links(source)
    bound = tuple(bind.source for bind in spelled if bind.source == bind.target)
    wanted = sorted({top for top in tops if can_be_bound(top) and not within(top, bound)})
    linked = [BindSpec(source=top, target=top, optional=True) for top in wanted]
    return (*spelled, *linked), tuple(inputs)


def _matching(bind: BindSpec, searched: Searched) -> tuple[BindSpec, ...]:
    found = [path for path in matches(bind.source, searched) if can_be_bound(path)]
    if not found:
        return () if bind.optional else (bind,)
    directory = None if bind.target == bind.source else bind.target.rstrip("/")
    targets = (path if directory is None else f"{directory}/{Path(path).name}" for path in found)
    return tuple(
        bind.model_copy(update={"source": path, "target": target, "optional": True})
        for path, target in zip(found, targets, strict=True)
    )


# the directories of the image's programs
_OF_THE_IMAGE = re.compile(r"/usr|/etc|(/usr)?/(s?bin|lib(32|64|x32)?)")
_SHOWN = 5


def lint_binds(tree: Node) -> tuple[Problem, ...]:
    """Warnings about the binds of valid configuration (one file, or several merged) on this machine.

    A `:` that probably separates two bind paths, a missing required source, a duplicate target, a target that hides the
    image's own system, matches of a pattern that cannot be bound. The binds are those of a site, in groups, or of an
    easyconfig.
    """
    first: dict[str, str] = {}
    found: list[Problem] = []
    searched = Searched()
    for key, item in bind_items(tree):
        source, target = ends(item)
        found_here = matches(source, searched) if is_pattern(source) else None
        problems = (_colon(item), _missing(item, source, found_here), _hiding(source, target, found_here))
        messages = [message for message in (*problems, _left_out(found_here or ())) if message]
        if (other := first.setdefault(target.rstrip("/"), key)) != key:
            messages.append(f"its target {target} is also the target of {other}; the first one is used")
        found += [problem_at(item.mark, key, message) for message in messages]
    return tuple(found)


def bind_items(tree: Node) -> Iterator[tuple[str, Node]]:
    """Every bind path as it is written, with its key path, without a `+` in it."""
    binds = tree.at("binds")
    groups = [(join_key("binds", name.removesuffix("+")), group) for name, group in binds.entries.items()]
    for path, group in groups or [("binds", binds)]:
        yield from ((join_key(path, index), item) for index, item in enumerate(group.items))


def ends(item: Node) -> tuple[str, str]:
    """Source and target of a bind path; without a target the source twice, also if it is a pattern."""
    if item.text:
        parts = item.text.split(":")
        return parts[0], parts[1] if len(parts) > 1 else parts[0]
    source = item.at("source").text
    return source, item.entries["target"].text if "target" in item.entries else source


def _colon(item: Node) -> str:
    source, _, target = item.text.partition(":")
    if not target or ":" in target or target == source or not os.path.isdir(target):  # noqa: PTH112 (closed)
        return ""
    return (
        f"{target} is also a directory on this machine: for two bind paths, write {source} and {target} as two "
        f"items; otherwise {{source: {source}, target: {target}}}"
    )


def _missing(item: Node, source: str, found: tuple[str, ...] | None) -> str:
    there = os.path.exists(source) if found is None else bool(found)  # noqa: PTH110 (closed)
    if there or item.at("optional").value is True:
        return ""
    if found is None:
        return f"{source} does not exist on this machine and is not optional: no module with it can be loaded"
    return f"nothing on this machine matches {source}, and it is not optional: no module with it can be loaded"


def _hiding(source: str, target: str, found: tuple[str, ...] | None) -> str:
    """A warning for a target that the image's own programs need; for a pattern, the targets of its matches."""
    targets = [target]
    if found is not None:
        targets = [path if target == source else f"{target}/{Path(path).name}" for path in found]
    hidden = [place for place in targets if _OF_THE_IMAGE.fullmatch(normpath(place))]
    return f"hides the image's own {abbreviated(hidden, _SHOWN)}: the image's programs may not start" if hidden else ""


def _left_out(found: tuple[str, ...]) -> str:
    """A warning for matches of a pattern that cannot be written as a bind path."""
    bad = [repr(path) for path in found if not can_be_bound(path)]
    return f"skipped, because a bind path cannot contain such a name: {abbreviated(bad, _SHOWN)}" if bad else ""
