"""Write the generated pages of docs/gate: `python -m tests.gate_pages`."""

from __future__ import annotations

from pathlib import Path

from bridge.gate.catalogue import pages

FOLDER = Path(__file__).parents[1] / "docs" / "gate"


def main() -> None:
    """Write every page and remove those of rules that are gone."""
    made = pages()
    for old in FOLDER.glob("G*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
