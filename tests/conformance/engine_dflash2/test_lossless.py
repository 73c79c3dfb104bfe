"""A DFlash 2 drafter changes no token: greedy output is plain decoding's, drawn output follows the target."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.checkpoint import ASSETS
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.local import LocalDrafter
from engine.measurement.selection import load_prompts
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from engine.types import Draft, DrafterInfo, Step
from engine.verification.rejection import Sampling, Uniforms
from engine.verification.sampled import SamplingAccept
from tests.conformance.engine_dflash2.conftest import Side
from tests.conformance.engine_sampling.backends import SamplingBackend
from tests.conformance.engine_sampling.chi_square import p_value, rejected
from tests.fakes import naive_dflash2, rejection
from tests.fakes.markov import FakeClock, MarkovSequence
from tests.support.decoding import tokens_of

NAMES = ("kakeya-tiny-gemma4", "kakeya-tiny-qwen3")
BUDGET = 24
STATES, TOKENS = 5, 1000


def made(folder: Path, name: str, kind: str) -> Path:
    """Write a drafter of random weights, or the trained one with both parts grown onto it."""
    if kind == "random":
        config = naive_dflash2.config_of(192, 2048)
        return naive_dflash2.write(folder, config, naive_dflash2.random_tensors(config, seed=5))
    strength = {"grown a little": 0.05, "grown far": 0.6}[kind]
    return naive_dflash2.write(folder, *naive_dflash2.grown(ASSETS / f"{name}-dflash", strength))


@cache
def prompt_of(name: str) -> tuple[int, ...]:
    """Return a prompt of the kind both packaged drafters were trained for."""
    prompts = load_prompts("code-structured", Tokenizer(ASSETS / name), name)
    return prompts.lasting(100).prompts[0].ids


def decoded(side: Side, name: str, drafter: Any, accept: Any, depth: int) -> list[Step]:
    target = side.targets[name]
    sequence = target.open(drafter.capture, CacheLayout.NATIVE)
    parts = Parts(sequence, drafter.open(), accept, FixedDepth(depth), side.backend.clock)
    steps = list(speculative(parts, prompt_of(name), Stopping(BUDGET), 32))
    assert sequence.length == steps[-1].position
    return steps


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (NAMES[0], "random"),
        (NAMES[0], "grown a little"),
        (NAMES[1], "grown far"),
        pytest.param(NAMES[0], "grown far", marks=pytest.mark.slow),
        pytest.param(NAMES[1], "random", marks=pytest.mark.slow),
        pytest.param(NAMES[1], "grown a little", marks=pytest.mark.slow),
    ],
)
def test_greedy_output_is_plain_decodings(side: Side, tmp_path: Path, name: str, kind: str) -> None:
    target = side.targets[name]
    accept = side.backend.greedy(target)
    plain = list(autoregressive(target.open((), CacheLayout.NATIVE), accept, prompt_of(name), Stopping(BUDGET)))
    drafter = side.backend.load_dflash(made(tmp_path, name, kind), target)
    for depth in (7, 2) if kind == "grown a little" else (5,):
        steps = decoded(side, name, drafter, accept, depth)
        assert tokens_of(steps) == tokens_of(plain)
        assert sum(step.drafted for step in steps) > 0
        if kind == "grown a little":
            assert sum(step.accepted for step in steps) > 0


@pytest.mark.parametrize("name", [pytest.param(NAMES[0], marks=pytest.mark.slow), NAMES[1]])
def test_a_seed_draws_a_text_again_and_drafts_are_accepted(side: Side, tmp_path: Path, name: str) -> None:
    target = side.targets[name]
    model = side.backend.load_dflash(made(tmp_path, name, "grown a little"), target)
    runs = []
    for seed in (1, 1, 2):
        settings = Sampling(temperature=1.5, top_k=50, seed=seed)
        runs.append(decoded(side, name, model.sampling(settings), side.backend.sampling(target, settings), 5))
    assert tokens_of(runs[0]) == tokens_of(runs[1]) != tokens_of(runs[2])
    assert sum(step.accepted for step in runs[0]) > 0


@dataclass
class SelectingDrafter(LocalDrafter):
    """A real selector over made-up hidden states and logits, which depend on the bonus and the row."""

    selector: Any
    array: Any
    settings: Sampling
    forwards: int = 0
    uniforms: Uniforms = field(init=False)

    def __post_init__(self) -> None:
        generator = np.random.default_rng(8)
        self.hidden = generator.normal(size=(STATES, 8, 6)).astype(np.float32)
        self.logits = generator.normal(size=(STATES, 8, STATES)).astype(np.float32)
        self.uniforms = Uniforms(self.settings.seed, "drafter")

    @property
    def info(self) -> DrafterInfo:
        return DrafterInfo("selecting", None, "rule", 0, None)

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        del position
        self.forwards += 1
        rows = (self.array(table[bonus, :count]) for table in (self.hidden, self.logits))
        uniforms = self.array(np.array(self.uniforms.take(count)))
        tokens, probs = self.selector.drawn(bonus, *rows, self.settings.temperature, uniforms)
        return Draft(tokens=tuple(tokens.tolist()), count=count, probs=probs)

    def observe(self, start: int, tokens: Any, features: Any) -> None:
        return

    def measured_bytes(self) -> int:
        return 0


def selector_of(backend: SamplingBackend, top_k: int) -> Any:
    """Return a backend's selector with random codebooks over ``STATES`` tokens and hidden states of 6 numbers."""
    import importlib

    from engine.drafters.dflash2 import CODEBOOKS, DFlash2Config

    generator = np.random.default_rng(9)
    named = {name: generator.normal(size=(STATES, 4)).astype(np.float32) for name in CODEBOOKS}
    named["candidate_selector.hidden_projection.weight"] = generator.normal(size=(4, 6)).astype(np.float32)
    module = importlib.import_module(f"engine.backends.{backend.name}.dflash.selector")
    return module.Selector(DFlash2Config(2, 1, 4, top_k), {key: backend.array(value) for key, value in named.items()})


@pytest.mark.parametrize("top_k", [2, STATES])
@pytest.mark.parametrize("name", ["torch", "mlx"])
def test_every_transition_follows_the_target_whatever_the_selector_draws(name: str, top_k: int) -> None:
    backend, settings = SamplingBackend(name), Sampling(temperature=0.9, top_k=4, seed=11)
    table = np.random.default_rng(0).normal(scale=1.2, size=(STATES, STATES))
    drafter = SelectingDrafter(selector_of(backend, top_k), backend.array, settings)
    accept = SamplingAccept(settings, backend.module.decide, lambda forward: 0.0)
    parts = Parts(MarkovSequence(table, backend.array), drafter, accept, FixedDepth(4), FakeClock())
    steps = list(speculative(parts, (0,), Stopping(TOKENS)))
    accepted = sum(step.accepted for step in steps)
    assert 0 < accepted < sum(step.drafted for step in steps)
    p_values = {}
    tokens = [0, *tokens_of(steps)]
    for state in range(STATES):
        following = [after for before, after in pairwise(tokens) if before == state]
        expected = rejection.shape(table[state].tolist(), settings.temperature, settings.top_k, settings.top_p)
        p_values[str(state)] = p_value(np.bincount(following, minlength=STATES), np.array(expected))
    assert rejected(p_values) == []


@pytest.mark.parametrize("name", ["torch", "mlx"])
def test_drawn_walks_are_spread_as_their_probabilities_say(name: str) -> None:
    backend = SamplingBackend(name)
    selector = selector_of(backend, 3)
    successors: dict[int, list[int]] = {}
    probs: dict[int, np.ndarray] = {}
    drafter = SelectingDrafter(selector, backend.array, Sampling(temperature=1.3, seed=4))
    for _ in range(1000):
        draft = drafter.ask(1, 0, 2)
        rows = np.array(draft.probs.tolist())
        successors.setdefault(draft.tokens[0], []).append(draft.tokens[1])
        probs[draft.tokens[0]] = rows[1]
    firsts = np.array([len(successors.get(state, [])) for state in range(STATES)])
    p_values = {"first": p_value(firsts, rows[0])}
    for state, after in successors.items():
        if len(after) >= 50:
            p_values[f"after {state}"] = p_value(np.bincount(after, minlength=STATES), probs[state])
    assert len(p_values) >= 3
    assert rejected(p_values) == []
    assert len({tuple(np.round(row, 6)) for row in probs.values()}) == len(probs)


def test_the_walk_reads_nothing_on_the_host() -> None:
    torch = pytest.importorskip("torch", reason="the torch backend is not installed")
    from engine.backends.torch.dflash.selector import Selector
    from engine.drafters.dflash2 import CODEBOOKS, DFlash2Config

    # Tensors on "meta" have shapes and no values: any read of one raises.
    named = {name: torch.empty(40, 6, device="meta") for name in CODEBOOKS}
    named["candidate_selector.hidden_projection.weight"] = torch.empty(6, 8, device="meta")
    selector = Selector(DFlash2Config(2, 4, 6, 16), named)
    hidden, logits = torch.empty(7, 8, device="meta"), torch.empty(7, 40, device="meta")
    assert selector.best(5, hidden, logits)[0].shape == (7,)
    uniforms = torch.empty(7, dtype=torch.float64, device="meta")
    tokens, probs = selector.drawn(5, hidden, logits, 0.7, uniforms)
    assert (tokens.shape, probs.shape) == ((7,), (7, 40))
    with pytest.raises(RuntimeError):
        tokens.tolist()
