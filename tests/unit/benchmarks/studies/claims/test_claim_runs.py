"""Claim runs under load: what a row says in words, and how much the load program computes."""

from __future__ import annotations

import time

from benchmarks.studies.claims.claim_runs.campaign import cases
from benchmarks.studies.claims.claim_runs.figures import WANTED, agreement, at_load
from benchmarks.studies.claims.claim_runs.load import busy


def row(load: int, middle: float, **changes):
    claims = {name: {"value": 1.0, "interval": [1.2, 1.3], "decision": "evidence"} for name in WANTED}
    claims["baseline_tokens_per_s"] = {"value": 200.0, "interval": [190.0, 210.0], "decision": "valid"}
    logs = [[middle + 0.001 * (launch % 3), launch % 5] for launch in range(10)]
    made = {"run": f"run 1 at {load} % load", "load": load, "claims": claims, "logs": logs, "launch_sd": 0.01}
    return made | {"half_width": 0.01, "ended": "width reached", "took_s": 600.0} | changes


def test_a_run_says_what_may_be_quoted_how_wide_it_is_and_how_long_it_took():
    assert at_load([row(25, 0.2)], 0) is None
    text = at_load([row(25, 0.2)], 25)
    assert "citable identical_prompts, acceptance_length, decode_speedup; tokens/s not citable" in text
    assert "half-width 1.0 % at a launch sd of 1.0 %, 10 launches (width reached); 10.0 min, within 15" in text
    late = row(25, 0.2, took_s=1000.0)
    late["claims"]["decode_speedup"]["decision"] = "valid"
    assert "not decode_speedup" in at_load([late], 25)
    assert "NOT within 15" in at_load([late], 25)


def test_two_runs_of_one_load_agree_or_differ():
    assert agreement([row(0, 0.2), row(25, 0.2)]) is None
    assert agreement([row(0, 0.2), row(0, 0.2005), row(50, 0.2), row(50, 0.4)]) == "0 %: agree; 50 %: DIFFER"


def test_each_load_comes_once_before_the_second_run_at_any():
    assert [case.rpartition(" at ")[2] for case in cases()] == ["0 % load", "25 % load", "50 % load"] * 2


def test_the_load_program_leaves_the_rest_of_the_processor_alone():
    began, spent = time.monotonic(), time.process_time()
    busy(0.25, seconds=0.6)
    assert 0.0 < time.process_time() - spent < 0.5 * (time.monotonic() - began)
