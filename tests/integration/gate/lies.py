"""Every way of lying that is tried, each one change to the honest workload, with the verdict it deserves."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.gate.workload import Behaviour, Pipe, Report, digest_of, state_ratio

EARLIER = "earlier.json"
"""The report of an earlier honest run, beside the models."""
MODELS = "KAKEYA_MODEL_ROOTS"


@dataclass(frozen=True)
class Lie:
    """A way to lie.

    Attributes:
        behaviour: makes what the workload does.
        codes: rules that must say so.
        decision: what the gate decides.
        reason: how the run ends.
        preset: which of the test's presets runs it.
    """

    behaviour: Callable[[], Behaviour]
    codes: tuple[str, ...]
    decision: str = "rejected"
    reason: str = "gate_rejected"
    preset: str = "decode"


LIES: dict[str, Lie] = {
    "honest": Lie(Behaviour, (), "valid_not_citable", "passed"),
    "honest-memory": Lie(Behaviour, (), "valid_not_citable", "passed", "memory"),
}


def lie(name: str, *codes: str, preset: str = "decode", **expected: str) -> Callable[[Callable[[], Behaviour]], None]:
    def register(behaviour: Callable[[], Behaviour]) -> None:
        LIES[name] = Lie(behaviour, codes, preset=preset, **expected)

    return register


def told(name: str, *codes: str, preset: str = "decode", **expected: str) -> Callable[[Callable[[Report], Any]], None]:
    """Register a lie that changes the report after an honest measurement."""

    def register(change: Callable[[Report], Any]) -> None:
        def finish(report: Report) -> Any:
            changed = change(report)
            return report if changed is None else changed

        LIES[name] = Lie(lambda: Behaviour(finish=finish), codes, preset=preset, **expected)

    return register


def written(name: str, *codes: str, **expected: str) -> Callable[[Callable[[Path, Report], None]], None]:
    """Register a lie about the file rather than its contents."""

    def register(write: Callable[[Path, Report], None]) -> None:
        LIES[name] = Lie(lambda: Behaviour(write=write), codes, **expected)

    return register


def rows(report: Report, arm: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report["arms"][arm]["samples"]
    return found


def measured(report: Report, arm: int = 1) -> list[dict[str, Any]]:
    return [row for row in rows(report, arm) if not row["is_warmup"]]


def plain_counters(row: dict[str, Any]) -> None:
    steps = row["output_tokens"] - 1
    row["accepted_per_step"] = row["drafted_per_step"] = [0] * steps
    zero = dict.fromkeys(row["counters"], 0)
    row["counters"] = {**zero, "steps": steps, "target_forwards": steps, "host_syncs": steps + 1}


def save(path: Path, report: Report) -> None:
    path.write_text(json.dumps(report))


def earlier() -> Path:
    return Path(os.environ[MODELS]) / EARLIER


# Nothing, or nothing of its own.


@written("nothing", "G1-DECLARED")
def _(path: Path, report: Report) -> None:
    del path, report


@written("says-evidence-and-leaves-nothing", "G1-DECLARED")
def _(path: Path, report: Report) -> None:
    sys.stdout.write('{"decision": "evidence"}\nverdict: evidence\n::notice::evidence\n')


@written("copies-an-earlier-report", "G1-RUN")
def _(path: Path, report: Report) -> None:
    shutil.copyfile(earlier(), path)


@written("copies-an-earlier-report-with-its-times", "G1-FRESH", "G1-RUN")
def _(path: Path, report: Report) -> None:
    shutil.copy2(earlier(), path)


@written("dresses-an-earlier-report-up", "G4-MARKS")
def _(path: Path, report: Report) -> None:
    old = json.loads(earlier().read_text())
    old["run"] = report["run"]
    for name in ("started_at", "ended_at", "wall_s"):
        old[name] = report[name]
    save(path, old)


@written("report-older-than-the-run", "G1-FRESH")
def _(path: Path, report: Report) -> None:
    save(path, report)
    os.utime(path, (time.time() - 3600, time.time() - 3600))


@told("another-run-id", "G1-RUN")
def _(report: Report) -> None:
    report["run"]["id"] = "01jd7zk3v8q4w2m6x9c5b7n1tb"


@told("another-request-digest", "G1-RUN")
def _(report: Report) -> None:
    report["run"]["request_digest"] = "ab" * 32


@told("another-profile", "G1-RUN")
def _(report: Report) -> None:
    report["run"]["profile"] = "claim"


@told("started-before-the-run", "G4-WINDOW")
def _(report: Report) -> None:
    report["started_at"] = "2026-01-01T00:00:00.000Z"


@told("words-that-fit-no-record", "G1-RUN")
def _(report: Report) -> None:
    report["run"]["params"] = dict.fromkeys(("lie", "b", "c", "d"), "\x1b[31mevidence\x00\n" + "y" * 1500)


# Not what ran.


@lie("fused-with-zero-blocks", "G3-DRAFTER", "G3-SELF")
def _() -> Behaviour:
    def finish(report: Report) -> Report:
        report["fallbacks"] = []
        return report

    return Behaviour(drafts=False, finish=finish)


@told("a-flag-that-says-it-ran", "G0-SCHEMA")
def _(report: Report) -> None:
    for row in rows(report):
        row["restoration_active"] = True
        plain_counters(row)


@lie("a-baseline-against-itself", "G3-SELF")
def _() -> Behaviour:
    def finish(report: Report) -> Report:
        report["arms"][1]["code_path"] = report["arms"][0]["code_path"]
        return report

    return Behaviour(finish=finish)


@lie("a-handicapped-baseline", "G5-PLAUSIBLE")
def _() -> Behaviour:
    return Behaviour(token_s=0.015)


@told("a-baseline-of-its-own", "G4-CONFIG")
def _(report: Report) -> None:
    report["arms"][0]["code_path"] = "engine.decoding.autoregressive:autoregressive"


@told("no-backend-at-all", "G4-CONFIG")
def _(report: Report) -> None:
    report["environment"]["backend"] = "none"


@told("a-package-nobody-has", "G2-HOST")
def _(report: Report) -> None:
    report["environment"]["versions"]["flash-nothing"] = "9.9"


@told("another-machine", "G2-HOST")
def _(report: Report) -> None:
    report["environment"]["machine"] = "riscv64"


@told("other-weights", "G2-MODELS")
def _(report: Report) -> None:
    report["config"]["target"]["digest"] = "cd" * 32


@told("a-declared-accelerator", "G3-ACCELERATOR", decision="valid_not_citable", reason="passed")
def _(report: Report) -> None:
    report["environment"]["device"] = "cuda:7"


@told("hidden-fallbacks", "G3-FALLBACKS")
def _(report: Report) -> None:
    report["fallbacks"] = []


# Not what was decoded, or not how long it took.


@told("replaced-tokens", "G4-MARKS")
def _(report: Report) -> None:
    for arm in (0, 1):
        for row in rows(report, arm):
            row["tokens"] = [7 + token % 1000 for token in row["tokens"]]
            row["token_digest"] = digest_of(row["tokens"])
            row["text"] = " ".join(f"w{token}" for token in row["tokens"])


@lie("scaled-decode-times", "G4-MARKS")
def _() -> Behaviour:
    def finish(report: Report) -> Report:
        for row in rows(report):
            row["stages"]["decode_s"] *= 0.02
            row["stages"]["total_s"] = row["stages"]["prefill_s"] + row["stages"]["decode_s"]
        state_ratio(report)
        return report

    return Behaviour(step_s=0.05, token_s=0.002, finish=finish)


@lie("marks-in-advance", "G4-MARKS")
def _() -> Behaviour:
    def begin(pipe: Pipe, names: list[str]) -> None:
        for name in names:
            for event in ("start", "first_token", "end"):
                digest = {"token_digest": "ab" * 32} if event == "end" else {}
                pipe.write({"event": event, "sample": name, **digest})

    return Behaviour(begin=begin, announce=lambda pipe, mark: None)


@lie("marks-twice", "G4-MARKS")
def _() -> Behaviour:
    def announce(pipe: Pipe, mark: dict[str, str]) -> None:
        pipe.write(mark)
        pipe.write(mark)

    return Behaviour(announce=announce)


@lie("no-marks", "G4-MARKS")
def _() -> Behaviour:
    return Behaviour(announce=lambda pipe, mark: None)


@lie("marks-of-samples-that-are-not-there", "G4-MARKS")
def _() -> Behaviour:
    def begin(pipe: Pipe, names: list[str]) -> None:
        pipe.write({"event": "start", "sample": "0/99/speculative/ghost"})

    return Behaviour(begin=begin)


@lie("an-end-mark-without-its-digest", "G4-MARKS")
def _() -> Behaviour:
    def announce(pipe: Pipe, mark: dict[str, str]) -> None:
        pipe.write({name: value for name, value in mark.items() if name != "token_digest"})

    return Behaviour(announce=announce)


# Not all rows, or more than there were.


@told("the-slowest-prompt-dropped", "G4-MARKS", "G4-ORDER")
def _(report: Report) -> None:
    slow = max(measured(report), key=lambda row: row["stages"]["decode_s"])["prompt_id"]
    for arm in report["arms"]:
        arm["samples"] = [row for row in arm["samples"] if row["prompt_id"] != slow]
    kept = {row["id"] for row in rows(report)}
    report["fallbacks"] = [row for row in report["fallbacks"] if row["sample"] in kept]
    state_ratio(report)


@lie("fewer-prompts-than-the-design", "G4-ORDER")
def _() -> Behaviour:
    return Behaviour(prompts=5)


@told("a-row-counted-twice", "G4-ROWS")
def _(report: Report) -> None:
    fast = min(measured(report), key=lambda row: row["stages"]["decode_s"])
    rows(report).append(copy.deepcopy(fast))
    state_ratio(report)


@told("warm-ups-counted-in", "G5-WARMUP")
def _(report: Report) -> None:
    for arm in (0, 1):
        for row in rows(report, arm):
            row["is_warmup"] = False
    state_ratio(report)


@told("an-order-that-was-chosen", "G4-ORDER")
def _(report: Report) -> None:
    first, second = measured(report, 0)[0], measured(report, 1)[0]
    first["order_index"], second["order_index"] = second["order_index"], first["order_index"]
    for row, arm in ((first, "autoregressive"), (second, "speculative")):
        row["id"] = f"0/{row['order_index']}/{arm}/{row['prompt_id']}"


@told("memory-by-formula", "G7-BUFFERS", preset="memory")
def _(report: Report) -> None:
    for point in report["rows"]["points"]:
        if point["role"] == "candidate":
            point["kv_bytes"] = 4 * 512


@told("memory-of-both-arms-in-one-process", "G7-DESIGN", preset="memory")
def _(report: Report) -> None:
    for point in report["rows"]["points"]:
        point["process"] = 4242


@told("a-native-cache-inflated-in-buffers-and-allocator", "G7-NATIVE", preset="memory")
def _(report: Report) -> None:
    for point in report["rows"]["points"]:
        if point["role"] == "baseline":
            more = 3 * point["kv_bytes"]
            for name in ("kv_bytes", "kv_bytes_peak", "allocator_active_bytes"):
                point[name] += more


@told("a-window-that-keeps-less-than-its-name", "G7-NATIVE", preset="memory")
def _(report: Report) -> None:
    for point in report["rows"]["points"]:
        if point["role"] == "candidate":
            for name in ("kv_bytes", "allocator_active_bytes"):
                point[name] -= 16 * 512


@told("a-target-said-to-be-small", "G2-MODELS")
def _(report: Report) -> None:
    report["config"]["target"]["parameters"] = 10


@told("the-drafter-called-the-target", "G2-MODELS")
def _(report: Report) -> None:
    drafter = report["config"]["drafter"]
    report["config"]["target"].update(name=drafter["name"], digest=drafter["digest"])


@told("one-prompt-under-many-digests", "G4-PROMPTS")
def _(report: Report) -> None:
    one = next(iter(report["prompts"].values()))
    report["prompts"] = dict.fromkeys(report["prompts"], one)


@told("prompts-nobody-can-see", "G4-PROMPTS", decision="valid_not_citable", reason="passed")
def _(report: Report) -> None:
    del report["prompts"]


@told("counters-that-do-not-add-up", "G4-STEPS")
def _(report: Report) -> None:
    for row in rows(report):
        row["counters"]["accepted_tokens"] += 9


# Not what the rows say.


@told("a-wrong-ratio", "G4-CLAIM")
def _(report: Report) -> None:
    report["claims"][0]["value"] *= 1.02


@told("too-strong-a-wording", "G4-CLAIM")
def _(report: Report) -> None:
    report["claims"][0]["wording"] = "decodes 3x faster on every prompt"


@told("a-claim-nobody-can-recompute", "G4-CLAIM")
def _(report: Report) -> None:
    report["claims"].append(
        {"id": "quality", "metric": "quality", "arms": [], "value": 0.99, "unit": "share", "wording": None}
    )


# Not a report, or not one file.


@told("an-unknown-kind", "G0-KIND")
def _(report: Report) -> None:
    report["kind"] = "speed_of_light"


@told("a-newer-version", "G0-KIND")
def _(report: Report) -> None:
    report["schema_version"] = 4


@told("a-kind-nobody-declared", "G1-KIND")
def _(report: Report) -> None:
    report["kind"] = "needle_recall"


@written("not-a-number", "G0-JSON")
def _(path: Path, report: Report) -> None:
    report["wall_s"] = float("nan")
    save(path, report)


@written("deeply-nested", "G0-JSON")
def _(path: Path, report: Report) -> None:
    path.write_text("[" * 1_000_000 + "]" * 1_000_000)


@written("cut-in-the-middle", "G0-JSON")
def _(path: Path, report: Report) -> None:
    path.write_text(json.dumps(report)[:-40])


@written("a-hundred-megabytes", "G1-DECLARED", "G2-ENDING")
def _(path: Path, report: Report) -> None:
    path.write_bytes(json.dumps(report).encode() + b" " * (100 << 20))


@written("a-second-report", "G1-EXTRA")
def _(path: Path, report: Report) -> None:
    save(path, report)
    save(path.with_name("better.json"), report)


@written("a-report-through-a-link", "G1-DECLARED")
def _(path: Path, report: Report) -> None:
    real = Path(os.environ["HOME"]) / "real.json"
    save(real, report)
    path.symlink_to(real)


@written("a-report-with-two-names", "G1-DECLARED")
def _(path: Path, report: Report) -> None:
    real = Path(os.environ["HOME"]) / "real.json"
    save(real, report)
    path.hardlink_to(real)


@written("a-directory-for-a-report", "G1-DECLARED")
def _(path: Path, report: Report) -> None:
    path.mkdir()


# Ends that say something else.


@lie("a-good-report-and-exit-code-1", "G2-ENDING", reason="program_failed")
def _() -> Behaviour:
    return Behaviour(exit_code=1)


@written("a-good-report-and-a-crash", "G2-ENDING", reason="program_failed")
def _(path: Path, report: Report) -> None:
    save(path, report)
    os.kill(os.getpid(), signal.SIGSEGV)


@written("says-evidence", decision="valid_not_citable", reason="passed")
def _(path: Path, report: Report) -> None:
    save(path, report)
    sys.stdout.write('verdict: evidence\n{"decision": "evidence", "citable": true}\n')


@written("changes-the-report-after-the-end", decision="valid_not_citable", reason="passed")
def _(path: Path, report: Report) -> None:
    """Leave a process behind that holds the file open and waits for everybody to have looked."""
    save(path, report)
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        held = os.open(path, os.O_RDWR)
        (Path(os.environ[MODELS]) / "left-behind").write_text(str(os.getpid()))
        time.sleep(20)
        os.ftruncate(held, 0)
        os.write(held, b"{}")
        os._exit(0)
