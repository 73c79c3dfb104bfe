"""A report as rows for people: totals and numbers as the gate derives them, settings and checks as the report says.

Reads any JSON object without trusting its shape: a missing or odd field becomes ``-``, never an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from bridge.errors import UsageError
from bridge.limits import REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES
from bridge.strictjson import StrictJsonError, decode

if TYPE_CHECKING:
    from bridge.records.derived import DerivedArm, DerivedReport

Rows = Iterator[tuple[str, str]]


def read_report(path: Path) -> dict[str, Any]:
    """Return the report in a file.

    Raises:
        UsageError: it is too large, or no JSON object.
    """
    size = path.stat().st_size
    if size > REPORT_MAX_BYTES:
        raise UsageError(f"{path}: {size} bytes; a report has at most {REPORT_MAX_BYTES}")
    try:
        value = decode(path.read_bytes(), max_bytes=REPORT_MAX_BYTES, max_depth=REPORT_JSON_MAX_DEPTH)
    except StrictJsonError as error:
        raise UsageError(f"{path} is no report: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} is no report: a JSON {type(value).__name__}, expected an object")
    return value


def derived_of_file(path: Path) -> DerivedReport | None:
    """Return what the gate derives from a report that lies outside of a run."""
    from bridge.gate.derivation import derive
    from bridge.gate.judging import BARE_ID

    return derive(BARE_ID, {path.name: path.read_bytes()}, None, None).report(path.name)


def metrics_of(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return what the repeats of an owner's own program reported by metric, in the order of their names.

    Nothing where there is another report beside theirs, or only one.
    """
    if len(reports) < 2 or not all(map(_is_own, reports.values())):
        return {}
    tables = [_table(report["metrics"]) for _, report in sorted(reports.items())]
    return {name: [table.get(name) for table in tables] for table in tables for name in table}


def _is_own(report: Mapping[str, Any]) -> bool:
    return "kind" not in report and "metrics" in report


def rows(report: Mapping[str, Any], derived: DerivedReport | None) -> Rows:
    """Yield label and text of every line of a report.

    Args:
        report: as its program wrote it.
        derived: what follows from it; None where it is one of the repeats of an owner's own program.
    """
    if _is_own(report):  # what it wrote, as it is
        for name, value in _table(report["metrics"]).items():
            yield "metric", f"{name} {value_text(value)}"
        return
    yield "kind", f"{value_text(report.get('kind'))}, schema {value_text(report.get('schema_version'))}"
    if derived is not None and derived.preset is not None:
        yield "run", f"{value_text(_table(report.get('run')).get('id'))}  {derived.preset} ({derived.profile})"
    environment = _table(report.get("environment"))
    if environment:
        place = " ".join(value_text(environment.get(key)) for key in ("backend", "device", "os", "machine"))
        yield "on", f"{place}, python {value_text(environment.get('python'))}"
        versions = ", ".join(
            f"{name} {version}" for name, version in sorted(_table(environment.get("versions")).items())
        )
        yield "versions", versions or "-"
    for key, value in sorted(_table(report.get("config")).items()):
        yield "config", f"{key} = {value_text(value)}"
    if derived is not None:
        yield from _derived(derived)
    yield from _special(_table(report.get("rows")))
    for fallback in map(_table, _list(report.get("fallbacks"))):
        component, reason, count = (value_text(fallback.get(key)) for key in ("component", "reason", "count"))
        yield "fallback", f"{component}: {reason} x{count}"


def _derived(derived: DerivedReport) -> Rows:
    """Yield the totals of arms, and the numbers of this run alone."""
    for arm in derived.arms:
        yield from _arm(arm)
    for number in derived.numbers:
        yield "derived", f"{number.id} = {value_text(number.value)} {number.unit} (n = {number.n}, this run alone)"
    if derived.problem is not None:
        yield "derived", f"not everything: {derived.problem}"


def _arm(arm: DerivedArm) -> Rows:
    speed = "no decode times"
    if arm.turns_tokens_per_s is not None:
        speed = f"{arm.turns_tokens_per_s:.1f} tokens/s over the runner's stamps of its turns"
    elif arm.own_clock_tokens_per_s is not None:
        speed = f"{arm.own_clock_tokens_per_s:.1f} tokens/s decode by its own clock (median)"
    yield (
        "arm",
        f"{arm.name} ({arm.role}): {arm.samples} samples + {arm.warm_ups} warm-up, {arm.tokens} tokens, {speed}",
    )
    if arm.drafted_tokens:
        drafted = f"{arm.accepted_tokens} of {arm.drafted_tokens} drafted tokens"
        yield "", f"accepted {drafted} in {arm.target_forwards} forwards of the target"
    if arm.asked_answers:
        yield "", f"{arm.right_answers} of {arm.asked_answers} known answers"
    if arm.stop_reasons:
        stops = ", ".join(f"{name} {count}" for name, count in arm.stop_reasons.items())
        loops = f"; {arm.looping_samples} repeat themselves without end" if arm.looping_samples else ""
        yield "", f"stopped by {stops}{loops}"


def decode_rates(report: Mapping[str, Any]) -> dict[str, list[tuple[str, float]]]:
    """Return prompt and decode tokens per second of each measured sample, by arm."""
    rates_of_arms: dict[str, list[tuple[str, float]]] = {}
    for arm in map(_table, _list(report.get("arms"))):
        samples = [sample for sample in map(_table, _list(arm.get("samples"))) if sample.get("is_warmup") is not True]
        pairs = ((value_text(sample.get("prompt_id")), _decode_rate(sample)) for sample in samples)
        rates = [(prompt, rate) for prompt, rate in pairs if rate is not None]
        if rates:
            rates_of_arms[value_text(arm.get("name"))] = rates
    return rates_of_arms


def _special(table: Mapping[str, Any]) -> Rows:
    """Yield the rows of kinds without arms."""
    for check in map(_table, _list(table.get("checks"))):
        mark = "ok" if check.get("ok") is True else "FAILED" if check.get("required") is True else "no"
        yield "check", f"{mark:<7}{value_text(check.get('name'))}: {value_text(check.get('detail'))}"
    for product in map(_table, _list(table.get("matmul"))):
        what = " ".join(value_text(product.get(key)) for key in ("backend", "dtype"))
        yield "matmul", f"{what} n={value_text(product.get('n'))}: {value_text(product.get('gflop_per_s'))} GFLOP/s"
    tests = [_table(test) for test in _list(table.get("tests"))]
    if tests or "collected" in table:
        counts = Counter(value_text(test.get("outcome")) for test in tests)
        counted = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        collected, code = value_text(table.get("collected")), value_text(table.get("exit_code"))
        yield "tests", f"{counted or 'none'}; {collected} collected, exit code {code}"
        for test in tests:
            if test.get("outcome") in {"failed", "error"}:
                yield "", f"{value_text(test.get('id'))}: {value_text(test.get('reason'))}"


def _decode_rate(sample: Mapping[str, Any]) -> float | None:
    """Return decode tokens per second; decode covers all tokens but the first."""
    seconds = _table(sample.get("stages")).get("decode_s")
    tokens = len(_list(sample.get("tokens")))
    return (tokens - 1) / float(seconds) if is_number(seconds) and seconds > 0 and tokens > 1 else None


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def value_text(value: Any) -> str:
    """Return any JSON value as a few words."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {value_text(item)}" for key, item in list(value.items())[:12])
    if isinstance(value, list):
        return f"[{', '.join(value_text(item) for item in value[:12])}{', …' if len(value) > 12 else ''}]"
    return str(value)
