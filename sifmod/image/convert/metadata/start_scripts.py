"""The scripts that `run`, `test` and instances start: in `/.singularity.d`, and `actions` for runtimes before 3.6."""

from collections.abc import Sequence

from sifmod.errors import ImageError
from sifmod.image.convert.metadata.quoted import shell_word

START = """#!/bin/sh
# an OCI image says nothing about what an instance runs
"""

_ENVIRONMENT = """#!/bin/sh
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

_START = """if [ -x /.singularity.d/startscript ]; then
    exec /.singularity.d/startscript "$@"
fi
"""

_TEST = """if [ -x /.singularity.d/test ]; then
    exec /.singularity.d/test "$@"
fi
echo "this image has no test"
"""

ACTIONS = (
    ("exec", _ENVIRONMENT + 'exec "$@"\n'),
    ("run", _ENVIRONMENT + 'exec /.singularity.d/runscript "$@"\n'),
    ("shell", _ENVIRONMENT + _SHELL),
    ("start", "#!/bin/sh\nkill -CONT 1  # the first process waits for this\n" + _ENVIRONMENT[10:] + _START),
    ("test", _ENVIRONMENT + _TEST),
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
    for argument in "$@"; do
        OCI_ARGUMENTS="$OCI_ARGUMENTS \\"$argument\\""
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


def runscript(entrypoint: Sequence[str], command: Sequence[str]) -> str:
    """The script behind `run`: the entrypoint with the arguments, or with the image's command where there are none.

    As in Apptainer's own conversion the shell evaluates the arguments, unless SINGULARITY_NO_EVAL is set (`--no-eval`);
    the image's own words are never evaluated. Apptainer's script lets arguments that are no shell words run as a
    program, and lists all variables where there is nothing to run: here both are errors. Raises ImageError for a NUL
    in the image's words, with which no program can start.
    """
    if "\0" in "".join((*entrypoint, *command)):
        raise ImageError("the image's entrypoint or command holds a NUL")
    return _RUN.format(entrypoint=_words(entrypoint), command=_words(command))


def _words(words: Sequence[str]) -> str:
    return shell_word(" ".join(shell_word(word) for word in words))
