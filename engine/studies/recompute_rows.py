"""Compute again the rows of studies: bytes, agreement of drafters, blocks of a graph, forwards, drafts beside samples.

Each is measured anew in the process of the recompute command, by the function of its study, from what the report says
was asked. What a clock said is left out: it does not repeat.
"""

from __future__ import annotations

import argparse
import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from engine.decoding.depth import FixedDepth
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement import bounded_answers
from engine.measurement.arms import ArmSettings
from engine.measurement.launch import restoration_facts
from engine.measurement.selection import Prompt, PromptSet, load_hosts_own
from engine.options import open_selected, open_undrafted
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.studies import bounded_kv, bounded_recall, drafter_parity, single_graph, verify_cost
from engine.studies.remote_arms import IN_PROCESS, DraftingArm
from engine.tokenizer import Tokenizer

BYTES = ("kv_bytes", "kv_bytes_peak", "host_bytes", "drafter_bytes", "latent_bytes")
POINT = ("arm", "context_tokens", "decode_steps", *BYTES)
BLOCK = ("index", "mode", "position", "drafted", "accepted")


def points(options: argparse.Namespace, report: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    """Return what each arm of a study of bytes holds at each context, all arms in this one process."""
    config, rows = report["config"], report["rows"]["points"]
    # A layout that restores what it evicts needs what restores it.
    layout = CacheLayout.parse(config["cache_layout"])
    named = None if layout.rank is None else options.restoration
    engine = open_undrafted(argparse.Namespace(**(vars(options) | {"cache": str(layout), "restoration": named})))
    prompts = _prompt_set(options, config, engine)
    arms = {row["arm"]: row["role"] == "baseline" for row in rows}
    found: list[Any] = []
    for arm, native in arms.items():
        plan = bounded_kv.MemoryPlan(
            layout=CacheLayout.NATIVE if native else CacheLayout.parse(arm),
            native=native,
            repeat=0,
            process=0,
            contexts=tuple(sorted({row["context_tokens"] for row in rows if row["arm"] == arm})),
            decode_tokens=rows[0]["decode_steps"],
            chunk_tokens=config["prefill_chunk_tokens"],
            ids=bounded_kv.context_ids(prompts, nonce),
        )
        found += bounded_kv.measure_memory(engine, plan)
    again = [{name: getattr(point, name) for name in (*POINT, "token_digest")} for point in found]
    return _models(engine) | {"exactly": {"points": again}}


def agreements(options: argparse.Namespace, report: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    """Return on how many tokens and prompts both drafters agree, and how many prompts the nonce did not draw."""
    mlx, torch = drafter_parity.both(options)
    prompts = list(_prompts(report))
    found = drafter_parity.compare(mlx, torch, prompts, report["config"]["max_new_tokens"])
    same = sum(row.mlx_tokens == row.torch_tokens for row in found.generations)
    values = {"agreed_tokens": found.agreed_tokens, "identical_generations": same}
    strange = _strange(options, report["config"], mlx, prompts, nonce)
    return {"target": mlx.target.info.digest, "values": values, "strange": strange}


def _strange(
    options: argparse.Namespace, config: Mapping[str, Any], engine: Engine, prompts: Sequence[Prompt], nonce: str
) -> int | None:
    """Return how many prompts are none that the nonce draws of the host's set; None where it is not the one named."""
    try:
        hosts = _prompt_set(options, config, engine)
        drawn = hosts.drawn(len(prompts), nonce).prompts
    except UsageError:
        return None
    if not _is_named(hosts, config):
        return None
    return len({prompt.digest for prompt in prompts} - {prompt.digest for prompt in drawn})


def blocks(options: argparse.Namespace, report: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    """Return where the blocks of a graph probe were and what of them was accepted."""
    engine = open_selected(options)
    config, count = report["config"], len(report["rows"]["blocks"])
    (prompt,) = _prompt_set(options, config, engine).drawn(1, nonce).prompts
    timed = [asdict(one) for one in single_graph.probe(engine, prompt.ids, count, math.inf, config["depth"])]
    again = [{name: one[name] for name in BLOCK} for one in timed]
    return {"target": engine.target.info.digest, "exactly": {"blocks": again}}


def costs(options: argparse.Namespace, report: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    """Return which tokens came out of each shape of forward and draft."""
    engine, config = open_selected(options), report["config"]
    plan = verify_cost.CostPlan(tuple(config["contexts"]), tuple(config["rows"]), 1, nonce)
    again = verify_cost.measure_costs(engine, plan).rows()
    listed = {
        name: [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
        for name, rows in again.items()
    }
    return {"target": engine.target.info.digest, "exactly": listed}


def bounded(options: argparse.Namespace, report: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    """Return what each arm of a study of bounded caches answers, holds and moves, and its canaries, all run again."""
    config, rows = report["config"], report["rows"]
    named = [row["arm"] for row in rows["candidates"] if row["role"] == "candidate"]
    target = bounded_recall.asked_target(argparse.Namespace(target=options.target, arms=",".join(named)))
    changes = {"drafter_context": config["drafter_context"], "target": target}
    chosen = argparse.Namespace(**(vars(options) | changes))
    depth = config["depth"]
    candidates = tuple(bounded_answers.Candidate.parse(arm, drafts=depth > 0) for arm in named)
    engine = bounded_recall.opened(chosen, candidates, depth)
    count = len({row["prompt_digest"] for row in rows["answers"]})
    hosts = _prompt_set(options, config, engine)
    prompts = bounded_recall.drawn_prompts(hosts, config["least_tokens"], count, nonce)
    plan = bounded_answers.RecallPlan(
        candidates, prompts, config["max_new_tokens"], config["prefill_chunk_tokens"], depth
    )
    found = [asdict(one) for one in bounded_answers.answers(engine, plan, Tokenizer(engine.folder))]
    canaries = [asdict(one) for one in bounded_recall.canary_rows(engine, prompts[0])]
    changes = {"canary_identity": max, "canary_noise": min}
    values = {
        name: pick(row[f"{name.removeprefix('canary_')}_logit_change"] for row in canaries)
        for name, pick in changes.items()
    }
    known = ("layer_kind", "layers", "rows")
    again = {"answers": found, "layer_canaries": [{name: row[name] for name in known} for row in canaries]}
    asked = {row["prompt_digest"] for row in rows["answers"]}
    strange = len(asked - {prompt.digest for prompt in prompts}) if _is_named(hosts, config) else None
    return _models(engine) | {"strange": strange, "values": values, "exactly": again}


def _models(engine: Engine) -> dict[str, Any]:
    """Return what rows were made by here: the target's digest, and which f_theta where there is one."""
    return {"target": engine.target.info.digest, "restoration": restoration_facts(engine)}


def drafts(options: argparse.Namespace, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the drafter here proposes for each sample that a rung drafted, those that were rejected too.

    The drafter is loaded anew and asked in this process, whatever the rung's own connection was.
    """
    engine, config = open_selected(options), report["config"]
    depth = partial(FixedDepth, config["depth"]["tokens"])
    settings = ArmSettings(CacheLayout.NATIVE, depth, config["prefill_chunk_tokens"])
    rungs = {row["arm"] for row in report["rows"]["drafts"]}
    known: dict[str, str] = {}
    again = []
    for name, sample in ((arm["name"], sample) for arm in report["arms"] for sample in arm["samples"]):
        if name in rungs:
            prompt = sample["prompt_digest"]
            if prompt not in known:
                drafting = DraftingArm(IN_PROCESS, engine.drafter)
                stopping = Stopping(config["max_new_tokens"], frozenset(config["stopping_ids"]))
                for _step in drafting.begin(engine, settings, unpacked(report["prompts"][prompt]), stopping).steps:
                    pass
                drafting.end(prompt)
                known[prompt] = drafting.digests[prompt]
            again.append({"arm": name, "sample": sample["id"], "digest": known[prompt]})
    return {"exactly": {"drafts": again}}


def unrestored(options: argparse.Namespace) -> argparse.Namespace:
    """Return options without the f_theta that they name for other reports."""
    return argparse.Namespace(**(vars(options) | {"restoration": None}))


def unpacked(packed: str) -> tuple[int, ...]:
    """Return the token ids that a report holds as base64 of 32-bit numbers."""
    data = base64.b64decode(packed)
    return struct.unpack(f"<{len(data) // 4}I", data)


DRAFTED = "distributed_e2e"
"""The kind whose samples have rows of drafts beside them."""
RESTORING = frozenset({"bounded_kv", "bounded_recall"})
"""The kinds whose arms may need an f_theta."""
ROWS: dict[str, Callable[[argparse.Namespace, Mapping[str, Any], str], dict[str, Any]]] = {
    "bounded_kv": points,
    "bounded_recall": bounded,
    "drafter_parity": agreements,
    "fused_graph_probe": blocks,
    "verify_cost": costs,
}


def rows_again(options: argparse.Namespace, report: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    """Return what is said of one report without samples."""
    given = options if report["kind"] in RESTORING else unrestored(options)
    return {"delta": 0.0, "rows": []} | ROWS[report["kind"]](given, report, nonce)


def _prompt_set(options: argparse.Namespace, config: Mapping[str, Any], engine: Engine) -> PromptSet:
    return load_hosts_own(options.set, config["prompt_set"], Tokenizer(engine.folder), engine.target.info.name)


def _is_named(hosts: PromptSet, config: Mapping[str, Any]) -> bool:
    """Say whether the set that the host named is the one that a report says it asked."""
    return bool(hosts.name == config["prompt_set"])


def _prompts(report: Mapping[str, Any]) -> Iterator[Prompt]:
    """Yield the prompts of a parity report in its order."""
    for row in report["rows"]["generations"]:
        yield Prompt(row["prompt_id"], "", unpacked(report["prompts"][row["prompt_digest"]]), row["prompt_digest"])
