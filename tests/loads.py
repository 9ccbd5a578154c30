"""Load and unload modules in one shell, and look at its environment after each step."""

from collections.abc import Mapping
from pathlib import Path

from plans import Published, plan, publish
from sifmod.config.name import ModuleName
from sifmod.module.plan import Bind
from support.module_tool import ModuleTool, Step

NAME = "PyTorch/2.2.0-rocm-5.6.1"
# what the module tools keep for themselves
OF_THE_TOOL = ("LMOD", "__LMOD", "_ModuleTable", "_LMFILES_", "LOADEDMODULES", "MODULE", "__MODULES", "MANPATH")


def users(step: Step) -> dict[str, str]:
    """The environment without the module tool's own variables."""
    return {name: value for name, value in step.environment.items() if not name.startswith(OF_THE_TOOL)}


def changes(before: Step, after: Step) -> dict[str, str | None]:
    """The variables that differ, our own bookkeeping left out."""
    old, new = users(before), users(after)
    return {
        name: new.get(name)
        for name in old.keys() | new.keys()
        if old.get(name) != new.get(name) and not name.startswith("_SIFMOD_")
    }


def visited(tool: ModuleTool, modules: Path, *steps: str, env: Mapping[str, str] | None = None) -> tuple[Step, ...]:
    """The state before and after each step; every step succeeds and says nothing, but that Lmod tells of a swap."""
    done = tool.session(("true", *steps), modules, env)
    for step in done:
        step.ok()
        assert step.stderr == "" or "reloaded with a version change" in step.stderr, step
    return done


def unloads(tool: ModuleTool, modules: Path, *steps: str, env: Mapping[str, str] | None = None) -> tuple[Step, ...]:
    """The same, and at the end the environment is what it was."""
    done = visited(tool, modules, *steps, env=env)
    assert users(done[-1]) == users(done[0])
    return done


def another(prefix: str, name: str, *binds: str, **env: str) -> Published:
    """A second module, which wants these binds and variables besides the usual."""
    made = plan(
        prefix=prefix,
        module=ModuleName(name, "1"),
        version="1",
        binds=tuple(Bind(bind, bind) for bind in binds),
        env=tuple(sorted(env.items())),
        host_env=(),
        gpu_flags=(),
    )
    return publish(made)
