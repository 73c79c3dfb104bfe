"""What a target answers on a bounded cache, and what each part of it holds and moves for that.

An arm is a cache layout by its name, or ``BASE+identity``, whose evicted rows are made again of the layers' own inputs.
The baseline is the library's own decoding on its own cache. Bytes are read from the buffers when the answer is there;
rows made again, pages moved and bytes read are counted where that happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.decoding.depth import FixedDepth
from engine.decoding.prompt import check_prompts
from engine.decoding.speculative import Parts, speculative
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement import arms
from engine.measurement.selection import Prompt, answered
from engine.restoration.canaries import input_restorer
from engine.restoration.restorers import full_layers
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from engine.types import Step

NATIVE = "native"
IDENTITY = "+identity"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to keep rows: its name, its layout, and what evicted rows are made of again, None for no restoration."""

    arm: str
    role: str
    layout: str
    restored_from: str | None
    drafts: bool

    @classmethod
    def parse(cls, text: str, *, drafts: bool) -> Candidate:
        """Return the candidate that a name says.

        Raises:
            UsageError: If it says none.
        """
        if text == NATIVE:
            raise UsageError("arm native is the baseline of every report; expected bounded or quantised layouts")
        identity = text.endswith(IDENTITY)
        layout = CacheLayout.parse(f"{text.removesuffix(IDENTITY)}+ftheta1" if identity else text)
        layout.check_alone()
        restored = "identity" if identity else None if layout.rank is None else "f_theta"
        return cls(text, "candidate", str(layout), restored, drafts)


BASELINE = Candidate(NATIVE, "baseline", NATIVE, None, drafts=False)


@dataclass(frozen=True, slots=True)
class BoundedAnswer:
    """What one arm answered to one prompt, and what it held and moved for that."""

    arm: str
    prompt_id: str
    prompt_digest: str
    prompt_tokens: int
    expected: str
    tokens: tuple[int, ...]
    text: str
    correct: bool
    steps: int
    drafted: int
    accepted: int
    positions_forwarded: int
    kv_bytes: int
    pool_bytes: int = 0
    index_bytes: int = 0
    drafter_bytes: int = 0
    latent_bytes: int = 0
    rows_injected: int = 0
    pages_moved: int = 0
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """What is asked of whom. ``depth`` is how many tokens each candidate drafts a step."""

    candidates: tuple[Candidate, ...]
    prompts: tuple[Prompt, ...]
    max_new_tokens: int
    chunk_tokens: int
    depth: int

    def check(self, engine: Engine) -> None:
        """Check every arm and prompt, before any work.

        Raises:
            UsageError: If there is no arm or prompt, an arm is named twice, cannot be opened, leaves nothing out, or
                needs another drafter.
            PromptError: If a prompt does not fit the target.
        """
        names = [candidate.arm for candidate in self.candidates]
        if not names or len(set(names)) < len(names) or not self.prompts:
            raise UsageError(
                f"arms {', '.join(names) or 'none'} on {len(self.prompts)} prompts; expected distinct arms"
            )
        target: Any = engine.target
        if not full_layers(target.family.structure):
            raise UsageError(
                f"target {target.info.name!r} has no layer of full attention, so nothing leaves its caches and no "
                "canary can be run; expected another target, or `eval kv-quant` for codes of its windows"
            )
        check_prompts((prompt.ids for prompt in self.prompts), engine.target.info, self.max_new_tokens)
        shortest = min(len(prompt.ids) for prompt in self.prompts)
        for candidate in self.candidates:
            layout = CacheLayout.parse(candidate.layout)
            rows = layout.kept_rows
            if rows is not None and rows >= shortest:
                raise UsageError(
                    f"arm {candidate.arm} keeps {rows} rows and the shortest prompt has {shortest} tokens, so nothing "
                    "is left out; expected longer prompts (--least-tokens) or fewer pages"
                )
            layout.check_block(1 + self.depth)
            _opened(engine, candidate, ()).close()


def answers(
    engine: Engine, plan: RecallPlan, tokenizer: Tokenizer, heard: Callable[[BoundedAnswer], None] = lambda _: None
) -> Iterator[BoundedAnswer]:
    """Yield the answer of every arm to every prompt, the baseline first; ``heard`` learns of each.

    Raises:
        UsageError, PromptError: If the plan cannot be measured on this target.
    """
    plan.check(engine)
    for candidate in (BASELINE, *plan.candidates):
        for prompt in plan.prompts:
            stopping = Stopping(plan.max_new_tokens, frozenset(engine.target.info.stop_ids))
            ask = _native if candidate.role == "baseline" else _bounded
            answer = _scored(ask(engine, candidate, plan, prompt, stopping), prompt, tokenizer)
            heard(answer)
            yield answer


def _opened(engine: Engine, candidate: Candidate, capture: tuple[int, ...]) -> Any:
    """Return a sequence on the layout of an arm."""
    target: Any = engine.target
    layout = CacheLayout.parse(candidate.layout)
    if candidate.restored_from == "identity":
        return target.open(capture, layout, input_restorer(target, layout))
    return target.open(capture, layout)


def _native(
    engine: Engine, candidate: Candidate, plan: RecallPlan, prompt: Prompt, stopping: Stopping
) -> BoundedAnswer:
    running = arms.native(engine.native, prompt.ids, stopping, plan.chunk_tokens)
    steps = list(running.steps)
    forwarded = len(prompt.ids) + len(steps) - 1
    return _answer(candidate, prompt, steps, positions_forwarded=forwarded, kv_bytes=running.kv_bytes())


def _bounded(
    engine: Engine, candidate: Candidate, plan: RecallPlan, prompt: Prompt, stopping: Stopping
) -> BoundedAnswer:
    sequence = _opened(engine, candidate, engine.drafter.capture if plan.depth else ())
    drafter = engine.drafter.open()
    parts = Parts(sequence, drafter, engine.accept, FixedDepth(plan.depth), engine.backend.clock, engine.resident)
    try:
        steps = list(speculative(parts, prompt.ids, stopping, plan.chunk_tokens))
        pages = sequence.page_counts()
        return _answer(
            candidate,
            prompt,
            steps,
            positions_forwarded=sequence.positions_forwarded,
            kv_bytes=sequence.measured_bytes() - sequence.latent_bytes(),
            pool_bytes=pages.pool_bytes,
            index_bytes=pages.index_bytes,
            drafter_bytes=drafter.measured_bytes() if plan.depth else 0,
            latent_bytes=sequence.latent_bytes(),
            rows_injected=0 if sequence.latents is None else sequence.latents.rows_made,
            pages_moved=pages.pages_moved,
            bytes_read=pages.bytes_read,
        )
    finally:
        sequence.close()


def _answer(candidate: Candidate, prompt: Prompt, steps: Sequence[Step], **counted: int) -> BoundedAnswer:
    return BoundedAnswer(
        arm=candidate.arm,
        prompt_id=prompt.id,
        prompt_digest=prompt.digest,
        prompt_tokens=len(prompt.ids),
        expected=str(prompt.expected),
        tokens=tuple(token for step in steps for token in step.tokens),
        text="",
        correct=False,
        steps=len(steps) - 1,
        drafted=sum(step.drafted for step in steps),
        accepted=sum(step.accepted for step in steps),
        **counted,
    )


def _scored(answer: BoundedAnswer, prompt: Prompt, tokenizer: Tokenizer) -> BoundedAnswer:
    text = tokenizer.decode(answer.tokens)
    return replace(answer, text=text, correct=answered(prompt, text))
