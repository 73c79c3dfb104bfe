"""What may be asked for on a bus: installed presets, and those that its hosts offer of their own.

Of this machine's own bus the caller knows what its runner offers, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bridge.client.connection.offers import (
    AT,
    HERE,
    HostOffer,
    changed_since,
    choose,
    offers_on,
    offers_seen,
    remember_names,
)
from bridge.client.connection.session import BusSession
from bridge.errors import PresetNotFoundError, UsageError
from bridge.presets.installed import find, registry
from bridge.presets.model import Preset

Local = Callable[[], Mapping[str, Preset]]


def preset_of(
    session: BusSession, words: str, local: Local, say: Callable[[str, str], None]
) -> tuple[str, Preset | None, str | None]:
    """Return the name that was asked for, its definition as this bus offers it, and the runner that was named.

    The definition is None where only a runner's list of names has it: its host then checks the parameters.

    Args:
        session: the bus.
        words: ``PRESET`` or ``PRESET@RUNNER``.
        local: returns what this machine's own bus offers.
        say: gets a label and a line for people.

    Raises:
        PresetNotFoundError: this machine's own bus offers no such preset.
        UsageError: hosts differ under that name, the named one does not offer it, or it is of no bus.
    """
    name, _, named = words.partition(AT)
    runner = named or None
    if session.embedded:
        preset = _find_here(session, name, local())
        if runner is not None:
            raise UsageError(
                f"{words!r} names runner {runner!r}, and on this machine's own bus nothing runs elsewhere",
                remedy=f"kakeya-mac init --bus ROUTE, or here: kakeya-mac run {name}",
            )
        if name not in registry():
            _say_changed(session, HostOffer(HERE, preset), say)
        return name, preset, None
    if name in registry():
        return name, registry()[name], runner
    offer = choose(name, runner, offers_seen(session, runner))
    if offer is None:
        return name, None, runner
    _say_changed(session, offer, say)
    return name, offer.preset, runner


def _find_here(session: BusSession, name: str, presets: Mapping[str, Preset]) -> Preset:
    """Return a preset of this machine's own bus.

    Raises:
        PresetNotFoundError: there is none.
        UsageError: there is none, and nobody named a bus: that comes first.
    """
    try:
        return find(name, presets)
    except PresetNotFoundError as error:
        if session.settings.bus.source != "embedded":
            raise
        _, mark, near = error.message.partition("; did you mean")
        raise UsageError(
            f"no bus is pinned here, and this machine has no preset {name!r}{mark}{near}",
            remedy="kakeya-mac init --bus ROUTE; what this machine has: kakeya-mac presets",
        ) from error


def _say_changed(session: BusSession, offer: HostOffer, say: Callable[[str, str], None]) -> None:
    """Say that a definition is another than the one of the last run from here."""
    before = changed_since(session, offer)
    if before is not None:
        digests = f"definition {before[:12]} -> {offer.digest[:12]}"
        say("note", f"{offer.preset.name} of {offer.runner} was changed since your last run: {digests}")


def own_presets(session: BusSession | None, local: Local, state_dir: Path) -> dict[str, Preset]:
    """Return what a bus offers beside the installed presets, each under the name that it is asked for by.

    Hosts that differ under one name are told apart: ``NAME@RUNNER``.

    Args:
        session: None for this machine's own bus.
        local: returns what that offers.
        state_dir: where the names are written down for completion.
    """
    if session is None:
        return remember_names(state_dir, {name: preset for name, preset in local().items() if name not in registry()})
    presets: dict[str, Preset] = {}
    for name, hosts in offers_on(session).items():
        alike = len({host.digest for host in hosts}) == 1
        presets |= {name if alike else f"{name}{AT}{host.runner}": host.preset for host in hosts}
    return remember_names(state_dir, presets)


def find_own(words: str, own: Mapping[str, Preset]) -> Preset:
    """Return the preset that ``PRESET`` or ``PRESET@RUNNER`` names among those that a bus offers.

    Raises:
        PresetNotFoundError: none of them does.
    """
    name = words.partition(AT)[0]
    return find(name if name in own else words, {**registry(), **own})


def compared_with(texts: dict[str, str], against: str | None, preset: Preset) -> dict[str, str]:
    """Return the given parameters as text, with the commit that a preset compares with.

    Raises:
        UsageError: the preset compares no commits, or its parameter names one already.
    """
    if against is None:
        return texts
    if not preset.commits:
        raise UsageError(
            f"preset {preset.name!r} compares no commits; --against has no meaning for it",
            remedy="allow a workload whose ratio has commits = [...]: docs/guides/workloads.md",
        )
    name = preset.commits[0]
    if name in texts:
        raise UsageError(f"-p {name}={texts[name][:64]} and --against name two commits; give one of them")
    return {**texts, name: against}
