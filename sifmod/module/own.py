"""The modulefile of sifmod itself."""

from typing import NamedTuple

from sifmod.config.kinds import Syntax
from sifmod.module.render import templates

# what click generates for bash, as the body of a function; it starts sifmod at TAB only
COMPLETION = """\
local IFS=$'\\n' response completion type value;
response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _SIFMOD_COMPLETE=bash_complete sifmod);
for completion in $response; do
IFS=',' read -r type value <<< "$completion";
case $type in dir) COMPREPLY=(); compopt -o dirnames;; file) COMPREPLY=(); compopt -o default;;
plain) COMPREPLY+=("$value");; esac;
done"""


class Own(NamedTuple):
    """Where an installation of sifmod is."""

    bin: str  # the directory of the command
    alone: bool  # no Python is in it, which would hide the user's: it may go to the front of PATH
    man: str = ""  # the directory of its man pages, "" without any
    packages: str = ""  # the directory that PYTHONPATH needs, "" without need


def modulefile(own: Own, syntax: Syntax) -> str:
    """The modulefile, for Lmod (`lua`) or for either module tool (`tcl`). Raises ModuleError for a path with NUL."""
    return templates(syntax).get_template(f"own.{syntax}.j2").render(own=own, bash=COMPLETION)
