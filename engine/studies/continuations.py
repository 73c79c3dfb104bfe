"""Continue texts as this host's own target does: for prompts that nobody could know, and to check how answers begin.

A line of JSON a text on standard input, a line back on standard output, until standard input ends. Knows nothing of who
asks, or what is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import IO

from engine.decoding.depth import FixedDepth
from engine.decoding.prompt import check_prompt
from engine.errors import UsageError
from engine.generation.answer import GenerationRequest, generate, sampled
from engine.loading import Engine
from engine.options import add_chunk_option, add_model_options, open_selected
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand
from engine.tokenizer import Tokenizer
from engine.verification.rejection import Sampling

KEYS = {"text", "tokens", "seed"}


@dataclass(frozen=True, slots=True)
class Continuing:
    """One text to continue.

    Attributes:
        tokens: how many to add, past the target's own stop tokens.
        seed: of the draws at temperature 1; None decodes greedily.
    """

    text: str
    tokens: int
    seed: int | None


def read(line: str) -> Continuing:
    """Return what a line asks.

    Raises:
        UsageError: It is no such line.
    """
    try:
        order = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{line[:80]!r} is no JSON; expected {sorted(KEYS)}") from error
    if not isinstance(order, dict) or set(order) != KEYS:
        raise UsageError(f"{line[:80]!r} has other keys than {sorted(KEYS)}")
    text, tokens, seed = order["text"], order["tokens"], order["seed"]
    whole = type(tokens) is int and tokens > 0 and (seed is None or type(seed) is int)
    if not (isinstance(text, str) and text and whole):
        raise UsageError(f"{line[:80]!r}; expected a text, a count of tokens and a seed or null")
    return Continuing(text, tokens, seed)


def continued(engine: Engine, tokenizer: Tokenizer, order: Continuing, chunk_tokens: int) -> str:
    """Return what the target adds to a text.

    Raises:
        PromptError: Text and tokens do not fit the target.
    """
    prompt = tokenizer.encode(order.text)
    check_prompt(prompt, engine.target.info, new_tokens=order.tokens)
    engine, rule = sampled(engine, None if order.seed is None else Sampling(1.0, 0, 1.0, order.seed))
    request = GenerationRequest(prompt, order.tokens, frozenset(), (), CacheLayout.NATIVE, chunk_tokens)
    return generate(engine, tokenizer, request, (rule, FixedDepth(0))).text


def answer(lines: IO[str], answers: IO[str], continue_text: Callable[[Continuing], str]) -> None:
    """Answer each line until there is none.

    Raises:
        EngineError: A line cannot be answered.
    """
    for line in lines:
        print(json.dumps({"text": continue_text(read(line))}), file=answers, flush=True)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, on a library that this host has; beside servers that start, torch leaves the card to them."""
    add_model_options(parser)
    if find_spec("mlx") is None:
        parser.set_defaults(backend="torch", device="cpu")
    add_chunk_option(parser)


def measure(options: argparse.Namespace) -> None:
    """Open the target, then continue what comes over standard input."""
    options.drafter, options.cache = "none", "native"
    engine = open_selected(options)
    tokenizer = Tokenizer(engine.folder)
    answer(sys.stdin, sys.stdout, lambda order: continued(engine, tokenizer, order, options.prefill_chunk))


COMMAND = StudyCommand("Continue the texts that come as lines of JSON on standard input.", options, measure)
