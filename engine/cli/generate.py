"""``kakeya-engine generate``: complete a prompt, speculatively or not, streaming."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from engine.cli.options import (
    add_decoding_options,
    add_model_options,
    cache_layout,
    depth_factory,
    guarded,
    open_selected,
)
from engine.errors import UsageError
from engine.evaluation.generate import Answer, Asked, generate
from engine.loading import Engine
from engine.protocols import Accept, SamplingDrafterModel
from engine.tokenizer import Tokenizer
from engine.verification.rejection import Sampling


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    built = argparse.ArgumentParser(
        prog="kakeya-engine generate",
        description="Complete a prompt. The answer goes to stdout as it comes, its numbers to stderr.",
        epilog="example: kakeya-engine generate 'class Point:' --max-new 64",
    )
    built.add_argument("prompt", help="text to complete, - for stdin, or @FILE")
    add_model_options(built)
    add_decoding_options(built)
    built.add_argument("--max-new", type=int, default=128, help="token budget (default: %(default)s)")
    built.add_argument(
        "--chat", action="store_true", help="send the prompt as a chat turn through the model's template"
    )
    built.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text; repeatable")
    built.add_argument("--ignore-stop-tokens", action="store_true", help="go on past the model's own stop tokens")
    built.add_argument("--temperature", type=float, default=0.0, help="0 is greedy, above samples (default: 0)")
    built.add_argument("--top-p", type=float, default=1.0, help="sample from this much of the mass (default: all)")
    built.add_argument("--top-k", type=int, default=0, help="sample from this many ids (default: all)")
    built.add_argument("--seed", type=int, default=0, help="seed of the draws (default: %(default)s)")
    built.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return built


def main(argv: list[str]) -> int:
    """Generate; exit 0 when an answer was made."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    text, layout = _prompt_text(options.prompt), cache_layout(options)
    engine = open_selected(options)
    tokenizer = Tokenizer(engine.folder)
    make_depth, _ = depth_factory(options.depth, engine)
    asked = Asked(
        prompt=tokenizer.chat(text) if options.chat else tokenizer.encode(text),
        max_new_tokens=options.max_new,
        stop_ids=frozenset(() if options.ignore_stop_tokens else engine.target.info.stop_ids),
        stop_strings=tuple(options.stop),
        layout=layout,
        chunk_tokens=options.prefill_chunk,
    )
    show = _nothing if options.json else _write
    engine, rule = _sampled(engine, options)
    answer = generate(engine, tokenizer, asked, (rule, make_depth()), show)
    if options.json:
        print(json.dumps({"target": engine.target.info.name, "drafter": engine.drafter.info.name, **asdict(answer)}))
    else:
        _write("" if answer.text.endswith("\n") else "\n")
        _report(engine, answer)
    return 0


def _sampled(engine: Engine, options: argparse.Namespace) -> tuple[Engine, Accept]:
    """Return the engine and its accept rule; above temperature 0 both target and drafter draw."""
    if options.temperature == 0:
        return engine, engine.accept
    settings = Sampling(options.temperature, options.top_k, options.top_p, options.seed)
    if isinstance(engine.drafter, SamplingDrafterModel):
        engine = replace(engine, drafter=engine.drafter.sampling(settings))
    return engine, engine.backend.sampling(engine.target, settings)


def _prompt_text(argument: str) -> str:
    if argument == "-":
        return sys.stdin.read()
    if not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the prompt: {error}") from error


def _write(piece: str) -> None:
    sys.stdout.write(piece)
    sys.stdout.flush()


def _nothing(piece: str) -> None:
    del piece


def _report(engine: Engine, answer: Answer) -> None:
    skipped = "".join(f"; {count} steps without a draft: {reason}" for reason, count in answer.skipped_steps.items())
    print(
        f"[{engine.target.info.name} + {engine.drafter.info.name} on {engine.backend.name} {engine.backend.device}: "
        f"{len(answer.tokens)} tokens ({answer.stop_reason}), prefill {answer.prefill_s:.3f} s, "
        f"{answer.tokens_per_s:.1f} tokens/s, {answer.acceptance_length:.2f} tokens per target forward{skipped}]",
        file=sys.stderr,
    )
