"""The packages of an image, read from its files: Python's, conda's, Debian's and RPM's."""

import json
import sqlite3
import struct
import tracemalloc
from pathlib import Path

import pytest

from sifmod.config import limits
from sifmod.config.limits import Limits
from sifmod.errors import ImageError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.inspect import package
from sifmod.image.inspect.inventory import read_inventory
from sifmod.image.inspect.package import Inventory, Package
from support.inside import Files, sif

SITE = "opt/venv/lib/python3.12/site-packages"


def inventory(tmp_path: Path, files: Files) -> Inventory:
    return read_inventory(sif(tmp_path / "image.sif", files))


def python(tmp_path: Path, files: Files) -> list[tuple[str, str, str, str]]:
    return [(one.name, one.version, one.place, one.licence) for one in inventory(tmp_path, files).packages]


def test_the_python_that_a_distribution_belongs_to(tmp_path: Path) -> None:
    files = {
        f"{SITE}/torch-2.4.0+cu124.dist-info/METADATA": "Name: torch\nVersion: 2.4.0+cu124\n\nName: no header\n",
        f"{SITE}/torch/_vendor/inner-1.0.dist-info/METADATA": "Name: inner\nVersion: 1.0\n",
        f"{SITE}/setuptools/_vendor/more-1.0.dist-info/METADATA": "Name: more\nVersion: 1.0\n",
        "usr/lib/python3/dist-packages/PyYAML-6.0.egg-info": "Name: PyYAML\nVersion: 6.0\n",
        "usr/local/lib/python3.12/dist-packages/apex-0.1-py3.12.egg-info/PKG-INFO": "Name: apex\nVersion: 0.1\n",
        "opt/target/flask-3.0.dist-info/METADATA": "Name: Flask\nVersion: 3.0\n",
        "workspace/mine/mine.egg-info/PKG-INFO": "Name: mine\nVersion: 0.dev1\n",
        f"{SITE}/old-1.2.egg/EGG-INFO/PKG-INFO": "Name: old\nVersion: 1.2\n",
        f"{SITE}/bare_one-3.1.dist-info": None,
        "root/.cache/uv/archive-v0/x/cached-1.0.dist-info/METADATA": "Name: cached\nVersion: 1.0\n",
        "opt/conda/conda-meta/history": "",
        "opt/conda/pkgs/six-1/site-packages/six-1.0.dist-info/METADATA": "Name: six\nVersion: 1.0\n",
        f"{SITE}/no_version.egg-info/PKG-INFO": "Name: none\n",
    }
    assert [one[:3] for one in python(tmp_path, files)] == [
        ("Flask", "3.0", "/opt/target"),
        ("PyYAML", "6.0", "/usr"),
        ("apex", "0.1", "/usr/local"),
        ("bare_one", "3.1", "/opt/venv"),
        ("mine", "0.dev1", "/workspace/mine"),
        ("old", "1.2", "/opt/venv"),
        ("torch", "2.4.0+cu124", "/opt/venv"),
    ]


@pytest.mark.parametrize(
    ("header", "licence"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: other", "MIT OR Apache-2.0"),
        ("License: BSD", "BSD"),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License", "MIT License"),
        ("License: Copyright\n        all of the text\nClassifier: License :: OSI Approved", "OSI Approved"),
        (f"License: {'x' * 200}", ""),
        ("License: \x1b[31mred", "\\x1b[31mred"),
        ("", ""),
    ],
)
def test_a_licence(header: str, licence: str, tmp_path: Path) -> None:
    text = f"Metadata-Version: 2.1\nName: a\nVersion: 1\n{header}\n\nText\n"
    assert python(tmp_path, {f"{SITE}/a-1.dist-info/METADATA": text}) == [("a", "1", "/opt/venv", licence)]


def test_conda_and_debian(tmp_path: Path) -> None:
    status = (
        "Package: bash\nStatus: install ok installed\nVersion: 5.2-1\nDescription: shell\n more\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n"
        "Package: libc6\nStatus: hold ok installed\nVersion: 2.36\n"
    )
    files = {
        "opt/conda/envs/a/conda-meta/numpy-base-2.0.1-py312_0.json": json.dumps(
            {"files": ["x"], "license": "BSD\u00e9"}
        ),
        "opt/conda/envs/a/conda-meta/xz-5.4-h1.json": "no json",
        "var/lib/dpkg/status": status,
        "var/lib/dpkg/status.d/tzdata": "Package: tzdata\nVersion: 2024a\n",
        "var/lib/dpkg/status.d/tzdata.md5sums": "Package: no\nVersion: 1\n",
        "etc/os-release": 'NAME=x\nID=ubuntu\nVERSION_ID="24.04"\n',
    }
    found = inventory(tmp_path, files)
    assert found == Inventory(
        (
            Package("conda", "numpy-base", "2.0.1", "/opt/conda/envs/a", "BSDé"),
            Package("conda", "xz", "5.4", "/opt/conda/envs/a"),
            Package("deb", "bash", "5.2-1", "/"),
            Package("deb", "libc6", "2.36", "/"),
            Package("deb", "tzdata", "2024a", "/"),
        ),
        "ubuntu-24.04",
    )  # fmt: skip


def test_a_conda_package_that_pip_has_replaced_is_not_there(tmp_path: Path) -> None:
    files = {
        f"{place}/conda-meta/{name}-{version}-0.json": json.dumps(
            {"files": ["bin/x", f"lib/python3.11/site-packages/{name}-{version}.dist-info/METADATA"]}
        )
        for place, name, version in (("opt/a", "numpy", "1.26.0"), ("opt/b", "numpy", "2.0.1"), ("opt/b", "six", "1.0"))
    }
    for version, place in (("2.0.1", "opt/a"), ("2.0.1", "opt/b")):
        metadata = f"{place}/lib/python3.11/site-packages/numpy-{version}.dist-info/METADATA"
        files[metadata] = f"Name: numpy\nVersion: {version}\n"
    assert [one[:4] for one in inventory(tmp_path, files).packages] == [
        ("conda", "numpy", "2.0.1", "/opt/b"),
        ("python", "numpy", "2.0.1", "/opt/a"),
        ("python", "numpy", "2.0.1", "/opt/b"),
    ]


def header(name: str, release: str = "1.el9", epoch: int | None = None) -> bytes:
    """A header as rpm keeps it in its database: counts, an index of tags, and their data."""
    index, data = b"", b""
    for tag, text in ((1000, name), (1001, "1.5"), (1002, release), (1014, "MIT")):
        index += struct.pack(">IIII", tag, 6, len(data), 1)
        data += text.encode() + b"\0"
    if epoch is not None:
        data += bytes(-len(data) % 4)
        index += struct.pack(">IIII", 1003, 4, len(data), 1)
        data += struct.pack(">I", epoch)
    data += bytes(3000)  # as a change log, so that it needs several pages
    return struct.pack(">II", len(index) // 16, len(data)) + index + data


HEADERS = (header("gpg-pubkey"), header("bash", epoch=2), header("zlib", "3"))
RPMS = (Package("rpm", "bash", "2:1.5-1.el9", "/", "MIT"), Package("rpm", "zlib", "1.5-3", "/", "MIT"))


def sqlite_database(tmp_path: Path) -> bytes:
    path = tmp_path / "rpmdb.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY AUTOINCREMENT, blob BLOB NOT NULL)")
    database.executemany("INSERT INTO Packages(blob) VALUES (?)", [(one,) for one in HEADERS])
    database.commit()
    database.close()
    return path.read_bytes()


def ndb_database() -> bytes:
    slots, blobs, at = b"", b"", 256
    for number, one in enumerate(HEADERS, 1):
        blob = struct.pack("<4sIII", b"BlbS", number, 7, len(one)) + one
        blob += bytes(-len(blob) % 16)
        slots += struct.pack("<4sIII", b"Slot", number, at, len(blob) // 16)
        at += len(blob) // 16
        blobs += blob
    slots += struct.pack("<4sIII", b"Slot", 0, 0, 0) * (254 - len(slots) // 16)
    return struct.pack("<4sIIIIIII", b"RpmP", 0, 7, 1, 4, 0, 0, 0) + slots + blobs


def hash_database(size: int = 1024) -> bytes:
    """Berkeley DB's: a first page, a page of keys and values, and pages that hold a value each in part."""

    def page(number: int, following: int, entries: int, free: int, kind: int) -> bytes:
        return struct.pack("<8xIIIHHBB", number, 0, following, entries, free, 0, kind)

    chains: list[bytes] = []
    items: list[bytes] = []
    for number, one in enumerate(HEADERS):
        pieces = [one[at : at + size - 26] for at in range(0, len(one), size - 26)]
        first = 2 + len(chains)
        items += [b"\1" + struct.pack("<I", number), struct.pack("<B3xII", 3, first, len(one))]
        for index, piece in enumerate(pieces):
            at = 2 + len(chains)
            following = at + 1 if index + 1 < len(pieces) else 0
            chains.append((page(at, following, 1, len(piece), 7) + piece).ljust(size, b"\0"))
    offsets, end = [], size
    for item in items:
        end -= len(item)
        offsets.append(end)
    keys = page(1, 0, len(items), end, 13) + struct.pack(f"<{len(items)}H", *offsets)
    keys = keys.ljust(end, b"\0") + b"".join(reversed(items))
    meta = struct.pack("<12xIIIBBBxII", 0x061561, 9, size, 0, 8, 0, 0, 1 + len(chains))
    return b"".join((meta.ljust(size, b"\0"), keys, *chains))


def test_each_form_of_rpms_database(tmp_path: Path) -> None:
    places = {
        "var/lib/rpm/rpmdb.sqlite": sqlite_database(tmp_path),
        "usr/lib/sysimage/rpm/Packages.db": ndb_database(),
        "var/lib/rpm/Packages": hash_database(),
    }
    for place, data in places.items():
        assert inventory(tmp_path, {place: data}) == Inventory(RPMS), place
        for cut in (13, 40, 600, len(data) // 2, len(data) - 3100):
            found = inventory(tmp_path, {place: data[:cut]})
            assert len(found.packages) < 2
            assert found.complete  # the rest of the image was looked at
        for changed in range(16, 700, 3):  # no crash
            spoilt = data[:changed] + b"\xff" + data[changed + 1 :]
            assert len(read_rpms(spoilt).packages) <= 2


def read_rpms(data: bytes) -> Inventory:
    from sifmod.image.inspect.rpm import add_rpms

    found = package.Found()
    add_rpms([data], len(data), found)
    return found.inventory("", "")


def test_a_database_that_is_none_or_runs_for_ever(tmp_path: Path) -> None:
    cannot = "not all rpm packages can be read: "
    assert read_rpms(b"x" * 600).notes == (f"{cannot}their database has an unknown format",)
    path = tmp_path / "view"
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS blob FROM n"
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE VIEW Packages AS {endless}")
    assert read_rpms(path.read_bytes()).notes == (f"{cannot}their database has no table of packages",)


def test_what_would_take_too_long_or_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{SITE}/a{number}-1.dist-info": None for number in range(30)}
    for own, said in (
        (Limits(image_packages=10), "packages than 10 (`limits: {image_packages: N}`"),
        (Limits(image_files=20), "files than 20 (`limits: {image_files: N}`"),
    ):
        monkeypatch.setattr(limits, "_current", own)
        found = inventory(tmp_path, files)
        assert (len(found.packages) < 30, found.complete) == (True, False)
        assert found.notes == (f"it has more {said} in the settings raises the limit): the rest is not listed",)
    monkeypatch.setattr(limits, "_current", Limits())
    with monkeypatch.context() as bound:
        bound.setattr(package, "_LONGEST", 0.0)
        assert inventory(tmp_path, files).notes == ("reading it takes more than 0 seconds: the rest is not listed",)
    assert len(inventory(tmp_path, files).packages) == 30


def test_a_long_description_takes_no_memory(tmp_path: Path) -> None:
    """A pattern that goes over it line by line would keep a place to go back to for each."""
    status = "Package: a\nVersion: 1\nDescription:\n" + " x\n" * 1_000_000 + "\nPackage: b\nVersion: 2\n"
    path = sif(tmp_path / "image.sif", {"var/lib/dpkg/status": status})
    tracemalloc.start()
    try:
        found = read_inventory(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [one.name for one in found.packages] == ["a", "b"]
    assert most < 5 * len(status)


def test_the_blanks_of_a_header_take_no_time(tmp_path: Path) -> None:
    """The pattern of a field took the square of their number: a minute for one distribution of 64 KiB."""
    header = f"Name:{' ' * 10_000}\n x\nVersion: 2\n"
    found = inventory(tmp_path, {f"{SITE}/a{number}-1.dist-info/METADATA": header for number in range(200)})
    assert found.complete
    assert {(one.name, one.version) for one in found.packages} == {(f"a{number}", "2") for number in range(200)}


def test_a_damaged_image(tmp_path: Path) -> None:
    path = sif(tmp_path / "image.sif", {f"{SITE}/a{number}-1.dist-info/METADATA": "x" * 9000 for number in range(50)})
    before = read_inventory(path)
    data = bytearray(path.read_bytes())
    start = read_sif(path).primary.offset + 96  # behind the superblock is the data of files
    data[start : start + 100] = b"\xff" * 100
    path.write_bytes(data)
    found = read_inventory(path)
    assert (len(before.packages), before.complete, found.packages, found.complete) == (50, True, (), False)
    assert found.notes[0].startswith("damaged squashfs")
    path.write_text("no SIF")
    with pytest.raises(ImageError):
        read_inventory(path)
