"""Draw how near the controller comes to the best fixed depth on published row costs.

``python -m tests.replays`` writes docs/evidence/engine/replays.svg.
"""

from __future__ import annotations

from pathlib import Path

from tests.fakes.published_curves import ACCEPTED, CURVES, share

SVG = Path(__file__).resolve().parents[1] / "docs" / "evidence" / "engine" / "replays.svg"
LINES = (
    ("2,048 tokens, costs read", 2048, True, "#1b6ca8"),
    ("512 tokens, costs read", 512, True, "#2a9d5c"),
    ("512 tokens, nothing known", 512, False, "#c0392b"),
)
WIDTH, HEIGHT, ACROSS, EDGE = 220, 150, 3, 44
LEAST = 0.8
"""What the axis of shares begins at."""


def panel(name: str, left: int, top: int) -> list[str]:
    """Return the elements of one curve's panel: shares of the best fixed depth over acceptance."""
    plot_w, plot_h = WIDTH - EDGE - 12, HEIGHT - 50

    def at(place: int, value: float) -> str:
        x = left + EDGE + plot_w * place / (len(ACCEPTED) - 1)
        return f"{x:.1f},{top + 24 + plot_h * (1 - (max(value, LEAST) - LEAST) / (1 - LEAST)):.1f}"

    drawn = [f'<text x="{left + EDGE}" y="{top + 14}" font-weight="bold">{name}</text>']
    for value in (0.8, 0.9, 1.0):
        y = at(0, value).split(",")[1]
        drawn.append(f'<path d="M{left + EDGE} {y}h{plot_w}" stroke="#ddd"/>')
        drawn.append(f'<text x="{left + EDGE - 6}" y="{y}" dy="4" text-anchor="end">{value:.1f}</text>')
    for place, rate in enumerate(ACCEPTED):
        x = at(place, 1.0).split(",")[0]
        drawn.append(f'<text x="{x}" y="{top + HEIGHT - 10}" text-anchor="middle">{rate}</text>')
    for _, tokens, read, colour in LINES:
        values = [share(name, rate, tokens, read=read) for rate in ACCEPTED]
        points = " ".join(at(place, value) for place, value in enumerate(values))
        listed = ", ".join(f"{value:.3f}" for value in values)
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2">')
        drawn.append(f"<title>{name}: {listed}</title></polyline>")
    return drawn


def picture() -> str:
    """Return the whole picture as SVG."""
    rows = -(-len(CURVES) // ACROSS)
    width, height = WIDTH * ACROSS, HEIGHT * rows + 48
    drawn = [
        part
        for place, name in enumerate(CURVES)
        for part in panel(name, place % ACROSS * WIDTH, place // ACROSS * HEIGHT)
    ]
    for place, (label, _, _, colour) in enumerate(LINES):
        x, y = 12 + place * WIDTH, HEIGHT * rows + 16
        drawn.append(
            f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="2"/><text x="{x + 24}" y="{y}">{label}</text>'
        )
    drawn.append(
        f'<text x="12" y="{HEIGHT * rows + 38}">'
        "share of the best fixed depth, over acceptance, for each curve of row costs</text>"
    )
    box, font = f'viewBox="0 0 {width} {height}"', 'font-family="sans-serif" font-size="11"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {box} {font}>'
    return "\n".join([opening, f'<rect width="{width}" height="{height}" fill="#fff"/>', *drawn, "</svg>", ""])


if __name__ == "__main__":
    SVG.write_text(picture(), encoding="utf-8")
