"""Trainings that continue after being killed: the loop around a step, its checkpoints and the log beside them."""

from __future__ import annotations

import fcntl
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from engine.errors import UsageError

EVERY_S = 90.0
"""Seconds of training that an interruption may cost."""
Progress = Callable[[int, int, dict[str, Any]], None]


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state` to `path` through a temporary file and a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    torch.save(state, temporary)
    os.replace(temporary, path)  # noqa: PTH105 - the atomic call is the point


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.replace(path)


@contextmanager
def only_training(work: Path) -> Iterator[None]:
    """Hold a work folder for one training; a process that ends lets it go, however it ends.

    Raises:
        UsageError: If another training holds it.
    """
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"another training works in {work}; wait for its end, or give another --work") from error
        yield


def load(path: Path) -> dict[str, Any] | None:
    """Return the state at `path`, or None when there is none."""
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


class CurveLog:
    """The training curve as JSON lines in the work folder; lines past the resumed step are dropped."""

    def __init__(self, path: Path, resume_step: int) -> None:
        """Open the log, keeping only what happened up to `resume_step`."""
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            # What follows the last line break was being written when the training was ended.
            whole = path.read_text().split("\n")[:-1]
            self.rows = [row for row in map(json.loads, whole) if row["step"] <= resume_step]
        write_text(path, "".join(json.dumps(row) + "\n" for row in self.rows))

    def append(self, row: dict[str, Any]) -> None:
        """Add one row to memory and file."""
        self.rows.append(row)
        with self.path.open("a") as handle:
            handle.write(json.dumps(row) + "\n")


class Resumable(ABC):
    """A training that continues from its last checkpoint."""

    shown: tuple[str, ...]
    """The counts that are reported beside the loss."""

    def resume(self, work: Path, model: Any, optimisers: Any, made_by: Mapping[str, Any] | None = None) -> None:
        """Restore model, optimisers and counts from the checkpoint in `work`, when there is one.

        Args:
            work: Folder of checkpoint and curve.
            model: What is trained.
            optimisers: What trains it.
            made_by: What makes this training another than the next; plain values.

        Raises:
            UsageError: If the checkpoint is of another training: its record would say what did not happen.
        """
        self.path, self._trained, self._made_by = work / "checkpoint.pt", (model, optimisers), dict(made_by or {})
        state = load(self.path) or {}
        if state:
            stored = state.get("made_by", {})
            other = sorted(
                f"{name} {stored.get(name)} instead of {self._made_by.get(name)}"
                for name in stored.keys() | self._made_by.keys()
                if stored.get(name) != self._made_by.get(name)
            )
            if other:
                raise UsageError(
                    f"{work} holds the state of another training: {', '.join(other)}. Give another --work, or remove it"
                )
            model.load_state_dict(state["model"])
            optimisers.restore(state["optimisers"])
        self.step, self.tokens = int(state.get("step", 0)), int(state.get("tokens", 0))
        self.trained_s = float(state.get("trained_s", 0.0))
        self.curve = CurveLog(work / "curve.jsonl", self.step)

    @abstractmethod
    def train_step(self) -> float:
        """Take one optimiser step, count it and return its loss."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Return what is measured on held-out data."""

    def save(self) -> None:
        """Write model, optimisers and counts to the checkpoint."""
        model, optimisers = self._trained
        state = {"model": model.state_dict(), "optimisers": optimisers.state()}
        counts = {"step": self.step, "tokens": self.tokens, "trained_s": self.trained_s}
        save(self.path, state | counts | {"made_by": self._made_by})

    def advance(
        self,
        total: int,
        evaluate_every: int,
        report: Progress | None,
        stop_after: int | None,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train to `total` steps (or `stop_after`), evaluating and saving on the way; `report` hears of each step.

        `enough` is asked after each evaluation whether to end before, also after the one that a checkpoint was saved
        behind.
        """
        last = min(total, total if stop_after is None else stop_after)
        if self.curve.rows and self.curve.rows[-1]["step"] == self.step and enough():
            last = self.step
        saved_at, smooth = time.perf_counter(), None
        while self.step < last:
            started = time.perf_counter()
            loss = self.train_step()
            self.trained_s += time.perf_counter() - started
            smooth = loss if smooth is None else 0.98 * smooth + 0.02 * loss
            values: dict[str, Any] = {"train_loss": smooth} | {name: getattr(self, name) for name in self.shown}
            if self.step % evaluate_every == 0 or self.step == total:
                values |= self.evaluate()
                self.curve.append({"step": self.step} | values)
                last = self.step if enough() else last
            if report is not None:
                report(self.step, total, values)
            if time.perf_counter() - saved_at > EVERY_S:
                self.save()
                saved_at = time.perf_counter()
