"""`kakeya-engine probe`: what this machine can run, as a table and as a report."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from typing import Any

from engine.backends.probing import BACKENDS, ProbeResult, attempt, probe
from engine.cli.boundary import guarded
from engine.huggingface import take_torch_in
from engine.loading import load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.proposal import TrialSettings, described, proposed, try_depths
from engine.measurement.selection import load_prompts
from engine.options import DEFAULT_TARGET, add_out_option, longest_depth
from engine.reports import Report, RunContext, write_report
from engine.reports.context import machine_facts, thread_facts, utc_now
from engine.tokenizer import Tokenizer

PROMPTS = 3


def parser() -> argparse.ArgumentParser:
    """Return the command line of this verb."""
    built = argparse.ArgumentParser(prog="kakeya-engine probe", description=__doc__)
    built.add_argument("backend", choices=BACKENDS, help="which array library to ask")
    built.add_argument("--accelerator", action="store_true", help="a machine without a GPU fails the probe")
    built.add_argument("--report", metavar="FILE", help="also write a schema 3 report, below KAKEYA_OUT under a runner")
    add_out_option(built)
    return built


def main(argv: list[str]) -> int:
    """Probe; exit 0 when every required check holds, 1 otherwise."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.backend == "torch":
        take_torch_in()
    started_at, started = utc_now(), time.perf_counter()
    result = probe(options.backend, accelerator=options.accelerator)
    if result.ok:
        depth = attempt("draft depth", lambda: _depth(options.backend), required=False)
        result = replace(result, checks=(*result.checks, depth))
    _show(result)
    if options.report:
        report = Report(
            kind="environment_probe",
            config={"backend": options.backend, "accelerator_required": options.accelerator},
            environment={
                "backend": result.backend,
                "device": result.device,
                **machine_facts(),
                "versions": result.versions,
                "blas": result.blas,
                "threads": thread_facts(os.environ),
            },
            started_at=started_at,
            ended_at=utc_now(),
            wall_s=time.perf_counter() - started,
            rows=result.rows(),
        )
        write_report(report, RunContext.current(out=options.out), options.report)
    return 0 if result.ok else 1


def _depth(backend: str) -> tuple[bool, str, Any]:
    """Return whether drafting pays here for the packaged pair, and the depth at which it pays most."""
    target = resolve_model(DEFAULT_TARGET)
    engine = open_engine(load_backend(backend), str(target), own_drafter(target))
    prompts = load_prompts("code-structured", Tokenizer(engine.folder), engine.target.info.name).prompts[-PROMPTS:]
    ids = [prompt.ids for prompt in prompts]
    trials = try_depths(engine, ids, longest_depth(engine), TrialSettings())
    best = proposed(trials)
    pays = best.tokens_per_s > next(trial.tokens_per_s for trial in trials if trial.depth == 0)
    return pays, f"{described(trials)}, {DEFAULT_TARGET} on structured text", best.depth


def _show(result: ProbeResult) -> None:
    for check in result.checks:
        mark = "ok  " if check.ok else ("FAIL" if check.required else "no  ")
        print(f"{mark} {check.name:<16} {check.detail}")
