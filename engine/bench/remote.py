"""Decode prompts plainly, with the drafter here, and with the same drafter elsewhere; compare drafts, output and times.

Whole decodes one after the other: in turns of a few tokens a draft would come while another decode has the machine, and
the link would cost nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from engine.decoding.speculative import Parts, speculative
from engine.distributed.placement import DrafterTerms
from engine.distributed.remote_drafter import RemoteDrafter
from engine.drafters.none import NoDrafter
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement.recorded import RecordedSequence
from engine.protocols import Depth, DrafterModel, Sequence
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Decision, Draft, Forward, Step

ROW_SHARE = 0.02
"""Of a forward's time: what each drafted row adds to it on an emulated target."""


class EmulatedSequence:
    """A sequence whose forwards take at least ``forward_s`` seconds: a larger target, emulated by sleeping."""

    def __init__(self, sequence: Sequence, forward_s: float) -> None:
        self._sequence = sequence
        self._forward_s = forward_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sequence, name)

    def forward_block(self, bonus: int, draft: Draft) -> Forward:
        """Queue the forward, and take as long as the larger target would."""
        forward = self._sequence.forward_block(bonus, draft)
        time.sleep(self._forward_s * (1 + ROW_SHARE * draft.count))
        return forward

    def decode_ahead(
        self, bonus: int, limit: int, goes_on: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Decision, Forward]]:
        """Decode plainly at the pace of the larger target."""
        for decided in self._sequence.decode_ahead(bonus, limit, goes_on):
            time.sleep(self._forward_s)
            yield decided


@dataclass(frozen=True, slots=True)
class RemoteDecode:
    """One decode: its tokens, what was drafted at each step, its seconds after the first token, and its link.

    ``drafts`` are position, length and accepted tokens of each step, ``proposed`` the ids of every draft that was
    verified, those that were rejected too. ``sent`` and ``received`` are bytes by kind of message, ``answers_s`` the
    seconds from each ask to its draft, of which the server computed ``drafting_s``. ``kv_bytes`` are those of the
    target's keys and values at the end.
    """

    tokens: tuple[int, ...]
    drafts: tuple[tuple[int, int, int], ...]
    proposed: tuple[tuple[int, ...], ...]
    decode_s: float
    sent: dict[str, int]
    received: dict[str, int]
    answers_s: tuple[float, ...]
    drafting_s: tuple[float, ...]
    kv_bytes: int

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second after the first."""
        return (len(self.tokens) - 1) / self.decode_s

    @property
    def drafted_tokens(self) -> int:
        """Tokens of all drafts that were verified."""
        return sum(drafted for _, drafted, _ in self.drafts)

    @property
    def accepted_tokens(self) -> int:
        """Drafted tokens that the target accepted."""
        return sum(accepted for _, _, accepted in self.drafts)

    @property
    def drafted_steps(self) -> int:
        """Steps that verified a draft."""
        return sum(1 for _, drafted, _ in self.drafts if drafted)

    def drafted_as(self, other: RemoteDecode) -> bool:
        """Say whether the other decode verified the same ids at the same steps, and accepted as many."""
        return (self.drafts, self.proposed) == (other.drafts, other.proposed)

    def row(self) -> dict[str, Any]:
        """Return what a report keeps of it."""
        ordered = sorted(self.answers_s)
        return {
            "tokens": len(self.tokens),
            "decode_s": self.decode_s,
            "steps": len(self.drafts),
            "drafted_steps": self.drafted_steps,
            "accepted": self.accepted_tokens,
            "sent": self.sent,
            "received": self.received,
            "answer_p50_s": ordered[len(ordered) // 2] if ordered else None,
            "answer_most_s": ordered[-1] if ordered else None,
        }


@dataclass(frozen=True, slots=True)
class RemoteTrial:
    """Decodes ``max_new`` tokens on an engine in a layout of keys and values.

    ``forward_s`` above 0 emulates a target that takes so long a token.
    """

    engine: Engine
    max_new: int
    forward_s: float = 0.0
    layout: CacheLayout = CacheLayout.NATIVE

    def decode(self, prompt: tuple[int, ...], model: DrafterModel | None, depth: Depth) -> RemoteDecode:
        """Decode a prompt with a drafter, None for none; stop tokens do not end it."""
        engine = self.engine
        drafter = NoDrafter() if model is None else model.open()
        sequence: Any = engine.target.open(() if model is None else model.capture, self.layout)
        if self.forward_s:
            sequence = EmulatedSequence(sequence, self.forward_s)
        sequence = RecordedSequence(sequence)
        parts = Parts(sequence, drafter, engine.accept, depth, engine.backend.clock, engine.resident)
        steps: list[Step] = []
        began_s = ended_s = time.perf_counter()
        for step in speculative(parts, prompt, Stopping(self.max_new)):
            ended_s = time.perf_counter()
            began_s = ended_s if step.prefill else began_s
            steps.append(step)
        traffic = drafter.traffic if isinstance(drafter, RemoteDrafter) else None
        return RemoteDecode(
            tokens=tuple(token for step in steps for token in step.tokens),
            drafts=tuple((step.position, step.drafted, step.accepted) for step in steps if not step.prefill),
            proposed=sequence.proposed(),
            decode_s=ended_s - began_s,
            sent={} if traffic is None else dict(traffic.sent),
            received={} if traffic is None else dict(traffic.received),
            answers_s=() if traffic is None else tuple(traffic.seconds),
            drafting_s=() if traffic is None else tuple(traffic.drafting_s),
            kv_bytes=sequence.measured_bytes(),
        )


def measured_terms(node: str, decodes: Iterable[RemoteDecode], mib_s: float | None = None) -> DrafterTerms:
    """Return a drafter's terms from decodes that waited for every draft; ``mib_s`` bounds what a link here does not.

    Raises:
        UsageError: If no draft came.
    """
    taken = list(decodes)
    steps = sum(len(decode.drafts) for decode in taken)
    answers = [answer for decode in taken for answer in decode.answers_s]
    drafting = [draft for decode in taken for draft in decode.drafting_s]
    if not answers:
        raise UsageError(f"no draft came from {node}; nothing was measured. Try more prompts or tokens")
    decode_s = sum(decode.decode_s for decode in taken)
    blocks = [(drafted, accepted) for decode in taken for _, drafted, accepted in decode.drafts if drafted]
    # An answer without a draft is one whose first token was not right: prompt lookup answers so wherever it finds none.
    blocks += [(1, 0)] * (len(answers) - len(blocks))
    draft_s = sum(drafting) / len(drafting)
    sent_bytes = sum(sum(decode.sent.values()) for decode in taken)
    moving_s = 0.0 if mib_s is None else sent_bytes / len(answers) / (mib_s * 2**20)
    return DrafterTerms(
        node=node,
        accepted=accepted_by_position(blocks),
        verify_s=max(0.0, decode_s - sum(answers)) / steps,
        draft_s=draft_s,
        link_s=sum(answers) / len(answers) - draft_s + moving_s,
    )


def accepted_by_position(blocks: Iterable[tuple[int, int]]) -> tuple[float, ...]:
    """Return how often each position of drafts was right where those before it were, as far as one was reached.

    Args:
        blocks: tokens and right ones of each draft.
    """
    reached, right = Counter[int](), Counter[int]()
    for drafted, accepted in blocks:
        reached.update(range(min(drafted, accepted + 1)))
        right.update(range(accepted))
    return tuple(right[place] / reached[place] for place in range(len(reached)))
