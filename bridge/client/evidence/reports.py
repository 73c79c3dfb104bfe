"""A report as rows for people: arms with rates and medians recomputed from the samples, checks, test outcomes, claims.

Reads any JSON object without trusting its shape: a missing or odd field becomes ``-``, never an error.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bridge.errors import UsageError
from bridge.limits import REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES
from bridge.strictjson import StrictJsonError, decode

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


def rows(report: Mapping[str, Any]) -> Rows:
    """Yield label and text of every line of a report."""
    if "kind" not in report and "metrics" in report:  # of an owner's own program: what it wrote, as it is
        for name, value in _table(report["metrics"]).items():
            yield "metric", f"{name} {_text(value)}"
        return
    yield "kind", f"{_text(report.get('kind'))}, schema {_text(report.get('schema_version'))}"
    run = _table(report.get("run"))
    if run:
        yield "run", f"{_text(run.get('id'))}  {_text(run.get('preset'))} ({_text(run.get('profile'))})"
    environment = _table(report.get("environment"))
    if environment:
        place = " ".join(_text(environment.get(key)) for key in ("backend", "device", "os", "machine"))
        yield "on", f"{place}, python {_text(environment.get('python'))}"
        versions = ", ".join(
            f"{name} {version}" for name, version in sorted(_table(environment.get("versions")).items())
        )
        yield "versions", versions or "-"
    for key, value in sorted(_table(report.get("config")).items()):
        yield "config", f"{key} = {_text(value)}"
    for arm in _list(report.get("arms")):
        yield from _arm(_table(arm))
    yield from _special(_table(report.get("rows")))
    for claim in map(_table, _list(report.get("claims"))):
        yield (
            "claims",
            f"{_text(claim.get('id'))} = {_text(claim.get('value'))} {_text(claim.get('unit'))} (as reported)",
        )
    for fallback in map(_table, _list(report.get("fallbacks"))):
        yield (
            "fallback",
            f"{_text(fallback.get('component'))}: {_text(fallback.get('reason'))} x{_text(fallback.get('count'))}",
        )


def _arm(arm: Mapping[str, Any]) -> Rows:
    samples = [_table(sample) for sample in _list(arm.get("samples"))]
    measured = [sample for sample in samples if sample.get("is_warmup") is not True]
    rates = [rate for sample in measured if (rate := _decode_rate(sample)) is not None]
    tokens = sum(_number(sample.get("output_tokens")) or 0 for sample in measured)
    speed = f"{statistics.median(rates):.1f} tokens/s decode (median)" if rates else "no decode times"
    counted = f"{len(measured)} samples + {len(samples) - len(measured)} warm-up, {tokens:.0f} tokens"
    yield "arm", f"{_text(arm.get('name'))} ({_text(arm.get('role'))}): {counted}, {speed}"
    stops = Counter(_text(sample.get("stop_reason")) for sample in measured)
    if stops:
        yield "", "stopped by " + ", ".join(f"{name} {count}" for name, count in sorted(stops.items()))


def decode_rates(report: Mapping[str, Any]) -> dict[str, list[tuple[str, float]]]:
    """Return prompt and decode tokens per second of each measured sample, by arm."""
    found: dict[str, list[tuple[str, float]]] = {}
    for arm in map(_table, _list(report.get("arms"))):
        samples = [one for one in map(_table, _list(arm.get("samples"))) if one.get("is_warmup") is not True]
        rates = [(_text(one.get("prompt_id")), rate) for one in samples if (rate := _decode_rate(one)) is not None]
        if rates:
            found[_text(arm.get("name"))] = rates
    return found


def _special(table: Mapping[str, Any]) -> Rows:
    """Yield the rows of kinds without arms."""
    for check in map(_table, _list(table.get("checks"))):
        mark = "ok" if check.get("ok") is True else "FAILED" if check.get("required") is True else "no"
        yield "check", f"{mark:<7}{_text(check.get('name'))}: {_text(check.get('detail'))}"
    for product in map(_table, _list(table.get("matmul"))):
        what = " ".join(_text(product.get(key)) for key in ("backend", "dtype"))
        yield "matmul", f"{what} n={_text(product.get('n'))}: {_text(product.get('gflop_per_s'))} GFLOP/s"
    tests = [_table(test) for test in _list(table.get("tests"))]
    if tests or "collected" in table:
        counts = Counter(_text(test.get("outcome")) for test in tests)
        said = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        yield (
            "tests",
            f"{said or 'none'}; {_text(table.get('collected'))} collected, exit code {_text(table.get('exit_code'))}",
        )
        for test in tests:
            if test.get("outcome") in {"failed", "error"}:
                yield "", f"{_text(test.get('id'))}: {_text(test.get('reason'))}"


def _decode_rate(sample: Mapping[str, Any]) -> float | None:
    """Return decode tokens per second; decode covers all tokens but the first."""
    seconds = _number(_table(sample.get("stages")).get("decode_s"))
    tokens = _number(sample.get("output_tokens"))
    if seconds is None or tokens is None or seconds <= 0 or tokens <= 1:
        return None
    return (tokens - 1) / seconds


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in list(value.items())[:12])
    if isinstance(value, list):
        return f"[{', '.join(_text(item) for item in value[:12])}{', …' if len(value) > 12 else ''}]"
    return str(value)
