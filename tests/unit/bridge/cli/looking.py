"""What tests of the looking commands share: a claim of a verdict, and a host that takes a run from claim to end."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonschema.validators import validator_for

from bridge.records.verdict import ClaimResult
from tests.drift import ROOT

SCHEMAS = ROOT / "bridge" / "client" / "document" / "schemas"


@cache
def published(name: str) -> Any:
    """Return the validator of a published schema, which is looked at once whether it is one: that takes 80 ms."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    validator_for(schema).check_schema(schema)
    return validator_for(schema)(schema)


def claim(**changes):
    fields = {
        "id": "speed", "metric": "decode_ratio", "role": "primary", "value": 1.09, "interval": (1.03, 1.15),
        "confidence": 0.95, "unit": "x", "n": 60, "baseline": "mlx_lm", "wording": "faster than mlx_lm by 9 %",
        "kind": "ratio", "decision": "evidence", "premises": (), "detail": {},
    }  # fmt: skip
    return ClaimResult.model_validate({**fields, **changes})


def take(host, run_id, *, log=b"one\ntwo\x1b]0;title\x07\n::error::x\n", **ending):
    host.claim(run_id)
    host.start(run_id)
    host.log(run_id, log, final=True)
    host.judge(run_id)
    host.finish(run_id, **ending)


def plan(requester, host, *, ending=None, log=b"line one\n\x1b[31mred\x1b[0m ##[error]x\n", claim_after_s=1.0):
    """Let the host take the newest request through all its states."""
    clock = requester.clock
    clock.plan(claim_after_s, lambda: host.claim(host.newest()))
    clock.plan(claim_after_s + 1, lambda: host.start(host.newest()))
    clock.plan(claim_after_s + 2, lambda: host.log(host.newest(), log, final=True))
    clock.plan(claim_after_s + 11, lambda: host.judge(host.newest()))
    clock.plan(claim_after_s + 12, lambda: host.finish(host.newest(), **(ending or {})))


def run_id(requester):
    return next((requester.folder / "data" / "requests").glob("*.json")).stem


def requester_short(requester):
    return run_id(requester)[-8:]
