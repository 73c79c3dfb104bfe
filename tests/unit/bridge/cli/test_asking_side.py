"""What is on the asker's side of a run: a place in the queue, a program that is told, one file, log lines as such."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from bridge.cli.signals import install
from bridge.client.run.notify import notify
from bridge.presets.workloads.folder import read_folder
from tests.support.workload_folder import INTERPRETER, write_workload
from tests.unit.bridge.cli.looking import plan, run_id, take

TELL = "import os, sys, json; open('told.json', 'w').write(json.dumps([dict(os.environ), json.load(sys.stdin)]))"
TERMINATE = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"


def test_a_queued_run_says_how_many_wait_before_it(requester, host):
    first = requester.run("run", "mlx-env-probe").out.strip()
    requester.clock.sleep(1)
    second = requester.run("run", "mlx-env-probe", "--new").out.strip()
    assert "sent before it" not in requester.run("status", first).out
    assert "1 sent before it waits too" in requester.run("status", second).out
    host.claim(first)
    assert "sent before it" not in requester.run("status", second).out


def test_a_program_is_told_how_the_wait_ended(requester, host, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan(requester, host)
    ran = requester.run("run", "mlx-env-probe", "--wait", "--notify", f'{sys.executable} -c "{TELL}"')
    assert ran.code == 0
    variables, document = json.loads((tmp_path / "told.json").read_text())
    assert (variables["KAKEYA_REASON"], variables["KAKEYA_VERDICT"]) == ("passed", "valid")
    assert variables["KAKEYA_RUN_ID"] == document["id"]


def test_a_program_is_told_of_a_wait_that_ended_in_an_error(requester, host, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan(requester, host, ending={"forge": {"log.txt": b"all tests passed\n"}})
    ran = requester.run("run", "mlx-env-probe", "--wait", "--notify", f'{sys.executable} -c "{TELL}"')
    assert (ran.code, "does not verify" in ran.err) == (1, True), ran.err
    variables, document = json.loads((tmp_path / "told.json").read_text())
    assert (variables["KAKEYA_REASON"], variables["KAKEYA_VERDICT"]) == ("integrity", "")
    assert variables["KAKEYA_RUN_ID"] == document["id"] == run_id(requester)
    assert document["outcome"]["exit_code"] == ran.code


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (f"{sys.executable} -c 'raise SystemExit(3)'", "--notify ended with 3: "),
    ],
)
def test_a_program_that_fails_is_one_line_and_the_run_ends_as_it_ended(requester, host, command, line):
    plan(requester, host)
    ran = requester.run("run", "mlx-env-probe", "--wait", "--notify", command)
    assert ran.code == 0
    assert line in ran.err


def test_a_program_that_hangs_is_ended(requester, host):
    document = {"id": "x", "outcome": {"reason": "passed", "verdict": None}}
    command = f"{sys.executable} -c 'import time; time.sleep(60)'"
    assert "--notify was ended after 0s" in str(notify(command, document, timeout_s=0.3))


@pytest.fixture
def signals():
    """Let signals end a command as they end the program's process, and nothing of this one afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    install()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_a_signal_while_a_program_is_told_leaves_the_one_document_and_the_exit_code(requester, host):
    plan(requester, host)
    command = f'{sys.executable} -c "{TERMINATE}"'
    ran = requester.run("run", "mlx-env-probe", "--wait", "--json", "--notify", command)
    assert (ran.code, ran.document["outcome"]["reason"]) == (0, "passed"), ran.err
    assert "--notify was ended by a signal" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--notify", "tell"), "this line does not wait"),
        (("--wait", "--notify", "tell 'x"), "No closing quotation"),
        (("--wait", "--notify", ""), "--notify is empty"),
        (("--wait", "--notify", "/nowhere/tell x"), "there is no program '/nowhere/tell' that can be started here"),
        (("--wait", "--repeat", "2", "--notify", "true"), "--notify is for one run"),
    ],
)
def test_what_could_never_be_told_is_refused_before_anything_is_sent(requester, host, words, message):
    ran = requester.run("run", "mlx-env-probe", *words)
    assert (ran.code, message in " ".join(ran.err.split())) == (2, True), ran.err
    assert requester.bus.snapshot().requests == ()


def test_one_file_of_a_result_is_copied_here(requester, host, sent, tmp_path):
    take(host, sent)
    assert requester.run("fetch", "@last", "run.json").out.strip() == str(tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text())["id"] == sent
    for words, message in (
        (("run.json",), "is here already"),
        (("plot.png",), "no file is called 'plot.png' in"),
        (("spec.json", "--pack", "x.tar.xz"), "name a PATH or --pack"),
    ):
        ran = requester.run("fetch", "@last", *words)
        assert (ran.code, message in " ".join(ran.err.split())) == (2, True), ran.err


def test_a_line_of_the_log_says_that_it_is_one(requester, host, sent):
    requester.clock.plan(1, lambda: take(host, sent, log=b"83821915\n"))
    assert "\nlog | 83821915\n" in requester.run("attach", "@last", "--follow").err


def test_presets_that_no_live_runner_offers_are_behind_all(requester, host):
    host.beat(presets=("mlx-env-probe",))
    ran = requester.run("presets")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["mlx-env-probe"]
    assert "presets that nothing here can run now are not shown; kakeya-mac presets --all" in ran.err
    offered = {row["name"]: row["offered"] for row in requester.run("presets", "--json").document["data"]}
    assert [name for name in offered if offered[name]] == ["mlx-env-probe"]
    assert offered["cuda-env-probe"] is False
    host.beat(state="stopped")
    assert len(requester.run("presets").out.splitlines()) > 10  # nobody says what can be run


def test_this_machines_own_bus_offers_what_it_has_the_packages_for(requester, tmp_path, monkeypatch):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=240)
    (site,) = bare.glob("lib/python*/site-packages")
    (site / "other-1.0.dist-info").mkdir()
    (site / "other-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    folder = tmp_path / "xdg" / "kakeya"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "policy.toml").write_text(f'schema = 1\nname = "vm"\ninterpreter = "{bare / "bin" / "python"}"\n')
    (folder / "policy.toml").chmod(0o600)
    ran = requester.run("presets", "--bus", "embedded")
    assert "cuda-env-probe" not in ran.out
    assert "mlx-env-probe" in ran.out


def test_the_presets_of_the_bus_come_first_and_the_engines_are_behind_all(requester, host, tmp_path):
    host.offer(read_folder(write_workload(tmp_path), INTERPRETER).presets["my-train"])
    ran = requester.run("presets")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["my-train"]
    assert "presets of the engine are not shown; kakeya-mac presets --all" in ran.err
    assert len(requester.run("presets", "--all").out.splitlines()) > 10
    rows = requester.run("presets", "--json").document["data"]
    assert rows[0]["name"] == "my-train"
    assert len(rows) > 10
