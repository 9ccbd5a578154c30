"""A bind path as configuration spells it: `source[:target[:options]]`, or a map."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema, model_validator

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

    With `links`, the places that the source or the links directly in it lead to are bound too (expand.expand).
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
