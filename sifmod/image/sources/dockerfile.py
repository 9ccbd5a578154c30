"""dockerfile: an image that buildah or podman builds from a Dockerfile, converted to a SIF here.

https://docs.docker.com/reference/dockerfile/. The context is the Dockerfile's directory.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from sifmod.config.limits import NotReadError, bound, limits, read_bounded
from sifmod.digest import sha256_file
from sifmod.errors import FetchError
from sifmod.image.artifact import Fetched, Fetching, FetchRequest
from sifmod.image.builder import dockerfile_builder
from sifmod.image.child import run_child
from sifmod.image.convert.oci_to_sif import convert
from sifmod.image.disk import check_holes, reading, writing
from sifmod.image.reference import Reference, SourceKind, is_loopback, nothing, says_nothing
from sifmod.image.sources.build import built_before, key_of, remote_digests, size_of
from sifmod.image.sources.docker import DOCKER
from sifmod.image.sources.ignored import Rule, UnclearError, is_ignored, rules_of
from sifmod.image.sources.oci import OCI
from sifmod.image.sources.runtime import SHOWN
from sifmod.image.stored import bytes_to_copy
from sifmod.module.image_origin import NO_ORIGIN
from sifmod.module.plan import BuildPlan
from sifmod.secret import cut
from sifmod.system import walk

_NAMES = ("Containerfile", "Dockerfile")  # in the order in which buildah looks for them
_IGNORES = (".containerignore", ".dockerignore")
_INSTRUCTION = re.compile(
    r"[ \t]*(?:FROM[ \t]+(?:--platform=\S+[ \t]+)?(?P<base>\S+)(?:[ \t]+AS[ \t]+(?P<stage>\S+))?"
    r"|ARG[ \t]+(?P<named>.*)|(?:COPY|ADD)[ \t].*?--from=(?P<other>\S+))",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(r"""(?:^|\s)(\w+)(?:=("[^"]*"|'[^']*'|\S*))?""")
_TEXT_BELOW = re.compile(r"""(?:^|\s)\d*<<-?(["']?)(\w+)\1(?=\s|$)""")  # RUN cat <<EOF
_LONGEST = 4096  # characters of an image's name
_MOST_ARGUMENTS = 1000
_EXPANDED = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


def context_files(build: BuildPlan) -> tuple[Path, ...]:
    """The Dockerfile, and its build context according to `.containerignore` or `.dockerignore`.

    Raises FetchError for a directory without a Dockerfile, or with too many files.
    """
    dockerfile = _dockerfile(build)
    top = dockerfile.parent
    ignore = next((top / name for name in _IGNORES if os.path.lexists(top / name)), None)
    # an ignore file that is named after the Dockerfile is not read by every version: then nothing is left out
    if ignore is None or any((top / f"{dockerfile.name}{name}").is_file() for name in _IGNORES):
        rules: tuple[Rule, ...] = ()
    else:
        rules = _rules(ignore)
    found = {dockerfile, *((ignore,) if ignore else ())}
    for directory, directories, names in walk(top):
        for name in (*directories, *names):
            path = Path(directory, name)
            if not is_ignored(str(path.relative_to(top)), rules):
                found.add(path)
            if len(found) > limits().build_files:
                what = f"{top} has more files than {bound('build_files')}"
                raise FetchError(what, "exclude unnecessary files in .dockerignore")
    return tuple(sorted(found))


def _rules(ignore: Path) -> tuple[Rule, ...]:
    """The rules for ignored files. Raises FetchError for too many lines; with unclear ones no file is ignored."""
    most = limits().build_rules
    try:
        rules = tuple(islice(rules_of(_text(ignore)), most + 1))
    except UnclearError:
        return ()
    if len(rules) > most:
        raise FetchError(f"{ignore} has more lines than {bound('build_rules')}")
    return rules


def _text(path: Path) -> str:
    """The text of a Dockerfile or an ignore file. Raises FetchError, also if it is too large, and PermissionsError."""
    with reading(path):
        try:
            return read_bounded(path, "build_text_size").decode("utf-8", "surrogateescape")
        except NotReadError as error:
            raise FetchError(str(error)) from error


def _digest(build: BuildPlan) -> str:
    """`sha256:…` of the arguments and the context: names, modes and bytes. It is the same in another directory."""
    dockerfile = _dockerfile(build)
    digest = hashlib.sha256(json.dumps((dockerfile.name, sorted(build.arguments))).encode())
    for path in context_files(build):
        with reading(path):
            mode = path.lstat().st_mode
            link = os.readlink(path) if path.is_symlink() else ""  # noqa: PTH115 (as it is spelled)
            what = link or (sha256_file(path) if path.is_file() else "")
            digest.update(os.fsencode(f"{path.relative_to(dockerfile.parent)}\0{mode:o}\0{what}\0"))
    return f"sha256:{digest.hexdigest()}"


def _dockerfile(build: BuildPlan) -> Path:
    place = Path(build.dockerfile)
    found = next((place / name for name in _NAMES if (place / name).is_file()), place)
    if not found.is_file():
        raise FetchError(f"there is no Dockerfile {found}, nor one in that directory")
    return found


def base_images(build: BuildPlan) -> tuple[str, ...]:
    """The images, except its own stages, that a Dockerfile starts from or copies from, as sources: docker://…

    A name with a variable that only the builder knows keeps it. Raises FetchError for too long a name, or too many
    arguments.
    """
    given, top = dict(build.arguments), dict[str, str]()
    here = top  # the arguments in front of all stages, then those of a stage, which count in it alone
    stages, found = {"scratch"}, []
    for line in filter(None, map(_INSTRUCTION.match, _instructions(_text(_dockerfile(build))))):
        for name, value in _ARGUMENT.findall(line["named"] or ""):
            default = _expanded(value.strip("\"'"), here) if value else top.get(name)
            if (chosen := given.get(name, default)) is not None:
                here[name] = chosen
            if len(here) > _MOST_ARGUMENTS:
                raise FetchError(f"the Dockerfile has more than {_MOST_ARGUMENTS} arguments")
        image = _expanded(line["base"] or line["other"] or "", top if line["base"] else here)
        if image and image.lower() not in stages and not (line["other"] and image.isdigit()):
            found.append(image if image.startswith("docker://") else f"docker://{image}")
        if line["base"]:
            here = {}
            stages |= {line["stage"].lower()} if line["stage"] else set()
    return tuple(dict.fromkeys(found))


def _instructions(text: str) -> Iterator[str]:
    """Each instruction on one line, without comments and the texts below them (`<<EOF`)."""
    parts, below, ends = list[str](), list[str](), list[str]()
    for line in text.splitlines():
        if ends:
            below.append(line)
            if line.lstrip("\t") == ends[0]:
                ends.pop(0)
                below = below if ends else []
        elif not line.lstrip().startswith("#"):
            plain = line.rstrip()
            parts.append(plain.removesuffix("\\"))
            if not plain.endswith("\\"):
                yield (whole := " ".join(parts))
                parts = []
                ends = [name for _, name in _TEXT_BELOW.findall(whole)]
    yield from below  # without its end it was none
    yield " ".join(parts)


def _expanded(spelled: str, arguments: dict[str, str]) -> str:
    """A text with the arguments that it uses, if they are known. Raises FetchError if it is too long for a name."""
    if len(spelled) <= _LONGEST:
        image = _EXPANDED.sub(
            lambda each: arguments.get(each[1] or each[3]) or (each[0] if each[2] is None else each[2]), spelled
        )
        if len(image) <= _LONGEST:
            return image
    raise FetchError(f"the Dockerfile names an image with more than {_LONGEST} characters: {cut(spelled, 60)}…")


def _known(request: FetchRequest) -> tuple[str, str]:
    """Digests of the current inputs of the build, and of the other images in it. Raises FetchError."""
    with request.store.workspace() as place:
        check_holes(context_files(request.build), place, "exclude it in .dockerignore")
    return _digest(request.build), remote_digests(_without_variables(request), base_images(request.build))


def _without_variables(request: FetchRequest) -> FetchRequest:
    """The request, without the login of APPTAINER_DOCKER_*: the Dockerfile names the registries, as to buildah."""
    return replace(request, settings=replace(request.settings, named=False))


def _pinned(request: FetchRequest) -> Fetched | None:
    return built_before(request, *_known(request))


def _announced(request: FetchRequest) -> int | None:
    """Bytes of the build's other images and context, without the downloads of its commands; None if unknown."""
    if made := _pinned(request):
        return bytes_to_copy(made, request)
    return size_of(_without_variables(request), context_files(request.build), base_images(request.build))


def _fetch(request: Fetching) -> Fetched:
    program = dockerfile_builder()
    known = _known(request)
    with request.store.workspace() as workspace:
        with writing(workspace):
            for name in ("home", "tmp"):
                (workspace / name).mkdir(mode=0o700)
            (workspace / "registries.conf").write_text(_registries(request, base_images(request.build)))
        try:
            _run(request, program, workspace)
            converted = convert(replace(request, reference=OCI.reference(f"oci:{workspace}/layout")))
        finally:
            # files of the namespace's other users have other owners here, and can only be removed inside it; podman's
            # second command ends the process that podman leaves behind
            ends = (("unshare", "rm", "-rf", "root"), *((("system", "migrate"),) if "podman" in program else ()))
            for words in ends if os.geteuid() != 0 else ():
                run_child((program, *words), cwd=workspace, env=_environment(workspace))
    origin = key_of(*known)
    made = replace(converted.origin, index=origin.index, manifest=origin.manifest)
    return replace(converted, origin=made if _known(request) == known else NO_ORIGIN)


def _run(request: FetchRequest, program: str, workspace: Path) -> None:
    build, dockerfile = request.build, _dockerfile(request.build)
    name = os.path.basename(program)  # noqa: PTH119 (text)
    store = (program, "--storage-driver", "vfs", "--root", "root", "--runroot", "run")
    given = tuple(f"--build-arg={key}={value}" for key, value in sorted(build.arguments))
    how = ("--isolation", "chroot", "--network", "host", "--layers=false", f"--platform=linux/{request.image.arch}")
    tag = "made" if name == "podman" else "oci:layout:made"
    commands = [(*store, "build", *how, *given, "--file", str(dockerfile), "--tag", tag, str(dockerfile.parent))]
    if name == "podman":
        commands.append((*store, "save", "--format", "oci-dir", "--output", "layout", "made"))
    request.progress(f"{name} build {dockerfile}", 0, None)
    for command in commands:
        ended = run_child(command, cwd=workspace, env=_environment(workspace))
        if ended.code != 0:
            said = "\n".join(f"    {line}" for line in ended.lines[-SHOWN:])
            raise FetchError(
                f"`{name} {command[len(store)]}` for {dockerfile} failed with exit code {ended.code}:\n{said}"
            )


def _environment(workspace: Path) -> dict[str, str]:
    """The builder's environment: it writes everything in `workspace`, and reads the user's logins for registries."""
    home = Path(os.environ.get("HOME", "/"))
    places = (
        Path(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")) / "containers/auth.json",
        Path(os.environ.get("XDG_CONFIG_HOME", home / ".config")) / "containers/auth.json",
        Path(os.environ.get("DOCKER_CONFIG", home / ".docker")) / "config.json",
    )
    logins = next((str(place) for place in places if place.is_file()), "")
    own = {
        **dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"), str(workspace / "home")),
        "TMPDIR": str(workspace / "tmp"),
        "CONTAINERS_REGISTRIES_CONF": str(workspace / "registries.conf"),
        **({"REGISTRY_AUTH_FILE": logins} if logins else {}),
    }
    own.update({name: os.environ[name] for name in ("REGISTRY_AUTH_FILE",) if name in os.environ})
    return {**os.environ, **own}


def _registries(request: FetchRequest, images: tuple[str, ...]) -> str:
    """A registries.conf: bare names are Docker Hub's; hosts without TLS are those of the settings, and this machine."""
    hosts = set(request.settings.insecure_registries)
    for image in images:
        try:
            host = DOCKER.reference(image).host
        except FetchError:
            continue  # the builder says what is wrong with it
        hosts |= {host} if is_loopback(host) else set()
    lines = [f"\n[[registry]]\nlocation = {json.dumps(host)}\ninsecure = true\n" for host in sorted(hosts)]
    return 'unqualified-search-registries = ["docker.io"]\nshort-name-mode = "disabled"\n' + "".join(lines)


DOCKERFILE = SourceKind(
    name="dockerfile",
    schemes=(),
    example="/images/Dockerfile",
    location="definition",
    parse=lambda kind, source: Reference(kind, source, source),
    watched=lambda reference, _: (reference.location,),
    local_sif=nothing,
    open=None,
    describe=says_nothing,
    pinned=_pinned,
    announced=_announced,
    fetch=_fetch,
)
