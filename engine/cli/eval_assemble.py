"""``kakeya-engine eval assemble``: join the parts of a run's launches into the one declared report."""

from __future__ import annotations

import argparse
from dataclasses import replace

from engine.cli.boundary import guarded
from engine.options import add_out_option
from engine.reports import Claim, Report, RunContext, write_report
from engine.reports.parts import merge, read_parts, remove_parts
from engine.reports.summary import Summary, summarise

KINDS = frozenset({"code_throughput", "needle_recall"})


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    built = argparse.ArgumentParser(prog="kakeya-engine eval assemble", description=__doc__)
    built.add_argument("--report", default="report.json", help="name of the report (default: %(default)s)")
    built.add_argument("--profile", choices=("smoke", "claim"), help="only by hand: the profile of the launches")
    add_out_option(built)
    return built


def main(argv: list[str]) -> int:
    """Join; exit 0 when the report is written and the parts are gone."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    context = RunContext.current(out=options.out, profile=options.profile)
    report = merge(read_parts(context.out, KINDS))
    summary = summarise(report)
    write_report(replace(report, claims=claims(report, summary)), context, options.report)
    remove_parts(context.out)
    _show(summary)
    return 0


def claims(report: Report, summary: Summary) -> tuple[Claim, ...]:
    """Return what the report states and the gate recomputes; wording is the gate's to grant."""
    candidate = next((arm.name for arm in report.arms if arm.role == "candidate"), None)
    baseline = tuple(arm.name for arm in report.arms if arm.role in {"baseline", "control"})
    if candidate is None or summary.ratio is None or not baseline:
        return ()
    return (Claim("decode_speedup", "decode_speedup", (candidate, *baseline), summary.ratio, "ratio"),)


def _show(summary: Summary) -> None:
    columns = ("samples", "tokens", "decode s", "tokens/s", "per forward", "KV bytes")
    print(f"{'arm':<22}" + "".join(f"{column:>12}" for column in columns))
    for arm in summary.arms:
        print(
            f"{arm.name:<22}{arm.samples:>12}{arm.output_tokens:>12}{arm.decode_s:>12.3f}{arm.tokens_per_s:>12.1f}"
            f"{arm.acceptance_length:>12.2f}{arm.kv_bytes:>12}"
        )
    if summary.ratio is not None:
        word = "faster" if summary.ratio > 1 else "slower"
        print(
            f"speculative / autoregressive: {summary.ratio:.2f}x ({word} in this run; the gate says what may be quoted)"
        )
        print(f"tokens identical on {summary.identical} of {summary.compared} prompts")
