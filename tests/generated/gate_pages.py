"""The page of the gate, and which presets hand out turns."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.catalogue import page
from bridge.gate.declared.kind import kinds
from bridge.gate.declared.premises import CLAIM_KINDS
from bridge.presets.installed import registry

SPEED = """# Claims of speed

Seconds are the runner's own only where it hands out turns and stamps them. What the gate does not compute from those
stamps lacks the premise `times` ([G4-TURNS](../gate.md#g4-turns)) and may not be quoted, whatever its program says:
everything of a kind without a preset below, the baseline's tokens a second beside a candidate (a preset of the baseline
alone has them), and a run with too few launches. `tests/unit/bridge/gate/test_turns.py` takes the turns from an honest
run of every kind. Ratios of your own programs are of pairs of processes that the runner starts and times.

| kind | claims of speed | presets whose turns are handed out |
|---|---|---|
"""


def generate() -> dict[str, str]:
    """Return the pages by path."""
    return {"docs/gate.md": page(), "docs/gate/speed-claims.md": SPEED + "".join(_speeds())}


def _speeds() -> Iterator[str]:
    """Yield a line a kind that claims speeds."""
    for name, kind in kinds().items():
        claims = [f"`{metric.pattern}`" for metric in kind.metrics if "times" in CLAIM_KINDS[metric.kind].least]
        turns = [
            f"`{preset.name}`"
            for preset in registry().values()
            if any(output.kind == name for output in preset.outputs)
            and any(command.launches is not None for command in preset.commands)
        ]
        # What host code asks another process and times from outside is the runner's word: G2-PEER.
        outside = "none: timed from outside ([G2-PEER](../gate.md#g2-peer))"
        reason = outside if "outside" in kind.traits else "none: never quoted"
        if claims:
            yield f"| {name} | {' '.join(claims)} | {' '.join(turns) or reason} |\n"
