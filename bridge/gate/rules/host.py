"""Rules on the machine: it is the runner's, and its processors were at work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from bridge.gate.declared.row_views import StatedFusedGraphProbeBlock
from bridge.gate.declared.views import StatedEnvironment
from bridge.gate.facts.accelerators import accelerator_of, seen_of
from bridge.gate.facts.launch_series import Series, series_of, worked
from bridge.gate.facts.samples import arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import FUSED_GRAPH_PROBE, SAMPLED, UNSEEN, VERIFY_COST
from bridge.gate.rule import report_rule
from bridge.records.run import RunRecord

THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
CORE: Final = {"mlx": ("mlx",), "torch": ("torch",)}
CONTRADICTION: Final = 1.2  # samples of two clocks: seconds on a device may exceed the wall by so much, no more
SAME_SYSTEM: Final = {"darwin": "macos", "mac": "macos", "macos": "macos"}


@report_rule(
    "G2-HOST", "code", remedy="Let the workload describe the machine it runs on with the engine's own builder."
)
def compare_environment(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The report's environment is the runner's host: system, machine, interpreter, package versions.

    A report made on another machine, or by another interpreter, was not made by this run.
    """
    if evidence.record is not None:
        yield from _host_differences(report.body["environment"], evidence.record)
        yield from _libraries(report.body)


def _libraries(body: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield libraries that decoded an arm and whose version is not said."""
    said = {_package(name) for name in body["environment"]["versions"]}
    homes = {_package(arm["code_path"].split(":")[0].split(".")[0]) for arm in body["arms"]}
    for name in sorted(homes - said - {"engine"}):
        yield Violation(f"an arm runs in {name}, its version is absent", "/environment/versions")


def _host_differences(said: StatedEnvironment, record: RunRecord) -> Iterator[Violation]:
    host = record.host
    if _system(str(said["os"])) != _system(host.os):
        yield Violation(f"os: the report says {said['os']!r}, the runner {host.os!r}", "/environment/os")
    if said["machine"] != host.machine:
        yield Violation(
            f"machine: the report says {said['machine']!r}, the runner {host.machine!r}", "/environment/machine"
        )
    threads = {name: value for name, value in record.environment if name in THREADS}
    if said["threads"] != threads:
        yield Violation(
            f"the report says {said['threads']}, the runner set {threads}",
            "/environment/threads",
            severity="violation",
        )
    code = record.code
    if code is None:
        return
    if code.interpreter_version.split()[:1] != [said["python"]]:
        yield Violation(
            f"python: the report says {said['python']!r}, the runner {code.interpreter_version!r}",
            "/environment/python",
        )
    versions = said["versions"]
    for name in CORE.get(str(said["backend"]), ()):
        if isinstance(versions, dict) and name not in versions:
            yield Violation(f"the version of {name} is absent", "/environment/versions")
    known = {_package(name): version for name, version in code.packages.items()}
    for name, version in versions.items() if isinstance(versions, dict) else ():
        if known and _package(name) not in known:
            yield Violation(
                f"{name}: the report says {version!r}, the runner saw no such package", f"/environment/versions/{name}"
            )
        elif known.get(_package(name), version) != version:
            yield Violation(
                f"{name}: the report says {version!r}, the runner saw {known[_package(name)]!r}",
                f"/environment/versions/{name}",
            )


def _system(text: str) -> str:
    first = text.split(maxsplit=1)[0].lower() if text.split() else ""
    return SAME_SYSTEM.get(first, first)


def _package(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


@report_rule(
    "G3-ACCELERATOR",
    "times",
    severity="violation",
    remedy="Let nobody else use the device meanwhile; `kakeya-runner doctor` says which source tells its load.",
)
def require_busy_accelerator(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A declared accelerator is known to the runner, and what it sees of it from outside does not say otherwise.

    A missing device falls back to the processor in silence; the report would still say `metal`. Where no source tells
    the load of a device that is there, that is said beside every ratio, and takes nothing from it.
    """
    device, record = accelerator_of(report), evidence.record
    if device is None or record is None:
        return
    if not record.host.devices:
        yield Violation(f"the report says {device!r}, the runner knows no such device", "/environment/device")
        return
    seen = seen_of(evidence, series_of(report, evidence))
    if not seen.somehow:
        source = record.telemetry.sources.get("gpu", "unknown") if record.telemetry else "unknown"
        yield Violation(f"who worked on {device!r} is unseen ({source})", "telemetry", severity="note")
        return
    least = float(evidence.profile["accelerator_busy_share_min"])
    if seen.busiest is not None and seen.busiest < least:
        yield Violation(f"{device!r} was never more than {seen.busiest * 100:.0f} % busy", "/environment/device")
    if seen.own_s is not None and seen.own_s > CONTRADICTION * seen.devices * seen.wall_s:
        said = f"its processes used {seen.own_s:.1f} s of {seen.devices} devices within {seen.wall_s:.1f} s"
        yield Violation(f"the sources contradict each other: {said}", "telemetry")
    if seen.alone is not None and max(seen.alone) <= 0.0:
        yield Violation(f"no process of the run worked on {device!r} while its arms ran alone", "launches")


@report_rule(
    "G3-PROCESSOR",
    "times",
    severity="violation",
    kinds=(*SAMPLED, VERIFY_COST, FUSED_GRAPH_PROBE),
    remedy="Decode with the engine; on a machine so busy that it hardly ran, measure again when others are done.",
)
def require_processor_time(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Decoding on the processor took processor time: in each command, a tenth of the decode time reported of it.

    A program that sleeps and makes its tokens up can mark every sample on time; what it cannot do is use the processor.
    The runner reads the time of a command, its children's included, from the kernel when it has ended. Where it handed
    out turns, it has read each arm alone: the time of a series holds that of the host's own reference, too. Where a
    platform does not tell how long a process waited for a processor (macOS), the time on it has to suffice; where not
    even that is told, it is said beside the ratio and takes nothing from it.
    """
    record = evidence.record
    if record is None or str(report.body["environment"]["device"]).split(":", maxsplit=1)[0] != "cpu":
        return
    least = float(evidence.profile["processor_share_min"])
    series = series_of(report, evidence)
    if series is not None:
        yield from _asleep(series, float(evidence.profile["alone_worked_min"]))
    # Who computes outputs again works as hard as whoever should have put them out.
    again = {command.name for command in evidence.spec.commands if command.confirms} if evidence.spec else set()
    measuring = [command for command in record.commands if command.name not in again]
    for place, decode_s in _reported_s(report, evidence, record).items():
        commands = measuring if place is None else record.commands[place : place + 1]
        spent_s = sum(command.cpu_s for command in commands)
        if spent_s < least * decode_s:
            yield Violation(
                f"{decode_s:.1f} s of decoding are reported, the runner saw {spent_s:.2f} s of processor time, "
                f"expected at least {least * decode_s:.2f} s",
                "commands" if place is None else commands[0].name,
            )


def _asleep(series: Series, least: float) -> Iterator[Violation]:
    """Yield arms that neither used the processor nor waited for it while they ran alone."""
    shares = worked(series)
    if shares is None and series.plan.solo_s > 0.0:
        yield Violation("who worked on the processor while an arm ran alone is unseen", "launches", severity="note")
    for arm, share in zip(series.plan.arms, shares or (), strict=False):
        if share < least:
            said = f"arm {arm!r} alone used or awaited the processor {share * 100:.0f} % of the time"
            yield Violation(f"{said}, expected at least {least * 100:.0f} %", "launches")


def _reported_s(report: Report, evidence: Evidence, record: RunRecord) -> dict[int | None, float]:
    """Return the reported seconds by the command they were marked in, None for what was not marked in any."""
    if report.kind == VERIFY_COST:
        rows = report.body["rows"]
        return {None: sum(sum(row["seconds"]) for row in (*rows["verify"], *rows["draft"]))}
    if report.kind == FUSED_GRAPH_PROBE:
        blocks = cast("list[StatedFusedGraphProbeBlock]", report.body["rows"]["blocks"])
        return {None: sum(block["eval_s"] for block in blocks)}
    places = {mark.sample: _command_at(record, mark.t_s) for mark in record.sample_marks if mark.event == "end"}
    found: defaultdict[int | None, float] = defaultdict(float)
    for arm in arms_of(report, evidence).all:
        # What only answers ran beside the command, and its processor time is not the command's.
        for sample in arm.samples if arm.name not in UNSEEN else ():
            found[places.get(sample["id"])] += sample["stages"]["decode_s"]
    return found


def _command_at(record: RunRecord, t_s: float) -> int | None:
    """Return the last command that had begun at this moment; None where none had."""
    return max((place for place, command in enumerate(record.commands) if command.started_s <= t_s), default=None)
