"""The shell blocks of README and docs."""

import re
from pathlib import Path

BLOCK = re.compile(
    r"(?:^<!-- (?P<comment>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


def blocks(page: Path) -> list[str]:
    """The shell blocks of a page that are run, in their order."""
    found = [match for match in BLOCK.finditer(page.read_text()) if match["language"] == "sh"]
    return [match["text"] for match in found if not (match["comment"] or "").startswith("illustration: ")]


def typed(page: Path) -> list[str]:
    """The commands `sifmod …` of a page, in its sentences and blocks; those that name no command are left out."""
    text = page.read_text("utf-8")
    said = re.findall(r"`(sifmod [^`]+)`", re.sub(r"(?ms)^```.*?^```", "", text))
    shown = [line for match in BLOCK.finditer(text) for line in match["text"].splitlines()]
    shown = [line.removeprefix("$ ").split(" #")[0] for line in shown if re.match(r"(\$ )?sifmod ", line)]
    return sorted({" ".join(command.split()) for command in (*said, *shown)})
