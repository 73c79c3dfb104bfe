"""A series of launches ends by its rule, or before what is seen of one more no longer fits into the run's report."""

from __future__ import annotations

from functools import partial

from bridge.executor.servers.turns import ServersSeen
from bridge.executor.turns.series import SeriesOfLaunches
from bridge.limits import MIB, REPORT_MAX_BYTES
from bridge.records.jobspec import Command
from bridge.records.turns import LaunchRecord, LaunchSeries, StopRule

PLAN = LaunchSeries(arms=("baseline", "candidate"), rule=StopRule(), unit="samples", solo_s=0.0)


class Turns:
    """A launch whose answers take so many bytes."""

    def __init__(self, servers: ServersSeen, answer_bytes: int, plan, command, number, calibration, **more) -> None:
        self._servers, self._bytes, self._command, self._number = servers, answer_bytes, command, number
        self.record: LaunchRecord | None = None

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_) -> None:
        self._servers.answers.append({"launch": self._number, "text": "x" * self._bytes})
        self._servers.launches.append({"launch": self._number})
        self.record = LaunchRecord(
            command=self._command,
            number=self._number,
            block=0,
            nonce="0" * 64,
            turn_tokens=0,
            started_s=0.0,
            ready_s=0.0,
            ended_s=0.0,
            slept_s=0.0,
        )


def launched(answer_bytes: int) -> tuple[SeriesOfLaunches, ServersSeen, str]:
    servers, notes = ServersSeen(), []
    command = Command(name="servers", argv=("hold",), launches=PLAN)
    series = SeriesOfLaunches(
        command, PLAN, lambda _command, _turns: True, notes.append, lambda: 0.0, "unknown: not read",
        turns=partial(Turns, servers, answer_bytes), full=servers.full,
    )  # fmt: skip
    assert series.until_decided()
    return series, servers, notes[-1]


def test_no_launch_of_servers_begins_whose_answers_would_not_fit_into_the_report() -> None:
    series, servers, note = launched(5 * MIB)
    assert len(series.records) == 3
    assert note.startswith("3 launches of servers: the answers of a further launch do not fit into a report of 16 MiB")
    assert len(servers.report()) <= REPORT_MAX_BYTES


def test_answers_that_fit_end_no_series() -> None:
    series, _, note = launched(100)
    assert len(series.records) == 1 + PLAN.rule.most
    assert note == "21 launches of servers: most launches"
