"""Every other lie, told over the recording of an honest real run, gets the verdict it deserves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.studies.claims.forgeries import cases
from tests.integration.gate.lies import EARLIER, HONEST, LIES, RUN_FOR_REAL, SECONDS_LONG
from tests.integration.gate.lies.registry import MODELS, mild, premises_of
from tests.integration.gate.recording import Recording
from tests.integration.gate.site import CLOCK, serving

pytestmark = pytest.mark.needs("bwrap|sandbox-exec")

REST = [name for name in LIES if name not in (*HONEST, *RUN_FOR_REAL)]
RECORDED = [name for name in REST if LIES[name].preset in {"decode", "memory"} and name not in SECONDS_LONG]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    """Two honest runs of the first preset, one of the other."""
    with serving(tmp_path_factory.mktemp("recorded")) as site:
        for name in ("honest", "says-evidence", "honest-memory"):
            site.ask(name)
        return {
            "earlier": Recording.of(site, "honest"),
            "decode": Recording.of(site, "says-evidence"),
            "memory": Recording.of(site, "honest-memory"),
        }


def slower(report: bytes) -> bytes:
    """Return a report of a run whose decoding took twice as long: two honest runs may differ by a few hundredths."""
    old = json.loads(report)
    for stages in (sample["stages"] for arm in old["arms"] for sample in arm["samples"]):
        stages["total_s"] += stages["decode_s"]
        stages["decode_s"] *= 2
    return json.dumps(old).encode()


@pytest.fixture
def out(recordings: dict[str, Recording], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report directory, a home, and the report of the earlier run beside the models."""
    for name in ("out", "home", "models"):
        (tmp_path / name).mkdir()
    (tmp_path / "models" / EARLIER).write_bytes(slower(recordings["earlier"].report))
    os.utime(tmp_path / "models" / EARLIER, (CLOCK.now().timestamp() - 60,) * 2)
    monkeypatch.setenv(MODELS, str(tmp_path / "models"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "out"


@pytest.mark.parametrize("preset", ["decode", "memory"])
def test_a_recording_that_is_not_changed_is_judged_as_its_run_was(
    recordings: dict[str, Recording], out: Path, preset: str
) -> None:
    recording = recordings[preset]
    ending, verdict = recording.judged(LIES["honest"], out)
    assert ending.reason == "passed"
    assert verdict == recording.ended.verdict
    assert json.loads((out / "report.json").read_bytes()) == json.loads(recording.report)


@pytest.mark.parametrize("name", RECORDED)
def test_a_lie_over_a_recording_gets_the_verdict_it_deserves(
    recordings: dict[str, Recording], out: Path, name: str
) -> None:
    lie = LIES[name]
    ending, verdict = recordings[lie.preset].judged(lie, out)
    findings = [(finding["code"], finding["severity"], finding["message"]) for finding in verdict["findings"]]
    assert (ending.reason, mild(verdict["decision"])) == (lie.reason, lie.decision), findings
    codes = {code for code, severity, _ in findings if severity == "reject" or lie.decision != "rejected"}
    assert set(lie.codes) <= codes, findings
    assert {lie.fell} - {""} <= premises_of(verdict, lie), findings
    assert not any(claim["decision"] == "evidence" for claim in verdict["claims"])
    if lie.decision == "rejected":
        assert verdict["headline"].startswith("Refused, because")
        assert ending.exit_code != 0


def test_every_lie_is_told_here_beside_it_or_by_the_study() -> None:
    assert {*RUN_FOR_REAL, *SECONDS_LONG} <= set(LIES)
    beside = (*RECORDED, *RUN_FOR_REAL)
    other_lies = [lie for name, lie in LIES.items() if name not in beside and not name.startswith("honest")]
    assert all(lie.fell or lie.unseen or lie.codes for lie in other_lies)
    assert set(cases()) >= set(LIES)
