"""A remote drafter under a rule that draws: the drafts of the same one here, and the target's own distribution."""

from __future__ import annotations

import math
import struct
from collections import Counter
from typing import Any

import pytest

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.distributed.replies import Proposed
from engine.loading import load_backend
from engine.protocols import DrafterModel, SamplingDrafterModel
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Forward, Step
from engine.verification.rejection import Sampling, Uniforms
from tests.integration.distributed.conftest import Pair
from tests.support.decoding import tokens_of

SETTINGS = Sampling(temperature=1.3, top_k=20, top_p=0.95, seed=11)
TOKENS = 48


def drawn(pair: Pair, model: DrafterModel, settings: Sampling, drafter: Any = None) -> tuple[list[Step], Any]:
    engine = pair.engine
    drafter = drafter or model.open()
    sequence = engine.target.open(model.capture, CacheLayout.NATIVE)
    accept = engine.backend.sampling(engine.target, settings)
    parts = Parts(sequence, drafter, accept, FixedDepth(3), engine.backend.clock, engine.resident)
    return list(speculative(parts, pair.prompts[0], Stopping(TOKENS))), drafter


def outcome(steps: list[Step]) -> tuple[list[int], list[tuple[int, int]]]:
    return tokens_of(steps), [(step.drafted, step.accepted) for step in steps]


def test_a_drafter_elsewhere_draws_what_the_same_one_draws_here(pair: Pair) -> None:
    remote = pair.remote()
    assert isinstance(remote, SamplingDrafterModel)
    here, _ = drawn(pair, pair.engine.drafter.sampling(SETTINGS), SETTINGS)
    there, drafter = drawn(pair, remote.sampling(SETTINGS), SETTINGS)
    runs = [there, *(drawn(pair, remote.sampling(SETTINGS), SETTINGS)[0] for _ in range(2))]
    assert [outcome(steps) for steps in runs] == [outcome(here)] * 3
    assert any(step.accepted for step in there)
    drafts = sum(1 for step in there if step.drafted)
    bytes_per_draft = drafter.traffic.received["blockdraft"] / drafts
    # Not a row of the vocabulary for each of three tokens, not even in half precision.
    assert bytes_per_draft < 3 * 20 * 16 < 3 * 2 * pair.engine.target.info.vocab_size


def test_a_session_that_was_lost_goes_on_with_the_clients_draws(pair: Pair) -> None:
    whole, _ = drawn(pair, pair.remote().sampling(SETTINGS), SETTINGS)
    model = pair.remote().sampling(SETTINGS)

    class Forgetful:
        """Closes its session before every other ask, so that another one is shown the text again."""

        def __init__(self) -> None:
            self.inner, self.asks = model.open(), 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Any:
            self.asks += 1
            if self.asks % 2 == 0:
                self.inner.close()
            return self.inner.ask(bonus, position, count, wait_s)

    forgetful = Forgetful()
    again, _ = drawn(pair, model, SETTINGS, forgetful)
    assert forgetful.traffic.sessions > 2
    assert outcome(again) == outcome(whole)


def test_without_a_top_k_the_likeliest_ids_are_proposed(pair: Pair) -> None:
    settings = Sampling(temperature=1.0, seed=5)
    model = pair.remote().sampling(settings)
    assert model.shaping.top_k == model.offer.most_proposed == 64
    steps, _ = drawn(pair, model, settings)
    assert len(tokens_of(steps)) == TOKENS
    assert any(step.accepted for step in steps)


@pytest.mark.parametrize("backend", ["mlx", "torch"])
@pytest.mark.parametrize("claimed", [[0.7, 0.3, 0.0], [0.0, 0.0, 1.0], [0.2, 0.4, 0.4]], ids=str)
def test_the_output_follows_the_target_whatever_a_server_claims(pair: Pair, backend: str, claimed: list[float]) -> None:
    if backend == "torch":
        pytest.importorskip("torch", reason="the torch backend is not installed")
    library = pair.engine.backend if backend == "mlx" else load_backend("torch", "cpu")
    target, trials = [0.1, 0.4, 0.5, 0.0], 1500
    row = [math.log(prob) if prob else -1e4 for prob in target]
    numbers = library.unpacked(bytearray(_floats([row, row])), (2, 4), "float32")
    candidates = [(ids, prob) for ids, prob in enumerate(claimed) if prob]
    proposal = tuple(token for token, _ in candidates), tuple(prob for _, prob in candidates)
    drafter, rule = Uniforms(3, "drafter"), library.sampling(None, Sampling(seed=3))
    counts: Counter[int] = Counter()
    for _ in range(trials):
        draft = Proposed([proposal], 0.0).drawn(
            lambda proposals, uniforms: library.drawn(proposals, 4, uniforms), drafter.take(1)
        )
        counts[rule.decide(draft, _forward(numbers)).tokens[0]] += 1
    assert all(abs(counts[token] / trials - prob) < 0.05 for token, prob in enumerate(target))
    assert counts[3] == 0


def _floats(rows: list[list[float]]) -> bytes:
    return b"".join(struct.pack("<4f", *row) for row in rows)


def _forward(logits: Any) -> Any:
    return Forward(logits, None, 0, 2)
