"""What this bus offers: the definitions that its hosts publish of their own presets, by name and runner.

A definition is the host's word: it is read strictly, and one that is no preset is left out. The host binds parameters
anew, whatever was checked here.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pydantic

from bridge.client.connection.liveness import SeenRunner
from bridge.client.connection.session import BusSession
from bridge.errors import UsageError
from bridge.presets.model import Preset
from bridge.system.durable import write_atomically

AT: Final = "@"
_SEEN: Final = "offers.json"
_NAMES: Final = "offered"
HERE: Final = "this machine"
"""The runner of this machine's own bus, as an offer names it."""


@dataclass(frozen=True)
class HostOffer:
    """A preset of one host's own."""

    runner: str
    preset: Preset

    @property
    def digest(self) -> str:
        """Digest of the whole definition, programs included."""
        return self.preset.digest()


def offers_of(runners: Iterable[SeenRunner]) -> dict[str, tuple[HostOffer, ...]]:
    """Return the offers of runners by the preset's name."""
    offers: dict[str, tuple[HostOffer, ...]] = {}
    for runner in runners:
        for value in runner.beacon.offers:
            try:
                preset = Preset.model_validate_json(json.dumps(value))
            except (pydantic.ValidationError, ValueError, RecursionError):
                continue
            if preset.name in runner.beacon.presets:
                offers[preset.name] = (*offers.get(preset.name, ()), HostOffer(runner.beacon.runner, preset))
    return offers


def offers_on(session: BusSession) -> dict[str, tuple[HostOffer, ...]]:
    """Return what the live runners of an open bus offer of their own."""
    return offers_of(runner for runner in session.runners() if runner.live)


def offers_seen(session: BusSession, runner: str | None) -> dict[str, tuple[HostOffer, ...]]:
    """Return what the runners of an open bus offer of their own, or offered when they were last seen.

    Args:
        session: the bus.
        runner: the one that was named, if any: its last word counts. Of the others, one that is away counts only
            where no live one offers the preset.
    """
    runners = session.runners()
    live = (each for each in runners if each.live or each.beacon.runner == runner)
    return offers_of(runners) | offers_of(live)


def choose(name: str, runner: str | None, offers: Mapping[str, tuple[HostOffer, ...]]) -> HostOffer | None:
    """Return the offer that a name means; None where nobody publishes one.

    Raises:
        UsageError: hosts differ and none is named, or the named one does not offer it.
    """
    offered = offers.get(name, ())
    if runner is not None:
        mine = [offer for offer in offered if offer.runner == runner]
        if not mine and offered:
            choices = ", ".join(f"{name}{AT}{offer.runner}" for offer in offered)
            raise UsageError(
                f"runner {runner!r} does not offer {name!r}; offered: {choices}", remedy="kakeya-mac runners"
            )
        return mine[0] if mine else None
    if len({offer.digest for offer in offered}) > 1:
        choices = ", ".join(f"{name}{AT}{offer.runner} ({offer.digest[:8]})" for offer in offered)
        raise UsageError(
            f"hosts offer different definitions under {name!r}: {choices}",
            remedy=f"name one: {name}{AT}{offered[0].runner}",
        )
    return offered[0] if offered else None


def remember_names(state_dir: Path, own: dict[str, Preset]) -> dict[str, Preset]:
    """Write down what a bus offers of its hosts' own, a name a line, for completion; return it as it is."""
    path, text = state_dir / _NAMES, "".join(f"{name}\n" for name in own)
    # A clone that cannot be written completes fewer names.
    with contextlib.suppress(OSError):
        if (path.read_text("utf-8") if path.exists() else "") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode())
    return own


def changed_since(session: BusSession, offer: HostOffer) -> str | None:
    """Return the digest that this clone saw last under the same name, where it is another; remember this one."""
    path = session.settings.state_dir / _SEEN
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        document = {}
    key = f"{session.record.bus_id} {offer.runner} {offer.preset.name}"
    before = document.get(key) if isinstance(document, dict) else None
    if before != offer.digest:
        path.parent.mkdir(parents=True, exist_ok=True)
        others = document if isinstance(document, dict) else {}
        write_atomically(path, json.dumps({**others, key: offer.digest}).encode())
    return before if isinstance(before, str) and before != offer.digest else None
