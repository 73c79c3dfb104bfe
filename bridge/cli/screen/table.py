"""A table that fits its screen: what is least needed goes first, then long cells are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP = "  "
_CUT = "…"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        least: characters to which its cells may be cut; 0 where they are never cut.
        rank: columns of a higher rank are left out first where the screen is too narrow; 0 always stays.
        right: whether its cells stand at the right.
    """

    name: str
    least: int = 0
    rank: int = 0
    right: bool = False


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return the header and a line per row.

    Args:
        columns: of every row.
        rows: cells, as clean text.
        width: characters of the screen, None for as many as it takes.
    """
    shown = [place for place in range(len(columns)) if any(row[place] for row in rows) or columns[place].rank == 0]
    widths = {place: max(len(columns[place].name), *(len(row[place]) for row in rows), 0) for place in shown}
    while width is not None and _total(widths) > width:
        over = _total(widths) - width
        longest = max(
            (place for place in widths if _slack(columns, widths, place)), key=widths.__getitem__, default=None
        )
        last = max(widths, key=lambda place: columns[place].rank)
        if longest is not None and sum(_slack(columns, widths, place) for place in widths) >= over:
            widths[longest] -= 1
        elif columns[last].rank:
            del widths[last]
        else:
            break  # narrower than what always stays
    heads = [column.name for column in columns]
    return [_line(columns, cells, widths) for cells in (heads, *rows)]


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(GAP) * (len(widths) - 1)


def _slack(columns: Sequence[Column], widths: dict[int, int], place: int) -> int:
    least = columns[place].least
    return max(0, widths[place] - max(least, len(columns[place].name))) if least else 0


def _line(columns: Sequence[Column], cells: Sequence[str], widths: dict[int, int]) -> str:
    parts = []
    for place, width in widths.items():
        cell = cells[place]
        cell = cell if len(cell) <= width else f"{cell[: width - 1]}{_CUT}"
        parts.append(f"{cell:>{width}}" if columns[place].right else f"{cell:<{width}}")
    return GAP.join(parts).rstrip()
