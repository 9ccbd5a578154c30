"""Everything that a converted image gets beside its layers' files: entries of its root, and objects of its SIF."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sifmod.image.convert.metadata import environment, start_scripts
from sifmod.image.convert.metadata.describe import definition, inspect_text, labels_text, make_labels
from sifmod.image.convert.sif.write import DataObject

_HOME = ".singularity.d"
_LINKED = ("run", "exec", "test", "shell")


class Config(Protocol):
    """What is needed of an image's config; oci/manifest.py's ImageConfig has it."""

    @property
    def raw(self) -> bytes: ...
    @property
    def arch(self) -> str: ...
    @property
    def created(self) -> int | None: ...
    @property
    def env(self) -> tuple[str, ...]: ...
    @property
    def entrypoint(self) -> tuple[str, ...]: ...
    @property
    def cmd(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> tuple[tuple[str, str], ...]: ...


@dataclass(frozen=True)
class Entry:
    """One entry of the root file system: a file with `content`, a symbolic `link`, or else a directory."""

    path: str  # below the root, without a slash in front
    mode: int = 0o755
    content: bytes | None = None
    link: str = ""
    replaces: bool = False  # whatever the image has there; else what is there stays


@dataclass(frozen=True)
class Metadata:
    """What is added to an image: `entries` by insert_metadata, `objects` by write_header."""

    entries: tuple[Entry, ...]
    objects: tuple[DataObject, ...]
    warnings: tuple[str, ...]


def make_metadata(config: Config, manifest: bytes, bootstrap: str, source: str) -> Metadata:
    """All metadata of the image of `config`, whose manifest's bytes are `manifest` (empty where there is none).

    The SIF's definition says `bootstrap: docker`, `from: <source>`, which should name the digest. With it the runtimes'
    run, exec, shell, test, inspect and instances behave as with their own conversion; where that mangles the image's
    own values they are exact. The same arguments give the same bytes. Raises ImageError for a NUL in the entrypoint.
    """
    variables, warnings = environment.image_environment(config.env)
    run = start_scripts.runscript(config.entrypoint, config.cmd)
    deffile = definition(bootstrap, source)
    labels = make_labels(config.labels, config.arch, config.created, (bootstrap, source))
    shown = {
        f"/{_HOME}/env/{environment.IMAGE_ENVIRONMENT}": variables,
        f"/{_HOME}/env/90-environment.sh": environment.CUSTOM,
        "runscript": run,
        "startscript": start_scripts.START,
    }
    entries = (*_entries(variables, run), *_texts(labels_text(labels), deffile), *_links())
    objects = (
        DataObject("deffile", "", deffile.encode()),
        DataObject("labels", "", labels_text(labels)),
        DataObject("json", "inspect-metadata.json", inspect_text(labels, deffile, shown)),
        *_oci_objects(config.raw, manifest),
    )
    return Metadata((*_directories(), *entries), objects, warnings)


def _directories() -> Sequence[Entry]:
    """Where the runtimes mount something, and where site tools bind their scripts and an environment of the user's."""
    names = "dev proc root var/tmp tmp etc sys home runscripts user-software"
    own = (Entry(f"{_HOME}/{name}", replaces=True) for name in ("libs", "actions", "env"))
    return (*own, *(Entry(name) for name in names.split()))


def _entries(variables: str, run: str) -> Sequence[Entry]:
    texts = (
        (f"env/{environment.IMAGE_ENVIRONMENT}", variables),
        ("env/90-environment.sh", environment.CUSTOM),
        ("env/95-apps.sh", environment.APPS),
        ("env/99-base.sh", environment.BASE),
        ("env/99-runtimevars.sh", environment.RUNTIME_VARIABLES),
        ("runscript", run),
        ("startscript", start_scripts.START),
        *((f"actions/{name}", text) for name, text in start_scripts.ACTIONS),
    )
    return tuple(Entry(f"{_HOME}/{name}", content=text.encode(), replaces=True) for name, text in texts)


def _texts(labels: bytes, deffile: str) -> Sequence[Entry]:
    return (
        Entry(f"{_HOME}/labels.json", 0o644, labels, replaces=True),
        Entry(f"{_HOME}/Singularity", 0o644, deffile.encode(), replaces=True),
        Entry("etc/hosts", 0o644, b""),
        Entry("etc/resolv.conf", 0o644, b""),
    )


def _links() -> Sequence[Entry]:
    actions = tuple(Entry(f".{name}", 0o777, link=f"{_HOME}/actions/{name}") for name in _LINKED)
    return (
        Entry("singularity", 0o777, link=f"{_HOME}/runscript"),
        *actions,
        Entry("environment", 0o777, link=f"{_HOME}/env/90-environment.sh"),
    )


def _oci_objects(raw: bytes, manifest: bytes) -> Sequence[DataObject]:
    """What the runtimes read in their OCI mode, and the image's own documents, byte for byte."""
    section = json.loads(raw).get("config") or {}
    made = [
        DataObject("json", "oci-config.json", json.dumps(section, separators=(",", ":")).encode()),
        DataObject("json", "oci-image-config.json", raw),
    ]
    if manifest:
        made.append(DataObject("json", "oci-manifest.json", manifest))
    return made
