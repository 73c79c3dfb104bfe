"""Dispatch ``kakeya-engine eval WHAT`` to the module that measures it."""

from __future__ import annotations

import importlib
import sys

WORKLOADS = {
    "code": ("engine.cli.eval_compare:code", "speculative against autoregressive decoding on code prompts"),
    "needle": ("engine.cli.eval_compare:needle", "the same on needle prompts, answers scored"),
    "native": ("engine.cli.eval_compare:native", "the array library's own decoding alone"),
    "assemble": ("engine.cli.eval_assemble:main", "join the parts of a run's launches into its report"),
    "single-graph": ("engine.cli.eval_single_graph:main", "evaluation times of draft and verify in one graph, bounded"),
    "drafter-parity": ("engine.cli.eval_studies:drafter_parity", "the MLX drafter against the torch one"),
    "verify-cost": ("engine.cli.eval_studies:verify_cost", "what verifying a block costs beside a decode"),
    "kv-quant": ("engine.cli.eval_caches:kv_quant", "recall, bytes and decode time of quantised caches"),
    "bounded-kv": ("engine.cli.eval_caches:bounded_kv", "bytes held by context, one arm a process"),
    "acceptance": ("engine.cli.eval_studies:acceptance", "accepted draft tokens on raw code completion"),
    "commits": ("engine.cli.eval_commits:main", "one launch of two checkouts' code against each other"),
    "commits-assemble": ("engine.cli.eval_commits:assemble", "join those launches into their report"),
    "peer": ("engine.cli.eval_peer:main", "one launch of asking code nobody trusts, measured from outside"),
    "answer": ("engine.cli.eval_peer:answer", "the other side of that: decode what is asked over a pipe"),
    "peer-assemble": ("engine.cli.eval_peer:assemble", "join those launches into their report"),
    "model": ("engine.cli.eval_model:main", "the measurements behind the model cards and prompt sets"),
}


def usage() -> str:
    """Return the help text, one line a workload."""
    lines = [f"  {name:<17} {summary}" for name, (_, summary) in WORKLOADS.items()]
    return (
        "usage: kakeya-engine eval WHAT [options]\n\n"
        + "\n".join(lines)
        + "\n\n`kakeya-engine eval WHAT --help` says more."
    )


def main(argv: list[str]) -> int:
    """Run one workload and return its exit code, 2 for an unknown one."""
    if not argv or argv[0] in {"-h", "--help"}:
        print(usage())
        return 0
    if argv[0] not in WORKLOADS:
        print(f"unknown workload {argv[0]!r}; known: {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    module, _, function = WORKLOADS[argv[0]][0].partition(":")
    return int(getattr(importlib.import_module(module), function)(argv[1:]))
