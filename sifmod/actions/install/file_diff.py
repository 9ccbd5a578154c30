"""The difference between the files of an installation and those that a plan gives, as `diff -u` has it."""

from difflib import unified_diff
from pathlib import Path

from sifmod.module.plan import Plan
from sifmod.module.render import render
from sifmod.tree.receipt import Installation
from sifmod.tree.stage import STUBS


def difference(installation: Installation, plan: Plan) -> str:
    """What would change if the files were written again in their place; "" where nothing does."""
    root = Path(installation.root)
    after = {file.path: file.text for file in render(plan, installation.generation)}
    ours = [file.path for file in installation.files if not file.path.startswith(f"{STUBS}/")]
    before = {path: _text(root / path) for path in ours if path not in ("easyconfig.yaml", "share/image")}
    lines: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        name = f"{installation.module}/{path}"
        old, new = (texts.get(path, "").splitlines() for texts in (before, after))
        ends = (name if path in before else "/dev/null", name if path in after else "/dev/null")
        lines += unified_diff(old, new, *ends, lineterm="")
    return "\n".join(lines)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""  # it comes back
