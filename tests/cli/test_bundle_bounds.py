"""Bundles that were not made by sifmod: each is refused, and nothing is written."""

import io
import json
import os
import resource
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.cli.main import run
from support.config import write
from support.images import Images

OWN = {"version": "1", "sha256": "0"}
HEAD = {"format": 1, "stack": "ours", "sifmod": OWN, "settings": {}, "variables": {}}


def _member(archive: tarfile.TarFile, name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(data), kind, "bundle.json"
    archive.addfile(member, io.BytesIO(data))


def _tar(path: Path, names: list[str], kind: bytes = tarfile.REGTYPE) -> None:
    with tarfile.open(path, "w") as archive:
        _member(archive, "bundle.json", json.dumps(HEAD).encode())
        for name in names:
            _member(archive, name, b"", kind)


def _huge_header(path: Path) -> None:
    """A PAX header of 6 GiB, as a sparse file."""
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = tarfile.XHDTYPE, 6 << 30
    path.write_bytes(member.tobuf(tarfile.GNU_FORMAT))
    with path.open("r+b") as file:
        file.truncate((6 << 30) + 1024)


def _many_headers(path: Path) -> None:
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = tarfile.XHDTYPE, 10
    path.write_bytes((member.tobuf() + b"10 a=bcde\n".ljust(512, b"\0")) * 5000)


def _one(name: str, kind: bytes = tarfile.REGTYPE, times: int = 1) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        _tar(path, [name] * times, kind)

    return make


def _negative(name: str, kind: bytes = tarfile.REGTYPE) -> Callable[[Path], None]:
    """A member of -512 bytes, as GNU's numbers in base 256 can say it."""

    def make(path: Path) -> None:
        _tar(path, ["stack.yaml"])
        member = tarfile.TarInfo(name)
        member.size, member.type = -512, kind
        with path.open("r+b") as file:
            file.seek(1536)  # behind two headers and the content of the first
            file.write(member.tobuf(tarfile.GNU_FORMAT))

    return make


def _negative_by_text(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        _member(archive, "bundle.json", json.dumps(HEAD).encode())
        member = tarfile.TarInfo("stack.yaml")
        member.pax_headers = {"size": "-1024"}
        archive.addfile(member)


def _many(path: Path) -> None:
    head = tarfile.TarInfo("bundle.json")
    head.size = 1
    members = (head.tobuf() + b"{".ljust(512, b"\0"), *(tarfile.TarInfo(f"robot/{n}").tobuf() for n in range(50_000)))
    path.write_bytes(b"".join(members))


def _many_values(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        _member(archive, "bundle.json", json.dumps({**HEAD, "settings": {"a": [[]] * 200_000}}).encode())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            _huge_header,
            "the header of '././@PaxHeader' has more bytes than 1048576 (`limits: {header_size: N}` in",
        ),
        (_many_headers, "its headers are nested too deeply"),
        (_many, "has more files than 50000 (`limits: {bundle_files: N}`"),
        (_many_values, "bundle.json has more values than 200000 (`limits: {lock_values: N}`"),
        (_one("stack.yaml", times=2), "it has stack.yaml twice"),
        (_one("/etc/x"), "unexpected file '/etc/x'"),
        (_one("a/../../x"), "unexpected file 'a/../../x'"),
        (_one("a\nb"), r"unexpected file 'a\nb'"),
        (_one("x", tarfile.SYMTYPE), "'x' is not a plain file"),
        (_one("x", tarfile.LNKTYPE), "'x' is not a plain file"),
        (_one("x", tarfile.CHRTYPE), "'x' is not a plain file"),
        (_one("x", tarfile.FIFOTYPE), "'x' is not a plain file"),
        (_one("x", tarfile.DIRTYPE), "'x' is not a plain file"),
        (_one("x", tarfile.GNUTYPE_SPARSE), "'x' is a sparse file"),
        (_negative("robot/x"), "it has a member of negative size"),
        (_negative(f"images/sha256/{'0' * 64}.sif"), "it has a member of negative size"),
        (_negative("././@LongLink", tarfile.GNUTYPE_LONGNAME), "it has a member of negative size"),
        (_negative("x", tarfile.XHDTYPE), "it has a member of negative size"),
        (_negative_by_text, "it has a member of negative size"),
    ],
)
def test_a_tar_file_that_is_no_bundle_is_refused(
    make: Callable[[Path], None], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "it.tar")
    prefix = tmp_path / "a prefix"
    assert run(["stack", "apply", "--bundle", str(tmp_path / "it.tar"), "--prefix", str(prefix)]) == 2
    assert said in capfd.readouterr().err
    assert not prefix.exists()


@pytest.mark.parametrize("name", ["jobs", "x.json", "..", ".", "a/b", "/x", "a\nb", "\x1b[1m", "", 7, None])
def test_a_bundle_whose_stack_has_no_such_name_is_refused(
    name: object, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, prefix = tmp_path / "a bundle", tmp_path / "a prefix"
    write(folder / "bundle.json", json.dumps({**HEAD, "stack": name}))
    write(folder / "stack.yaml", "easyconfigs: []\n")
    assert run(["stack", "apply", "--bundle", str(folder), "--prefix", str(prefix)]) == 2
    why = f"{name!r} is not a valid stack name" if isinstance(name, str) else "not a bundle that this sifmod can read"
    assert why in capfd.readouterr().err
    assert not prefix.exists()


def test_what_a_link_in_a_bundle_leads_to_is_not_taken(tmp_path: Path) -> None:
    """It may be a file that only the one who applies the bundle can read."""
    folder, prefix = tmp_path / "a bundle", tmp_path / "a prefix"
    private = write(tmp_path / "private.yaml", "of years\n")
    write(folder / "bundle.json", json.dumps(HEAD))
    write(folder / "stack.yaml", "easyconfigs: []\n")
    write(folder / "stack.lock", json.dumps({"format": 1, "modules": []}))
    write(folder / "robot/Good-1.yaml", "name: Good\n")
    (folder / "robot/Private-1.yaml").symlink_to(private)
    run(["stack", "apply", "--bundle", str(folder), "--prefix", str(prefix)])
    assert [path.name for path in (prefix / "stacks/ours/robot").iterdir()] == ["Good-1.yaml"]


def test_a_head_that_is_nested_too_deeply_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prefix = tmp_path / "a prefix"
    write(tmp_path / "bundle.json", "[" * 200_000)
    assert run(["stack", "apply", "--bundle", str(tmp_path), "--prefix", str(prefix)]) == 2
    assert "is not a bundle that this sifmod can read" in capfd.readouterr().err
    assert not prefix.exists()


@pytest.mark.parametrize("name", ["jobs", "x.json"])
def test_a_stack_is_not_called_as_what_a_tree_keeps(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / f"{name}.yaml", "easyconfigs: []\n")
    assert run(["stack", "plan", str(tmp_path / f"{name}.yaml"), "--prefix", str(tmp_path / "p")]) != 0
    assert f"a stack cannot be named {name!r}" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["image", "layer"])
def test_a_file_with_holes_that_has_no_room_is_not_read(
    kind: str, tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "Tiny-1.yaml", f"name: Tiny\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\n")
    write(tmp_path / "tiny.yaml", "easyconfigs: [Tiny-1.yaml]\n")
    for words in (["apply", "tiny.yaml", "--skip-sanity-check"], ["lock", "tiny.yaml"]):
        assert run(["stack", *words, "--prefix", "here"]) == 0
    assert run(["stack", "bundle", "tiny.yaml", "--no-wheels", "--prefix", "here", "-o", "bundle"]) == 0
    file = next((tmp_path / "bundle/images").rglob("*.sif"))
    if kind == "layer":
        file = write(tmp_path / "bundle/layers/Tiny/1/default/0/1/layer.squashfs", "")
    file.chmod(0o644)
    os.truncate(file, 1 << 42)
    capfd.readouterr()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 26, hard))  # else a failure of this test would fill the disk
    try:
        assert run(["stack", "apply", "--bundle", "bundle", "--prefix", "there"]) == 18
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "not enough space in" in capfd.readouterr().err
    assert not [path for path in (tmp_path / "there").rglob("*") if path.suffix == ".sif" or path.lstat().st_size > 1e6]


@pytest.mark.parametrize(
    "stack",
    [
        "include: ['{}']\n",
        "include: ['../{}']\n",
        "easyconfigs: ['{}']\n",
        "easyconfigs: ['{}*']\n",
        "easyconfigs: [{{easyconfig: Good-1.yaml, site: '{}'}}]\n",
        "include: [other.yaml]\n",
    ],
)
def test_a_bundle_names_no_file_outside_of_it(stack: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its reader may be allowed to read files that its author is not, and messages quote lines."""
    folder, prefix = tmp_path / "a bundle", tmp_path / "a prefix"
    private = write(tmp_path / "private.yaml", "planted of years\n")
    write(folder / "bundle.json", json.dumps(HEAD))
    write(folder / "stack.yaml", stack.format(private))
    write(folder / "other.yaml", f"include: ['{private}']\n")
    write(folder / "Good-1.yaml", "name: Good\n")
    write(folder / "stack.lock", json.dumps({"format": 1, "modules": []}))
    assert run(["stack", "apply", "--bundle", str(folder), "--prefix", str(prefix)]) == 5
    error = capfd.readouterr().err
    assert f"is not below {prefix}/stacks/ours; a bundle can only name files below the stack's directory" in error
    assert "planted" not in error


def test_a_pipe_in_the_place_of_a_bundle_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It was waited for without end."""
    os.mkfifo(tmp_path / "b.tar")
    assert run(["stack", "apply", "--bundle", str(tmp_path / "b.tar"), "--prefix", str(tmp_path / "tree")]) == 2
    assert f"{tmp_path / 'b.tar'} is not a bundle: it is not a regular file" in capfd.readouterr().err
    assert not (tmp_path / "tree").exists()
