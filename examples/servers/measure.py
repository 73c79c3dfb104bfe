"""Start two inference servers, and ask both the same prompts: by turns of the runner, or once for a report.

Which servers, which prompts: servers.json beside this file. A command's ``{port}`` is a free port of the sandbox's own
loopback and ``{python}`` this interpreter. Every prompt stands behind a line that is drawn after both servers are
ready, so that no answer can be kept from before. Decoding is greedy. Both have to answer a prompt with as many tokens:
who stops early is not faster.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

READY_S = 300.0
ANSWER_S = 120.0
LINE_MOST_BYTES = 1 << 20
ANSWER_MOST_BYTES = 16 << 20
SIDES = ("baseline", "candidate")


class Server:
    """One of the two, as a process group of its own.

    Args:
        side: `baseline` or `candidate`.
        described: its part of servers.json.
        max_tokens: of every answer.
    """

    def __init__(self, side: str, described: dict, max_tokens: int) -> None:
        self.side, self.model, self.max_tokens = side, described["model"], max_tokens
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        words = {"{python}": sys.executable}
        argv = [words.get(word, word.replace("{port}", str(self.port))) for word in described["command"]]
        self.log = tempfile.NamedTemporaryFile(prefix=f"{side}-", suffix=".log")  # noqa: SIM115 - closed by `end`
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KAKEYA_TURN_")}
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise SystemExit(f"{side}: {argv[0]}: {error.strerror}") from error
        self.ready = described.get("ready", "/v1/models")

    def wait_until_ready(self) -> None:
        """Return when its ready path answers with 200."""
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.fail(f"ended with {self.process.returncode} before it was ready")
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5.0)
                connection.request("GET", self.ready)
                if connection.getresponse().status == http.client.OK:
                    return
            time.sleep(0.1)
        self.fail(f"does not answer {self.ready} with 200 within {READY_S:.0f} s")

    def ask(self, prompt: str) -> dict:
        """Return text, tokens, and seconds to the first text that is not blank and to the end of an answer."""
        body = {
            "model": self.model, "prompt": prompt, "max_tokens": self.max_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        began = time.monotonic()
        first, texts, tokens, taken = None, [], None, 0
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                self.fail(f"answers {answer.status}: {answer.read(2000).decode('utf-8', 'replace')}")
            while (line := answer.readline(LINE_MOST_BYTES)) and line.strip() != b"data: [DONE]":
                taken += len(line)
                if taken > ANSWER_MOST_BYTES or time.monotonic() - began > ANSWER_S:
                    self.fail(f"does not end its answer within {ANSWER_S:.0f} s and {ANSWER_MOST_BYTES >> 20} MiB")
                if not line.startswith(b"data: "):
                    continue
                event = json.loads(line[6:])
                texts += [choice.get("text") or "" for choice in event.get("choices") or ()]
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
                if first is None and "".join(texts).strip():
                    first = time.monotonic() - began
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.fail(f"breaks off its answer: {error!r}")
        finally:
            connection.close()
        text, whole_s = "".join(texts), time.monotonic() - began
        first_s = whole_s if first is None else first
        return {"text": text, "tokens": tokens or len(text), "first_s": first_s, "whole_s": whole_s}

    def fail(self, why: str) -> None:
        """End this program, with the last lines that the server printed."""
        lines = Path(self.log.name).read_text("utf-8", "replace").splitlines()[-5:]
        raise SystemExit("\n".join((f"{self.side}: {why}", *lines)))

    def end(self) -> None:
        """Ask it to end, and after ten seconds end all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


def salted(prompts: list[str], nonce: str, sample: int, again: str = "") -> str:
    """Return a prompt behind a line that nobody could know before the nonce was drawn."""
    return f"# {nonce[:12]}-{sample}{again}\n{prompts[sample]}"


def agree(sample: int, answers: dict[str, dict]) -> None:
    """End this program where one side answered with fewer tokens than the other."""
    if len({answers[side]["tokens"] for side in answers}) > 1:
        counts = " and ".join(f"{side} {answers[side]['tokens']}" for side in SIDES)
        raise SystemExit(
            f"prompt {sample} was answered with tokens: {counts}; who stops early is not faster. "
            "Take prompts that both answer at full length, or a smaller max_tokens"
        )


def take_turns(servers: dict[str, Server], prompts: list[str]) -> None:
    """Ask when the runner says so; it draws who is next, and stamps each answer."""
    for side in SIDES:
        servers[side].ask(salted(prompts, secrets.token_hex(6), 0))  # warm: nobody counts it
    numbers = [int(os.environ.pop(name)) for name in ("KAKEYA_TURN_ORDERS", "KAKEYA_TURN_ANSWERS")]
    nonce, pairs = "", {}
    with open(numbers[0], "rb") as lines, open(numbers[1], "wb", buffering=0) as to_runner:
        say(to_runner, event="ready", protocol=1, samples=len(prompts), calibration={})
        for order in map(json.loads, lines):
            if order["event"] == "end":
                return
            if order["event"] == "launch":
                nonce = order["nonce"]
                continue
            arm, sample, seconds = order["arm"], order["sample"], order["seconds"]
            asks, began = 0, time.monotonic()
            while asks == 0 or (seconds is not None and time.monotonic() - began < seconds):
                again = "" if seconds is None else f"-{arm}-{asks}"  # a stretch that the other side has no part in
                answer = servers[arm].ask(salted(prompts, nonce, sample, again))
                asks += 1
            say(to_runner, event="done", turn=order["turn"], tokens=asks, over=True)
            if seconds is None:
                pair = pairs.setdefault(sample, {})
                pair[arm] = answer
                if len(pair) == len(SIDES):
                    agree(sample, pair)
    raise SystemExit("the runner went away")


def say(to_runner: BinaryIO, **fields: object) -> None:
    """Answer the runner with a line; the protocol is docs/turns.md."""
    to_runner.write(json.dumps(fields).encode() + b"\n")


def report(servers: dict[str, Server], prompts: list[str], seed: str) -> dict:
    """Return whether both say the same, and how soon each begins and goes on, in seconds."""
    nonce = hashlib.sha256(seed.encode()).hexdigest()
    answers: dict[str, list[dict]] = {side: [] for side in SIDES}
    for sample in range(len(prompts)):
        for side in SIDES if sample % 2 == 0 else SIDES[::-1]:
            answers[side].append(servers[side].ask(salted(prompts, nonce, sample)))
    texts = zip(*([answer["text"] for answer in answers[side]] for side in SIDES), strict=True)
    metrics: dict[str, object] = {
        "answers": [{"prompt": number, "same": ours == theirs} for number, (ours, theirs) in enumerate(texts)]
    }
    for side in SIDES:
        metrics[f"{side}_first_token"] = statistics.median(answer["first_s"] for answer in answers[side])
        metrics[f"{side}_token"] = statistics.median(
            (answer["whole_s"] - answer["first_s"]) / max(1, answer["tokens"] - 1) for answer in answers[side]
        )
    return {"metrics": metrics}


def main() -> None:
    """Start both, measure, end both."""
    described = json.loads(Path(__file__).with_name("servers.json").read_text("utf-8"))
    prompts, by_turns = described["prompts"], "KAKEYA_TURN_ORDERS" in os.environ
    if not by_turns and "KAKEYA_REPORT" not in os.environ:
        raise SystemExit("nobody hands out turns: start this with kakeya-mac run")
    with contextlib.ExitStack() as stack:
        servers = {}
        for side in SIDES:
            servers[side] = Server(side, described[side], described["max_tokens"])
            stack.callback(servers[side].end)
        for server in servers.values():
            server.wait_until_ready()
        if by_turns:
            take_turns(servers, prompts)
        else:
            made = report(servers, prompts, os.environ["KAKEYA_SEED"])
            Path(os.environ["KAKEYA_REPORT"]).write_text(json.dumps(made), "utf-8")


if __name__ == "__main__":
    main()
