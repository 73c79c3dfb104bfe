"""The run around honest reports: a JobSpec and a RunRecord that agree with them in every field."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from bridge import strictjson
from bridge.gate import profiles
from bridge.gate.claims import claim_drafts
from bridge.gate.declared.kind import kinds
from bridge.gate.identity import identity
from bridge.gate.interface import Evidence, Report
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from tests.corpus.gate.builders import DIGEST, NONCE, OID, RUN_ID, Case, moment, sha

PACKAGES = {"kakeya": "0.1.0", "mlx": "0.32.4", "mlx-lm": "0.32.2", "numpy": "2.3.4"}
REPEATING = frozenset(
    {
        *("arm", "context_tokens", "decode_steps", "kv_bytes", "kv_bytes_peak", "drafter_bytes", "latent_bytes"),
        *("token_digest", "index", "mode", "position", "drafted", "accepted", "rows", "drafted_tokens"),
        *("prompt_id", "prompt_digest", "prompt_tokens", "expected", "tokens", "text", "correct", "steps"),
        *("host_bytes", "positions_forwarded", "pool_bytes", "index_bytes", "rows_injected", "pages_moved"),
        *("bytes_read", "layer_kind", "layers", "sample", "digest"),
    }
)
"""What of a row comes out the same when it is measured again."""


def recomputation(reports: dict[str, Any]) -> dict[str, Any]:
    """Return what a recompute command says of honest outputs; nothing of kinds that none knows."""
    answers = {}
    for path, value in reports.items():
        confirms = kinds()[value["kind"]].confirms
        if not confirms:
            continue
        evidence = Evidence(reports=(), record=None, spec=None, profile=profiles.named("default", "claim"))
        numeric = [name for name, confirmation in confirms.items() if confirmation.way == "numeric"]
        found_again = claim_drafts(Report(path, b"", value), evidence) if numeric else ()
        drafts = {draft.id: draft.value for draft in found_again}
        again = {
            "values": {name: drafts[name] for name in numeric if name in drafts},
            "exactly": {
                name: [{key: row[key] for key in row.keys() & REPEATING} for row in value.get("rows", {}).get(name, ())]
                for name, confirmation in confirms.items()
                if confirmation.way == "exact" and name != "tokens"
            },
        }
        lossy = {
            arm["name"] for arm in value["arms"] if value["kind"] == "kv_quantisation" and arm["role"] == "candidate"
        }
        rows: dict[tuple[str, str, str | None], dict[str, Any]] = {}
        prompts: list[str] = []
        for name, sample in ((arm["name"], sample) for arm in value["arms"] for sample in arm["samples"]):
            layout = name if name in lossy else None
            prompts += [sample["prompt_digest"]] if sample["prompt_digest"] not in prompts else []
            rows[sample["prompt_digest"], sample["token_digest"], layout] = {
                "prompt_digest": sample["prompt_digest"],
                "token_digest": sample["token_digest"],
                "tokens": len(sample["tokens"]),
                "worst_gap": 0.0,
                "worst_at": 0,
                "text_sha256": sha(sample["text"]),
                "free_running": True if layout or prompts.index(sample["prompt_digest"]) < 5 else None,
                "layout": layout,
            }
        config = value["config"]
        restoration = config.get("restoration")
        listed = list(rows.values()) if "tokens" in confirms else []
        answers[path] = {"target": config["target"]["digest"], "delta": 2e-5, "strange": 0, "rows": listed}
        answers[path] |= again | ({} if restoration is None else {"restoration": restoration})
    return {"schema_version": 1, "reports": answers} if answers else {}


def around(
    reports: dict[str, Any],
    *,
    profile: str = "claim",
    gate_profile: str = "default",
    primary: str | None = None,
    commands: list[tuple[float, float]] | None = None,
    marks: list[dict[str, Any]] | None = None,
    models: list[dict[str, Any]] | None = None,
) -> Case:
    """Return the run that made these reports."""
    recompute = recomputation(reports)
    last = max((value["wall_s"] for value in reports.values()), default=1.0) + 2.0
    spans = commands or [(0.1, last)]
    if recompute:
        spans = [*spans, (round(spans[-1][1] + 0.1, 6), round(spans[-1][1] + 1.1, 6))]
    wall_s = spans[-1][1] + 0.01
    python = "/opt/kakeya/bin/python"
    argv = [[python, "-I", "-m", "engine.cli", "verb", "--launch", str(index)] for index in range(len(spans))]
    names = [f"verb-{index}" if len(spans) > 1 else "verb" for index in range(len(spans))]
    if recompute:
        names[-1], argv[-1] = "recompute", [python, "-I", "-m", "engine.cli", "eval", "recompute"]
    environment = [
        ["KAKEYA_RUN_ID", RUN_ID],
        ["KAKEYA_PRESET", "a-preset"],
        ["KAKEYA_PROFILE", profile],
        *([["KAKEYA_TARGET", models[0]["name"]]] if models else []),
        ["OPENBLAS_NUM_THREADS", "1"],
    ]
    spec = {
        "schema_version": 1,
        "id": RUN_ID,
        "request_digest": DIGEST,
        "preset": "a-preset",
        "preset_digest": sha("preset"),
        "policy_digest": sha("policy"),
        "params": {},
        "profile": profile,
        "code": "host",
        "trust_class": "host",
        "tree": None,
        "commands": [
            {"name": name, "argv": line, "confirms": name == "recompute"}
            for name, line in zip(names, argv, strict=True)
        ],
        "environment": [{"name": n, "value": v, "origin": "runner", "secret": False} for n, v in environment],
        "limits": {
            "wall_s": 3600.0,
            "inactivity_s": 300.0,
            "grace_s": 5.0,
            "memory_bytes": 1 << 34,
            "processes": 512,
            "open_files": 4096,
            "output_bytes": 1 << 28,
            "log_bytes": 1 << 22,
        },
        "sandbox": {"mode": "preferred", "network": False, "read_only": [], "devices": [], "uid": None},
        "outputs": [
            *({"path": path, "kind": value["kind"], "required": True} for path, value in reports.items()),
            *([{"path": "recompute.json", "kind": "recompute", "required": True}] if recompute else []),
        ],
        "gate_profile": gate_profile,
        "primary_claim": primary,
        "decisions": [],
        "labels": ["embedded"],
    }
    samples = [
        {
            "t_s": round(0.4 + index * 0.505, 3),
            "cpu_share": 0.52,
            "other_cpu_share": 0.05,
            "rss_bytes": 300_000_000,
            "gpu_share": None,
            "gpu_memory_bytes": None,
        }
        for index in range(int((wall_s - 0.4) / 0.505) + 1)
    ]
    record = {
        "schema_version": 1,
        "id": RUN_ID,
        "bus_id": "bus-1",
        "request_digest": DIGEST,
        "request_oid": OID,
        "claims": ["b2" * 20, "c3" * 20],
        "runner": "desk",
        "runner_version": identity().version,
        "preset": "a-preset",
        "preset_digest": sha("preset"),
        "policy_digest": sha("policy"),
        "gate_digest": identity().digest,
        "labels": ["embedded"],
        "host": {
            "name": "desk",
            "os": "Linux",
            "os_version": "6.1.0-18-amd64",
            "machine": "x86_64",
            "cpu": "AMD EPYC",
            "cpu_count": 2,
            "memory_bytes": 1 << 35,
            "devices": [],
            "drivers": {},
            "virtualised": "kvm",
        },
        "code": {
            "origin": "host",
            "trust_class": "host",
            "identity": "commit " + "d4" * 20,
            "tree": None,
            "dirty": False,
            "interpreter": python,
            "interpreter_version": "3.11.2",
            "packages": PACKAGES,
            "lock_digest": hashlib.sha256(strictjson.encode(PACKAGES)).hexdigest(),
        },
        "models": models or [],
        "environment": environment,
        "commands": [
            {
                "name": name,
                "argv": line,
                "started_s": start,
                "ended_s": end,
                "exit_code": 0,
                "signal": None,
                "peak_rss_bytes": 310_000_000,
                "cpu_s": round((end - start) * 0.97, 6),
                "survivors": 0,
                "before": [{"path": path, "bytes": 0, "sha256": "", "after_start": True} for path in reports]
                if name == "recompute"
                else None,
            }
            for name, line, (start, end) in zip(names, argv, spans, strict=True)
        ],
        "executor_ok": True,
        "program_exit": 0,
        "reason": "passed",
        "message": None,
        "limits_hit": [],
        "sandbox": {
            "kind": "bwrap",
            "reason": None,
            "network": False,
            "namespaces": ["user", "pid", "ipc", "net", "uts", "cgroup", "mount"],
            "filters": ["no new privileges", "no capabilities", "own session", "seccomp: 90 system calls refused"],
            "uid": 1000,
        },
        "telemetry": {
            "interval_s": 0.5,
            "sources": {
                "cpu_share": "psutil, living processes of the run over all processors",
                "other_cpu_share": "psutil, whole machine less the run",
                "rss_bytes": "psutil, sum over living processes",
                "gpu": "unknown: NVML sees no device",
                "thermal": "unknown",
                "power": "unknown",
                "memory_pressure": "/proc/pressure/memory",
            },
            "samples": samples,
            "thermal": ["unknown", "unknown"],
            "power": ["unknown", "unknown"],
            "memory_pressure": ["some 0.00 % of 10 s", "some 0.12 % of 10 s"],
        },
        "sample_marks": marks or [],
        "sample_marks_dropped": 0,
        "outputs": [
            {"path": path, "bytes": 0, "sha256": "", "after_start": True}
            for path in (*reports, *(["recompute.json"] if recompute else []))
        ],
        "attempt": {
            "key": sha("attempt"),
            "number": 1,
            "earlier": [],
            "unseen": [],
            "looks": 1,
            "confirms": None,
        },
        "imported": {
            "module": "engine",
            "path": "/opt/kakeya/lib/python3.11/site-packages/engine/__init__.py",
            "work": "${RUN}/files/work",
            "installation": "/opt/kakeya/lib/python3.11/site-packages/engine",
        },
        "created": moment(0.0),
        "claimed": moment(0.4),
        "started": moment(0.8),
        "ended": moment(0.8 + wall_s + 0.2),
        "queue_s": 0.4,
        "wall_s": round(wall_s, 6),
        "log_bytes": 120,
        "log_sha256": sha("log"),
        "log_truncated_bytes": 0,
        "redactions": 0,
        "nonce": NONCE,
    }
    # Through the models, so that every field is there and no list is shared between the two.
    raw = {"recompute.json": json.dumps(recompute).encode()} if recompute else {}
    case = Case(reports, record, spec, raw).seal()
    case.record = json.loads(RunRecord.parse(strictjson.encode(record), max_bytes=1 << 26).canonical())
    case.spec = json.loads(JobSpec.parse(strictjson.encode(spec)).canonical())
    return case
