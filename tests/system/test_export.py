"""`sifmod export`: each form has the SIF's files, other tools read it, and the disk has all of it or nothing."""

import hashlib
import json
import os
import shlex
import signal
import struct
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.image.convert.sif.header import DESCRIPTOR, read_sif
from sifmod.image.convert.sif.write import DataObject
from sifmod.system import size_text
from support.command import SIFMOD, run
from support.conversion import content
from support.disk_state import disk_state, is_there
from support.extending import base_of, contents, rich_tree, sif_of, taken_out
from support.identity import call_as, call_on_small_disk
from support.images import Images
from support.oci import Entry, layer, write_layout
from support.runtime import RUNTIME
from support.squashfs_trees import mksquashfs, snapshot, unpacked
from support.user import OrdinaryUser

Export = Callable[..., dict[str, object]]
CONFIG = {
    "architecture": "amd64",
    "os": "linux",
    "config": {
        "Env": ["PATH=/usr/bin:/bin", 'SAID=it\'s "so" $HOME', "LINES=a\nb"],
        "Entrypoint": ["/bin/echo", "it's", "a b"],
        "Cmd": ["$x"],
        "WorkingDir": "/work dir/sub",
        "Volumes": {"/data": {}, "/a/b": {}},
        "Labels": {"a.b": "two\nlines", "b\nexit": "\ud800"},
    },
    "rootfs": {"type": "layers", "diff_ids": []},
}
# what `enroot import` of enroot 4.1.2 wrote for an image with such a config, but for its line `# enroot-provenance:`,
# and that the name of a label may have several lines there
RC = """\
# a.b two lines
# b exit �

mkdir -p "/work dir/sub" 2> /dev/null
cd "/work dir/sub" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec '/bin/echo' 'it'\\''s' 'a b' "$@"
else
    exec '/bin/echo' 'it'\\''s' 'a b' '$x'
fi
"""
FSTAB = """\
${ENROOT_ROOTFS}/a/b /a/b none x-create=dir,bind,rw,nosuid,nodev
${ENROOT_ROOTFS}/data /data none x-create=dir,bind,rw,nosuid,nodev
"""


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Export:
    """What `export --json` prints, or the error; the image is as it was, and nothing but the result is new."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))

    def export(image: Path | str, form: str, target: Path, *options: str, code: int = 0) -> dict[str, object]:
        before = disk_state(target.parent)
        capfd.readouterr()
        assert sifmod(["export", "--json", str(image), "--to", form, "-o", str(target), *options]) == code
        after = disk_state(target.parent)
        if code == 0:
            before, after = (
                {path: fact for path, fact in state.items() if not path.startswith(str(target))}
                for state in (before, after)
            )
        assert after == before
        answer: dict[str, object] = json.loads(capfd.readouterr().out)
        return answer

    return export


@pytest.fixture(scope="module")
def rich(needs_root: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    """A SIF with everything that a squashfs can hold."""
    top = tmp_path_factory.mktemp("rich")
    tree = rich_tree(top / "tree")
    (tree / "dev").mkdir()
    (tree / "dev" / "null").touch()
    (tree / "closed").mkdir()
    (tree / "closed" / "secret").write_text("s")
    (tree / "closed" / "of two names").write_text("s")
    (tree / "closed" / "another").hardlink_to(tree / "closed" / "of two names")
    for name, mode in (("closed/secret", 0o010), ("closed/another", 0o001), ("closed", 0o000)):
        (tree / name).chmod(mode)
    for name in ("actions", "build"):
        (tree / ".singularity.d" / name).mkdir(parents=True)
        (tree / ".singularity.d" / name / "file").write_text(name)
    (tree / ".exec").symlink_to(".singularity.d/actions/exec")
    (tree / "etc").mkdir()
    (tree / "etc" / "rc").write_text("before")
    squashfs = mksquashfs(tree, top / "rich.squashfs", "-comp", "gzip")
    return sif_of(squashfs, top / "rich.sif", (DataObject("json", "oci-config.json", json.dumps(CONFIG).encode()),))


def test_what_was_written_is_told_and_how_it_is_used(
    images: Images, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "it's.sqsh"
    assert sifmod(["export", str(images.tiny_sif), "--to", "sqsh", "-o", str(target)]) == 0
    out, err = capfd.readouterr()
    assert out == f"{target}\n"
    said = f"sqsh of {images.tiny_sif}, {size_text(target.stat().st_size)}; use it with "
    assert err.splitlines()[-1] == f"== written: {said}srun --container-image={shlex.quote(str(target))} COMMAND"
    assert sifmod(["export", str(images.tiny_sif), "--to", "sandbox", "-o", str(tmp_path / "box")]) == 0
    assert capfd.readouterr().err.splitlines()[-1].endswith(f"use it with apptainer exec {tmp_path}/box COMMAND")


@pytest.mark.parametrize("form", ["sif", "oci-archive", "docker-archive"])
def test_what_is_read_back_has_the_same_files(form: str, rich: Path, tmp_path: Path, export: Export) -> None:
    target, again, back = (tmp_path / name for name in ("image", "again", "back.sif"))
    assert export(rich, form, target)["size"] == target.stat().st_size
    export(rich, form, again)
    assert again.read_bytes() == target.read_bytes()
    if form == "sif":
        assert target.read_bytes() == rich.read_bytes()
        return
    assert sifmod(["fetch", "-q", f"{form}:{target}", "-o", str(back)]) == 0
    gone = (".singularity.d", "socket")  # the tools' own, and what no tar holds
    ours, theirs = (
        {path: item for path, item in content(sif).items() if path.split("/")[0] not in gone} for sif in (back, rich)
    )
    made = {"etc/hosts", "etc/resolv.conf"} | {"dev", "proc", "sys", "tmp", "home", "root", "var", "var/tmp"}
    assert {path: item for path, item in ours.items() if path not in made} == {
        path: item for path, item in theirs.items() if path not in made
    }


@pytest.mark.parametrize("form", ["oci-archive", "docker-archive"])
def test_other_tools_read_the_archives(
    form: str, images: Images, shared_tmp: Path, export: Export, ordinary_user: OrdinaryUser
) -> None:
    target = shared_tmp / "image.tar"
    export(images.tiny("exported", labels={"who": "me"}, env=("NEW=yes",)), form, target)
    told = json.loads(run(("skopeo", "inspect", "--config", f"{form}:{target}")).ok().stdout)
    assert "NEW=yes" in told["config"]["Env"]
    assert told["config"]["Labels"] == {"who": "me"}
    copied = ordinary_user.home / "layout"
    ordinary_user.run(("skopeo", "--insecure-policy", "copy", "-q", f"{form}:{target}", f"oci:{copied}:1")).ok()
    built = ordinary_user.home / "built.sif"
    ordinary_user.run((RUNTIME.path, "build", built, f"{form}:{target}")).ok()
    said = ordinary_user.run((RUNTIME.path, "exec", built, "sh", "-c", "cat /etc/variant; echo $NEW")).ok().stdout
    assert said == "exported\nyes\n"


@pytest.mark.parametrize("variant", ["", "v2"])
def test_the_index_of_an_archive_says_for_which_machine_it_is(variant: str, tmp_path: Path, export: Export) -> None:
    """Else a runtime takes an image for another variant of the architecture."""
    layout = write_layout(tmp_path / "layout", [layer([Entry("x", b"x")])], variant=variant)
    assert sifmod(["fetch", "-q", f"oci:{layout}", "-o", str(tmp_path / "image.sif")]) == 0
    (tmp_path / "to").mkdir()
    export(tmp_path / "image.sif", "oci-archive", tmp_path / "to" / "image.tar")
    with tarfile.open(tmp_path / "to" / "image.tar") as archive:
        files = {name: file.read() for name in archive.getnames() if (file := archive.extractfile(name))}
    (listed,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(files[f"blobs/{listed['digest'].replace(':', '/')}"])
    config = json.loads(files[f"blobs/{manifest['config']['digest'].replace(':', '/')}"])
    said = {"variant": variant} if variant else {}
    assert listed["platform"] == {"architecture": "amd64", "os": "linux", **said}
    assert config.get("variant", "") == variant


def test_the_squashfs_is_what_enroot_imports(rich: Path, tmp_path: Path, export: Export) -> None:
    told = export(rich, "sqsh", tmp_path / "image.sqsh")
    assert told["notes"] == ["variables or volumes left out, because enroot's files cannot express them: LINES"]
    found, before = snapshot(unpacked(tmp_path / "image.sqsh", tmp_path / "found")), contents(rich, tmp_path / "before")
    etc = tmp_path / "found" / "etc"
    assert (etc / "rc").read_text() == RC
    assert (etc / "fstab").read_text() == FSTAB
    assert (etc / "environment").read_text() == 'PATH=/usr/bin:/bin\nSAID=it\'s "so" $HOME\n'
    assert (etc / "rc.local").read_text().startswith("# This file is sourced by /etc/rc")
    made = {f"/etc/{name}".encode() for name in ("rc", "rc.local", "fstab", "environment")}
    assert {path for path in found if path not in before} - made == {b"/work dir", b"/work dir/sub"}
    tools = {b"/.exec", b"/.singularity.d/actions", b"/.singularity.d/actions/file"}
    assert {path for path in before if path not in found} == tools | {b"/dev/null"}
    for path in (found.keys() & before.keys()) - made:
        mode = int(str(before[path][0]), 8)
        kind, executable = mode & 0o170000, mode & 0o111
        mode |= {0o040000: 0o700, 0o100000: 0o500 if executable else 0o400}.get(kind, 0)
        skipped = (b"/.singularity.d",)  # which has a directory less
        expected = (oct(mode), 0, 0, *before[path][3:])
        assert found[path] == expected or path in skipped, path


def test_the_squashfs_has_the_blocks_of_the_sif(rich: Path, tmp_path: Path, export: Export) -> None:
    export(rich, "sqsh", tmp_path / "image.sqsh")
    before, after = taken_out(rich, tmp_path / "before").read_bytes(), (tmp_path / "image.sqsh").read_bytes()
    (inodes,) = struct.unpack_from("<Q", before, 64)
    assert inodes > 1 << 20
    assert after[96:inodes] == before[96:inodes]


def test_a_runscript_is_the_entrypoint(tmp_path: Path, export: Export) -> None:
    """Of an image that a definition file made, which has no config: a shell runs /etc/rc, whichever it is."""
    top = tmp_path / "tree"
    (top / ".singularity.d").mkdir(parents=True)
    (top / ".singularity.d" / "runscript").write_text('#!/bin/sh\necho "it\'s $1"\n')
    export(base_of(top, tmp_path / "image.sif"), "sqsh", tmp_path / "image.sqsh")
    rc = unpacked(tmp_path / "image.sqsh", tmp_path / "found") / "etc" / "rc"
    for shell in ("bash", "dash"):
        assert run((shell, rc, "so")).ok().stdout == "it's so\n"


def test_the_directory_has_all_files(rich: Path, tmp_path: Path, export: Export) -> None:
    """By root, or by who runs the tests in a namespace of his own."""
    told = export(rich, "sandbox", tmp_path / "here")
    assert (told["notes"], told["size"]) == ([], None)
    expected = contents(rich, tmp_path / "by-unsquashfs")
    assert snapshot(tmp_path / "here") == expected
    assert (tmp_path / "here" / "mixed").stat().st_blocks * 512 < 1 << 20


def test_the_directory_of_an_ordinary_user(
    rich: Path, ordinary_user: OrdinaryUser, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As unsquashfs makes it for him; what he cannot have is told."""
    home = ordinary_user.home
    sif = home / "rich.sif"
    sif.write_bytes(rich.read_bytes())
    squashfs = taken_out(rich, home / "squashfs")
    ordinary_user.own(home)

    def exported() -> int:
        os.environ |= {"HOME": str(home), "SIFMOD_PREFIX": str(home / "prefix"), "SIFMOD_CONFIG_DIR": "/no/such"}
        return sifmod(["export", "--json", str(sif), "--to", "sandbox", "-o", str(home / "ours")])

    # what root has imported, he need not be able to read
    assert sifmod(["export", "-q", str(sif), "--to", "sandbox", "-o", str(tmp_path / "by-root")]) == 0
    capfd.readouterr()
    assert call_as(ordinary_user.user, exported) == 0
    why = "left out, because this user or file system does not support them"
    assert json.loads(capfd.readouterr().out)["notes"] == [
        f"{why}: attributes trusted.* (1, such as /usr)",
        f"{why}: device nodes (2, such as /block)",
    ]
    ordinary_user.run(("unsquashfs", "-q", "-n", "-user-xattrs", "-d", home / "theirs", squashfs))
    for directory in (home / "ours", home / "theirs"):
        run(("chmod", "u+rwx", directory / "closed")).ok()
    ours, theirs = (snapshot(home / name) for name in ("ours", "theirs"))
    assert len(ours) > 300
    assert ours == theirs


def test_the_runtime_starts_the_directory(images: Images, shared_tmp: Path, export: Export) -> None:
    export(images.tiny_sif, "sandbox", shared_tmp / "box")
    env = {**os.environ, **RUNTIME.userns}
    assert run((RUNTIME.path, "exec", shared_tmp / "box", "cat", "/etc/variant"), env=env).ok().stdout == "tiny\n"


def test_a_module_by_its_name(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.chdir(tmp_path)
    easyconfig = tmp_path / "Tiny-1.0.yaml"
    text = "name: Tiny\nversion: '1.0'\ndescription: x\nhomepage: https://example.org\naccelerator: none\nimage:\n"
    easyconfig.write_text(f"{text}  filename: tool.sif\n  sources: ['{images.tiny_sif}']\n")
    assert sifmod(["install", "-q", "--skip-sanity-check", str(easyconfig)]) == 0
    capfd.readouterr()
    assert sifmod(["export", "Tiny/1.0", "--to", "sif"]) == 0
    assert capfd.readouterr().out == f"{tmp_path}/Tiny-1.0.sif\n"
    assert (tmp_path / "Tiny-1.0.sif").read_bytes() == images.tiny_sif.read_bytes()
    sha256 = hashlib.sha256(images.tiny_sif.read_bytes()).hexdigest()
    assert sifmod(["export", sha256, "--to", "sqsh"]) == 0
    assert (tmp_path / f"{sha256[:12]}.sqsh").read_bytes()[:4] == b"hsqs"


@pytest.mark.parametrize("form", ["sif", "sqsh", "oci-archive", "docker-archive", "sandbox"])
def test_what_is_there_is_replaced_by_force_alone(form: str, images: Images, tmp_path: Path, export: Export) -> None:
    target = tmp_path / "there"
    target.write_text("the user's")
    assert "exists already; nothing was written" in str(export(images.tiny_sif, form, target, code=10)["error"])
    if form != "sandbox":
        export(images.tiny_sif, form, target, "--force")
        assert target.stat().st_size > 100_000
    else:
        assert "exists already" in str(export(images.tiny_sif, form, target, "--force", code=10)["error"])
    directory = tmp_path / "directory"
    directory.mkdir()
    (directory / "mine").write_text("the user's")
    export(images.tiny_sif, form, directory, "--force", code=10)


@pytest.mark.parametrize("form", ["sif", "sqsh", "oci-archive", "docker-archive", "sandbox"])
def test_a_full_disk(form: str, images: Images, tmp_path: Path) -> None:
    sif, disk = images.tiny_sif, tmp_path / "disk"

    def on_full_disk() -> tuple[int, list[str]]:
        os.environ["SIFMOD_PREFIX"] = str(tmp_path / "prefix")
        code = sifmod(["export", "-q", str(sif), "--to", form, "-o", str(disk / "x")])
        return code, sorted(os.listdir(disk))

    assert call_on_small_disk(disk, 700_000, on_full_disk) == (18, [])


def test_images_that_cannot_be_read(images: Images, tmp_path: Path, export: Export) -> None:
    """A file system that is no squashfs can be copied; a damaged one is refused."""
    raw = bytearray(images.tiny_sif.read_bytes())
    row = raw.index(read_sif(images.tiny_sif).primary.raw)
    struct.pack_into("<i", raw, row + DESCRIPTOR.size - 384, 2)
    ext3, cut = tmp_path / "ext3.sif", tmp_path / "cut.sif"
    ext3.write_bytes(raw)
    cut.write_bytes(images.tiny_sif.read_bytes()[:-200_000])
    (tmp_path / "to").mkdir()
    for form in ("sqsh", "oci-archive", "sandbox"):
        assert "are not in a squashfs" in str(export(ext3, form, tmp_path / "to" / "x", code=10)["error"])
        assert "is truncated" in str(export(cut, form, tmp_path / "to" / "x", code=10)["error"])
    export(cut, "sif", tmp_path / "to" / "x", code=10)
    export(ext3, "sif", tmp_path / "to" / "copy.sif")


@pytest.mark.parametrize("form", ["sqsh", "oci-archive", "sandbox"])
def test_a_run_that_is_killed_leaves_no_result(form: str, rich: Path, tmp_path: Path) -> None:
    """Once it has begun to write; the next run removes what lies beside."""
    target = tmp_path / "to" / "image"
    target.parent.mkdir()
    words = list(map(str, (*SIFMOD, "export", "-q", rich, "--to", form, "-o", target)))
    env = {**os.environ, "SIFMOD_PREFIX": str(tmp_path / "prefix")}
    killed = 0
    for _ in range(3):
        with subprocess.Popen(words, env=env) as started:
            while started.poll() is None and not is_there(target.parent, ".image.fetching/.staging/*/*.incoming"):
                time.sleep(0.001)
            started.kill()
        if started.returncode == -signal.SIGKILL and not target.exists():
            killed += 1
        else:  # it was faster
            subprocess.run(("rm", "-rf", target), check=True)
    assert killed
    assert run(words, env=env).code == 0
    assert os.listdir(target.parent) == ["image"]


def test_an_export_is_as_open_as_its_user_wants(images: Images, tmp_path: Path) -> None:
    """It was as open as the prefix: members of a group, or all, could write to what a user keeps elsewhere."""
    (tmp_path / "prefix").mkdir()
    (tmp_path / "prefix").chmod(0o770)
    words = ["--to", "oci-archive", "--prefix", str(tmp_path / "prefix")]
    before = os.umask(0o077)
    try:
        assert sifmod(["export", "-q", str(images.tiny_sif), *words, "-o", str(tmp_path / "x.tar")]) == 0
    finally:
        os.umask(before)
    assert (tmp_path / "x.tar").stat().st_mode & 0o777 == 0o600
