"""Bind paths: as configuration spells them, `source[:target[:options]]` or a map, and as this machine has them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema, model_validator

from sifmod.config.bind_paths import is_pattern, matches, tops_of_links, within
from sifmod.config.input import Input, read_input
from sifmod.config.text import BindPath, can_be_bound, is_root
from sifmod.config.yaml.check import Model
from sifmod.config.yaml.node import shown

_OPTION = re.compile(r"ro|rw|id=[0-9]+|image-src=/?[^,:\"\\\x00-\x1f\x7f]*")


def _options(value: object) -> object:
    return tuple(value.split(",")) if isinstance(value, str) else value


def _not_the_root(target: str) -> str:
    if is_root(target):
        raise ValueError(
            f"{shown(target)} as target would hide the whole image: bind single directories, or give a target"
        )
    return target


def _known_options(options: tuple[str, ...]) -> tuple[str, ...]:
    for option in options:
        if not _OPTION.fullmatch(option):
            raise ValueError(f"unknown bind option {shown(option)}: expected ro, rw, id=NUMBER or image-src=PATH")
    return options


class BindSpec(Model):
    """One bind path; `target` is where it appears inside, an `optional` one is left out where its source is missing.

    With `links`, the places that the source or the links directly in it lead to are bound too (see `expand`).
    """

    source: BindPath
    target: Annotated[BindPath, AfterValidator(_not_the_root)] = ""
    options: Annotated[
        tuple[str, ...],
        BeforeValidator(_options),
        AfterValidator(_known_options),
        WithJsonSchema({"type": "string", "description": "comma-separated: ro, rw, id=NUMBER, image-src=PATH"}),
    ] = ()
    optional: bool = False
    links: bool = False

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, value: Any) -> Any:
        if isinstance(value, str):
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


@dataclass(frozen=True)
class Expanded:
    """Bind paths without patterns or links to follow, and what was looked at."""

    binds: tuple[BindSpec, ...]
    inputs: tuple[Input, ...]


def expand(binds: tuple[BindSpec, ...], environ: Mapping[str, str]) -> Expanded:
    """Look at this machine once, as it is now.

    What a pattern gives is optional, since another node may have other matches; a required pattern without any stays
    as it is, a missing source. With a target of its own the matches go into that. Where links lead is bound behind
    everything else, unless it is below a bind path anyway.
    """
    spelled: list[BindSpec] = []
    tops: list[str] = []
    inputs: list[Input] = []
    for bind in binds:
        found: tuple[BindSpec, ...] = (bind,)
        if is_pattern(bind.source):
            inputs.append(read_input(f"*{bind.source}", environ))
            found = _matching(bind)
        spelled += found
        for source in (each.source for each in found if bind.links):
            inputs.append(read_input(f"@{source}", environ))
            tops += tops_of_links(source)
    bound = tuple(bind.source for bind in spelled if bind.source == bind.target)
    wanted = sorted({top for top in tops if can_be_bound(top) and not within(top, bound)})
    linked = [BindSpec(source=top, target=top, optional=True) for top in wanted]
    return Expanded((*spelled, *linked), tuple(inputs))


def _matching(bind: BindSpec) -> tuple[BindSpec, ...]:
    found = [path for path in matches(bind.source) if can_be_bound(path)]
    if not found:
        return () if bind.optional else (bind,)
    directory = None if bind.target == bind.source else bind.target.rstrip("/")
    targets = (path if directory is None else f"{directory}/{Path(path).name}" for path in found)
    return tuple(
        bind.model_copy(update={"source": path, "target": target, "optional": True})
        for path, target in zip(found, targets, strict=True)
    )
