"""Run contestants interleaved over prompts, check every token, and compare times prompt by prompt.

Each prompt is decoded by every contestant ``repeats`` times, all of them in turns of a few tokens; a contestant's time
for a prompt is the median of its repeats. A contestant whose tokens differ from plain decoding is reported as different
and gets no ratio: it did other work.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from statistics import median
from typing import Any

from engine.bench.peer import Contestant
from engine.bench.turns import SLICE_TOKENS, Decode, take_turns
from engine.measurement.ratio import PairedRatio, paired_ratio
from engine.measurement.selection import Prompt
from engine.protocols import Clock


@dataclass(frozen=True, slots=True)
class Entry:
    """One decode of one contestant; ``identical`` says whether its tokens are those of plain decoding."""

    peer: str
    prompt_id: str
    repeat: int
    tokens: int
    first_s: float
    decode_s: float
    identical: bool


@dataclass(frozen=True, slots=True)
class Contest:
    """What is compared: warm-ups are decoded and forgotten.

    With ``slice_tokens`` None contestants decode whole prompts one after the other, in a drawn order: for a device that
    has room for one of them at a time.
    """

    peers: Sequence[Contestant]
    prompts: Sequence[Prompt]
    warmups: Sequence[Prompt]
    budget_tokens: int
    repeats: int
    seed: str
    clock: Clock
    slice_tokens: int | None = SLICE_TOKENS

    def run(
        self, expected: Callable[[Prompt], tuple[int, ...]], heard: Callable[[Entry], None] = lambda _: None
    ) -> list[Entry]:
        """Decode everything; ``expected`` gives the tokens of plain decoding."""
        chooser = random.Random(f"{self.seed}/contest")  # noqa: S311 - a reproducible order, not a secret
        for prompt in self.warmups:
            self._decoded(prompt, chooser)
        entries: list[Entry] = []
        turns = [(repeat, prompt) for repeat in range(self.repeats) for prompt in self.prompts]
        for repeat, prompt in turns:
            oracle_tokens = expected(prompt)
            for name, decode in self._decoded(prompt, chooser):
                entries.append(_entry(name, prompt, repeat, decode, oracle_tokens))
                heard(entries[-1])
        return entries

    def _decoded(self, prompt: Prompt, chooser: random.Random) -> list[tuple[str, Decode]]:
        """Return every contestant's finished decode of one prompt."""
        order = chooser.sample(list(self.peers), len(self.peers))
        groups = [order] if self.slice_tokens is not None else [[peer] for peer in order]
        finished: list[tuple[str, Decode]] = []
        for group in groups:
            with ExitStack() as stack:
                decodes: list[Decode] = []
                for peer in group:
                    running = stack.enter_context(closing(peer.start(prompt.ids, self.budget_tokens)))
                    decodes.append(Decode(running, self.clock))
                take_turns(decodes, chooser, self.slice_tokens or self.budget_tokens)
            finished += zip((peer.name for peer in group), decodes, strict=True)
        return finished


def _entry(name: str, prompt: Prompt, repeat: int, decode: Decode, oracle_tokens: tuple[int, ...]) -> Entry:
    return Entry(
        name,
        prompt.id,
        repeat,
        tokens=len(decode.tokens),
        first_s=decode.first_s,
        decode_s=decode.arrivals.seconds[-1],
        identical=tuple(decode.tokens) == oracle_tokens,
    )


@dataclass(frozen=True, slots=True)
class Placing:
    """One contestant beside a reference.

    ``speed`` is the reference's decode time over this one's, None where either gave other tokens than plain decoding:
    ``reference_different_prompts`` are those on which the reference did.
    """

    peer: str
    prompts: int
    different_prompts: int
    tokens_per_s: float
    speed: PairedRatio | None
    reference_different_prompts: int = 0


def standings(entries: Sequence[Entry], reference: str) -> list[Placing]:
    """Return every contestant beside ``reference``, by name."""
    times = {name: _by_prompt(entries, name) for name in sorted({entry.peer for entry in entries})}
    different = len({entry.prompt_id for entry in entries if entry.peer == reference and not entry.identical})
    return [_standing(entries, name, ours, times[reference], different) for name, ours in times.items()]


def _standing(
    entries: Sequence[Entry], name: str, ours: dict[str, float], theirs: dict[str, float], reference_different: int
) -> Placing:
    own = [entry for entry in entries if entry.peer == name]
    different = {entry.prompt_id for entry in own if not entry.identical}
    # A one-token answer has no decode time, in any contestant.
    shared = [prompt for prompt in ours if ours[prompt] > 0 and theirs[prompt] > 0]
    speed = None
    if not different and not reference_different and len(shared) > 1:
        speed = paired_ratio([theirs[prompt] for prompt in shared], [ours[prompt] for prompt in shared])
    seconds = sum(entry.decode_s for entry in own)
    tokens = sum(max(entry.tokens - 1, 0) for entry in own)
    tokens_per_s = tokens / seconds if seconds else 0.0
    return Placing(name, len(ours), len(different), tokens_per_s, speed, reference_different)


def _by_prompt(entries: Sequence[Entry], name: str) -> dict[str, float]:
    """Return the median decode time of each prompt."""
    seconds: dict[str, list[float]] = {}
    for entry in entries:
        if entry.peer == name:
            seconds.setdefault(entry.prompt_id, []).append(entry.decode_s)
    return {prompt: median(values) for prompt, values in seconds.items()}


def table(placings: Sequence[Placing], reference: str) -> list[str]:
    """Return the standings as lines of text."""
    lines = [f"{'contestant':<44}{'tokens/s':>10}   decode speed against {reference!r} [95 %]"]
    for row in placings:
        if row.speed is not None:
            speed_text = f"{row.speed.value:.3f} [{row.speed.low:.3f}, {row.speed.high:.3f}] over {row.speed.n} prompts"
        elif row.different_prompts:
            speed_text = (
                f"no ratio: other tokens than plain decoding on {row.different_prompts} of {row.prompts} prompts"
            )
        elif row.reference_different_prompts:
            speed_text = f"no ratio: {reference!r} gave other tokens on {row.reference_different_prompts} prompts"
        else:
            speed_text = "no ratio: fewer than 2 prompts"
        lines.append(f"{row.peer:<44}{row.tokens_per_s:>10.1f}   {speed_text}")
    return lines


def as_row(standing: Placing) -> dict[str, Any]:
    """Return a standing as JSON values."""
    speed = standing.speed
    return {
        "peer": standing.peer,
        "prompts": standing.prompts,
        "different_prompts": standing.different_prompts,
        "tokens_per_s": standing.tokens_per_s,
        "speed": None if speed is None else {"value": speed.value, "low": speed.low, "high": speed.high, "n": speed.n},
    }
