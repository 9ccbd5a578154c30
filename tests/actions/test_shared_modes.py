"""What is said of a shared prefix, by `doctor` and `verify --modes`; and a reference that another member planted."""

import json
import os
import stat
import struct
from dataclasses import replace
from grp import getgrgid, getgrnam
from pathlib import Path
from pwd import getpwnam

import pytest

from sifmod.actions.image_marks import release, renew
from sifmod.actions.sharing import closed, modes, rights, sharing_warnings
from sifmod.cli.main import run
from sifmod.config.site import Sharing, Site
from sifmod.errors import PermissionsError
from sifmod.system import user_name
from sifmod.tree.layout import Layout
from sifmod.tree.life import NameLife
from sifmod.tree.mark import LINK
from sifmod.tree.receipt import LinkRecord
from sifmod.tree.rights import ACL_GROUP, ACL_USER, access_list, give, wrong_rights
from sifmod.tree.write_life import LUA, TCL, modulercs
from support.config import Configuration, write
from support.identity import call_as
from support.tree import ALONE, MODULE, install
from support.user import OrdinaryUser


@pytest.fixture
def site(tmp_path: Path) -> Site:
    prefix = tmp_path / "above" / "tree"
    prefix.mkdir(parents=True)
    return replace(Configuration(tmp_path).site(site="generic").site, prefix=prefix, sharing="site", umask=0o022)


def of_the_prefix(site: Site) -> list[str]:
    """What is said of the prefix and of the directory above, whatever those of the machine are."""
    about = (f"{site.prefix} is", f"cannot enter {site.prefix.parent}:")
    return [text for text in sharing_warnings(site) if any(words in text for words in about)]


def test_what_keeps_sharing_from_being_true(site: Site) -> None:
    site.prefix.chmod(0o755)
    site.prefix.parent.chmod(0o711)
    assert of_the_prefix(site) == []
    assert of_the_prefix(replace(site, sharing=None, umask=None)) == []
    site.prefix.chmod(0o775)
    (wrong,) = of_the_prefix(site)
    assert "is drwxrwxr-x" in wrong
    assert "needs drwxr-xr-x: `sifmod verify --repair-modes`" in wrong
    site.prefix.chmod(0o755)
    site.prefix.parent.chmod(0o710)
    (closed,) = of_the_prefix(site)
    assert closed.endswith(f"cannot enter {site.prefix.parent}: its owner can run `chmod o+x {site.prefix.parent}`")
    behind = site.prefix.parent.parent / "link"
    behind.symlink_to(site.prefix)
    assert any(f"cannot enter {site.prefix.parent}:" in text for text in sharing_warnings(replace(site, prefix=behind)))
    with pytest.raises(PermissionsError, match="there is no group no-such-group on this machine"):
        rights(replace(site, group="no-such-group"))


def test_a_directory_above_with_an_access_control_list_is_left_out(site: Site) -> None:
    """Its mode does not tell who may pass: here a user is let in, to whom the mode is closed."""
    above = site.prefix.parent
    site.prefix.chmod(0o755)
    above.chmod(0o710)
    entries = ((0x01, 7, -1), (0x02, 1, 71_300), (0x04, 0, -1), (0x10, 1, -1), (0x20, 0, -1))
    packed = b"".join(struct.pack("<HHI", tag, may, whose & 0xFFFFFFFF) for tag, may, whose in entries)
    assert len(of_the_prefix(site)) == 1
    os.setxattr(above, "system.posix_acl_access", struct.pack("<I", 2) + packed)
    assert of_the_prefix(site) == []
    os.removexattr(above, "system.posix_acl_access")
    above.chmod(0o710)
    assert len(of_the_prefix(site)) == 1


@pytest.mark.parametrize(
    ("group", "mask", "other", "told"), [(5, 7, 5, False), (7, 5, 5, False), (5, 7, 0, True), (7, 4, 5, True)]
)
def test_a_default_list_that_closes_new_files_is_told(
    group: int, mask: int, other: int, told: bool, site: Site
) -> None:
    """It takes the place of a umask."""
    site.prefix.chmod(0o755)
    entries = ((0x01, 7), (0x04, group), (0x10, mask), (0x20, other))
    packed = b"".join(struct.pack("<HHI", tag, may, 0xFFFFFFFF) for tag, may in entries)
    assert not any("default access" in text for text in sharing_warnings(site))
    os.setxattr(site.prefix, "system.posix_acl_default", struct.pack("<I", 2) + packed)
    (site.prefix / "new").mkdir()
    assert any(f"`setfacl -R -k {site.prefix}`" in text for text in sharing_warnings(site)) == told
    assert bool(~(site.prefix / "new").stat().st_mode & 0o055) == told


@pytest.mark.parametrize("place", ["modules", "software", "images", "images/sha256", ".staging", ".locks", "life"])
def test_such_a_list_of_a_directory_below_is_told(site: Site, place: str) -> None:
    site.prefix.chmod(0o755)
    below = site.prefix / place
    below.mkdir(parents=True)
    assert not any("default access" in text for text in sharing_warnings(site))
    packed = b"".join(struct.pack("<HHI", tag, may, 0xFFFFFFFF) for tag, may in ((0x01, 7), (0x04, 5), (0x20, 0)))
    os.setxattr(below, "system.posix_acl_default", struct.pack("<I", 2) + packed)
    (told,) = [text for text in sharing_warnings(site) if "default access" in text]
    assert f"`setfacl -R -k {below}`" in told


def test_what_such_a_list_has_closed_is_told_and_repaired(site: Site) -> None:
    """The mode shows the mask of the list in the place of what the group may do."""
    closed = site.prefix / "software"
    closed.mkdir()
    for path in (site.prefix, closed):
        path.chmod(0o755)
    entries = ((0x01, 7), (0x02, 7), (0x04, 0), (0x10, 5), (0x20, 5))
    packed = b"".join(struct.pack("<HHI", tag, may, 71_300 if tag == 2 else 0xFFFFFFFF) for tag, may in entries)
    os.setxattr(closed, "system.posix_acl_access", struct.pack("<I", 2) + packed)
    assert closed.stat().st_mode & 0o777 == 0o755
    (told,) = modes(site, ALONE, repair=False)
    assert (told.path, told.expected[:10], told.found[:10]) == (str(closed), "drwxr-xr-x", "drwx---r-x")
    assert [one.repaired for one in modes(site, ALONE, repair=True)] == [True]
    assert modes(site, ALONE, repair=False) == ()
    assert struct.pack("<HHI", 2, 7, 71_300) in os.getxattr(closed, "system.posix_acl_access")


def with_entry(entry: str, mode: int) -> bytes:
    """The access control list of a file with this mode and such an entry of setfacl(1)."""
    kind, name, may = entry.split(":")
    named = getpwnam if kind == "user" else getgrnam
    who = int(name) if name.isdigit() else named(name)[2]
    bits = sum(bit for bit, letter in zip((4, 2, 1), may, strict=True) if letter != "-")
    group = mode >> 3 & 7
    extra = (2 if kind == "user" else 8, bits, who)
    rows = sorted([(1, 7, -1), extra, (4, 7, -1), (16, group, -1), (32, mode & 7, -1)])
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, may, who & 0xFFFFFFFF) for tag, may, who in rows)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can name a member of a group that it is not in")
@pytest.mark.parametrize(
    ("sharing", "entry", "wrong"),
    [
        ("site", "user:nobody:---", "user:nobody:r-x"),
        ("site", "user:71300:-wx", "user:71300:r-x"),
        ("site", "user:nobody:rwx", "user:nobody:r-x"),
        ("site", "group:nogroup:--x", "group:nogroup:r-x"),
        ("site", "user:nobody:r-x", None),
        ("site", "user:{owner}:---", None),
        ("group", "user:nobody:r-x", "user:nobody:---"),
        ("group", "group:nogroup:rwx", "group:nogroup:---"),
        ("group", "user:{member}:---", "user:{member}:rwx"),
        ("group", "user:{member}:rwx", None),
        ("group", "user:nobody:---", None),
    ],
)
def test_an_entry_of_one_user_or_group_is_told_and_repaired(
    site: Site, sharing: Sharing, entry: str, wrong: str | None
) -> None:
    """It closed files to the user, or opened private ones, and nothing said so."""
    names = {"owner": user_name(os.geteuid()), "member": "mail"}
    shared = replace(site, sharing=sharing, group="mail", umask=0o007 if sharing == "group" else 0o002)
    place = site.prefix / "software"
    place.mkdir()
    for path in (site.prefix, place):
        os.chown(path, -1, getgrnam("mail").gr_gid)
        path.chmod(0o2770 if sharing == "group" else 0o2775)
    assert modes(shared, ALONE, repair=False) == ()
    for attribute in ("system.posix_acl_access", "system.posix_acl_default"):
        os.setxattr(place, attribute, with_entry(entry.format(**names), stat.S_IMODE(place.stat().st_mode)))
    said = any("default access" in text for text in sharing_warnings(shared))
    assert said == (wrong is not None or "owner" in entry)  # new files may have another owner
    found = modes(shared, ALONE, repair=False)
    if wrong is None:
        assert found == ()
        return
    assert [one.path for one in found] == [str(place)]
    assert found[0].found == f"{found[0].expected}, {entry.format(**names)}"
    less = any(right != "-" and right not in entry.rpartition(":")[2] for right in wrong.rpartition(":")[2])
    assert bool(list(closed(shared))) == less
    assert {one.repaired for one in modes(shared, ALONE, repair=True)} == {True}
    assert modes(shared, ALONE, repair=False) == ()
    assert not [one for one in access_list(place) if one.tag in (ACL_USER, ACL_GROUP)]


def test_what_a_list_would_open_further_is_shown_as_such(site: Site) -> None:
    """The mask of its list is in the place of the group: what was expected and what was found looked the same."""
    closed = site.prefix / "software"
    closed.mkdir()
    for path in (site.prefix, closed):
        path.chmod(0o755)
    entries = ((1, 7, -1), (2, 7, 71_300), (4, 5, -1), (16, 7, -1), (32, 5, -1))
    packed = b"".join(struct.pack("<HHI", tag, may, whose & 0xFFFFFFFF) for tag, may, whose in entries)
    os.setxattr(closed, "system.posix_acl_access", struct.pack("<I", 2) + packed)
    (told,) = modes(site, ALONE, repair=False)
    assert (told.expected[:10], told.found) == ("drwxr-xr-x", "drwxrwxr-x of the group root")


@pytest.mark.parametrize(("sharing", "mode"), [("group", 0o1770), ("site", 0o1777)])
def test_a_closed_directory_of_marks_is_told_and_repaired(site: Site, sharing: Sharing, mode: int) -> None:
    """As after a change of `sharing`: readers could leave no mark, and `verify --modes` was content."""
    shared = replace(site, sharing=sharing, umask=0o007 if sharing == "group" else 0o022)
    modes(shared, ALONE, repair=True)
    assert modes(shared, ALONE, repair=False) == ()
    marks = Layout(site.prefix).marks
    marks.chmod(0o1700)
    (told,) = modes(shared, ALONE, repair=False)
    group = f" of the group {getgrgid(marks.stat().st_gid).gr_name}"
    assert (told.path, told.found, told.repaired) == (str(marks), f"drwx-----T{group}", False)
    assert told.expected == f"{stat.filemode(stat.S_IFDIR | mode)}{group}"
    assert any(str(marks) in text for text in closed(shared))
    assert [(row.path, row.repaired) for row in modes(shared, ALONE, repair=True)] == [(str(marks), True)]
    assert modes(shared, ALONE, repair=False) == ()


@pytest.mark.usefixtures("needs_root")
def test_the_directory_of_marks_gets_the_new_group_too(site: Site) -> None:
    """A member of it could leave no mark, so that a purge took the image away from it."""
    shared = replace(site, sharing="group", group="daemon", umask=0o007)
    modes(shared, ALONE, repair=True)
    marks, other = Layout(site.prefix).marks, replace(shared, group="games")
    assert marks.stat().st_gid == getgrnam("daemon").gr_gid
    assert str(marks) in [row.path for row in modes(other, ALONE, repair=False)]
    assert str(marks) in [row.path for row in modes(other, ALONE, repair=True) if row.repaired]
    assert (marks.stat().st_gid, modes(other, ALONE, repair=False)) == (getgrnam("games").gr_gid, ())


@pytest.mark.parametrize("file", [LUA, TCL])
def test_a_modulerc_of_each_syntax_is_known(site: Site, file: str) -> None:
    closed = write(site.prefix / "modules" / "App" / file, modulercs("App", NameLife("1"))[file])
    site.prefix.chmod(0o755)
    closed.chmod(0o600)
    assert (wanted := rights(site)) is not None
    assert closed in [wrong.path for wrong in wrong_rights(Layout(site.prefix), wanted)]


def test_a_packed_directory_is_opened_with_its_tree(site: Site) -> None:
    """All commands bind what `make-squashfs` has made, such as before a change from group to site."""
    layout, wanted = Layout(site.prefix), rights(site)
    install(layout, "a")
    place = layout.user_software(MODULE)
    squashfs, own = write(place / "user-software.squashfs", "packed"), write(place / "user-software/mine", "mine")
    for path in (squashfs, own):
        path.chmod(0o600)
    assert wanted
    found = {wrong.path for wrong in wrong_rights(layout, wanted)} & {squashfs, own}
    assert found == {squashfs}


def test_modes_are_told_and_repaired(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prefix = tmp_path / "tree"
    settings = write(tmp_path / "etc-sifmod.d/a.yaml", f"prefix: {prefix}\n")
    assert run(["verify", "--modes", "--json"]) == 2
    assert "does not set `sharing` for" in json.loads(capfd.readouterr().out)["error"]
    settings.write_text(f"prefix: {prefix}\nsharing: site\n")
    assert run(["verify", "--modes"]) == 0
    before = os.umask(0o077)
    try:
        install(Layout(prefix), "a")
    finally:
        os.umask(before)
    log = prefix / "modules/Tiny/1.0.lua"
    assert run(["verify", "--modes", "--json"]) == 1
    rows = json.loads(capfd.readouterr().out.partition("\n")[2])
    assert {"path": str(log), "expected": "-rw-r--r--", "found": "-rw-------", "repaired": False}.items() <= {
        key: value.partition(" ")[0] if isinstance(value, str) else value
        for key, value in next(row for row in rows if row["path"] == str(log)).items()
    }.items()
    assert run(["verify", "--repair-modes", "--json"]) == 0
    assert {row["repaired"] for row in json.loads(capfd.readouterr().out)} == {True}
    assert stat.S_IMODE(log.stat().st_mode) == 0o644
    assert run(["verify", "--modes"]) == 0
    assert capfd.readouterr().out == f"{prefix}: ok\n"
    log.chmod(0o640)
    assert run(["verify"]) == 1  # of which each byte is as it was installed
    assert "ok" in (said := capfd.readouterr()).out
    text = f"{log}: closed, for reading or for changes, to users that `sharing: site` lets in: `sifmod verify --repair"
    assert text in said.err
    assert run(["doctor", "--json"]) == 1
    assert any(row["text"].startswith(text) for row in json.loads(capfd.readouterr().out))
    assert run(["verify", "--modes", "--json"]) == 1
    assert [row["owner"] for row in json.loads(capfd.readouterr().out)] == [user_name(os.geteuid())]
    log.chmod(0o644)
    assert run(["verify"]) == 0
    capfd.readouterr()
    prefix.chmod(0o700)
    assert run(["doctor", "--json"]) == 1
    found = [row["text"] for row in json.loads(capfd.readouterr().out) if row["subject"] == "sharing"]
    assert any(text.startswith(f"{prefix} is drwx------") for text in found)
    for words in (("--modes", "Tiny"), ("--modes", "--signature"), ("--repair-modes", "--keys", "x")):
        assert run(["verify", *words]) == 2


@pytest.mark.parametrize("swapped", [False, True])
def test_what_has_taken_a_files_place_gets_no_rights(site: Site, swapped: bool) -> None:
    """Since it was looked at: a member may put another file of the same owner there."""
    layout, wanted = Layout(site.prefix), rights(site)
    install(layout, "a")
    stub = layout.modules / "Tiny/1.0.lua"
    stub.chmod(0o600)
    assert wanted
    (found,) = (other for other in wrong_rights(layout, wanted) if other.path == stub)
    if swapped:
        private = write(site.prefix.parent / "private", "a secret")
        private.chmod(0o600)
        private.replace(stub)
    give(layout, wanted, found)
    assert stat.S_IMODE(stub.stat().st_mode) == (0o600 if swapped else 0o644)


def test_a_reference_that_somebody_planted_leads_nowhere(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "own")
    installation = install(layout, "a")
    for place in ("a,b", "none", "file"):
        (tmp_path / "file").touch()
        path = str(tmp_path / place / "images/sha256" / f"{installation.required_image.sha256}.sif")
        image = installation.required_image._replace(link="reference", path=path)
        links = (LinkRecord(LINK, f"{tmp_path}/{place}/images/marks/{image.sha256}.{'0' * 16}.00000000"),)
        before = sorted(tmp_path.rglob("*"))
        renew(layout, replace(installation, image=image, links=links))
        release(layout, (image,))
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", [".modulerc", "Own/.modulerc.lua", "Own/.version"])
def test_a_closed_file_of_staff_for_the_module_tool_is_named(site: Site, name: str) -> None:
    """It ends each load of others; `verify` was content with it, or advised what changes nothing."""
    path = write(site.prefix / "modules" / name, "-- by hand\n")
    modes(site, ALONE, repair=True)
    path.chmod(0o644)
    assert list(closed(site)) == []
    path.chmod(0o600)
    modes(site, ALONE, repair=True)
    (said,) = closed(site)
    why = f"{path} is closed to them: its owner can run `chmod a+r {path}`"
    assert said == f"users cannot load modules of {path.parent}, because {why}"


@pytest.mark.parametrize("name", ["layers", "life", "stacks", "log"])
def test_a_closed_directory_is_known_to_those_it_keeps_out(
    site: Site, shared_tmp: Path, ordinary_user: OrdinaryUser, name: str
) -> None:
    """`verify --modes` of others was content with closed `layers`, without which no layer is found."""
    there = replace(site, prefix=shared_tmp / "tree")
    (there.prefix / name / "below").mkdir(parents=True)
    modes(there, ALONE, repair=True)
    (there.prefix / name).chmod(0o700)
    found = call_as(ordinary_user.user, lambda: [one.path for one in modes(there, ALONE, repair=False)])
    assert found == [str(there.prefix / name)]
