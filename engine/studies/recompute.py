"""Compute again what the reports of a run say a target put out, with the host's own models, in a process of its own.

Every distinct output is teacher-forced: one forward over prompt and output says by how much the target's best token is
better than the one that was put out. The outputs of some prompts, drawn from the run's nonce, are decoded again with
the library's own loop, and every text is decoded from its tokens. Nothing is judged here: the gate compares.

How far apart two honest ways of decoding may be is measured beside it: the largest difference of logits between
decoding one row at a time and one forward over the same rows, twice.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement import arms
from engine.measurement.launch import agreement
from engine.measurement.schedule import PROFILES, drawn
from engine.measurement.selection import BLOCKED, PromptSet, chosen_of, load_hosts_own
from engine.options import add_model_options, add_out_option, open_selected
from engine.reports import RunContext
from engine.restoration.choice import add_restoration_option
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand
from engine.studies.recompute_rows import DRAFTED, ROWS, drafts, rows_again, unpacked, unrestored
from engine.tokenizer import Tokenizer
from engine.types import Draft, Forward

FILE = "recompute.json"
FREE_PROMPTS = 5
REFERENCE_PROMPTS = 2
CHUNK_TOKENS = 512
NOT_FINITE = 1e30
"""What a report holds in place of a number that is not finite: it is beyond every tolerance."""
Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClaimedOutput:
    """A distinct output of a report, and the layout of the cache it came from where that is not the exact one."""

    prompt_id: str
    prompt_digest: str
    token_digest: str
    prompt: Tokens
    tokens: Tokens
    layout: str | None = None


@dataclass(frozen=True, slots=True)
class RecomputedOutput:
    """What came out for one output.

    ``worst_gap`` is how far the best logit was above that of the token put out, at its largest, and ``worst_at`` where;
    ``free_running`` says whether the library's own loop put out the same, None where it was not asked.
    """

    prompt_digest: str
    token_digest: str
    tokens: int
    worst_gap: float
    worst_at: int
    text_sha256: str
    free_running: bool | None
    layout: str | None = None


def outputs_of(report: Mapping[str, Any]) -> list[ClaimedOutput]:
    """Return the distinct outputs of a report's samples, in order.

    Raises:
        UsageError: If a prompt's tokens are not in the report.
    """
    found: dict[tuple[str, str, str | None], ClaimedOutput] = {}
    layouts = report.get("kind") == "kv_quantisation"
    lossy = {arm["name"] for arm in report["arms"] if layouts and arm["role"] == "candidate"}
    for name, sample in ((arm["name"], sample) for arm in report["arms"] for sample in arm["samples"]):
        digest = sample["prompt_digest"]
        packed = report.get("prompts", {}).get(digest)
        if packed is None:
            raise UsageError(f"the tokens of prompt {sample['prompt_id']!r} are not in the report; expected them there")
        prompt, tokens = unpacked(packed), tuple(sample["tokens"])
        layout = name if name in lossy else None
        output = ClaimedOutput(sample["prompt_id"], digest, sample["token_digest"], prompt, tokens, layout)
        found.setdefault((digest, output.token_digest, layout), output)
    return list(found.values())


def teacher_forced(engine: Engine, prompt: Tokens, tokens: Tokens) -> tuple[Forward, ...]:
    """Return the forwards whose rows predict ``tokens``: the prompt's last row, then one over the output."""
    sequence = engine.target.open((), CacheLayout.FULL)
    *_, last = sequence.prefill(prompt, CHUNK_TOKENS)
    if len(tokens) == 1:
        return (last,)
    draft = tokens[1:-1]
    return last, sequence.forward_block(tokens[0], Draft(draft, len(draft)))


def worst_gap(engine: Engine, prompt: Tokens, tokens: Tokens) -> tuple[float, int]:
    """Return how far the best logit is above that of a token put out, at its largest, and at which token."""
    first, *rest = teacher_forced(engine, prompt, tokens)
    gaps = engine.backend.gaps(first, tokens[:1])
    for forward in rest:
        gaps += engine.backend.gaps(forward, tokens[1:])
    # A logit that is no number compares as nothing: it is the worst there is.
    place = max(range(len(gaps)), key=lambda index: gaps[index] if gaps[index] == gaps[index] else float("inf"))
    return gaps[place], place


def decoded(engine: Engine, prompt: Tokens, count: int) -> Tokens:
    """Return ``count`` tokens of the library's own loop."""
    steps = engine.native.decode(prompt, Stopping(budget_tokens=count), CHUNK_TOKENS)
    return tuple(token for step in steps for token in step.tokens)


def on_layout(engine: Engine, tokenizer: Tokenizer, output: ClaimedOutput, name: str) -> RecomputedOutput:
    """Decode an output of a cache that loses something again: only the same loop on the same layout repeats it."""
    stopping = Stopping(budget_tokens=len(output.tokens))
    running = arms.undrafted(engine, CacheLayout.parse(name), output.prompt, stopping, CHUNK_TOKENS)
    again = tuple(token for step in running.steps for token in step.tokens)
    return RecomputedOutput(
        prompt_digest=output.prompt_digest,
        token_digest=output.token_digest,
        tokens=len(output.tokens),
        worst_gap=0.0 if again == output.tokens else NOT_FINITE,
        worst_at=0 if again == output.tokens else agreement(again, output.tokens),
        text_sha256=_text_digest(tokenizer, output.tokens),
        free_running=again == output.tokens,
        layout=name,
    )


def _text_digest(tokenizer: Tokenizer, tokens: Tokens) -> str:
    return hashlib.sha256(tokenizer.decode(tokens).encode("utf-8", "surrogatepass")).hexdigest()


def rounding(engine: Engine, prompt: Tokens, tokens: Tokens) -> float:
    """Return the largest difference of logits between decoding row by row and one forward over the same rows."""
    if len(tokens) < 3:
        return 0.0
    _, block = teacher_forced(engine, prompt, tokens)
    sequence = engine.target.open((), CacheLayout.FULL)
    list(sequence.prefill(prompt, CHUNK_TOKENS))
    apart = 0.0
    for place, token in enumerate(tokens[:-1]):
        one = sequence.forward_block(token, Draft())
        row = Forward(block.logits[place : place + 1], None, block.start + place, 1)
        found = engine.backend.apart(one, row)
        apart = found if math.isnan(found) else max(apart, found)
        if math.isnan(apart):
            break
    return apart


def stated(value: float) -> float:
    """Return a number as JSON can say it: one that is not finite is larger than any that means something."""
    return value if math.isfinite(value) else NOT_FINITE


def recompute(engine: Engine, tokenizer: Tokenizer, report: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    """Return what is said of one report."""
    outputs = outputs_of(report)
    free = set(drawn({output.prompt_id: output.prompt_id for output in outputs}, nonce, "free")[:FREE_PROMPTS])
    rows: list[RecomputedOutput] = []
    references: list[tuple[Tokens, Tokens]] = []
    for output in outputs:
        if output.layout is not None:
            rows.append(on_layout(engine, tokenizer, output, output.layout))
            continue
        again = decoded(engine, output.prompt, len(output.tokens)) if output.prompt_id in free else None
        if again is not None and len(references) < REFERENCE_PROMPTS:
            references.append((output.prompt, again))
        gap, place = worst_gap(engine, output.prompt, output.tokens)
        rows.append(
            RecomputedOutput(
                prompt_digest=output.prompt_digest,
                token_digest=output.token_digest,
                tokens=len(output.tokens),
                worst_gap=stated(gap),
                worst_at=place,
                text_sha256=_text_digest(tokenizer, output.tokens),
                free_running=None if again is None else again == output.tokens,
            )
        )
    delta = 2 * max((stated(rounding(engine, prompt, tokens)) for prompt, tokens in references), default=0.0)
    return {"target": engine.target.info.digest, "delta": delta, "rows": [asdict(row) for row in rows]}


def reports_in(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and value of every report below a folder whose samples or rows can be computed again."""
    for path in sorted(folder.rglob("*.json")):
        value = json.loads(path.read_bytes())
        if isinstance(value, dict) and (value.get("arms") or value.get("kind") in ROWS):
            yield path.relative_to(folder).as_posix(), value


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, and where the reports are."""
    add_model_options(parser)
    add_restoration_option(parser)
    parser.add_argument(
        "--set", help="set or file the prompts are of (default: the packaged one that the report names)"
    )
    add_out_option(parser)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compute every report of the run again and write what came out beside them.

    Raises:
        UsageError: If there is none, or it does not hold its prompts.
    """
    context = RunContext.current(out=options.out)
    reports = dict(reports_in(context.out))
    if not reports:
        raise UsageError(f"{context.out} holds no report of samples; expected what the commands before this one wrote")
    found = {
        path: (rows_again if value.get("kind") in ROWS else _samples_again)(options, value, context.nonce)
        for path, value in reports.items()
    }
    data = json.dumps({"schema_version": 1, "reports": found}, separators=(",", ":"), allow_nan=False)
    descriptor = os.open(context.out / FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(data)
    return found


def _samples_again(options: argparse.Namespace, report: Mapping[str, Any], nonce: str) -> dict[str, Any]:
    options = unrestored(options)
    engine = open_selected(argparse.Namespace(**(vars(options) | {"drafter": "none"})))
    tokenizer = Tokenizer(engine.folder)
    prompts = (engine, tokenizer, report, options.set)
    found = recompute(engine, tokenizer, report, nonce)
    found |= {"strange": strange(*prompts), "unchosen": unchosen(*prompts)}
    return found | (drafts(options, report) if report.get("kind") == DRAFTED else {})


def strange(engine: Engine, tokenizer: Tokenizer, report: Mapping[str, Any], asked: str | None) -> int | None:
    """Return how many prompts of a report are none of a set's; None where the host has no such set.

    What a prompt asks for is part of it: a question made from its answer is always answered right.

    Args:
        engine: its target's pinned digests are compared.
        tokenizer: the target's.
        report: what the study wrote.
        asked: the set that the host names, by name or file; None for the packaged one that the report names.
    """
    prompts = _hosts_set(engine, tokenizer, report, asked)
    if prompts is None:
        return None
    met = {(row["prompt_digest"], row.get("expected")) for row in _rows_of(report)}
    return len({digest for digest, _ in met - {(prompt.digest, prompt.expected) for prompt in prompts.prompts}})


def unchosen(engine: Engine, tokenizer: Tokenizer, report: Mapping[str, Any], asked: str | None) -> int | None:
    """Return how many prompts of a report its study would not have chosen of the set; None where there is no such set.

    Who may choose sixty prompts of two hundred may choose those that suit a drafter. Arguments as of `strange`.
    """
    prompts = _hosts_set(engine, tokenizer, report, asked)
    if prompts is None:
        return None
    rows = _rows_of(report)
    measured, warm = ({row["prompt_digest"] for row in rows if row["is_warmup"] is which} for which in (False, True))
    budget, count = int(report["config"]["max_new_tokens"]), _designed(report, len(measured))
    chosen = chosen_of(prompts, str(report["kind"]), budget, count, len(warm)).prompts
    first, last = chosen[:count], chosen[len(chosen) - len(warm) :]
    return len((measured - {prompt.digest for prompt in first}) | (warm - {prompt.digest for prompt in last}))


def _designed(report: Mapping[str, Any], met: int) -> int:
    """Return how many prompts the study chose: those that were met, and of blocks also those that time left out."""
    if report["kind"] not in BLOCKED:
        return met
    launches: dict[int, set[str]] = {}
    for row in _rows_of(report):
        launches.setdefault(row["launch"], set()).update(() if row["is_warmup"] else (row["prompt_digest"],))
    return max(met, PROFILES[report["run"]["profile"]].blocks * max(map(len, launches.values()), default=0))


def _hosts_set(engine: Engine, tokenizer: Tokenizer, report: Mapping[str, Any], asked: str | None) -> PromptSet | None:
    named = str(report.get("config", {}).get("prompt_set", ""))
    try:
        return load_hosts_own(asked, named, tokenizer, engine.target.info.name)
    except UsageError:
        return None


def _rows_of(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for arm in report["arms"] for row in arm["samples"]]


def report(found: Mapping[str, Any]) -> None:
    """Print how far from the target's own choice the outputs were."""
    for path, one in found.items():
        if one["rows"]:
            print(f"{path}: {_summary(one['rows'], one['delta'])}")
        for name, value in one.get("values", {}).items():
            print(f"{path}: {name} {value}")
        for name, rows in one.get("exactly", {}).items():
            print(f"{path}: {len(rows)} {name} measured again")


def _summary(rows: Iterable[Mapping[str, Any]], delta: float) -> str:
    listed = list(rows)
    worst = max((row["worst_gap"] for row in listed), default=0.0)
    free = [row["free_running"] for row in listed if row["free_running"] is not None]
    return (
        f"{len(listed)} outputs computed again, at most {worst:.3g} below the target's best (rounding {delta:.3g}), "
        f"{sum(free)} of {len(free)} decoded freely came out the same"
    )


COMMAND = StudyCommand(
    "Compute again what the reports of a run say was put out; writes recompute.json beside them.",
    options,
    measure,
    report,
)
