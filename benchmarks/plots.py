"""Draw the plots of docs/benchmarks.md from its tables, so that a picture shows what is written beside it.

python benchmarks/plots.py

Each picture `docs/benchmarks-NAME.svg` that the page shows is drawn from the first table below it.
"""

import re
from html import escape
from pathlib import Path

PEERS = ("python", "apptainer", "curl", "hand-written")
DOCS = Path(__file__).resolve().parents[1] / "docs"
BARS, LINE, MARGIN = 400, 42, 12  # px: longest bar, height of a row with its label above the bar
STYLE = """
text { font: 14px system-ui, "DejaVu Sans", sans-serif; fill: #33404a }
.unit { fill: #5a6670 }
.page { fill: #ffffff }
.ours { fill: #2f6f8f }
.peer { fill: #aab7c0 }
@media (prefers-color-scheme: dark) {
text { fill: #d5dde3 }
.unit { fill: #a3b0b9 }
.page { fill: #16191d }
.ours { fill: #5fb0d6 }
.peer { fill: #66737c }
}
"""


def plots(page: str) -> dict[str, str]:
    """File name → picture, of the tables that follow an image of that name."""
    found = {}
    for name, column, table in re.findall(r"!\[[^\]]*\]\((benchmarks-[\w-]+\.svg) \"(.*?)\"\)\n\n((?:\|.*\n)+)", page):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        at = head.index(column)
        rows = [row for row in rows if re.fullmatch(r"[\d.]+", row[at]) and not row[0].startswith("times as fast")]
        values = [(row[0].replace("`", ""), float(row[at])) for row in rows]
        found[name] = picture(values, column)
    return found


def picture(values: list[tuple[str, float]], unit: str) -> str:
    """A bar for each value, sifmod's own in another colour."""
    longest = max(value for _, value in values)
    height = LINE * len(values) + 22 + 2 * MARGIN
    width = BARS + 80 + 2 * MARGIN
    parts = []
    for number, (label, value) in enumerate(values):
        top = MARGIN + LINE * number
        kind = "peer" if label.startswith(PEERS) else "ours"
        length = max(2.0, BARS * value / longest)
        parts.append(f'<text x="{MARGIN}" y="{top + 13}">{escape(_short(label))}</text>')
        parts.append(f'<rect x="{MARGIN}" y="{top + 19}" width="{length:.1f}" height="15" class="{kind}"/>')
        parts.append(f'<text x="{MARGIN + length + 6:.1f}" y="{top + 31}">{value:g}</text>')
    parts.append(f'<text x="{MARGIN}" y="{height - MARGIN}" class="unit">{escape(unit)}; shorter is better</text>')
    size = f'viewBox="0 0 {width} {height}" width="{width}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<style>{STYLE}</style>\n' + "\n".join(
        (f'<rect width="{width}" height="{height}" class="page"/>', *parts, "</svg>\n")
    )


def _short(label: str) -> str:
    return label if len(label) <= 64 else f"{label[:63]}…"


if __name__ == "__main__":
    for name, drawn in plots((DOCS / "benchmarks.md").read_text()).items():
        (DOCS / name).write_text(drawn)
