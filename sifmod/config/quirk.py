"""A quirk: variables that some modules, images or sites need set or unset, with the reason."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from sifmod.config.easyconfig import ContainerEnv, Easyconfig, HostEnv, RunscriptEnv
from sifmod.config.find import settings_in
from sifmod.config.input import Input, read_input
from sifmod.config.origin import Origin
from sifmod.config.text import Name, NotEmpty, OpenNotEmpty, Pairs
from sifmod.config.version import is_range, within
from sifmod.config.yaml.node import Node, Number, join_key, problem_at
from sifmod.config.yaml.validate import Model, load_model
from sifmod.errors import ConfigError, Problem

Variables = Literal["env", "host_env", "runscript_env"]
VARIABLES: tuple[Variables, ...] = ("env", "host_env", "runscript_env")
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def _alone(value: object) -> object:
    """A single text becomes a tuple; a number too, so that the message asks for quotes."""
    return (value,) if isinstance(value, str | Number) else value


def _ranges(ranges: tuple[str, ...]) -> tuple[str, ...]:
    for text in ranges:
        if not is_range(text):
            raise ValueError(f"expected a version, perhaps behind >=, <=, ==, !=, > or <, got {text!r}")
    return ranges


def _images(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for text in patterns:
        if text.startswith("sha256:") and not _DIGEST.fullmatch(text):
            raise ValueError(f"expected sha256: and 64 lower-case hexadecimal digits, got {text!r}")
    return patterns


class Match(Model):
    """The conditions of a quirk; all given ones must hold."""

    name: Name | None = None
    """The module's name."""
    versions: Annotated[tuple[NotEmpty, ...], BeforeValidator(_alone), AfterValidator(_ranges)] = ()
    """Ranges of the easyconfig's version; all must hold."""
    image: Annotated[tuple[NotEmpty, ...], BeforeValidator(_alone), AfterValidator(_images)] = ()
    """The SIF's file name, with wildcards, or `sha256:…` of the SIF or its manifest; one must match."""
    site: Annotated[tuple[Name, ...], BeforeValidator(_alone)] = ()
    """Names of sites; one must match."""

    @model_validator(mode="after")
    def _something(self) -> "Match":
        if not (self.name or self.versions or self.image or self.site):
            raise PydanticCustomError("combination", "expected one of name, versions, image and site")
        return self


class QuirkFile(Model):
    """The keys of a quirk file; `null` unsets a variable."""

    description: OpenNotEmpty
    reason: OpenNotEmpty
    link: OpenNotEmpty
    match: Match
    env: ContainerEnv = ()
    host_env: HostEnv = ()
    runscript_env: RunscriptEnv = ()


@dataclass(frozen=True)
class Quirk:
    """A quirk and the layer that it adds to an easyconfig."""

    name: str  # of its file, without .yaml
    path: Path
    file: QuirkFile
    layer: Node  # env, host_env and runscript_env; null removes, and a null in env removes from all three

    def unset(self, variables: Variables) -> tuple[str, ...]:
        return tuple(name for name, value in self.layer.at(variables).entries.items() if value.value is None)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Origins for the quirk and the variables it unsets; those it sets are among the easyconfig's values."""
        unset = [
            Origin(join_key(kind, name), "(unset)", str(self.layer.entries[kind].entries[name].mark))
            for kind in VARIABLES
            for name in self.unset(kind)
        ]
        return (Origin(join_key("quirks", self.name), self.file.description, str(self.path)), *unset)

    def __str__(self) -> str:
        """One line for people: its name, description and effect."""
        done = [f"{name}={value}" for kind in VARIABLES for name, value in getattr(self.file, kind)]
        done += [f"no {name}" for kind in VARIABLES for name in self.unset(kind)]
        return f"{self.name}: {self.file.description} ({', '.join(dict.fromkeys(done))})"


def read_quirks(directories: Iterable[Path], environ: Mapping[str, str]) -> tuple[tuple[Quirk, ...], tuple[Input, ...]]:
    """The quirks of `directories`, and the inputs; a file hides one of the same name in an earlier directory.

    Sorted by name. Raises ConfigError with every problem of every file.
    """
    found: dict[str, Quirk] = {}
    inputs: list[Input] = []
    problems: list[Problem] = []
    for directory in directories:
        inputs.append(read_input(f"{directory}/", environ))
        for path in settings_in(directory):
            try:
                found[path.stem], read = read_quirk(path)
            except ConfigError as error:
                problems += error.problems
            else:
                inputs.append(read)
    if problems:
        raise ConfigError(tuple(problems))
    return tuple(found[name] for name in sorted(found)), tuple(inputs)


def read_quirk(path: Path) -> tuple[Quirk, Input]:
    """The quirk of one file, and its input; raises ConfigError with all of its problems."""
    file, document = load_model(QuirkFile, path)
    entries = document.node.entries
    if not any(key in entries for key in VARIABLES):
        message = f"expected variables under {', '.join(VARIABLES[:-1])} or {VARIABLES[-1]}; env: {{}} switches it off"
        raise ConfigError((problem_at(document.node.mark, "", message),))
    layer: dict[str, Node] = {key: entries[key] for key in VARIABLES if key in entries and entries[key].entries}
    return Quirk(path.stem, path, file, replace(document.node, value=_everywhere(layer))), document.input


def _everywhere(layer: dict[str, Node]) -> dict[str, Node]:
    """A variable unset in the container is also unset on the host and in the runscripts.

    A value in one of these two takes precedence.
    """
    if "env" not in layer:
        return layer
    unset = {name: value for name, value in layer["env"].entries.items() if value.value is None}
    if not unset:
        return layer
    said = {key: layer[key].entries if key in layer else {} for key in VARIABLES}
    return {key: replace(layer.get(key, layer["env"]), value={**unset, **said[key]}) for key in VARIABLES}


def applicable(
    quirks: tuple[Quirk, ...], easyconfig: Easyconfig, site: str, digests: tuple[str, ...] = ()
) -> tuple[Quirk, ...]:
    """The quirks that match and have an effect.

    `digests` are digests of the image (`sha256:…`) that the easyconfig does not contain.
    """
    image = easyconfig.image
    stated = [f"sha256:{image.sha256}"] if image and image.sha256 else []
    stated += [digest for source in (image.sources if image else ()) for digest in _DIGEST.findall(source)]
    known = (*stated, *digests)
    return tuple(quirk for quirk in quirks if quirk.layer.entries and _fits(quirk.file.match, easyconfig, site, known))


def variables_with(quirks: tuple[Quirk, ...], easyconfig: Easyconfig) -> dict[str, Pairs]:
    """The variables of an easyconfig as the quirks leave them, by the key that they are under."""
    found: dict[str, Pairs] = {}
    for kind in VARIABLES:
        variables = dict(getattr(easyconfig, kind))
        for quirk in quirks:
            unset = quirk.unset(kind)
            variables = {name: value for name, value in variables.items() if name not in unset}
            variables.update(getattr(quirk.file, kind))
        found[kind] = tuple(variables.items())
    return found


def _fits(match: Match, easyconfig: Easyconfig, site: str, digests: tuple[str, ...]) -> bool:
    image = easyconfig.image
    return (
        match.name in (None, easyconfig.name)
        and within(easyconfig.version, match.versions)
        and (not match.site or site in match.site)
        and (
            not match.image
            or any(text in digests or (image and fnmatchcase(image.filename, text)) for text in match.image)
        )
    )
