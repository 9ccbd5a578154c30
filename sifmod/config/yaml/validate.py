"""Validate a tree of Nodes against a model: every problem with its position, in plain language."""

import difflib
from collections.abc import Iterable, Iterator
from functools import cache, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from sifmod.config.yaml.node import Node, Number, base_key, join_key, kind, merge, problem_at
from sifmod.config.yaml.parse import OF_A_FILE, Bounds, Document, load_yaml
from sifmod.errors import ConfigError, Problem

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]


def check_layer(model: type[BaseModel], layer: Node) -> tuple[Problem, ...]:
    """The problems of a single layer: keys may be missing, `null` and `key+` are allowed."""
    built = build(model, merge((layer,), layer.mark), partial=True)
    return tuple(sorted((*(built if isinstance(built, tuple) else ()), *_never_seen(model, layer, ()))))


def build(model: type[M], merged: Node, *, partial: bool = False) -> M | tuple[Problem, ...]:
    """The model built from a merged tree, or all of its problems; `partial`: those that no other layer can correct."""
    try:
        return model.model_validate(plain(merged))
    except ValidationError as error:
        details = [detail for detail in error.errors(include_url=False) if not (partial and _only_partial(detail))]
        return tuple(_reworded(detail, model, merged) for detail in details)


def load_model(model: type[M], path: Path, most: Bounds = OF_A_FILE) -> tuple[M, Document]:
    """The model of a single file, and its document; raises ConfigError with all of its problems."""
    document = load_yaml(path, most)
    problems = {*document.problems, *check_layer(model, document.node)}
    value = build(model, merge((document.node,), document.node.mark))
    if problems or isinstance(value, tuple):
        raise ConfigError(tuple(sorted(problems | set(value if isinstance(value, tuple) else ()))))
    return value, document


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean NAME?` for the nearest known name, or nothing."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(wrong.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {names[near[0]]}?" if near else ""


def plain(node: Node) -> Any:
    """Plain values for pydantic: dicts, tuples, text, booleans, None, and `Number` for YAML numbers."""
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    if isinstance(node.value, tuple):
        return tuple(plain(value) for value in node.value)
    return node.value


def _never_seen(model: type[BaseModel], node: Node, location: Location, path: str = "") -> Iterator[Problem]:
    """Problems that pydantic does not see: unknown keys set to `null`, and `key+` without a list."""
    for key, value in node.entries.items():
        inside, spelled = (*location, base_key(key)), join_key(path, key)
        if value.value is None and not _schema(model).knows(inside):
            yield problem_at(value.key, spelled, _unknown(_schema(model), inside))
        if key.endswith("+") and not isinstance(value.value, tuple | None):
            yield problem_at(value.mark, spelled, f"expected a list to append, got {kind(value)}")
        yield from _never_seen(model, value, inside, spelled)


def _only_partial(detail: ErrorDetails) -> bool:
    """Whether another layer can still correct the problem."""
    missing = detail["type"] == "missing" and not any(isinstance(step, int) for step in detail["loc"])
    return missing or detail["type"] == "combination"


def _reworded(detail: ErrorDetails, model: type[BaseModel], tree: Node) -> Problem:
    location = tuple(step for step in detail["loc"] if step != "[key]")
    is_key = detail["type"] == "extra_forbidden" or detail["loc"][-1:] == ("[key]",)
    node = tree  # the one at the location, or the nearest one that holds it
    for step in location:
        if isinstance(node.value, dict) and step in node.value:
            node = node.value[str(step)]
        elif isinstance(node.value, tuple) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
        else:
            break
    path = reduce(join_key, location, "")
    return problem_at(node.key if is_key else node.mark, path, _message(detail, model, node, location))


def _message(detail: ErrorDetails, model: type[BaseModel], node: Node, location: Location) -> str:
    schema = _schema(model)
    match detail["type"]:
        case "extra_forbidden":
            return _unknown(schema, location)
        case "missing":
            return "is missing"
        case "value_error":
            return detail["msg"].removeprefix("Value error, ")
        case "combination":
            return detail["msg"]
        case "string_too_long":
            return f"is longer than {detail['ctx']['max_length']} characters"
        case "string_too_short":
            return "is empty"
        case "greater_than_equal" | "less_than_equal":
            return f"expected {schema.range(location)}, got {node.raw}"
    wanted = schema.at(location)
    expected = schema.words(wanted)
    near = did_you_mean(node.raw, wanted.get("enum", ())) if isinstance(node.value, str) else ""
    return f"expected {expected}, got {kind(node)}{near}{_quoted_form(expected, node, location)}"


def _unknown(schema: "_Schema", location: Location) -> str:
    known = schema.keys(location[:-1])
    near = did_you_mean(str(location[-1]), known)
    return f"unknown key{near or f'; known are {_listed(sorted(known))}'}"


def _quoted_form(expected: str, node: Node, location: Location) -> str:
    if expected != "text" or not isinstance(node.value, Number | bool):
        return ""
    key = "" if isinstance(location[-1], int) else f"{location[-1]}: "
    return f"; write {key}'{node.raw}'"


def _listed(names: Iterable[str], last: str = "and") -> str:
    *first, end = names
    return f"{', '.join(first)} {last} {end}" if first else end


@cache
def _schema(model: type[BaseModel]) -> "_Schema":
    return _Schema(model)


class _Schema:
    """What a model expects at a location, as text from its JSON Schema."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.root = model.model_json_schema()

    def keys(self, location: Location) -> tuple[str, ...]:
        return tuple(self.at(location).get("properties", {}))

    def knows(self, location: Location) -> bool:
        """Whether the last step is a known key; true if any key is allowed or none is declared."""
        known = self.keys(location[:-1])
        return not known or location[-1] in known

    def range(self, location: Location) -> str:
        schema = self.at(location)
        schema = next((one for one in schema.get("anyOf", ()) if "minimum" in one), schema)
        if "maximum" in schema:
            return f"a number from {schema['minimum']:g} to {schema['maximum']:g}"
        return f"at least {schema['minimum']}"

    def at(self, location: Location) -> dict[str, Any]:
        schema = self._resolved(self.root)
        for step in location:
            if isinstance(step, int):
                inner = schema.get("items", {})
            else:
                inner = schema.get("properties", {}).get(step) or schema.get("additionalProperties") or {}
            schema = self._resolved(inner if isinstance(inner, dict) else {})
        return schema

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in schema:
            return self._resolved(self.root["$defs"][schema["$ref"].rpartition("/")[2]])
        choices = [self._resolved(choice) for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
        if len(choices) == 1:
            return choices[0]
        objects = [choice for choice in choices if choice.get("type") == "object"]
        return {**schema, "properties": objects[0]["properties"]} if objects else schema

    def words(self, schema: dict[str, Any]) -> str:
        if "enum" in schema:
            return _listed(schema["enum"], "or")
        if schema.get("title") == "bind path":
            return "a bind path such as /data or /data:/inside:ro"
        match schema.get("type"):
            case "boolean":
                return "true or false"
            case "number" | "integer":
                return "a number"
            case "array":
                items = self._resolved(schema.get("items", {}))
                return f"a list of {'bind paths' if items.get('title') == 'bind path' else self.words(items)}"
            case "object":
                return "keys and values"
        return "text"


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add the texts below the fields of a model, and of those that it extends, to its `schema`.

    They are read when a schema is made; pydantic's `use_attribute_docstrings` would parse every model at each start.
    """
    import ast
    import inspect
    import textwrap

    for owner in reversed(model.__mro__):
        if not issubclass(owner, BaseModel) or owner is BaseModel:
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        for field, text in pairwise(getattr(definition, "body", ())):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                    key = model.model_fields[name].alias or name
                    schema["properties"][key]["description"] = inspect.cleandoc(said)


class Model(BaseModel):
    """Frozen, strict (a number is not text), and closed: an unknown key is an error. Built at its first use."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True, json_schema_extra=_describe)
