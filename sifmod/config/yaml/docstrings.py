"""The texts below the fields of a model, as descriptions in its JSON Schema.

They are read when a schema is made; pydantic's `use_attribute_docstrings` would parse every model at each start.
"""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import BaseModel


def describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add the texts of a model, and of the models that it extends, to its `schema`."""
    for owner in reversed(model.__mro__):
        if not issubclass(owner, BaseModel) or owner is BaseModel:
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        for field, text in pairwise(getattr(definition, "body", ())):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                    key = model.model_fields[name].alias or name
                    schema["properties"][key]["description"] = inspect.cleandoc(said)
