"""The scripts in `/.singularity.d/env`, which the runtimes read in the order of their names before any command.

The names have a meaning: after 10-docker2singularity.sh the usual directories are added to PATH, after 99-base.sh come
the variables of `--env` and of APPTAINERENV_*. One mistake in a script loses all of its variables.
"""

import re
from collections.abc import Sequence

from sifmod.image.convert.metadata.quoted import shell_word

IMAGE_ENVIRONMENT = "10-docker2singularity.sh"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALLERS = (
    "HOME",
    "PWD",
    "OPTIND",
    "SINGULARITY_SHELL",
)  # the caller's value, if any, wins
_OF_THE_RUNTIME = re.compile(
    r"UID|EUID|GID|(APPTAINER|SINGULARITY)_(NAME|CONTAINER|INSTANCE|APPNAME)|__(exported_env|script|\w+_cmd)__"
)

CUSTOM = """#!/bin/sh
# for variables that a definition file adds
"""

APPS = """#!/bin/sh
# an app of the Scientific Filesystem, chosen with --app
if [ -n "${SINGULARITY_APPNAME:-}" ]; then
    SCIF_APPS=/scif/apps
    SCIF_APPROOT="$SCIF_APPS/$SINGULARITY_APPNAME"
    export SINGULARITY_APPNAME SCIF_APPS SCIF_APPROOT
    if [ ! -d "$SCIF_APPROOT" ]; then
        echo "there is no app $SINGULARITY_APPNAME in this image" >&2
        exit 1
    fi
    PATH="$SCIF_APPROOT:$SCIF_APPS/singularity:$PATH"
    if [ -d "$SCIF_APPROOT/bin" ]; then
        PATH="$SCIF_APPROOT/bin:$PATH"
    fi
    if [ -d "$SCIF_APPROOT/lib" ]; then
        LD_LIBRARY_PATH="$SCIF_APPROOT/lib:${LD_LIBRARY_PATH:-}"
        export LD_LIBRARY_PATH
    fi
    if [ -f "$SCIF_APPROOT/scif/env/01-base.sh" ]; then
        . "$SCIF_APPROOT/scif/env/01-base.sh"
    fi
    if [ -f "$SCIF_APPROOT/scif/env/90-environment.sh" ]; then
        . "$SCIF_APPROOT/scif/env/90-environment.sh"
    fi
    export PATH
fi
"""

BASE = """#!/bin/sh
# the libraries that --nv and --rocm bring; --env and APPTAINERENV_* come right after this file
LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/.singularity.d/libs"
export LD_LIBRARY_PATH
"""

RUNTIME_VARIABLES = """#!/bin/sh
# what APPTAINERENV_PATH, _PREPEND_PATH and _APPEND_PATH ask for
if [ -n "${SING_USER_DEFINED_PREPEND_PATH:-}" ]; then
    PATH="$SING_USER_DEFINED_PREPEND_PATH:$PATH"
fi
if [ -n "${SING_USER_DEFINED_APPEND_PATH:-}" ]; then
    PATH="$PATH:$SING_USER_DEFINED_APPEND_PATH"
fi
if [ -n "${SING_USER_DEFINED_PATH:-}" ]; then
    PATH="$SING_USER_DEFINED_PATH"
fi
unset SING_USER_DEFINED_PREPEND_PATH SING_USER_DEFINED_APPEND_PATH SING_USER_DEFINED_PATH
export PATH
"""


def image_environment(env: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The script that sets the image's variables to exactly their values, and a warning for each that it cannot set.

    `env` is the config's: `NAME=value`, or a bare `NAME`, which is set to nothing as Apptainer's own conversion does.
    Of several with one name the last counts, as for the OCI runtimes.
    """
    lines, warnings = ["#!/bin/sh"], []
    for entry in env:
        name, _, value = entry.partition("=")
        if wrong := _refused(name, value):
            warnings.append(f"the image's variable {name[:100]!r} is left out: {wrong}")
        else:
            guard = f'[ -n "${{{name}:-}}" ] || ' if name in _CALLERS else ""
            lines.append(f"{guard}export {name}={shell_word(value)}")
    return "\n".join(lines) + "\n", tuple(warnings)


def _refused(name: str, value: str) -> str:
    if not _NAME.fullmatch(name):
        return "no shell can set a variable of this name"
    if _OF_THE_RUNTIME.fullmatch(name):
        return "the runtime sets it itself"
    return "its value holds a NUL" if "\0" in value else ""
