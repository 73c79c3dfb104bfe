"""Runs of an owner's own program: six repeats of a training script with a recompute command, and two timed programs."""

from __future__ import annotations

import json
from typing import Any

from bridge import strictjson
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from bridge.records.workload import seed_of
from tests.corpus.gate.builders import RUN_ID, Case, sha
from tests.corpus.gate.runs import around

FOLDER = "/srv/workloads/my-train"
PYTHON = "/usr/bin/python3"
TIMER = "/opt/kakeya/bridge/launches/pair_program.py"
LOSSES = (1.91, 1.94, 1.90, 1.97, 1.93, 1.95)
SETTINGS = {
    "median": {"name": "final_loss", "aggregate": "median", "unit": "nats", "better": "lower",
               "pointer": "/metrics/final_loss", "bounds": [0.0, 100.0]},
    "ratio": {"name": "speedup", "aggregate": "ratio", "unit": "ratio", "better": "higher"},
}  # fmt: skip


def program(role: str, path: str, files: int = 1) -> dict[str, Any]:
    return {"role": role, "path": path, "sha256": sha(path), "files": files, "bytes": 1000}


def definition(*metrics: str, confirms: bool = True) -> dict[str, Any]:
    programs = [program("folder", FOLDER, 3), program("interpreter", PYTHON)]
    return {
        "name": "my-train",
        "digest": sha("workload"),
        "program": "train.py",
        "metrics": [SETTINGS[name] for name in metrics],
        "confirms": [{"name": "final_loss", "way": "numeric", "tolerance": 1e-6}] if confirms else [],
        "keep": ["weights.json"],
        "programs": [*programs, *([program("timer", TIMER)] if "ratio" in metrics else [])],
    }


def trained(losses: tuple[float, ...] = LOSSES, *, again: bool = True, basis: str = RUN_ID, **declared: Any) -> Case:
    """Return six repeats, each confirmed by the recompute command; what is declared of their metric may be changed."""
    case = around({}, profile="smoke", commands=[(0.1, 1.1 * len(losses) * (1 + again))])
    reports = {f"repeat-{n}/report.json": {"metrics": {"final_loss": loss}} for n, loss in enumerate(losses)}
    commands, results, now = [], [], 0.1
    for part in ("repeat", *(("recompute",) if again else ())):
        for number, loss in enumerate(losses):
            name = f"{part}-{number}" if len(losses) > 1 else part
            argv = [PYTHON, f"{FOLDER}/{'train' if part == 'repeat' else 'recompute'}.py"]
            command = {"name": name, "argv": argv, "seed": seed_of(basis, number), "folder": f"repeat-{number}"}
            commands.append(command | {"confirms": part == "recompute"})
            result = {"name": name, "argv": argv, "started_s": now, "ended_s": now + 1.0, "exit_code": 0,
                      "signal": None, "peak_rss_bytes": 1 << 20, "cpu_s": 0.9, "survivors": 0}  # fmt: skip
            if part == "recompute":
                result |= {"before": [], "answer": json.dumps({"final_loss": loss})}
            results.append(result)
            now += 1.1
    workload = definition("median", confirms=again)
    workload["metrics"] = [metric | declared for metric in workload["metrics"]]
    return _own(case, reports, commands, results, workload, basis)


def paired(logs: tuple[float, ...] = (0.1,) * 8, *, busy: tuple[float, float] = (0.98, 0.98), seed: int = 7) -> Case:
    """Return launches of two programs by turns; the baseline takes exp(log) times as long.

    Args:
        logs: of each launch that counts.
        busy: what share of its time each program is on a processor.
        seed: of the noise.
    """
    import math
    import random

    rng = random.Random(seed)
    argv = [PYTHON, "-I", "-S", TIMER, "--@baseline", f"{FOLDER}/old", "--@candidate", f"{FOLDER}/new"]
    rule = {"least": 8, "most": 240, "blocks": 1, "half_width": 0.03, "allowed_s": 400.0}
    plan = {"arms": ["baseline", "candidate"], "rule": rule, "unit": "samples", "turn_least_s": 0.05, "solo_s": 0.0}
    launches = []
    for number, log in enumerate((0.0, *logs)):
        began, now = 4.0 * number, 4.0 * number + 0.1
        turns = []
        for arm, share, factor in zip(plan["arms"], busy, (math.exp(log + rng.gauss(0.0, 0.004)), 1.0), strict=True):
            spent = 0.4 * rng.uniform(0.999, 1.001) * factor
            turns.append({"number": len(turns) + 1, "arm": arm, "sample": 0, "go_s": now, "done_s": now + spent,
                          "tokens": 1, "over": True, "cpu_s": share * spent})  # fmt: skip
            now += spent
        launches.append({"command": "speedup", "number": number, "block": 0, "nonce": sha(str(number)),
                         "turn_tokens": 0, "started_s": began, "ready_s": began + 0.05, "ended_s": now + 0.01,
                         "slept_s": 0.0, "turns": turns, "solos": [], "cut": None})  # fmt: skip
    ended = 4.0 * len(launches)
    case = around({}, profile="smoke", commands=[(0.1, ended)])
    result = {"name": "speedup", "argv": argv, "started_s": 0.1, "ended_s": ended, "exit_code": 0, "signal": None,
              "peak_rss_bytes": 1 << 20, "cpu_s": 4.0, "survivors": 0}  # fmt: skip
    command = {"name": "speedup", "argv": argv, "launches": plan}
    case = _own(case, {}, [command], [result], definition("ratio", confirms=False))
    case.record["launches"] = launches
    case.spec["seed_basis"] = None
    return case.seal()


def taking_turns(
    shares: tuple[float, float] = (0.98, 0.98),
    logs: tuple[float, ...] = (0.1,) * 8,
    *,
    seed: int = 7,
    alone: tuple[float, ...] = (1.0,),
) -> Case:
    """Return launches of one program that holds both sides and takes the turns itself.

    Args:
        shares: of its time alone that each side is on a processor.
        logs: of each launch that counts.
        seed: of the noise.
        alone: how many times as long as its turns say the baseline takes alone, launch after launch, in rotation.
    """
    case = paired(logs, busy=(0.01, 0.01), seed=seed)
    (command,) = case.spec["commands"]
    argv = [f"{FOLDER}/sums"]
    command |= {"argv": argv, "launches": command["launches"] | {"solo_s": 0.5}}
    command["launches"]["rule"] |= {"most": 20}
    case.record["commands"][0]["argv"] = argv
    case.record["code"]["interpreter"] = argv[0]
    for launch in case.record["launches"]:
        longer = (alone[launch["number"] % len(alone)], 1.0)
        for share, factor, turn in zip(shares, longer, list(launch["turns"]), strict=True):
            span = 2 * factor * (turn["done_s"] - turn["go_s"])
            launch["solos"].append(_alone(turn["arm"], launch["ended_s"], span, share, len(launch["solos"]) + 3))
            launch["ended_s"] += span
    return case.seal()


def _alone(arm: str, go_s: float, span: float, share: float, number: int) -> dict[str, Any]:
    return {"number": number, "arm": arm, "sample": 0, "tokens": 2, "go_s": go_s, "done_s": go_s + span,
            "cpu_s": share * span, "waited_s": 0.0, "source": "/proc", "gpu_s": None,
            "gpu_source": "unknown: not read"}  # fmt: skip


def _own(
    case: Case,
    reports: dict[str, Any],
    commands: list[Any],
    results: list[Any],
    definition: dict[str, Any],
    basis: str = RUN_ID,
) -> Case:
    case.reports = reports
    outputs = [{"path": path, "kind": "workload", "required": True} for path in reports]
    case.spec |= {
        "commands": commands,
        "outputs": outputs,
        "workload": definition,
        "seed_basis": basis,
        "primary_claim": definition["metrics"][0]["name"],
    }
    code = {"identity": f"workload sha256:{sha('workload')}", "interpreter": commands[0]["argv"][0],
            "interpreter_version": "by digest", "packages": {}, "lock_digest": sha("{}"),
            "programs": definition["programs"]}  # fmt: skip
    case.record["code"] |= code
    case.record["commands"] = results
    case.record["imported"] = None
    case.record["outputs"] = [{"path": path, "bytes": 0, "sha256": "", "after_start": True} for path in reports]
    case.record["telemetry"] = None
    case.seal()
    for output in case.record["outputs"]:
        output["sha256"] = output["sha256"] or sha("")
    for result in results:
        if "before" in result:
            result["before"] = [dict(output) for output in case.record["outputs"]]
    case.record = json.loads(RunRecord.parse(strictjson.encode(case.record), max_bytes=1 << 26).canonical())
    case.spec = json.loads(JobSpec.parse(strictjson.encode(case.spec)).canonical())
    return case
