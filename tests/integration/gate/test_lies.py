"""A workload that lies where only the runner can see it, run for real, gets the verdict it deserves.

The other lies are told over a recording of an honest run: `test_recorded_lies`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.gate.lies import HONEST, LIES, RUN_FOR_REAL
from tests.integration.gate.lies.registry import mild, premises_of
from tests.integration.gate.site import Site, serving

# A test may wait for the runs of all of them.
pytestmark = [pytest.mark.ci, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("lies")) as made:
        made.keep_an_earlier_report()
        # All at once, so that the runner never waits for the next one.
        selected = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
        for name in (*HONEST, *RUN_FOR_REAL):
            if name in selected and name not in made.requests:
                made.ask(name)
        yield made


@pytest.mark.parametrize("name", HONEST)
def test_the_honest_twin_is_valid(site: Site, name: str) -> None:
    ended = site.ended(name)
    assert ended.codes("reject") == set(), ended.verdict["why"]
    assert (ended.claim.reason, mild(ended.verdict["decision"])) == ("passed", "valid")
    assert ended.claim.exit_code == 0
    assert any(claim["role"] == "primary" for claim in ended.verdict["claims"])


@pytest.mark.parametrize("name", RUN_FOR_REAL)
def test_a_lie_gets_the_verdict_it_deserves(site: Site, name: str) -> None:
    lie, ended = LIES[name], site.ended(name)
    verdict = ended.verdict
    findings = [(finding["code"], finding["severity"], finding["message"]) for finding in verdict["findings"]]
    assert (ended.claim.reason, mild(verdict["decision"])) == (lie.reason, lie.decision), findings
    assert set(lie.codes) <= ended.codes("reject" if lie.decision == "rejected" else None), findings
    assert {lie.fell} - {""} <= premises_of(verdict, lie), findings
    assert not any(claim["decision"] == "evidence" for claim in verdict["claims"])
    if lie.decision == "rejected":
        assert verdict["headline"].startswith("Refused, because")
        assert ended.claim.exit_code != 0


def test_a_program_that_ran_beside_the_engine_is_named(site: Site) -> None:
    messages = {
        name: [
            finding["message"]
            for finding in site.ended(name).verdict["findings"]
            if "not the engine" in finding["message"]
        ]
        for name in ("the-engine-then-a-program", "honest")
    }
    (message,) = messages["the-engine-then-a-program"]
    assert message.startswith("command measure ")
    assert messages["honest"] == []


def test_nothing_is_left_to_change_a_report_after_the_end(site: Site) -> None:
    ended = site.ended("changes-the-report-after-the-end")
    pid = int((site.folder / "models" / "left-behind").read_text())
    assert not _alive(pid)
    assert json.loads(ended.files["reports/report.json"])["kind"] == "code_throughput"


def test_what_the_workload_prints_is_in_the_log_and_nowhere_else(site: Site) -> None:
    quiet, loud = site.ended("honest"), site.ended("says-evidence")
    assert b"verdict: evidence" in loud.files["log.txt"]
    assert b"verdict: evidence" not in loud.files["verdict.json"] + loud.files["summary.md"]
    assert loud.codes("reject") == quiet.codes("reject") == set()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return sys.platform != "linux"
    return state != "Z"
