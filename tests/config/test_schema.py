"""The JSON Schema, against what the loader takes and refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sifmod.config.easyconfig import EasyconfigFile
from sifmod.config.find import shipped
from sifmod.config.schema import easyconfig_schema
from sifmod.config.yaml.parse import parse_yaml
from sifmod.config.yaml.validate import check_layer

SCHEMA = easyconfig_schema()


def valid(value: Any, schema: dict[str, Any]) -> bool:
    """A validator of the part of JSON Schema that the schema uses; an unknown keyword is an error."""
    for keyword, wanted in schema.items():
        match keyword:
            case "$ref":
                ok = valid(value, SCHEMA["$defs"][wanted.rpartition("/")[2]])
            case "anyOf":
                ok = any(valid(value, choice) for choice in wanted)
            case "type":
                ok = any(is_a(value, name) for name in (wanted if isinstance(wanted, list) else [wanted]))
            case "enum":
                ok = value in wanted
            case "items":
                ok = not isinstance(value, list) or all(valid(item, wanted) for item in value)
            case "properties":
                ok = not isinstance(value, dict) or all(
                    valid(value[key], inner) for key, inner in wanted.items() if key in value
                )
            case "additionalProperties":
                ok = not isinstance(value, dict) or all(
                    wanted is not False and valid(inner, wanted)
                    for key, inner in value.items()
                    if key not in schema.get("properties", {})
                )
            case "required":
                ok = not isinstance(value, dict) or set(wanted) <= set(value)
            case "propertyNames":
                ok = not isinstance(value, dict) or all(valid(key, wanted) for key in value)
            case "maxLength":
                ok = not isinstance(value, str) or len(value) <= wanted
            case "minLength":
                ok = not isinstance(value, str) or len(value) >= wanted
            case "minProperties":
                ok = not isinstance(value, dict) or len(value) >= wanted
            case "maxProperties":
                ok = not isinstance(value, dict) or len(value) <= wanted
            case "title" | "description" | "examples" | "$schema" | "$defs":
                ok = True
            case _:
                raise AssertionError(f"unknown keyword {keyword}")
        if not ok:
            return False
    return True


def is_a(value: Any, name: str) -> bool:
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,), "object": (dict,), "array": (list,), "boolean": (bool,), "null": (type(None),),
        "integer": (int,), "number": (int, float),
    }  # fmt: skip
    return isinstance(value, kinds[name]) and (name == "boolean" or not isinstance(value, bool))


@pytest.mark.parametrize("path", sorted(shipped().glob("*/*.yaml")), ids=lambda path: path.name)
def test_shipped_easyconfigs_and_presets_are_valid(path: Path) -> None:
    import yaml

    if path.parent.name not in ("sites", "quirks", "mpi"):
        assert valid(yaml.safe_load(path.read_text()), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "nmae: x", "version: 2.20", "env: {A: yes}", "accelerator: gpu", "binds: [3]", "binds: [{target: /a}]",
        "image: {sorces: []}", "variants: {a: {variants: {}}}", "variants: {a: {nmae: x}}", "docurls+: x", "env+: []",
        "runscripts: [x]", "conda: /opt", "description: [x]", "image: {sources: ['']}", "whatis: [1.0]",
        "wrappers: [{a: b, c: d}]", "wrappers: [{}]",
    ],
)  # fmt: skip
def test_what_the_schema_refuses_the_loader_refuses(text: str) -> None:
    import yaml

    assert not valid(yaml.safe_load(text), SCHEMA)
    assert check_layer(EasyconfigFile, parse_yaml(text.encode(), "f.yaml")[0])


@pytest.mark.parametrize(
    "text",
    [
        "name: A", "env: {A: 1, B: 1.5, C: x, D: null}", "binds+: [/a, {source: /b, optional: true}]", "image: null",
        "variants: {a: null, b: {preset: p, image: {sources+: [x]}, env: null}}", "extends: x.yaml", "family: null",
        "runscripts: [get-master]", "accelerator: null", "sanity_check: {commands+: ['true']}", "contents: {a: null}",
        "wrappers: [a, {b: c d}]",
    ],
)  # fmt: skip
def test_what_the_loader_takes_the_schema_takes(text: str) -> None:
    import yaml

    assert valid(yaml.safe_load(text), SCHEMA)
    assert not check_layer(EasyconfigFile, parse_yaml(text.encode(), "f.yaml")[0])


def test_every_key_says_what_it_is() -> None:
    described = [SCHEMA, *SCHEMA["$defs"].values()]
    for schema in described:
        assert all("description" in value for value in schema["properties"].values())


def keys(schema: dict[str, Any]) -> dict[str, list[str]]:
    found = {name: sorted(definition["properties"]) for name, definition in schema["$defs"].items()}
    return {**found, "": sorted(schema["properties"])}


def test_the_shipped_copy_has_the_same_keys() -> None:
    """Not byte for byte: how a schema is spelled depends on the version of pydantic."""
    copy = json.loads((shipped() / "easyconfig.schema.json").read_text())
    assert keys(copy) == keys(SCHEMA)
    assert copy["properties"]["accelerator"]["enum"] == ["rocm", "cuda", "none", None]


def test_a_shipped_easyconfig_names_the_schema_for_editors() -> None:
    for path in sorted(shipped().glob("*/*.yaml")):
        if path.parent.name in ("sites", "quirks", "mpi"):
            continue
        named = re.match(r"# yaml-language-server: \$schema=(.*)\n", path.read_text())
        assert named is not None, path
        assert (path.parent / named.group(1)).resolve() == shipped() / "easyconfig.schema.json"


def test_no_key_is_required_or_has_a_default_or_a_title() -> None:
    for schema in (SCHEMA, *SCHEMA["$defs"].values()):
        assert "required" not in schema
        assert schema["additionalProperties"] is False
        for value in schema["properties"].values():
            assert not {"title", "default"} & set(value)
    assert list(SCHEMA["$defs"]) == sorted(SCHEMA["$defs"])
    assert SCHEMA["title"] == "sifmod easyconfig"
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_key_can_be_removed_and_every_list_appended_to() -> None:
    keys = SCHEMA["properties"]
    assert keys["description"] == {"description": "A description for `module help`.", "type": ["string", "null"]}
    assert keys["family"]["type"] == keys["activate"]["type"] == ["string", "null"]
    assert "anyOf" not in keys["family"]
    assert keys["user_software"]["type"] == ["boolean", "null"]
    assert keys["verb"]["enum"] == ["exec", "run", None]
    assert keys["gpu_selection"]["enum"] == ["slurm", "localid", "none", None]
    assert set(keys["conda"]) == {"anyOf", "description"}
    assert keys["conda"]["anyOf"] == [{"$ref": "#/$defs/Conda"}, {"type": "null"}]
    assert keys["image"]["anyOf"] == [{"$ref": "#/$defs/Image"}, {"type": "null"}]
    lists = [
        "binds",
        "conflict",
        "depends_on",
        "docurls",
        "modules",
        "path",
        "protected",
        "runscripts",
        "whatis",
        "wrappers",
    ]
    assert [key for key in keys if key.endswith("+")] == [f"{key}+" for key in keys if key in lists]
    assert keys["whatis+"] == {
        "type": "array",
        "items": {"type": "string"},
        "description": f"Appended to whatis. {keys['whatis']['description']}",
    }
    assert keys["wrappers+"]["type"] == "array"
    assert keys["wrappers+"]["items"]["anyOf"][0] == {"type": "string"}
    assert "null" in [choice.get("type") for choice in keys["wrappers"]["anyOf"]]
    assert keys["contents"]["additionalProperties"]["type"] == ["string", "null"]


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ("/a:/b:ro", True), ({"source": "/a"}, True), ({"target": "/a"}, False), ({"source": "/a", "other": 1}, False),
        ({"source": "/a", "target": "/b", "options": "ro", "optional": True, "links": False}, True), (3, False),
        ({"source": 1}, False), ({"source": "/a", "optional": "no"}, False), ({"source": "/a", "links": 1}, False),
        ({"source": "/a", "target": 1}, False), ({"source": "/a", "options": 1}, False), (["/a"], False), (None, False),
    ],
)  # fmt: skip
def test_bind_paths_for_an_editor(value: object, right: bool) -> None:
    assert valid({"binds": [value]}, SCHEMA) is right
    assert valid({"binds+": [value]}, SCHEMA) is right


def test_what_an_editor_is_told_of_a_bind_path() -> None:
    binds = SCHEMA["properties"]["binds"]["items"]
    assert binds["title"] == "bind path"
    text, spelled_out = binds["anyOf"]
    assert text == {"type": "string", "description": "source[:target[:options]]"}
    assert sorted(spelled_out["properties"]) == ["links", "optional", "options", "source", "target"]


def test_wrappers_for_an_editor() -> None:
    wrappers = SCHEMA["properties"]["wrappers"]["anyOf"]
    items = next(choice for choice in wrappers if choice.get("type") == "array")["items"]
    command = items["anyOf"][1]
    assert (command["type"], command["minProperties"], command["maxProperties"]) == ("object", 1, 1)
    assert command["additionalProperties"] == {"type": "string"}
    assert [choice["enum"] for choice in wrappers if "enum" in choice] == [["auto"]]
    assert [choice["type"] for choice in wrappers if "enum" in choice] == ["string"]
