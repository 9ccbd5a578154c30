"""How to load a newly installed module: the commands to type, and what may hide it."""

import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

from sifmod.config.input import module_tools
from sifmod.config.kinds import module_tool, syntax_of
from sifmod.tree.receipt import Installation

_EXPANDED = "$[{}"  # Environment Modules reads MODULEPATH as a Tcl list of words to substitute
SPIDER_CACHE_SECONDS = 86400  # Lmod's default lifetime of a user's spider cache


def commands_to_load(installation: Installation, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The shell commands that load the module; `module use` only if MODULEPATH lacks the directory."""
    directory = installation.prefix / "modules"
    known = environ.get("MODULEPATH", "").split(":")
    use = () if str(directory) in known else (f"module use {shlex.quote(str(directory))}",)
    return (*use, f"module load {installation.module}")


def stale_spider_cache(installation: Installation, environ: Mapping[str, str]) -> str | None:
    """A warning if a spider cache that the user's Lmod still reads is older than the module; else None.

    `module load` of a full name still finds it; `avail` and `spider` may not.
    """
    if "LMOD_VERSION" not in environ:
        return None
    home = environ.get("HOME", "")
    directory = installation.prefix / "modules"  # a directory that is not in the cache is read directly
    stubs = [directory / stub.path for stub in installation.stubs]
    newest = max((stub.stat().st_mtime for stub in stubs if stub.exists()), default=0.0)
    for folder in (f"{home}/.cache/lmod", f"{home}/.lmod.d/.cache"):
        for cache in sorted(Path(folder).glob("spiderT*.lua")):
            written = cache.stat().st_mtime
            current = time.time() - written < SPIDER_CACHE_SECONDS
            if written < newest and current and str(directory) in cache.read_text(errors="replace"):
                return (
                    "Lmod's cache of your modules is older than this module: until it is refreshed, `module avail` "
                    f"needs --ignore_cache (or remove it: rm {shlex.quote(os.fspath(cache))})"
                )
    return None


def unseen_warning(installation: Installation, environ: Mapping[str, str]) -> str:
    """A note if a module tool of this machine, or Environment Modules elsewhere, does not see the module; else ""."""
    made = {syntax_of(stub.path) for stub in installation.stubs}
    found = module_tools(environ)
    directory = installation.prefix / "modules"
    if "tcl" in made and set(_EXPANDED) & set(str(directory)):
        signs = ", ".join(_EXPANDED)
        return f"{module_tool('tcl')} finds no module below {directory}: it expands {signs} in a module path"
    tools = [module_tool(syntax) for syntax in found if syntax not in made]
    both = "`--module-syntax both`, or `module_syntax: both` in the settings, writes modulefiles for both"
    return (
        f"{' and '.join(tools)}, which is on this machine too, does not see {installation.module}: {both}"
        if tools
        else ""
    )
