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
