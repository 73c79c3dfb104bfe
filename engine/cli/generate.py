"""``kakeya-engine generate``: complete a prompt, speculatively or not, streaming."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.decoding.prompt import room_tokens
from engine.errors import UsageError
from engine.generation.answer import Answer, GenerationRequest, generate, sampled
from engine.generation.score import score
from engine.loading import Engine
from engine.options import (
    AUTO,
    DEFAULT_DEPTH,
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
    whole,
)
from engine.reports import token_digest
from engine.tokenizer import Tokenizer
from engine.verification.rejection import Sampling

DEFAULT_BUDGET = 128


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``kakeya-engine generate``."""
    built = VerbParser(
        prog="kakeya-engine generate",
        description="Complete a prompt. The answer goes to stdout as it comes, its numbers to stderr.",
        epilog="example: kakeya-engine generate 'class Point:' --max-new 64; exit codes: 2 a wrong option, 3 a model, "
        "4 a prompt or budget that does not fit, 5 a missing library or device",
    )
    built.add_argument(
        "prompt", nargs="?", help="text to complete, @FILE, or - for stdin (default: what is piped into it)"
    )
    add_model_options(built)
    add_decoding_options(built, depth=None, default=f"auto; {DEFAULT_DEPTH} with --seed, so that it draws again")
    add_costs_option(built)
    built.add_argument(
        "--max-new",
        type=positive,
        help=f"token budget, refused if the model's context has no room for it (default: {DEFAULT_BUDGET}, or what is "
        "left of the context)",
    )
    built.add_argument(
        "--chat", action="store_true", help="send the prompt as a chat turn through the model's template"
    )
    add_chat_options(built)
    built.add_argument(
        "--stop", action="append", type=utf8, default=[], metavar="TEXT", help="end before this text; repeatable"
    )
    built.add_argument("--ignore-stop-tokens", action="store_true", help="go on past the model's own stop tokens")
    built.add_argument("--temperature", type=float, default=0.0, help="0 is greedy, above samples (default: 0)")
    built.add_argument("--top-p", type=float, default=1.0, help="sample from this much of the mass (default: all)")
    built.add_argument("--top-k", type=whole, default=0, help="sample from this many ids (default: all)")
    built.add_argument(
        "--seed", type=int, help="seed of the draws; with one the depth is fixed (default: 0, at depths that pay)"
    )
    built.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    built.add_argument(
        "--logprobs",
        action="store_true",
        help="with --json: score the answer once more and add the logarithm of each token's probability",
    )
    return built


def main(argv: list[str]) -> int:
    """Generate; exit 0 when an answer was made."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    text, layout, settings = prompt_text(options.prompt), cache_layout(options), _settings(options)
    if "" in options.stop:
        raise UsageError("--stop is empty, which ends every answer before it begins; give the text to end at")
    if options.logprobs and not options.json:
        raise UsageError("--logprobs adds to what --json prints; add --json")
    of_chat = (options.chat_template, options.thinking, options.template_argument, options.date, options.system)
    if not options.chat and any(of_chat):
        raise UsageError(
            "--chat-template, --thinking, --template-argument, --date and --system are for a chat turn; add --chat"
        )
    depth = options.depth or default_depth(settings, options.seed)
    options.depth = options.depth or AUTO  # a seed that fixes the length chooses no other drafters
    if options.chat:
        check_conversation(options, _conversation(text, options))
    engine = open_selected(options)
    tokenizer = Tokenizer(engine.folder)
    make_depth, policy = depth_factory(depth, engine, options.costs)
    check_drafting(layout, engine, policy)
    if options.chat:
        prompt = tokenizer.chat(_conversation(text, options), **conversation_settings(options))
    else:
        prompt = tokenizer.encode(text)
        _say_double_beginning(prompt, tokenizer)
    # A special token writes no text outside of a tool call, so it ends an answer by its id too.
    stop_ids = [tokenizer.special[text] for text in options.stop if text in tokenizer.special]
    stop_ids += [] if options.ignore_stop_tokens else engine.target.info.stop_ids
    request = GenerationRequest(
        prompt=prompt,
        max_new_tokens=options.max_new or _default_budget(prompt, engine),
        stop_ids=frozenset(stop_ids),
        stop_strings=tuple(options.stop),
        layout=layout,
        chunk_tokens=options.prefill_chunk,
        chat=options.chat,
    )
    show = _nothing if options.json else _write
    engine, rule = sampled(engine, settings)
    think = _nothing if options.json else _think
    answer = generate(engine, tokenizer, request, (rule, make_depth()), show, think=think)
    if options.json:
        # Which ids went in, whatever template, date and arguments made them.
        record = {
            "prompt_digest": token_digest(prompt),
            "target": engine.target.info.name,
            "drafter": engine.drafter.info.name,
            **asdict(answer),
        }
        if options.logprobs:
            worth = score(engine, (*prompt, *answer.tokens), layout, len(prompt), options.prefill_chunk)
            record |= {"log_probabilities": worth.log_probabilities, "nats_per_token": worth.nats}
        print(json.dumps(record))
    else:
        _write("" if answer.text.endswith("\n") else "\n")
        _report(engine, answer)
    return 0


def default_depth(settings: Sampling | None, seed: int | None) -> str:
    """Return how much is drafted unless it is said: a fixed length where somebody names a seed, to draw it again.

    What is drawn depends on how much was drafted, and the controller goes by the clock.
    """
    return AUTO if settings is None or seed is None else str(DEFAULT_DEPTH)


def _conversation(text: str, options: argparse.Namespace) -> list[dict[str, str]]:
    """Return the conversation that asks for an answer to ``text``."""
    messages = [{"role": "system", "content": options.system}] if options.system else []
    return [*messages, {"role": "user", "content": text}]


def _say_double_beginning(prompt: tuple[int, ...], tokenizer: Tokenizer) -> None:
    """Say where a raw prompt begins with what the tokenizer puts before it too."""
    if len(prompt) > 1 and prompt[0] == prompt[1] and prompt[0] in tokenizer.special.values():
        print(
            "note: the prompt begins with the token that the tokenizer puts before every text; leave it out",
            file=sys.stderr,
        )


def _settings(options: argparse.Namespace) -> Sampling | None:
    """Return how to draw, None for greedy decoding; checked before anything is loaded.

    Raises:
        UsageError: If the options describe no distribution, or one that greedy decoding would ignore.
    """
    if options.temperature != 0:
        return Sampling(options.temperature, options.top_k, options.top_p, options.seed or 0)
    if options.top_k or options.top_p != 1.0:
        raise UsageError(
            "--top-k and --top-p shape what is drawn, and greedy decoding draws nothing; add --temperature"
        )
    return None


def _default_budget(prompt: tuple[int, ...], engine: Engine) -> int:
    """Return the default budget, or what is left of the context, and say so where that is less."""
    info = engine.target.info
    room = room_tokens(len(prompt), info)
    if 0 < room < DEFAULT_BUDGET:
        print(
            f"note: a prompt of {len(prompt)} tokens leaves {room} of {info.max_positions} positions: at most {room} "
            "new tokens",
            file=sys.stderr,
        )
    return max(1, min(DEFAULT_BUDGET, room))


def prompt_text(argument: str | None) -> str:
    """Return the prompt from the argument, a file or stdin.

    Raises:
        UsageError: If there is none, or it is no UTF-8 text.
    """
    if argument is None and sys.stdin.isatty():
        raise UsageError("no prompt; give it as text or @FILE, or pipe it into this command")
    try:
        if argument is None or argument == "-":
            data = sys.stdin.buffer.read()
        elif argument.startswith("@"):
            data = Path(argument[1:]).read_bytes()
        else:
            data = os.fsencode(argument)
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the prompt is no UTF-8 text: {error}; convert it first") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the prompt: {error}") from error
    if not text:
        raise UsageError("the prompt is empty; expected at least one character")
    return text


def _write(piece: str) -> None:
    print(piece, end="", flush=True)


def _think(piece: str) -> None:
    print(piece, end="", file=sys.stderr, flush=True)


def _nothing(piece: str) -> None:
    del piece


def _report(engine: Engine, answer: Answer) -> None:
    skipped = "".join(f"; {count} steps without a draft: {reason}" for reason, count in answer.skipped_steps.items())
    skipped += "".join(f"; {count} steps with a draft of {name}" for name, count in answer.drafted_steps.items())
    skipped += "".join(f"; {count} forwards: {reason}" for reason, count in answer.eager_forwards.items())
    print(
        f"[{engine.target.info.name} + {engine.drafter.info.name} on {engine.backend.name} {engine.backend.device}: "
        f"{len(answer.tokens)} tokens ({answer.stop_reason}), prefill {answer.prefill_s:.3f} s, "
        f"{answer.tokens_per_s:.1f} tokens/s, {answer.acceptance_length:.2f} tokens per target forward{skipped}]",
        file=sys.stderr,
    )
