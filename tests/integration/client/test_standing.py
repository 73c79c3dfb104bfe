"""A standing claim of an owner's two programs: real clone, embedded bus, real runner, sandbox and processes.

The host lets sittings begin a second after one another; that no claim is made of such is part of what is tested.
"""

from __future__ import annotations

import json
import math
import signal
import statistics
import sys

import pytest

from tests.fakes.clone import Clone
from tests.support import forked
from tests.support.waiting import until
from tests.support.workload_folder import INTERPRETER

pytestmark = pytest.mark.slow
SUM = "import sys\ntotal = 0\nfor number in range(int(sys.argv[1])):\n    total += number\n"
WORKLOAD = f"""schema = 1
name = "sums"

[environment]
interpreter = "{INTERPRETER}"

[presets.sums]
description = "Add up more numbers, and fewer"
limits.wall_s = 300.0

[metrics.speedup]
ratio = {{ baseline = ["sum.py", "900000"], candidate = ["sum.py", "300000"] }}
"""
ASK = ("run", "sums", "--profile", "standing", "--sittings", "6")


def seen(claim):
    """Return what stands against a claim, and the numbers that it was made of, for whoever reads a failure."""
    return json.dumps({key: claim[key] for key in ("why", "ends", "sittings", "wording")}, indent=1)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    top = tmp_path_factory.mktemp("standing")
    clone = Clone(top / "requester")
    folder = top / "sums"
    folder.mkdir()
    (folder / "sum.py").write_text(SUM)
    (folder / "workload.toml").write_text(WORKLOAD)
    folder.chmod(0o755)
    config = clone.root / "home" / ".config" / "kakeya"
    config.mkdir(parents=True)
    forked.run(
        forked.command,
        ("bridge.cli.host.main", ("workload", "allow", str(folder))),
        cwd=top,
        env=clone.env,
        timeout=200,
    )
    (config / "policy.toml").write_text(
        f'schema = 1\nname = "embedded"\ninterpreter = "{sys.executable}"\n'
        f'workloads = "{config}/workloads"\n[limits]\nsittings_apart_s = 2.0\n'
    )
    (config / "policy.toml").chmod(0o600)
    yield clone
    clone.stop_runners()


@pytest.fixture(scope="module")
def sent(clone):
    """The command, killed in the middle of the set, and the same command again to its end."""
    first = clone.start(*ASK, "--wait")
    runs = clone.top / ".git" / "kakeya" / "runs"
    until(
        lambda: first.poll() is not None or (runs.is_dir() and any(runs.iterdir())),
        patience_s=200.0,
        why="the first sitting did not end",
    )
    assert first.poll() is None, first.communicate()
    first.send_signal(signal.SIGKILL)
    first.communicate()
    clone.stop_runners()
    ran = clone.mac(*ASK, "--wait", "--json", timeout_s=390)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_same_command_goes_on_with_the_same_six_sittings(sent):
    data = sent["data"]
    (claim,) = data["standing"]
    assert len(data["runs"]) == 6
    assert [sitting["id"] for sitting in claim["sittings"]] == data["runs"]
    assert [sitting["attempt"] for sitting in claim["sittings"]] == [1, 2, 3, 4, 5, 6]


def test_sittings_that_began_too_soon_after_one_another_are_no_claim(clone, sent):
    quoted = clone.mac("quote", sent["data"]["set"])
    assert quoted.returncode == 1
    assert "minutes after attempt 1, expected at least 10" in quoted.stderr
    verified = clone.document("verify", *sent["data"]["runs"])
    (claim,) = verified["data"]["standing"]
    assert claim["quotation"] == "measured", claim
    # A machine that is busy with other work may take more from a sitting; that is its own and none of this.
    assert sum("expected at least 10" in reason for reason in claim["why"]) == 1, seen(claim)


def test_what_they_say_together_is_printed_with_its_prediction_all_the_same(clone, sent):
    (claim,) = sent["data"]["standing"]
    assert claim["wording"].startswith("over 6 sittings in "), claim["wording"]
    assert "; the next sitting [" in claim["wording"]
    logs = [sitting["log_ratio"] for sitting in claim["sittings"]]
    ends = sorted(math.log(end["value"]) for end in claim["ends"])
    assert ends[0] - 1e-6 <= statistics.fmean(logs) <= ends[-1] + 1e-6, seen(claim)
    assert statistics.fmean(logs) > 0.0, seen(claim)
    for end in claim["ends"]:
        (low, high), (least, most) = end["interval"], end["next_sitting"]
        assert least < low < end["value"] < high < most, seen(claim)


def test_a_sitting_that_is_left_out_is_named_and_takes_the_claim(clone, sent):
    left = [run for number, run in enumerate(sent["data"]["runs"]) if number != 3]
    (claim,) = clone.document("verify", *left)["data"]["standing"]
    assert "sitting 4 of 6 is missing" in claim["why"]
    assert "attempt 4 is missing between them" in claim["why"]


def test_a_word_is_answered_at_the_first_look_and_its_number_is_not_quoted(clone, sent):
    document = clone.document("run", "sums", "--profile", "claim", "--wait", "--fail-if", "slower")
    (claim,) = document["claims"]
    assert document["outcome"]["exit_code"] == 0, document["outcome"]
    assert claim["detail"]["answer"] == {"word": "slower", "answer": "no", "launches": 8}
    quoted = clone.mac("quote", document["id"])
    assert quoted.returncode == 1
    assert "asked whether it is slower, in three looks" in quoted.stderr
