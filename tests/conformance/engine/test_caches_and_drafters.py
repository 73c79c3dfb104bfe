"""Speculative decoding emits what plain decoding on the same cache emits, whatever the cache keeps and who drafts."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.decoding.autoregressive import autoregressive
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.draft_model import DraftModel
from engine.drafters.ngram import NgramModel
from engine.drafters.several import several
from engine.errors import UsageError
from engine.loading import load_backend
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Choice, Pause
from tests.fakes.scripted_drafter import ScriptedModel
from tests.support.decoding import tokens_of
from tests.support.pairwise import matrix

torch = pytest.importorskip("torch", reason="the checkpoints are written with torch")
pytest.importorskip("mlx.core", reason="conformance needs both backends")

from tests.fakes import tiny_torch  # noqa: E402
from tests.fakes.tiny_torch import VOCAB, WINDOW  # noqa: E402

BACKENDS = ("mlx", "torch")
KINDS = ("gemma4", "gemma4-shared", "qwen3")
LAYOUTS = ["affine8", "affine4/4", "sink0+window5", "sink4+window10", "sink3+window30"]
LENGTHS = {"before": 3, "across": WINDOW + 3, "far past": 61}
BUDGET = 16
ADVERSARIES: dict[str, Callable[[int, int], bool]] = {
    "right then wrong": lambda step, index: index >= 3,
    "another place each step": lambda step, index: index == (step * 3 + 1) % 8,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("caches")
    for kind in KINDS:
        tiny_torch.write_target(root / kind, kind)
    tiny_torch.write_target(root / "small", "qwen3", seed=1)
    tiny_torch.write_dflash(root / "dflash")
    return root


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    return load_backend(request.param, device="cpu" if request.param == "torch" else None)


@pytest.fixture(scope="module")
def targets(backend: Any, folders: Path) -> dict[str, Any]:
    return {kind: backend.load_target(folders / kind) for kind in KINDS}


@pytest.fixture(scope="module")
def networks(backend: Any, folders: Path, targets: dict[str, Any]) -> dict[str, tuple[Any, DraftModel]]:
    """A DFlash drafter and a small draft model for each target."""
    small = DraftModel(backend.load_target(folders / "small"))
    return {kind: (backend.load_dflash(folders / "dflash", target), small) for kind, target in targets.items()}


def prompt_of(length: int, seed: int = 7) -> tuple[int, ...]:
    chooser = random.Random(seed)
    return tuple(chooser.randrange(5, VOCAB) for _ in range(length))


def plain(backend: Any, target: Any, prompt: tuple[int, ...], layout: CacheLayout) -> list[int]:
    """The oracle: the prompt in one chunk, then one token at a time, no drafts and no pipeline."""
    sequence = target.open((), layout)
    return tokens_of(autoregressive(sequence, backend.greedy(target), prompt, Stopping(BUDGET), 512))


def drafted(
    backend: Any, target: Any, drafter: Any, prompt: tuple[int, ...], layout: CacheLayout, chunk: int
) -> list[int]:
    sequence = target.open(drafter.capture, layout)
    parts = Parts(sequence, drafter.open(), backend.greedy(target), FixedDepth(7), backend.clock)
    steps = list(speculative(parts, prompt, Stopping(BUDGET), chunk))
    assert sequence.length == steps[-1].position
    return tokens_of(steps)


@pytest.mark.parametrize(
    ("backend", "kind", "text", "length", "drafters"),
    matrix(BACKENDS, KINDS, LAYOUTS, LENGTHS, ("real", "scripted")),
    indirect=["backend"],
)
def test_drafts_change_no_token_of_any_cache(
    backend: Any, targets: Any, networks: Any, kind: str, text: str, length: int, drafters: str
) -> None:
    target, layout = targets[kind], CacheLayout.parse(text)
    # Random weights soon repeat one token after some prompts, and a loop would test little.
    for prompt in (prompt_of(length, seed) for seed in range(6)):
        answer = plain(backend, target, prompt, layout)
        if len(set(answer)) > 5:
            break
    assert len(set(answer)) > 5
    if drafters == "real":
        models = [*networks[kind], NgramModel(min_tokens=1)]
    else:
        models = [ScriptedModel(tuple(answer), length, VOCAB, wrong) for wrong in ADVERSARIES.values()]
    for index, drafter in enumerate(models):
        assert drafted(backend, target, drafter, prompt, layout, (512, 7)[index % 2]) == answer, drafter.info.name


class Restless(FixedDepth):
    """Asks another drafter at each step and now and then none, with every length, extended wherever it may be."""

    def choose(self, position: int, limit: int, lookup: Any = None) -> Choice:
        turn = position % 7
        source = ("dflash", "small", "ngram")[turn % 3]
        return Choice(min(turn, limit), source, extended=min(12, limit))

    def park(self, position: int) -> Pause:
        return Pause(5, 3, "dflash")


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_is_asked_at_each_step_changes_no_token(backend: Any, targets: Any, networks: Any, kind: str) -> None:
    target, prompt = targets[kind], prompt_of(30, 3)
    drafters = several(list(networks[kind]))
    for choosing in (Restless(7), ControlledDepth({"dflash": 7, "small": 16})):
        sequence = target.open(drafters.capture, CacheLayout.NATIVE)
        parts = Parts(sequence, drafters.open(), backend.greedy(target), choosing, backend.clock)
        steps = list(speculative(parts, prompt, Stopping(BUDGET), 7))
        assert tokens_of(steps) == plain(backend, target, prompt, CacheLayout.NATIVE)
        if isinstance(choosing, Restless):
            assert len({step.source for step in steps if step.drafted}) > 1


def under_masks(module: Any, layout: CacheLayout, tokens: list[int]) -> int:
    """Return the next token of a model of full layers, each run over all rows under the mask that the layout says."""
    rows = torch.arange(len(tokens))
    causal = rows <= rows[:, None]
    near = causal & ((rows[:, None] - rows < layout.window) | (rows < layout.sink))
    with torch.inference_mode():
        hidden = module.model.embed_tokens(torch.tensor([tokens]))
        turned = module.model.rotary_emb(hidden, rows[None])
        for index, layer in enumerate(module.model.layers):
            mask = causal if index in layout.exact else near
            hidden = layer(hidden, attention_mask=mask[None, None], position_embeddings=turned)
        return int(module.lm_head(module.model.norm(hidden))[0, -1].argmax())


@pytest.mark.parametrize(
    "text", ["sink0+window5", "sink4+window10", "sink4+window10+exact2", "sink0+window5+exact0+exact5"]
)
def test_a_bounded_layout_is_the_model_under_its_masks(backend: Any, folders: Path, targets: Any, text: str) -> None:
    layout, prompt = CacheLayout.parse(text), list(prompt_of(30))
    module = load_backend("torch", device="cpu").load_target(folders / "qwen3").module
    expected: list[int] = []
    while len(expected) < BUDGET:
        expected.append(under_masks(module, layout, prompt + expected))
    assert plain(backend, targets["qwen3"], tuple(prompt), layout) == expected
    assert expected != plain(backend, targets["qwen3"], tuple(prompt), CacheLayout.NATIVE)


@pytest.mark.parametrize("kind", ["gemma4", "qwen3"])
def test_drafts_change_no_token_where_one_layer_is_exact(backend: Any, targets: Any, networks: Any, kind: str) -> None:
    target, layout, prompt = targets[kind], CacheLayout.parse("sink2+window7+exact5"), prompt_of(30)
    answer = plain(backend, target, prompt, layout)
    assert answer != plain(backend, target, prompt, CacheLayout.parse("sink2+window7"))
    for chunk, drafter in ((512, networks[kind][0]), (7, NgramModel(min_tokens=1))):
        assert drafted(backend, target, drafter, prompt, layout, chunk) == answer, drafter.info.name


def test_only_layers_that_keep_rows_of_their_own_may_be_exact(targets: Any) -> None:
    with pytest.raises(UsageError, match=r"leaves no full-attention layer of \[2\] to bound"):
        targets["gemma4-shared"].open((), CacheLayout.parse("sink2+window7+exact2"))
    with pytest.raises(UsageError, match=r"layer 5 is none of the full-attention layers \[2\]"):
        targets["gemma4-shared"].open((), CacheLayout.parse("sink2+window7+exact5"))


def test_eight_bits_stay_near_the_exact_logits_and_four_bits_less_near(backend: Any, targets: Any) -> None:
    prompt, logits = prompt_of(40), {}
    for text in ("full", "affine8", "affine4"):
        *_, last = targets["qwen3"].open((), CacheLayout.parse(text)).prefill(prompt, 512)
        logits[text] = last.logits.tolist()[0]
    errors = {
        text: sum((value - exact) ** 2 for value, exact in zip(logits[text], logits["full"], strict=True))
        for text in ("affine8", "affine4")
    }
    assert 0 < errors["affine8"] * 20 < errors["affine4"]


def test_the_bytes_of_a_cache_are_fewer_the_less_it_keeps(backend: Any, targets: Any) -> None:
    sizes = {}
    for text in ("full", "native", "affine8/8", "affine4/8", "sink4+window16"):
        sequence = targets["gemma4"].open((), CacheLayout.parse(text))
        for _ in sequence.prefill(prompt_of(400), 64):
            pass
        list(sequence.decode_ahead(5, 3))
        sizes[text] = sequence.measured_bytes()
    assert sizes["full"] > sizes["native"] > sizes["affine8/8"] > sizes["affine4/8"]
    assert sizes["native"] > sizes["sink4+window16"]


def test_stored_errors_of_a_sequence_need_every_row(targets: Any) -> None:
    rows = []
    for layout in (CacheLayout.FULL, CacheLayout.NATIVE):
        sequence = targets["gemma4"].open((), layout)
        for _ in sequence.prefill(prompt_of(40), 16):
            pass
        rows.append(sequence)
    errors = rows[0].stored_errors(CacheLayout.parse("affine8"))
    assert [(row.layer, row.side) for row in errors] == [(n, side) for n in range(6) for side in ("keys", "values")]
    assert all(0 < row.error_sq < 1e-3 * row.reference_sq for row in errors)
    with pytest.raises(UsageError, match="keeps every row"):
        rows[1].stored_errors(CacheLayout.parse("affine8"))


@pytest.mark.parametrize(("text", "message"), [("affine8/32", "on heads of 8 values"), ("affine4/3", "groups that")])
def test_a_cache_the_target_cannot_have_is_refused_when_it_is_opened(targets: Any, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        targets["gemma4"].open((), CacheLayout.parse(text))
