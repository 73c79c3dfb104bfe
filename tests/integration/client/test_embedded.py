"""The first command of the README on real processes: embedded bus, real git, real runner, real workload."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.bus.open.embedded import embedded_folder
from bridge.bus.refs import names
from bridge.records.quotation import word_of
from bridge.system.clock import SystemClock
from bridge.trust import runner_key as keys
from bridge.trust.keyring import pin
from tests.fakes.clone import Clone
from tests.fakes.git_servers import git
from tests.support.waiting import until

QUICK = ("pytest-path", "-p", "path=checks/test_quick.py")
QUICK_TEST = "def test_quick():\n    assert True\n"
WAITING_TEST = """import pathlib, time


def test_waits():
    while not pathlib.Path(__file__).with_name("go").exists():
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    clone = Clone(tmp_path_factory.mktemp("requester"))
    clone.commit({"checks/test_quick.py": QUICK_TEST, "checks/test_waits.py": WAITING_TEST})
    yield clone
    clone.stop_runners()


@pytest.fixture(scope="module")
def probed(clone):
    """The probe, run once: what it printed, and the repository before and after."""
    before = clone.state_of_repository()
    ran = clone.mac("run", "mlx-env-probe", "--wait")
    return ran, before, clone.state_of_repository()


def test_the_first_command_works_and_looks_as_designed(probed):
    ran, _, _ = probed
    assert ran.returncode == 0, ran.stderr
    lines = ran.stderr.splitlines()
    assert lines[0] == "bus   embedded: runs on THIS machine; another: kakeya-mac init --bus ROUTE"
    assert re.fullmatch(r"run   [0-9a-z]{8} mlx-env-probe   resume: kakeya-mac attach [0-9a-z]{8}", lines[1])
    timeline = "\n".join(lines[2:])
    states = [re.sub(r"^\d\d:\d\d ", "", piece) for piece in timeline.replace("\n", " · ").split(" · ")]
    # How far it is comes again and again, and now and then the last line of its log.
    words = [re.match(r"[a-z]*", state).group() for state in states if not state.startswith("| ")]
    assert [word for word, _ in groupby(words) if word != "queued"] == ["claimed", "running", "judging", "done"], states
    assert "running (limit 5m)" in states
    assert re.match(r"passed      (quotable|measured) \(smoke\)   [0-9a-z]{8}   \d+", ran.stdout)
    assert re.search(r"^files       \.git/kakeya/runs/[0-9a-z]{8}/$", ran.stdout, re.MULTILINE)


def test_what_is_asked_of_another_machine_by_name_never_runs_on_this_one(clone):
    refused = clone.mac("run", "mlx-env-probe@gpu-box", "--dry-run")
    assert refused.returncode == 2, refused.stderr
    assert "names runner 'gpu-box', and on this machine's own bus nothing runs elsewhere" in refused.stderr


def test_a_bus_of_this_machine_s_own_is_not_slowed_down_by_signatures(clone, probed):
    bare = next((clone.root / "home").rglob("bus.git"))
    tips = git("for-each-ref", "--format=%(objectname)", names.DEFAULT_PREFIX, cwd=bare).split()
    assert tips
    assert not any("Kakeya-Seal" in git("log", "-1", "--format=%B", tip, cwd=bare) for tip in tips)


def test_the_users_repository_is_as_it_was(probed):
    _, before, after = probed
    assert after == before


def test_the_result_verifies_from_its_id_and_from_a_copy_of_its_folder(clone, probed, tmp_path):
    by_id = clone.mac("verify", "@last")
    assert by_id.returncode == 0, by_id.stdout
    assert re.search(r"^verified    [0-9a-z]{26}   signed by ", by_id.stdout, re.MULTILINE)
    folder = clone.mac("open", "@last").stdout.strip()
    clone.root.joinpath("copy").mkdir(exist_ok=True)
    copy = clone.root / "copy" / "run"
    clone.git("clone", "-q", str(clone.top), str(tmp_path / "plain"))
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    assert clone.mac("verify", str(copy)).returncode == 0
    log = copy / "log.txt"
    log.write_bytes(log.read_bytes() + b"forged\n")
    forged = clone.mac("verify", str(copy))
    assert forged.returncode == 12  # altered
    assert "FAILED      log.txt" in forged.stdout


def test_what_is_published_names_no_folder_of_the_machine(clone, probed):
    folder = clone.top / clone.mac("open", "@last").stdout.strip()
    source = Path(__file__).parents[3]
    places = [str(clone.root), str(source), sys.prefix, str(Path.home())]
    for name in ("run.json", "spec.json", "summary.md", "verdict.json", "derived.json", "log.txt"):
        text = (folder / name).read_text("utf-8")
        assert [place for place in places if f"{place}/" in text] == [], name
    assert json.loads((folder / "run.json").read_bytes())["imported"]["work"] == "${RUN}/files/work"


@pytest.mark.needs("bwrap|sandbox-exec")
def test_every_command_gives_one_answer_about_a_run(clone):
    """The verdict that the host stored, and what verify, gate check, quote, compare, summary and report say of it."""
    ran = clone.mac("run", *QUICK, "--wait", "--new")
    folder = clone.top / clone.mac("open", "@last").stdout.strip()
    stored = json.loads((folder / "verdict.json").read_bytes())
    decision, claims = stored["decision"], {claim["id"]: claim["decision"] for claim in stored["claims"]}
    word, headline = word_of(decision), stored["headline"]
    assert headline in clone.mac("verify", "@last").stdout
    for words in (("gate", "check", str(folder)), ("report", "@last"), ("verify", "@last")):
        assert f" {word} (smoke) " in clone.mac(*words).stdout, words
    assert re.search(rf"^= +quote +{word}\b", clone.mac("compare", "@last", "@last").stdout, re.MULTILINE)
    assert re.search(rf"^\| quote \| {headline[:20]}", (folder / "summary.md").read_text(), re.MULTILINE)
    assert clone.document("verify", "@last")["data"]["quotation"] == word
    reported = clone.document("report", "@last")["claims"]
    assert {claim["id"]: claim["decision"] for claim in reported} == claims
    assert claims, ran.stdout + ran.stderr
    refused = {refusal["claim"] for refusal in clone.document("quote", "@last")["data"]["refused"]}
    assert refused == {name for name, verdict in claims.items() if verdict != "evidence"}
    following = [line.split() for line in ran.stdout.splitlines() if line.startswith("next ")]
    refusal = clone.mac("quote", "@last").stderr.splitlines()
    assert [line.split() for line in refusal if line.startswith("next ")] == following
    assert following[0][-3:] == ["--profile", "claim", "--wait"]


@pytest.mark.ci
def test_a_run_of_this_machine_is_judged_by_its_own_bus_in_a_clone_that_pins_another(clone, probed, tmp_path):
    """The README's demo inside a clone that was set up for a remote bus: nobody has to say `--bus embedded`."""
    run_id = clone.document("status", "@last")["id"]
    folder = clone.mac("open", run_id).stdout.strip()
    shutil.copytree(folder, tmp_path / "copy")
    other, key = bus_with_a_key(tmp_path)
    config = clone.top / ".git" / "kakeya.toml"
    config.write_text(f'schema = 1\nroute = "{other}"\nrunner_keys = ["{key}"]\n')
    try:
        for what in (run_id, "@last", folder, str(tmp_path / "copy")):
            checked = clone.mac("verify", what)
            assert checked.returncode == 0, (what, checked.stdout, checked.stderr)
        assert "asking the embedded bus on this machine" in clone.mac("verify", run_id).stderr
        quoted = clone.document("quote", run_id)["data"]
        assert not [why for why in quoted["refused"] if "signed by none" in why["why"]]
        assert clone.document("attach", run_id)["outcome"]["reason"] == "passed"
        log = tmp_path / "copy" / "log.txt"
        log.write_bytes(log.read_bytes() + b"forged\n")
        assert clone.mac("verify", str(tmp_path / "copy")).returncode == 12
        named = clone.document("verify", run_id, "--bus", str(other))
        assert named["outcome"]["exit_code"] == 2
        assert f"this clone sent {run_id} to the bus" in named["outcome"]["message"]
        assert "#" in named["outcome"]["remedy"]
    finally:
        config.unlink()


def bus_with_a_key(folder):
    """Make a bus somewhere and return its path with the key of a runner that never saw our run."""
    route = folder / "other.git"
    subprocess.run(["git", "init", "-q", "--bare", str(route)], check=True, timeout=240)
    clock = SystemClock()
    open_bus(str(route), repository=None, state=folder / "maker", clock=clock).create(
        new_record(clock, wake="poll", local=True)
    )
    return route, pin(keys.generate(folder / "key", "far"))


@pytest.mark.ci
@pytest.mark.needs("bwrap|sandbox-exec")
def test_a_run_without_a_sandbox_is_asked_for_by_name_here_and_refused_by_a_bus(clone, tmp_path):
    ran = clone.mac("run", *QUICK, "--unsandboxed", "--new", "--wait")
    assert ran.stdout.splitlines()[0].endswith("NO SANDBOX"), ran.stdout + ran.stderr
    assert re.search(r"^sandbox +none: asked for with --unsandboxed; it ran as user \d+$", ran.stdout, re.MULTILINE)
    other, _ = bus_with_a_key(tmp_path)
    refused = clone.mac("run", "mlx-env-probe", "--unsandboxed", "--bus", str(other))
    assert refused.returncode == 2
    assert "--unsandboxed is for your own machine" in refused.stderr


def test_looking_from_a_second_terminal(clone, probed):
    probe = probed[0].stdout.split()[3]  # other tests of this module run something after it
    status = clone.document("status", probe)
    assert (status["state"], status["terminal"], status["outcome"]["reason"]) == ("published", True, "passed")
    row = next(run for run in clone.document("ls")["data"] if run["id"] == status["id"])
    assert row["verdict"] in {"evidence", "valid", "recorded"}
    assert "untrusted log" in clone.mac("logs", probe).stdout
    assert "check       ok     mlx" in clone.mac("report", probe).stdout
    assert clone.mac("explain", probe).stdout.startswith("preset mlx-env-probe: allowed")


@pytest.mark.ci
@pytest.mark.needs("bwrap|sandbox-exec")
def test_request_code_runs_from_the_clone_and_a_failing_test_is_rejected_with_its_name(clone):
    passed = clone.document("run", *QUICK, "--new", "--wait")
    assert (passed["outcome"]["exit_code"], passed["outcome"]["reason"]) == (0, "passed"), passed["log_tail"]
    assert passed["request"]["workload"]["dirty"] is False
    before = clone.state_of_repository()
    (clone.top / "checks" / "test_quick.py").write_text("def test_quick():\n    assert 1 == 2\n")
    dirty = clone.state_of_repository()
    ran = clone.mac("run", *QUICK, "--dirty", "--wait", "--json")
    assert clone.state_of_repository() == dirty
    assert "1 changed files" in ran.stderr
    assert ran.returncode in {1, 4}
    clone.git("checkout", "--", "checks/test_quick.py")
    assert clone.state_of_repository()["status"] == before["status"]


def short_id_of(watched):
    """Read the two lines that a started `run` says first; it has pushed by then."""
    bus, run = watched.stderr.readline(), watched.stderr.readline()
    assert bus.startswith("bus ")
    assert "resume: kakeya-mac attach" in run
    return run.split()[1]


def let_go(clone):
    """Let the runs of `WAITING_TEST` end: put what they wait for beside their copies of it."""
    # os.walk passes by folders that go while it looks.
    folders = [Path(folder) for folder, _, names in os.walk(clone.root / "home") if "test_waits.py" in names]
    assert folders
    for folder in folders:
        (folder / "go").touch()


@pytest.mark.ci
@pytest.mark.needs("bwrap|sandbox-exec")
def test_every_state_is_visible_ctrl_c_detaches_and_attach_goes_on(clone):
    watched = clone.start("run", "pytest-path", "-p", "path=checks/test_waits.py", "--wait")
    short = short_id_of(watched)
    run_id = clone.document("status", short)["id"]
    assert [row["id"] for row in clone.document("ls", "--limit", "1")["data"]] == [run_id]
    until(lambda: clone.document("status", run_id)["state"] == "started")
    again = clone.document("run", "pytest-path", "-p", "path=checks/test_waits.py")
    assert (again["id"], again["request"]["reattached"]) == (run_id, True)
    watched.send_signal(signal.SIGINT)
    out, err = watched.communicate(timeout=240)
    assert watched.returncode == 130
    assert out == ""
    assert f"resume: kakeya-mac attach {run_id[-8:]}" in err.splitlines()[-1]
    assert clone.document("status", run_id)["state"] == "started"
    let_go(clone)
    attached = clone.mac("attach", run_id)
    assert attached.returncode == 0, attached.stderr + attached.stdout
    assert attached.stdout.startswith("passed")


@pytest.mark.ci
@pytest.mark.needs("bwrap|sandbox-exec")
def test_sigterm_detaches_with_143_and_a_document(clone):
    watched = clone.start("run", "pytest-path", "-p", "path=checks/test_waits.py", "--wait", "--json", "--new")
    short_id_of(watched)
    watched.send_signal(signal.SIGTERM)
    out, _ = watched.communicate(timeout=240)
    assert watched.returncode == 143
    document = json.loads(out)
    assert (document["outcome"]["reason"], document["outcome"]["exit_code"]) == ("detached", 143)
    cancelled = clone.mac("cancel", document["id"])
    assert cancelled.returncode == 0
    ended = clone.document("attach", document["id"])
    assert (ended["outcome"]["reason"], ended["outcome"]["exit_code"]) == ("cancelled", 6)


@pytest.mark.ci
@pytest.mark.needs("bwrap|sandbox-exec")
def test_a_killed_runner_is_restarted_by_whoever_waits_and_the_run_goes_on_once(clone):
    watched = clone.start("run", "pytest-path", "-p", "path=checks/test_waits.py", "--wait", "--json", "--new")
    short = short_id_of(watched)
    until(lambda: clone.document("status", short)["state"] == "started")
    killed = clone.runner_pids()
    clone.stop_runners(signal.SIGKILL)
    until(lambda: set(clone.runner_pids()) - set(killed))
    let_go(clone)
    out, err = watched.communicate(timeout=240)
    assert watched.returncode == 0, err
    document = json.loads(out)
    assert document["outcome"]["reason"] == "passed"
    assert clone.mac("logs", short).stdout.count("1 passed in") == 1
    assert killed
    assert set(clone.runner_pids()).isdisjoint(killed)


def policy_in(clone, text):
    """Write what the owner of a clone's machine allows and return the file."""
    path = clone.root / "home" / ".config" / "kakeya" / "policy.toml"
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_text(text)
    path.chmod(0o600)
    clone.environment["XDG_CONFIG_HOME"] = str(path.parent.parent)
    return path


def test_a_policy_with_a_mistake_is_refused_before_anything_is_sent(tmp_path):
    clone = Clone(tmp_path)
    policy_in(clone, "schema = 1\nname = 'x'\nsurprise = true\n")
    refused = clone.document("run", "mlx-env-probe", "--wait")
    assert (refused["outcome"]["exit_code"], refused["outcome"]["reason"]) == (2, "usage")
    assert "surprise" in refused["outcome"]["message"]
    assert clone.document("ls")["data"] == []


@pytest.mark.ci
@pytest.mark.needs("bwrap|sandbox-exec")
def test_a_runner_that_cannot_start_is_named_and_the_request_waits(tmp_path):
    clone = Clone(tmp_path)
    state = embedded_folder(tmp_path / "home" / ".local" / "share" / "kakeya") / "runner" / "state.sqlite"
    state.mkdir(parents=True, mode=0o700)
    clone.commit({"checks/test_quick.py": QUICK_TEST})
    ran = clone.mac("run", *QUICK, "--wait", "--json")
    document = json.loads(ran.stdout)
    assert (ran.returncode, document["outcome"]["reason"]) == (3, "infrastructure")
    assert "state.sqlite" in document["outcome"]["message"]
    assert document["id"] in clone.mac("ls", "--ids").stdout.split()
    state.rmdir()
    again = clone.document("run", *QUICK, "--wait")
    assert (again["outcome"]["reason"], again["request"]["reattached"]) == ("passed", True)
    clone.stop_runners()


def test_a_state_folder_that_cannot_be_written_is_said_without_a_traceback(tmp_path):
    clone = Clone(tmp_path)
    (clone.top / ".git" / "kakeya").write_text("a file where a folder is needed")
    ran = clone.mac("run", "mlx-env-probe", "--wait", "--json")
    assert ran.returncode == 3
    assert "Traceback" not in ran.stderr
    assert json.loads(ran.stdout)["outcome"]["reason"] == "infrastructure"


def test_an_unknown_preset_in_a_clone_without_a_bus_says_so_first(tmp_path):
    ran = Clone(tmp_path).mac("run", "sorter")
    assert ran.returncode == 2
    assert "no bus is pinned here, and this machine has no preset 'sorter'" in ran.stderr
    assert "kakeya-mac init --bus ROUTE" in ran.stderr
