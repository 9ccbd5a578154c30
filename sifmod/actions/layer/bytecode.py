"""Compile a layer's modules, or take their bytecode from the cache."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from sifmod.actions.layer.inside import Inside
from sifmod.errors import InstallError
from sifmod.image.packages.image_python import ImagePython
from sifmod.image.packages.uv import bytecode_cache

_LIBRARY = "lib/"
_WANTED = "wanted.json"
_COMPILED = re.compile(r"(?:[^/]+/)*__pycache__/[^/]+\.pyc")
_DIGEST = 64  # characters
_NOT_KEPT = 3  # exit code of `COMPILE`
# Run inside. Arguments: the directory of the modules, the cache, a file with the names to compile by entry of the
# cache, number of processes. An entry is the digest of the rest, a list of paths and sizes, and the contents. The
# bytecode is unchecked (PEP 552). JSON has the bytes of a name, since the encoding here may be another.
COMPILE = r"""
import hashlib, importlib.util, json, marshal, multiprocessing, os, resource, sys, tempfile
from functools import partial

FORM = b"\1\0\0\0"
LARGEST = 32 << 20  # bytes of a module; compiling takes some hundred times its size in memory
MEMORY = 4 << 30  # bytes of address space of a process; a module of a kilobyte may have gigabytes of code
RATIO = 64  # bytes of code for one of source, beyond a megabyte
VERSION = 4 if sys.version_info >= (3, 11) else 2  # with references, older ones write what they happen to share

def compiled(top, name):
    path = os.path.join(top, name)
    if os.path.getsize(path) > LARGEST:
        return b""
    with open(path, "rb") as file:
        source = file.read()
    try:
        code = compile(source, path, "exec", dont_inherit=True)
        data = marshal.dumps(code, VERSION)  # a code object without a name gets other bytes
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # left to who imports it
        return b""
    if len(data) > RATIO * len(source) + (1 << 20):
        return b""
    return importlib.util.MAGIC_NUMBER + FORM + importlib.util.source_hash(source) + data

def bound():
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY if hard < 0 else min(MEMORY, hard), hard))

def keep(place, names, contents):
    found = [(importlib.util.cache_from_source(name), content) for name, content in zip(names, contents) if content]
    listed = json.dumps([[os.fsencode(name).decode("latin-1"), len(content)] for name, content in found])
    entry = listed.encode() + b"\n" + b"".join(content for _, content in found)
    try:
        descriptor, new = tempfile.mkstemp(dir=os.path.dirname(place))
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(entry).hexdigest().encode() + b"\n" + entry)
            os.replace(new, place)
        except BaseException:
            os.unlink(new)
            raise
    except OSError as error:
        print(f"the bytecode cannot be kept: {error.strerror}", file=sys.stderr)
        sys.exit(3)

def main(top, cache, wanted, jobs):
    with open(wanted) as file:
        entries = json.load(file)
    with multiprocessing.get_context("fork").Pool(int(jobs), bound) as pool:
        for key, names in entries.items():
            names = [os.fsdecode(name.encode("latin-1")) for name in names]
            keep(os.path.join(cache, key), names, pool.imap(partial(compiled, top), names, chunksize=16))

main(*sys.argv[1:])
"""


class Bytecode:
    """The bytecode of a layer's modules, whose contents the functions of `reader` must get before `files`.

    Compiling takes longer than all other steps, so it is cached by top-level name, each in a file named by the digest
    of the name's modules.
    """

    def __init__(self, inside: Inside, python: ImagePython, jobs: int) -> None:
        self._inside = inside
        self._kind = python.bytecode
        self._jobs = jobs
        self._modules: dict[str, dict[bytes, hashlib._Hash]] = {}  # by top-level name

    def reader(self, path: str) -> Callable[[bytes], object] | None:
        """The function that takes the content of a module `path` of the layer; None for another file."""
        if not path.startswith(_LIBRARY) or not path.endswith(".py"):
            return None
        name = path.removeprefix(_LIBRARY)
        digest = hashlib.sha256()
        self._modules.setdefault(name.partition("/")[0], {})[os.fsencode(name)] = digest
        return digest.update

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The path in the layer and the content of each file of bytecode.

        Raises InstallError with the output of the image's Python if it fails, and for a cache with other content.
        """
        cache = bytecode_cache()
        entries = dict(map(self._entry, sorted(self._modules)))
        self._compile({key: names for key, names in entries.items() if not (cache / key).is_file()})
        for key, names in entries.items():
            if (found := _read(cache / key)) is None:  # such as after a crash of the machine
                self._compile({key: names})
                found = _read(cache / key)
            if found is None or not all(map(_is_compiled, (name for name, _ in found))):
                raise InstallError(f"{cache / key} is not the bytecode of a layer", f"remove it: rm -r {cache}")
            yield from ((_LIBRARY + name, content) for name, content in found)

    def _entry(self, top: str) -> tuple[str, list[str]]:
        """The name of a top-level name's cache entry, and its modules."""
        modules = sorted(self._modules[top].items())
        text = repr((self._kind, [(name, digest.hexdigest()) for name, digest in modules]))
        return hashlib.sha256(text.encode()).hexdigest(), [name.decode("latin-1") for name, _ in modules]

    def _compile(self, entries: dict[str, list[str]]) -> None:
        if not entries:
            return
        place = f"{self._inside.target}/work"
        (self._inside.directory / "work" / _WANTED).write_text(json.dumps(entries))
        words = ("-W", "ignore", "-c", COMPILE, f"{self._inside.target}/lib", f"{place}/bytecode", f"{place}/{_WANTED}")
        ended = self._inside.python(*words, str(self._jobs))
        self._inside.end()
        if ended.code != 0:
            place = f"it is kept in {bytecode_cache()}; XDG_CACHE_HOME can name another place"
            hint = place if ended.code == _NOT_KEPT else ""
            raise InstallError("the packages could not be compiled:\n" + "\n".join(ended.lines[-12:]), hint)


def _read(entry: Path) -> list[tuple[str, bytes]] | None:
    """The names and contents of a cache entry; None if it is missing or damaged."""
    data = entry.read_bytes() if entry.is_file() else b""
    if hashlib.sha256(memoryview(data)[_DIGEST + 1 :]).hexdigest().encode() != data[:_DIGEST]:
        return None
    begin = data.index(b"\n", _DIGEST + 1)
    found, at = [], begin + 1
    for name, size in json.loads(data[_DIGEST + 1 : begin]):
        found.append((os.fsdecode(name.encode("latin-1")), data[at : at + size]))
        at += size
    return found


def _is_compiled(path: str) -> bool:
    return _COMPILED.fullmatch(path) is not None and not {".", ".."}.intersection(path.split("/"))
