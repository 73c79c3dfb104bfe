"""What many ways to bound a cache answer, and what each holds for it, beside the library's own cache.

Every prompt that the run's nonce draws is answered on every arm: a cache layout by its name, or ``BASE+identity``,
whose evicted rows are made again of the layers' own inputs. The first arm is the library's own decoding on its own
cache. Bytes are read from the buffers when the answer is there, each part by itself; rows made again, pages moved and
bytes read are counted where that happens. Two canaries say whether rows that are made again are shown at all.

Rows of the report::

    {"candidates": [{"arm", "role", "layout", "restored_from", "drafts"}],
     "answers": [{"arm", "prompt_id", "prompt_digest", "prompt_tokens", "expected", "tokens", "text", "correct",
                  "steps", "drafted", "accepted", "positions_forwarded", "kv_bytes", "pool_bytes", "index_bytes",
                  "drafter_bytes", "latent_bytes", "rows_injected", "pages_moved", "bytes_read"}],
     "layer_canaries": [{"layer_kind", "layers", "identity_logit_change", "noise_logit_change", "rows"}]}
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement.bounded_answers import BASELINE, IDENTITY, NATIVE, BoundedAnswer, Candidate, RecallPlan, answers
from engine.measurement.launch import restoration_facts, target_facts
from engine.measurement.selection import Prompt, PromptSet, load_prompts
from engine.measurement.study import Study
from engine.options import (
    add_chunk_option,
    add_model_options,
    add_report_options,
    longest_depth,
    open_selected,
    open_undrafted,
    positive,
    whole,
)
from engine.reports import RunContext
from engine.reports.tokens import packed_tokens
from engine.restoration.canaries import KindCanary, canaries_by_kind
from engine.restoration.choice import add_restoration_option
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand
from engine.tokenizer import Tokenizer

PROFILES = {"smoke": 3, "claim": 60}
"""How many prompts."""
DRAWN_OUT_OF = 2
"""How many prompts there are at least for each one that a nonce draws."""
CANARY, CANARY_TOKENS = "sink4+window64+ftheta1", 160
"""The layout of the canaries, whose rank does not matter, and how much of a prompt they read."""
STEP1 = "sink4+window64+ftheta64,sink4+window64,sink4+window64+exact5,sink4+window64+exact5+ftheta64,"
DEFAULT_ARMS = f"{STEP1}sink4+window64{IDENTITY}"
DEFAULT_ARMS_TARGET = "kakeya-tiny-qwen3"
"""The packaged target whose layer and f_theta the default arms name."""


def canary_rows(engine: Engine, prompt: Prompt) -> tuple[KindCanary, ...]:
    """Return the canaries of every kind of full-attention layers, run on a prompt that is repeated until it is long."""
    ids = (prompt.ids * -(-CANARY_TOKENS // len(prompt.ids)))[-CANARY_TOKENS:]
    return canaries_by_kind(engine.backend, engine.target, ids, CacheLayout.parse(CANARY))


def drawn_prompts(prompts: PromptSet, least_tokens: int, count: int, nonce: str) -> tuple[Prompt, ...]:
    """Return the prompts of a set with at least so many tokens and a known answer that a run's nonce draws.

    Raises:
        UsageError: If there are fewer than twice as many: a draw of nearly all is known before it.
    """
    long = tuple(one for one in prompts.prompts if len(one.ids) >= least_tokens and one.expected is not None)
    if len(long) < DRAWN_OUT_OF * count:
        raise UsageError(
            f"prompt set {prompts.name!r} has {len(long)} prompts of at least {least_tokens} tokens with a known "
            f"answer; {count} are drawn, and nobody may know which: expected at least {DRAWN_OUT_OF * count}"
        )
    return PromptSet(prompts.name, prompts.rule, long).drawn(count, nonce).prompts


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, the arms, and what is asked of them."""
    add_model_options(parser)
    parser.add_argument(
        "--arms",
        default=DEFAULT_ARMS,
        metavar="LAYOUT,...",
        help=f"cache layouts, separated by commas; {IDENTITY[1:]} behind a window makes evicted rows again of the "
        f"layers' own inputs (default, on {DEFAULT_ARMS_TARGET} unless another target is named: %(default)s)",
    )
    add_restoration_option(parser)
    parser.add_argument("--set", default="needle", help="prompt set or file with answers (default: %(default)s)")
    parser.add_argument("--least-tokens", type=positive, default=1, help="of each prompt (default: %(default)s)")
    parser.add_argument("--prompts", type=positive, help="how many prompts (default: the profile's)")
    parser.add_argument("--max-new", type=positive, default=28, help="token budget (default: %(default)s)")
    parser.add_argument(
        "--depth", type=whole, default=0, help="tokens that each arm drafts a step (default: %(default)s)"
    )
    add_chunk_option(parser)
    add_report_options(parser, "bounded-recall.json")


def asked_target(options: argparse.Namespace) -> str | None:
    """Return the target that is asked for; for the default arms the one they name layers of, None for the usual one."""
    named = options.target or os.environ.get("KAKEYA_TARGET")
    return named or (DEFAULT_ARMS_TARGET if options.arms == DEFAULT_ARMS else None)


def opened(options: argparse.Namespace, candidates: Sequence[Candidate], depth: int) -> Engine:
    """Load the models with what the candidates need: a drafter where they draft, an f_theta where one restores.

    Raises:
        UsageError: If candidates need f_thetas of different ranks, or the drafter proposes fewer tokens.
    """
    restored = [each.layout for each in candidates if each.restored_from == "f_theta"]
    if len({CacheLayout.parse(layout).rank for layout in restored}) > 1:
        raise UsageError(f"arms {', '.join(restored)}; expected one rank, for one f_theta is loaded")
    changes: dict[str, Any] = {"cache": restored[0] if restored else NATIVE, "depth": None}
    if not restored:
        changes["restoration"] = None
    if not depth:
        changes["drafter_context"] = None
    asked = argparse.Namespace(**(vars(options) | changes))
    engine = open_selected(asked) if depth else open_undrafted(asked)
    if depth > longest_depth(engine):
        raise UsageError(
            f"--depth {depth}: {engine.drafter.info.name} proposes at most {longest_depth(engine)} tokens a step"
        )
    return engine


def measure(options: argparse.Namespace) -> Sequence[BoundedAnswer]:
    """Answer prompts on every arm, run the canaries and write the report.

    Raises:
        UsageError: If an arm cannot be measured, or prompts are missing.
    """
    context = RunContext.current(out=options.out, profile=options.profile)
    named = [text.strip() for text in options.arms.split(",") if text.strip()]
    candidates = tuple(Candidate.parse(text, drafts=options.depth > 0) for text in named)
    if options.restoration is not None and not any(each.restored_from == "f_theta" for each in candidates):
        raise UsageError(
            f"--restoration {options.restoration}: arms {', '.join(named)} restore nothing by it; expected one with "
            "+fthetaRANK"
        )
    options = argparse.Namespace(**(vars(options) | {"target": asked_target(options)}))
    engine = opened(options, candidates, options.depth)
    tokenizer = Tokenizer(engine.folder)
    prompts = load_prompts(options.set, tokenizer, engine.target.info.name)
    count = options.prompts or PROFILES[context.profile]
    chosen = drawn_prompts(prompts, options.least_tokens, count, context.nonce)
    plan = RecallPlan(candidates, chosen, options.max_new, options.prefill_chunk, options.depth)
    plan.check(engine)

    def run() -> tuple[list[BoundedAnswer], dict[str, Any]]:
        canaries = canary_rows(engine, chosen[0])
        found = list(answers(engine, plan, tokenizer, _show))
        rows = {
            "candidates": [asdict(each) for each in (BASELINE, *candidates)],
            "answers": [asdict(each) for each in found],
            "layer_canaries": [asdict(each) for each in canaries],
        }
        return found, {"rows": rows, "prompts": {prompt.digest: packed_tokens(prompt.ids) for prompt in chosen}}

    config = _config(engine, prompts, options)
    return Study("bounded_recall", engine.backend, config, context, options.report).write(run)


def _config(engine: Engine, prompts: PromptSet, options: argparse.Namespace) -> dict[str, Any]:
    drafter = engine.drafter.info
    return {
        "target": target_facts(engine.target.info),
        "drafter": asdict(drafter) if options.depth else None,
        "drafter_context": options.drafter_context if options.depth else None,
        "restoration": restoration_facts(engine),
        "dtype": engine.target.info.dtype,
        "depth": options.depth,
        "prompt_set": prompts.name,
        "prompt_rule": prompts.rule,
        "least_tokens": options.least_tokens,
        "max_new_tokens": options.max_new,
        "prefill_chunk_tokens": options.prefill_chunk,
    }


def report(found: Sequence[BoundedAnswer]) -> None:
    """Print recall and bytes of every arm."""
    by_arm: dict[str, list[BoundedAnswer]] = {}
    for each in found:
        by_arm.setdefault(each.arm, []).append(each)
    for arm, mine in by_arm.items():
        held = sorted(each.kv_bytes + each.drafter_bytes + each.latent_bytes for each in mine)[len(mine) // 2]
        print(f"{arm}: {sum(each.correct for each in mine)} of {len(mine)} codes, {held} bytes held at the median")


def _show(found: BoundedAnswer) -> None:
    said: Mapping[bool, str] = {True: "right", False: "wrong"}
    print(f"{found.arm}, {found.prompt_id}: {said[found.correct]}, {found.kv_bytes} bytes of cache", flush=True)


COMMAND = StudyCommand(
    "Answer needle prompts on the library's own cache and on bounded ones: recall, bytes of cache, pool, index, "
    "drafter and latents, rows made again, pages moved and bytes read, and two canaries.",
    options,
    measure,
    report,
)
