"""What a verb prints with --json, held to the schema that `sifmod schema --output` prints."""

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from sifmod.cli.main import run
from sifmod.cli.outputs import output_schema

if TYPE_CHECKING:
    import jsonschema


def answer(capfd: pytest.CaptureFixture[str], words: tuple[str, ...], code: int = 0) -> Any:
    """Run the verb with --json: the one document on standard output, every field of which the schema has."""
    capfd.readouterr()
    assert run([*words, "--json"]) == code
    return held(" ".join(words[: 2 if words[0] in ("config", "site", "stack") else 1]), capfd.readouterr().out)


def held(verb: str, out: str) -> Any:
    """The one document that a verb has printed; an error's exit code and message are there too.

    Without what `gc` has found in the /tmp of the machine, which is no test's own.
    """
    data = json.loads(out)
    _validator(verb).validate(data)
    if verb == "gc" and isinstance(data, list):
        data = [row for row in data if not row["path"].startswith("/tmp/sifmod-")]
    return data


@cache
def _validator(verb: str) -> "jsonschema.Draft202012Validator":
    import jsonschema  # which compiles 38 grammars

    schema = output_schema(verb)
    jsonschema.Draft202012Validator.check_schema(schema)
    for definition in schema["$defs"].values():
        definition["additionalProperties"] = False
    return jsonschema.Draft202012Validator(schema)
