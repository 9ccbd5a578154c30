"""What a SIF says about itself: in its documents, in the files of its root, and which of them counts."""

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sifmod.image.convert.sif.header import read_sif
from sifmod.image.convert.sif.write import DataObject
from sifmod.image.inspect.description import Config, ImageDescription, Part, date, pairs, variables, words
from sifmod.image.inspect.environment_scripts import DEFAULT_PATH
from sifmod.image.inspect.sif import describe_sif, read_documents
from sifmod.image.printable import block, line
from support.inside import EPOCH, Files, programs, rootfs, sif

HOME = "/.singularity.d"
Json = Mapping[str, object]


def document(name: str, content: object) -> DataObject:
    return DataObject("json", name, content if isinstance(content, bytes) else json.dumps(content).encode())


def attributes(**given: object) -> DataObject:
    """What `inspect` reads."""
    return document("inspect-metadata.json", {"data": {"attributes": given}, "type": "container"})


def described(
    tmp_path: Path, files: Files | None = None, objects: Sequence[DataObject] = (), **how: object
) -> ImageDescription:
    return describe_sif(sif(tmp_path / "x.sif", files or {}, objects, **how))  # type: ignore[arg-type]


def test_every_part_of_a_sif_is_listed(tmp_path: Path) -> None:
    objects = (
        DataObject("deffile", "", b"Bootstrap: docker\nFrom: x:1\n\0\0"),
        DataObject("labels", "named", b'{"a": "b", "n": 1}'),
        document("some.json", []),
    )
    found = described(tmp_path, {"/etc/x": "1"}, objects)
    assert (found.kind, found.arch, found.size) == ("SIF", "amd64", (tmp_path / "x.sif").stat().st_size)
    assert found.parts[:3] == (Part("definition", 30), Part("labels named", 18), Part("JSON some.json", 2))
    assert (found.parts[3].kind, len(found.parts)) == ("primary system partition, squashfs", 4)
    assert found.definition == "Bootstrap: docker\nFrom: x:1\n"
    assert found.source == "docker://x:1"
    assert found.created == "2025-01-02T03:04:05Z"
    assert found.config.labels == (("a", "b"),)
    assert (found.notes, found.signers, found.manifest) == ((), (), "")


@pytest.mark.parametrize(("given", "name"), [("zstd:1", "zstd"), ("gzip:1", "gzip"), ("lz4", "lz4"), ("lz4hc", "lz4")])
def test_how_the_root_is_compressed(tmp_path: Path, given: str, name: str) -> None:
    assert described(tmp_path, compression=given).compression == name


@pytest.mark.parametrize(
    ("number", "name"), [(1, "gzip"), (2, "lzma"), (3, "lzo"), (4, "xz"), (5, "lz4"), (6, "zstd"), (7, "unknown")]
)
def test_each_compression_has_its_name(tmp_path: Path, number: int, name: str) -> None:
    path = sif(tmp_path / "x.sif", {})
    data = path.read_bytes()
    path.write_bytes(data.replace(b"hsqs", b"hsqs", 1))
    with path.open("r+b") as file:
        file.seek(data.index(b"hsqs") + 20)
        file.write(struct.pack("<H", number))
    assert describe_sif(path).compression == name


def partition(path: Path, system: int, use: int) -> str:
    """What the second of two partitions is called."""
    sif(path, {}, (DataObject("labels", "", b"{}"),))
    with path.open("r+b") as file:
        file.seek(4096)
        row = bytearray(file.read(585))
        row[0:4] = struct.pack("<i", 0x4004)
        row[201:209] = struct.pack("<ii", system, use)
        file.seek(4096)
        file.write(row)
    return describe_sif(path).parts[0].kind


@pytest.mark.parametrize(
    ("system", "use", "name"),
    [
        (1, 1, "system partition, squashfs"),
        (2, 3, "data partition, ext3"),
        (3, 4, "overlay partition, archive"),
        (4, 5, "unknown partition, raw"),
        (5, 3, "data partition, encrypted squashfs"),
        (6, 0, "unknown partition, unknown"),
    ],
)
def test_what_a_partition_is_called(tmp_path: Path, system: int, use: int, name: str) -> None:
    assert partition(tmp_path / "x.sif", system, use) == name


OCI = {
    "architecture": "amd64",
    "os": "linux",
    "config": {
        "Env": ["PATH=/opt/bin", "A=1"],
        "Cmd": ["run"],
        "Labels": {"from": "config", "b": "1"},
        "WorkingDir": "/w",
        "User": "me",
    },
    "rootfs": {"type": "layers", "diff_ids": []},
}


def test_the_config_of_an_oci_image(tmp_path: Path) -> None:
    files = {f"{HOME}/runscript": "#!run"}
    objects = (document("oci-config.json", OCI), DataObject("labels", "", b'{"from": "labels", "a": "2"}'))
    found = described(tmp_path, files, objects)
    assert found.config == Config(
        labels=(("a", "2"), ("b", "1"), ("from", "labels")),
        environment=(("PATH", "/opt/bin"), ("A", "1")),
        cmd=("run",),
        working_dir="/w",
        user="me",
    )
    assert found.runscript == ""  # the command is what runs
    assert described(tmp_path, files, (document("c", {"Entrypoint": ["x"]}),)).runscript == ""
    assert described(tmp_path, files, (document("c", {"Env": ["A=1"]}),)).runscript == "#!run"


@pytest.mark.parametrize("content", [{"architecture": "amd64", "config": {"Cmd": ["x"]}}, {"Cmd": ["x"]}])
def test_a_config_in_other_forms(tmp_path: Path, content: Json) -> None:
    assert described(tmp_path, {}, (document("c", content),)).config.cmd == ("x",)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("Env", ["A=1"], Config(environment=(("A", "1"),))),
        ("Entrypoint", ["a"], Config(entrypoint=("a",))),
        ("Labels", {"a": "b"}, Config(labels=(("a", "b"),))),
    ],
)
def test_a_config_of_one_part(tmp_path: Path, key: str, value: object, expected: Config) -> None:
    assert described(tmp_path, {}, (document("c", {key: value}),)).config == expected


def test_a_config_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    found = described(tmp_path, {}, (document("c", {"architecture": "amd64", "config": {"Cmd": 5}}),))
    assert len(found.notes) == 1
    assert "the OCI config in the SIF" in found.notes[0]
    assert found.config == Config()


def test_the_manifest_of_an_oci_image(tmp_path: Path) -> None:
    manifest = json.dumps({"layers": [], "config": {}}).encode()
    found = described(tmp_path, {}, (document("m", manifest),))
    assert found.manifest == f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    others: tuple[Json, ...] = ({"layers": []}, {"config": {}})
    for other in others:
        assert described(tmp_path, {}, (document("m", other),)).manifest == ""


def test_what_inspect_shows(tmp_path: Path) -> None:
    scripts = {f"{HOME}/env/90-environment.sh": "export A=1\n", f"{HOME}/env/01-base.sh": "export B=1\n", "n": 5}
    one = attributes(labels={"a": "b", "n": 5}, runscript="run me\n", environment=scripts)
    found = described(tmp_path, {f"{HOME}/runscript": "not this", f"{HOME}/labels.json": '{"not": "this"}'}, (one,))
    assert found.config == Config(labels=(("a", "b"),), environment=(("A", "1"),))
    assert found.runscript == "run me\n"


@pytest.mark.parametrize(
    "content", [b"", b"no JSON", b"[]", b"5", b"[" * 100_000, b'{"data": 5}', b'{"data": {"attributes": []}}']
)
def test_documents_that_say_nothing(tmp_path: Path, content: bytes) -> None:
    objects = (document("x", content), DataObject("labels", "", content))
    found = described(tmp_path, {}, objects)
    assert (found.config, found.runscript, found.notes) == (Config(), "", ())


def test_documents_end_in_zeros(tmp_path: Path) -> None:
    assert described(tmp_path, {}, (DataObject("labels", "", b'{"a": "b"}\0\0\0'),)).config.labels == (("a", "b"),)


def test_the_first_definition_counts(tmp_path: Path) -> None:
    objects = (DataObject("deffile", "", b"first"), DataObject("deffile", "", b"second"))
    assert described(tmp_path, {f"{HOME}/Singularity": "third"}, objects).definition == "first"


def test_documents_that_are_too_long_are_not_read(tmp_path: Path) -> None:
    text = b'{"a": "b"}'
    for length, expected in ((4 << 20, (("a", "b"),)), ((4 << 20) + 1, ())):
        found = described(tmp_path, {}, (DataObject("labels", "", text.ljust(length)),))
        assert found.config.labels == expected


def test_objects_of_other_kinds_are_not_read(tmp_path: Path) -> None:
    path = sif(tmp_path / "x.sif", {}, (document("c", {"Cmd": ["x"]}),))
    assert describe_sif(path).config.cmd == ("x",)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(struct.pack("<i", 0x4007))
    assert describe_sif(path).config == Config()


def test_the_first_of_very_many_documents_are_read(tmp_path: Path) -> None:
    path = sif(tmp_path / "x.sif", {}, (DataObject("labels", "", b"{}"), DataObject("labels", "", b'{"a": "b"}')))
    content = path.read_bytes()
    empty, told, root = (content[4096 + 585 * each : 4096 + 585 * (each + 1)] for each in range(3))
    for before, expected in ((126, (("a", "b"),)), (127, ())):
        rows = (root, *[empty] * before, told)
        table = b"".join(row[:5] + struct.pack("<I", number) + row[9:] for number, row in enumerate(rows, 1))
        path.write_bytes(content + table)
        with path.open("r+b") as file:
            file.seek(88)
            file.write(struct.pack("<qq", before + 2, len(content)))
        assert describe_sif(path).config.labels == expected


def test_the_files_of_the_root_where_there_are_no_documents(tmp_path: Path) -> None:
    files = {
        f"{HOME}/Singularity": "bootstrap: oras\nfrom: host/x:1\n",
        f"{HOME}/runscript": "#!/bin/sh\n",
        f"{HOME}/labels.json": '{"a": "b", "c": 5}',
        f"{HOME}/env/01-base.sh": "export OWN=1",
        f"{HOME}/env/94-appsbase.sh": "export OWN=1",
        f"{HOME}/env/95-apps.sh": "export OWN=1",
        f"{HOME}/env/99-base.sh": "export OWN=1",
        f"{HOME}/env/99-runtimevars.sh": "export OWN=1",
        f"{HOME}/env/10-docker2singularity.sh": 'export PATH="/a"\nexport B="${B:-"1"}"',
        f"{HOME}/env/90-environment.sh": 'export PATH="/b:$PATH:${PATH}"',
        f"{HOME}/env/91-environment.txt": "export NO=1",
    }
    found = described(tmp_path, files)
    assert (found.definition, found.source) == ("bootstrap: oras\nfrom: host/x:1\n", "oras://host/x:1")
    assert found.runscript == "#!/bin/sh\n"
    path = f"/a:{DEFAULT_PATH}"
    assert found.config == Config(labels=(("a", "b"),), environment=(("PATH", f"/b:{path}:{path}"), ("B", "1")))


def test_the_script_of_oci_s_variables_counts_where_no_config_has_them(tmp_path: Path) -> None:
    files = {f"{HOME}/env/10-docker2singularity.sh": "export A=script\n", f"{HOME}/env/90-x.sh": "export B=$A\n"}
    config = document("c", {"Env": ["A=config"]})
    assert described(tmp_path, files, (config,)).config.environment == (("A", "config"), ("B", "config"))
    assert described(tmp_path, files).config.environment == (("A", "script"), ("B", "script"))


def test_scripts_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    files = {f"{HOME}/env/{name}.sh": f"export A=${{A}}{name}" for name in ("90", "10", "50")}
    scripts = {f"/anywhere/{name}.sh": f"export A=${{A}}{name}" for name in ("95", "05")}
    found = described(tmp_path, files, (attributes(environment=scripts),))
    assert found.config.environment == (("A", "105090"),)
    assert described(tmp_path, {}, (attributes(environment=scripts),)).config.environment == (("A", "0595"),)


def test_what_is_too_much_to_read_is_left_out_and_named(tmp_path: Path) -> None:
    """Of 101 scripts the last, a script of more than 256 KiB, a variable that Linux does not take."""
    files = {f"{HOME}/env/{number:03d}.sh": f"export A{number}=1" for number in range(101)}
    found = described(tmp_path, files)
    assert len(found.config.environment) == 100
    assert found.notes == ("the effect on the environment is unknown: 100.sh",)
    text = "export A=1\n"
    files = {f"{HOME}/env/90.sh": text + "#" * ((1 << 18) - len(text)), f"{HOME}/env/91.sh": "#" * ((1 << 18) + 1)}
    found = described(tmp_path, files)
    assert (found.config.environment, found.notes) == (
        (("A", "1"),),
        ("the effect on the environment is unknown: 91.sh",),
    )
    grows = "export A=xxxxxxxx\n" + "export A=$A$A\n" * 15
    assert described(tmp_path, {f"{HOME}/env/90.sh": grows}).notes == (
        "left out of the environment, because only a shell can compute them: A",
    )


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("Bootstrap: docker\nFrom: x:1", "docker://x:1"),
        ("  BOOTSTRAP :  library \n\tFROM\t:\ta/b/c:1  ", "library://a/b/c:1"),
        ("bootstrap: shub\nfrom: x", "shub://x"),
        ("bootstrap: oras\nfrom: x", "oras://x"),
        ("bootstrap: localimage\nfrom: /x.sif", "localimage:/x.sif"),
        ("bootstrap: oci\nfrom: /x", "oci:/x"),
        ("bootstrap: docker\nfrom: first\nbootstrap: oras\nfrom: second", "docker://first"),
        ("bootstrap: docker", ""),
        ("from: x", ""),
        ("# bootstrap: docker\nfrom: x", ""),
        (f"{' ' * 8192}\nbootstrap: docker\nfrom: x", ""),
        (f"bootstrap: docker\nfrom: {'x' * 2000}", f"docker://{'x' * 991}… (2009 characters)"),
        ("", ""),
    ],
)
def test_where_an_image_was_made_from(tmp_path: Path, text: str, origin: str) -> None:
    assert described(tmp_path, {}, (DataObject("deffile", "", text.encode()),)).source == origin


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (0, ""),
        (-1, ""),
        (1, "1970-01-01T00:00:01Z"),
        (EPOCH, "2025-01-02T03:04:05Z"),
        ((1 << 34) - 1, "2514-05-30T01:53:03Z"),
        (1 << 34, ""),
    ],
)
def test_a_date(seconds: int | None, shown: str) -> None:
    assert date(seconds) == shown


def test_a_thousand_words_and_pairs_are_kept() -> None:
    assert words(str(number) for number in range(1001)) == tuple(map(str, range(1000)))
    assert len(pairs((str(number), "") for number in range(1001))) == 1000
    assert pairs([("n" * 201, "a\nb\x1b")]) == (("n" * 200 + "… (201 characters)", "a\nb\\x1b"),)
    assert variables(["A=1", "B", "A=2=3"]) == (("A", "2=3"), ("B", ""))


def test_texts_as_long_as_they_may_be() -> None:
    assert line("x" * 5, 5) == "x" * 5
    assert line("x\n" * 3, 5) == r"x\nx\… (6 characters)"
    assert line("\n" * 5, 5) == r"\n" * 5
    assert block("x" * (1 << 16)) == "x" * (1 << 16)
    assert block("x" * ((1 << 16) + 1)).endswith("x… (65537 characters)")
    assert block("\x7f\x80\u202eé") == r"\x7f\x80\u202eé"


def test_files_of_an_image(tmp_path: Path) -> None:
    files = {
        **programs("/bin/b", "/bin/a"),
        "/bin/text": "text",
        "/bin/to-a": "-> a",
        "/bin/to-text": "-> text",
        "/bin/dangling": "-> nothing",
        "/bin/folder/x": "x",
        "/link": "-> bin",
    }
    with rootfs(tmp_path / "image", files) as inside:
        assert inside.entries("/link") == ("a", "b", "dangling", "folder", "text", "to-a", "to-text")
        assert inside.programs("/link") == ("a", "b", "to-a")
        for path in ("/bin/text", "/nowhere", "/bin/dangling"):
            assert (inside.entries(path), inside.programs(path)) == ((), ())
        assert [inside.is_directory(path) for path in ("/bin", "/link", "/bin/a", "/x")] == [True, True, False, False]
        assert [inside.is_file(path) for path in ("/bin/a", "/bin/to-a", "/bin", "/x")] == [True, True, False, False]
        assert [inside.is_program(f"/bin/{name}") for name in ("a", "to-a", "text", "folder", "x")] == [
            *(True, True, False, False, False),
        ]
        assert (inside.read("/bin/to-text", 2), inside.read("/bin", 2), inside.read("/x", 2)) == ("te", "", "")


def test_documents_of_a_sif_take_bounded_memory(tmp_path: Path) -> None:
    """46 documents of 3.7 MB with labels took 1.5 GB."""
    texts = [json.dumps({f"{number}": "", "x": "x" * (3 << 20)}).encode() for number in range(9)]
    path = sif(tmp_path / "x.sif", {"a": b""}, [DataObject("labels", "l", text) for text in texts])
    found = read_documents(path, read_sif(path))
    assert sorted(found.labels) == ["0", "1", "2", "3", "4", "x"]
