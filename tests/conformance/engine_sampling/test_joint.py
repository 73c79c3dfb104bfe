"""The exact joint of an answer's first tokens through the whole loop: a draft that comes late changes no probability.

The joint is computed from stock transformers, one forward over every text that may come, and compared with answers of
fresh seeds. Real drafters draw; some of their drafts come a token or more after they were asked for.
"""

from __future__ import annotations

from itertools import cycle, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the checkpoints are written with torch")

from engine.decoding.depth import FixedDepth  # noqa: E402
from engine.decoding.speculative import Parts, speculative  # noqa: E402
from engine.loading import load_backend  # noqa: E402
from engine.stopping import Stopping  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from engine.types import Step  # noqa: E402
from engine.verification.rejection import Sampling  # noqa: E402
from tests.conformance.engine_sampling.chi_square import p_value, rejected  # noqa: E402
from tests.fakes import rejection, tiny_torch  # noqa: E402
from tests.fakes.late_drafter import LateDrafter  # noqa: E402

VOCAB, TOKENS, DEPTH = 4, 6, 4
PROMPT = (3, 2, 1, 0, 3, 1, 2, 0)
TEMPERATURE, TOP_K = 1.3, 3
LATE = ((1,), (2,), (1, 2))
"""How many tokens late the drafts of an answer come, in turn; each seed takes the next of these."""
EXPECTED_COUNT = 8.0
"""Least expected answers in a bin of the joint."""
CASES = [
    pytest.param("late", 600, marks=pytest.mark.ci),
    pytest.param("late", 3000, marks=pytest.mark.slow),
    pytest.param("on time", 1500, marks=pytest.mark.slow),
]
"""How drafts come, and how many seeds."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("joint")
    tiny_torch.write_target(root / "target", "qwen3", vocab_size=VOCAB, num_hidden_layers=2)
    tiny_torch.write_dflash(root / "dflash", vocab_size=VOCAB, dflash_config={"target_layer_ids": [0, 1]})
    return root


@pytest.fixture(scope="module")
def joint(folders: Path) -> np.ndarray:
    """The probability of every text, an axis of ``V`` for each of its tokens, by stock transformers in float64."""
    from transformers import AutoModelForCausalLM

    module: Any = AutoModelForCausalLM.from_pretrained(folders / "target", dtype=torch.float64)
    texts = list(product(range(VOCAB), repeat=TOKENS))
    with torch.inference_mode():
        logits = module(torch.tensor([[*PROMPT, *text] for text in texts])).logits[:, len(PROMPT) - 1 : -1]
    shaped: dict[tuple[int, ...], list[float]] = {}
    chances = np.zeros((VOCAB,) * TOKENS)
    for index, text in enumerate(texts):
        chance = 1.0
        for depth, token in enumerate(text):
            if text[:depth] not in shaped:
                shaped[text[:depth]] = rejection.shape(logits[index, depth].tolist(), TEMPERATURE, TOP_K)
            chance *= shaped[text[:depth]][token]
        chances[text] = chance
    assert np.isclose(chances.sum(), 1.0)
    return chances


def answer(backend: Any, parts: tuple[Any, Any], seed: int, case: str) -> list[Step]:
    target, model = parts
    settings = Sampling(temperature=TEMPERATURE, top_k=TOP_K, seed=seed)
    drafter = model.sampling(settings).open()
    proposer = LateDrafter(drafter, cycle(LATE[seed % len(LATE)])) if case == "late" else drafter
    sequence = target.open(model.capture, CacheLayout.NATIVE)
    run = Parts(sequence, proposer, backend.sampling(target, settings), FixedDepth(DEPTH), backend.clock)
    return list(speculative(run, PROMPT, Stopping(TOKENS)))


def bins(joint: np.ndarray, draws: int) -> np.ndarray:
    """Return a bin for every text: the most likely ones have their own, rarer ones share."""
    chances, numbers, mass, bin_number = joint.ravel(), np.zeros(joint.size, dtype=int), 0.0, 0
    order = np.argsort(-chances)
    for place, index in enumerate(order):
        numbers[index] = bin_number
        mass += chances[index]
        left = chances[order[place + 1 :]].sum()
        if mass * draws >= EXPECTED_COUNT and left * draws >= EXPECTED_COUNT:
            bin_number, mass = bin_number + 1, 0.0
    return numbers


@pytest.mark.parametrize("name", ["torch", "mlx"])
@pytest.mark.parametrize(("case", "seeds"), CASES)
def test_the_joint_of_the_first_tokens_is_the_targets(
    folders: Path, joint: np.ndarray, name: str, case: str, seeds: int
) -> None:
    if name == "torch":
        torch.set_num_threads(1)
    backend: Any = load_backend(name, "cpu" if name == "torch" else None)
    target = backend.load_target(folders / "target")
    loaded = target, backend.load_dflash(folders / "dflash", target)
    counts, accepted, waited, refused = np.zeros_like(joint), 0, 0, 0
    for seed in range(seeds):
        steps = answer(backend, loaded, seed, case)
        counts[tuple(token for step in steps for token in step.tokens)] += 1
        accepted += sum(step.accepted for step in steps)
        refused += sum(step.drafted - step.accepted for step in steps)
        waited += sum(step.skipped is not None for step in steps)
    print(f"{name}, {case}, {seeds} seeds: {accepted} drafted tokens accepted, {refused} not, {waited} steps waited")
    assert min(accepted, refused) > seeds / 10
    assert (waited > seeds) == (case == "late")
    assert counts[joint == 0].sum() == 0
    p_values = {}
    for places in [(place,) for place in range(TOKENS)] + list(pairwise(range(TOKENS))):
        rest = tuple(set(range(TOKENS)) - set(places))
        p_values[str(places)] = p_value(counts.sum(rest).ravel(), joint.sum(rest).ravel())
    shared = bins(joint, seeds)
    whole = [np.bincount(shared, weights=side.ravel()) for side in (counts, joint)]
    p_values["whole"] = p_value(*whole)
    print(f"{len(whole[0])} bins; p of " + ", ".join(f"{name_of} {value:.3f}" for name_of, value in p_values.items()))
    assert rejected(p_values) == []
