"""Check whether a prefix matches the site's `sharing`, and whether its intended users can reach it."""

import grp
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

from sifmod.actions.changing_prefix import check_group, make_marks, marks_mode
from sifmod.actions.reporter import Reporter
from sifmod.actions.spider_cache import cache_files
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.errors import OptionError, PermissionsError
from sifmod.image.packages.request import project
from sifmod.module.quote import shell
from sifmod.result import Described, PathText
from sifmod.system import abbreviated, group_name, login_name, user_name
from sifmod.tree.durable import is_directory, names
from sifmod.tree.explain import reported
from sifmod.tree.layer import IMAGE, Layer, all_layers
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import installations
from sifmod.tree.rights import (
    ACL_GROUP,
    ACL_MASK,
    ACL_OTHER,
    ACL_OWNING_GROUP,
    ACL_USER,
    AclEntry,
    Rights,
    WrongRights,
    access_list,
    give,
    wrong_file,
    wrong_rights,
)

_OF_THE_TOOL = (".modulerc", ".modulerc.lua", ".version")  # a closed one ends each load of its name
_NAMED = 3  # paths listed in a message


class WrongMode(NamedTuple):
    """A file or directory of sifmod's that the site's `sharing` wants to have another group or mode."""

    path: PathText
    expected: str
    found: str
    owner: Annotated[str, Described("the owner, who can correct it, as root can")]
    repaired: Annotated[bool, Described("whether this run corrected it")]


def rights(site: Site) -> Rights | None:
    """The permissions for the site's `sharing`; None if it has none. Raises PermissionsError for an unknown group.

    Without a group only the owner of the prefix changes the tree, so all of it must be the owner's.
    """
    if site.sharing is None or site.umask is None:
        return None
    if site.group is None:
        return Rights(site.umask, None, site.prefix.stat().st_uid if site.prefix.is_dir() else None)
    try:
        return Rights(site.umask, grp.getgrnam(site.group).gr_gid)
    except KeyError as error:
        raise PermissionsError(
            f"there is no group {site.group} on this machine",
            "correct `group`: `sifmod config show` says where it is set",
        ) from error


def sharing_warnings(site: Site) -> Iterator[str]:
    """Violations of `sharing` by the prefix, and by the directories above it, which sifmod never changes."""
    if (wanted := rights(site)) is None:
        return
    if site.prefix.is_dir() and (wrong := wrong_file(site.prefix, site.prefix.stat(), wanted)):
        expected = _shown(wanted.mode(wrong.found.st_mode) | stat.S_IFDIR, wanted.gid)
        yield (
            f"{site.prefix} is {_shown(wrong.mode, wrong.found.st_gid, wrong.named)}, and `sharing: "
            f"{site.sharing}` needs {expected}: `sifmod verify --repair-modes` by its owner corrects it"
        )
    layout = Layout(site.prefix)
    tops = (layout.prefix, layout.modules, layout.software, layout.images.parent, layout.images, layout.staging)
    if place := next((place for place in (*tops, *layout.own) if _decides(place, wanted)), None):
        yield (
            f"{place} has a default access control list, which decides about new files whatever `sharing` says: its "
            f"owner can run `setfacl -R -k {shell(str(place))}`, then `sifmod verify --repair-modes`"
        )
    readers = f"the group {site.group}" if site.sharing == "group" else "other users"
    for directory, change in _closed(site.prefix, None if site.sharing == "site" else wanted.gid):
        yield (
            f"{readers} cannot reach {site.prefix}, because they cannot enter {directory}: its owner can run `chmod "
            f"{change} {shell(str(directory))}`"
        )


def closed(site: Site) -> Iterator[str]:
    """A warning if files in the prefix are closed to users that `sharing` lets in.

    Raises PermissionsError, and InstallError on read errors.
    """
    layout = Layout(site.prefix)
    if (wanted := rights(site)) is None or not layout.prefix.is_dir():
        return
    with reported(f"cannot read {layout.prefix}"):
        found = [other.path for other in wrong_rights(layout, wanted, cache_files(site)) if not wanted.lets_in(other)]
        found += [Path(row.path) for row in _wrong_marks(site, wanted)]
    yield from closed_files(site)
    if found:
        yield (
            f"{abbreviated([*map(str, found)], _NAMED)}: closed, for reading or for changes, to users that `sharing: "
            f"{site.sharing}` lets in: `sifmod verify --repair-modes` corrects your own files, and as root all files"
        )


def closed_files(site: Site) -> tuple[str, ...]:
    """What keeps users whom `sharing` lets in from files whose modes sifmod does not change. Raises as `closed`.

    These are references, hard links, editable projects, and files of people for the module tool beside those of sifmod.
    """
    layout, wanted = Layout(site.prefix), rights(site)
    if wanted is None or not layout.prefix.is_dir():
        return ()
    found = list[str]()
    with reported(f"cannot read {layout.prefix}"):
        used = [(one.module, Path(one.image.path)) for one in installations(layout) if one.image]
        layers = tuple(all_layers(layout.prefix / "layers"))
        found += [text for layer in layers for text in closed_projects(wanted, layer)]
        used += [(layer.module, Path(layer.root, IMAGE)) for layer in layers if layer.packed]
        for module, path in used:
            if layout.prefix not in path.parents or (os.path.isfile(path) and path.stat().st_nlink > 1):  # noqa: PTH113
                found += closed_image(wanted, path, module)
        with suppress(PermissionError):  # of `modules`, which `wrong_rights` has
            tops = (layout.modules, *(layout.modules / name for name in names(layout.modules)))
            files = (top / name for top in tops for name in _OF_THE_TOOL)
            for file in (file for file in files if os.path.isfile(file)):  # noqa: PTH113 (False if closed)
                if not wanted.lets_read(file):
                    found.append(f"users cannot load modules of {file.parent}, because {_closed_file(wanted, file)}")
    return tuple(found)


def closed_image(wanted: Rights, path: Path, module: ModuleName) -> Iterator[str]:
    """Why users whom the tree lets in cannot read an image or a layer, with the chmod for it. Raises OSError."""
    yield from _kept_out(wanted, path, f"users that may load {module} cannot reach {path}")
    if os.path.isfile(path) and not wanted.lets_read(path):  # noqa: PTH113 (False behind a closed directory)
        yield f"users that may load {module} are kept out, because {_closed_file(wanted, path)}"


def closed_projects(wanted: Rights, layer: Layer) -> Iterator[str]:
    """Why users whom the tree lets in cannot import the editable projects of a layer, with the chmod for it."""
    for path in map(project, layer.editable):
        yield from _kept_out(wanted, Path(path, "any"), f"users that may load {layer.module} cannot import {path}")


def _kept_out(wanted: Rights, path: Path, what: str) -> Iterator[str]:
    everyone = wanted.mode(0o400) & 0o004
    for directory, change in _closed(path, None if everyone else wanted.gid):
        run = f"`chmod {change} {shell(str(directory))}`"
        yield f"{what}, because they cannot enter {directory}: its owner can run {run}"


def _closed_file(wanted: Rights, path: Path) -> str:
    change = "a+r" if wanted.mode(0o400) & 0o004 else "g+r"
    return f"{path} is closed to them: its owner can run `chmod {change} {shell(str(path))}`"


def modes(site: Site, reporter: Reporter, *, repair: bool) -> tuple[WrongMode, ...]:
    """The files and directories of sifmod that violate the prefix's `sharing`; corrected with `repair` where permitted.

    Other files are left alone: users' additions, hard links to their images, directories above. Raises OptionError if
    the site has no `sharing`, InstallError or PermissionsError on read errors, and with `repair` as `check_group` does.
    """
    layout, wanted = Layout(site.prefix), rights(site)
    if wanted is None:
        raise OptionError(
            f"the site {site.name} does not set `sharing` for {site.prefix}",
            "set `sharing: group` or `sharing: site` in its file or in /etc/sifmod.d",
        )
    marks = _wrong_marks(site, wanted)
    if repair and layout.prefix.is_dir():
        check_group(site)
        make_marks(site)
        marks = tuple(row._replace(repaired=not _wrong_marks(site, wanted)) for row in marks)
    with reported(f"cannot read {layout.prefix}"):
        found = tuple(wrong_rights(layout, wanted, cache_files(site))) if layout.prefix.is_dir() else ()
    return (*marks, *(_wrong(layout, wanted, other, reporter, repair=repair) for other in found))


def _wrong_marks(site: Site, wanted: Rights) -> tuple[WrongMode, ...]:
    """The directory of marks, if its mode or group is wrong: without its own users of references cannot leave them."""
    marks, mode = Layout(site.prefix).marks, marks_mode(site)
    if not is_directory(marks):
        return ()
    found = marks.lstat()
    gid = found.st_gid if wanted.gid is None or site.sharing == "site" else wanted.gid
    if (stat.S_IMODE(found.st_mode), found.st_gid) == (mode, gid):
        return ()
    expected, shown = _shown(stat.S_IFDIR | mode, gid), _shown(found.st_mode, found.st_gid)
    return (WrongMode(str(marks), expected, shown, user_name(found.st_uid), repaired=False),)


def _wrong(layout: Layout, wanted: Rights, other: WrongRights, reporter: Reporter, *, repair: bool) -> WrongMode:
    status, repaired, owner = other.found, False, user_name(other.found.st_uid)
    of = "" if wanted.uid in (None, status.st_uid) else f", owned by {user_name(wanted.uid)}"
    if repair:
        try:
            give(layout, wanted, other)
            repaired = True
        except OSError as error:
            who = "root" if of else f"its owner {owner} or root"
            reporter.say(f"{other.path}: {error.strerror}; only {who} can correct it")
    kind = stat.S_IFMT(status.st_mode)
    gid = status.st_gid if wanted.gid is None else wanted.gid
    expected = f"{_shown(wanted.mode(status.st_mode) | kind, gid)}{of}"
    narrower = wanted.mode(status.st_mode) & ~other.mode & 0o077
    shown = _shown(other.mode if narrower else status.st_mode, status.st_gid, other.named)
    return WrongMode(str(other.path), expected, shown, owner, repaired)


def _decides(directory: Path, wanted: Rights) -> bool:
    """Whether a directory has a default access control list, used instead of a umask, with other rights than wanted."""
    entries = access_list(directory, default=True)
    may = {entry.tag: entry.bits for entry in entries}
    mask = may.get(ACL_MASK, 7)
    admitted = (may.get(ACL_OWNING_GROUP, 0) & mask) << 3 | may.get(ACL_OTHER, 0)
    named = [entry._replace(bits=entry.bits & mask) for entry in entries if entry.tag in (ACL_USER, ACL_GROUP)]
    wrong = any(entry.bits != wanted.bits(entry, directory.stat().st_mode) for entry in named)
    return bool(entries) and (wrong or admitted != 0o077 & ~wanted.umask)


def _closed(prefix: Path, gid: int | None) -> Iterator[tuple[Path, str]]:
    """Directories above the prefix, by its given and its real path, that the group (None: everyone) cannot traverse.

    Each with the chmod for it. Those with an access control list are skipped, because their mode is not decisive.
    """
    for directory in sorted({*prefix.parents, *Path(os.path.realpath(prefix)).parents}):
        try:
            status = directory.stat()
            if access_list(directory):
                continue
        except OSError:
            continue  # it does not exist yet, and will be created open
        of_group = gid is not None and status.st_gid == gid
        if not status.st_mode & (0o010 if of_group else 0o001):
            yield directory, "g+x" if of_group else "o+x"


def _shown(mode: int, gid: int | None, named: Iterable[AclEntry] = ()) -> str:
    of = "" if gid is None else f" of the group {group_name(gid)}"
    return f"{stat.filemode(mode)}{of}{''.join(f', {_entry(entry)}' for entry in named)}"


def _entry(entry: AclEntry) -> str:
    """An entry for a user or a group as setfacl(1) takes it."""
    who = f"user:{login_name(entry.who)}" if entry.tag == ACL_USER else f"group:{group_name(entry.who)}"
    return f"{who}:{stat.filemode(entry.bits << 6)[1:4]}"
