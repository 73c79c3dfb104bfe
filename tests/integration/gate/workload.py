"""A small honest workload that stands in for the engine: it decodes a made-up language and times what it does.

Knows nothing of the engine and nothing of the gate; only the standard library, so that a run takes a moment. Everything
it reports it did: it waits where a model would compute, marks every sample on the runner's pipe, and counts its steps.
A lie (see `lies`) changes one of these things.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import importlib.metadata
import json
import os
import platform
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

VOCABULARY, DEPTH, PROMPT_TOKENS, TOKEN_BYTES = 2048, 3, 12, 512
PROMPTS, WARMUPS = 6, 1
ARMS = ("autoregressive", "speculative")
NATIVE = {
    "mlx": (("mlx", "mlx-lm"), "mlx_lm.generate:generate_step"),
    "torch": (("torch", "transformers"), "transformers.generation:generate"),
}
Report = dict[str, Any]


@dataclass
class Behaviour:
    """What a run does; each lie changes a field, or what is made of the report.

    Attributes:
        token_s, step_s: what a plain step and a drafted step take.
        work: does the work of a step, given its arm, whether that runs alone, and those seconds.
        announce: writes one mark on the pipe.
        finish: what becomes of the report before it is written.
        write: leaves the report.
        exit_code: what the program ends with.
    """

    tokens: int = 24
    token_s: float = 0.002
    step_s: float = 0.0035
    prompts: int = PROMPTS
    drafts: bool = True
    work: Callable[[str, bool, float], None] = lambda arm, alone, seconds: time.sleep(seconds)
    announce: Callable[[Pipe, dict[str, str]], None] = lambda pipe, mark: pipe.write(mark)
    begin: Callable[[Pipe, list[str]], None] = lambda pipe, names: None
    finish: Callable[[Report], Any] = lambda report: report
    write: Callable[[Path, Report], None] = lambda path, report: path.write_text(json.dumps(report))
    exit_code: int = 0


@dataclass
class Pipe:
    """The runner's sample pipe."""

    descriptor: int = field(default_factory=lambda: int(os.environ["KAKEYA_SAMPLE_PIPE"]))

    def write(self, mark: dict[str, str]) -> None:
        os.write(self.descriptor, json.dumps(mark).encode() + b"\n")


def next_token(prompt: str, index: int) -> int:
    """Return the language's only continuation."""
    return int.from_bytes(hashlib.sha256(f"{prompt}/{index}".encode()).digest()[:4]) % (VOCABULARY - 6) + 6


def packed(tokens: list[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}I", *tokens)


def digest_of(tokens: list[int]) -> str:
    return hashlib.sha256(packed(tokens)).hexdigest()


def prompt_ids(prompt: str) -> list[int]:
    """Return the tokens of a prompt of this language."""
    return [next_token(f"prompt {prompt}", index) for index in range(PROMPT_TOKENS)]


@dataclass
class Decoding:
    """One sample as it happens; the cache is a list of real buffers.

    Attributes:
        alone: it is decoded for a stretch in which its arm runs alone.
        turn_ends: tokens at the end of each turn.
    """

    tokens: list[int]
    alone: bool = False
    turn_ends: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    silent: int = 0
    cache: list[bytes] = field(default_factory=list)


def plain(prompt: str, behaviour: Behaviour, state: Decoding) -> Iterator[None]:
    """Decode token by token; each step is over when it is asked for the next."""
    while len(state.tokens) < behaviour.tokens:
        behaviour.work(ARMS[0], state.alone, behaviour.token_s)
        state.tokens.append(next_token(prompt, len(state.tokens)))
        state.cache.append(bytes(TOKEN_BYTES))
        yield


def speculative(prompt: str, behaviour: Behaviour, state: Decoding) -> Iterator[None]:
    """Draft up to three tokens a step; the drafter is wrong now and then, and once a sample it has nothing to say."""
    while (left := behaviour.tokens - len(state.tokens)) > 0:
        behaviour.work(ARMS[1], state.alone, behaviour.step_s)
        place, depth = len(state.tokens), max(0, min(DEPTH, left - 1))
        silent = depth > 0 and not state.silent and place > 8
        state.silent += silent
        count = 0 if silent or not behaviour.drafts else depth
        draft = [next_token(prompt, place + offset) + (place + offset) % 4 // 3 for offset in range(count)]
        right = 0
        while right < count and draft[right] == next_token(prompt, place + right):
            right += 1
        state.tokens += [next_token(prompt, place + offset) for offset in range(right + 1)]
        state.cache += [bytes(TOKEN_BYTES)] * (right + 1)
        state.accepted.append(right)
        state.drafted.append(count)
        yield


DECODERS = {ARMS[0]: plain, ARMS[1]: speculative}


def sample(name: str, place: tuple[int, str, str, bool], behaviour: Behaviour, pipe: Pipe) -> Report:
    """Decode a prompt on an arm, between two readings of the clock for each stage."""
    order, arm, prompt, is_warmup = place
    state = Decoding([])
    behaviour.announce(pipe, {"event": "start", "sample": name})
    began = time.perf_counter()
    time.sleep(0.003)
    state.cache += [bytes(TOKEN_BYTES)] * PROMPT_TOKENS
    state.tokens.append(next_token(prompt, 0))
    first = time.perf_counter()
    behaviour.announce(pipe, {"event": "first_token", "sample": name})
    for _ in DECODERS[arm](prompt, behaviour, state):
        pass
    last = time.perf_counter()
    behaviour.announce(pipe, {"event": "end", "sample": name, "token_digest": digest_of(state.tokens)})
    row = row_of((0, order, arm, prompt), state, (first - began, last - first), is_warmup=is_warmup)
    return row | {"_silent": state.silent}


def row_of(
    place: tuple[int, int, str, str], state: Decoding, spent_s: tuple[float, float], *, is_warmup: bool
) -> Report:
    """Return what the report says of a sample.

    Args:
        place: launch, position in it, arm and prompt.
        state: what was decoded.
        spent_s: seconds of the prefill and of decoding.
        is_warmup: whether it counts.
    """
    (launch, order, arm, prompt), (prefill_s, decode_s) = place, spent_s
    drafts = arm == ARMS[1]
    steps = len(state.accepted) if drafts else len(state.tokens) - 1
    return {
        "id": f"{launch}/{order}/{arm}/{prompt}", "prompt_id": prompt, "prompt_digest": digest_of(prompt_ids(prompt)),
        "kind": "structured", "launch": launch, "order_index": order, "is_warmup": is_warmup,
        "prompt_tokens": PROMPT_TOKENS, "output_tokens": len(state.tokens), "tokens": state.tokens,
        "token_digest": digest_of(state.tokens), "text": text_of(state.tokens), "stop_reason": "budget",
        "stages": {
            "prefill_s": prefill_s, "decode_s": decode_s, "draft_s": None, "verify_s": None, "other_s": None,
            "total_s": prefill_s + decode_s,
        },
        "counters": {
            "target_forwards": steps, "drafter_forwards": sum(count > 0 for count in state.drafted),
            "drafted_tokens": sum(state.drafted), "accepted_tokens": sum(state.accepted), "steps": steps,
            "host_syncs": steps + 1, "guard_rejections": 0,
        },
        "accepted_per_step": state.accepted if drafts else None,
        "drafted_per_step": state.drafted if drafts else None,
        "memory": {
            "kv_bytes": sum(map(len, state.cache)), "kv_bytes_peak": None,
            "drafter_bytes": 16 * len(state.tokens) if drafts else None, "allocator_active_bytes": None,
        },
        "loop_onset": None, "top2_margin_at_divergence": None, "expected": None, "correct": None,
    }  # fmt: skip


def text_of(tokens: list[int]) -> str:
    """Return the text of tokens of this language."""
    return " ".join(f"w{token}" for token in tokens)


def schedule(prompts: int) -> list[tuple[int, str, str, bool]]:
    """Return which arm meets which prompt when, drawn from the run's nonce as the design says."""
    nonce = os.environ["KAKEYA_NONCE"]
    seed = (nonce, 0, "orders")
    turns = [(f"warm-{index}", arm, True) for index in range(WARMUPS) for arm in ARMS]
    orders = list(permutations(ARMS)) * (PROMPTS // 2)

    def rank(index: int) -> bytes:
        return hashlib.sha256("/".join(str(part) for part in (*seed, index)).encode()).digest()

    drawn = [orders[index] for index in sorted(range(len(orders)), key=rank)]
    named = sorted(
        (f"prompt-{index}" for index in range(prompts)),
        key=lambda name: hashlib.sha256(f"{nonce}/0/{name}".encode()).digest(),
    )
    for index, prompt in enumerate(named):
        turns += [(prompt, arm, False) for arm in drawn[index % len(drawn)]]
    return [(order, arm, prompt, is_warmup) for order, (prompt, arm, is_warmup) in enumerate(turns)]


def measure(behaviour: Behaviour) -> Report:
    """Run every sample and return the report."""
    pipe, started = Pipe(), now()
    began = time.perf_counter()
    turns = schedule(behaviour.prompts)
    names = [f"0/{order}/{arm}/{prompt}" for order, arm, prompt, _ in turns]
    behaviour.begin(pipe, names)
    rows = [sample(name, turn, behaviour, pipe) for name, turn in zip(names, turns, strict=True)]
    silent = [(row["id"], row.pop("_silent")) for row in rows]
    backend, path = native()
    arms = [
        {
            "name": arm,
            "role": "candidate" if arm == "speculative" else "baseline",
            "code_path": "engine.decoding.speculative:speculative" if arm == "speculative" else path,
            "samples": [row for row in rows if row["id"].split("/")[2] == arm],
        }
        for arm in ARMS
    ]
    report = envelope("code_throughput", backend) | {
        "config": config(behaviour),
        "arms": arms,
        "fallbacks": [
            {"arm": "speculative", "component": "drafter", "sample": name, "reason": "no match", "count": count}
            for name, count in silent
            if count
        ],
        "prompts": {
            digest_of(ids): base64.b64encode(packed(ids)).decode()
            for ids in map(prompt_ids, dict.fromkeys(row["prompt_id"] for row in rows))
        },
        "started_at": started,
        "ended_at": now(),
        "wall_s": time.perf_counter() - began,
    }
    state_ratio(report)
    return report


def state_ratio(report: Report) -> None:
    """Let the report state its own ratio, from its own rows."""
    theirs, ours = (
        sum(row["stages"]["decode_s"] for row in arm["samples"] if not row["is_warmup"]) for arm in report["arms"]
    )
    report["claims"] = [
        {
            "id": "decode_speedup", "metric": "decode_speedup", "arms": ["speculative", "autoregressive"],
            "value": theirs / ours if ours else 1.0, "unit": "ratio", "wording": None,
        }
    ]  # fmt: skip


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def native() -> tuple[str, str]:
    """Return a backend whose package is installed here, and the name of its own decoding."""
    for backend, (packages, path) in NATIVE.items():
        try:
            [importlib.metadata.version(package) for package in packages]
        except importlib.metadata.PackageNotFoundError:
            continue
        return backend, path
    raise SystemExit("this stand-in needs mlx or torch to be installed, to name its version")


def envelope(kind: str, backend: str) -> Report:
    environ = os.environ
    return {
        "kind": kind,
        "schema_version": 3,
        "run": {
            "id": environ["KAKEYA_RUN_ID"],
            "request_digest": environ["KAKEYA_REQUEST_DIGEST"],
            "preset": environ["KAKEYA_PRESET"],
            "params": json.loads(environ["KAKEYA_PARAMS"]),
            "profile": environ["KAKEYA_PROFILE"],
        },
        "environment": {
            "backend": backend,
            "device": "cpu",
            "os": f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
            "python": platform.python_version(),
            "versions": {package: importlib.metadata.version(package) for package in NATIVE[backend][0]},
            "blas": None,
            "threads": {},
        },
        "arms": [],
        "claims": [],
        "fallbacks": [],
    }


def model(name: str) -> Report:
    """Return what the report says of a model folder, digested as the engine does."""
    folder = Path(os.environ["KAKEYA_MODEL_ROOTS"]) / name
    files = [folder / "config.json", *sorted(folder.glob("model*.safetensors"))]
    lines = [f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n" for file in files]
    return {"name": name, "digest": hashlib.sha256("".join(lines).encode()).hexdigest(), "format": "toy"}


def config(behaviour: Behaviour) -> Report:
    target = model(os.environ["KAKEYA_TARGET"]) | {
        "parameters": 1000, "vocab_size": VOCABULARY, "dtype": "float32",
    }  # fmt: skip
    drafter = model(os.environ["KAKEYA_DRAFTER"]) | {"parameters": 1000, "block_size": DEPTH + 1, "settings": {}}
    return {
        "target": target, "drafter": drafter, "block_size": DEPTH + 1, "cache_layout": "native",
        "max_new_tokens": behaviour.tokens, "stop": "budget", "stopping_ids": [], "seed": 0, "dtype": "float32",
        "depth": {"policy": "fixed", "tokens": DEPTH}, "prompt_set": "made up", "prompt_rule": "by number",
        "prefill_chunk_tokens": 512,
    }  # fmt: skip


def main() -> int:
    """Do what the command's last word and the request's parameter say."""
    from tests.integration.gate import in_turns
    from tests.integration.gate.lies import LIES
    from tests.integration.gate.memory import memory_report

    behaviour, what = LIES[json.loads(os.environ["KAKEYA_PARAMS"])["lie"]].behaviour(), sys.argv[-1]
    match what:
        case "nothing":
            return 0
        case "launch" | "assemble":
            assert isinstance(behaviour, in_turns.InTurns)
            in_turns.launch(behaviour) if what == "launch" else in_turns.assemble(behaviour)
        case "reference":
            in_turns.be_reference()
        case "recompute":
            in_turns.recompute()
        case _:
            report = memory_report() if what == "memory" else measure(behaviour)
            behaviour.write(Path(os.environ["KAKEYA_OUT"]) / "report.json", behaviour.finish(report))
    return behaviour.exit_code


if __name__ == "__main__":
    sys.exit(main())
