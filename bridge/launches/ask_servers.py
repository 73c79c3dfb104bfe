"""Ask inference servers over loopback when the runner says so, and write down each answer with its times.

Standard library only, and nothing of this package. It runs beside the sandbox of the servers: it shares their network
and nothing else. Speaks the protocol of docs/turns.md, where a turn is a batch of requests sent at once; what it saw
goes into a file of the runner's, which no server can open. argv: ``FOLDER STREAMS [PROGRAM ...]``: workload.toml
says the rest. It is read, and the tokenizer that it names, and PROGRAM is started, before the runner's side joins that
network and becomes another user.

Every prompt stands behind a line that follows from the launch's nonce. Half of the batches continue the beginnings of
their prompts by a text that is made at temperature 1 after the nonce is known: nobody could prepare them. PROGRAM, the
host's own target, makes it and says how each answer begins; where there is none, a drawn server makes it.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - of every name of a host; nothing may be left to import later
import http.client
import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

READY_S = 300.0
ANSWER_S = 120.0
LINE_MOST_BYTES = 1 << 20
TOKEN_MOST_CHARS = 64
"""Of one token on average: an answer that is longer than its tokens allow is ended."""
CONTINUED_TOKENS = 16
FIRST_TOKENS = 2
"""Of the target's own answer, to see how others begin: a first one may be a part of a character."""
TARGET_ENDS_S = 30.0
ASKER_ROUNDS = 5
_ENDLESS = "does not end its answer within {:.0f} s and {} {}"
_NO_ANSWER = (
    *(OSError, http.client.HTTPException, ValueError, AttributeError, TypeError, KeyError),
    RecursionError,  # of JSON that is nested too deep
)
SIDES = ("baseline", "candidate")


class AskedServerError(Exception):
    """A server cannot be measured; the text says which and why."""


class Server:
    """One server, as seen over its port.

    Args:
        arm: `baseline` or `candidate`.
        described: its table of workload.toml.
        address: host and port.
        max_tokens: of every answer.
    """

    def __init__(self, arm: str, described: dict[str, Any], address: tuple[str, int], max_tokens: int) -> None:
        self.arm, self.address, self.max_tokens = arm, address, max_tokens
        self.model, self.ready = described["model"], described.get("ready", "/v1/models")

    def wait_until_ready(self, patience_s: float = READY_S) -> None:
        """Return when its ready path answers with 200.

        Raises:
            AskedServerError: it does not, in this time.
        """
        until_s, last = time.monotonic() + patience_s, ""
        while (left_s := until_s - time.monotonic()) > 0:
            connection = http.client.HTTPConnection(*self.address, timeout=min(5.0, left_s))
            try:
                connection.request("GET", self.ready)
                with connection.getresponse() as response:
                    if response.status == http.client.OK:
                        return
                    last = f"it answers {response.status}"
            except TimeoutError as error:  # the last try has little time, and what was answered before says more
                last = last or str(error)
            except (OSError, http.client.HTTPException) as error:
                last = str(error) or type(error).__name__
            finally:
                connection.close()
            time.sleep(0.05)
        waited = f"{self.arm}: does not answer {self.ready} with 200 within {patience_s:.0f} s"
        raise AskedServerError(f"{waited}: {' '.join(last.split())[:200]}")

    def ask(self, prompt: str, *, stream: bool = True, **fields: object) -> dict[str, Any]:
        """Return one answer with its times.

        `first_s` is seconds to the first chunk whose text is not blank, `whole_s` to the end; `tokens` is what the
        server states, None where it states nothing; `error` is None, or why there is no whole answer.
        """
        body: dict[str, Any] = {
            "model": self.model, "prompt": prompt, "max_tokens": self.max_tokens, "temperature": 0, "stream": stream,
        } | fields  # fmt: skip
        body |= {"stream_options": {"include_usage": True}} if stream else {}
        answer: dict[str, Any] = {"text": "", "first_text": "", "first_s": None, "tokens": None, "error": None}
        connection = http.client.HTTPConnection(*self.address, timeout=ANSWER_S)
        began_s = time.monotonic()
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise ValueError(f"answers {response.status}: {response.read(2000).decode('utf-8', 'replace')}")
            for event in _events(response, self._limit(body)) if stream else [json.loads(response.read(1 << 22))]:
                _check_error(event)
                answer["tokens"] = (event.get("usage") or {}).get("completion_tokens", answer["tokens"])
                text = "".join(choice.get("text") or "" for choice in event.get("choices") or ())
                answer["text"] += text
                if answer["first_s"] is None and answer["text"].strip():
                    answer["first_s"], answer["first_text"] = time.monotonic() - began_s, answer["text"]
                if len(answer["text"]) > self._limit(body) or time.monotonic() - began_s > ANSWER_S:
                    raise ValueError(_ENDLESS.format(ANSWER_S, self._limit(body), "characters"))
        except _NO_ANSWER as error:
            reason = str(error) if type(error) is ValueError else f"breaks off its answer: {error!r}"
            answer["error"] = " ".join(reason.split())[:400]
        finally:
            connection.close()
        answer["whole_s"] = time.monotonic() - began_s
        answer["first_s"] = answer["whole_s"] if answer["first_s"] is None else answer["first_s"]
        for name in ("text", "first_text"):  # a lone half of a pair of code units is no text of JSON
            answer[name] = answer[name].encode("utf-8", "replace").decode()
        if type(answer["tokens"]) is not int or answer["tokens"] < 0:
            answer["tokens"] = None
        return answer

    @staticmethod
    def _limit(body: dict[str, Any]) -> int:
        return 1024 + TOKEN_MOST_CHARS * int(body["max_tokens"])


def _events(response: http.client.HTTPResponse, most_chars: int) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream of events; what is no whole stream of them is ended."""
    began_s, taken = time.monotonic(), 0
    while line := response.readline(LINE_MOST_BYTES):
        taken += len(line)
        if taken > 512 * most_chars or time.monotonic() - began_s > ANSWER_S:
            raise ValueError(_ENDLESS.format(ANSWER_S, 512 * most_chars, "bytes"))
        if not line.startswith(b"data:"):
            continue
        if line[5:].strip() == b"[DONE]":
            return
        event = json.loads(line[5:])
        if not isinstance(event, dict):
            raise ValueError(f"sends {line[:60]!r}, which is no object")  # noqa: TRY004 (a server says it)
        yield event
    raise ValueError("breaks off its answer: the stream ended before data: [DONE]")


def _check_error(event: dict[str, Any]) -> None:
    """Check that a server does not say in the middle of an answer, whose status was sent, that it fails."""
    if event.get("error") is not None:
        raise ValueError(f"ends its answer with an error: {json.dumps(event['error'])}")


class Target:
    """The host's own target: a process of the runner's user that shares neither network nor files with the servers.

    Args:
        argv: its command line; it gets lines of JSON and answers each.
    """

    def __init__(self, argv: list[str]) -> None:
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd="/")

    def add(self, text: str, *, tokens: int, seed: int | None) -> str:
        """Return what it adds to a text: drawn at temperature 1, or greedy without a seed.

        Raises:
            AskedServerError: it ended, or answers otherwise.
        """
        to_target, answers = self._process.stdin, self._process.stdout
        if to_target is None or answers is None:
            raise AskedServerError("the host's own target: closed")
        with contextlib.suppress(BrokenPipeError):
            to_target.write(json.dumps({"text": text, "tokens": tokens, "seed": seed}).encode() + b"\n")
            to_target.flush()
        line = answers.readline(LINE_MOST_BYTES)
        try:
            return str(json.loads(line)["text"])
        except (ValueError, TypeError, KeyError):
            printed = b"" if self._process.stderr is None or line else self._process.stderr.read(LINE_MOST_BYTES)
            last = (printed or line).decode("utf-8", "replace").strip().splitlines()
            why = " ".join(last[-1:])[:400] or "ended and printed nothing"
            raise AskedServerError(f"the host's own target: {why}") from None

    def close(self) -> None:
        """Let it end, so that nothing of it is there while servers are measured.

        Raises:
            AskedServerError: it does not.
        """
        try:
            self._process.communicate(timeout=TARGET_ENDS_S)
        except subprocess.TimeoutExpired:
            raise AskedServerError(f"the host's own target: does not end within {TARGET_ENDS_S:.0f} s") from None


class Tokens:
    """Counts the tokens of texts with the host's own tokenizer; its library is the host's, too.

    Args:
        folder: of the tokenizer.
    """

    def __init__(self, folder: Path) -> None:
        import site

        site.main()  # this program was started without the packages of its interpreter
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._ends = frozenset(_end_ids(folder, self._tokenizer.token_to_id))

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
        return len(self._ids(text))

    def count_ends(self, text: str) -> int:
        """Return how many of them end an answer."""
        return sum(token in self._ends for token in self._ids(text))

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _end_ids(folder: Path, id_of: Callable[[str], int | None]) -> Iterator[int]:
    """Yield the tokens that the files beside a tokenizer say an answer ends with."""
    for name in ("generation_config.json", "config.json", "tokenizer_config.json"):
        with contextlib.suppress(OSError):
            described = json.loads((folder / name).read_text("utf-8"))
            ids = described.get("eos_token_id")
            yield from ids if isinstance(ids, list) else () if ids is None else (ids,)
            end = described.get("eos_token")
            text = end.get("content") if isinstance(end, dict) else end
            token = None if text is None else id_of(text)
            yield from () if token is None else (token,)


class Asker:
    """Asks what a launch asks.

    Args:
        servers: by arm.
        prompts: the pinned ones.
        streams: how many requests are sent at once.
        rows: descriptor that gets a line an answer.
        tokens: counts those of a text; None where no tokenizer is named.
        target: the host's own, which continues prompts; None lets the servers do it.
    """

    def __init__(
        self,
        servers: dict[str, Server],
        prompts: list[str],
        streams: int,
        rows: int,
        *,
        tokens: Tokens | None = None,
        target: Target | None = None,
    ) -> None:
        self._tokens, self._target = tokens, target
        self._begins: dict[int, str] = {}
        self.servers, self.prompts, self.streams, self._rows = servers, prompts, streams, rows
        self.batches = 2 * math.ceil(len(prompts) / streams)
        self._pool = ThreadPoolExecutor(streams)
        self._nonce = ""
        self._texts: dict[tuple[int, int], str] = {}
        self._pinned: set[int] = set()
        self._places: dict[int, int] = {}
        self._asks = 0

    def begin(self, nonce: str) -> None:
        """Take the nonce of a launch: which batches are pinned follows from it."""
        self._nonce = nonce
        self._pinned = set(random.Random(nonce).sample(range(self.batches), self.batches // 2))  # noqa: S311
        for half in (self._pinned, set(range(self.batches)) - self._pinned):  # each prompt once in either
            self._places |= {batch: place for place, batch in enumerate(sorted(half))}

    def prepare(self) -> None:
        """Let the prompts of the other half be continued, so that nobody could know them before."""
        drawn = random.Random(f"{self._nonce}:continued")  # noqa: S311
        for batch in sorted(set(range(self.batches)) - self._pinned):
            for stream in range(self.streams):
                opening = _beginning(self._pinned_prompt(batch, stream))
                salted = self._salted(opening, f"continued-{batch}-{stream}")
                self._texts[batch, stream] = opening + self._continue(salted, drawn)
        if self._target is not None:
            for batch in range(self.batches):
                prompt = self._salted(self._body(batch, 0), f"{batch}-0")
                self._begins[batch] = self._target.add(prompt, tokens=FIRST_TOKENS, seed=None)
            self._target.close()

    def _continue(self, prompt: str, drawn: random.Random) -> str:
        """Return what the host's own target adds to a prompt; a drawn server where there is none."""
        server, seed = self.servers[drawn.choice(sorted(self.servers))], drawn.getrandbits(31)
        if self._target is not None:
            return self._target.add(prompt, tokens=CONTINUED_TOKENS, seed=seed)
        made = server.ask(prompt, max_tokens=CONTINUED_TOKENS, temperature=1.0, seed=seed)
        if made["error"] is not None:
            raise AskedServerError(f"{server.arm}: {made['error']}")
        return str(made["text"])

    def warm(self) -> None:
        """Ask each server once, which nobody counts.

        Raises:
            AskedServerError: one does not answer.
        """
        for server in self.servers.values():
            answer = server.ask(f"# {os.urandom(6).hex()}\n{_beginning(self.prompts[0])}")
            if answer["error"] is not None:
                raise AskedServerError(f"{server.arm}: {answer['error']}")

    def ask(self, arm: str, batch: int, *, again: bool) -> list[dict[str, Any]]:
        """Send a batch at once; return its answers when all are over.

        Args:
            arm: which server.
            batch: which prompts.
            again: whether the prompts stand behind another line than before.
        """
        self._asks += again
        salts = [f"{batch}-{stream}" + (f"-{arm}-{self._asks}" if again else "") for stream in range(self.streams)]
        prompts = [self._salted(self._body(batch, stream), salts[stream]) for stream in range(self.streams)]
        return list(self._pool.map(self.servers[arm].ask, prompts))

    def count(self, answers: list[dict[str, Any]], arm: str, batch: int, *, again: bool, turn: int) -> None:
        """Count the tokens of a batch's answers, and note them.

        Args:
            answers: of `ask`.
            arm: which server.
            batch: which prompts.
            again: whether the prompts stand behind another line than before.
            turn: for the file of answers.
        """
        for stream, answer in enumerate(answers):
            self._count_tokens(answer)
            answer["begins"] = None if again or stream else self._begins.get(batch)
            half = "pinned" if batch in self._pinned else "continued"
            self._note(arm=arm, turn=turn, sample=batch, stream=stream, half=half, again=again, **answer)

    def ask_whole(self, arm: str, batch: int, turn: int) -> None:
        """Ask the first prompt of a batch once more, without streaming."""
        answer = self.servers[arm].ask(self._salted(self._body(batch, 0), f"{batch}-0"), stream=False)
        self._count_tokens(answer)
        answer["begins"] = self._begins.get(batch)
        self._note(arm=arm, turn=turn, sample=batch, stream=0, half="whole", again=True, **answer)

    def measure_itself(self) -> None:
        """Note what this program takes for an answer that is there at once: from a listening process of its own."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            child = os.fork()
            if child == 0:
                _answer_at_once(listener)
            server = Server("asker", {"model": ""}, listener.getsockname(), 16)
            rounds = [list(self._pool.map(server.ask, ["x"] * self.streams)) for _ in range(ASKER_ROUNDS)]
            os.kill(child, 9)
            os.waitpid(child, 0)
        spent = [answer["whole_s"] for answers in rounds[1:] for answer in answers if answer["error"] is None]
        self._note(asker_s=statistics.median(spent) if spent else None)

    def _count_tokens(self, answer: dict[str, Any]) -> None:
        for name, text in (("counted", "text"), ("first_counted", "first_text")):
            answer[name] = None if self._tokens is None else self._tokens.count(answer[text])
        answer["ends"] = None if self._tokens is None else self._tokens.count_ends(answer["text"])

    def _pinned_prompt(self, batch: int, stream: int) -> str:
        return self.prompts[(self._places[batch] * self.streams + stream) % len(self.prompts)]

    def _body(self, batch: int, stream: int) -> str:
        return self._texts.get((batch, stream), self._pinned_prompt(batch, stream))

    def _salted(self, prompt: str, salt: str) -> str:
        return f"# {self._nonce[:12]}-{salt}\n{prompt}"

    def _note(self, **fields: object) -> None:
        line = json.dumps(fields).encode() + b"\n"
        while line:
            line = line[os.write(self._rows, line) :]


def _beginning(prompt: str) -> str:
    """Return the first half of a prompt: the whole one is still to be asked for the first time."""
    return prompt[: (len(prompt) + 1) // 2]


def _answer_at_once(listener: socket.socket) -> None:
    """Answer every request with a short stream, at once; never returns."""
    event = b'data: {"choices": [{"text": "x "}]}\n\n'
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + event * 16 + b"data: [DONE]\n\n")


def serve_turns(asker: Asker, orders: int, answers: int) -> None:
    """Ask when the runner says so: until it says that the launch is over.

    Raises:
        AskedServerError: a server cannot be measured.
    """
    with open(orders, "rb") as lines, open(answers, "wb", buffering=0) as to_runner:

        def say(**fields: object) -> None:
            to_runner.write(json.dumps(fields).encode() + b"\n")

        say(event="ready", protocol=1, samples=asker.batches, calibration={})
        for order in map(json.loads, lines):
            if order["event"] == "end":
                return
            if order["event"] == "launch":
                asker.begin(order["nonce"])
                continue
            arm, batch, turn, again = order["arm"], order["sample"], order["turn"], order["seconds"] is not None
            if arm == "prepare":
                asker.prepare()
                answered: list[dict[str, Any]] = []
            else:
                answered = asker.ask(arm, batch, again=again)
            over_s = time.monotonic()
            asker.count(answered, arm, batch, again=again, turn=turn)
            if again:
                asker.ask_whole(arm, batch, turn)
            lengths = [_length(answer) for answer in answered]
            tokens, counting_s = sum(max(0, n) for n in lengths), time.monotonic() - over_s
            say(event="done", turn=turn, tokens=tokens, over=True, lengths=lengths, counting_s=counting_s)
    raise AskedServerError("the runner went away")


def _length(answer: dict[str, Any]) -> int:
    """Return how long an answer is: tokens as counted, else as stated, else characters; -1 where it failed."""
    if answer["error"] is not None:
        return -1
    lengths = (answer["counted"], answer["tokens"], len(answer["text"]))
    return next(length for length in lengths if length is not None)


def servers_of(described: dict[str, Any], ports: list[int]) -> dict[str, Server]:
    """Return the servers of a table of workload.toml by arm: one that is asked alone answers for both."""
    tables = {arm: described[arm] for arm in SIDES if arm in described}
    servers = {}
    for (arm, table), port in zip(tables.items(), ports, strict=False):
        address = ("127.0.0.1", port)
        if "endpoint" in table:
            url = urlsplit(table["endpoint"])
            address = (url.hostname or "", url.port or 80)
        servers[arm] = Server(arm, table, address, described["max_tokens"])
    return servers if len(servers) == len(SIDES) else {arm: next(iter(servers.values())) for arm in SIDES}


def start_target(argv: list[str]) -> Target | None:
    """Start the host's own target; None where no program is named.

    Raises:
        SystemExit: the program cannot be started.
    """
    try:
        return Target(argv) if argv else None
    except OSError as error:
        sys.exit(f"the host's own target: {argv[0]}: {error.strerror}")


def read_servers(folder: str) -> dict[str, Any]:
    """Return what workload.toml says of the servers; under `tokens` what counts those of a text, None without."""
    described: dict[str, Any] = tomllib.loads((Path(folder) / "workload.toml").read_text("utf-8-sig"))["servers"]
    tokenizer = described.get("tokenizer")
    return described | {"tokens": None if tokenizer is None else Tokens(Path(folder) / tokenizer)}


def main(described: dict[str, Any], streams: int, target: Target | None = None) -> int:
    """Measure until the runner says that it is over; end in 1 when a server cannot be measured.

    Args:
        described: of `read_servers`.
        streams: how many requests are sent at once.
        target: the host's own, already started; None where there is none.
    """
    numbers = [int(os.environ.pop(f"KAKEYA_{name}")) for name in ("TURN_ORDERS", "TURN_ANSWERS", "SERVERS_SEEN")]
    ports = [int(port) for port in os.environ.pop("KAKEYA_SERVER_PORTS").split(",")]
    servers = servers_of(described, ports)
    asker = Asker(servers, described["prompts"], streams, numbers[2], tokens=described["tokens"], target=target)
    try:
        for server in dict.fromkeys(asker.servers.values()):
            server.wait_until_ready()
        asker.warm()
        asker.measure_itself()
        serve_turns(asker, numbers[0], numbers[1])
    except AskedServerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(read_servers(sys.argv[1]), int(sys.argv[2]), start_target(sys.argv[3:])))
