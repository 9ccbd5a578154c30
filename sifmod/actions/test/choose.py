"""The modules to test: those that are named, those that a view loads, and those of a stack."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sifmod.actions.layer.places import known, layouts_of
from sifmod.actions.stack.stack_plan import StackOptions, plan_stack, read_stack
from sifmod.actions.start import installed, resolve
from sifmod.actions.test.test import Step, Tested
from sifmod.actions.view_modules import loaded_by
from sifmod.config.find import SUFFIXES
from sifmod.config.name import ModuleName
from sifmod.config.site import Site
from sifmod.config.yaml.parse import load_yaml
from sifmod.errors import SifmodError
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import Installation


@dataclass(frozen=True)
class Chosen:
    """What is to be tested."""

    words: tuple[str, ...]  # arguments that choose the same modules in another directory
    modules: tuple[Installation, ...]  # with images, each once
    tested: tuple[Tested, ...]  # results that need no container: of views, and of modules that are not installed
    errors: tuple[SifmodError, ...]  # of easyconfigs of a stack, whose modules are unknown
    several: bool  # the result is a list, since more than one module is meant


def choose(names: Sequence[str], site: Site, settings: Mapping[str, str]) -> Chosen:
    """Find the modules of these names; an existing YAML file with `easyconfigs` is a stack.

    Raises ModuleError for a name that fits no module or several, ConfigError for a stack that cannot be read.
    """
    modules = known(layouts_of(site, os.environ))
    words: list[str] = []
    there: dict[ModuleName, Installation] = {}
    tested: list[Tested] = []
    errors: list[SifmodError] = []
    several = len(names) > 1

    def add(module: ModuleName, layout: Layout) -> bool:
        one = installed(layout, module)
        if one.image:
            there.setdefault(module, one)
            return False
        loaded, missing = loaded_by(one, modules)
        tested.append(_view(one, loaded, missing))
        there.update({each.module: each for each in loaded if each.module not in there})
        return True

    for name in names:
        if _is_stack(Path(name)):
            several = True
            words.append(str(Path(name).absolute()))
            plan = plan_stack(read_stack(Path(name), StackOptions(settings)))
            for step in plan.steps:
                if step.module is None:
                    errors += [step.error] if step.error else []
                elif step.generation:
                    add(step.module, plan.layout)
                else:
                    tested.append(_missing(step.module, name))
        else:
            module = resolve(name, modules)
            words.append(str(module))
            several |= add(module, modules[module])
    return Chosen(tuple(words), tuple(there.values()), tuple(tested), tuple(errors), several)


def _is_stack(path: Path) -> bool:
    return path.suffix in SUFFIXES and path.is_file() and "easyconfigs" in load_yaml(path).node.entries


def _view(view: Installation, loaded: Sequence[Installation], missing: Sequence[str]) -> Tested:
    text, hint = f"it loads {', '.join(str(one.module) for one in loaded)}", None
    if missing:
        text, hint = f"not installed here: {', '.join(missing)}", "`sifmod list` shows what is installed"
    step = Step("modules", "failed" if missing else "passed", text, 0.0, hint=hint)
    return Tested(view.module, view.root, (), (step,), None, None)


def _missing(module: ModuleName, stack: str) -> Tested:
    step = Step("installed", "failed", "it is not installed", 0.0, hint=f"`sifmod stack apply {stack}` installs it")
    return Tested(module, None, (), (step,), None, None)
