"""The same tokens and drafts on every rung: plain decoding, the drafter here, over loopback, at another address.

Every draft is awaited, so that what is drafted does not depend on how fast anything is.

Rows of the report, beside those of ``remote_arms``::

    {"drafts": [{"arm", "sample", "digest"}]}   # over the ids of every draft, those that were rejected too
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from engine.decoding.depth import FixedDepth
from engine.errors import UsageError
from engine.measurement.arms import SPECULATIVE, ArmSettings
from engine.measurement.launch import LaunchWorkload, describe
from engine.measurement.measure import Instruments
from engine.measurement.schedule import Profile, drawn
from engine.measurement.selection import load_prompts
from engine.measurement.study import Study
from engine.options import add_model_options, add_report_options, longest_draft, open_selected, positive
from engine.reports import RunContext
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand, show
from engine.studies.remote_arms import (
    IN_PROCESS,
    LOCAL,
    PATIENT_S,
    Connections,
    DistributedPlan,
    DraftingArm,
    connections,
    run_distributed,
)
from engine.tokenizer import Tokenizer

LOOPBACK, CROSSHOST = "loopback", "crosshost"
PROFILES = {"smoke": (6, 1, 48), "claim": (60, 2, 96)}
"""Prompts, warm-ups and tokens."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, and which rungs there are beside the in-process one."""
    add_model_options(parser)
    parser.add_argument("--loopback", action="store_true", help="ask the drafter in a process of its own here, too")
    parser.add_argument(
        "--address", help="ask one that is served already, too: 127.0.0.1:PORT or unix:/PATH, where ssh -L may end"
    )
    parser.add_argument("--set", default="code-structured", help="prompt set or file (default: %(default)s)")
    parser.add_argument("--prompts", type=positive, help="how many prompts (default: the profile's)")
    parser.add_argument("--max-new", type=positive, help="token budget (default: the profile's)")
    parser.add_argument("--depth", type=positive, default=3, help="drafted tokens per step (default: %(default)s)")
    add_report_options(parser, "distributed-e2e.json")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Decode every prompt on every rung and write the report.

    Raises:
        UsageError: If there is no drafter, or another one is served than is loaded here.
        ModelMismatchError: If the drafter that is served is for another target.
    """
    context = RunContext.current(out=options.out, profile=options.profile)
    count, warmups, budget = PROFILES[context.profile]
    depth, options.depth = options.depth, None
    engine = open_selected(options)
    if engine.drafter.info.name == "none":
        raise UsageError("a drafter here is compared with the same one elsewhere; give --drafter one")
    depth = min(depth, longest_draft(engine.drafter))
    tokenizer = Tokenizer(engine.folder)
    prompts = load_prompts(options.set, tokenizer, engine.target.info.name)
    chosen, warm = prompts.select(0, 1, options.prompts or count, warmups)
    measured = drawn({prompt.id: prompt for prompt in chosen}, context.nonce, 0)
    settings = ArmSettings(CacheLayout.NATIVE, partial(FixedDepth, depth), 512)
    stop_ids = frozenset(engine.target.info.stop_ids)
    with connections(engine) as found:
        rungs = [DraftingArm(IN_PROCESS, engine.drafter), *_elsewhere(found, options)]
        names = (LOCAL, *(rung.name for rung in rungs))
        plan = DistributedPlan(
            plain=(LOCAL,),
            drafting=rungs,
            warmups=warm,
            measured=measured,
            orders=[names] * len(measured),
            launch=0,
            max_new_tokens=options.max_new or budget,
            stop_ids=stop_ids,
            settings=settings,
        )
        workload = LaunchWorkload(
            kind="distributed_e2e",
            prompts=prompts,
            profile=Profile(context.profile, (LOCAL, SPECULATIVE), len(measured), warmups, plan.max_new_tokens),
            stop="natural",
            settings=settings,
            depth={"policy": "fixed", "tokens": depth},
        )
        instruments = Instruments.of(engine.backend, tokenizer, context.pipe_fd)

        def run() -> tuple[dict[str, Any], dict[str, Any]]:
            parts = run_distributed(engine, plan, instruments, show)
            drafts = [
                {"arm": rung.name, "sample": sample, "digest": digest}
                for rung in rungs
                for sample, digest in rung.digests.items()
            ]
            parts["rows"] |= {"drafts": drafts}
            return parts, parts

        config = describe(engine, workload, stop_ids)
        return Study("distributed_e2e", engine.backend, config, context, options.report).write(run)


def _elsewhere(found: Connections, options: argparse.Namespace) -> list[DraftingArm]:
    """Return the rungs that are asked over a connection."""
    rungs = [found.arm(LOOPBACK, found.served(options), PATIENT_S)] if options.loopback else []
    return [*rungs, *([found.arm(CROSSHOST, options.address, PATIENT_S)] if options.address else [])]


def report(found: dict[str, Any]) -> None:
    """Print on how many prompts each rung put out what plain decoding did."""
    plain, *rungs = found["arms"]
    expected = {sample.prompt_id: sample.tokens for sample in plain.samples}
    for rung in rungs:
        same = sum(sample.tokens == expected[sample.prompt_id] for sample in rung.samples)
        print(f"{rung.name}: the tokens of plain decoding on {same} of {len(rung.samples)} prompts")


COMMAND = StudyCommand(
    "Decode prompts plainly, with the drafter in this process, over loopback and at an address: equal tokens, equal "
    "drafts.",
    options,
    measure,
    report,
)
