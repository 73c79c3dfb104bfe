"""The committed campaign of ways out reaches what pages and records name, and nothing besides."""

from __future__ import annotations

import pytest

from benchmarks.studies.report import report_of
from benchmarks.studies.sandbox.escapes.situations import NETWORKS, NOT_STARTED, SITUATIONS, USERS
from benchmarks.studies.study import rows_of
from bridge.executor.sandbox.landlock import NEVER_HELD

ROWS = {row["situation"]: row for row in rows_of(report_of("escapes").entries())}
ALONE = [f"landlock alone, {user}" for user in USERS]
PROCESS = "a process of the host"
FACTS = ("session", "group", "priority", "scheduling", "processor time", "affinity")
KINDS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
FILES, PROCESSES, NAMESPACES = NEVER_HELD
REACHED = {
    FILES: {
        "see where a link of the host leads",
        *(f"see the {fact} of a file of the host" for fact in ("size", "time", "owner")),
    },
    PROCESSES: {
        f"see the owner of {PROCESS}",
        *(f"read the {fact} of {PROCESS}" for fact in FACTS),
    },
    NAMESPACES: {
        f"be in the host's {kind} namespace" for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
    },
}


def test_the_campaign_has_every_cell_with_the_probes_of_today():
    assert sorted(ROWS) == sorted([*SITUATIONS, *NOT_STARTED])
    assert all(ROWS[situation]["probes"] >= 300 for situation in SITUATIONS)


@pytest.mark.parametrize("phrase", NEVER_HELD)
def test_what_is_named_as_never_held_is_reached(phrase):
    reached = {probe for situation in ALONE for probe in ROWS[situation]["reached"]}

    assert reached >= REACHED[phrase]


@pytest.mark.parametrize("situation", ALONE)
def test_landlock_alone_lets_nothing_be_reached_that_is_not_named(situation):
    named = {probe for probes in REACHED.values() for probe in probes}

    assert set(ROWS[situation]["reached"]) - named == set()


def test_elsewhere_nothing_is_reached_but_with_the_network_of_the_host():
    hosts = {situation for situation in SITUATIONS if situation.endswith("network host")}
    reached = {situation for situation, row in ROWS.items() if row["reached"]}

    assert len(hosts) == 2 * len(USERS)
    assert reached == hosts | set(ALONE)


def test_what_landlock_alone_is_not_for_was_asked_for_and_refused():
    assert len(NOT_STARTED) == len(USERS) * (len(NETWORKS) + 1 + len(NETWORKS))
    for situation in NOT_STARTED:
        assert "the host has none: " in ROWS[situation]["refused"], situation
