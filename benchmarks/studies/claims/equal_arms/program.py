"""The measured program: a target and a copy of it with weights of its own decode the same prompts in turns.

Random padding moves the memory of both in every launch: that is what a launch differs by. Started by a supervisor.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.loading import Engine, load_backend, open_engine, resolve_model
from engine.measurement.selection import load_prompts
from engine.stopping import Stopping
from engine.tokenizer import Tokenizer
from engine.turns import TurnOrder, Turns
from engine.types import Step

ARMS = ("model", "copy")
PROMPT_SET, CHUNK = "code-structured", 512
PADDING_MAX_BYTES = 32 << 20


@dataclass
class Arm:
    """One of the two, with the sample it is in.

    Attributes:
        tokens: of the sample so far.
        steps: what is left of it, None between samples.
    """

    engine: Engine
    tokens: int = 0
    steps: Iterator[Step] | None = None

    def advance(self, prompt: tuple[int, ...], budget: int, most: int | None) -> tuple[int, bool]:
        """Decode to the next multiple of so many tokens, or to the end; return the tokens and whether it ended."""
        if self.steps is None:
            self.tokens, self.steps = 0, self.engine.native.decode(prompt, Stopping(budget_tokens=budget), CHUNK)
        began, aim = self.tokens, budget if most is None else (self.tokens // most + 1) * most
        for step in self.steps:
            self.tokens += len(step.tokens)
            if step.stop is not None or self.tokens >= budget:
                self.steps = None
                return self.tokens - began, True
            if self.tokens >= aim:
                break
        return self.tokens - began, False


def load(target: str, rng: random.Random) -> tuple[dict[str, Arm], list[bytearray]]:
    """Return both arms in drawn order of loading, and the padding that has to stay."""
    padding: list[bytearray] = []
    arms: dict[str, Arm] = {}
    for name in rng.sample(ARMS, k=2):
        padding += [bytearray(rng.randrange(1, PADDING_MAX_BYTES)) for _ in range(rng.randrange(1, 5))]
        arms[name] = Arm(open_engine(load_backend("mlx"), target, None))
    return arms, padding


def alone(arm: Arm, order: TurnOrder, prompts: list[tuple[int, ...]], budget: int) -> int:
    """Decode samples of one arm for the seconds of a solo stretch; the sample it was in goes on afterwards."""
    other, tokens, began = Arm(arm.engine), 0, time.monotonic()
    place = 0
    while time.monotonic() - began < (order.seconds or 0.0):
        done, over = other.advance(prompts[place % len(prompts)], budget, 8)
        tokens += done
        place += over
    return tokens


def main(arguments: list[str]) -> None:
    """Load, warm up, take turns until the launch is over, say how the samples went."""
    turns = Turns.open()
    if turns is None:
        raise SystemExit("error: no supervisor hands out turns here; run `make studies STUDY=equal-arms`")
    prompts_a_launch, budget = int(arguments[0]), int(arguments[1])
    target = resolve_model(arguments[2])
    arms, padding = load(str(target), random.Random(os.urandom(16)))
    tokenizer = Tokenizer(target)
    name = arms["model"].engine.target.info.name
    encoded = [prompt.ids for prompt in load_prompts(PROMPT_SET, tokenizer, name).lasting(budget).prompts]
    prompts = encoded[:prompts_a_launch]
    for arm in arms.values():
        arm.advance(encoded[-1], budget, None)
    launch = turns.ready(samples=len(prompts))
    order = random.Random(launch.nonce).sample(range(len(prompts)), k=len(prompts))
    for turn in turns:
        arm, prompt = arms[turn.arm], prompts[order[turn.sample % len(order)]]
        if turn.seconds is not None:
            turns.done(alone(arm, turn, prompts, budget), over=False)
        else:
            tokens, over = arm.advance(prompt, budget, turn.tokens)
            turns.done(tokens, over=over)
    report = {"launch": launch.number, "padding_bytes": sum(map(len, padding))}
    Path(os.environ["KAKEYA_OUT"], f"launch-{launch.number}.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
