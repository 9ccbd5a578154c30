"""Build: how to build an image: packages and files on a base, a definition file, or a Dockerfile."""

import os
import re
from posixpath import basename, join, normpath
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from sifmod.config.find import SUFFIXES
from sifmod.config.redact import has_login, secret_parameter, without_logins
from sifmod.config.text import Absolute, EnvName, EnvValue, Items, Line, NotEmpty, OwnFile, Pairs, Text
from sifmod.config.yaml.node import Node, printable_text
from sifmod.config.yaml.validate import Model

_DOCKERFILE = re.compile(r"(.*/)?(Dockerfile|Containerfile)(\.[^/]*)?|.*/")
# the builder would read it as a section, another stage, or an argument
OF_DEFINITION = re.compile(r"(?im)^\s*%\S*|^bootstrap:|(\{\{\s*\w+\s*\}\})")
# what a URL takes from a variable, which the image does not keep
_OF_VARIABLE = r"(?<=//)[^\s/@]*\$\{?\w+\}?@|(?<==)\$\{?\w+\}?"
_UPON_BASE = ("pip", "requirements", "files", "env", "labels", "post", "test")
_OF_RUNTIME = ("/.singularity.d", "/.exec", "/.run", "/.shell", "/.test", "/environment", "/singularity")
_NOT_FILES = ("/", "/proc", "/sys", "/dev", *_OF_RUNTIME)  # mounted or read by the runtime


def requirement(text: str) -> str:
    """A requirement, without logins. Raises ValueError for an invalid one, and for one with a path or URL."""
    from packaging.requirements import InvalidRequirement, Requirement

    text = without_logins(text)
    try:
        read = Requirement(text)
    except InvalidRequirement:
        raise ValueError(f"{printable_text(text)} is not a requirement: write NAME, NAME==VERSION or similar") from None
    if read.url:
        raise ValueError(
            f"{printable_text(text)} names a path or URL: packages come from an index, by name and version"
        )
    return text


def _beside(text: str) -> str:
    if text.startswith(("/", "~")) or ".." in text.split("/"):
        raise ValueError(
            f"{printable_text(text)} cannot be used: name a file or directory below that of the easyconfig"
        )
    return text


def _no_login(text: str) -> str:
    if what := "a login" if has_login(text) else "the token of a URL" if secret_parameter(text) else "":
        raise ValueError(f"{what} cannot be used here, because the image would keep it")
    return text


def _commands(text: str) -> str:
    if found := re.search(OF_DEFINITION, text):
        raise ValueError(
            f"{printable_text(found[0].strip())} {'' if found[1] else 'at the beginning of a line '}has a meaning in a "
            "definition file: put the commands into one of `files`, and run that"
        )
    _no_login(re.sub(_OF_VARIABLE, "", text))
    return text


def _target(text: str) -> str:
    if ".." in text.split("/"):
        raise ValueError(f"{printable_text(text)} cannot be used: write the path without '..'")
    place = "/" + normpath(text).strip("/")
    if any(place == each or (each != "/" and place.startswith(f"{each}/")) for each in _NOT_FILES):
        raise ValueError(
            f"{printable_text(text)} cannot be used: it is the root, or the runtime mounts or reads files there"
        )
    return text


def spelled_out(value: object) -> object:
    """A text as a map with its key (a directory or `Dockerfile`: dockerfile, `x.def`: definition); else the value."""
    if isinstance(value, str):
        return {"dockerfile" if _DOCKERFILE.fullmatch(value) else "definition": value}
    return value


def spelled_out_node(node: Node) -> Node:
    """`spelled_out` for a Node."""
    value = spelled_out(node.value)
    if isinstance(value, dict) and not isinstance(node.value, dict):
        return Node(dict.fromkeys(value, node), node.mark, node.key)
    return node


def names_easyconfig(base: str) -> bool:
    """Whether the value of `from` is an easyconfig: a bare name without `.sif`, or the path of a YAML file."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", base) or base.endswith(".sif"):
        return False
    return "/" not in base or base.endswith(SUFFIXES)


def place_in_image(source: str, target: str) -> str:
    """The path of a file or directory in the image: a target that ends in `/` is the directory for a file."""
    inside = target.endswith("/") and not os.path.isdir(source)  # noqa: PTH112 (any text may be asked)
    return "/" + normpath(join(target, basename(source)) if inside else target).lstrip("/")


Kept = AfterValidator(_no_login)
"""For a value that anybody with the image can read."""
Commands = Annotated[Text, AfterValidator(_commands)]
Requirement = Annotated[NotEmpty, AfterValidator(requirement)]


class Build(Model):
    """Packages, files and variables on a base; or a definition file or a Dockerfile."""

    from_: Annotated[NotEmpty | None, Field(alias="from")] = None
    """The base: a source as in image.sources, or another easyconfig, whose image is the base."""
    pip: tuple[Requirement, ...] = ()
    """Packages to add, in pip's syntax: lightning==2.2.0."""
    requirements: OwnFile | None = None
    """A requirements.txt, or a pylock.toml, which pins everything."""
    files: Annotated[
        Pairs, Items(Annotated[OwnFile, AfterValidator(_beside)], Annotated[Absolute, AfterValidator(_target)])
    ] = ()
    """A file or directory beside the easyconfig: its path in the image."""
    env: Annotated[Pairs, Items(EnvName, Annotated[EnvValue, Kept])] = ()
    """Variables that the image sets."""
    labels: Annotated[Pairs, Items(NotEmpty, Annotated[Line, Kept])] = ()
    """Labels of the image."""
    post: Commands = ""
    """Commands that a shell runs inside during the build; this needs a builder."""
    test: Commands = ""
    """Commands that must succeed inside the finished image."""
    definition: OwnFile | None = None
    """A definition file that the runtime builds, instead of a base."""
    dockerfile: OwnFile | None = None
    """A Dockerfile, or a directory with one, instead of a base."""
    arguments: Annotated[Pairs, Items(EnvName, Annotated[EnvValue, Kept])] = ()
    """Build arguments of the definition or Dockerfile."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [name for name in ("from", "definition", "dockerfile") if getattr(self, name.replace("from", "from_"))]
        if len(ways) != 1:
            raise PydanticCustomError("combination", "give one of from, definition and dockerfile")
        if self.pip and (self.requirements or "").endswith(".toml"):
            raise PydanticCustomError("combination", "a lock pins every package: add those under pip to the lock")
        own = ("arguments",) if ways == ["from"] else _UPON_BASE
        for key in own:
            if getattr(self, key):
                raise PydanticCustomError("combination", f"{key} cannot be combined with {ways[0]}")
        if ways == ["from"] and not any(getattr(self, key) for key in _UPON_BASE):
            raise PydanticCustomError("combination", "there is nothing to build: give pip, files, env or another key")
        return self


Spelled = Annotated[Build | None, BeforeValidator(spelled_out, json_schema_input_type=str | Build | None)]
