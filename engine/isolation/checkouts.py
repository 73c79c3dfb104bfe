"""One commit's code as an arm: a child process that decodes, and what must hold of where its modules came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engine.errors import UsageError
from engine.isolation import commit_worker
from engine.isolation.children import ChildProcess
from engine.measurement.arms import Running
from engine.types import Step, StopReason

PACKAGE = "engine"
_WORKER = Path(commit_worker.__file__).resolve()


@dataclass(frozen=True, slots=True)
class Opening:
    """What every side loads; models as paths, so that both sides read the same files."""

    backend: str
    target: str
    drafter: str | None
    depth: int
    chunk_tokens: int


class Side:
    """An arm whose code is a checkout's."""

    def __init__(self, arm: str, checkout: Path, opening: Opening) -> None:
        """Start the child and load the models.

        Raises:
            UsageError: there is no engine in that folder.
            ChildError: it cannot load them; a checkout too old or too new for this harness is one reason.
        """
        if not (checkout / PACKAGE / "__init__.py").is_file():
            raise UsageError(f"{checkout} holds no package {PACKAGE!r}; expected a checkout of this project")
        self.arm, self.checkout = arm, checkout
        self._child = ChildProcess(f"{arm} ({checkout.name})", _WORKER, [str(checkout)])
        self._allocator: int | None = None
        self._begun = 0
        try:
            self._child.ask(
                "open",
                backend=opening.backend,
                target=opening.target,
                drafter=opening.drafter,
                depth=opening.depth,
                chunk=opening.chunk_tokens,
                fields=[field.name for field in fields(Step)],
            )
            self.facts = self._child.answer()
        except BaseException:
            self.close()
            raise

    def start(self, ids: tuple[int, ...], budget: int, stop_ids: frozenset[int]) -> Running:
        """Begin decoding; nothing is asked until a step is wanted: the first one, then all the others at once."""
        figures: dict[str, Any] = {}
        self._begun += 1
        number = self._begun

        def steps() -> Iterator[Step]:
            self._child.ask("begin", number=number, ids=list(ids), budget=budget, stop_ids=sorted(stop_ids))
            first = self._child.answer()
            figures["kv_bytes"] = first["kv_bytes"]
            yield _step(first["step"])
            self._child.ask("go_on", number=number)
            rows = self._child.answer()["steps"]
            figures.update(self._child.answer())
            self._allocator = figures["allocator_active_bytes"]
            for row in rows:
                yield _step(row)

        return Running(
            steps=steps(),
            kv_bytes=lambda: int(figures["kv_bytes"]),
            drafter_bytes=lambda: figures.get("drafter_bytes"),
            fallbacks=lambda: figures["fallbacks"],
        )

    def allocator_active_bytes(self) -> int | None:
        """Return what the child's allocator held after the last generation."""
        return self._allocator

    def margin(self, ids: tuple[int, ...]) -> float:
        """Return how near a tie this code's choice after some ids is."""
        self._child.ask("margin", ids=list(ids))
        return float(self._child.answer()["margin"])

    def imported(self) -> str:
        """Return where this side's engine came from, relative to the folder of all checkouts.

        Raises:
            UsageError: a module of the engine came from somewhere else.
        """
        self._child.ask("imported")
        files = [Path(name) for name in self._child.answer()["files"]]
        inside = self.checkout.resolve()
        strays = [str(file) for file in files if not file.is_relative_to(inside) and file != _WORKER]
        package = inside / PACKAGE / "__init__.py"
        if strays or package not in files:
            raise UsageError(
                f"{self.arm}: imported {strays[0] if strays else 'no engine'}, expected modules of {inside} only"
            )
        return package.relative_to(inside.parent).as_posix()

    def sources_digest(self) -> str:
        """Return sha256 over names and contents of the package's Python files: equal digests are equal code."""
        digest = hashlib.sha256()
        for file in sorted((self.checkout / PACKAGE).rglob("*.py")):
            name = file.relative_to(self.checkout).as_posix()
            digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
        return digest.hexdigest()

    def close(self) -> None:
        """End the child process."""
        self._child.close()


def _step(row: Mapping[str, Any]) -> Step:
    values = dict(row)
    values["tokens"] = tuple(values["tokens"])
    values["stop"] = None if values["stop"] is None else StopReason(values["stop"])
    return Step(**values)
