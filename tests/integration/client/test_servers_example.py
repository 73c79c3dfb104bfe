"""The example that measures two inference servers: real servers of this machine, and such as misbehave."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge.executor.turns.pipe import TurnPipe

EXAMPLE = Path(__file__).parents[3] / "examples" / "servers"
_SERVER = """
import http.server, json, sys, time

mode, port = sys.argv[1], int(sys.argv[2])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if mode == "loading":
            return self.send_error(503)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
        if mode == "refuses":
            return self.send_error(400, "no such model")
        if mode == "dies":
            print("out of memory", flush=True)
            sys.exit(3)
        words = ["a ", "b ", prompt.splitlines()[0]][: 2 if mode == "brief" else 3]
        if mode == "slow":
            time.sleep(0.1)
        self.send_response(200)
        self.end_headers()
        if mode == "endless":
            while True:
                self.wfile.write(b": " + b"x" * 65536 + b"\\n")
        for word in words:
            self.wfile.write(b"data: " + json.dumps({"choices": [{"text": word}]}).encode() + b"\\n\\n")
        usage = {"choices": [], "usage": {"completion_tokens": len(words)}}
        self.wfile.write(b"data: " + json.dumps(usage).encode() + b"\\n\\ndata: [DONE]\\n\\n")

    def log_message(self, *_):
        pass


print("listening", flush=True)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, copied."""
    made = tmp_path / "servers"
    shutil.copytree(EXAMPLE, made)
    (made / "server.py").write_text(_SERVER)
    return made


def write(folder: Path, baseline: str, candidate: str) -> None:
    """Name two of the servers above."""
    server = [str(folder / "server.py")]
    sides = {
        side: {"command": ["{python}", *server, mode, "{port}"], "ready": "/v1/models", "model": "m"}
        for side, mode in (("baseline", baseline), ("candidate", candidate))
    }
    described = {"max_tokens": 3, "prompts": ["first prompt", "second prompt"], **sides}
    (folder / "servers.json").write_text(json.dumps(described))


def reported(folder: Path, **patience: float) -> subprocess.CompletedProcess[str]:
    """Run the program as a repeat is run."""
    text = (folder / "measure.py").read_text()
    for name, value in patience.items():
        line = next(line for line in text.splitlines() if line.startswith(f"{name} = "))
        text = text.replace(line, f"{name} = {value}")
    (folder / "measure.py").write_text(text)
    environment = {"KAKEYA_REPORT": str(folder / "report.json"), "KAKEYA_SEED": "7", "PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, str(folder / "measure.py")], env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


def is_running(folder: Path) -> bool:
    """Whether a server of a folder is left."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, timeout=60, check=True).stdout
    return str(folder / "server.py") in listed


@contextmanager
def turns(folder: Path) -> Iterator[tuple[TurnPipe, subprocess.Popen[str]]]:
    """Start the program as a launch is started."""
    orders, answers = os.pipe(), os.pipe()
    for end in (orders[0], answers[1]):
        os.set_inheritable(end, True)
    environment = {
        "KAKEYA_TURN_ORDERS": str(orders[0]), "KAKEYA_TURN_ANSWERS": str(answers[1]), "PATH": os.environ["PATH"],
    }  # fmt: skip
    argv = [sys.executable, str(folder / "measure.py")]
    with subprocess.Popen(
        argv, env=environment, pass_fds=(orders[0], answers[1]), stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(orders[0])
        os.close(answers[1])
        yield TurnPipe(orders[1], answers[0], lambda: process.poll() is not None), process
    for end in (orders[1], answers[0]):
        os.close(end)


def test_the_runner_times_each_server_and_none_is_left(folder: Path) -> None:
    write(folder, "slow", "quick")
    took: dict[str, float] = {}
    with turns(folder) as (pipe, process):
        assert pipe.answer("ready")[0]["samples"] == 2
        pipe.order(event="launch", protocol=1, number=0, block=0, nonce="a" * 64, calibration={})
        orders = [("candidate", 0, None), ("baseline", 0, None), ("baseline", 1, 0.3), ("baseline", 1, None)]
        for turn, (arm, sample, seconds) in enumerate(orders, start=1):
            began = pipe.order(event="go", turn=turn, arm=arm, sample=sample, tokens=None, seconds=seconds)
            answer, ended = pipe.answer("done")
            assert (answer["turn"], answer["over"]) == (turn, True)
            took[f"{arm}{seconds or ''}"] = ended - began
        pipe.order(event="end")
        assert process.wait(60) == 0
    assert took["candidate"] < 0.1 <= took["baseline"] < took["baseline0.3"]
    assert not is_running(folder)


def test_a_server_that_stops_early_is_not_faster(folder: Path) -> None:
    write(folder, "quick", "brief")
    with turns(folder) as (pipe, process):
        pipe.answer("ready")
        pipe.order(event="launch", protocol=1, number=0, block=0, nonce="a" * 64, calibration={})
        for turn, arm in enumerate(("baseline", "candidate"), start=1):
            pipe.order(event="go", turn=turn, arm=arm, sample=0, tokens=None, seconds=None)
            if arm == "baseline":
                pipe.answer("done")
        assert process.stderr is not None
        text = process.stderr.read()
        assert process.wait(60) == 1
    assert "prompt 0 was answered with tokens: baseline 3 and candidate 2; who stops early is not faster" in text
    assert not is_running(folder)


@pytest.mark.parametrize(
    ("mode", "says", "patience"),
    [
        ("loading", "candidate: does not answer /v1/models with 200 within 1 s\nlistening", {"READY_S": 1.0}),
        ("refuses", "candidate: answers 400: ", {}),
        ("dies", "candidate: breaks off its answer: RemoteDisconnected", {}),
        ("endless", "candidate: does not end its answer within 120 s and 16 MiB", {}),
    ],
)
def test_a_server_that_misbehaves_is_named_with_what_it_printed(
    folder: Path, mode: str, says: str, patience: dict[str, float]
) -> None:
    write(folder, "quick", mode)
    done = reported(folder, **patience)
    assert (done.returncode, says in done.stderr, done.stderr.splitlines()[-1]) == (
        1, True, "out of memory" if mode == "dies" else "listening",
    )  # fmt: skip
    assert not is_running(folder)
    assert not (folder / "report.json").exists()


def test_a_server_that_does_not_start_is_named(folder: Path) -> None:
    write(folder, "quick", "quick")
    described = json.loads((folder / "servers.json").read_text())
    described["candidate"]["command"] = ["/nonexistent/llama-server", "--port", "{port}"]
    (folder / "servers.json").write_text(json.dumps(described))
    done = reported(folder)
    assert (done.returncode, done.stderr) == (1, "candidate: /nonexistent/llama-server: No such file or directory\n")
    assert not is_running(folder)


@pytest.mark.slow
def test_the_engine_with_and_without_a_drafter_answers_alike(folder: Path) -> None:
    done = reported(folder)
    assert (done.returncode, done.stderr) == (0, "")
    metrics = json.loads((folder / "report.json").read_text())["metrics"]
    assert metrics.pop("answers") == [{"prompt": number, "same": True} for number in range(4)]
    assert all(seconds > 0.0 for seconds in metrics.values())
    assert len(metrics) == 4
