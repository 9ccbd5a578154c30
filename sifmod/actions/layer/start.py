"""What a layer starts with: the file by which the image's Python finds it, and its commands on the host."""

from sifmod.image.packages.image_python import ImagePython
from sifmod.module.plan import LAYER_TARGET
from sifmod.module.quote import shell

_START = '''"""Puts a layer in front of the image's own packages, for the one Python that it was made for."""

import os
import sys


def _layer():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if place != here]
    if sys.prefix == {prefix!r} and sys.version_info[:2] == {version!r} and os.path.exists({mark!r}):
        import site

        before = list(sys.path)
        site.addsitedir(os.path.join(os.path.dirname(here), "lib"))
        added = [place for place in sys.path if place not in before]
        packages = [index for index, place in enumerate(before) if place.endswith(("site-packages", "dist-packages"))]
        first = packages[0] if packages else len(before)
        sys.path[:] = before[:first] + added + before[first:]
{jupyter}

_layer()
del sys.modules["sitecustomize"]
try:  # the image's own, which this one hides
    import sitecustomize  # noqa: F401
except ImportError:
    sys.modules["sitecustomize"] = type(sys)("sitecustomize")
'''
# which looks below sys.prefix for its pages, its extensions and its kernels
_JUPYTER = """
        lib = os.path.join(os.path.dirname(here), "lib")
        for name, place in (("JUPYTER_PATH", "share/jupyter"), ("JUPYTER_CONFIG_PATH", "etc/jupyter")):
            places = [one for one in os.environ.get(name, "").split(":") if one]
            os.environ[name] = ":".join(dict.fromkeys([*places, os.path.join(lib, place)]))
        if os.path.isdir(os.path.join(lib, "share/jupyter/lab/static")):
            os.environ.setdefault("JUPYTERLAB_DIR", os.path.join(lib, "share/jupyter/lab"))
"""
_COMMAND = """#!/bin/sh
# Runs a command of a layer, in the container of the module that it was made for.
here=$0
if [ -L "$here" ]; then here=$(readlink -f "$here"); fi
export SIFMOD_LAYER={layer} SIFMOD_LAYERS="${{here%/*}}/../../../../../..${{SIFMOD_LAYERS:+:$SIFMOD_LAYERS}}"
# it need not be Python's
exec "${{here%/*}}/../module/bin/python" -ISc 'import os, sys; os.execv(sys.argv[1], sys.argv[1:])' {path} "$@"
"""


def start_file(python: ImagePython, *, jupyter: bool) -> str:
    """The sitecustomize.py of a layer, `jupyter`: which holds files for Jupyter.

    `.pth` files work in it, as they do not in a directory of PYTHONPATH. Where another module is loaded too, whose
    image has its Python in the same place, a bare `exec` may see this layer over that image. Then the metadata of
    torch, or of what else stays, tell the two apart: their name has the version.
    """
    mark = python.first.place if python.first else python.prefix
    jupyter_too = _JUPYTER if jupyter else ""
    return _START.format(prefix=python.prefix, version=python.version[:2], mark=mark, jupyter=jupyter_too)


def command(name: str, layer: str) -> str:
    """The script that starts the layer's command `name` from the host."""
    return _COMMAND.format(layer=shell(layer), path=shell(f"{LAYER_TARGET}/bin/{name}"))
