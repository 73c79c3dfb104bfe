"""What a recompute command of the host's says of a report, and whether it may be believed.

`recompute.json` lies beside the report: it was not there before the command began, the report was and has not changed
since, and the command is the host's own engine in a process of its own. Knows no model and no tokenizer: the numbers
are the command's, the comparisons the gate's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from bridge import strictjson
from bridge.gate.claims import claim_drafts
from bridge.gate.declared.kind import Kind, Way
from bridge.gate.facts.restoration import restoration_of
from bridge.gate.facts.samples import Arm, arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import KV_QUANTISATION
from bridge.limits import REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES
from bridge.records.jobspec import Command
from bridge.records.run import CommandResult, RunRecord

FILE: Final = "recompute.json"
FREE_RUNNING: Final = 5
_DELTA_MAX: Final = {"float32": 1e-2, "bfloat16": 2.0, "float16": 0.5}
"""Beyond this the reference disagrees with itself by more than rounding, and anything would pass for near."""
_SURPRISE_ERRORS: Final = 4.0
_ELSEWHERE: Final = frozenset({"drafts"})
"""Rows that another machine may have made, whose kernels may break a near-tie otherwise: no lie, and no claim."""


def problems(report: Report, kind: Kind, evidence: Evidence) -> tuple[Violation, ...]:
    """Return why the outputs of a report are not confirmed, once."""
    return evidence.derived(("recomputation", report.path), lambda: tuple(_problems(report, kind, evidence)))


def _problems(report: Report, kind: Kind, evidence: Evidence) -> Iterator[Violation]:
    if not kind.confirms:
        yield Violation(f"no recompute command knows the kind {kind.name}")
        return
    ran = _confirming(evidence)
    if ran is None:
        yield Violation("no command of this run computes its outputs again")
        return
    command, result = ran
    if result.exit_code != 0 or evidence.record is None:
        yield Violation(f"command {command.name} ended with {result.exit_code}")
        return
    missing = list(_order(report, result))
    yield from missing
    answer = _answer(evidence.files.get(FILE))
    found = None if answer is None else answer.get(report.path)
    if found is None or missing:
        if not missing:
            yield Violation(f"{FILE} says nothing of {report.path}")
        return
    yield from _model(found, report, evidence.record)
    yield from _prompts(found, report)
    yield from _confirmed(found, kind, report, evidence)


def _confirming(evidence: Evidence) -> tuple[Command, CommandResult] | None:
    """Return the command that confirms, with its end."""
    if evidence.spec is None or evidence.record is None or not evidence.spec.commands[-1].confirms:
        return None
    command = evidence.spec.commands[-1]
    ended = next((one for one in evidence.record.commands if one.name == command.name), None)
    return None if ended is None else (command, ended)


def _order(report: Report, result: CommandResult) -> Iterator[Violation]:
    """Yield a report that came to be, or an answer that was there, at the wrong time."""
    before = {output.path: output.sha256 for output in result.before or ()}
    if before.get(report.path) != hashlib.sha256(report.data).hexdigest():
        yield Violation("the report is not the one that lay there when it was computed again", severity="reject")
    if FILE in before:
        yield Violation(f"{FILE} was there before anything was computed again", severity="reject")


def _answer(data: bytes | None) -> Mapping[str, Any] | None:
    if data is None:
        return None
    try:
        value = strictjson.decode(data, max_bytes=REPORT_MAX_BYTES, max_depth=REPORT_JSON_MAX_DEPTH)
    except strictjson.StrictJsonError:
        return None
    reports = value.get("reports") if isinstance(value, dict) else None
    return reports if isinstance(reports, dict) else None


def _model(found: Mapping[str, Any], report: Report, record: RunRecord) -> Iterator[Violation]:
    """Yield a model that is not the report's, as the runner digested it."""
    target = report.body["config"].get("target")
    digests = {model.weights_sha256 for model in record.models}
    if target is None or found["target"] != target["digest"] or found["target"] not in digests:
        yield Violation(f"computed again with the weights {str(found['target'])[:12]}…, the report names others")
    named, again = restoration_of(report), found.get("restoration")
    if again != named:
        yield Violation(f"computed again with the f_theta {_told(again)}, the report names {_told(named)}")


def _told(model: Any) -> str:
    """Return a model's name and the beginning of its digest, for people."""
    return f"{model['name']!r} ({model['digest'][:12]}…)" if isinstance(model, Mapping) else "none"


def _prompts(found: Mapping[str, Any], report: Report) -> Iterator[Violation]:
    """Yield prompts that are none of the set's that the report names, as the host has it, or chosen from it."""
    named, strange = report.body["config"].get("prompt_set"), found.get("strange", 0)
    if strange is None:
        yield Violation(f"the host has no prompt set {named!r} to compare the prompts with", premise="inputs")
    elif strange:
        yield Violation(f"{strange} prompts are none of the set {named!r} as the host has it", premise="inputs")
    if others := found.get("unchosen", 0):
        said = f"{others} prompts are others of the set {named!r} than those that its rule chooses"
        yield Violation(said, premise="inputs")


def _confirmed(found: Mapping[str, Any], kind: Kind, report: Report, evidence: Evidence) -> Iterator[Violation]:
    yield from _numbers(found.get("values", {}), kind, report, evidence)
    for name, confirmation in kind.confirms.items():
        if confirmation.way == "exact" and name != "tokens":
            yield from _rows(name, found.get("exactly", {}).get(name), report)
    if "tokens" not in kind.confirms:
        return
    way, dtype = kind.confirms["tokens"].way, str(report.body["config"]["dtype"])
    # Below fp32 two kernels may break a near-tie differently.
    way = "near" if way == "exact" and dtype != "float32" else way
    delta = float(found["delta"])
    if not 0 <= delta <= _DELTA_MAX.get(dtype, 0.0):
        yield Violation(f"the reference disagrees with itself by {delta / 2:g}, too much to compare with")
        return
    for arm in arms_of(report, evidence).all:
        # What a cache loses only the same loop on the same layout repeats.
        layout = arm.name if report.kind == KV_QUANTISATION and arm.role == "candidate" else None
        mine = [row for row in found["rows"] if row.get("layout") == layout]
        yield from _arm(arm, {(row["prompt_digest"], row["token_digest"]): row for row in mine}, way, delta)


def _rows(name: str, again: Any, report: Report) -> Iterator[Violation]:
    """Yield rows of a report that say something else than those that were measured again, in what these hold."""
    said = cast("Mapping[str, Any]", report.body["rows"])[name]
    if not isinstance(again, list) or (said and not again):
        yield Violation(f"the {name} were not measured again")
        return
    for index, row in enumerate(said):
        if not any(all(row.get(key) == value for key, value in one.items()) for one in again):
            near = max(again, key=lambda one: sum(row.get(key) == value for key, value in one.items()))
            differs = sorted(key for key, value in near.items() if row.get(key) != value)
            yield Violation(
                f"{', '.join(differs)} came out otherwise when it was measured again",
                f"/rows/{name}/{index}",
                severity="violation" if name in _ELSEWHERE else "reject",
                arms=(row["arm"],) if name in _ELSEWHERE else (),
            )


def _numbers(values: Mapping[str, Any], kind: Kind, report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Yield claims whose number came out otherwise."""
    drafts = {draft.id: draft for draft in claim_drafts(report, evidence)}
    for name, confirmation in kind.confirms.items():
        draft, again = drafts.get(name), values.get(name)
        if confirmation.way != "numeric" or draft is None or draft.value is None:
            continue
        if not isinstance(again, int | float) or isinstance(again, bool):
            yield Violation(f"{name} was not computed again", claims=(name,))
        elif not abs(again - draft.value) <= confirmation.tolerance:
            said = f"{name} is {draft.value!r}, computed again {again!r}, at most {confirmation.tolerance:g} apart"
            yield Violation(said, severity="reject", claims=(name,))


def _arm(arm: Arm, rows: Mapping[tuple[str, str], Mapping[str, Any]], way: Way, delta: float) -> Iterator[Violation]:
    """Yield what was not computed again of an arm, or came out otherwise."""
    pairs = {(sample["prompt_digest"], sample["token_digest"]): sample for sample in arm.samples}
    seen = {key: rows[key] for key in pairs if key in rows}
    if len(seen) < len(pairs):
        yield Violation(f"{len(pairs) - len(seen)} outputs of {arm.name!r} were not computed again", arms=(arm.name,))
    wrong = [key for key, row in seen.items() if not _near(row, way, delta)]
    if wrong:
        row = rows[wrong[0]]
        yield Violation(
            f"{len(wrong)} of {len(pairs)} outputs of {arm.name!r} are not the target's: its best token is better by "
            f"up to {row['worst_gap']:g} at token {row['worst_at']}, at most {delta:g} is rounding",
            arm.pointer(pairs[wrong[0]]),
            arms=(arm.name,),
        )
    texts = [key for key, row in seen.items() if row["text_sha256"] != _sha(pairs[key]["text"])]
    if texts:
        said = f"the text of {len(texts)} outputs of {arm.name!r} is not what the tokenizer decodes from their tokens"
        yield Violation(said, arm.pointer(pairs[texts[0]]), severity="reject")
    yield from _free(arm, list(seen.values()), way)


def _near(row: Mapping[str, Any], way: Way, delta: float) -> bool:
    """Whether every token is the target's choice; drawn tokens are as surprising as the target's own."""
    if way == "drawn":
        within = abs(row["surprise"] - row["entropy"]) <= _SURPRISE_ERRORS * row["surprise_error"]
        return bool(row["in_support"]) and within
    gap = float(row["worst_gap"])
    return math.isfinite(gap) and gap <= delta


def _free(arm: Arm, seen: Sequence[Mapping[str, Any]], way: Way) -> Iterator[Violation]:
    """Yield too few outputs that the host decoded itself, or one that came out otherwise although it must not."""
    ran = [row for row in seen if row["free_running"] is not None]
    if way == "exact" and len(ran) < min(FREE_RUNNING, len(seen)):
        yield Violation(
            f"{len(ran)} outputs of {arm.name!r} were decoded freely, {FREE_RUNNING} are asked", arms=(arm.name,)
        )
    other = [row for row in ran if row["free_running"] is not True]
    if way == "exact" and other:
        said = f"{len(other)} of {len(ran)} outputs of {arm.name!r} came out otherwise when the host decoded them"
        yield Violation(said, arms=(arm.name,))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
