"""`kakeya-engine probe`: what this machine can run, as a table and as a report."""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from engine.backends.probing import BACKENDS, ProbeCheck, attempt, probe
from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.errors import UsageError
from engine.huggingface import take_torch_in
from engine.isolation.ring import LIBRARIES, probe_ring
from engine.loading import load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.proposal import TrialSettings, described, proposed, try_depths
from engine.measurement.selection import load_prompts
from engine.options import DEFAULT_TARGET, add_out_option, longest_depth
from engine.reports import Report, RunContext, write_report
from engine.reports.context import machine_facts, thread_facts, utc_now
from engine.tokenizer import Tokenizer

PROMPTS = 3
RING = "ring"


def parser() -> argparse.ArgumentParser:
    """Return the command line of this verb."""
    built = VerbParser(prog="kakeya-engine probe", description=__doc__)
    built.add_argument("backend", choices=(*BACKENDS, RING), help="which array library to ask; ring: two processes")
    built.add_argument("--accelerator", action="store_true", help="a machine without a GPU fails the probe")
    built.add_argument("--report", metavar="FILE", help="also write a schema 3 report, below KAKEYA_OUT under a runner")
    add_out_option(built)
    return built


def main(argv: list[str]) -> int:
    """Probe; exit 0 when every required check holds, 1 otherwise."""
    options = parser().parse_args(argv)
    return guarded(lambda: _ring(options) if options.backend == RING else _run(options))


def _ring(options: argparse.Namespace) -> int:
    """Probe the distributed backend of each library that is installed.

    Raises:
        UsageError: If a report is asked for, or none is installed.
    """
    if options.report or options.accelerator:
        raise UsageError("probe ring takes neither --report nor --accelerator: it measures two processes here")
    take_torch_in()  # what is left out is not found either
    installed = [library for library in LIBRARIES if importlib.util.find_spec(library)]
    if not installed:
        raise UsageError(f"neither {' nor '.join(LIBRARIES)} is installed here")
    checks = [attempt(LIBRARIES[library], partial(_ring_of, library)) for library in installed]
    _print(checks)
    return 0 if all(check.ok for check in checks) else 1


def _ring_of(library: str) -> tuple[bool, str, Any]:
    ring = probe_ring(library)
    text = f"{ring.size} ranks, sum {ring.total:g}, round trip {1e6 * ring.round_trip_s:.0f} µs p50"
    return ring.ok, text, ring.round_trip_s


def _run(options: argparse.Namespace) -> int:
    if options.backend == "torch":
        take_torch_in()
    started_at, started = utc_now(), time.perf_counter()
    result = probe(options.backend, accelerator=options.accelerator)
    if result.ok:
        depth = attempt("draft depth", lambda: _depth(options.backend), required=False)
        result = replace(result, checks=(*result.checks, depth))
    _print(result.checks)
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


def _print(checks: Iterable[ProbeCheck]) -> None:
    for check in checks:
        mark = "ok  " if check.ok else ("FAIL" if check.required else "no  ")
        print(f"{mark} {check.name:<16} {check.detail}")
