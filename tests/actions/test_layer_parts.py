"""What a layer keeps, asks and packs: the parts that need no container."""

import hashlib
import json
import os
import py_compile
import resource
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from plans import plan
from sifmod.actions.layer.add import protected
from sifmod.actions.layer.bytecode import Bytecode
from sifmod.actions.layer.inside import Inside
from sifmod.actions.layer.make import start_file
from sifmod.actions.layer.places import layers_for, layouts
from sifmod.config import limits
from sifmod.config.limits import Limits, use_limits
from sifmod.config.site import PROTECTED
from sifmod.errors import FetchError, ImageError, InstallError, OptionError
from sifmod.image.child import Ended, run_child
from sifmod.image.convert.packed import Read, pack
from sifmod.image.packages.added import format_added
from sifmod.image.packages.direct_requirement import static_name
from sifmod.image.packages.foreign_toml import TooManyValuesError, read_toml
from sifmod.image.packages.image_python import Distribution, ImagePython, image_python
from sifmod.image.packages.package_lock import (
    as_before,
    block_of,
    one_digest_each,
    pinned,
    versions_of,
    without_queries,
)
from sifmod.image.packages.request import PackageRequest, name_of, read_lock
from sifmod.image.packages.requirements import parse_requests
from sifmod.image.packages.resolve import Resolved, followed, resolve
from sifmod.image.packages.torch_index import torch_index
from sifmod.image.packages.uv import bytecode_cache, uv_here
from sifmod.module.render import render
from sifmod.module.scripts import PROTECTED as PROTECTED_FILE
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live
from support.command import run
from support.config import write
from support.identity import call_as
from support.tree import MODULE, install
from support.user import OrdinaryUser
from support.web import Handler, Web
from support.wheels import wheel

QUOTED = "\"a\".'b'."
HELD = json.dumps(
    [
        "/opt/bin/python",
        "/opt",
        [3, 11, 2],
        "cpython-311 a70d0d0a 0",
        [
            [
                "torch",
                "2.14.0a0+4fdf77b940",
                False,
                ["fsspec<2026", "sympy; extra == 'all'"],
                [],
                "/t",
                ["torch", "gen"],
            ],
            ["Built_On.Torch", "1.0", False, ["torch"], [], "", ["built", "shared"]],
            ["plain", "1.0", True, ["torch"], [], "", ["plain"]],
            ["far", "1", False, ["built-on-torch"], [], "", ["far", "shared"]],
            ["fsspec", "2025.03.0", True, [], ["http"], "", ["fsspec"]],
            ["certifi", "2024.07.04", True, [], [], "", []],
            ["../evil", "1.0", True, [], [], "", []],
            ["odd", "no version", True, [], [], "", []],
            ["odd", "9" * 5000, True, [], [], "", []],
        ],
    ]
)
LOCK = """lock-version = "1.0"
created-by = "uv"

[[packages]]
name = "certifi"
version = "2024.7.4"

[[packages]]
name = "new"
version = "1.0"
wheels = [{ url = "https://x/new.whl", hashes = { sha256 = "aa" } }]
sdist = { url = "https://x/new.tar.gz", hashes = { sha256 = "bb" } }
"""


PYTHON = image_python(HELD, PROTECTED)


def test_a_lock_keeps_the_query_of_a_typed_url_only() -> None:
    file, other = {"url": "https://x/n.whl?sig=a&b#c", "hashes": {"sha256": "aa"}}, {"url": "https://x/n.whl#token=a"}
    written = block_of({"name": "n", "index": "https://x/?token=a", "wheels": [file, other, file], "sdist": file})
    bare = written.replace("?sig=a&b#c", "").replace("?token=a", "").replace("#token=a", "")
    assert without_queries(written) == bare
    typed = block_of({"name": "n", "archive": file})
    assert without_queries(typed) == typed


def test_what_is_built_around_torch_stays() -> None:
    python = image_python(HELD, PROTECTED)
    assert (python.short, python.prefix) == ("3.11", "/opt")
    assert sorted(python.protected) == ["built-on-torch", "far", "torch"]
    assert sorted(image_python(HELD, ("pl*", "far")).protected) == ["far", "plain"]
    assert python.first and python.first.place == "/t"
    assert sorted(python.kept_modules) == ["built", "far", "gen", "torch"]
    assert "odd" not in python.distributions
    assert not any("evil" in name for name in python.distributions)


def test_what_the_image_asks_of_what_is_added() -> None:
    python = image_python(HELD, PROTECTED)
    assert python.broken_by({"fsspec": "2026.1"}) == ("torch 2.14.0a0+4fdf77b940 of the image needs fsspec<2026",)
    assert python.broken_by({"fsspec": "2025.9", "sympy": "1"}) == ()


@pytest.mark.parametrize("need", ["fsspec<{}", "fsspec<2026; python_version < '{}'"])
def test_what_the_image_asks_by_a_number_of_5000_digits(need: str) -> None:
    """Python converts no such number; that ended in a traceback."""
    python = image_python(HELD.replace("fsspec<2026", need.format("9" * 5000)), PROTECTED)
    assert python.broken_by({"fsspec": "1"}) == ()


def test_files_of_another_index_are_left_out_of_the_same_version() -> None:
    def lock(version: str, *digests: str) -> str:
        wheels = ", ".join(f'{{ url = "https://x/{one}.whl", hashes = {{ sha256 = "{one}" }} }}' for one in digests)
        package = f'[[packages]]\nname = "a"\nversion = "{version}"\nwheels = [{wheels}]\n'
        return f'lock-version = "1.0"\n\n{package}\n[tool.sifmod]\nrequirements = [\n    "a",\n]\n'

    both = lock("1", "aa", "bb")
    assert versions_of(held := as_before(both, lock("1", "aa"), ())) == {"a": "1"}
    assert ('"aa"' in held, '"bb"' in held, held.endswith('    "a",\n]\n')) == (True, False, True)
    for earlier, named in (("", ()), (lock("2", "aa"), ()), (both, ()), (lock("1", "cc"), ("a",))):
        assert as_before(both, earlier, named) == both
    with pytest.raises(OptionError, match="a 1 has other files than when it was added"):
        as_before(both, lock("1", "cc"), ())


@pytest.mark.parametrize(
    ("marker", "holds"),
    [("python_version < '3.8'", True), ("python_version > '3.8'", False), ("os_name ~= 'x'", False)],
)
def test_the_markers_of_an_image_are_about_its_own_python(marker: str, holds: bool) -> None:
    text = HELD.replace("fsspec<2026", f"fsspec<2026; {marker}").replace("[3, 11, 2]", "[3, 7, 2]")
    assert bool(image_python(text, PROTECTED).broken_by({"fsspec": "2026.1"})) == holds


@pytest.mark.parametrize(
    "text", ["", "[]", '["a", "b", [3], "", []]', '["a", "b", [3, 11, 2], "", [["x", "1"]]]', "[" * 100_000]
)
def test_what_an_image_says_amiss(text: str) -> None:
    with pytest.raises(ImageError, match="cannot list its packages"):
        image_python(text, PROTECTED)


_STRANGE = "not in the image, and may not be built for the image's torch "


@pytest.mark.parametrize(
    ("added", "warning"),
    [
        ({"new": "1"}, ""),
        (
            {"torchvision": "0.2", "new": "1"},
            f"torchvision 0.2 is {_STRANGE}",
        ),
        (
            {"nvidia-nccl-cu12": "2", "torchaudio": "1", "torchvision": "3"},
            f"nvidia-nccl-cu12 2 and 2 more of its kind are {_STRANGE}",
        ),
    ],
)
def test_one_warning_for_packages_of_a_kind(added: dict[str, str], warning: str) -> None:
    said = [line for line in format_added(image_python(HELD, PROTECTED), Resolved("", added, ())) if "warning" in line]
    assert (len(said), "".join(said)[9 : 9 + len(warning)]) == (bool(warning), warning)


def test_a_lock_without_what_the_image_holds() -> None:
    python = image_python(HELD, PROTECTED)
    resolved = followed(python, LOCK)
    assert dict(resolved.added) == {"new": "1.0"}
    assert resolved.requirements == ("certifi==2024.7.4", "new==1.0")
    assert versions_of(resolved.lock) == {"new": "1.0"}
    assert followed(python, resolved.lock).lock == resolved.lock
    assert pinned(resolved.lock) == "new==1.0 --hash=sha256:aa --hash=sha256:bb\n"
    with pytest.raises(OptionError, match=r"the lock has torch 2.5; the image has torch 2.14.0a0\+4fdf77b940, which"):
        followed(python, LOCK.replace('"certifi"', '"torch"').replace("2024.7.4", "2.5"))
    for without in (
        LOCK.replace(', hashes = { sha256 = "bb" }', ""),
        LOCK.replace('hashes = { sha256 = "aa" }', "hashes = {}"),
        LOCK.replace('hashes = { sha256 = "aa" }', 'hashes = { md5 = "aa" }'),
        LOCK.partition("wheels")[0],
    ):
        with pytest.raises(
            OptionError,
            match=r"the lock has no file of new, or one without SHA-256, -384 or -512, so it could be",
        ):
            followed(python, without)
    both = LOCK.replace('hashes = { sha256 = "aa" }', 'hashes = { md5 = "cc", sha512 = "dd", sha256 = "aa" }')
    assert [pinned(one) for one in one_digest_each(followed(python, both).fetched)] == [
        "new==1.0 --hash=sha256:aa --hash=sha256:bb\n",
        "new==1.0 --hash=sha256:bb --hash=sha512:dd\n",
    ]
    for asked in (">=3.11.2", "~=3.11.9", "<4"):  # the release of a base's Python is unknown
        assert followed(python, f'requires-python = "{asked}"\n{LOCK}').added
    with pytest.raises(OptionError, match=r"the lock is for Python >=3.12; the image has 3.11"):
        followed(python, f'requires-python = ">=3.12"\n{LOCK}')
    with pytest.raises(OptionError, match=r"not a PEP 751 lock: requires-python"):
        followed(python, f"requires-python = 5\n{LOCK}")
    for marker in ("sys_platform == 'win32'", "python_version < '3.10'", "'x' in extras"):
        other = LOCK.replace('name = "new"', f'name = "new"\nmarker = "{marker}"')
        assert followed(python, f'{other}\n[tool.sifmod]\nrequirements = [\n    "new",\n]\n').added == {}
    assert followed(python, LOCK.replace('name = "new"', 'name = "new"\nmarker = "os_name == \'posix\'"')).added
    with pytest.raises(OptionError, match=r"not a PEP 751 lock: marker"):
        followed(python, LOCK.replace('name = "new"', 'name = "new"\nmarker = "nothing"'))
    archive = LOCK.replace("sdist", "archive").replace('version = "1.0"\n', "")
    assert pinned(archive.partition("[[packages]]")[2].partition("\n\n")[2]) == (
        "new @ https://x/new.tar.gz --hash=sha256:aa --hash=sha256:bb\n"
    )
    inline = 'packages = [{name = "new", version = "1.0"}]'
    first = f"\n[tool.sifmod]\nrequirements = []\n\n{LOCK.partition('[[')[1]}{LOCK.partition('[[')[2]}"
    for text, reason in (
        (inline, "one after the other"),
        (first, "one after the other"),
        (f"{LOCK}\n[tool]\nsifmod = 1\n", "one after the other"),
        ("", "has no packages"),
        ("packages = []", "no packages"),
    ):
        with pytest.raises(OptionError, match=reason):
            followed(python, text)
    for text in (
        "no toml",
        "packages = 1",
        "packages = [1]",
        "[packages]\nx = 1",
        '[[packages]]\nname = "a"\nversion = "1"\nwheels = 5',
        '[[packages]]\nname = "a"\nversion = "?"',
        '[[packages]]\nversion = "1"',
    ):
        for read in (versions_of, lambda text: followed(python, text)):
            with pytest.raises(OptionError, match="not a PEP 751"):
                read(text)


def test_files_of_requirements(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("c @ https://host/c.whl#sha256=0a # why\n")
    file = tmp_path / "requirements.txt"
    file.write_text("# these\nA==1 ; python_version > '3'\n\nb[x] \\\n  >=2\t# why\n-r more.txt\n")
    found = parse_requests(files=(file,)).requirements
    assert found == ("A==1 ; python_version > '3'", "b[x]   >=2", "c @ https://host/c.whl#sha256=0a")
    assert [name_of(text) for text in found] == ["a", "b", "c"]
    file.write_text("a\n--index-url nowhere\n")
    with pytest.raises(OptionError, match=r"requirements.txt:2: --index-url: nowhere is not a URL"):
        parse_requests(files=(file,))
    file.write_text("a==1 --hash=md5:aa\n")
    with pytest.raises(OptionError, match=r"requirements.txt:1: md5:aa is not supported: use SHA-256"):
        parse_requests(files=(file,))
    file.write_text(f"-r {file}\n")
    with pytest.raises(OptionError, match="include each other"):
        parse_requests(files=(file,))
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(OptionError, match=r"there is no file|cannot be read"):
            parse_requests(files=(path,))
    for odd, why in (("-r a\0b", "cannot be read: embedded null byte"), ("~nobody-of-that-name/a", "there is no file")):
        file.write_text(odd)
        with pytest.raises(OptionError, match=why):
            parse_requests(files=(file,))


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    images = []
    for number, umask in enumerate((0o022, 0o077)):
        top = tmp_path / str(number)
        (top / "a" / "b").mkdir(parents=True)
        for name, text in (("a/b/x", b"x" * 300_000), ("a/y", b""), ("z", b"z")):
            (top / name).write_bytes(text)
            (top / name).chmod(0o666 & ~umask)
            os.utime(top / name, (number, number))
        (top / "a" / "link").symlink_to("y")
        (top / "z").chmod(0o700)
        target = tmp_path / f"{number}.squashfs"
        assert pack(top, target, "gzip", 1 + number) == (3, target.stat().st_size)
        images.append(target.read_bytes())
    assert images[0] == images[1]
    os.mkfifo(tmp_path / "1" / "fifo")
    with pytest.raises(ImageError, match="neither a file nor a directory nor a link"):
        pack(tmp_path / "1", tmp_path / "none", "gzip", 1)


class Behind:
    """Files that follow those of a directory; `seen`: what the directory has."""

    def __init__(self, content: Mapping[str, bytes]) -> None:
        self.content = content
        self.seen: dict[str, bytes] = {}

    def reader(self, path: str) -> Read | None:
        def read(piece: bytes) -> None:
            self.seen[path] = self.seen.get(path, b"") + piece

        return None if path.endswith("unseen") else read

    def files(self) -> Iterator[tuple[str, bytes]]:
        yield from self.content.items()


def test_files_behind_those_of_a_directory(tmp_path: Path) -> None:
    """Are packed with them, may replace one, and none is in the place of a file."""
    top, large = tmp_path / "top", b"0" * 3_000_000
    for name, content in (("a/b/old", b"0"), ("a/unseen", b"1"), ("y", large), ("z", b"2")):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
    (top / "link").symlink_to("y")
    more = Behind({"a/b/new": b"1", "a/c/d/e": b"2", "z": b"3"})
    assert pack(top, tmp_path / "1", "gzip", 1, more) == (6, (tmp_path / "1").stat().st_size)
    assert more.seen == {"a/b/old": b"0", "y": large, "z": b"2"}
    run(("unsquashfs", "-q", "-d", tmp_path / "out", tmp_path / "1")).ok()
    found = {str(path.relative_to(tmp_path / "out")): path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == {
        "a/b/old": b"0", "a/unseen": b"1", "y": large, "link": large, **more.content,
    }  # fmt: skip
    pack(top, tmp_path / "2", "gzip", 3, Behind(more.content))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    with pytest.raises(ImageError, match="z/in is inside a file"):
        pack(top, tmp_path / "3", "gzip", 1, Behind({"z/in": b""}))


def test_a_layer_is_used_over_the_image_that_has_its_torch(tmp_path: Path) -> None:
    """And not over that of another module, whose Python is in the same place."""
    held = Distribution("torch", "1", False, (), (), str(tmp_path / "torch-1.dist-info"), ("torch",))
    python = ImagePython(sys.executable, sys.prefix, sys.version_info[:3], "", {"torch": held}, PROTECTED)
    for name, text in (("start/sitecustomize.py", start_file(python, jupyter=False)), ("lib/added.py", "")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)

    def found() -> bool:
        code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('added') is None)"
        environment = {"PYTHONPATH": str(tmp_path / "start")}
        return subprocess.run((sys.executable, "-c", code), env=environment, check=False).returncode == 0

    assert not found()
    Path(held.place).mkdir()
    assert found()


def test_what_a_killed_run_has_left_in_uvs_cache_goes_a_day_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    top = tmp_path / "uv" / "sifmod-linked"
    for name, age in (("old", 90_000), ("young", 80_000)):
        (top / name / "lib").mkdir(parents=True)
        os.utime(top / name, (time.time() - age,) * 2)
    with ExitStack() as held:
        made = Inside(tmp_path, tmp_path).linked(held)
        assert {path.name for path in top.iterdir()} == {"young", made.name}
    assert {path.name for path in top.iterdir()} == {"young"}


def test_an_easyconfig_says_what_stays(tmp_path: Path) -> None:
    for said, expected in ((None, None), ((), ()), (("numpy", "nvidia-*"), ("numpy", "nvidia-*"))):
        made = render(plan(protected=said), 1)
        for file in made:
            if file.path == PROTECTED_FILE:
                (tmp_path / "share").mkdir(exist_ok=True)
                (tmp_path / PROTECTED_FILE).write_text(file.text)
        assert protected(tmp_path) == expected


class Here(Inside):
    """This Python in place of a container's, which sees the directory at its own path."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "wrapper", directory)
        self.target = str(directory)
        self.compiled = 0
        (directory / "work").mkdir(parents=True)
        (directory / "work" / "bytecode").symlink_to(bytecode_cache())

    def python(self, *words: str, limit: float | None = None) -> Ended:  # noqa: ARG002
        self.compiled += 1
        return run_child((sys.executable, *words), cwd=self.directory, env=os.environ)

    def bytecode(self) -> dict[str, bytes]:
        """Of the modules in `lib`, and the same again from the other way to write a layer."""
        bytecode = Bytecode(self, PYTHON, 2)
        for path in self.directory.joinpath("lib").rglob("*.py"):
            if read := bytecode.reader(str(path.relative_to(self.directory))):
                read(path.read_bytes())
        return dict(bytecode.files())


@pytest.mark.parametrize("answer", ["ln -s /etc/passwd", "truncate -s 1T", "printf '\\377' >"])
def test_an_image_whose_python_answers_without_end(answer: str, tmp_path: Path) -> None:
    """It writes its list of packages itself, in a directory of the host."""

    class Lying(Here):
        def python(self, *words: str, limit: float | None = None) -> Ended:  # noqa: ARG002
            return run_child(("/bin/sh", "-c", f'{answer} "$0"', words[-1]), cwd=self.directory, env=os.environ)

    with pytest.raises(ImageError, match="the Python of the image does not list its packages"):
        Lying(tmp_path / "layer").look(())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "a shared cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a home"))
    return Here(tmp_path / "layer")


def test_bytecode_that_was_compiled_before_is_taken(here: Here, tmp_path: Path) -> None:
    """Of the names whose files are the same; what is damaged is compiled again, and what does not compile is left."""
    lib, odd = here.directory / "lib", os.fsdecode(b"\xff\xc3\xbc")
    for name, text in (("one/a.py", "A = 1"), ("one/in/b.py", "B = 2"), ("two.py", "C = 3"), ("wrong.py", "def")):
        write(lib / name, text)
    write(lib / odd / "d.py", "D = 4")
    tag = sys.implementation.cache_tag
    first = here.bytecode()
    named = ("one/__pycache__/a", "one/in/__pycache__/b", "__pycache__/two", f"{odd}/__pycache__/d")
    assert sorted(first) == sorted(f"lib/{name}.{tag}.pyc" for name in named)
    assert (here.compiled, list(lib.rglob("*.pyc"))) == (1, [])
    two = f"lib/__pycache__/two.{tag}.pyc"
    py_compile.compile(str(lib / "two.py"), str(tmp_path / "c"), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    assert (tmp_path / "c").read_bytes() == first[two]
    kept = sorted(bytecode_cache().iterdir())
    assert len(kept) == 4
    assert (here.bytecode(), here.compiled) == (first, 1)
    for path, number in zip(kept, (-1, 10, 70, -5), strict=True):
        whole = bytearray(path.read_bytes())
        whole[number] ^= 1
        path.write_bytes(bytes(whole))
        assert here.bytecode() == first
    assert here.compiled == 5
    for path, size in zip(kept, (0, 64, 80, 120), strict=True):
        path.write_bytes(path.read_bytes()[:size])
    assert here.bytecode() == first
    write(lib / "two.py", "C = 4")
    changed = here.bytecode()
    assert {name for name, content in changed.items() if content != first[name]} == {two}
    (lib / "one" / "a.py").rename(lib / "one" / "z.py")
    assert f"lib/one/__pycache__/z.{tag}.pyc" in here.bytecode()
    assert len(list(bytecode_cache().iterdir())) == 6


def test_a_huge_module_is_not_compiled(here: Here) -> None:
    """Compiling takes many times its size in memory."""
    write(here.directory / "lib" / "small.py", "A = 1")
    write(here.directory / "lib" / "large.py", f"A = 1\n#{' ' * (32 << 20)}")
    assert list(here.bytecode()) == [f"lib/__pycache__/small.{sys.implementation.cache_tag}.pyc"]


def test_bytecode_that_is_far_larger_than_its_module_is_left_out(here: Here) -> None:
    """Each level of `finally` copies what is in it; some levels more take all memory."""
    lines = ["def f(x):"]
    for level in range(1, 12):
        indent = " " * level
        lines += [f"{indent}try:", f"{indent} if x: return x", f"{indent}finally:"]
    write(here.directory / "lib" / "nested.py", "\n".join((*lines, " " * 12 + "g(1, 2, 3, 4)", "")))
    write(here.directory / "lib" / "small.py", "A = 1")
    assert list(here.bytecode()) == [f"lib/__pycache__/small.{sys.implementation.cache_tag}.pyc"]


def test_bytecode_is_cached_for_each_kind_of_python(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here.directory / "lib" / "one.py", "A = 1")
    for number, kind in enumerate(("cpython-311 a70d0d0a 0", "cpython-311 a70d0d0a 1", "cpython-312 a70d0d0a 0"), 1):
        monkeypatch.setattr(sys.modules[__name__], "PYTHON", replace(PYTHON, bytecode=kind))
        here.bytecode()
        assert here.compiled == number


def test_nobody_elses_bytecode_gets_into_a_layer(here: Here, tmp_path: Path) -> None:
    """Who shares UV_CACHE_DIR could put any file of the host, and any code, into it."""
    write(here.directory / "lib" / "one.py", "A = 1")
    (name,) = here.bytecode()
    assert name.startswith("lib/__pycache__/one.")
    assert not (tmp_path / "a shared cache").exists()
    own = bytecode_cache()
    (entry,) = own.iterdir()
    assert own.stat().st_mode & 0o777 == 0o700
    for wrong in (
        "../../escaped.pyc",
        "../__pycache__/escaped.pyc",
        "./__pycache__/x.pyc",
        "/etc/escaped.pyc",
        "__pycache__/x.py",
        "one.pyc",
    ):
        said = json.dumps([[wrong, 1]]).encode() + b"\nx"
        entry.write_bytes(hashlib.sha256(said).hexdigest().encode() + b"\n" + said)
        with pytest.raises(InstallError, match="is not the bytecode of a layer"):
            here.bytecode()
    for mode in (0o777, 0o770, 0o702):
        own.chmod(mode)
        with pytest.raises(InstallError, match="other users can write"):
            bytecode_cache()
    own.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(own, 65534, -1)
        with pytest.raises(InstallError, match="belongs to nobody"):
            bytecode_cache()


def test_what_is_no_file_of_requirements_is_not_waited_for_or_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name in ("pipe", "zeros"):
        for read in (lambda path: parse_requests(files=(path,)), read_lock):
            with pytest.raises(OptionError, match="cannot be read: it is not a regular file"):
                read(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"x = {'9' * 5000}\n", "Exceeds the limit"),
        (f"{'a.' * 50_000}b = 1\n", "nested too deep"),
        (f"x = {{{'a . ' * 50_000}b = 1}}\n", "nested too deep"),
        (f"{QUOTED * 50_000}b = 1\n", "nested too deep"),
        (f"x = {'[' * 50_000}\n", "nested too deep"),
    ],
    ids=["number", "keys", "inline", "quoted", "lists"],
)
def test_a_lock_that_takes_the_memory(text: str, why: str, tmp_path: Path) -> None:
    """A dotted key of 40 kB took 1.6 GB."""
    limit = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), limit[1]))
    try:
        with pytest.raises(OptionError, match=f"pylock.toml is not a PEP 751 lock: {why}"):
            read_lock(write(tmp_path / "pylock.toml", f'lock-version = "1.0"\n{text}'))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


@pytest.mark.parametrize("text", ["[a{}.b.c]\n", "a{}.b=1\n", "a{}=[{{}},[]]\n", "a{} = [0.0, 1.0]\n"])
def test_a_lock_of_many_values_is_not_read(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 MB of `a.b=1` took over 3 GB and 150 seconds."""
    monkeypatch.setattr(limits, "_current", Limits(lock_values=1000))
    (tmp_path / "pylock.toml").write_text("".join(text.format(number) for number in range(3000)))
    with pytest.raises(OptionError, match="has more values than 1000"):
        read_lock(tmp_path / "pylock.toml")


@pytest.mark.parametrize(
    "text",
    [
        'a = "\\"[[[[{{{{,,,,"\n',
        "a = '[[[[{{{{,,,,\\'\n",
        'a = """\n""[[[[{{{{,,,,\\""""""\n',
        "a = '''\n''[[[[{{{{,,,,\\'''''\n",
        "# '[[[[{{{{,,,,\na = 1\n",
    ],
)
def test_signs_in_texts_and_comments_are_no_values(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_current", Limits(lock_values=1))
    assert len(read_toml(f"{text}b = 2\nc = 3\nd = 4")) == 4
    with pytest.raises(TooManyValuesError):
        read_toml(f"{text}b = 2\nc = 3\nd = 4\ne = 5")


FILE = '{ url = "https://x/a.whl", hashes = { sha256 = "aa" } }'
WHOLE = f'[[packages]]\nname = "b"\nversion = "1"\nwheels = [{FILE}]\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'requires-python = ">={"9" * 5000}"\n[[packages]]\nname = "a"\nversion = "1"\n', "requires-python: Exceeds"),
        (f'[[packages]]\nname = "a"\nversion = "{"9" * 5000}"\n', "lock: Exceeds the limit"),
        (f'[[packages]]\nname = "a"\nversion = "1"\nmarker = "{"(" * 9000}"\n', "lock: marker: "),
        (
            f'[[packages]]\nname = "a"\nversion = "1"\nmarker = "python_version > \'{"9" * 5000}\'"\n',
            "lock: marker: Exceeds",
        ),
        (
            '[[packages]]\nname = "a"\nversion = "1"\nx = """\n[[packages]]\n"""\n',
            r"has \[\[packages\]\] within a text",
        ),
        (f"{WHOLE}[[packages]]\narchive = {FILE}\n", "lock: 'name'"),
        (f'{WHOLE}[[packages]]\nvcs = {{ type = "git", commit-id = "a" }}\n', "lock: 'name'"),
        (f'{WHOLE}[[packages]]\nname = "a"\nwheels = [{FILE}]\n', "lock: 'version'"),
        (f"tool = {{}}\n{WHOLE}", "lock: Cannot declare"),
    ],
    ids=["python", "version", "nested", "marker", "text", "no name", "no name of a commit", "no version", "tool"],
)
def test_a_lock_that_uv_would_not_write(text: str, why: str) -> None:
    """Each ended in a traceback."""
    with pytest.raises(OptionError, match=why) as caught:
        followed(ImagePython("/python", "/", (3, 11, 2), "cpython-311", {}, PROTECTED), text)
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", f"a = {'[' * 9000}"),
        ("pyproject.toml", f"{'a.' * 90_000}b = 1\n[project]\nname = 'x'\n"),
        ("pyproject.toml", None),
        ("setup.cfg", None),
        ("setup.cfg", f"[metadata]\nname = x\n{'# x' * 500_000}"),
    ],
)
def test_a_project_whose_files_are_no_settings(name: str, text: str | None, tmp_path: Path) -> None:
    """A repository whose setup.cfg is a link to /dev/zero took all memory; the others ended in a traceback."""
    if text is None:
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        (tmp_path / name).write_text(text)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), limit[1]))
    try:
        assert static_name(tmp_path) == ""
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


def test_a_long_requirement_is_not_repeated() -> None:
    with pytest.raises(OptionError, match=r"'a [( ]{198}'… is not a requirement") as caught:
        name_of("a " + "( " * 30_000)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("place", ["git+file://{}", "file://{}"])
def test_a_dependency_that_is_not_from_an_index_is_no_gap(place: str, tmp_path: Path) -> None:
    """The result said that it was added, and the layer did not have it."""
    project = tmp_path / "helper"
    write(project / "pyproject.toml", "[project]\nname = 'helper'\nversion = '2.5'\n")
    for step in ("init -q", "add .", "-c user.name=a -c user.email=a@b.c commit -qm a"):
        run(("git", "-C", project, *step.split())).ok()
    needs = wheel(tmp_path, "needs", requires=(f"helper @ {place.format(project)}",))
    words = ("--python", sys.executable, "--no-index")
    python = ImagePython(sys.executable, sys.prefix, sys.version_info[:3], "", {}, PROTECTED)

    def asked(*requirements: str, editable: tuple[str, ...] = ()) -> Resolved:
        wanted = PackageRequest(requirements, editable=editable, words=words)
        return resolve(python, wanted, "", uv_here(Path(tempfile.mkdtemp(dir=tmp_path))))

    with pytest.raises(OptionError, match="helper is required from a"):
        asked(f"needs @ file://{needs}")
    if place.startswith("file"):  # named too
        assert asked(f"needs @ file://{needs}", f"helper @ file://{project}").added == {"helper": "", "needs": "1.0"}
    assert asked(editable=(str(project),)).added == {}
    source = "dependencies = ['helper']\n[tool.uv.sources]\nhelper = {path = '../helper', editable = true}\n"
    above = write(tmp_path / "above" / "pyproject.toml", f"[project]\nname = 'above'\nversion = '1'\n{source}").parent
    with pytest.raises(OptionError, match="helper is required from a directory by another package"):
        asked(editable=(str(above),))
    assert asked(editable=(str(above), str(project))).added == {}


def test_a_package_names_no_file_here(tmp_path: Path) -> None:
    """A stranger's wheel named a closed file of the user by its path, and the layer showed it to all."""
    private = wheel(tmp_path, "private")
    needs = wheel(tmp_path, "needs", requires=(f"private @ file://{private}",))
    python = ImagePython(sys.executable, sys.prefix, sys.version_info[:3], "", {}, PROTECTED)

    def asked(*requirements: str) -> Resolved:
        wanted = PackageRequest(requirements, words=("--python", sys.executable, "--no-index"))
        return resolve(python, wanted, "", uv_here(Path(tempfile.mkdtemp(dir=tmp_path))))

    with pytest.raises(OptionError, match="private is required from a file here by another package"):
        asked(f"needs @ file://{needs}")
    both = asked(f"needs @ file://{needs}", f"private @ file://{private}")
    assert both.added == {"needs": "1.0", "private": "1.0"}


def test_a_text_of_a_lock_that_is_too_long(tmp_path: Path) -> None:
    """`requires-python` of 60 MB has 15 million bounds."""
    lock = write(tmp_path / "pylock.toml", f'requires-python = "{">=3," * 20_000}>=3"\n')
    with pytest.raises(OptionError, match=r">=3,… has more characters than 65536 .*requirement_size"):
        read_lock(lock)


def test_the_index_with_the_most_of_torchs_local_version_is_taken() -> None:
    """In whichever order the site names them; and none for a torch without a local version."""
    for names in permutations(("cu", "cu12", "cu128", "rocm6", "cpu")):
        indexes = [(key, f"https://{key}.test/") for key in names]
        for version, taken in (
            *(("2.9+cu128", "cu128"), ("2.9+cu126", "cu12"), ("2.9+cu118", "cu"), ("2.9+rocm6.2", "rocm6")),
            *(("2.9+cpu", "cpu"), ("2.9+rocm5.7", ""), ("2.9", "")),
        ):
            torch = Distribution("torch", version, False, (), (), "/torch-1.dist-info", ("torch",))
            python = ImagePython("/python", "/", (3, 11, 2), "cpython-311", {"torch": torch}, PROTECTED)
            assert torch_index(python, indexes).url == (f"https://{taken}.test/" if taken else "")


def test_the_owner_of_a_sites_tree_adds_to_the_prefix_that_is_named(tmp_path: Path) -> None:
    """Another one was, by SIFMOD_PREFIX or settings, and the packages were in the tree, at once for everybody."""
    tree, own = tmp_path / "tree", tmp_path / "own"
    install(Layout(tree), "a")
    module = live(Layout(tree), MODULE)
    assert module
    for named, prefix, place in (
        (str(own), own, own),
        (str(own), tree, tree),  # --prefix
        (str(tree), tree, tree),
        ("", tree, tree),  # the settings'
        ("", own, tmp_path / "data" / "sifmod"),
    ):
        environ = {"SIFMOD_PREFIX": named, "XDG_DATA_HOME": str(tmp_path / "data")}
        assert layers_for(module, None, prefix, environ).prefix == place / "layers"


def test_what_is_on_modulepath_and_no_tree_of_this_user(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    """A closed directory ended every command that looks for modules; so did one that cannot be a prefix."""
    there = [shared_tmp / name for name in ("open", "closed", "modules closed", "a,b")]
    for place in there:
        for name in ("modules", "software"):
            (place / name).mkdir(parents=True)
    (shared_tmp / "modules closed/software").chmod(0)
    (shared_tmp / "closed").chmod(0)
    environ = {"MODULEPATH": ":".join(f"{place}/modules" for place in there)}
    own = Layout(shared_tmp / "own")
    found = call_as(ordinary_user.user, lambda: layouts((own,), environ))
    for name in ("modules closed/software", "closed"):
        (shared_tmp / name).chmod(0o755)
    assert found == (own, Layout(shared_tmp / "open"))


def test_a_wheel_without_an_end_takes_little_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))

    def wheel(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n\r\n")
        name = b"zzz/data"
        header = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 8, 8, 0, 0, 0, 0, 0, len(name), 0)
        deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
        with suppress(OSError):
            handler.wfile.write(header + name)
            for _ in range(1 << 9):  # of 1 MiB
                handler.wfile.write(deflate.compress(bytes(1 << 20)))

    web = Web()
    web.answers["/zzz-1-py3-none-any.whl"] = wheel
    web.start()
    name, url = "zzz-1-py3-none-any.whl", web.url("/zzz-1-py3-none-any.whl", "127.0.0.1")
    lines = ('lock-version = "1.0"', 'created-by = "x"', "[[packages]]", 'name = "zzz"', 'version = "1"')
    file = f'wheels = [{{name = "{name}", url = "{url}", size = 4096, hashes = {{sha256 = "{"a" * 64}"}}}}]'
    (tmp_path / "pylock.toml").write_text("\n".join((*lines, file)))
    use_limits(Limits(package_size=10 << 20))
    try:
        with pytest.raises(FetchError, match=r"a file of more bytes than 10485760 \(`limits: \{package_size: N\}`"):
            print(uv_here(tmp_path).run("pip", "install", "--target", "to", "--no-deps", "-r", "pylock.toml"))
    finally:
        use_limits(Limits())
        web.stop()
    assert max((path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()), default=0) <= 10 << 20


def test_a_limit_of_the_users_own_is_no_setting() -> None:
    """With `ulimit -f` the error named a limit of 8 GiB, and a setting that raises nothing here."""
    code = "from sifmod.image.child import *; from sifmod.image.packages.uv import *; checked(Ended(LARGE, b''))"
    done = subprocess.run(
        (sys.executable, "-c", code),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "uv cannot write a file of more bytes than 4096 here" in done.stderr
    assert "package_size" not in done.stderr


def test_an_index_whose_page_has_no_end_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))

    def page(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n")
        with suppress(OSError):
            for _ in range(1 << 11):  # of 1 MiB
                handler.wfile.write(b"<a href='x'>x</a>\n" * 58254)

    (tmp_path / "in.txt").write_text("zzz")
    web = Web()
    web.answers["/simple/zzz/"] = page
    web.start()
    use_limits(Limits(uv_memory=200 << 20))
    words = ("pip", "compile", "in.txt", "--index-url", web.url("/simple", "127.0.0.1"))
    try:
        with pytest.raises(FetchError, match=r"more bytes of memory than 209715200 \(`limits: \{uv_memory: N\}`"):
            uv_here(tmp_path).run(*words)
    finally:
        use_limits(Limits())
        web.stop()


def test_an_image_whose_python_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = write(tmp_path / "python", "#!/bin/sh\nwhile :; do echo flood; sleep 0.01; done\n")
    wrapper.chmod(0o755)
    (tmp_path / "at" / "work").mkdir(parents=True)
    monkeypatch.setattr("sifmod.actions.layer.inside._LONGEST_LOOK", 1.0)
    with (
        Inside(wrapper, tmp_path / "at") as inside,
        pytest.raises(ImageError, match="gives no answer within 1 seconds"),
    ):
        inside.look(())
