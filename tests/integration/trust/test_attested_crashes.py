"""KILL around the moment a result is signed: afterwards no number is missing and none was given out twice."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.client.evidence.succession import chain_notes
from bridge.runner.state.attestations import enrolled
from bridge.system.clock import SystemClock
from bridge.trust import runner_key as keys
from bridge.trust.attestation import verify_attestation
from tests.fakes.asking import make_request, push
from tests.support.crash import crash, run
from tests.support.interpreter import write_interpreter

pytestmark = pytest.mark.ci

CLOCK = SystemClock()
WORK = "printf '{}' > \"$KAKEYA_OUT/probe.json\"\n"


@pytest.fixture
def paths(tmp_path):
    """Return the paths of a bus that signs and of a runner that has a key."""
    tmp_path.chmod(0o700)
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bus.git"], check=True)
    write_interpreter(tmp_path / "python", WORK)
    policy = tmp_path / "policy.toml"
    interpreter = tmp_path / "python"
    policy.write_text(
        f'schema = 1\nname = "mini"\ninterpreter = "{interpreter}"\nrate_per_hour = 0\n[sandbox]\nmode = "off"\n'
    )
    policy.chmod(0o600)
    keys.generate(tmp_path / "state", "mini")
    record = new_record(CLOCK, wake="actions", local=True).evolve(request_form="manifest")
    requester(tmp_path).create(enrolled(record, tmp_path / "state", sign=True))
    return {"bus": str(tmp_path / "bus.git"), "state": str(tmp_path / "state"), "policy": str(policy)}


def requester(tmp_path):
    return open_bus(str(tmp_path / "bus.git"), repository=None, state=tmp_path / "requester", clock=CLOCK)


def ask(tmp_path):
    bus = requester(tmp_path)
    return push(bus, make_request(bus.identity().bus_id, "count")).id


SLOW = [
    pytest.param(point, marks=pytest.mark.slow) for point in ("judged after", "result_built before", "terminal after")
]


@pytest.mark.parametrize("point", ["result_built after", "terminal before", *SLOW])
def test_no_number_is_missing_and_none_is_doubled_after_a_kill(paths, tmp_path, point):
    event, when = point.split()
    ids = [ask(tmp_path)]
    run(paths)
    ids.append(ask(tmp_path))
    assert crash({**paths, "event": event, "when": when}) == -9
    run(paths)
    ids.append(ask(tmp_path))
    run(paths)
    bus = requester(tmp_path)
    trusted = [key.public for key in keys.published(Path(paths["state"]))]
    trees = [bus.read_result(bus.view(run_id).claim.claim.result_oid).files for run_id in ids]
    attested = [verify_attestation(files, trusted) for files in trees]
    assert [(attestation.link.sequence, attestation.key) for attestation in attested] == [
        (number, trusted[-1]) for number in (1, 2, 3)
    ]
    assert chain_notes(attested) == []
