"""Breaks of design, noise, identity and state of the machine (G5, G6, G8)."""

from __future__ import annotations

from tests.corpus.gate.breaks.registry import PASSES, breaks, honest, recomputed, retoken, samples
from tests.corpus.gate.builders import Case
from tests.corpus.gate.launches import decode_early, in_order, launched, scattered


@breaks("G5-DESIGN", "claim")
def _(case: Case) -> None:
    case.report["arms"] = [arm for arm in case.report["arms"] if arm["role"] != "control"]
    case.report["claims"] = []


@breaks("G5-DURATION", "claim")
def _(case: Case) -> None:
    samples(case)[0]["stages"]["decode_s"] = 0.1


@breaks("G5-ATTEMPTS", "claim")
def _(case: Case) -> None:
    case.record["attempt"].update(number=2, earlier=["01jd7zk3v8q4w2m6x9c5b7n1t0"])


@breaks("G5-PLAUSIBLE")
def _(case: Case) -> None:
    for sample in samples(case):
        sample["stages"]["decode_s"] /= 100.0


@breaks("G6-IDENTITY", "claim")
def _(case: Case) -> None:
    sample = samples(case, 2)[0]
    retoken(case, sample, [*sample["tokens"][:-1], (sample["tokens"][-1] + 7) % 2000 + 6])
    sample["top2_margin_at_divergence"] = 1e-5


@breaks("G8-STATE", "claim")
def _(case: Case) -> None:
    case.record["telemetry"]["power"] = ["mains", "battery"]


@breaks("G8-TELEMETRY")
def _(case: Case) -> None:
    case.record["telemetry"]["samples"][2]["cpu_share"] = 7.0


@breaks("G5-LAUNCHES", "claim")
def _(case: Case) -> None:
    launched(case, scattered(5))


@breaks("G5-SOLO", "claim")
def _(case: Case) -> None:
    launched(case, scattered(8))
    for launch in case.record["launches"]:
        launch["solos"][1].update(cpu_s=0.01, waited_s=0.0)


@breaks("G5-BUDGET", "turned")
def tolerances_that_add_up(case: Case) -> None:
    """The baseline takes 4 % longer, and 6 % more in its turns: each by itself would pass."""
    for launch in case.record["launches"]:
        for factor, stamps in ((1.04, launch["solos"]), (1.04 * 1.06, launch["turns"])):
            for stamp in stamps:
                if stamp["arm"] == "autoregressive":
                    stamp["done_s"] += (factor - 1.0) * (stamp["done_s"] - stamp["go_s"])
    in_order(case.record["launches"])


@breaks("G5-REFERENCE", "turned")
def _(case: Case) -> None:
    for launch in case.record["launches"][1:]:
        launch["reference"] = None


@breaks("G5-PREFILL", "turned")
def _(case: Case) -> None:
    decode_early(case.record["launches"], "speculative", 0.5)


@breaks("G4-STAMPS", "turned")
def _(case: Case) -> None:
    turns = case.record["launches"][2]["turns"]
    turns[3]["go_s"] = turns[2]["go_s"]  # handed out before the one before it was answered


@breaks("G5-CLOCK", "claim")
def _(case: Case) -> None:
    for sample in samples(case, 1):
        sample["stages"]["decode_s"] = round(sample["stages"]["decode_s"], 2)


@breaks("G2-DRAWN", "claim")
def _(case: Case) -> None:
    case.record["nonce"] = None


@breaks("G2-RECOMPUTED", "claim")
def _(case: Case) -> None:
    recomputed(case, worst_gap=0.3)


@breaks("G4-TURNS", "claim")
def _(case: Case) -> None:
    case.record["sample_marks_dropped"] = 0


PASSES["G4-TURNS"] = lambda: honest("request_code")


@breaks("G7-PROCESS", "claim")
def _(case: Case) -> None:
    case.report["claims"] = []


PASSES["G7-PROCESS"] = lambda: honest("bounded_kv")
