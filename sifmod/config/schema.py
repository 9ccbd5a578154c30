"""The JSON Schema of an easyconfig file and of a stack file, for editors."""

from typing import Any

from sifmod.config.easyconfig import EasyconfigFile
from sifmod.config.find import shipped

JSON = dict[str, Any]


def easyconfig_schema() -> JSON:
    """The JSON Schema (2020-12) of an easyconfig file, derived from the models that validate it.

    Any key may be missing (a preset or `extends` may give it), null (it removes), or appended to with `key+`.
    """
    schema = EasyconfigFile.model_json_schema()
    definitions = {name: _layer(definition) for name, definition in schema.pop("$defs").items()}
    whole = _layer(schema)
    # not an enumeration: a site can have its own presets
    whole["properties"]["preset"]["examples"] = sorted(path.stem for path in (shipped() / "presets").glob("*.yaml"))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **whole,
        "title": "sifmod easyconfig",
        "description": "One module backed by a container image.",
        "$defs": dict(sorted(definitions.items())),
    }


def stack_schema() -> JSON:
    """The schema of a stack file."""
    from sifmod.config.stack import StackFile

    about = {"title": "sifmod stack", "description": "Easyconfigs that are published together."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **StackFile.model_json_schema(), **about}


def _layer(schema: JSON) -> JSON:
    """An object's schema with every key optional and removable, and lists that can be appended to."""
    properties: JSON = {}
    for name, value in schema.get("properties", {}).items():
        plain = {key: inner for key, inner in value.items() if key not in ("title", "default")}
        properties[name] = _or_null(plain)
        for appended in (plain, *plain.get("anyOf", ())):
            if appended.get("type") == "array":
                description = f"Appended to {name}. {plain.get('description', '')}"
                properties[f"{name}+"] = {**appended, "description": description}
    kept = {key: value for key, value in schema.items() if key not in ("properties", "required")}
    return {**kept, "properties": properties}


def _or_null(schema: JSON) -> JSON:
    """The schema or null; also null for a map's values, where it removes a key."""
    schema = dict(schema)
    if isinstance(inner := schema.get("additionalProperties"), dict):
        schema["additionalProperties"] = _or_null(inner)
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    description = {"description": schema.pop("description")} if "description" in schema else {}
    choices = [choice for choice in schema.pop("anyOf", ()) if choice != {"type": "null"}] or [schema]
    if len(choices) == 1 and isinstance(choices[0].get("type"), str):
        return {**description, **_or_null(choices[0])}
    return {**description, "anyOf": [*choices, {"type": "null"}]}
