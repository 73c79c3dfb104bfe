"""Every word after ``kakeya-engine eval``: where its ``StudyCommand`` is, and its line of help.

A study is imported when it is asked for, so that help stays light. To add one, write its module and add a line here.
"""

from __future__ import annotations

import importlib
from typing import Any

from engine.studies.command import StudyCommand

STUDIES = {
    "code": ("comparison:CODE", "speculative against autoregressive decoding on code prompts"),
    "needle": ("comparison:NEEDLE", "the same on needle prompts, answers scored"),
    "native": ("comparison:NATIVE", "the array library's own decoding alone"),
    "assemble": ("comparison:ASSEMBLE", "join the parts of a run's launches into its report"),
    "single-graph": ("single_graph:COMMAND", "evaluation times of draft and verify in one graph, bounded"),
    "drafter-parity": ("drafter_parity:COMMAND", "the MLX drafter against the torch one"),
    "verify-cost": ("verify_cost:COMMAND", "what verifying a block costs beside a decode"),
    "kv-quant": ("kv_quant:COMMAND", "recall, bytes and decode time of quantised caches"),
    "bounded-kv": ("bounded_kv:COMMAND", "bytes held by context, one arm a process"),
    "bounded-recall": ("bounded_recall:COMMAND", "recall and bytes of many bounded caches, canaries beside"),
    "acceptance": ("acceptance:COMMAND", "accepted draft tokens on raw code completion"),
    "commits": ("commits:LAUNCH", "one launch of two checkouts' code against each other"),
    "commits-assemble": ("commits:ASSEMBLE", "join those launches into their report"),
    "peer": ("request_code:LAUNCH", "one launch of asking untrusted code, measured from outside"),
    "answer": ("request_code:ANSWER", "the other side of that: decode what is asked over a pipe"),
    "peer-assemble": ("request_code:ASSEMBLE", "join those launches into their report"),
    "continue": ("continuations:COMMAND", "texts as the target goes on with them, for servers to be asked"),
    "distributed-e2e": ("distributed_e2e:COMMAND", "equal tokens and drafts with the drafter here and elsewhere"),
    "distributed-bench": (
        "distributed_bench:COMMAND",
        "speed with the drafter behind links of several round-trip times",
    ),
    "recompute": ("recompute:COMMAND", "compute again what the reports of a run say was put out"),
    "model": ("model_cards:COMMAND", "the measurements behind the model cards and prompt sets"),
}


def command(name: str) -> StudyCommand[Any]:
    """Return the command of a word.

    Raises:
        KeyError: If there is none.
    """
    module, _, constant = STUDIES[name][0].partition(":")
    found: StudyCommand[Any] = getattr(importlib.import_module(f"engine.studies.{module}"), constant)
    return found
