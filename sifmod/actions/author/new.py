"""new: draft an easyconfig for an image from its metadata and its contents."""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from sifmod.actions.author.draft import Source, draft
from sifmod.actions.author.new_file import check_target
from sifmod.actions.fetch import FetchOptions, fetch
from sifmod.actions.reporter import Reporter
from sifmod.actions.subject import stored_digest
from sifmod.config.build import names_easyconfig
from sifmod.config.load_easyconfig import LoadedEasyconfig, load_easyconfig
from sifmod.config.load_site import LoadedSite
from sifmod.config.name import ModuleName
from sifmod.config.word import resolve_easyconfig
from sifmod.digest import sha256_file
from sifmod.errors import ConfigError, OptionError
from sifmod.image.artifact import Artifact
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.guess import make_guess
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.reference import Reference, after_scheme
from sifmod.image.sources.source_kinds import parse
from sifmod.result import Described, Internal, Named
from sifmod.system import scratch_directory

_SIF_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=-]*\.sif")


@dataclass(frozen=True)
class NewOptions:
    """The options of a draft; `name` and `version` replace the guessed ones."""

    name: str | None = None
    version: str | None = None
    arch: str | None = None
    offline: bool = False
    into_home: bool = False  # as for `fetch`
    pip: tuple[str, ...] | None = None  # packages to add: the image is then a base
    own_name: bool = False  # the draft gets its own file name: if that file exists, fail before anything is hashed


@dataclass(frozen=True)
class Draft:
    """A first easyconfig."""

    text: str
    loaded: Internal[LoadedEasyconfig]
    image: Annotated[Path, Named("sif"), Described("the image that was read")]
    path: Annotated[Path | None, Described("the written file; null with -o -")] = None

    @property
    def module(self) -> Annotated[ModuleName, Described("name and version of its module")]:
        return self.loaded.easyconfig.module

    @property
    def filename(self) -> str:
        """`<Name>-<version><versionsuffix>.yaml`."""
        return f"{self.module.name}-{self.module.version}.yaml"


def make_draft(text: str, site: LoadedSite, options: NewOptions, reporter: Reporter) -> Draft:
    """Draft an easyconfig for the image that `text` names, or for an image built on it.

    A base can be an easyconfig too; its first source is inspected then.

    A SIF on this machine is read in place; any other image is fetched into the store. Raises what `fetch` raises,
    ImageError for an unreadable image, OptionError for an invalid name, version or package, and with `own_name` if the
    draft's file exists; for a base that is an easyconfig, what loading it raises.
    """
    base = text if options.pip is not None and names_easyconfig(text) else ""
    reference = parse(_source_of(base, site) if base else text)
    path = reference.kind.local_sif(reference, site.site.image_dirs)
    is_local = path is not None
    if path is None:
        wanted = FetchOptions(arch=options.arch, offline=options.offline, into_home=options.into_home)
        artifact = fetch(_absolute(reference), site.site, wanted, reporter)
        path, source = artifact.path, _of_artifact(reference, artifact)
        for note in artifact.notes:
            reporter.say(note)
    else:
        source = _of_file(reference, path)
    if options.pip is not None:
        why = f"the base: {'the image of this easyconfig' if base else source.why}"
        source = replace(source, source=base or source.source, why=why, pip=options.pip)
    described = describe_sif(path)
    with open_rootfs(path, read_sif(path)) as rootfs:
        guess = make_guess(reference, described, rootfs)
    named = (options.name or guess.named.name, options.version or guess.named.version)
    drafted = _drafted(draft(guess, source, text, named), path, site, options)
    if options.own_name:
        check_target(Path(drafted.filename))
    if not is_local or options.pip is not None:
        return drafted
    source = replace(source, sha256=_hashed(path, site, reporter))  # last, because it may take minutes
    return _drafted(draft(guess, source, text, named), path, site, options)


def _source_of(base: str, site: LoadedSite) -> str:
    image = load_easyconfig(resolve_easyconfig(base, site.site), site, None, {}, os.environ).easyconfig.required_image
    if not image.sources:
        raise OptionError(
            f"--from: the image of {base} is itself built, so it has no source", "name an image that has a source"
        )
    return image.sources[0]


def _drafted(text: str, image: Path, site: LoadedSite, options: NewOptions) -> Draft:
    """The draft of this text. Raises OptionError for an invalid option, ConfigError for other problems."""
    with scratch_directory() as directory:
        path = directory / "new.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            return Draft(text, load_easyconfig(path, site, None, {}, os.environ), image)
        except ConfigError as error:
            given = {"name": options.name, "version": options.version}
            for problem in error.problems:
                if problem.key in given and given[problem.key] is not None:
                    raise OptionError(f"--{problem.key}: {problem.message}") from error
                if problem.key.startswith("image.build.pip"):
                    raise OptionError(f"--pip: {problem.message}") from error
            raise


def _absolute(reference: Reference) -> str:
    """The source with an absolute path, so that the easyconfig works from any directory."""
    if not reference.kind.is_local:
        return reference.source
    rest = after_scheme(reference.source)
    return f"{reference.kind.name}:{_plain(Path(reference.location))}{rest[len(reference.location) :]}"


def _plain(path: Path) -> Path:
    """The absolute path without `..`, with its links kept where that leads to the same file."""
    if not path.exists():  # opening it raises the error
        return path.absolute()
    plain = Path(os.path.normpath(path.absolute()))
    return plain if plain.exists() and plain.samefile(path) else path.resolve()


def _of_artifact(reference: Reference, artifact: Artifact) -> Source:
    source, origin = _absolute(reference), artifact.origin
    digest = origin.index or origin.manifest
    if digest and not reference.digest:
        tag = reference.tag or ("latest" if reference.kind.location == "repository" else "")
        source, why = (
            f"{source}@{digest}",
            f"{f'the tag {tag}' if tag else 'the image'} as it is today; the digest pins it",
        )
    elif reference.digest:
        why = "its digest pins the image"
    else:
        why = "nothing in this source pins the image: its content may change"
    promised = reference.kind.ready_made
    return Source(
        source, "its SHA-256 pins the image" if promised else why, artifact.arch, artifact.sha256 if promised else ""
    )


def _hashed(path: Path, site: LoadedSite, reporter: Reporter) -> str:
    if known := stored_digest(path, site.site.prefix):
        return known
    size = path.stat().st_size
    reporter.progress(f"hashing {path.name}", 0, size)
    sha256 = sha256_file(path)
    reporter.progress(f"hashing {path.name}", size, size)
    return sha256


def _of_file(reference: Reference, path: Path) -> Source:
    """The source for a SIF on this machine, without its digest."""
    in_image_dirs = reference.source == path.name and not path.is_relative_to(Path.cwd()) and path.is_absolute()
    source = path.name if in_image_dirs else str(_plain(path))
    why = "a name in the site's image directories" if in_image_dirs else "a file on this machine"
    filename = path.name if _SIF_NAME.fullmatch(path.name) and ".." not in path.name else ""
    return Source(source, why, read_sif(path).arch, filename=filename)
