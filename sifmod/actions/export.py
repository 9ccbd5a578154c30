"""export: write an image as a file or a directory for other tools."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from sifmod.actions.fetch_settings import fetch_settings
from sifmod.actions.reporter import Reporter
from sifmod.config.site import Site
from sifmod.errors import FetchError
from sifmod.image.export import write_archive, write_directory, write_sif, write_sqsh
from sifmod.module.plan import Runtime
from sifmod.result import Described, Notes
from sifmod.tree.target_store import target_store

Form = Literal["sif", "sqsh", "oci-archive", "docker-archive", "sandbox"]
ENDINGS: dict[Form, str] = {
    "sif": ".sif",
    "sqsh": ".sqsh",
    "oci-archive": ".oci.tar",
    "docker-archive": ".docker.tar",
    "sandbox": "",
}


@dataclass(frozen=True)
class Exported:
    """The written export."""

    path: Path
    form: Form
    size: Annotated[int | None, Described("bytes of the file; null for a directory", ge=0)]
    notes: Notes


def export(image: Path, form: Form, target: Path, site: Site, reporter: Reporter, *, force: bool) -> Exported:
    """Write the SIF `image` in this form to `target`, completely or not at all.

    An existing file is only replaced with `force`, a directory never. A killed run leaves a hidden directory beside the
    target, which the next run removes. Raises FetchError if an existing target stays, NoSpaceError, PermissionsError,
    and ImageError for an unreadable SIF.
    """
    if form == "sandbox" and os.path.lexists(target):
        raise FetchError(
            f"{target} exists already; nothing was written",
            "name another directory, or remove this one if you do not need its changes",
        )
    with target_store(target, reporter.tree(site), replace=force) as one, one.incoming() as incoming:
        notes = _write(image.resolve(), form, incoming, site, reporter)
        one.add(incoming, "")
    return Exported(target, form, target.stat().st_size if target.is_file() else None, notes)


def _write(image: Path, form: Form, to: Path, site: Site, reporter: Reporter) -> tuple[str, ...]:
    runtime = Runtime(site.runtime_kind, site.runtime_path)
    match form:
        case "sif":
            write_sif(image, to)
            return ()
        case "sqsh":
            return write_sqsh(image, to, fetch_settings(site), runtime)
        case "sandbox":
            return write_directory(image, to, reporter.progress)
        case _:
            return write_archive(image, to, form, runtime, reporter.progress)
