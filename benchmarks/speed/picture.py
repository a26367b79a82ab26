"""The races as one picture: a bar per contestant, with the spread of its repetitions."""

from __future__ import annotations

from html import escape

WIDTH, LABELS, BAR, GAP, HEAD = 760, 230, 18, 6, 34
# Names of classes: the picture has its own background, in the light or dark scheme of the reader.
OURS, THEIRS = "ours", "theirs"
STYLE = """\
<style>
.paper { fill: #ffffff; }
text { fill: #1f2933; }
line { stroke: #1f2933; }
.ours { fill: #0b6e4f; }
.theirs { fill: #b8c4cc; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #1a1c1e; }
  text { fill: #cfd0d0; }
  line { stroke: #ffffff; }
  .ours { fill: #2fa37c; }
  .theirs { fill: #5b6670; }
}
</style>"""


def plot(results: dict[str, dict[str, dict]]) -> str:
    """Draw all workloads, one below the other, each to a scale of its own."""
    parts, top = [], 8
    for name, found in results.items():
        parts += _workload(name, found, top)
        top += HEAD + len(found) * (BAR + GAP) + 12
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" '
        f'font-family="sans-serif" font-size="12">\n{STYLE}\n'
        f'<rect class="paper" width="{WIDTH}" height="{top}"/>\n{body}\n</svg>\n'
    )


def _workload(name: str, found: dict[str, dict], top: int) -> list[str]:
    ordered = sorted(found.items(), key=lambda item: -item[1]["median"])
    scale = (WIDTH - LABELS - 90) / max(row["high"] for _, row in ordered)
    title = f"{name}: samples per second (bar: median; line: lowest to highest repetition)"
    parts = [f'<text x="8" y="{top + 16}" font-weight="bold">{escape(title)}</text>']
    for place, (contestant, row) in enumerate(ordered):
        y = top + HEAD + place * (BAR + GAP)
        low, middle, high = (LABELS + row[key] * scale for key in ("low", "median", "high"))
        kind = OURS if contestant == "Motet" else THEIRS
        parts += [
            f'<text x="{LABELS - 8}" y="{y + 13}" text-anchor="end">{escape(contestant)}</text>',
            f'<rect x="{LABELS}" y="{y}" width="{middle - LABELS:.1f}" height="{BAR}" '
            f'class="{kind}"/>',
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y + BAR / 2}" y2="{y + BAR / 2}"/>',
            f'<text x="{high + 6:.1f}" y="{y + 13}">{row["median"]:,.0f}</text>',
        ]
    return parts
