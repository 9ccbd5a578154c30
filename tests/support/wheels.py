"""Small wheels, made by hand: what an index would have."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

_MAIN = """
import sys
def main():
    print(sys.argv[0].rpartition('/')[2], __version__, sys.prefix)
"""


def wheel(
    directory: Path,
    name: str,
    version: str = "1.0",
    files: Mapping[str, str] | None = None,
    requires: tuple[str, ...] = (),
    scripts: tuple[str, ...] = (),
    *,
    empty: bool = False,
    pure: bool = True,
) -> Path:
    """A wheel whose module `name` says its version; `scripts`: commands that print theirs and the Python's prefix.

    `empty`: without the module; not `pure`: it says that it has compiled code.
    """
    info = f"{name}-{version}.dist-info"
    lines = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        *(f"Requires-Dist: {one}\n" for one in requires),
    ]
    body = f"__version__ = {version!r}\n{_MAIN}"
    content = {**({} if empty else {f"{name}/__init__.py": body}), **(files or {}), f"{info}/METADATA": "".join(lines)}
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: {str(pure).lower()}\nTag: py3-none-any\n"
    if scripts:
        content[f"{info}/entry_points.txt"] = "[console_scripts]\n" + "".join(
            f"{one} = {name}:main\n" for one in scripts
        )
    record = "".join(f"{path},{_digest(text)},{len(text.encode())}\n" for path, text in content.items())
    target = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as file:
        for path, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            file.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), text)
    return target


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
