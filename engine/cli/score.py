"""``kakeya-engine score``: how probable a model holds a text, on the caches and in the dtype that are chosen."""

from __future__ import annotations

import argparse
import json

from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.cli.generate import prompt_text
from engine.generation.score import score
from engine.options import add_cache_option, add_chunk_option, add_model_options, cache_layout, open_undrafted, positive
from engine.tokenizer import Tokenizer


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``kakeya-engine score``."""
    built = VerbParser(
        prog="kakeya-engine score",
        description="Say how probable a model holds a text: nats a token, perplexity, and with --json the logarithm of "
        "every token's probability. What a cache layout, a dtype or a quantisation costs is the difference of two.",
        epilog="exit codes: 2 a wrong option, 3 a model, 4 a text that does not fit, 5 a missing library or device",
    )
    built.add_argument("text", nargs="?", help="text to score, @FILE, or - for stdin (default: what is piped into it)")
    add_model_options(built)
    add_cache_option(built)
    add_chunk_option(built)
    built.add_argument(
        "--context", type=positive, default=1, metavar="TOKENS", help="tokens before the first one scored (default: 1)"
    )
    built.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return built


def main(argv: list[str]) -> int:
    """Score a text."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    text, layout = prompt_text(options.text), cache_layout(options)
    engine = open_undrafted(options)
    ids = Tokenizer(engine.folder).encode(text)
    worth = score(engine, ids, layout, options.context, options.prefill_chunk)
    info, count = engine.target.info, len(worth.log_probabilities)
    record = {
        "target": info.name,
        "digest": info.digest,
        "dtype": info.dtype,
        "backend": engine.backend.name,
        "cache": str(layout),
        "scored_tokens": count,
        "nats_per_token": worth.nats,
        "perplexity": worth.perplexity,
    }
    if options.json:
        first = worth.first
        print(json.dumps(record | {"tokens": list(ids[first:]), "log_probabilities": list(worth.log_probabilities)}))
        return 0
    print(
        f"{count} tokens on {info.name} ({engine.backend.name}, {info.dtype}, cache {layout}): "
        f"{worth.nats:.4f} nats a token, perplexity {worth.perplexity:.2f}"
    )
    return 0
