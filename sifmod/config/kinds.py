"""The kinds of modulefiles and runtimes, and how to recognise them; the words for a module's MPI and stale layers.

New kinds and words are added here; the type checker then reports each `match` that lacks them, but no comparison.
"""

from typing import Literal, get_args

Syntax = Literal["lua", "tcl"]  # Lmod's modulefiles, and those of Environment Modules
RuntimeKind = Literal["apptainer", "singularity"]
MpiUse = Literal["image", "host", "auto"]  # which MPI a module uses

StaleLayer = Literal["warn", "quiet", "refuse"]  # what a start does if a layer is for another image

SYNTAXES: tuple[Syntax, ...] = get_args(Syntax)
RUNTIMES: tuple[RuntimeKind, ...] = get_args(RuntimeKind)


def accelerator_of(word: object) -> object:
    """The accelerator that a word means: `cpu` is `none`, as sifmod writes it."""
    return "none" if word == "cpu" else word


def stub_path(module: object, syntax: Syntax) -> str:
    """The path of `module`'s modulefile below `<prefix>/modules`."""
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
    """The kind of a runtime, by the resolved name of its program: `singularity` is often a link to apptainer."""
    return "apptainer" if "apptainer" in program.rpartition("/")[2] else "singularity"
