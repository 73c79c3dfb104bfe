"""The stand-in as a series of launches: the runner hands out its turns, and a process of the host's computes it again.

A launch burns processor time where a model would compute. `reference` and `recompute` are the host's own programs and
never lie: the first decodes plainly, the second continues every prompt of the report by its tokens.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.turns import TurnOrder, Turns, TurnsError, TurnsOfLaunch
from tests.integration.gate.workload import (
    ARMS,
    DECODERS,
    PROMPT_TOKENS,
    TOKEN_BYTES,
    Behaviour,
    Decoding,
    Report,
    config,
    digest_of,
    envelope,
    native,
    next_token,
    now,
    packed,
    prompt_ids,
    row_of,
    state_ratio,
    text_of,
)

SET = tuple(f"prompt-{index}" for index in range(60))
"""The pinned set of this language."""
NEEDLE = "needle_recall"
PARTS, ALONE_TOKENS, PREFILL_S = "parts", 4, 0.01
BLOCKS = {"smoke": 1, "claim": 5}
LARGER = {"smoke": 1, "claim": 4}
"""How many times as many prompts a launch of a profile has."""
WARMUPS = {"smoke": 1, "claim": 2}


def burn(_arm: str, _alone: bool, seconds: float) -> None:
    """Use the processor for so long."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(bytes(4096)).digest()


@dataclass
class InTurns(Behaviour):
    """What a run in turns does.

    Attributes:
        met: the prompts that a launch meets, given those that the nonces draw.
        begin_launch: done before the program says that it is ready, with the launches that wrote a part so far.
        prefilled: what is there of a sample after its prompt.
        alter_state: changes what there is of a sample before it is written.
        report_tokens: returns how many tokens an answer names, given the arm and how many there were.
        answer_solo: answers a stretch alone instead of the honest way, where it returns a number.
        named: what the prompts are called; those of the set are prompts.
        first: the first prompt of the set that is met; the set's rule begins with 0.
        part: what becomes of a launch's rows, given those of the launches before it.
        kind: of the report; a prompt of needle recall asks for the second word of what follows it.
        ends_quietly: whether a launch that the runner cut writes its part and ends as if it were whole.
    """

    tokens: int = 32
    token_s: float = 0.006
    step_s: float = 0.010
    prompts: int = 3
    work: Callable[[str, bool, float], None] = burn
    met: Callable[[list[str], TurnsOfLaunch], list[str]] = lambda prompts, launch: prompts
    begin_launch: Callable[[int], None] = lambda written: None
    report_tokens: Callable[[str, int], int] = lambda arm, tokens: tokens
    alter_state: Callable[[str, str, Decoding], None] = lambda arm, prompt, state: None
    answer_solo: Callable[[TurnOrder, TurnsOfLaunch], int | None] = lambda order, launch: None
    named: str = "prompt"
    first: int = 0
    part: Callable[[dict[str, list[Report]], list[Any]], None] = lambda rows, earlier: None
    kind: str = "code_throughput"
    ends_quietly: bool = False


def drawn(names: list[str], *seed: object) -> list[str]:
    """Return names in the order that a nonce draws."""
    start = "/".join(map(str, seed))
    return sorted(names, key=lambda name: hashlib.sha256(f"{start}/{name}".encode()).digest())


@dataclass
class HeldPrompt:
    """A prompt in progress on an arm, and what it took."""

    prompt: str
    state: Decoding
    steps: Iterator[None]
    prefill_s: float = 0.0
    decode_s: float = 0.0

    @classmethod
    def begin(cls, arm: str, prompt: str, behaviour: Behaviour, *, alone: bool = False) -> HeldPrompt:
        """Forward a prompt and take its first token."""
        began, key = time.perf_counter(), digest_of(prompt_ids(prompt))
        behaviour.work(arm, alone, PREFILL_S)
        state = Decoding([next_token(key, 0)], alone, cache=[bytes(TOKEN_BYTES)] * PROMPT_TOKENS)
        progress = cls(prompt, state, DECODERS[arm](key, behaviour, state))
        progress.prefill_s = time.perf_counter() - began
        return progress

    def go_on(self, tokens: int | None) -> None:
        """Decode to the next multiple of so many tokens, or to the end."""
        began, have = time.perf_counter(), len(self.state.tokens)
        aim = None if tokens is None else (have // tokens + 1) * tokens
        for _ in self.steps:
            if aim is not None and len(self.state.tokens) >= aim:
                break
        self.decode_s += time.perf_counter() - began


@dataclass
class ArmOfLaunch:
    """One arm and the prompt it is in."""

    name: str
    behaviour: InTurns
    current: HeldPrompt | None = None
    done: list[HeldPrompt] = field(default_factory=list)

    def take(self, prompt: str, tokens: int | None) -> tuple[int, bool]:
        """Take a turn; return its tokens, and whether the prompt's sample ended."""
        if self.current is None:
            self.current = HeldPrompt.begin(self.name, prompt, self.behaviour)
            self.current.state.turn_ends.append(1)
            return 1, False
        before = len(self.current.state.tokens)
        self.current.go_on(tokens)
        self.current.state.turn_ends.append(len(self.current.state.tokens))
        new_tokens, over = len(self.current.state.tokens) - before, self._ended(self.current)
        if over:
            self.done.append(self.current)
            self.current = None
        return new_tokens, over

    def _ended(self, progress: HeldPrompt) -> bool:
        return len(progress.state.tokens) >= self.behaviour.tokens

    def alone(self, prompts: list[str], seconds: float) -> int:
        """Decode prompts from their beginning for so long; return the tokens."""
        tokens, began = 0, time.monotonic()
        while True:
            for prompt in prompts:
                progress = HeldPrompt.begin(self.name, prompt, self.behaviour, alone=True)
                while not self._ended(progress):
                    if time.monotonic() - began >= seconds:
                        return tokens + len(progress.state.tokens)
                    progress.go_on(ALONE_TOKENS)
                tokens += len(progress.state.tokens)


def launch(behaviour: InTurns) -> None:
    """Take the turns of one launch and write its part."""
    turns, started, began = Turns.open(), now(), time.perf_counter()
    assert turns is not None
    profile, out = os.environ["KAKEYA_PROFILE"], Path(os.environ["KAKEYA_OUT"]) / PARTS
    earlier = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"), key=lambda p: int(p.stem))]
    behaviour.begin_launch(len(earlier))
    arms = {name: ArmOfLaunch(name, behaviour) for name in ARMS}
    warmups = [f"warm-{index}" for index in range(WARMUPS[profile])]
    for arm in arms.values():
        for prompt in warmups:
            while not arm.take(prompt, None)[1]:
                pass
    size = behaviour.prompts * LARGER[profile]
    this_launch = turns.ready(size)
    every = [f"{behaviour.named}-{behaviour.first + index}" for index in range(size * BLOCKS[profile])]
    block = drawn(every, os.environ["KAKEYA_NONCE"], "blocks")[this_launch.block * size :][:size]
    prompts = behaviour.met(drawn(block, this_launch.nonce, this_launch.number), this_launch)
    with contextlib.suppress(*((TurnsError,) if behaviour.ends_quietly else ())):
        for order in turns:
            if order.seconds is not None:
                answered = behaviour.answer_solo(order, this_launch)
                alone = prompts[order.sample % len(prompts) :] + prompts[: order.sample % len(prompts)]
                turns.done(arms[order.arm].alone(alone, order.seconds) if answered is None else answered, over=False)
                continue
            tokens, over = arms[order.arm].take(prompts[order.sample], order.tokens)
            turns.done(behaviour.report_tokens(order.arm, tokens), over=over)
    if this_launch.number > 0:
        rows = _rows(arms, this_launch.number - 1, len(warmups), behaviour)
        behaviour.part({name: [row for row in rows if row["id"].split("/")[2] == name] for name in ARMS}, earlier)
        out.mkdir(exist_ok=True)
        part = {"rows": rows, "started_at": started, "ended_at": now(), "wall_s": time.perf_counter() - began}
        (out / f"{this_launch.number - 1}.json").write_text(json.dumps(part))


def _rows(arms: Mapping[str, ArmOfLaunch], number: int, warmups: int, behaviour: InTurns) -> list[Report]:
    rows: list[Report] = []
    for place, pair in enumerate(zip(*(arms[name].done for name in ARMS), strict=True)):
        for name, progress in zip(ARMS, pair, strict=True):
            behaviour.alter_state(name, progress.prompt, progress.state)
            spot, spent = (number, len(rows), name, progress.prompt), (progress.prefill_s, progress.decode_s)
            silent = {"_silent": progress.state.silent}
            rows.append(row_of(spot, progress.state, spent, is_warmup=place < warmups) | silent)
            if behaviour.kind == NEEDLE:
                answer = answer_of(progress.prompt)
                rows[-1] |= {"expected": answer, "correct": answer in rows[-1]["text"].split()}
    return rows


def answer_of(prompt: str) -> str:
    """Return what a prompt of needle recall asks for."""
    return text_of([next_token(digest_of(prompt_ids(prompt)), 1)])


def assemble(behaviour: InTurns) -> None:
    """Join the parts into the report."""
    out = Path(os.environ["KAKEYA_OUT"])
    paths = sorted((out / PARTS).glob("*.json"), key=lambda path: int(path.stem))
    parts = [json.loads(path.read_text()) for path in paths]
    rows = [row for part in parts for row in part["rows"]]
    silent = [(row["id"], row.pop("_silent")) for row in rows]
    backend, path = native()
    arms = [
        {
            "name": name,
            "role": "candidate" if name == ARMS[1] else "baseline",
            "code_path": "engine.decoding.speculative:speculative" if name == ARMS[1] else path,
            "samples": [row for row in rows if row["id"].split("/")[2] == name],
        }
        for name in ARMS
    ]
    met = dict.fromkeys(row["prompt_id"] for row in rows)
    report = envelope(behaviour.kind, backend) | {
        "config": config(behaviour),
        "arms": arms,
        "fallbacks": [
            {"arm": ARMS[1], "component": "drafter", "sample": name, "reason": "no match", "count": count}
            for name, count in silent
            if count
        ],
        "prompts": {
            digest_of(ids): base64.b64encode(packed(ids)).decode() for ids in (prompt_ids(name) for name in met)
        },
        "started_at": min(part["started_at"] for part in parts),
        "ended_at": max(part["ended_at"] for part in parts),
        "wall_s": sum(part["wall_s"] for part in parts),
    }
    state_ratio(report)
    report["claims"] = []  # the ratio is the runner's: no program states it
    behaviour.write(out / "report.json", behaviour.finish(report))
    for file in paths:
        file.unlink()
    (out / PARTS).rmdir()


def be_reference() -> None:
    """Decode the launch's prompts plainly, alone: the host's own loop."""
    turns, honest = Turns.open(), InTurns()
    assert turns is not None
    arm = ArmOfLaunch(ARMS[0], honest)
    turns.ready(1)
    for order in turns:
        turns.done(arm.alone([f"prompt-{index}" for index in range(honest.prompts)], order.seconds or 0.0), over=False)


def recompute() -> None:
    """Continue every prompt of the report, and say how far off each output is."""
    out = Path(os.environ["KAKEYA_OUT"])
    report = json.loads((out / "report.json").read_text())
    rows = {}
    for sample in (sample for arm in report["arms"] for sample in arm["samples"]):
        ids = base64.b64decode(report["prompts"][sample["prompt_digest"]])
        key = hashlib.sha256(ids).hexdigest()
        right = [next_token(key, index) for index in range(len(sample["tokens"]))]
        wrong = [index for index, pair in enumerate(zip(sample["tokens"], right, strict=True)) if pair[0] != pair[1]]
        rows[sample["prompt_digest"], sample["token_digest"]] = {
            "prompt_digest": sample["prompt_digest"], "token_digest": sample["token_digest"],
            "tokens": len(sample["tokens"]), "worst_gap": 7.5 if wrong else 0.0, "worst_at": wrong[0] if wrong else 0,
            "text_sha256": hashlib.sha256(text_of(sample["tokens"]).encode()).hexdigest(),
            "free_running": not wrong, "layout": None,
        }  # fmt: skip
    asks = report["kind"] == NEEDLE
    known_prompts = {
        (digest_of(prompt_ids(name)), answer_of(name) if asks else None) for name in (*SET, "warm-0", "warm-1")
    }
    met = {(row["prompt_digest"], row["expected"]) for arm in report["arms"] for row in arm["samples"]}
    rows_of_arms = [row for arm in report["arms"] for row in arm["samples"]]
    measured = {row["prompt_digest"] for row in rows_of_arms if not row["is_warmup"]}
    recomputation = {
        "target": report["config"]["target"]["digest"], "delta": 0.0, "rows": list(rows.values()),
        "strange": len({digest for digest, _ in met - known_prompts}),
        "unchosen": len(measured - {digest_of(prompt_ids(name)) for name in SET[: len(measured)]}),
    }  # fmt: skip
    with (out / "recompute.json").open("x") as file:
        json.dump({"schema_version": 1, "reports": {"report.json": recomputation}}, file)
