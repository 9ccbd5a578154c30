"""Contexts of Dockerfiles, and definitions, that were made to hurt: refused before a builder or hours of work begin."""

import os
import shutil
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.errors import FetchError
from sifmod.image.sources.dockerfile import base_images, context_files
from sifmod.image.sources.ignored import UnclearError, is_ignored, rules_of
from sifmod.module.plan import BuildPlan
from support.config import write
from support.images import Images

buildah = pytest.mark.skipif(
    not (shutil.which("buildah") or shutil.which("podman")), reason="a Dockerfile needs buildah or podman"
)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    write(tmp_path / "E.yaml", "name: App\nversion: '1'\nimage: {build: {dockerfile: con text/}}\n")
    write(tmp_path / "con text/Dockerfile", "FROM scratch\nCOPY . /\n")
    return tmp_path / "con text"


def refused(place: Path, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    prefix = place / "a prefix"
    assert run(["install", str(place / "E.yaml"), "--prefix", str(prefix)]) == 10
    assert said in capfd.readouterr().err
    assert not [path for path in prefix.rglob("*") if path.name.endswith((".sif", ".lua"))]


@buildah
def test_a_file_with_holes_in_a_context(context: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(context / "huge", "")
    os.truncate(context / "huge", 1 << 42)
    refused(context.parent, "huge has 4.4 TB, of which 0 B are allocated", capfd)


@buildah
@pytest.mark.parametrize("name", [".dockerignore", ".containerignore", "Dockerfile"])
def test_a_text_that_is_too_long(context: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    write(context / name, "# x\n" * 300_000)
    refused(context.parent, f"{name} has more bytes than 1048576 (`limits: {{build_text_size: N}}`", capfd)


@buildah
def test_too_many_lines_of_what_is_left_out(context: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(context / ".dockerignore", "x\n" * 1001)
    refused(context.parent, ".dockerignore has more lines than 1000 (`limits: {build_rules: N}`", capfd)


@buildah
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file(context: Path, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    if kind == "pipe":
        os.mkfifo(context / ".dockerignore")
    else:
        (context / ".dockerignore").symlink_to("/dev/zero")
    refused(context.parent, ".dockerignore cannot be read: it is not a regular file", capfd)


@pytest.mark.parametrize("pattern", ["*a" * 60 + "b", "**/" * 200 + "x", "**/*a*a*a*/" * 40 + "x"])
def test_a_line_that_fits_in_many_ways(pattern: str) -> None:
    """With one expression for all of a path this does not end."""
    assert not is_ignored("/".join(["a" * 200] * 20), tuple(rules_of(pattern)))


@pytest.mark.parametrize("line", ["[" * 1025, "a*" * 513])
def test_a_line_that_is_too_long_leaves_nothing_out(context: Path, line: str) -> None:
    """One of 1 MB took most of an hour."""
    write(context / ".dockerignore", f"*.log\n{line}\n")
    write(context / "x.log", "")
    assert context / "x.log" in context_files(BuildPlan(dockerfile=str(context)))
    write(context / ".dockerignore", f"*.log\n{line[:1024]}\n")
    assert context / "x.log" not in context_files(BuildPlan(dockerfile=str(context)))


@pytest.mark.parametrize(
    "text", [f"ARG A={'x' * 5000}\nFROM ${{A}}1\n", f"FROM {'${a:-' * 1000}", "COPY --from=" + "x" * 5000]
)
def test_a_name_of_an_image_that_is_too_long(context: Path, text: str) -> None:
    """A Dockerfile of 1 MiB that named 40 000 images of 500 kB took 20 GB."""
    write(context / "Dockerfile", text)
    with pytest.raises(FetchError, match="names an image with more than 4096 characters"):
        base_images(BuildPlan(dockerfile=str(context)))


@buildah
def test_too_many_images(context: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A Dockerfile of 1 MiB named 60 000, and a registry was asked for each."""
    write(context / "Dockerfile", "".join(f"FROM 127.0.0.1:9/a{number}\n" for number in range(101)))
    said = "the build starts or copies from more images than 100 (`limits: {build_images: N}`"
    refused(context.parent, said, capfd)


@pytest.mark.parametrize(
    ("text", "images"),
    [
        ("ARG TAG=3\nARG BASE=one:${TAG}\nFROM $BASE\n", ("one:3",)),
        ("ARG TAG=3 BASE=one\nFROM $BASE:$TAG\n", ("one:3",)),
        ("ARG BASE=one\nFROM two\nARG BASE\nRUN x\nFROM $BASE\n", ("two", "one")),
        ("ARG BASE=one\nFROM two\nARG BASE=three\nFROM $BASE\n", ("two", "one")),
        ("FROM ${BASE:-one}\n", ("one",)),
        ("FROM one:$TARGETARCH\n", ("one:$TARGETARCH",)),
        ("FROM one\nRUN <<EOF\nFROM two\nEOF\nFROM three\n", ("one", "three")),
        ("FROM one\nRUN a <<A <<-'B'\nFROM x \\\nA\nFROM y\n\tB\nFROM three\n", ("one", "three")),
        ("FROM one\nRUN cat <<< EOF\nRUN a <<EOF\nFROM three\n", ("one", "three")),
        ("FROM one\nRUN a \\\n# FROM two \\\n FROM two\nFROM \\\n three\n", ("one", "three")),
    ],
)
def test_the_images_of_a_dockerfile(context: Path, text: str, images: tuple[str, ...]) -> None:
    """One that is not found is not looked up, and a newer one behind its name is not noticed."""
    write(context / "Dockerfile", text)
    assert base_images(BuildPlan(dockerfile=str(context))) == tuple(f"docker://{image}" for image in images)


@pytest.mark.parametrize(
    ("text", "left_out", "kept"),
    [
        ("*.pyc", ("a.pyc",), ("a/b.pyc", "a.py")),
        ("**/*.py[co]", ("a.pyc", "a/b/c.pyo"), ("a.py", "a.pyc2")),
        ("a/**", ("a/b", "a/b/c"), ("a", "b/a")),
        ("a/**/b", ("a/b", "a/x/y/b", "a/b/c"), ("b", "a/x")),
        ("/a", ("a", "a/b"), ("b/a",)),
        ("*\n!a.txt\n", ("b.txt", "b/a.txt"), ("a.txt",)),
        ("# a\n\n", (), ("a",)),
        ("a?c*e*f", ("abcxefxf", "abcef"), ("acef", "abcfe")),
        ("[^a]x", ("bx",), ("ax",)),
        ("\\*", ("*",), ("a",)),
        ("[", ("[",), ("a",)),
    ],
)
def test_what_is_left_out(text: str, left_out: tuple[str, ...], kept: tuple[str, ...]) -> None:
    rules = tuple(rules_of(text))
    assert [path for path in (*left_out, *kept) if is_ignored(path, rules)] == list(left_out)


def test_a_line_that_builders_read_differently() -> None:
    with pytest.raises(UnclearError):
        tuple(rules_of("a**b"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("links/*/*/*/*/*/*/*/x /x", "more directories are visited than 5000 (`limits: {pattern_directories: N}`"),
        ("huge /x", "huge has 4.4 TB, of which 0 B are allocated"),
    ],
)
def test_files_of_a_definition(
    tmp_path: Path, line: str, said: str, capfd: pytest.CaptureFixture[str], images: Images
) -> None:
    for number in range(30):
        write(tmp_path / "links/a", "").with_name(f"x{number}").symlink_to(".")
    os.truncate(write(tmp_path / "huge", ""), 1 << 42)
    write(tmp_path / "x.def", f"Bootstrap: localimage\nFrom: {images.tiny_sif}\n%files\n {line}\n")
    write(tmp_path / "E.yaml", "name: App\nversion: '1'\nimage: {build: x.def}\n")
    refused(tmp_path, said, capfd)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}/. /x", "x.def names more files than 20 (`limits: {build_files: N}`"),
        ("{}/{{a,b,c,d,e,f,g}} /x", "x.def names more files than 20 (`limits: {build_files: N}`"),
        ("*/{}* /x", "more directories are visited than 20 (`limits: {pattern_directories: N}`"),
    ],
)
def test_many_lines_of_a_definition_together(
    tmp_path: Path,
    line: str,
    said: str,
    capfd: pytest.CaptureFixture[str],
    images: Images,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A definition of 10 kB that names one directory 500 times took minutes."""
    for number in range(5):
        write(tmp_path / f"{number}/{number}", "")
    lines = "\n".join(line.format(number) for number in range(5))
    write(tmp_path / "x.def", f"Bootstrap: localimage\nFrom: {images.tiny_sif}\n%files\n{lines}\n{lines}\n{lines}\n")
    write(tmp_path / "E.yaml", "name: App\nversion: '1'\nimage: {build: x.def}\n")
    write(tmp_path / "sifmod/config.yaml", "limits: {build_files: 20, pattern_directories: 20}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    refused(tmp_path, said, capfd)


LONG_LINE = "a line of the definition has more than 4096 characters"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("%files\n " + "{a,b}" * 150 + " /x\n", "a line of %files has more than 100 braces"),
        # each part of the braces has all the rest, each use all of the argument: 250 GB and 30 GB
        (f"%files\n {{{',' * 500_000}}}{'x' * 500_000} /x\n", LONG_LINE),
        (f"%arguments\n a={'x' * 300_000}\n%files\n {'{{ a }}' * 100_000} /x\n", LONG_LINE),
        (f"%arguments\n a={'x' * 4097}\n%files\n {{{{a}}}} /x\n", LONG_LINE),
        (f"Registry: {'x' * 500_000}\nFrom: y\n", LONG_LINE),
        ("%files\n a\0b /x\n", "x.def contains a NUL character"),
        ("# x\n" * 300_000, "x.def has more bytes than 1048576 (`limits: {build_text_size: N}`"),
    ],
)
def test_the_text_of_a_definition(tmp_path: Path, text: str, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "x.def", f"Bootstrap: docker\nFrom: x\n{text}")
    write(tmp_path / "E.yaml", "name: App\nversion: '1'\nimage: {build: x.def}\n")
    refused(tmp_path, said, capfd)


@pytest.mark.parametrize("name", ["Dockerfile.dockerignore", "Dockerfile.containerignore"])
def test_where_an_ignore_file_of_the_dockerfile_s_own_is_nothing_is_left_out(context: Path, name: str) -> None:
    """Which of them a builder reads depends on its version, so all files are inputs of the build."""
    write(context / "data", "x")
    write(context / ".dockerignore", "data\n")
    build = BuildPlan(dockerfile=f"{context}/")
    assert context / "data" not in context_files(build)
    write(context / name, "other\n")
    assert context / "data" in context_files(build)
