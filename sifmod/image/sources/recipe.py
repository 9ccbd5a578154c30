"""recipe: a base with added packages, files and variables, assembled here.

Nothing of the base is started, unless the recipe has commands, or a package must be compiled.

A built image is stored under a key: a digest of the base, the recipe and its files. The recipe and the lock of its
packages are in the image, below /.singularity.d/build.
"""

import json
import os
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from posixpath import join, normpath
from typing import NamedTuple

from sifmod.config.build import place_in_image
from sifmod.config.limits import bound, limits
from sifmod.config.redact import shown
from sifmod.digest import sha256_bytes, sha256_file
from sifmod.errors import FetchError, ImageError, NoWheelError, OptionError, RuntimeMissingError
from sifmod.image.artifact import Artifact, Fetched, Fetching, FetchRequest
from sifmod.image.builder import BuildMethod, build_method
from sifmod.image.convert.extend import Addition, extend
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.disk import check_holes, reading
from sifmod.image.inspect.rootfs import Rootfs, open_rootfs
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.packages.added import Added, add_packages
from sifmod.image.packages.base_python import BasePython, bytecode_of, glibc, read_base_python
from sifmod.image.packages.package_lock import LOCK, versions_of
from sifmod.image.packages.pip_places import pip_places
from sifmod.image.packages.request import PackageRequest
from sifmod.image.packages.uv import Uv, linked_directory, uv_here
from sifmod.image.program import probe_runtime
from sifmod.image.reference import Reference, SourceKind, no_files, nothing, says_nothing
from sifmod.image.sources.build import build_upon, definition_upon
from sifmod.image.sources.file import hashed
from sifmod.image.sources.recipe_packages import compiled_from, compiling, package_files, packages_of, said_of
from sifmod.image.stored import stored
from sifmod.module.image_origin import ImageOrigin
from sifmod.module.plan import BuildPlan
from sifmod.system import one_line, walk

_PLACE = ".singularity.d/build"
_LABEL = "org.sifmod.build"
_LAST = (1 << 32) - 1  # the last second since 1970 that a squashfs can store
_REMOTE = ("docker://", "oras://", "library://", "https://", "http://")


def recipe_files(build: BuildPlan) -> tuple[str, ...]:
    """The local files that identify the image: those of its packages, and `files` with everything below."""
    files = (str(path) for _, path in _files(build))
    return (*dict.fromkeys(package_files(build)), *files)


def _files(build: BuildPlan) -> Iterator[tuple[str, Path]]:
    """The entries of `files` and all below them, with paths in the image, without leading slash. Raises FetchError."""
    found: dict[str, Path] = {}
    for source, target in build.files:
        here = Path(os.path.realpath(source))
        inside = place_in_image(source, target)
        for path in _below(here):
            place = normpath(join(inside, path.relative_to(here))).lstrip("/")
            other = found.setdefault(place, path)
            if one_line(place) != place:  # each path is a line of the definition in the SIF
                raise FetchError(f"{one_line(str(path))} has an unprintable character in its name", "rename it")
            if len(found) > limits().build_files:
                raise FetchError(f"with {source}, `files` has more files than {bound('build_files')}")
            if other is not path and not (other.is_dir() and path.is_dir()):
                raise FetchError(
                    f"{other} and {path} would both become /{place} in the image", "give each file its own path"
                )
            yield place, path


def _below(place: Path) -> Iterator[Path]:
    """The path, and everything below it if it is a directory; links are not followed."""

    def fail(error: OSError) -> None:
        raise error

    yield place
    with reading(place):
        for top, directories, names in walk(place, fail) if place.is_dir() else ():
            yield from (Path(top, name) for name in sorted((*directories, *names)))


def _described(path: Path) -> str:
    """What matters of a path: its kind, and a file's digest or a link's text. Raises FetchError for another kind."""
    with reading(path):
        if path.is_symlink():
            return f"link {os.readlink(path)}"  # noqa: PTH115 (as it is spelled)
        if path.is_dir():
            return "directory"
        if path.exists() and not path.is_file():  # opening a pipe would block
            raise FetchError(f"{path} is not a file, directory or link")
        return f"{'program' if path.stat().st_mode & 0o100 else 'file'} sha256:{sha256_file(path)}"


def _recipe(request: FetchRequest, base: Artifact) -> str:
    """The recipe as JSON: everything that decides the build, except the content of an index.

    It contains no path of this machine. Raises FetchError for an unreadable file.
    """
    build = request.build
    with request.store.workspace() as place:
        check_holes((path for _, path in _files(build)), place, "remove it from `image.build`")
    wanted, lock = packages_of(build)
    sources = build.base.sources if build.base else ()
    said = {
        "from": next((shown(source) for source in sources if source.startswith(_REMOTE)), ""),
        "base": f"sha256:{base.sha256}",
        "path": build.path,
        **said_of(wanted),
        "lock": f"sha256:{sha256_bytes(lock.encode())}" if lock else "",
        "files": {inside: _described(path) for inside, path in _files(build)},
        "env": dict(build.env),
        "labels": dict(build.labels),
        "post": build.post,
        "test": build.test,
    }
    return json.dumps({key: value for key, value in said.items() if value}, indent=1) + "\n"


def _key(request: FetchRequest, recipe: str) -> str:
    """The key of a built image in the store. It includes the protected packages, because they affect the resolution."""
    build = request.build
    decisive = (recipe, build.protected, *((build.indexes,) if build.indexes else ()))
    return f"sha256:{sha256_bytes(json.dumps(decisive).encode())}"


def _pinned(request: FetchRequest) -> Fetched | None:
    """An earlier image built from the same base, recipe and files; None without one."""
    if request.base is None:
        return None
    made = stored(request, _key(request, _recipe(request, request.base)))
    return made and replace(made, notes=("an earlier build of the same recipe is used",))


class _Prepared(NamedTuple):
    """The changes to a base."""

    addition: Addition
    post: str  # commands to run after the addition
    way: BuildMethod | None  # how to run them; None: nothing is run
    notes: tuple[str, ...]


def _fetch(request: Fetching) -> Fetched:
    build, base = request.build, request.base
    if base is None:
        raise FetchError("a build needs its base")
    recipe = _recipe(request, base)
    with ExitStack() as stack:
        # in parallel with uv: the result is not needed before the blocks are copied
        damaged = stack.enter_context(ThreadPoolExecutor(1)).submit(request.store.damaged, base.sha256)
        rootfs = stack.enter_context(open_rootfs(base.path, read_sif(base.path)))
        made = _prepared(request, base, rootfs, recipe, stack)
        settings = request.settings
        workspace = stack.enter_context(request.store.workspace()) if made.way else None
        target = workspace / "base.sif" if workspace else request.incoming
        if damaged.result():
            what = f"the base {base.source} is damaged in the store: {base.path} does not match its digest"
            raise ImageError(what, "`sifmod install --force` fetches it again and rebuilds the image")
        warnings = extend(base.path, made.addition, target, settings.processors, settings.memory)
        # a note with the digest of the base would be read as that of the new image
        notes = (note for note in base.notes if base.sha256 not in note)
        all_notes = (*notes, *made.notes, *warnings)
        if made.way and workspace:
            definition = definition_upon(build, made.post)
            fetched = build_upon(request, made.way, workspace, definition, glibc(rootfs, base.arch))
            fetched = replace(fetched, notes=(*all_notes, f"the recipe's commands ran {made.way.said}"))
        else:
            fetched = hashed(request.incoming, request, all_notes)
    if _recipe(request, base) != recipe:  # the image may mix old and new files
        raise FetchError("a file of the recipe was changed while the image was built", "repeat the command")
    return replace(fetched, origin=ImageOrigin(manifest=_key(request, recipe), layers=(f"sha256:{base.sha256}",)))


def _prepared(request: Fetching, base: Artifact, rootfs: Rootfs, recipe: str, stack: ExitStack) -> _Prepared:
    """The packages and files, which exist until `stack` is closed. Commands inside compile packages without a wheel."""
    build = request.build
    way = build_method(probe_runtime(request.runtime.path)) if build.post or build.test else None
    place = f"{_PLACE}/{1 + len(rootfs.entries(f'/{_PLACE}'))}"
    documents, post = [(f"{place}/recipe.json", recipe.encode())], build.post
    wanted, lock = packages_of(build)
    added = Added("", (), (), ())
    if wanted.requirements or lock:
        environment = dict(describe_sif(base.path).config.environment)
        base_python = read_base_python(rootfs, environment, build.path, base.arch, build.protected)
        uv = uv_here(stack.enter_context(request.store.workspace()))
        try:
            added = _packages(request, base_python, (wanted, lock), uv, stack)
        except NoWheelError as error:
            way, places = _way_to_compile(request, error), pip_places(uv, wanted, error.message)
            added = Added("", (), (), (f"{error.message}; it will be compiled inside the image",))
            read = compiled_from(wanted, lock, base_python.python.protected, places)
            documents += [(f"{place}/{name}", content) for name, content in read]
            post = f"{compiling(base_python.python.executable, place)}{post}"
    files = {path.lstrip("/"): here for path, here in added.files} | dict(_files(build))
    # Python might run the bytecode of a replaced file instead of the new one
    stale = (path.lstrip("/") for path in bytecode_of(rootfs, (f"/{path}" for path in files)))
    removed = dict.fromkeys((*(path.lstrip("/") for path in added.removed), *stale))
    labels = {f"{_LABEL}.base": f"sha256:{base.sha256}", f"{_LABEL}.recipe": sha256_bytes(recipe.encode())}
    if added.lock:
        documents.append((f"{place}/{LOCK}", added.lock.encode()))
        labels[f"{_LABEL}.lock"] = sha256_bytes(added.lock.encode())
    addition = Addition(
        files=tuple(files.items()),
        removed=tuple(path for path in removed if path not in files),
        documents=tuple(documents),
        env=build.env,
        labels=(*labels.items(), *(own for own in build.labels if own[0] not in labels)),
        deffile=_definition(recipe, added.lock),
        epoch=min(max(read_sif(base.path).created, 0), _LAST),
        one_user=way is not None and way.one_user,
    )
    return _Prepared(addition, post, way, added.notes)


def _packages(
    request: FetchRequest, base_python: BasePython, wanted: tuple[PackageRequest, str], uv: Uv, stack: ExitStack
) -> Added:
    """The files of the wanted or locked packages, until `stack` is closed. Raises ImageError, as for a conflict."""
    packages, lock = wanted
    uv_prefix = stack.enter_context(linked_directory())
    words = ("--offline",) if request.image.offline else ()
    try:
        packages = replace(packages, words=(*packages.words, *words))
        return add_packages(base_python, packages, lock, uv, uv_prefix, request.build.indexes)
    except OptionError as error:
        raise ImageError(error.message, error.hint) from error


def _way_to_compile(request: FetchRequest, why: NoWheelError) -> BuildMethod:
    try:
        return build_method(probe_runtime(request.runtime.path))
    except (FetchError, RuntimeMissingError) as error:
        raise NoWheelError(f"{why.message}; {error.message}", error.hint) from why


def _definition(recipe: str, lock: str) -> str:
    """The definition in the SIF: what a builder would need to make about the same image."""
    said = json.loads(recipe)
    source = said.get("from", "")
    scheme, _, rest = source.partition("://") if source.startswith(("docker://", "oras://")) else ("localimage", "", "")
    lines = [f"bootstrap: {scheme}", f"from: {rest or said['base']}"]
    if files := said.get("files"):
        lines += ["", "%files", *(f"    {path} /{path}" for path, what in files.items() if what != "directory")]
    if lock:
        pins = (f"{name}=={version}" for name, version in versions_of(lock).items())
        lines += ["", "%post", *(f"    pip install --no-deps {pin}" for pin in pins)]
    if env := said.get("env"):
        lines += ["", "%environment", *(f"    export {name}={shlex.quote(value)}" for name, value in env.items())]
    if labels := said.get("labels"):
        lines += ["", "%labels", *(f"    {name} {value}" for name, value in labels.items())]
    return "\n".join(lines) + "\n"


RECIPE = SourceKind(
    name="recipe",
    schemes=(),
    example="image.build.from",
    location="recipe",
    parse=lambda kind, source: Reference(kind, source, source),
    watched=no_files,
    local_sif=nothing,
    open=None,
    describe=says_nothing,
    pinned=_pinned,
    announced=nothing,
    fetch=_fetch,
)
