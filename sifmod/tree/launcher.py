"""What the launcher of a generation sets: variables and bind paths, read back from the script that sets them.

Every generation has this script, whatever its modulefiles are written in, and nothing else says so exactly what a
command of the module gets. Its lines are those of the template `launch.sh`; paths of the generation begin with `$root`,
and are the same in each.
"""

import re
import shlex
from pathlib import Path

from sifmod.module.plan import LAYER_TARGET
from sifmod.tree.disk import content

_WORD = r"""(?:[^\s'"\\;]|'[^']*'|"[^"]*"|\\.)+"""
_INSIDE = re.compile(rf"^  sifmod_set ENV_(\w+) ({_WORD})(?: ({_WORD}))?$", re.MULTILINE)
_PATH = re.compile(rf"^  sifmod_set_path ({_WORD})(?: ({_WORD}))?$", re.MULTILINE)
_HOST = re.compile(rf"^  (?:if \[ -z .*?\]; then )?export ([A-Za-z_]\w*)=({_WORD})", re.MULTILINE)
_BIND = re.compile(rf"^  sifmod_bind(_if_there)? {_WORD} ({_WORD})", re.MULTILINE)
_GPU = re.compile(r"then sifmod_set _([A-Z]+) 1; fi$", re.MULTILINE)
_START = re.compile(r"^launch (.*) \"\$@\"$", re.MULTILINE)
_LAUNCHER = "share/launch.sh"
_WITH_A_LAYER = f"${{sifmod_layer:+{LAYER_TARGET}/bin:}}"
_OF_THE_PLACE = '"$sifmod_image"'


class Launcher:
    """The texts of a generation's scripts; empty where they cannot be read."""

    def __init__(self, root: str) -> None:
        """Reads the launcher of the generation at `root`; raises OSError where the disk does not give it."""
        self._root = root
        self._text = self._script(_LAUNCHER)

    @property
    def there(self) -> bool:
        return bool(self._text)

    @property
    def inside(self) -> dict[str, str]:
        """The variables of the container; PATH holds the directories in front."""
        path = [("PATH", *words) for words in _PATH.findall(self._text)[:1]]
        return {name: _plain(plain or value) for name, value, plain in (*path, *_INSIDE.findall(self._text))}

    @property
    def host(self) -> dict[str, str]:
        """The variables that a load sets on the host, with those that are the runtime's flags for GPUs."""
        found = _HOST.findall(self._text.partition("\nsifmod_set_host() {")[2].partition("\n}\n")[0])
        gpus = {f"SINGULARITY_{flag}": "1" for flag in _GPU.findall(self._text)}
        return gpus | {name: _plain(value) for name, value in found if value != _OF_THE_PLACE}

    @property
    def binds(self) -> dict[str, str]:
        """Bind paths by their target: source, target and options, and whether they are optional."""
        found = {}
        for optional, word in _BIND.findall(self._text):
            source, _, rest = (bind := _plain(word)).partition(":")
            found[rest.partition(":")[0] or source] = f"{bind} (optional)" if optional else bind
        return found

    def command(self, path: str) -> str:
        """The words that the wrapper at this path of the generation starts; "" for a script that is none."""
        found = _START.findall(self._script(path))
        return found[-1] if found else ""

    def _script(self, path: str) -> str:
        return (content(Path(self._root, path)) or b"").decode("utf-8", "replace")


def _plain(word: str) -> str:
    """A word without the quotes of the shell, and without what is there with a layer only."""
    try:
        plain = "".join(shlex.split(word))
    except ValueError:
        plain = word
    return re.sub(r"\$sifmod_(root|prefix)", r"$\1", plain.replace(_WITH_A_LAYER, ""))
