"""Which modules a name on the command line means."""

import difflib
from collections.abc import Iterable

from sifmod.config.name import ModuleName
from sifmod.config.shown import shown
from sifmod.errors import ModuleError


def resolve(name: str, known: Iterable[ModuleName]) -> ModuleName:
    """The module called `name`: in full (`PyTorch/2.2.0-…`), or any beginning that only one module has.

    The spelling of an easyconfig's file (`PyTorch-2.2.0-….yaml`) is understood too. Raises ModuleError.
    """
    modules = sorted(known)
    wanted = name.removesuffix(".yaml")
    exact = [module for module in modules if wanted in (str(module), f"{module.name}-{module.version}")]
    begins = [m for m in modules if str(m).startswith(wanted) or f"{m.name}-{m.version}".startswith(wanted)]
    found = exact or begins
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        listed = "\n".join(f"  {module}" for module in found)
        raise ModuleError(f"`{name}` can be any of\n{listed}", "give more of the name")
    close = difflib.get_close_matches(name, [str(module) for module in modules], n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}?" if close else "`sifmod list` shows what is installed"
    raise ModuleError(f"no module is called `{shown(name)}`", hint)
