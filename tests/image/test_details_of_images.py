"""Small promises about images: each was once broken by fuzz/faults.py without a test that noticed."""

import hashlib
import json
import os
import resource
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.errors import FetchError, ImageError, SifmodError
from sifmod.image.artifact import Remote
from sifmod.image.convert.layers.fields import header_map
from sifmod.image.convert.layers.merge_layers import merge_layers
from sifmod.image.convert.layers.stream import Malformed, Replaced
from sifmod.image.convert.metadata.added_files import _date, inspect_text
from sifmod.image.convert.squashfs.metadata import ListingWriter, MetadataWriter
from sifmod.image.disk import Sink
from sifmod.image.download.arriving_file import ArrivingFile, Shared
from sifmod.image.download.downloads import _publish
from sifmod.image.oci.content import LARGEST
from sifmod.image.oci.image import files_below, read_json
from sifmod.image.program import probe_runtime
from sifmod.image.registry.credentials import auth_files
from sifmod.image.sources.build import inputs
from support.config import write
from support.downloading import Place, content, getter, serving, sha256
from support.images import Images
from support.layers import EPOCH, Entry, Memory, Stored, directory, hard_link, seen, symlink, tar
from support.ranged import Ranged, ignores_ranges


def test_where_logins_are_looked_for() -> None:
    home = auth_files({"HOME": "/h", "XDG_RUNTIME_DIR": "/r"})
    assert [str(path) for path in home] == [
        "/h/.apptainer/docker-config.json",
        "/h/.singularity/docker-config.json",
        "/h/.docker/config.json",
        "/r/containers/auth.json",
        "/h/.config/containers/auth.json",
    ]
    named = {"APPTAINER_CONFIGDIR": "/a", "SINGULARITY_CONFIGDIR": "/s", "DOCKER_CONFIG": "/d", "XDG_CONFIG_HOME": "/x"}
    assert [str(path) for path in auth_files({"HOME": "/h", **named})] == [
        "/a/docker-config.json",
        "/s/docker-config.json",
        "/d/config.json",
        f"/run/user/{os.getuid()}/containers/auth.json",
        "/x/containers/auth.json",
    ]


def test_what_inspect_shows_ends_without_line_ends() -> None:
    scripts = {"runscript": "run\n\n", "startscript": "start\n", "/.singularity.d/env/a.sh": "a\n", "/b.sh": "b\n"}
    shown = json.loads(inspect_text({"k": "v"}, "definition\n", scripts))["data"]["attributes"]
    assert shown == {
        "environment": {"/.singularity.d/env/a.sh": "a", "/b.sh": "b"},
        "labels": {"k": "v"},
        "runscript": "run",
        "deffile": "definition",
        "startscript": "start",
    }


def test_a_server_without_ranges_is_asked_once_and_nothing_stays_open(tmp_path: Path) -> None:
    data = content(7, 40_000_000)
    file = Ranged(data, faults=[ignores_ranges])
    place = Place(tmp_path / "there")
    with serving(file) as server:
        before = os.listdir("/proc/self/fd")
        assert place.fetch(Remote("x", getter(server), len(data), sha256(data), by_digest=True)).content == data
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 1  # the connection that may be used again
    assert len(file.log) == 1


def test_parents_that_no_layer_names_where_the_layers_are_entangled() -> None:
    """The same as in the quick way: mode 0755, root's, of the image's time."""
    data = Memory()
    layers = [[directory("a"), symlink("s", "a")], [Entry("s/deep/er/file", content=b"1")]]
    merged = merge_layers([Stored(tar(layer)) for layer in layers], data, epoch=EPOCH, progress=lambda _a, _b: None)
    found = seen(merged.root, data)
    implied = [entry for path, entry in found.items() if path.endswith((b"deep", b"er"))]
    assert [(entry.mode, entry.owner, entry.mtime) for entry in implied] == [(0o755, (0, 0), EPOCH)] * 2


def test_a_hidden_file_that_its_own_layer_replaces_is_no_target_of_a_link() -> None:
    lower = [Entry("a", content=b"1"), directory("a"), hard_link("b", "a")]
    upper = [Entry("a", content=b"2")]
    for layers in ([lower], [lower, upper]):
        with pytest.raises(ImageError, match="hard link"):
            merge_layers([Stored(tar(layer)) for layer in layers], Memory(), epoch=EPOCH, progress=lambda _a, _b: None)


def test_a_sparse_map_that_never_ends() -> None:
    more = bytearray(512)
    more[482] = more[504] = 1  # another block follows
    more[483:495] = b"00000000000\0"
    asked = []

    def block() -> bytes:
        asked.append(1)
        assert len(asked) < 100_000
        return bytes(more)

    with pytest.raises(Malformed, match="a sparse map is too long"):
        header_map(bytes(more), block)


def test_a_long_manifest_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_bytes(b" " * (LARGEST + 1))
    with pytest.raises(ImageError, match=f"index.json has {LARGEST + 1} bytes, too many for a manifest or config"):
        read_json(files_below(tmp_path), "index.json")
    (tmp_path / "index.json").write_bytes(b" " * LARGEST)
    assert len(read_json(files_below(tmp_path), "index.json")) == LARGEST


def test_the_index_of_a_large_directory_has_every_block() -> None:
    """As the format says: for each further metadata block the place in the listing, the block, and the first name."""
    table = MetadataWriter(lambda blocks: [bytes(len(block)) for block in blocks])
    listing = ListingWriter(table)
    for number in range(3000):
        listing.add(b"name-%05d" % number, number * 40, number + 1, 2)
    listing.finish()
    read, places = listing.index, []
    while read:
        place, block, length = struct.unpack_from("<III", read)
        places.append((place, block, read[12 : 13 + length]))
        read = read[13 + length :]
    assert len(places) == listing.count > 3
    assert places == sorted(places)
    assert all(name.startswith(b"name-") and len(name) == 10 for _, _, name in places)


def test_a_file_with_another_suffix_gives_no_name(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    path = tmp_path / "tiny-1.0.sif.old"
    path.write_bytes(images.tiny_sif.read_bytes())
    assert run(["new", "-q", "-o", "-", "--name", "Tiny", "--version", "1.0", str(path)]) == 0
    assert "filename" not in capfd.readouterr().out


def test_a_date_in_each_form() -> None:
    """Every day of a week and every month, as `date` of the C library writes them."""
    days = {_date(day * 86400) for day in range(7)}
    assert days == {
        "Thursday_1_January_1970_0:0:0_UTC",
        "Friday_2_January_1970_0:0:0_UTC",
        "Saturday_3_January_1970_0:0:0_UTC",
        "Sunday_4_January_1970_0:0:0_UTC",
        "Monday_5_January_1970_0:0:0_UTC",
        "Tuesday_6_January_1970_0:0:0_UTC",
        "Wednesday_7_January_1970_0:0:0_UTC",
    }
    for month in range(1, 13):
        when = datetime(2024, month, 29, 23, 5, 59, tzinfo=UTC)
        assert _date(int(when.timestamp())) == when.strftime("%A_%-d_%B_%Y_23:5:59_UTC")


@pytest.mark.parametrize("failing", [False, True])
def test_a_sink_is_closed_and_tells_what_could_not_be_written(tmp_path: Path, *, failing: bool) -> None:
    """Its bytes may reach the file only when it is closed: a full disk is told then, but not in an error's place."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    expected: type[Exception] = KeyError if failing else SifmodError
    sink = Sink(tmp_path / "new")
    try:
        with pytest.raises(expected), sink:
            sink.write(b"x")
            assert sink.size == 1
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
            if failing:
                raise KeyError
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(ValueError, match="closed file"):
        sink.fileno()
    with Sink(tmp_path / "other") as whole:
        whole.write(b"ab")
        whole.write(b"c")
    assert (whole.size, whole.sha256) == (3, hashlib.sha256(b"abc").hexdigest())
    assert (tmp_path / "other").read_bytes() == b"abc"


def test_what_another_user_has_begun_to_download_is_copied_and_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = content(3, 3_000_000)
    partial, incoming = tmp_path / "partial", tmp_path / "incoming"
    digest = hashlib.sha256(data).hexdigest()
    for other in (False, True):
        if other:
            monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        partial.write_bytes(data)
        partial.chmod(0o600)
        number = partial.stat().st_ino
        old = os.umask(0o027)
        try:
            _publish(partial, incoming, digest)
        finally:
            os.umask(old)
        assert (incoming.read_bytes(), incoming.stat().st_mode & 0o777) == (data, 0o640)
        assert (incoming.stat().st_ino == number) is not other
        assert not partial.exists()
        incoming.unlink()
    partial.write_bytes(data[:-1])
    with pytest.raises(FetchError, match="partial was changed while it was copied"):
        _publish(partial, incoming, digest)


def test_a_directory_of_a_definition_that_leads_into_itself(tmp_path: Path) -> None:
    """Each file is named once, by its own path, in whatever order the directory is read."""
    for number in range(12):
        write(tmp_path / f"tree/{number}/file", "")
        if number == 6:
            (tmp_path / "tree" / "loop").symlink_to(".")
    definition = write(tmp_path / "image.def", "Bootstrap: docker\nFrom: debian\n%files\n  tree /tree\n")
    paths = {definition, tmp_path / "tree", tmp_path / "tree" / "loop"}
    paths |= {tmp_path / "tree" / f"{number}" for number in range(12)}
    paths |= {tmp_path / "tree" / f"{number}" / "file" for number in range(12)}
    assert set(inputs(definition)) == paths


def test_a_runtime_is_asked_without_the_users_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\nenv > {tmp_path}/"$1"\necho apptainer version 1.4.0\n')
    program.chmod(0o755)
    for name in ("SINGULARITY_BIND", "APPTAINER_BIND", "SINGULARITYENV_X", "APPTAINERENV_X", "APPTAINER_CONFIGDIR"):
        monkeypatch.setenv(name, "/mine")
    monkeypatch.setenv("KEPT", "yes")
    assert probe_runtime(str(program)) is not None
    for word in ("--version", "buildcfg"):
        lines = (tmp_path / word).read_text().splitlines()
        seen_there = dict(line.split("=", 1) for line in lines if "=" in line)
        own = {name: value for name, value in seen_there.items() if name.startswith(("SINGULARITY", "APPTAINER"))}
        home = seen_there["HOME"]
        assert own == {"SINGULARITY_CONFIGDIR": home, "APPTAINER_CONFIGDIR": home}
        assert (seen_there["KEPT"], seen_there["PWD"]) == ("yes", home)
        assert home != os.environ["HOME"] and not Path(home).exists()


def test_a_file_that_arrives_is_read_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "arriving"
    path.write_bytes(b"--0123456789")
    shared = Shared()
    arriving = ArrivingFile(shared, "x.sif", path, 10, "", base=2)
    arriving.front = 6
    with arriving.seekable() as file:
        assert (file.readable(), file.seekable(), file.seek(2)) == (True, True, 2)
        assert (file.read(3), file.tell()) == (b"234", 5)
        assert file.read(4) == b"5"  # what is there
        assert (file.seek(-2, os.SEEK_CUR), file.read(1)) == (4, b"4")
        assert (file.seek(-1, os.SEEK_END), file.seek(0)) == (9, 0)
        for place, whence in ((-1, os.SEEK_SET), (-1, os.SEEK_CUR), (-11, os.SEEK_END)):
            with pytest.raises(ValueError, match="is before the start"):
                file.seek(place, whence)
        arriving.front = 10
        file.seek(8)
        assert (file.read(9), file.read(9)) == (b"89", b"")
        file.seek(0)
        arriving.epoch = 1
        with pytest.raises(Replaced):
            file.read(1)
    assert file.closed
    assert (arriving.is_replaced(0), arriving.is_replaced(1)) == (True, False)
    shared.stop()
    with pytest.raises(FetchError, match=r"x\.sif: the download was stopped"):
        arriving.seekable().read(1)
