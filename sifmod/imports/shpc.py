"""Convert a container.yaml of singularity-hpc to an easyconfig, key by key."""

import re
import shlex
from pathlib import Path

from sifmod.config.yaml.node import Node
from sifmod.config.yaml.parse import load_yaml
from sifmod.errors import ConfigError
from sifmod.imports.container import (
    MOST,
    NAME,
    Found,
    is_for_a_shell,
    vendor,
    without_arguments,
    wrapper,
)
from sifmod.imports.result import CannotImportError, Imported, Value

_SHA256 = re.compile("sha256:[0-9a-f]{64}")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")
_PLACES = ("docker", "oras", "gh", "path")
_CARRIED = (
    *("docker", "oras", "path", "url", "maintainer", "description", "latest", "tags", "aliases", "env", "features"),
)
_NO_WRAPPER = f"a wrapper needs a valid name, and a command of at most {MOST} letters with its options"
_NO_TEXT = "only texts without $ and ` are, and of PATH the directories before :$PATH"
# what an override's file may replace
_OVERRIDABLE = ("aliases", "env", "features", "description", "docker_scripts", "singularity_scripts")
_WHY_NOT = {
    "filter": "filter selects the tags for singularity-hpc's own updates",
    "test": "test is a script for singularity-hpc; write its commands under sanity_check",
    "docker_scripts": "docker_scripts are only for docker",
    "singularity_scripts": "singularity_scripts are programs in separate files",
}


def read_shpc(path: Path) -> Imported:
    """The easyconfig for the tag under `latest`; raises CannotImportError with the reason if there is none."""
    recipe = _document(path)
    name, tag, source, notes = _image(recipe, path)
    others = [other for other in _entries(recipe, "tags") if other != tag]
    if others:
        notes.append(f"tags: {', '.join(others[:20])}{' …' if len(others) > 20 else ''}: an easyconfig is for one tag")
    if override := _entries(recipe, "overrides").get(tag):
        beside = override.text
        if beside.startswith("/") or ".." in beside.split("/") or not beside:
            raise CannotImportError(f"overrides.{tag}: {beside!r} does not name a file beside the container.yaml")
        replaced = _document(path.parent / beside, f"{beside}: ")
        recipe |= {key: replaced[key] for key in _OVERRIDABLE if key in replaced}
    keys: dict[str, Value] = {"name": name, "version": tag, "description": _text(recipe, "description")}
    if (url := _text(recipe, "url")).startswith(("http://", "https://")):
        keys["homepage"] = url
    if maintainer := _text(recipe, "maintainer"):
        keys["whatis"] = (f"Maintainer: {maintainer}",)
    found = Found(notes=notes)
    _env(recipe, found)
    made = wrappers(recipe.get("aliases"), found)
    keys |= _accelerator(recipe, source, found) | found.keys()
    keys["image"] = {"sources": (source,)}
    keys |= {"wrappers": made} if made else {}
    if not made:
        notes.append(
            "no alias was imported, so start-shell is the only wrapper: `wrappers: auto` finds the image's commands"
        )
    for key in recipe:
        if key not in (*_CARRIED, "overrides", *(("gh",) if source.startswith("https:") else ())):
            notes.append(_WHY_NOT.get(key, f"{key[:60]} is not imported"))
    place = next((_text(recipe, kind) for kind in _PLACES if _text(recipe, kind)), "")
    publisher = place.rpartition("/")[0].rpartition("/")[2]  # `autamus` of ghcr.io/autamus/samtools
    return Imported(keys, tuple(dict.fromkeys(notes)), publisher=publisher)


def _document(path: Path, override: str = "") -> dict[str, Node]:
    """The keys of a file. `override` begins the message about another file than the container.yaml."""
    try:
        document = load_yaml(path)
    except ConfigError as error:
        message = "; ".join(f"line {found.line}: {found.message}" for found in error.problems)
        raise CannotImportError(f"{override}{message}", line=None if override else error.problems[0].line) from error
    if document.problems:
        problem = document.problems[0]
        message = f"{override}line {problem.line}: {problem.key}: {problem.message}"
        raise CannotImportError(message, line=None if override else problem.line)
    return dict(document.node.entries)


def _entries(recipe: dict[str, Node], key: str) -> dict[str, Node]:
    return recipe[key].entries if key in recipe else {}


def _text(recipe: dict[str, Node], key: str) -> str:
    return " ".join(recipe[key].raw.split()) if key in recipe else ""


def _image(recipe: dict[str, Node], path: Path) -> tuple[str, str, str, list[str]]:
    """Name, tag, source, and the first notes. Raises CannotImportError."""
    kind = next((kind for kind in _PLACES if _text(recipe, kind)), "")
    if not kind:
        raise CannotImportError(f"has no image: expected one of {', '.join(_PLACES)}")
    latest = _entries(recipe, "latest")
    if len(latest) != 1:
        raise CannotImportError(f"expected one tag under latest, got {len(latest)}")
    tag, node = next(iter(latest.items()))
    digest, place = node.raw.strip(), _text(recipe, kind)
    if not _TAG.fullmatch(tag) or ".." in tag:
        raise CannotImportError(f"latest: {tag[:60]!r} is not valid as a tag and a version")
    if kind == "path":
        return _local(place, tag, digest, path)
    if not _REPOSITORY.fullmatch(place):
        raise CannotImportError(f"{kind}: {place[:60]!r} is not a valid repository")
    name = place.rpartition("/")[2]
    if kind == "gh":
        release = f"https://github.com/{place}/releases/download/{digest}/{place.replace('/', '-')}.{tag}.sif"
        return name, tag, release, ["gh: the SIF of a release has no digest here; `sifmod install` prints one to add"]
    if not _SHA256.fullmatch(digest):
        raise CannotImportError(f"latest.{tag}: expected sha256: and 64 hexadecimal digits, got {digest[:60]!r}")
    notes = ["version: the tag `latest` is not a version; the digest selects the image"] if tag == "latest" else []
    return name, tag, f"{kind}://{place}:{tag}@{digest}", notes


def _local(place: str, tag: str, digest: str, path: Path) -> tuple[str, str, str, list[str]]:
    """Like `_image`, for a local SIF; one named by its digest has the name of its directory, NAME or NAME/VERSION."""
    name = re.sub(r"([-:_]?sha256[-:_][0-9a-f]{64})?\.sif$", "", place.rpartition("/")[2]).removesuffix(f"-{tag}")
    if not name:
        *_, above, name = path.absolute().parent.parts
        if tag == "latest" and name[:1].isdigit():
            name, tag = above, name
    note = "path: a local SIF; put the easyconfig beside the container.yaml, or an absolute path into image.sources"
    if _SHA256.fullmatch(digest):
        note += f" (its digest there: {digest})"
    return name, tag, place if "/" in place else f"./{place}", [note]


def _accelerator(recipe: dict[str, Node], source: str, found: Found) -> dict[str, Value]:
    notes = found.notes
    features = {name: node.value for name, node in _entries(recipe, "features").items()}
    for name, value in features.items():
        if value is True and name in ("home", "x11"):
            notes.append(
                f"features.{name}: a directory from singularity-hpc's settings; the runtime binds home and /tmp"
            )
        elif name not in ("gpu", "home", "x11"):
            notes.append(f"features.{name[:60]} is an unknown feature")
    if features.get("gpu") is not True and not found.gpus:
        return {"accelerator": "none"}
    if len(found.gpus) == 1:
        return {"accelerator": next(iter(found.gpus))}
    if said := vendor(source):
        return {"accelerator": said}
    notes.append("features.gpu does not name an accelerator: without `accelerator` the site's is used")
    return {}


def _env(recipe: dict[str, Node], found: Found) -> None:
    for name, node in _entries(recipe, "env").items():
        value = node.raw
        if name == "PATH" and value.endswith((":$PATH", ":${PATH}")):
            found.path += (directory for directory in value.split(":")[:-1] if directory.startswith("/"))
        elif name == "PATH" or "$" in value or "`" in value or node.items or node.entries:
            found.notes.append(f"env.{name[:60]}: {shlex.quote(value[:80])} is not imported: {_NO_TEXT}")
        else:
            found.env[name] = value


def wrappers(aliases: Node | None, found: Found) -> tuple[Value, ...]:
    """The wrappers of the aliases; what their options say, and notes, go to `found`."""
    made: dict[str, Value] = {}
    for name, command, more in _listed(aliases, found.notes):
        if not NAME.fullmatch(name) or ".." in name or not command.split() or len(command) + len(more) > MOST:
            found.notes.append(f"alias {name[:60]!r} is not imported: {_NO_WRAPPER}")
            continue
        text = command
        try:
            made[name] = wrapper(name, _for_sh(name, command, found.notes))
            text = more
            found.options(shlex.split(more), f"alias {name}: ")
        except ValueError as error:
            found.notes.append(f"alias {name}: {text[:80]!r} is not a valid command line: {error}")
    return tuple(made.values())


def _listed(aliases: Node | None, notes: list[str]) -> list[tuple[str, str, str]]:
    """Each alias as name, command and singularity's options."""
    if aliases is None:
        return []
    listed = [(name, node.raw, "") for name, node in aliases.entries.items()]
    for item in aliases.items:
        entries = {key: node.raw for key, node in item.entries.items()}
        name = entries.get("name", "")
        listed.append((name, entries.get("command", ""), entries.get("singularity_options", "")))
        unknown = [key for key in entries if key not in ("name", "command", "singularity_options")]
        notes.extend(f"alias {name[:60]}: {key[:60]} is not imported" for key in unknown)
    return listed


def _for_sh(name: str, command: str, notes: list[str]) -> str:
    """The command line without the user's arguments; one that needs a shell (`$(…)`, `&&`, a variable) starts `sh`."""
    command = without_arguments(command)
    if not is_for_a_shell(command):
        return command
    notes.append(f"alias {name}: its command line needs a shell; sh runs it inside the container")
    script = f'{command} "$@"'
    return f"sh -c {shlex.quote(script)} {name}"
