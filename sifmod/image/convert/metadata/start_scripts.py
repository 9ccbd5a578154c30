"""The scripts in `/.singularity.d`: those in `env`, and those that `run`, `test` and instances start.

The runtimes source those in `env` by name before any command. The names matter: after 10-docker2singularity.sh the
usual directories are added to PATH, after 99-base.sh the variables of `--env` and APPTAINERENV_* are set. One mistake
in a script loses all of its variables. `actions` are for runtimes before 3.6.
"""

import re
from collections.abc import Sequence

from sifmod.errors import ImageError

START = """#!/bin/sh
# an OCI image says nothing about what an instance runs
"""

_READ_ENVIRONMENT = """#!/bin/sh
for script in /.singularity.d/env/*.sh; do
    if [ -f "$script" ]; then
        . "$script"
    fi
done
"""

_SHELL = """if [ -n "${SINGULARITY_SHELL:-}" ] && [ -x "$SINGULARITY_SHELL" ]; then
    exec "$SINGULARITY_SHELL" "$@"
elif [ -x /bin/bash ]; then
    export SHELL=/bin/bash
    exec /bin/bash --norc "$@"
fi
export SHELL=/bin/sh
exec /bin/sh "$@"
"""

_START_INSTANCE = """if [ -x /.singularity.d/startscript ]; then
    exec /.singularity.d/startscript "$@"
fi
"""

_TEST = """if [ -x /.singularity.d/test ]; then
    exec /.singularity.d/test "$@"
fi
echo "this image has no test"
"""

ACTIONS = (
    ("exec", _READ_ENVIRONMENT + 'exec "$@"\n'),
    ("run", _READ_ENVIRONMENT + 'exec /.singularity.d/runscript "$@"\n'),
    ("shell", _READ_ENVIRONMENT + _SHELL),
    (
        "start",
        "#!/bin/sh\nkill -CONT 1  # the first process waits for this\n" + _READ_ENVIRONMENT[10:] + _START_INSTANCE,
    ),
    ("test", _READ_ENVIRONMENT + _TEST),
)

# A runtime that finds the line with `eval`, as it is here, runs the script with its own shell: the image needs none.
_RUN = """#!/bin/sh
# the image's entrypoint, and its command, which the arguments of `run` replace
OCI_ENTRYPOINT={entrypoint}
OCI_CMD={command}

if [ -n "${{SINGULARITY_NO_EVAL:-}}" ]; then
    OCI_ARGUMENTS='"$@"'
else
    # without --no-eval the shell reads the arguments once more: a $NAME in them is the container's
    OCI_ARGUMENTS=
    for OCI_ARGUMENT in "$@"; do
        OCI_ARGUMENTS="$OCI_ARGUMENTS \\"$OCI_ARGUMENT\\""
    done
fi
if [ $# -eq 0 ]; then
    OCI_ARGUMENTS="$OCI_CMD"
fi
SINGULARITY_OCI_RUN="-- $OCI_ENTRYPOINT $OCI_ARGUMENTS"
eval "set ${{SINGULARITY_OCI_RUN}}"
if [ $? -ne 0 ]; then
    echo "cannot read the arguments as shell words: quote them once more, or use run --no-eval" >&2
    exit 2
fi
if [ $# -eq 0 ]; then
    echo "this image has no entrypoint and no command: name one after the image" >&2
    exit 1
fi
exec "$@"
"""
_PLAIN = re.compile(r"[A-Za-z0-9_./:+@%,-]+")
# the runtimes' embedded shell reads '\'' after `export NAME=` as \', and CR LF as LF even within quotes
_QUOTE = "'\"'\"'"
_RETURN = "'\"$(printf '\\r')\"'\n"
IMAGE_ENVIRONMENT = "10-docker2singularity.sh"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALLERS = ("HOME", "PWD", "OPTIND", "SINGULARITY_SHELL")  # the caller's value takes precedence
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


def runscript(entrypoint: Sequence[str], command: Sequence[str]) -> str:
    """The script for `run`: the entrypoint with the arguments, by default the image's command.

    As in Apptainer's conversion, the shell evaluates the arguments, unless SINGULARITY_NO_EVAL is set (`--no-eval`);
    the image's own words are never evaluated. Apptainer's script runs arguments with invalid quoting as a program, and
    lists all variables if there is nothing to run: here both are errors. Raises ImageError for a NUL in the image's
    words.
    """
    if "\0" in "".join((*entrypoint, *command)):
        raise ImageError("the image's entrypoint or command contains a NUL")
    return _RUN.format(entrypoint=_words(entrypoint), command=_words(command))


def _words(words: Sequence[str]) -> str:
    return shell_word(" ".join(shell_word(word) for word in words))


def shell_word(text: str) -> str:
    """One word that dash, bash and the runtimes' embedded shell read back as `text`, which contains no NUL."""
    if _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("'", _QUOTE).replace("\r\n", _RETURN) + "'"


def image_environment(env: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The script that sets the image's variables exactly, and a warning for each that cannot be set.

    `env` is the config's: `NAME=value`, or a bare `NAME`, which is set to an empty value as in Apptainer's conversion.
    The last one of a name counts, as for OCI runtimes. HOME, PWD, OPTIND and SINGULARITY_SHELL are only set if the
    caller's are empty.
    """
    lines, warnings = ["#!/bin/sh"], []
    for entry in env:
        name, _, value = entry.partition("=")
        if wrong := _refused(name, value):
            warnings.append(f"the image's variable {name[:100]!r} is not set: {wrong}")
        else:
            guard = f'[ -n "${{{name}:-}}" ] || ' if name in _CALLERS else ""
            lines.append(f"{guard}export {name}={shell_word(value)}")
    return "\n".join(lines) + "\n", tuple(warnings)


def _refused(name: str, value: str) -> str:
    if not _NAME.fullmatch(name):
        return "a shell cannot set a variable with this name"
    if _OF_THE_RUNTIME.fullmatch(name):
        return "the runtime sets it itself"
    return "its value contains a NUL" if "\0" in value else ""
