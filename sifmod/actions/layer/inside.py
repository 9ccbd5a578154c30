"""Inside: run the module's Python, and uv with it, with a directory mounted where the layer will be."""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from sifmod.errors import ImageError, ModuleError, OptionError
from sifmod.image.child import SERVER, Ended, serving
from sifmod.image.packages.image_python import PROBE, ImagePython, image_python
from sifmod.image.packages.uv import Uv, bytecode_cache, bytecode_place, checked, linked_directory, most_of_uv, uv_cache
from sifmod.image.packages.uv_settings import NOT_OF_IMAGE, config_words, find_links, uv_environment, write_config
from sifmod.module.plan import LAYER_TARGET
from sifmod.tree.durable import read
from sifmod.tree.receipt import Installation

_HINT = "set UV_CACHE_DIR and XDG_CACHE_HOME to other directories"
_MOST_HELD = 64 << 20  # bytes of the image's list of its packages
_WRAPPERS = ("python", "python3")
_LONGEST_LOOK = 600.0  # seconds, with the start of the container
# replaces the variables of these names, whatever the image sets; other users can read arguments, but not the input
_REPLACE = """
import json, os, re, sys
for name in [name for name in os.environ if re.fullmatch(sys.argv[1], name)]:
    del os.environ[name]
for entry in json.loads(sys.stdin.buffer.readline()):
    name, value = (text.encode("latin-1") for text in entry)
    os.environb[name] = value
"""


class Inside(ExitStack):
    """Runs commands in a container, started by the module's wrapper, so that the environment is the module's own.

    The container starts with `start` or the first command, and ends with `end`, on exit, or before an exception
    propagates.
    """

    target = LAYER_TARGET

    def __init__(self, wrapper: Path, directory: Path, visible: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.directory = directory  # of the host, mounted at `target` inside, writable
        self._wrapper = wrapper
        self._visible = visible  # other host paths that must exist inside
        self._run: Callable[..., Ended] | None = None

    def start(self) -> Callable[..., Ended]:
        """Start the container without waiting for it, unless it runs; returns a function that runs a command."""
        if self._run is None:
            environment = self._environment()
            own = [
                [os.fsencode(text).decode("latin-1") for text in entry]
                for entry in environment.items()
                if re.fullmatch(NOT_OF_IMAGE, entry[0])
            ]
            args = (str(self._wrapper), "-I", "-c", _REPLACE + SERVER, NOT_OF_IMAGE)
            first = json.dumps(own).encode() + b"\n"
            self._run = self.enter_context(serving(args, cwd=self.directory, env=environment, first=first))
        return self._run

    def end(self) -> None:
        """End the container, and what commands left running in it."""
        self.close()
        self._run = None

    def python(self, *words: str, limit: float | None = None) -> Ended:
        return self.start()("", *words, limit=limit)

    def uv(self, *words: str) -> Ended:
        words = (*words, *config_words(f"{self.target}/work"), "--color", "never", "--no-progress")
        return checked(self.start()(f"{self.target}/work/uv", *words, most=most_of_uv()))

    def look(self, names: tuple[str, ...]) -> ImagePython:
        """The image's Python and its packages; `names`: protected ones.

        Raises ImageError if Python fails, OSError if the disk is full.
        """
        answer = self.directory / "work" / "held.json"
        ended = self.python("-c", PROBE, f"{self.target}/work/{answer.name}", limit=_LONGEST_LOOK)
        if ended.late:
            raise ImageError(f"the Python of the image gives no answer within {_LONGEST_LOOK:.0f} seconds")
        if ended.code > 0 and answer.is_file():
            raise OSError(ended.code, os.strerror(ended.code), str(answer))
        if ended.code != 0 or not answer.is_file():
            raise ImageError(f"the Python of the image cannot be started: {' '.join(ended.lines[-3:])}")
        try:
            text = read(answer, _MOST_HELD).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ImageError(f"the Python of the image does not list its packages: {error}") from error
        return image_python(text, names)

    def check_seen(self, projects: tuple[str, ...]) -> None:
        """Raise OptionError if a directory is visible inside only because this container binds it."""
        code = "import os, sys; sys.exit(not all(map(os.path.isdir, sys.argv[1:])))"
        if not projects:
            return
        with Inside(self._wrapper, self.directory) as other:
            seen = other.python("-c", code, *projects).code == 0
        if not seen:
            raise OptionError(
                f"the container does not see {' or '.join(projects)}",
                "keep projects below your home directory, or bind their directory: `binds` in the easyconfig or the "
                "site",
            )

    def linked(self, held: ExitStack) -> Path:
        """A temporary directory for `lib`, where uv can hard-link its files instead of copying."""
        made = held.enter_context(linked_directory())
        (self.directory / "lib").symlink_to(f"{self.target}/work/cache/{made.relative_to(uv_cache())}/lib")
        return made

    @property
    def resolver(self) -> Uv:
        """Uv with the image's Python, and the working directory."""
        return Uv(self.uv, self.directory / "work", f"{self.target}/work")

    def _environment(self) -> Mapping[str, str]:
        from uv import find_uv_bin

        work = self.directory / "work"
        cache, compiled = (Path(_bindable(place, _HINT)) for place in (uv_cache(), bytecode_place()))
        cache.mkdir(parents=True, exist_ok=True)
        bytecode_cache()
        (work / "uv").touch()
        for name in ("cache", "bytecode"):
            (work / name).mkdir(exist_ok=True)
        places = dict.fromkeys((*self._visible, *(path for path in find_links() if Path(path).is_dir())))
        binds = [
            f"{self.directory}:{self.target}",
            f"{_bindable(find_uv_bin())}:{self.target}/work/uv:ro",
            f"{cache}:{self.target}/work/cache",
            f"{compiled}:{self.target}/work/bytecode",
            *(_bindable(path) for path in places if path.startswith("/")),
        ]
        environment = uv_environment()
        write_config(work)
        # the home inside is the one in passwd, which may differ from the user's; files may be outside both
        for name, own, place in (("SSL_CERT_FILE", "", "certificates.pem"), ("NETRC", "~/.netrc", "netrc")):
            file = Path(os.path.expanduser(environment.get(name) or own)).absolute()  # noqa: PTH111 (no error)
            if file.is_file() and not set(str(file)) & set(",:"):
                (work / place).touch()
                binds.append(f"{file}:{self.target}/work/{place}:ro")
                environment[name] = f"{self.target}/work/{place}"
        environment.pop("SSL_CERT_DIR", None)
        environment |= {"UV_CACHE_DIR": f"{self.target}/work/cache", "SIFMOD_LAYER": "", "SIFMOD_PIP": "1"}
        for prefix in ("SINGULARITY", "APPTAINER"):
            environment[f"{prefix}ENV_PYTHONHASHSEED"] = "0"  # before 3.11 it decides the bytes of a frozenset
            users = environment.get(f"{prefix}_BIND", "")
            environment[f"{prefix}_BIND"] = ",".join(filter(None, (users, *binds)))
        return environment


def _bindable(path: str | Path, hint: str = "") -> str:
    """The path. Raises OptionError if it cannot be bound."""
    if set(str(path)) & set(",:"):
        raise OptionError(f"{path} contains a comma or a colon, which bind paths cannot express", hint)
    return str(path)


def python_wrapper(installation: Installation) -> Path:
    """The module's Python command; `add.check` ensures that it has one. Raises ModuleError if that was removed."""
    places = [Path(installation.root, "bin", name) for name in _WRAPPERS]
    if found := next((place for place in places if place.is_file() and os.access(place, os.X_OK)), None):
        return found
    lacking = f"{places[0]} of {installation.module} was changed or removed"
    raise ModuleError(lacking, f"`sifmod install {installation.provenance.easyconfig}` restores it")
