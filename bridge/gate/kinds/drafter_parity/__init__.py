"""Agreement of drafters between backends: its claims and its rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

from bridge.gate.claims import ClaimDraft
from bridge.gate.declared.row_views import StatedDrafterParityBlock, StatedGeneration
from bridge.gate.declared.views import StatedConfig
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import DRAFTER_PARITY
from bridge.gate.rule import report_rule


def blocks_of(report: Report) -> list[StatedDrafterParityBlock]:
    """Return the blocks of a report of this kind; another kind has others under this name."""
    return cast("list[StatedDrafterParityBlock]", report.body["rows"]["blocks"])


def recompute(report: Report, _evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield how many drafted tokens agree, then how many generations."""
    rows, dtype = report.body["rows"], report.body["config"]["target"]["dtype"]
    pairs = [
        (a, b) for block in blocks_of(report) for a, b in zip(block["mlx_tokens"], block["torch_tokens"], strict=False)
    ]
    agreed = sum(a == b for a, b in pairs)
    yield ClaimDraft(
        id="agreed_tokens",
        role="primary",
        value=float(agreed),
        unit="tokens",
        n=len(pairs),
        wording=f"{agreed} of {len(pairs)} drafted tokens agree between mlx and torch, {dtype}",
    )
    whole = [row for row in rows["generations"] if row["mlx_tokens"] == row["torch_tokens"]]
    if rows["generations"]:
        yield ClaimDraft(
            id="identical_generations",
            role="secondary",
            value=float(len(whole)),
            unit="prompts",
            n=len(rows["generations"]),
            wording=f"{len(whole)} of {len(rows['generations'])} generations are identical, {dtype}",
        )


@report_rule("G4-PARITY", "outputs", kinds=(DRAFTER_PARITY,), remedy="Record every block once, both proposals in full.")
def require_distinct_blocks(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    """Parity rows are distinct and compare equal numbers of tokens.

    A block that occurs twice agrees twice; a shorter list agrees by being absent.
    """
    rows, config = report.body["rows"], report.body["config"]
    blocks = blocks_of(report)
    for key, count in Counter((block["prompt_id"], block["position"]) for block in blocks).items():
        if count > 1:
            yield Violation(f"the block of {key[0]!r} at {key[1]} occurs {count} times", "/rows/blocks")
    yield from _blocks(blocks, config)
    yield from _generations(blocks, rows["generations"])


def _blocks(blocks: Sequence[StatedDrafterParityBlock], config: StatedConfig) -> Iterator[Violation]:
    vocabulary = config["target"].get("vocab_size", 1 << 32)
    for index, block in enumerate(blocks):
        where, ours, theirs = f"/rows/blocks/{index}", block["mlx_tokens"], block["torch_tokens"]
        if len(ours) != len(theirs) or not ours:
            yield Violation(f"{len(ours)} tokens beside {len(theirs)}", where)
        if (ours != theirs) != (block["top2_margin_at_divergence"] is not None):
            yield Violation(f"equal: {ours == theirs}, margin: {block['top2_margin_at_divergence']}", where)
        if max((block["bonus"], *ours, *theirs)) >= vocabulary:
            yield Violation(f"a token outside a vocabulary of {vocabulary}", where)
    places = [(block["prompt_id"], block["position"]) for block in blocks]
    if any(a[0] == b[0] and a[1] >= b[1] for a, b in pairwise(places)):
        yield Violation("blocks of a prompt are not in order", "/rows/blocks")


def _generations(blocks: Sequence[StatedDrafterParityBlock], rows: Sequence[StatedGeneration]) -> Iterator[Violation]:
    prompts = [row["prompt_id"] for row in rows]
    if len(set(prompts)) != len(prompts) or len({row["prompt_digest"] for row in rows}) != len(prompts):
        yield Violation("a prompt was generated twice", "/rows/generations")
    by_prompt: dict[str, list[StatedDrafterParityBlock]] = {}
    for block in blocks:
        by_prompt.setdefault(block["prompt_id"], []).append(block)
    if rows and by_prompt.keys() != set(prompts):
        yield Violation("blocks and generations are of different prompts", "/rows")
    for row in rows:
        for message in _block_steps(by_prompt.get(row["prompt_id"], ()), row):
            yield Violation(f"{row['prompt_id']}: {message}", "/rows/blocks")
    for index, row in enumerate(rows):
        yield from _committed(row, f"/rows/generations/{index}")


def _block_steps(blocks: Sequence[StatedDrafterParityBlock], row: StatedGeneration) -> Iterator[str]:
    """Yield where blocks are not the steps of their prompt's generation on mlx, whose run they were taken from."""
    accepted, tokens = row["mlx_accepted_per_step"], row["mlx_tokens"]
    if len(blocks) != len(accepted):
        yield f"{len(blocks)} blocks, {len(accepted)} steps"
        return
    emitted = 1
    for index, (block, taken) in enumerate(zip(blocks, accepted, strict=True)):
        if block["position"] != blocks[0]["position"] + emitted - 1:
            yield f"block {index} is at {block['position']}"
        if block["bonus"] != tokens[emitted - 1]:
            yield f"block {index} starts with another token than the last one emitted"
        if list(block["mlx_tokens"][:taken]) != list(tokens[emitted : emitted + taken])[: len(block["mlx_tokens"])]:
            yield f"block {index}: the accepted drafts are not the emitted tokens"
        emitted += taken + 1


def _committed(row: StatedGeneration, where: str) -> Iterator[Violation]:
    sides = (
        ("mlx", row["mlx_accepted_per_step"], row["mlx_tokens"]),
        ("torch", row["torch_accepted_per_step"], row["torch_tokens"]),
    )
    for side, accepted, tokens in sides:
        surplus = 1 + len(accepted) + sum(accepted) - len(tokens)
        if not 0 <= surplus <= (accepted[-1] if accepted else 0):
            yield Violation(f"{side}: {len(accepted)} steps commit {sum(accepted)} drafts, {len(tokens)} tokens", where)
