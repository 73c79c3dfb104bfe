"""Are the leases of other runs held while a run of the same runner takes more than its default bounds allow?

A real `kakeya-runner serve` with two slots: in one a run that waits, in the other a hog. Each move of the waiting run's
claim on the bus is counted, until it was renewed twice after the hog's end; then it is let go and must end by itself.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.studies.hogs import CGROUPS, HEAD, HOGS, in_own_process
from benchmarks.studies.study import Row, Study
from bridge.bus.views import RequestRef
from tests.support.runner_site import Site

LEASE_S: Final = 15.0
"""Of the bus: a quarter of the shortest one that a bus gives by itself."""
RENEWALS_AFTER: Final = 2
LOOK_S: Final = 0.1
WAIT = """
import os, time
while not os.path.exists({go_on!r}): time.sleep(0.2)
with open(os.environ["KAKEYA_OUT"] + "/probe.json", "w") as file: file.write("{{}}")
"""
POLICY = """schema = 1
name = "{name}"
interpreter = "{interpreter}"
rate_per_hour = 0
slots = 2
[presets]
folder = "{folder}/presets"
[sandbox]
mode = "off"
read_only = ["{folder}/counted"]
"""
PRESET = """schema = 1
name = "{name}"
status = "ready"
description = "wait, or take more than the bounds allow"
gate_profile = "probe"
[[commands]]
name = "{name}"
argv = ["${{interpreter}}", "-I", "-S", "{program}"]
[[outputs]]
path = "probe.json"
kind = "environment_probe"
[limits]
wall_s = 300.0
inactivity_s = 300.0
[sandbox]
mode = "off"
"""


def cases() -> list[str]:
    """Return the cases: hog, control groups."""
    return [f"{hog}, {cgroups}" for hog in HOGS for cgroups in CGROUPS]


def run_here(hog: str) -> Row:
    """Run a hog beside a run that waits, and return what became of the other's claim."""
    with _site(hog) as site:
        site.start("serve", "--bus", site.route)
        waiting = site.ask("wait")
        site.until(lambda: (found := site.claim(waiting)) is not None and found.state == "started", "it never started")
        greedy = site.ask("hog")
        moves, wall_s = _moves(site, waiting, greedy)
        (site.folder / "counted" / "go-on").touch()
        end = site.ended(waiting)
        record = json.loads(site.requester().read_result(site.ended(greedy).result_oid).files["run.json"])
    return {
        "renewals": len(moves) - 1,
        "longest_s": round(max((after - before for before, after in pairwise(moves)), default=0.0), 2),
        "lease_s": LEASE_S,
        "reason": end.reason,
        "held": end.reason == "gate_rejected",  # its report is an empty one: it was judged, so its lease held
        "hog_limits": [f"{hit['limit']} {hit['action']}" for hit in record["limits_hit"]],
        "hog_wall_s": round(wall_s, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def _moves(site: Site, waiting: RequestRef, greedy: RequestRef) -> tuple[list[float], float]:
    """Return when the waiting run's claim was seen to move, and the seconds from the request of the hog to its end."""
    began_s = time.monotonic()
    moves, seen, left, wall_s = [began_s], None, RENEWALS_AFTER, 0.0
    while left:
        claim, other = site.claim(waiting), site.claim(greedy)
        over = other is not None and other.state == "terminal"
        wall_s = wall_s or (time.monotonic() - began_s if over else 0.0)
        if claim.state == "terminal":
            break
        place = (claim.sequence, claim.beat)
        if place != seen:
            moves.append(time.monotonic())
            left -= over
        seen = place
        time.sleep(LOOK_S)
    return moves, wall_s


@contextmanager
def _site(hog: str) -> Iterator[Site]:
    """Yield a bus and a runner's policy with two presets: one waits, one is the hog."""
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name:
        folder = Path(name)
        site = Site(folder, lease_s=LEASE_S)
        policy = folder / "mini.toml"
        policy.write_text(POLICY.format(name="mini", interpreter=sys.executable, folder=folder))
        go_on = str(folder / "counted" / "go-on")
        for preset, program in (("wait", WAIT.format(go_on=go_on)), ("hog", f"{HEAD}TOKEN = 'hog'\n{HOGS[hog]}")):
            script = folder / "counted" / f"{preset}.py"
            script.write_text(program)
            path = folder / "presets" / f"{preset}.toml"
            path.write_text(PRESET.format(name=preset, program=script))
            path.chmod(0o600)
        policy.chmod(0o600)
        site.create_bus()
        try:
            yield site
        finally:
            site.end()


def run(case: str) -> list[Row]:
    """Run one case in a process of its own, which has control groups or not.

    Raises:
        RuntimeError: it could not be run.
    """
    hog, cgroups = case.split(", ")
    return [in_own_process("benchmarks.studies.hog_leases", [hog], cgroups)]


def main(arguments: Sequence[str]) -> None:
    """Run one hog here and print what came of it."""
    print(json.dumps(run_here(*arguments)))


STUDY = Study("hog-leases", "Are leases of other runs held beside a run that passes a default bound?", cases, run)

if __name__ == "__main__":
    main(sys.argv[1:])
