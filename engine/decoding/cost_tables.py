"""What steps cost on one machine, kept in a file: where a controller starts from.

A table holds only for the machine, model, dtype and versions of libraries that it was measured with. One of another is
refused by the name of what differs, and costs are measured anew while decoding.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.decoding.arms import CostTable
from engine.errors import UsageError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class CostKey:
    """What a table of costs holds for.

    Attributes:
        machine: system, processor and device.
        model: digest of the target's folder, sha256 hex.
        dtype: of the target's weights.
        libraries: versions by name.
    """

    machine: str
    model: str
    dtype: str
    libraries: Mapping[str, str]

    def difference(self, other: CostKey) -> str | None:
        """Return the first thing that differs in ``other``, None where nothing does."""
        mine, theirs = asdict(self), asdict(other)
        return next(
            (f"{name} {theirs[name]}; expected {mine[name]}" for name in mine if mine[name] != theirs[name]), None
        )


def read_costs(path: Path, key: CostKey) -> CostTable:
    """Return the table of a file that was measured with ``key``.

    Raises:
        UsageError: If it cannot be read, was measured with something else, or is no table.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        difference = key.difference(CostKey(**stored["key"]))
        if stored["schema"] != SCHEMA:
            difference = f"schema {stored['schema']!r}; expected {SCHEMA}"
        table = {
            str(source): {int(rows): float(step_s) for rows, step_s in by_rows.items()}
            for source, by_rows in stored["steps_s"].items()
        }
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"cannot read step costs of {path}: {error}; expected a file that `eval verify-cost --costs` wrote"
        ) from error
    if difference is not None:
        raise UsageError(f"{path} holds step costs of {difference}. Measure again with `eval verify-cost --costs`")
    check_table(table, str(path))
    return table


def check_table(table: CostTable, where: str) -> None:
    """Check that a table holds what a policy needs.

    Raises:
        UsageError: If a source has no plain step, or a time is not positive.
    """
    for source, by_rows in table.items():
        times_s = list(by_rows.values())
        if 1 not in by_rows or min(by_rows) < 1 or not all(math.isfinite(step_s) and step_s > 0 for step_s in times_s):
            raise UsageError(
                f"step costs of {source or 'the drafter'} in {where} are {dict(by_rows)}; expected positive seconds by "
                "rows, one row among them"
            )
    if not table:
        raise UsageError(f"{where} holds no step costs; expected at least one drafter's")


def write_costs(path: Path, key: CostKey, table: CostTable) -> None:
    """Write a table with what it holds for, whole or not at all.

    Raises:
        UsageError: If it is no table.
    """
    check_table(table, str(path))
    stored: dict[str, Any] = {"schema": SCHEMA, "key": asdict(key), "steps_s": table}
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(stored, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)
