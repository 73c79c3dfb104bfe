"""What ran where, from the committed results and reports: nobody types that something works on a machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from bridge.client.clone.packed import SUFFIX
from bridge.client.evidence.judged import JudgedResult
from bridge.run.asked import asked_text
from tests.generated.front_page import evidence_pins, quotable
from tests.support.committed import EVIDENCE

PAGE: Final = "docs/status.md"
HARDWARE: Final = EVIDENCE / "hardware"
NEVER: Final = "**never ran on it**: untested until a committed run says so; `make hardware-kit` there writes one"
HEAD: Final = """# What ran where

Generated from [the committed evidence](evidence/README.md). What no file there shows is not claimed.

## Platforms

| platform | state |
|---|---|
"""
DEVICES: Final = (("macOS, Apple Silicon, Metal", "metal"), ("Linux, NVIDIA GPU", "cuda"))
"""Platforms by the word that their devices begin with in a bundle of the hardware kit."""
LINUX: Final = ("Linux x86-64, CPU (MLX and torch)", "every test but those for hardware, and all that stands below")
LIMITS: Final = (
    ("A Mac's sandbox", "by model, never on a Mac"),
    ("A drafter in another process (`--drafter grpc:…`, `mlx-distributed-*`)",
     "over loopback and a unix socket of one machine, with cut, stopped and delayed links; never between two machines"),
    ("Any git host but folders, ssh, http and the servers of [bus-servers.jsonl](evidence/studies/bus-servers.jsonl)",
     "what is known of each stands in [your git host](guides/git-hosts.md)"),
    ("GitHub Actions", "workflows linted, their steps run offline with GitHub's event payloads; never run on GitHub"),
    ("GitHub's API", "against a server on loopback whose answers follow GitHub's description; never against GitHub"),
    ("Slurm 22.05 (`[executor]`)",
     "a real one whose nodes all ran on one Linux machine ([clusters](guides/clusters.md)); never over several"),
    ("Ray 2.60 (`[executor]`)",
     "a real one whose two nodes ran on one Linux machine ([clusters](guides/clusters.md)); never over several"),
    ("`runner-setup/setup_gpu.sh`",
     "below a throw-away root on Linux with a stub service manager; systemd itself untested"),
    ("`runner-setup/setup_mac.sh`",
     "its dry run, compared with recorded ones; launchd, users and sudo rules untested on a Mac"),
    ("`.github/workflows/release.yml`, `audit.yml`", "linted; never run: no release was made"),
)  # fmt: skip
"""What no committed file can show, because it did not happen; a row goes when a file shows it."""
RUNS: Final = """
## Results

Each is a whole result tree, judged again by the gate here. `kakeya-mac verify FILE` does the same.

| result | what was asked | on | ended | answer |
|---|---|---|---|---|
"""
REPORTS: Final = """
## Measurements

[Its page](evidence/README.md) says what each file holds and which command made it.

| on | files | ended |
|---|---|---|
"""
_SYSTEM: Final = re.compile(r"Linux-[^\s,]+?-(x86_64|aarch64)-[^\s,]+")


def generate() -> dict[str, str]:
    """Return the page by path."""
    return {
        PAGE: HEAD + _table([LINUX, *_platforms(), *LIMITS]) + RUNS + _table(_results()) + REPORTS + _table(_reports())
    }


def _platforms() -> Iterator[tuple[str, ...]]:
    bundles = {path.name: json.loads(path.read_text("utf-8")) for path in sorted(HARDWARE.glob("*.json"))}
    for platform, device in DEVICES:
        names = [
            f"[{name}](evidence/hardware/{name})"
            for name, bundle in bundles.items()
            if any(owned.startswith(device) for owned in bundle["machine"]["devices"])
        ]
        yield platform, ", ".join(names) or NEVER


def _results() -> Iterator[tuple[str, ...]]:
    sittings = quotable().sittings
    together = f"[{len(sittings)} sittings](evidence/README.md) of a standing claim"
    yield together, *_asked_and_where(sittings[-1]), "may be quoted, all of them together"
    for path in sorted(EVIDENCE.glob(f"*{SUFFIX}")):
        judged = JudgedResult.of_folder(path, evidence_pins())
        answer = "not judged" if judged.quotation is None else str(judged.quotation)
        yield _link(path), *_asked_and_where(judged), answer


def _asked_and_where(judged: JudgedResult) -> tuple[str, str, str]:
    """Return what was asked of a committed result, on what it ran, and the day it ended."""
    record, request = judged.result.record, judged.result.request
    if record is None or request is None:
        raise ValueError(f"{judged.result.id} lacks its record or request; expected a whole result")
    where = ", ".join([record.host.cpu or record.host.machine, record.host.os_version, *record.host.devices])
    return f"`{asked_text(request)}`, {request.profile}", where, record.ended[:10]


def _reports() -> Iterator[tuple[str, ...]]:
    """Yield a row a machine: the reports that were measured on it, what is open of each, and from when they are."""
    files = [*EVIDENCE.glob("*.json"), *(EVIDENCE / "engine").glob("*.json"), *(EVIDENCE / "studies").glob("*.json*")]
    measured: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(files):
        for machine, link, ended in _series(path) if path.suffix == ".jsonl" else _single(path):
            measured.setdefault(machine, []).append((link, ended))
    for machine, reports in sorted(measured.items()):
        days = sorted(ended for _, ended in reports)
        yield machine, ", ".join(dict.fromkeys(link for link, _ in reports)), f"{days[0]} to {days[-1]}"


def _series(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield machine, link and last day of a study's report, which has a line a case."""
    entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    cases, count = len({entry["case"] for entry in entries}), entries[-1]["of"]
    for machine in dict.fromkeys(_machine(entry["machine"]) for entry in entries):
        last = max(entry["ended"] for entry in entries if _machine(entry["machine"]) == machine)
        yield machine, _link(path) if cases >= count else f"{_link(path)} ({cases} of {count} cases)", last[:10]


def _single(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield machine, link and day of one JSON file: of a command, of a folded study, or a report of the engine."""
    report = json.loads(path.read_bytes())
    if "environment" in report:
        around, ended = report["environment"], report["ended_at"]
        yield f"Linux {around['machine']}, {around['backend']} on {around['device']}", _link(path), ended[:10]
    elif "machines" in report:
        for machine in report["machines"]:
            yield _machine(machine), _link(path), report["ended"][:10]
    elif "host" in report:
        host = report["host"]
        yield f"Linux {host['machine']}, {host['processors']} processors", _link(path), host["started"][:10]


def _machine(text: str) -> str:
    """Return a machine without its kernel's build and the load of the moment."""
    return re.sub(r", load [\d.]+", "", _SYSTEM.sub(r"Linux \1", text))


def _link(path: Path) -> str:
    place = path.relative_to(EVIDENCE)
    return f"[{place.name.removesuffix(SUFFIX)}](evidence/{place.as_posix()})"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
