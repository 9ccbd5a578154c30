"""bytecode: the modules of a layer compiled by the image's Python: a layer is read-only once it is made.

Compiling takes longer than everything else that makes a layer. So it is kept, beside what uv keeps, by top-level name:
a zip for each, under the digest of its files.
"""

import functools
import zipfile
from contextlib import ExitStack

from sifmod.actions.layer.inside import Inside
from sifmod.errors import InstallError
from sifmod.image.convert.packed import More
from sifmod.image.packages.uv import uv_cache

_KEPT = "sifmod-bytecode"
# Run inside. Arguments: directory, cache, the file that is to name what of the cache is used, processes.
# Bytecode is as PEP 552 has it, never held against its source.
COMPILE = r"""
import hashlib, importlib.util, marshal, multiprocessing, os, sys, tempfile, zipfile, zlib
from functools import partial
from zipfile import ZIP_DEFLATED as DEFLATED

FORM = b"\1\0\0\0"
VERSION = 4 if sys.version_info >= (3, 11) else 2  # with references, older ones write what they happen to share

def compiled(top, name):
    path = os.path.join(top, name)
    with open(path, "rb") as file:
        source = file.read()
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # left to who imports it
        return b""
    return importlib.util.MAGIC_NUMBER + FORM + importlib.util.source_hash(source) + marshal.dumps(code, VERSION)

def place_of(top, cache, names):
    whole = hashlib.sha256(importlib.util.MAGIC_NUMBER)
    for name in names:
        with open(os.path.join(top, name), "rb") as file:
            content = file.read()
        whole.update(repr((name, len(content))).encode() + content)
    return os.path.join(cache, whole.hexdigest() + ".zip")

def keep(place, names, contents):
    descriptor, new = tempfile.mkstemp(dir=os.path.dirname(place))
    try:
        with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", DEFLATED, compresslevel=1) as archive:
            for name, content in zip(names, contents):
                if content:
                    archive.writestr(importlib.util.cache_from_source(name), content)
        os.replace(new, place)
    except BaseException:
        os.unlink(new)
        raise

def is_whole(place):
    try:
        with zipfile.ZipFile(place) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError):
        return False

def main(top, cache, said, jobs):
    os.makedirs(cache, exist_ok=True)
    by_name = {}
    for directory, _, names in os.walk(top):
        for name in (os.path.relpath(os.path.join(directory, name), top) for name in names if name.endswith(".py")):
            by_name.setdefault(name.split(os.sep)[0], []).append(name)
    by_name.pop("bin", None)  # commands, which are run and not imported
    places = {place_of(top, cache, sorted(names)): sorted(names) for names in by_name.values()}
    new = {place: names for place, names in places.items() if not is_whole(place)}
    if new:
        with multiprocessing.get_context("fork").Pool(int(jobs)) as pool:
            for place, names in new.items():
                keep(place, names, pool.imap(partial(compiled, top), names, chunksize=16))
    with open(said, "w") as file:
        file.writelines(os.path.basename(place) + "\n" for place in places)

main(*sys.argv[1:])
"""


def bytecode(inside: Inside, jobs: int, held: ExitStack) -> More:
    """The compiled modules of `lib`, by path below it; read when they are asked for, while `held` is open.

    Raises InstallError with what the image's Python said where it cannot compile.
    """
    work, said = f"{inside.target}/work", inside.directory / "work" / "compiled"
    ended = inside.python(
        "-W", "ignore", "-c", COMPILE, f"{inside.target}/lib", f"{work}/cache/{_KEPT}", f"{work}/{said.name}", str(jobs)
    )
    if ended.code != 0 or not said.is_file():
        raise InstallError("the packages could not be compiled:\n" + "\n".join(ended.lines[-12:]))
    more: More = {}
    for name in said.read_text().split():
        archive = held.enter_context(zipfile.ZipFile(uv_cache() / _KEPT / name))
        more |= {f"lib/{entry.filename}": functools.partial(archive.read, entry) for entry in archive.infolist()}
    return more
