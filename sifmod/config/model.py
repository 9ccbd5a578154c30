"""The base of every model of a configuration file."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Frozen, strict (a number is not text), and closed: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)
