"""The additions to a converted image: entries of its root, and objects of its SIF."""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sifmod.image.convert.inode import Content, Directory, File, Node, Plain, Symlink
from sifmod.image.convert.metadata.start_scripts import (
    ACTIONS,
    APPS,
    BASE,
    CUSTOM,
    IMAGE_ENVIRONMENT,
    RUNTIME_VARIABLES,
    START,
    image_environment,
    runscript,
)
from sifmod.image.convert.sif.write import DataObject
from sifmod.image.oci.manifest import ImageConfig

_SCHEMA = "org.label-schema."
BUILD_DATE = f"{_SCHEMA}build-date"
_HOME = ".singularity.d"


def make_labels(
    labels: Sequence[tuple[str, str]], arch: str, created: int | None, origin: tuple[str, str]
) -> dict[str, str]:
    """The labels of the SIF, sorted: the image's own and those of Apptainer's conversion.

    They depend only on the image: no label names a tool's version, and the build date is the image's creation time,
    unless the image has that label. `origin` is bootstrap and source of the definition.
    """
    made = dict(labels)
    if created is not None:
        made.setdefault(BUILD_DATE, _date(created))
    made[f"{_SCHEMA}schema-version"] = "1.0"
    made[f"{_SCHEMA}build-arch"] = arch
    made[f"{_SCHEMA}usage.singularity.deffile.bootstrap"] = _line(origin[0])
    made[f"{_SCHEMA}usage.singularity.deffile.from"] = _line(origin[1])
    return dict(sorted(made.items()))


def inspect_text(labels: Mapping[str, str], deffile: str, scripts: Mapping[str, str]) -> bytes:
    """The JSON for the runtimes' `inspect`, which does not start the image.

    `scripts` are runscript, startscript, and those of the environment, by their full path. Trailing line ends are
    removed, as by the runtimes.
    """
    attributes = {
        "environment": {path: text.rstrip("\n") for path, text in sorted(scripts.items()) if path.startswith("/")},
        "labels": dict(labels),
        "runscript": scripts["runscript"].rstrip("\n"),
        "deffile": deffile.rstrip("\n"),
        "startscript": scripts["startscript"].rstrip("\n"),
    }
    whole = {"data": {"attributes": attributes}, "type": "container"}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def _date(created: int) -> str:
    """A time in Apptainer's format, in UTC: Thursday_2_January_2025_3:4:5_UTC."""
    return time.strftime("%A_%-d_%B_%Y_%-H:%-M:%-S_UTC", time.gmtime(created))


def _line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", "?", text)


@dataclass(frozen=True)
class Entry:
    """One entry of the root file system: a file with `content`, a symbolic `link`, or else a directory."""

    path: str  # below the root, without a leading slash
    mode: int = 0o755
    content: bytes | None = None
    link: str = ""
    replaces: bool = False  # replace existing entries; else keep them


@dataclass(frozen=True)
class Metadata:
    """Additions to an image: `entries` for insert_metadata, `objects` for write_header."""

    entries: tuple[Entry, ...]
    objects: tuple[DataObject, ...]
    warnings: tuple[str, ...]


def make_metadata(config: ImageConfig, manifest: bytes, bootstrap: str, source: str) -> Metadata:
    """All metadata of the image of `config`, whose manifest's bytes are `manifest` (empty if there is none).

    The SIF's definition has `bootstrap` and `source`, which should name the digest. With these additions the runtimes'
    run, exec, shell, test, inspect and instances behave as with their own conversion; but values that their conversion
    mangles are kept exactly. The same arguments give the same bytes. Raises ImageError for a NUL in the image's
    entrypoint or command.
    """
    variables, warnings = image_environment(config.env)
    run = runscript(config.entrypoint, config.cmd)
    deffile = f"bootstrap: {_line(bootstrap)}\nfrom: {_line(source)}\n\n"  # a builder makes the image of it again
    labels = make_labels(config.labels, config.arch, config.created, (bootstrap, source))
    shown = {
        f"/{_HOME}/env/{IMAGE_ENVIRONMENT}": variables,
        f"/{_HOME}/env/90-environment.sh": CUSTOM,
        "runscript": run,
        "startscript": START,
    }
    labels_text = json.dumps(labels, ensure_ascii=False, indent="\t").encode()
    entries = _entries(variables, run, labels_text, deffile)
    section = json.dumps(json.loads(config.raw).get("config") or {}, separators=(",", ":"))
    objects = (
        DataObject("deffile", "", deffile.encode()),
        DataObject("labels", "", labels_text),
        DataObject("json", "inspect-metadata.json", inspect_text(labels, deffile, shown)),
        # for the runtimes' OCI mode, with the image's own documents byte for byte
        DataObject("json", "oci-config.json", section.encode()),
        DataObject("json", "oci-image-config.json", config.raw),
        *((DataObject("json", "oci-manifest.json", manifest),) if manifest else ()),
    )
    return Metadata(entries, objects, warnings)


def _entries(variables: str, run: str, labels: bytes, deffile: str) -> tuple[Entry, ...]:
    # mount points of the runtimes, and for scripts and user environments of site tools
    mounts = "dev proc root var/tmp tmp etc sys home runscripts user-software"
    scripts = (
        (f"env/{IMAGE_ENVIRONMENT}", variables),
        ("env/90-environment.sh", CUSTOM),
        ("env/95-apps.sh", APPS),
        ("env/99-base.sh", BASE),
        ("env/99-runtimevars.sh", RUNTIME_VARIABLES),
        ("runscript", run),
        ("startscript", START),
        *((f"actions/{name}", text) for name, text in ACTIONS),
    )
    return (
        *(Entry(f"{_HOME}/{name}", replaces=True) for name in ("libs", "actions", "env")),
        *(Entry(name) for name in mounts.split()),
        *(Entry(f"{_HOME}/{name}", content=text.encode(), replaces=True) for name, text in scripts),
        Entry(f"{_HOME}/labels.json", 0o644, labels, replaces=True),
        Entry(f"{_HOME}/Singularity", 0o644, deffile.encode(), replaces=True),
        Entry("etc/hosts", 0o644, b""),
        Entry("etc/resolv.conf", 0o644, b""),
        Entry("singularity", 0o777, link=f"{_HOME}/runscript"),
        *(Entry(f".{name}", 0o777, link=f"{_HOME}/actions/{name}") for name in ("run", "exec", "test", "shell")),
        Entry("environment", 0o777, link=f"{_HOME}/env/90-environment.sh"),
    )


_MOST_LINKS = 40  # as Linux
_DEFINITION, _HISTORY = b"Singularity", b"bootstrap_history"


def insert_metadata(
    root: Directory, entries: Sequence[Entry], add: Callable[[bytes], Content], epoch: int
) -> tuple[str, ...]:
    """Insert `entries` into `root`; `add` stores the data of files. Returns warnings.

    Existing entries of the image stay, unless the new entry replaces them. Links are followed inside `root` only; for a
    broken link or a file in the way, an entry without `replaces` gives a warning. New entries are root's, with time
    `epoch`; attributes of existing directories do not change. A definition of an earlier build goes to
    `bootstrap_history`, as with Apptainer.
    """
    return tuple(
        f"/{entry.path} was not created: a file or broken link of the image is in the way"
        for entry in entries
        if not _put(root, entry, add, epoch)
    )


def _put(root: Directory, entry: Entry, add: Callable[[bytes], Content], epoch: int) -> bool:
    *parents, name = entry.path.encode().split(b"/")
    if entry.content is None and not entry.link:
        return directory_at(root, (*parents, name), entry.replaces, epoch) is not None
    directory = directory_at(root, parents, entry.replaces, epoch)
    if directory is None:
        return False
    if name in directory.entries and not entry.replaces:
        return True
    kept = name == _DEFINITION and name in directory.entries
    if kept and (history := directory_at(directory, (_HISTORY,), True, epoch)):
        history.entries[b"Apptainer%d" % len(history.entries)] = directory.entries.pop(_DEFINITION)
    attributes = (entry.mode, 0, 0, epoch, ())
    made = Symlink(*attributes, entry.link.encode()) if entry.content is None else File(*attributes, add(entry.content))
    directory.entries[name] = made
    return True


def directory_at(root: Directory, parts: Sequence[bytes], replaces: bool, epoch: int) -> Directory | None:
    """The directory of this path, created if missing; None if another entry is in the way and not `replaces`."""
    trail = [root]
    for name in parts:
        node = trail[-1].entries.get(name)
        way = way_to(trail, node) if isinstance(node, Symlink) else None
        if way is not None:
            trail = way
            continue
        if not isinstance(node, Directory):
            if node is not None and not replaces:
                return None
            node = Directory(0o755, 0, 0, epoch, ())
            trail[-1].entries[name] = node
        trail.append(node)
    return trail[-1]


def way_to(trail: list[Directory], link: Symlink) -> list[Directory] | None:
    """The directories from the root to that which `link`, an entry of the last in `trail`, leads to; None for none."""
    here, names, links = list(trail), list[bytes](), 0
    node: Node | Plain | None = link
    while True:
        if isinstance(node, Symlink):
            links += 1
            if links > _MOST_LINKS:
                return None
            names.extend(reversed(node.target.split(b"/")))
            del here[1 if node.target.startswith(b"/") else len(here) :]
        elif isinstance(node, Directory):
            here.append(node)
        else:
            return None
        while names and names[-1] in (b"", b".", b".."):
            if names.pop() == b"..":
                del here[max(1, len(here) - 1) :]
        if not names:
            return here
        node = here[-1].entries.get(names.pop())
