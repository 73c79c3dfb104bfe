"""What every honest run is built from: the names it goes by, its values, and a report's own envelope.

Everything is a plain function of a seed, so that a broken variant differs from its honest original in one place only.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec

from bridge import strictjson
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from bridge.records.verdict import Verdict

RUN_ID = "01jd7zk3v8q4w2m6x9c5b7n1ta"
DIGEST = hashlib.sha256(b"request").hexdigest()
NONCE = hashlib.sha256(b"nonce").hexdigest()
OID = "a1" * 20


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def moment(second: float) -> str:
    return f"2026-11-18T{10 + int(second // 3600):02d}:{int(second // 60) % 60:02d}:{second % 60:06.3f}Z"


P = ParamSpec("P")


def built_once(build: Callable[P, Case]) -> Callable[P, Case]:
    """Return a function that gives a fresh copy of what was built for the same arguments; lists are built anew."""
    made: dict[Any, bytes] = {}

    @wraps(build)
    def copied(*args: P.args, **kwargs: P.kwargs) -> Case:
        key = (args, tuple(sorted(kwargs.items())))
        try:
            copy = made.get(key)
        except TypeError:
            return build(*args, **kwargs)
        if copy is None:
            copy = made[key] = pickle.dumps(build(*args, **kwargs))
        case: Case = pickle.loads(copy)
        return case

    return copied


@dataclass
class Case:
    """A run that can be spoilt: plain JSON values, sealed again before judging."""

    reports: dict[str, Any]
    record: dict[str, Any] | None
    spec: dict[str, Any] | None
    raw: dict[str, bytes] = field(default_factory=dict)
    run_id: str = RUN_ID

    def copy(self) -> Case:
        made: Case = pickle.loads(pickle.dumps(self))  # several times as fast as a deep copy
        return made

    @property
    def report(self) -> Any:
        return next(iter(self.reports.values()))

    def files(self) -> dict[str, bytes]:
        made = {path: json.dumps(value, ensure_ascii=False).encode() for path, value in self.reports.items()}
        return {**made, **self.raw}

    def seal(self) -> Case:
        """Make every digest agree again with what it digests."""
        if self.record is not None:
            data = self.files()
            ended = self.record["commands"] if isinstance(self.record["commands"], list) else []
            before = [
                output for command in ended if isinstance(command, dict) for output in command.get("before") or []
            ]
            for output in (*self.record["outputs"], *before):
                if isinstance(output, dict) and output.get("path") in data:
                    output["bytes"] = len(data[output["path"]])
                    output["sha256"] = hashlib.sha256(data[output["path"]]).hexdigest()
        return self

    def record_value(self) -> RunRecord | None:
        return None if self.record is None else RunRecord.model_validate_json(strictjson.encode(self.record))

    def spec_value(self) -> JobSpec | None:
        return None if self.spec is None else JobSpec.model_validate_json(strictjson.encode(self.spec))


def envelope(
    kind: str, *, wall_s: float, profile: str = "claim", started_s: float = 1.0, **parts: Any
) -> dict[str, Any]:
    return {
        "kind": kind,
        "schema_version": 3,
        "run": {"id": RUN_ID, "request_digest": DIGEST, "preset": "a-preset", "params": {}, "profile": profile},
        "config": {},
        "environment": {
            "backend": "mlx",
            "device": "cpu",
            "os": "Linux 6.1.0-18-amd64",
            "machine": "x86_64",
            "python": "3.11.2",
            "versions": {"mlx": "0.32.4", "mlx-lm": "0.32.2"},
            "blas": {"name": "openblas", "evidence": "/proc/self/maps: libopenblas.so.0"},
            "threads": {"OPENBLAS_NUM_THREADS": "1"},
        },
        "started_at": moment(started_s),
        "ended_at": moment(started_s + wall_s),
        "wall_s": round(wall_s, 6),
        "arms": [],
        "claims": [],
        "fallbacks": [],
        **parts,
    }


def state_claims(case: Case) -> Case:
    """Let the report state everything that follows from its rows, in the gate's words, and seal it."""
    from bridge.gate import claims
    from bridge.gate.interface import Evidence
    from bridge.gate.profiles import named
    from bridge.gate.reports.loading import load

    path, value = next(iter(case.reports.items()))
    value["claims"] = []
    reports, problems = load({path: json.dumps(value).encode()})
    assert not problems, problems
    evidence = Evidence(reports, None, None, named("default", value["run"]["profile"]))
    value["claims"] = [
        {
            "id": draft.id,
            "metric": draft.metric,
            "arms": list(draft.arms),
            "value": draft.value,
            "unit": draft.unit,
            "wording": None,
        }
        for draft in claims.claim_drafts(reports[0], evidence)
        if draft.value is not None
    ]
    return case.seal()


def judged(case: Case, earlier: Mapping[str, Mapping[str, bytes]] | None = None, authority: Any = "host") -> Verdict:
    """Seal a run and return the gate's verdict over it."""
    from bridge.gate.judging import judge

    case.seal()
    return judge(
        case.run_id, case.files(), case.record_value(), case.spec_value(), authority=authority, earlier=earlier
    )
