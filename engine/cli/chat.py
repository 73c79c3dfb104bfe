"""``kakeya-engine chat``: a conversation, turn by turn, with the caches kept between turns."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.decoding.prompt import room_tokens
from engine.errors import PromptError, UsageError
from engine.generation.answer import Answer, GenerationRequest, generate
from engine.generation.conversation import Conversation
from engine.loading import Engine
from engine.options import (
    add_chat_options,
    add_costs_option,
    add_decoding_options,
    add_model_options,
    cache_layout,
    check_conversation,
    check_drafting,
    conversation_settings,
    depth_factory,
    open_selected,
    positive,
    utf8,
)
from engine.tokenizer import Tokenizer

DEFAULT_BUDGET = 512
ANY_TURN = "."
"""Stands for the first turn where only the options are checked."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``kakeya-engine chat``."""
    built = VerbParser(
        prog="kakeya-engine chat",
        description="Talk to a model. Every line of stdin is a turn; answers go to stdout as they come, their numbers "
        "to stderr, and so do thoughts that a model keeps apart from its answer. What a turn shares with the one "
        "before is not forwarded again.",
        epilog="exit codes: 2 a wrong option, 3 a model, 4 a conversation that no longer fits, 5 a missing library",
    )
    add_model_options(built)
    add_decoding_options(built, depth="auto")
    add_costs_option(built)
    add_chat_options(built)
    built.add_argument(
        "--max-new", type=positive, default=DEFAULT_BUDGET, help="tokens of an answer at most (default: %(default)s)"
    )
    built.add_argument("--json", action="store_true", help="print one JSON object a turn instead of text")
    return built


def main(argv: list[str]) -> int:
    """Answer every turn; exit 0 at the end of stdin."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    layout = cache_layout(options)
    messages: list[dict[str, Any]] = []
    if options.system:
        messages.append({"role": "system", "content": options.system})
    check_conversation(options, [*messages, {"role": "user", "content": ANY_TURN}])
    engine = open_selected(options)
    tokenizer, conversation = Tokenizer(engine.folder), Conversation(engine, layout)
    make_depth, policy = depth_factory(options.depth, engine, options.costs)
    check_drafting(layout, engine, policy)
    # What the controller has learnt serves the next turn; a gate judges every answer anew.
    learnt = make_depth() if options.depth == "auto" else None
    for text in _turns():
        messages.append({"role": "user", "content": text})
        prompt = tokenizer.chat(messages, **conversation_settings(options))
        request = GenerationRequest(
            prompt=prompt,
            max_new_tokens=_budget(prompt, engine, options.max_new),
            stop_ids=frozenset(engine.target.info.stop_ids),
            stop_strings=(),
            layout=layout,
            chunk_tokens=options.prefill_chunk,
            chat=True,
        )
        show = _nothing if options.json else _write
        rule = engine.accept, learnt or make_depth()
        think = _nothing if options.json else _think
        answer = generate(engine, tokenizer, request, rule, show, conversation=conversation, think=think)
        messages.append({"role": "assistant", "content": answer.text})
        _report(answer, as_json=options.json)
    return 0


def _turns() -> Iterator[str]:
    """Yield the lines that hold something, asking for each where somebody types.

    Raises:
        UsageError: If one is no UTF-8 text.
    """
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        try:
            line = utf8(sys.stdin.readline())
        except (UnicodeDecodeError, argparse.ArgumentTypeError) as error:
            raise UsageError(f"a turn on stdin is no UTF-8 text: {error}; convert it first") from error
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


def _budget(prompt: tuple[int, ...], engine: Engine, most: int) -> int:
    """Return how long the answer may be: to the end of the context at most.

    Raises:
        PromptError: If the conversation has filled it.
    """
    room = room_tokens(len(prompt), engine.target.info)
    if room < 1:
        raise PromptError(
            f"the conversation has {len(prompt)} tokens and {engine.target.info.name!r} holds "
            f"{engine.target.info.max_positions} positions; begin a new one"
        )
    return min(most, room)


def _write(piece: str) -> None:
    print(piece, end="", flush=True)


def _think(piece: str) -> None:
    print(piece, end="", file=sys.stderr, flush=True)


def _nothing(piece: str) -> None:
    del piece


def _report(answer: Answer, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(answer)), flush=True)
        return
    print("" if answer.text.endswith("\n") else "\n", end="", flush=True)
    print(
        f"[{len(answer.tokens)} tokens ({answer.stop_reason}), {answer.reused_tokens} of {answer.prompt_tokens} prompt "
        f"tokens were held, prefill {answer.prefill_s:.3f} s, {answer.tokens_per_s:.1f} tokens/s, "
        f"{answer.acceptance_length:.2f} tokens per target forward]",
        file=sys.stderr,
    )
