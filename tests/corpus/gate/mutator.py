"""Single-site mutants of reports and RunRecords, sealed again before judging, and what the gate makes of them.

A mutant is killed when the verdict, or a claim, drops and a rule says why. It is equivalent when decision, claims,
wording and findings stay as they were and its path was listed beforehand in `informational.json`. Everything else
survived.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bridge import strictjson
from bridge.gate.judging import judge, judge_bytes
from bridge.records.verdict import Verdict
from engine.reports.tokens import token_digest
from tests.corpus.gate.builders import Case

FACTORS = (0.5, 0.9, 0.99, 1.01, 1.1, 2.0, 1000.0)
OPERATORS = ("drop", "duplicate", "retype", "swap", *(f"x{factor:g}" for factor in FACTORS))
RANK = {"rejected": 0, "recorded": 1, "valid": 2, "evidence": 3}
MAPS = {"versions", "packages", "threads", "params", "sources", "drivers", "settings"}
"""Objects whose keys are data, not schema."""
DERIVED = (
    "/claims*",
    "/run/preset",
    "/run/params*",
    "/run/profile",
    "/config/target/parameters",
    "/config/drafter/parameters",
    "/arms/*/samples/*/id",
    "/arms/*/samples/*/prompt_tokens",
    "/arms/*/samples/*/output_tokens",
    "/arms/*/samples/*/token_digest",
    "/arms/*/samples/*/loop_onset",
    "/arms/*/samples/*/correct",
    "/arms/*/samples/*/stages/total_s",
    "/arms/*/samples/*/counters*",
    "/rows/by_position*",
)
"""Places of a report whose values follow from others: the gate derives them, and reads none of them."""
INFORMATIONAL = Path(__file__).with_name("informational.json")
Path_ = tuple[Any, ...]


@dataclass(frozen=True)
class Mutant:
    """One change at one place."""

    document: str
    pattern: str
    path: Path_
    operator: str
    field_class: str


@dataclass
class Score:
    """Outcomes by (operator, field class), and the patterns that survived."""

    killed: Counter[tuple[str, str]] = field(default_factory=Counter)
    equivalent: Counter[tuple[str, str]] = field(default_factory=Counter)
    total: Counter[tuple[str, str]] = field(default_factory=Counter)
    survivors: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    by_rule: Counter[str] = field(default_factory=Counter)

    def add(self, mutant: Mutant, outcome: str, rule: str) -> None:
        cell = (mutant.operator, mutant.field_class)
        self.total[cell] += 1
        if outcome == "killed":
            self.killed[cell] += 1
            self.by_rule[rule] += 1
        elif outcome == "equivalent":
            self.equivalent[cell] += 1
        else:
            self.survivors[f"{mutant.document} {mutant.pattern}"].append(mutant.operator)

    def merge(self, other: Score, name: str) -> None:
        for mine, theirs in (
            (self.killed, other.killed),
            (self.equivalent, other.equivalent),
            (self.total, other.total),
        ):
            mine.update(theirs)
        self.by_rule.update(other.by_rule)
        for place, operators in other.survivors.items():
            self.survivors[f"{name} {place}"] += operators

    def cells(self, *, with_equivalents: bool) -> dict[tuple[str, str], float]:
        rates = {}
        for cell, total in self.total.items():
            rest = total if with_equivalents else total - self.equivalent[cell]
            if rest:
                rates[cell] = self.killed[cell] / rest
        return rates

    def macro(self, *, with_equivalents: bool) -> float:
        cells = self.cells(with_equivalents=with_equivalents)
        return sum(cells.values()) / len(cells) if cells else 0.0

    def equivalent_share(self) -> float:
        return sum(self.equivalent.values()) / max(sum(self.total.values()), 1)


def informational() -> dict[str, str]:
    """Return reason by `document pattern`."""
    rows = json.loads(INFORMATIONAL.read_text("utf-8"))
    return {f"{row['document']} {row['path']}": row["reason"] for row in rows}


def sites(value: Any, document: str, path: Path_ = (), pattern: str = "") -> Iterator[tuple[Path_, str]]:
    """Yield every place below the root with its pattern: list indices and data keys become `*`."""
    if isinstance(value, dict):
        data_keys = bool(path) and path[-1] in MAPS
        for key, inner in value.items():
            here = f"{pattern}/{'*' if data_keys else key}"
            yield (*path, key), here
            yield from sites(inner, document, (*path, key), here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            here = f"{pattern}/{_element(value, index, pattern)}"
            yield (*path, index), here
            yield from sites(inner, document, (*path, index), here)


def _element(items: list[Any], index: int, pattern: str) -> str:
    """Return what a list element is called in patterns: arms by role, samples by whether they count."""
    item = items[index]
    if pattern == "/arms" and isinstance(item, dict):
        return str(item.get("role", "*"))
    if isinstance(item, dict) and "is_warmup" in item:
        return "warm-up" if item["is_warmup"] else "measured"
    return "*"


def field_class(path: Path_, value: Any) -> str:
    """Return the class of a place: what kind of thing stands there."""
    name = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
    if len(path) >= 2 and path[-2] in MAPS:
        return "map"
    if isinstance(value, dict | list):
        return "container"
    if isinstance(value, bool):
        return "flag"
    if name in {"tokens", "accepted_per_step", "drafted_per_step"}:
        return "tokens"
    if "digest" in name or "sha256" in name or name in {"request_oid", "claims", "tree", "key"}:
        return "digest"
    if name.endswith("_s") or name in {
        "seconds",
        "t_s",
        "started_at",
        "ended_at",
        "created",
        "claimed",
        "started",
        "ended",
    }:
        return "time"
    if "bytes" in name:
        return "bytes"
    if isinstance(value, int):
        return "count"
    if isinstance(value, float):
        return "value"
    return "null" if value is None else "text"


def mutants(value: Any, document: str, per_pattern: int | None, seed: int) -> Iterator[Mutant]:
    """Yield mutants of a document, at most so many per pattern and operator; None for all of them."""
    groups: defaultdict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for path, pattern in sites(value, document):
        if document == "report" and not is_observed(pattern):
            continue
        parent, key = at(value, path[:-1]), path[-1]
        kind = field_class(path, parent[key])
        for operator in OPERATORS:
            if applies(parent, key, operator):
                structural = operator in {"drop", "retype"} and isinstance(path[-1], str) and kind != "map"
                groups[pattern, operator].append(
                    Mutant(document, pattern, path, operator, "structural" if structural else kind)
                )
    rng = random.Random(seed)
    for key in sorted(groups):
        group = groups[key]
        yield from group if per_pattern is None or len(group) <= per_pattern else rng.sample(group, per_pattern)


def is_observed(pattern: str) -> bool:
    """Return whether a place of a report is an observation: what follows from others is read by nobody."""
    return not any(fnmatchcase(pattern, derived) for derived in DERIVED)


def at(value: Any, path: Path_) -> Any:
    for part in path:
        value = value[part]
    return value


def applies(parent: Any, key: Any, operator: str) -> bool:
    """Return whether an operator changes this place; to make the changed document takes a hundred times as long."""
    if operator in {"drop", "retype"}:
        return True
    if operator == "duplicate":
        return isinstance(parent, list)
    if operator == "swap":
        return _sibling(parent, key) is not None
    return _scaled(parent[key], float(operator[1:])) is not None


def mutate(value: Any, path: Path_, operator: str) -> tuple[Any] | None:
    """Return (document with one change,), None where the operator does not apply."""
    parent, key = at(value, path[:-1]), path[-1]
    if not applies(parent, key, operator):
        return None
    changed: Any
    if operator == "drop":
        changed = _without(parent, key)
    elif operator == "duplicate":
        changed = [*parent[: key + 1], parent[key], *parent[key + 1 :]]
    elif operator == "retype":
        changed = _with(parent, key, _retyped(parent[key]))
    elif operator == "swap":
        other = _sibling(parent, key)
        changed = _with(_with(parent, key, parent[other]), other, parent[key])
    else:
        changed = _with(parent, key, _scaled(parent[key], float(operator[1:])))
    return (_rebuilt(value, path[:-1], changed),)


def _retyped(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return float(value)
    if isinstance(value, float):
        return str(value)
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return {"items": value}
    if isinstance(value, dict):
        return [value]
    return False


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    scaled: Any = value * factor
    if isinstance(value, int):
        scaled = round(scaled)
    return None if scaled == value else scaled


def _sibling(parent: Any, key: Any) -> Any:
    """Return the next key or index whose value has the same type and another value."""
    keys = list(range(len(parent))) if isinstance(parent, list) else sorted(parent)
    start = keys.index(key)
    for other in keys[start + 1 :]:
        if type(parent[other]) is type(parent[key]) and parent[other] != parent[key]:
            return other
    return None


def _with(parent: Any, key: Any, item: Any) -> Any:
    copied = list(parent) if isinstance(parent, list) else dict(parent)
    copied[key] = item
    return copied


def _without(parent: Any, key: Any) -> Any:
    if isinstance(parent, list):
        return [*parent[:key], *parent[key + 1 :]]
    return {name: item for name, item in parent.items() if name != key}


def _rebuilt(value: Any, path: Path_, item: Any) -> Any:
    if not path:
        return item
    return _with(value, path[0], _rebuilt(value[path[0]], path[1:], item))


class Judge:
    """Judges mutants of one honest run."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.path, self.report = next(iter(case.reports.items()), ("", None))
        self.data = json.dumps(self.report, ensure_ascii=False).encode()
        self.spec_bytes, self.spec = strictjson.encode(case.spec), case.spec_value()
        sealed = case.copy()
        if self.path:
            sealed.raw[self.path] = self.data
        self.files = sealed.files()
        self.record = sealed.seal().record
        self.parsed = sealed.record_value()
        self.base = self._of_record(self.record)
        self.listed = informational()

    def documents(self) -> Iterator[tuple[str, Any]]:
        if self.path:
            yield "report", self.report
        yield "record", self.record

    def outcome(self, mutant: Mutant) -> tuple[str, str]:
        """Return killed, equivalent or survived, and the rule that noticed."""
        verdict = self.verdict(mutant)
        new = sorted({f.code for f in verdict.findings} - {f.code for f in self.base.findings})
        if self._dropped(verdict):
            return "killed", (new or ["claim"])[0]
        listed = f"{mutant.document} {mutant.pattern}" in self.listed
        return ("equivalent" if listed and self._same(verdict) else "survived"), ""

    def verdict(self, mutant: Mutant) -> Verdict:
        """Return what the gate says of the changed run, every digest made to fit."""
        document = self.report if mutant.document == "report" else self.record
        changed = mutate(document, mutant.path, mutant.operator)
        assert changed is not None
        if mutant.document == "report":
            return self._of_report(*self._seal_tokens(changed[0], mutant.path))
        return self._of_record(_seal_packages(changed[0], mutant.path))

    def _dropped(self, verdict: Verdict) -> bool:
        if RANK[verdict.decision] < RANK[self.base.decision]:
            return True
        now = {claim.id: claim for claim in verdict.claims}
        for before in self.base.claims:
            after = now.get(before.id)
            if after is None or not set(after.missing) <= set(before.missing):
                return True
        return False

    def _same(self, verdict: Verdict) -> bool:
        def seen(judged: Verdict) -> Any:
            return [(c.id, c.wording, c.missing) for c in judged.claims], [(f.code, f.message) for f in judged.findings]

        return bool(seen(verdict) == seen(self.base))

    def _of_record(self, record: Any) -> Verdict:
        data = json.dumps(record, ensure_ascii=False).encode()
        return judge_bytes(self.case.run_id, self.files, data, self.spec_bytes, authority="host")

    def _of_report(self, report: Any, digests: dict[str, str]) -> Verdict:
        """Judge a changed report with a record whose digests, and end marks, were made to fit."""
        data = json.dumps(report, ensure_ascii=False).encode()
        assert self.parsed is not None
        sealed = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

        def fitted(outputs: Any) -> Any:
            return tuple(output.model_copy(update=sealed) if output.path == self.path else output for output in outputs)

        fit: dict[str, Any] = {"outputs": fitted(self.parsed.outputs)}
        fit["commands"] = tuple(
            command if command.before is None else command.model_copy(update={"before": fitted(command.before)})
            for command in self.parsed.commands
        )
        if digests:
            fit["sample_marks"] = tuple(
                mark.model_copy(update={"token_digest": digests[mark.sample]})
                if mark.event == "end" and mark.sample in digests
                else mark
                for mark in self.parsed.sample_marks
            )
        return judge(self.case.run_id, {**self.files, self.path: data}, self.parsed.model_copy(update=fit), self.spec)

    def _seal_tokens(self, report: Any, path: Path_) -> tuple[Any, dict[str, str]]:
        """Give changed tokens their digest, in the report and for the runner's end mark."""
        if "tokens" not in path:
            return report, {}
        place = path[: path.index("tokens")]
        sample = at(report, place)
        tokens = sample.get("tokens") if isinstance(sample, dict) and "token_digest" in sample else None
        if not isinstance(tokens, list) or not all(type(token) is int and 0 <= token < 1 << 32 for token in tokens):
            return report, {}
        digest = token_digest(tokens)
        return _rebuilt(report, place, {**sample, "token_digest": digest}), {sample["id"]: digest}


def _seal_packages(record: Any, path: Path_) -> Any:
    if path[:2] != ("code", "packages") or not isinstance(record["code"].get("packages"), dict):
        return record
    digest = hashlib.sha256(json.dumps(record["code"]["packages"], sort_keys=True, separators=(",", ":")).encode())
    return {**record, "code": {**record["code"], "lock_digest": digest.hexdigest()}}


def score(
    case: Case,
    per_pattern: int | None,
    seed: int,
    *,
    most: int | None = None,
    documents: tuple[str, ...] = ("report", "record"),
) -> Score:
    """Judge mutants of an honest run, at most so many, drawn at random."""
    judging, result = Judge(case), Score()
    assert judging.base.decision in {"evidence", "valid"}, judging.base.headline
    listed = [
        mutant
        for document, value in judging.documents()
        if document in documents
        for mutant in mutants(value, document, per_pattern, seed)
    ]
    if most is not None and len(listed) > most:
        listed = random.Random(seed).sample(listed, most)
    for mutant in listed:
        result.add(mutant, *judging.outcome(mutant))
    return result
