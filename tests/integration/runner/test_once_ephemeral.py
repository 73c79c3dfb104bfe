"""`kakeya-runner once --ephemeral` over a real git remote: one request, a result that counts, and nothing left."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from bridge.bus.refs import names
from bridge.records.run import RunRecord
from tests.fakes.git_servers import git
from tests.integration.trust.test_verify import told
from tests.support.runner_site import Ran, Site


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a bus with an owner and no runner that serves it, and an empty folder for what lives shortly."""
    tmp_path.chmod(0o700)
    for variable, folder in {"KAKEYA_OWNER_DIR": "owner", "XDG_STATE_HOME": "user-state"}.items():
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / folder))
    (tmp_path / "scratch").mkdir()
    made = Site(tmp_path)
    assert made.run("keygen").code == 0
    assert made.run("once", "--bus", made.route, "--create-bus").code == 0
    return made


NAP = f"sleep 4321.{os.getpid()}"
"""What a run leaves behind; another worker's is not meant."""


def ticket(place: Site, name: str = "ci-1", lasts: str = "1h") -> Path:
    out = place.folder / f"{name}.ticket"
    made = place.run("trust", "ticket", name, "--for", lasts, "--out", str(out), "--bus", place.route)
    assert made.code == 0, made.stderr
    return out


def words(place: Site, *more: str) -> tuple[str, ...]:
    return ("once", "--ephemeral", "--bus", place.route, "--state", str(place.folder / "scratch"), *more)


def ephemeral(place: Site, *more: str) -> Ran:
    """Run one in this process; `--state` is given twice, and the last one counts."""
    return place.run(*words(place, *more))


def left(place: Site) -> list[str]:
    """Return what is in its folder, and in the user's folder of states."""
    paths = [*(place.folder / "scratch").iterdir(), *(place.folder / "user-state").iterdir()]
    return [path.name for path in paths]


def beacons(place: Site) -> list[str]:
    head = names.beacon_ref(names.DEFAULT_PREFIX, "")
    listed = git("for-each-ref", "--format=%(refname)", head, cwd=place.folder / "bus.git").split()
    return [ref.removeprefix(head) for ref in listed]


def test_a_ticket_lets_one_request_run_whose_result_counts_and_nothing_is_left(place: Site) -> None:
    path = ticket(place)
    assert path.stat().st_mode & 0o777 == 0o600
    first, second = place.ask(), place.ask()
    ran = ephemeral(place, "--ticket", str(path))
    assert ran.code == 1, ran.stderr  # an empty report: the gate's own code
    assert place.starts() == [first.id]
    assert place.claim(second) is None
    assert (left(place), beacons(place)) == ([], ["mini"])
    end = place.ended(first)
    assert end.runner == "ci-1"
    record = RunRecord.parse(place.requester().read_result(end.result_oid).files["run.json"])
    assert record.attempt is None  # who remembers nothing counts nothing, and the gate says what lacks

    folder = place.folder / "reader"
    folder.mkdir()
    owner = json.loads(place.run("trust", "show", "--json", "--bus", place.route).stdout)["owner"]
    assert told(folder, "init", "--bus", place.route, "--root-key", owner)[0] == 0
    code, document = told(folder, "verify", first.id)
    assert (code, document["data"]["answer"]) == (0, "verified"), document

    assert place.run("trust", "retire", "ci-1", "--bus", place.route).code == 0
    refused = ephemeral(place, "--ticket", str(path))
    assert (refused.code, place.claim(second)) == (2, None)
    assert "does not list the ticket of ci-1, or no longer" in refused.stderr
    assert (told(folder, "verify", first.id)[0], left(place)) == (0, [])


def test_without_a_ticket_it_joins_no_bus_that_signs_and_says_so_before_it_takes_anything(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = place.ask()
    refused = ephemeral(place)
    assert (refused.code, place.claim(ref), left(place)) == (2, None, [])
    assert "this bus signs its results" in refused.stderr
    assert "trust ticket" in refused.stderr
    open_one = place.folder / "open.ticket"
    open_one.write_text("{}")
    open_one.chmod(0o644)
    assert "chmod 600" in ephemeral(place, "--ticket", str(open_one)).stderr
    open_one.chmod(0o600)
    assert "holds no ticket" in ephemeral(place, "--ticket", str(open_one)).stderr
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    piped = ephemeral(place, "--ticket", "-")
    assert (piped.code, "standard input holds no ticket" in piped.stderr) == (2, True)
    assert "without --ephemeral" in place.run("once", "--ticket", str(open_one), "--bus", place.route).stderr


def test_once_takes_one_request_however_many_slots_the_policy_has(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    place = Site(tmp_path)
    policy = place.policy()
    policy.write_text(f"slots = 3\n{policy.read_text()}")
    place.create_bus()
    first, second = place.ask(), place.ask()
    assert place.run("once", "--bus", place.route).code == 1
    assert (place.starts(), place.claim(second)) == ([first.id], None)


@pytest.mark.slow
def test_on_a_bus_that_signs_nothing_it_says_which_key_it_made_and_waits_for_a_request(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "user-state").mkdir()
    place = Site(tmp_path)
    place.create_bus()
    idle = ephemeral(place)
    assert (idle.code, left(place)) == (0, [])
    assert "no request came that this runner may take" in idle.stderr
    waiting = place.start(*words(place, "--wait-up-to", "10m"))
    place.until(lambda: beacons(place), "it never showed itself")
    ref = place.ask()
    end = place.ended(ref)
    assert end.runner.startswith("mini-")
    assert waiting.wait(timeout=240) == 1
    place.until(lambda: (left(place), beacons(place)) == ([], []), "something is left")
    assert f"it counts for who pins {end.runner}=" in (place.folder / "mini.log").read_text()


def going(place: Site, path: Path):
    """Start one with a run in its middle, of a program that left its session; return both."""
    place.set_work(
        f"(setsid {NAP} & echo $! > {place.folder}/counted/pid); "
        f"until [ -e {place.folder}/counted/go-on ]; do sleep 0.05; done"
    )
    ref = place.ask()
    process = place.start(*words(place, "--ticket", str(path)))
    place.until((place.folder / "counted" / "pid").exists, "its run never began")
    return process, ref


def alive(place: Site) -> list[psutil.Process]:
    """Return the processes of the run, and those of the runner's own that hold it."""
    processes = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        with contextlib.suppress(psutil.Error):
            command_line = " ".join(process.info["cmdline"] or [])
            if NAP in command_line or str(place.folder) in (process.info["environ"] or {}).get("KAKEYA_OUT", ""):
                processes.append(process)
    return processes


@pytest.mark.slow
def test_a_killed_one_leaves_no_process_and_the_next_start_removes_its_folder(place: Site) -> None:
    path = ticket(place)
    process, ref = going(place, path)
    assert left(place)
    process.kill()
    process.wait()
    place.until(lambda: not alive(place), "its run goes on without it")
    assert place.claim(ref).state == "started"  # whoever sees its lease end, says that it is lost
    [folder] = left(place)
    assert sum(file.stat().st_size for file in (place.folder / "scratch" / folder).rglob("*")) < 8 << 20
    place.set_work(":")
    other = place.ask()
    assert ephemeral(place, "--ticket", str(path)).code == 1
    assert place.ended(other).runner == "ci-1"
    assert left(place) == []


@pytest.mark.slow
def test_asked_to_end_it_publishes_what_it_had_and_leaves_nothing(place: Site) -> None:
    process, ref = going(place, ticket(place))
    process.terminate()
    assert process.wait(timeout=120) == 128 + signal.SIGTERM
    assert place.ended(ref).reason == "interrupted"
    place.until(lambda: not alive(place), "its run goes on without it")
    assert (left(place), beacons(place)) == ([], ["mini"])


@pytest.mark.slow
def test_a_remote_that_is_away_when_the_run_ends_gets_the_result_when_it_is_back(place: Site) -> None:
    process, ref = going(place, ticket(place))
    remote, away = place.folder / "bus.git", place.folder / "away.git"
    remote.rename(away)
    (place.folder / "counted" / "go-on").touch()
    place.until(lambda: "not published yet" in (place.folder / "mini.log").read_text(), "it never tried")
    away.rename(remote)
    assert place.ended(ref).reason == "gate_rejected"
    assert process.wait(timeout=120) == 1
    assert (left(place), beacons(place)) == ([], ["mini"])


def test_a_named_branch_with_the_run_id_of_another_is_not_taken_in_its_place(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "scratch").mkdir()
    place = Site(tmp_path)
    place.create_bus()
    ref, remote = place.ask(), place.folder / "bus.git"
    same, empty, other = (f"refs/heads/mac-bridge/{name}-{ref.id}" for name in ("aaa", "bbb", "zzz"))
    git("update-ref", same, ref.oid, cwd=remote)
    git("update-ref", empty, git("rev-parse", "refs/kakeya/bus", cwd=remote).strip(), cwd=remote)
    place.ask(id=ref.id, ref=other)
    for named in (same, empty, other):
        ran = ephemeral(place, "--branch", named)
        assert (ran.code, place.starts(), place.claim(ref)) == (0, [], None), ran.stderr
        assert f"its run id is that of {named}" in ran.stderr
    assert place.run("once", "--bus", place.route, "--branch", same).code == 0
    assert (place.starts(), place.claim(ref)) == ([], None)
    assert ephemeral(place, "--branch", ref.ref).code == 1
    assert (place.starts(), place.claim(ref).state) == ([ref.id], "terminal")
    assert ephemeral(place, "--branch", other).code == 0
    assert place.starts() == [ref.id]
