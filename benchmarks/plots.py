"""Draw the plots of docs/benchmarks.md from its tables, so that a picture shows what is written beside it.

python benchmarks/plots.py

Each picture `docs/benchmarks-NAME.svg` that the page shows is drawn from the first table below it.
"""

import re
from html import escape
from pathlib import Path

PEERS = ("python", "apptainer", "curl", "hand-written")
DOCS = Path(__file__).resolve().parents[1] / "docs"
LABEL, BARS, LINE, MARGIN = 480, 380, 24, 12  # px: room for the labels, longest bar, height of a row


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
    height = LINE * (len(values) + 1) + 2 * MARGIN
    width = LABEL + BARS + 90
    parts = []
    for number, (label, value) in enumerate(values):
        top = MARGIN + LINE * number
        colour = "#b8c4cc" if label.startswith(PEERS) else "#2f6f8f"
        length = max(2.0, BARS * value / longest)
        parts.append(f'<text x="{LABEL - 10}" y="{top + 16}" text-anchor="end">{escape(_short(label))}</text>')
        parts.append(f'<rect x="{LABEL}" y="{top + 3}" width="{length:.1f}" height="{LINE - 7}" fill="{colour}"/>')
        parts.append(f'<text x="{LABEL + length + 6:.1f}" y="{top + 16}">{value:g}</text>')
    parts.append(f'<text x="{LABEL}" y="{height - MARGIN}" class="unit">{escape(unit)}; shorter is better</text>')
    style = "text { font: 13px system-ui, 'DejaVu Sans', sans-serif; fill: #4a5560 } .unit { fill: #7a8791 }"
    size = f'viewBox="0 0 {width} {height}" width="{width}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<style>{style}</style>\n' + "\n".join(
        (f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *parts, "</svg>\n")
    )


def _short(label: str) -> str:
    return label if len(label) <= 72 else f"{label[:71]}…"


if __name__ == "__main__":
    for name, drawn in plots((DOCS / "benchmarks.md").read_text()).items():
        (DOCS / name).write_text(drawn)
