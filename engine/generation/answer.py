"""One answer with its numbers: what ``kakeya-engine generate`` shows and prints as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial

from engine.decoding.prompt import check_prompt
from engine.decoding.speculative import Parts, speculative
from engine.generation.allocator import give_back
from engine.generation.channels import LABEL, Channels
from engine.generation.conversation import Conversation
from engine.generation.text_stream import Decode, Pieces, read_behind
from engine.loading import Engine
from engine.measurement.arms import fell_back
from engine.protocols import Accept, Depth, SamplingDrafterModel
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from engine.types import Step
from engine.verification.rejection import Sampling


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One request: the prompt's ids and how to decode them."""

    prompt: tuple[int, ...]
    max_new_tokens: int
    stop_ids: frozenset[int]
    stop_strings: tuple[str, ...]
    layout: CacheLayout
    chunk_tokens: int
    chat: bool = False
    """Whether the answer is a turn, whose thoughts stand apart and whose tool calls keep their special tokens."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The text and what it took.

    ``thought`` is what a turn says in other channels than its answer's; its text is the answer alone.
    ``reused_tokens`` of the prompt were in the caches. ``target_forwards`` are those of decoding, and
    ``acceptance_length`` is committed tokens per such forward. ``drafted_steps`` counts by drafter the steps that
    verified a draft.
    """

    text: str
    thought: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    reused_tokens: int
    stop_reason: str
    prefill_s: float
    decode_s: float
    tokens_per_s: float
    target_forwards: int
    acceptance_length: float
    drafted_tokens: int
    accepted_tokens: int
    steps: int
    skipped_steps: dict[str, int]
    drafted_steps: dict[str, int]
    guard_rejections: int
    eager_forwards: dict[str, int]
    kv_bytes: int
    drafter_bytes: int


def generate(
    engine: Engine,
    tokenizer: Tokenizer,
    request: GenerationRequest,
    rule: tuple[Accept, Depth],
    show: Callable[[str], None] = lambda _: None,
    *,
    conversation: Conversation | None = None,
    think: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Decode one prompt; ``show`` gets the text piece by piece, cut before a stop string, and ``think`` the thought.

    Turns of one ``conversation`` go on with the caches of the turn before, on its engine and cache layout.

    Raises:
        PromptError: If prompt and budget do not fit the target.
    """
    steps = answering(engine, tokenizer, request, rule, show, conversation=conversation, think=think)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Answer = end.value
            return answer


def answering(
    engine: Engine,
    tokenizer: Tokenizer,
    request: GenerationRequest,
    rule: tuple[Accept, Depth],
    show: Callable[[str], None] = lambda _: None,
    *,
    conversation: Conversation | None = None,
    think: Callable[[str], None] = lambda _: None,
) -> Generator[Step, None, Answer]:
    """Decode as `generate` does, a step at a time, so that a caller may take several answers' steps in turn.

    Yields:
        Each step, after its text was shown.

    Returns:
        The answer. A caller who closes this earlier gets none, and its conversation begins anew.

    Raises:
        PromptError: If prompt and budget do not fit the target.
    """
    check_prompt(request.prompt, engine.target.info, new_tokens=request.max_new_tokens)
    clock = engine.backend.clock
    conversation = conversation or Conversation(engine, request.layout)
    sequence, drafter, cached = conversation.resume(request.prompt)
    fallen_before = Counter(fell_back(sequence, drafter))  # in earlier turns
    channels = Channels.of(tokenizer) if request.chat else None
    # A turn is a text of its own; other answers go on from the text of their prompt.
    reading: Decode = (
        read_behind(tokenizer.decode, request.prompt)
        if channels is None
        else partial(tokenizer.decode, written=channels.written)
    )
    stopping = Stopping(request.max_new_tokens, request.stop_ids, request.stop_strings, reading)
    if request.chat:
        stopping.answers = Channels.of(tokenizer).answers  # a thought that holds a stop string goes on
    parts = Parts(sequence, drafter, rule[0], rule[1], clock, engine.resident)
    pieces, thought = Pieces(reading, request.stop_strings, show), Pieces(reading, (), think, LABEL)
    steps: list[Step] = []
    began_ns = first_ns = last_ns = clock.now_ns()
    for step in speculative(parts, request.prompt, stopping, request.chunk_tokens, cached):
        last_ns = clock.host_ns()
        first_ns = last_ns if step.prefill else first_ns
        steps.append(step)
        marked = list(channels.split(step.tokens)) if channels else [(True, token) for token in step.tokens]
        for stream, answers in ((thought, False), (pieces, True)):
            stream.add(tuple(token for side, token in marked if side is answers), final=step.stop is not None)
        yield step
    conversation.keep((*request.prompt, *stopping.emitted))
    if request.layout.window is not None:  # whoever bounds the cache looks at the process's memory
        give_back()
    decoding = [step for step in steps if not step.prefill]
    forwards = sum(step.target_forwards for step in decoding)
    decode_s = (last_ns - first_ns) / 1e9
    return Answer(
        text=pieces.text,
        thought=thought.text.removeprefix(LABEL),
        tokens=tuple(stopping.emitted),
        prompt_tokens=len(request.prompt),
        reused_tokens=cached,
        stop_reason=str(steps[-1].stop),
        prefill_s=(first_ns - began_ns) / 1e9,
        decode_s=decode_s,
        tokens_per_s=(len(stopping.emitted) - 1) / decode_s if decode_s else 0.0,
        target_forwards=forwards,
        acceptance_length=sum(step.committed for step in decoding) / forwards if forwards else 0.0,
        drafted_tokens=sum(step.drafted for step in decoding),
        accepted_tokens=sum(step.accepted for step in decoding),
        steps=len(decoding),
        skipped_steps=dict(Counter(step.skipped for step in decoding if step.skipped is not None)),
        drafted_steps=dict(Counter(step.source or engine.drafter.info.name for step in decoding if step.drafted)),
        guard_rejections=sum(step.guard is not None for step in decoding),
        eager_forwards=dict(Counter(fell_back(sequence, drafter)) - fallen_before),
        kv_bytes=sequence.measured_bytes(),
        drafter_bytes=drafter.measured_bytes(),
    )


def sampled(engine: Engine, settings: Sampling | None) -> tuple[Engine, Accept]:
    """Return the engine and its accept rule; where ``settings`` say how to draw, both target and drafter draw."""
    if settings is None:
        return engine, engine.accept
    if isinstance(engine.drafter, SamplingDrafterModel):
        engine = replace(engine, drafter=engine.drafter.sampling(settings))
    return engine, engine.backend.sampling(engine.target, settings)
