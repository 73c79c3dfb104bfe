"""Held-out loss and accuracy of a target, and what its greedy continuations look like."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cards.loading import EvaluatedTarget
from engine.reports.tokens import loop_onset, repeated_share
from engine.training.requests import ResponseRequest

WINDOW_TOKENS = 512


@dataclass(frozen=True)
class LanguageResult:
    """Mean cross-entropy in nats and next-token accuracy over `tokens` predicted tokens."""

    loss: float
    accuracy: float
    tokens: int


@dataclass(frozen=True)
class GreedySample:
    """One greedy continuation with its repeats."""

    prompt_id: str
    kind: str
    prompt_tokens: int
    tokens: tuple[int, ...]
    stop_reason: str
    loop_onset: int | None
    repeated_8gram_share: float


def held_out_language(target: EvaluatedTarget, texts: list[str], limit_tokens: int = 60_000) -> LanguageResult:
    """Score `texts` in windows of 512 tokens, each after `<bos>`."""
    import torch

    from engine.training.network.models import logits_of

    ids = [i for text in texts for i in [*target.tokenizer.encode(text, add_special_tokens=False).ids, 1]][
        :limit_tokens
    ]
    windows = [ids[i : i + WINDOW_TOKENS] for i in range(0, len(ids) - WINDOW_TOKENS + 1, WINDOW_TOKENS)]
    total_loss, right, count = 0.0, 0, 0
    with torch.no_grad():
        for first in range(0, len(windows), 8):
            labels = torch.tensor(windows[first : first + 8])
            inputs = torch.cat([torch.full((len(labels), 1), 2), labels[:, :-1]], dim=1)
            logits = logits_of(target.model, inputs)
            total_loss += float(
                torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            )
            right += int((logits.argmax(-1) == labels).sum())
            count += labels.numel()
    return LanguageResult(total_loss / count, right / count, count)


def greedy_samples(target: EvaluatedTarget, prompts: list[dict[str, str]], budget: int) -> list[GreedySample]:
    """Continue each of `prompts` (id, kind, text) greedily for at most `budget` tokens."""
    from engine.training.responses import regenerate_in_order

    requests = [ResponseRequest(tuple(target.encode(prompt["text"])), budget, budget) for prompt in prompts]
    samples = []
    responses = regenerate_in_order(target.model, requests, marks=target.ends)
    for prompt, response in zip(prompts, responses, strict=True):
        tokens = response.ids[response.prompt_tokens :]
        stopped = bool(tokens) and tokens[-1] in target.ends.stops
        samples.append(
            GreedySample(
                prompt["id"],
                prompt["kind"],
                response.prompt_tokens,
                tokens,
                "eos" if stopped else "budget",
                loop_onset(tokens),
                repeated_share(tokens),
            )
        )
    return samples
