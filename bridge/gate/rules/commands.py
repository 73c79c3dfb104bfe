"""Rules on the commands of a run: which ran, how they ended, what confined them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.gate.interface import Evidence, Violation
from bridge.gate.rule import record_rule, run_rule
from bridge.records.jobspec import JobSpec
from bridge.records.network import describe_network
from bridge.records.run import RunRecord, SandboxApplied

CLOCK_SLACK_S = 0.05
BETWEEN_MAX_S = 10.0  # preparing the next command
NAMESPACES: Final = ("user", "pid", "ipc", "net", "uts", "cgroup", "mount")
FILTERS: Final = ("no new privileges", "no capabilities")


@run_rule("G2-COMMANDS", "code", remedy="Keep run.json and spec.json of one run together, as the runner wrote them.")
def compare_commands(record: RunRecord, spec: JobSpec, _evidence: Evidence) -> Iterator[Violation]:
    """The commands that ran are the ones the job spec says, one after the other, within the run.

    Anything else that ran could have written the report.
    """
    got = [(command.name, command.argv) for command in record.commands]
    wanted = [(command.name, command.argv) for command in spec.commands]
    if got != wanted:
        names = [name for name, _ in got]
        yield Violation(f"got {names} with their arguments, the job spec says {[name for name, _ in wanted]}")
    before = 0.0
    for command in record.commands:
        if command.started_s < before - CLOCK_SLACK_S or command.ended_s < command.started_s:
            yield Violation(
                f"ran {command.started_s:.3f} to {command.ended_s:.3f} s, expected to start after {before:.3f} s",
                command.name,
            )
        if command.started_s > before + BETWEEN_MAX_S:
            yield Violation(f"nothing ran from {before:.3f} s to {command.started_s:.3f} s", command.name)
        before = max(before, command.ended_s)
        cores = max(record.host.cpu_count, 1)
        if command.cpu_s > (command.ended_s - command.started_s + CLOCK_SLACK_S) * cores * 1.1:
            yield Violation(f"{command.cpu_s:.1f} s of processor time do not fit on {cores} cores", command.name)
        if record.host.memory_bytes and command.peak_rss_bytes > record.host.memory_bytes:
            yield Violation(f"{command.peak_rss_bytes} bytes are more than the host has", command.name)
    if before > record.wall_s + CLOCK_SLACK_S + 0.01 * record.wall_s:
        yield Violation(f"the last command ended at {before:.3f} s of a run of {record.wall_s:.3f} s")
    if record.wall_s > spec.limits.wall_s + spec.limits.grace_s + 5.0:
        yield Violation(f"the run lasted {record.wall_s:.1f} s, its limit is {spec.limits.wall_s:.1f} s")


@record_rule(
    "G2-ENDING",
    "bound",
    remedy="Read log.txt of the run: `kakeya-mac logs ID`; a run that failed is repeated, not judged.",
)
def require_clean_ending(record: RunRecord, _evidence: Evidence) -> Iterator[Violation]:
    """The executor worked, every command ended by itself with exit code 0, and nothing of it was left behind.

    A report written before a crash describes a run that did not finish.
    """
    if not record.executor_ok:
        yield Violation(f"the executor failed: {record.message or record.reason}")
    if record.program_exit != 0:
        yield Violation(f"the program ended with {record.program_exit}, expected 0")
    if record.reason != "passed":
        yield Violation(f"the run ended as {record.reason!r}, expected 'passed'")
    if not record.commands:
        yield Violation("no command ran")
    for command in record.commands:
        if command.exit_code != 0 or command.signal is not None:
            yield Violation(f"got exit code {command.exit_code}, signal {command.signal}, expected 0", command.name)
        if command.survivors:
            yield Violation(f"{command.survivors} processes survived the end of the command", command.name)
    for hit in record.limits_hit:
        # A long log is cut and the run goes on; every other bound cuts what was measured.
        mild = hit.limit == "log_bytes" and hit.action == "truncated"
        yield Violation(
            f"limit {hit.limit}: {hit.observed:g} met the bound {hit.bound:g}, {hit.action}",
            hit.limit,
            severity="note" if mild else "reject",
        )


@run_rule("G2-SANDBOX", "code", remedy="Run `kakeya-runner doctor`: it tries the sandbox and says what is missing.")
def compare_sandbox(record: RunRecord, spec: JobSpec, _evidence: Evidence) -> Iterator[Violation]:
    """What confined the run is what the job spec asked for.

    A network or another user's files are other sources of a number.
    """
    applied, wanted = record.sandbox, spec.sandbox
    if wanted.mode == "required" and applied.kind == "none":
        yield Violation("a sandbox is required and none was applied", "kind")
    if wanted.mode == "off" and applied.kind != "none":
        yield Violation(f"got {applied.kind!r} although the job spec says off", "kind")
    if (applied.kind == "none") != (applied.reason is not None):
        yield Violation(f"kind {applied.kind!r} with reason {applied.reason!r}: no sandbox needs a reason", "reason")
    if applied.kind != "none" and applied.network != wanted.network:
        got, granted = describe_network(applied.network), describe_network(wanted.network)
        yield Violation(f"the run could reach {got}; the job spec grants {granted}", "network")
    if applied.kind == "none" and wanted.network and not applied.network:
        yield Violation("the run could not reach the network the job spec grants", "network")
    if wanted.uid is not None and applied.uid != wanted.uid:
        yield Violation(f"ran as user {applied.uid}, expected {wanted.uid}", "uid")
    yield from _walls(applied, spec)
    if len(set(applied.namespaces)) != len(applied.namespaces) or len(set(applied.filters)) != len(applied.filters):
        yield Violation("a namespace or filter is listed twice", "namespaces")
    if applied.kind != "none" and not applied.namespaces and not applied.filters:
        yield Violation(f"{applied.kind} without a namespace and without a filter confines nothing", "namespaces")


def _walls(applied: SandboxApplied, spec: JobSpec) -> Iterator[Violation]:
    """Yield what a kind of sandbox lacks that always belongs to it."""
    if applied.kind == "bwrap":
        needed = tuple(name for name in NAMESPACES if not (applied.network == "host" and name == "net"))
        if tuple(name for name in applied.namespaces if name in NAMESPACES) != needed:
            yield Violation(
                f"namespaces {list(applied.namespaces)} with network {applied.network}, expected {list(needed)}",
                "namespaces",
            )
        if applied.filters[:2] != FILTERS:
            yield Violation(f"filters begin with {list(applied.filters[:2])}, expected {list(FILTERS)}", "filters")
    if applied.kind == "landlock" and (spec.code != "host" or spec.sandbox.network or applied.not_held is None):
        words = "Landlock alone is for the host's own code without a network, and says what it never holds"
        yield Violation(f"{words}; got code {spec.code}, network {describe_network(spec.sandbox.network)}", "kind")
