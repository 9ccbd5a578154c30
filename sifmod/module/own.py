"""The modulefile of sifmod itself."""

from typing import NamedTuple

from sifmod.config.kinds import Syntax
from sifmod.module.render import templates

# the completions that click generates, as bodies of functions, which start sifmod at TAB only
BASH = """\
local IFS=$'\\n' response completion type value;
response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _SIFMOD_COMPLETE=bash_complete sifmod);
for completion in $response; do
IFS=',' read -r type value <<< "$completion";
case $type in dir) COMPREPLY=(); compopt -o dirnames;; file) COMPREPLY=(); compopt -o default;;
plain) COMPREPLY+=("$value");; esac;
done"""
ZSH = """\
local -a plain described response; local type key descr;
response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) _SIFMOD_COMPLETE=zsh_complete sifmod)}");
for type key descr in ${response}; do
case $type in dir) _path_files -/;; file) _path_files -f;;
plain) if [[ $descr == _ ]]; then plain+=("$key"); else described+=("$key:$descr"); fi;; esac;
done;
if (( $#described )); then _describe -V unsorted described -U; fi;
if (( $#plain )); then compadd -U -V unsorted -a plain; fi"""
FISH = """\
for completion in (env _SIFMOD_COMPLETE=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -t) sifmod);
set -l found (string split ',' $completion);
switch $found[1]; case dir; __fish_complete_directories $found[2]; case file; __fish_complete_path $found[2];
case plain; echo $found[2]; end;
end"""


class Own(NamedTuple):
    """The directories of an installation of sifmod."""

    bin: str  # the directory of the command
    alone: bool  # `bin` has no Python, which would hide the user's: it may be the first in PATH
    man: str = ""  # the directory of its man pages, "" without any
    packages: str = ""  # the directory that PYTHONPATH needs, "" if it needs none


def modulefile(own: Own, syntax: Syntax) -> str:
    """The modulefile of sifmod, for Lmod (`lua`) or any module tool (`tcl`). Raises ModuleError for a NUL in a path."""
    return templates(syntax).get_template(f"own.{syntax}.j2").render(own=own, bash=BASH, zsh=ZSH, fish=FISH)
