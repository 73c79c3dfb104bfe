"""A requester's terminal: runs `kakeya-mac` in this process over a bus in memory, with a clock that can be moved."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bridge.cli.mac.program import Surroundings, main
from bridge.client.clone.store import Store
from bridge.client.connection.session import BusSession, identify
from bridge.ids import ID_PATTERN
from tests.fakes.memory_bus import MemoryBus, MemoryRemote, bus_record


class StepClock:
    """A clock that only moves when somebody sleeps; `plan` runs what is due on the way."""

    def __init__(self) -> None:
        self.at = dt.datetime(2026, 11, 20, 10, 0, 0, tzinfo=dt.UTC)
        self.begun = self.at
        self.due: list[tuple[float, Callable[[], object]]] = []

    def now(self) -> dt.datetime:
        return self.at

    def steady_s(self) -> float:
        return (self.at - self.begun).total_seconds() + 1000.0

    def sleep(self, seconds: float) -> None:
        end = self.at + dt.timedelta(seconds=max(0.001, seconds))
        self.due.sort(key=lambda entry: entry[0])
        while self.due and self.begun + dt.timedelta(seconds=self.due[0][0]) <= end:
            after_s, action = self.due.pop(0)
            self.at = max(self.at, self.begun + dt.timedelta(seconds=after_s))
            action()
        self.at = max(self.at, end)

    def plan(self, after_s: float, action: Callable[[], object]) -> None:
        """Run something `after_s` seconds after now, while somebody sleeps."""
        self.due.append(((self.at - self.begun).total_seconds() + after_s, action))


@dataclass
class Ran:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclass
class Requester:
    """One clone and one bus."""

    folder: Path
    clock: StepClock = field(default_factory=StepClock)
    remote: MemoryRemote | None = None
    record: dict[str, object] = field(default_factory=dict)
    terminal: bool = False
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        record = bus_record(self.clock, **self.record)
        self.bus = MemoryBus(self.remote, clock=self.clock, record=record)

    def run(self, *words: str) -> Ran:
        out, err = io.StringIO(), _Terminal() if self.terminal else io.StringIO()
        code = main(list(words), self.surroundings(out, err))
        return Ran(code, out.getvalue(), err.getvalue())

    def surroundings(self, out: io.StringIO, err: io.StringIO) -> Surroundings:
        environment = {
            "KAKEYA_DATA_DIR": str(self.folder / "data"),
            "KAKEYA_CONFIG_DIR": str(self.folder / "config"),
            "KAKEYA_BUS": "memory",
            "TERM": "xterm",
            **self.environment,
        }
        return Surroundings(out, err, environment, self.folder, self.clock, self.open)

    def open(self, settings, clock) -> BusSession:
        record = identify(self.bus, settings.bus)
        return BusSession(settings, self.bus, record, Store(settings.state_dir), clock)

    def pin(self, key: str) -> None:
        """Go by a runner's key, as ``NAME=KEY``."""
        folder = self.folder / "config"
        folder.mkdir(exist_ok=True)
        text = f'schema = 1\nroute = "memory"\nrunner_keys = ["{key}"]\n'
        (folder / "config.toml").write_text(text, encoding="utf-8")

    def second_clone(self, folder: Path) -> Requester:
        """Return another clone of the same bus with the same clock."""
        return replace(self, folder=folder, remote=self.bus.remote)


def normal(text: str, folder: Path | None = None) -> str:
    """Return output with ids, digests, fences and folders replaced, so that it can be compared as a whole."""
    if folder is not None:
        text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text)
    text = re.sub(r"\b[0-9a-f]{40}\b", "OID", text)
    ids = sorted(set(re.findall(rf"\b{ID_PATTERN}\b", text)))
    for number, run_id in enumerate(ids):
        text = text.replace(run_id, f"ID{number}").replace(run_id[-8:], f"SHORT{number}")
    text = re.sub(r"(untrusted log |\"fence\": \")[0-9a-f]{12}", r"\1FENCE", text)
    return re.sub(r"\b(?=[0-9a-f]*[a-f])[0-9a-f]{12}\b", "SHORT_DIGEST", text)
