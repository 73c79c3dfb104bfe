"""The report's environment is the runner's host: system, machine, interpreter, package versions.

A report made on another machine, or by another interpreter, was not made by this run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.records import RunRecord

THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
CORE: Final = {"mlx": ("mlx",), "torch": ("torch",)}
SAME_SYSTEM: Final = {"darwin": "macos", "mac": "macos", "macos": "macos"}


@report_rule("G2-HOST", remedy="Let the workload describe the machine it runs on with the engine's own builder.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    if evidence.record is not None:
        yield from _compare(report.body["environment"], evidence.record)
        yield from _libraries(report.body)


def _libraries(body: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield libraries that decoded an arm and whose version is not said."""
    said = {_package(name) for name in body["environment"]["versions"]}
    homes = {_package(arm["code_path"].split(":")[0].split(".")[0]) for arm in body["arms"]}
    for name in sorted(homes - said - {"engine"}):
        yield Violation(f"an arm runs in {name}, its version is absent", "/environment/versions")


def _compare(said: dict[str, object], record: RunRecord) -> Iterator[Violation]:
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
            severity="not_citable",
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
