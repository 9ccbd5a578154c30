"""The kinds of modulefiles and of runtimes, and what tells one from another.

A new one is added here. The type checker then names each place that must decide about it.
"""

from typing import Literal, get_args

Syntax = Literal["lua", "tcl"]  # Lmod's modulefiles, and those of Environment Modules
RuntimeKind = Literal["apptainer", "singularity"]
MpiUse = Literal["image", "host", "auto"]  # whose MPI a module has

StaleLayer = Literal["warn", "quiet", "refuse"]  # what becomes of a start where a layer is for another image

SYNTAXES: tuple[Syntax, ...] = get_args(Syntax)
RUNTIMES: tuple[RuntimeKind, ...] = get_args(RuntimeKind)


def stub_path(module: object, syntax: Syntax) -> str:
    """Where the modulefile of `module` is, below `<prefix>/modules`."""
    match syntax:
        case "lua":
            return f"{module}.lua"
        case "tcl":
            return str(module)


def module_tool(syntax: Syntax) -> str:
    """The module tool whose modulefiles have this syntax."""
    match syntax:
        case "lua":
            return "Lmod"
        case "tcl":
            return "Environment Modules"


def syntax_of(stub: str) -> Syntax:
    """The syntax of a modulefile, by its path."""
    return "lua" if stub.endswith(".lua") else "tcl"


def kind_of(program: str) -> RuntimeKind:
    """What a runtime is by the name of its program, links resolved: `singularity` is often a link to apptainer."""
    return "apptainer" if "apptainer" in program.rpartition("/")[2] else "singularity"
