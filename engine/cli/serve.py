"""``kakeya-engine serve``: answer OpenAI's completions and chat completions on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.errors import needs_extra
from engine.options import (
    AUTO,
    DEFAULT_DEPTH,
    add_decoding_options,
    add_model_options,
    cache_layout,
    check_drafting,
    depth_factory,
    open_selected,
    positive,
)
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.serving.scheduler import Decoder


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``kakeya-engine serve``."""
    built = VerbParser(
        prog="kakeya-engine serve",
        description="Answer OpenAI's /v1/completions and /v1/chat/completions on this machine, speculatively.",
        epilog="example: kakeya-engine serve --openai 127.0.0.1:8080; SIGTERM finishes what has begun",
    )
    built.add_argument(
        "--openai", required=True, metavar="ADDRESS", help="127.0.0.1:PORT, [::1]:PORT (0: a free port) or unix:PATH"
    )
    add_model_options(built)
    add_decoding_options(
        built, depth=AUTO, default=f"auto; {DEFAULT_DEPTH} where a request draws, so that a seed repeats"
    )
    built.add_argument(
        "--api-key-file", type=Path, metavar="FILE", help="key that clients must show; readable by you alone"
    )
    built.add_argument("--streams", type=positive, default=8, help="answers made in turn (default: %(default)s)")
    built.add_argument("--waiting", type=positive, default=64, help="requests that may wait (default: %(default)s)")
    built.add_argument(
        "--cache-mib", type=positive, default=4096, help="MiB for the caches of all answers (default: %(default)s)"
    )
    return built


def main(argv: list[str]) -> int:
    """Serve until it is told to end; exit 0 then."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    with needs_extra("serve", "the server"):
        from engine.serving.app import Served, build
        from engine.serving.scheduler import Bounds, Scheduler
        from engine.serving.server import listening, read_key, serve
    layout = cache_layout(options)
    api_key = None if options.api_key_file is None else read_key(options.api_key_file)
    bounds = Bounds(options.streams, options.waiting, options.cache_mib << 20)
    with listening(options.openai) as (server, url):
        scheduler = Scheduler(lambda: _load(options, layout), layout, bounds)
        decoder = scheduler.start()
        app = build(Served(decoder.engine, decoder.tokenizer, layout, options.prefill_chunk, api_key), scheduler)
        print(f"serving {decoder.engine.target.info.name} at {url}", file=sys.stderr, flush=True)
        serve(app, server)
    return 0


def _load(options: argparse.Namespace, layout: CacheLayout) -> Decoder:
    from engine.serving.scheduler import Decoder

    engine = open_selected(options)
    make_depth, policy = depth_factory(options.depth, engine)
    check_drafting(layout, engine, policy)
    make_drawn = make_depth if options.depth != AUTO else depth_factory(str(DEFAULT_DEPTH), engine)[0]
    return Decoder(engine, Tokenizer(engine.folder), lambda drawn: make_drawn() if drawn else make_depth())
