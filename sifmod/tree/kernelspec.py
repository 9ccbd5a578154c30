"""Jupyter kernelspecs: a directory with two files each, in the user's data directory."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from sifmod.config.name import ModuleName, is_part
from sifmod.config.prefix import data_home
from sifmod.errors import InstallError
from sifmod.result import Described, OrNull
from sifmod.system import meaning, user_name
from sifmod.tree.durable import content, is_there, make_directory, move, names, parsed, write
from sifmod.tree.explain import explain
from sifmod.tree.removal import prune

START = "python"
_SPEC = "kernel.json"


@dataclass(frozen=True)
class Kernelspec:
    """The Python of a module, with a layer, as a Jupyter kernel."""

    module: ModuleName
    layer: Annotated[OrNull[str], Described("name of the layer; null: the module's default layer")]

    @property
    def kernel(self) -> Annotated[str, Described("name of the kernel, as in `jupyter kernelspec list`")]:
        """The kernel's name, with the letters that Jupyter allows: lower case, digits, `.`, `_` and `-`."""
        parts = (self.module.name, self.module.version, *(("", self.layer) if self.layer else ()))
        return re.sub("[^A-Za-z0-9._-]", lambda sign: f"_{ord(sign[0]):02x}", "-".join(parts)).lower()

    @property
    def display_name(self) -> Annotated[str, Described("name that people choose in Jupyter")]:
        return f"{self.module.name} {self.module.version}{f', layer {self.layer}' if self.layer else ''}"

    @property
    def removal(self) -> str:
        return f"sifmod jupyter {self.module}{f' --layer {self.layer}' if self.layer else ''} --remove"


def kernels_directory(environ: Mapping[str, str]) -> Path:
    """The directory of the user's own kernelspecs."""
    data = environ.get("JUPYTER_DATA_DIR")
    return (Path(data).absolute() if data else data_home(environ) / "jupyter") / "kernels"


def our_kernelspecs(kernels: Path) -> Iterator[Kernelspec]:
    return filter(None, (_owner(kernels / name) for name in names(kernels)))


def write_kernelspec(kernels: Path, spec: Kernelspec, start: str) -> bool:
    """Write a kernelspec, with `start` as the text of the script to start as Python; returns whether anything changed.

    Raises InstallError or PermissionsError if it cannot be written or another kernelspec has its name.
    """
    _check_link(kernels)
    place = kernels / spec.kernel
    there = is_there(place / _SPEC) or (is_there(place) and not place.is_dir())
    if (there or place.is_symlink()) and _owner(place) != spec:  # or of another module with the same spelling
        raise InstallError(
            f"{place} exists already, and is not the kernelspec of {spec.display_name}",
            "its kernel.json, if there is one, shows what it is; move or remove it",
        )
    kernel = {
        # VS Code accepts a Python kernel only as `<program> -m <module> …`
        "argv": [str(place / START), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": spec.display_name,
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": {"debugger": True, "sifmod": asdict(spec) | {"module": str(spec.module)}},
    }
    files = {START: start.encode(), _SPEC: (json.dumps(kernel, ensure_ascii=False, indent=1) + "\n").encode()}
    if all(content(place / name) == data for name, data in files.items()) and os.access(place / START, os.X_OK):
        return False
    with _reported(f"cannot write the kernelspec {place}"):
        new = {name: place / f".{name}.new" for name in files}
        try:
            make_directory(place, kernels)
            for name, path in new.items():
                path.unlink(missing_ok=True)
                write(path, files[name], kernels, 0o777 if name == START else 0o666)
            for name, path in new.items():  # the last file makes it a kernelspec
                move(path, place / name, kernels)
        except BaseException:
            for path in new.values():
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            prune(place, kernels.parent)
            raise
    return True


def remove_kernelspec(kernels: Path, spec: Kernelspec) -> None:
    """Remove the files of a kernelspec; others in its directory stay. Raises InstallError or PermissionsError."""
    place = kernels / spec.kernel
    _check_link(kernels)
    if place.is_symlink():
        raise InstallError(f"{place} is a link, so nothing behind it was removed", f"remove it: rm {place}")
    with _reported(f"cannot remove the kernelspec {place}"):
        for name in (_SPEC, START, f".{_SPEC}.new", f".{START}.new"):
            (place / name).unlink(missing_ok=True)
    with suppress(OSError):
        place.rmdir()


def _check_link(kernels: Path) -> None:
    """Raise InstallError if another user has put a link in this place, which may lead to this user's own kernels."""
    if kernels.is_symlink() and (owner := kernels.lstat().st_uid) not in (0, os.geteuid()):
        raise InstallError(f"{kernels} is a link of {user_name(owner)}", "set JUPYTER_DATA_DIR to a directory of yours")


@contextmanager
def _reported(doing: str) -> Iterator[None]:
    """Like `reported`, with another hint: kernelspecs are not in a prefix."""
    try:
        yield
    except OSError as error:
        explained = explain(error, doing)
        if meaning(error) in ("denied", "other"):
            explained.hint = (
                "make it writable, or for a new kernelspec set JUPYTER_DATA_DIR to another directory, also when you "
                "start Jupyter"
            )
        raise explained from error


def _owner(place: Path) -> Kernelspec | None:
    """The module and layer of the kernelspec at this path; None for one that sifmod has not written."""

    def owner(data: bytes) -> Kernelspec | None:
        said = json.loads(data)["metadata"]["sifmod"]
        found = Kernelspec(ModuleName.parse(said["module"]), str(said["layer"]))
        return found if is_part(found.layer or "default") and found.kernel == place.name else None

    return parsed(place / _SPEC, owner)
