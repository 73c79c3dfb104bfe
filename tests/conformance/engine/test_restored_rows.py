"""Evicted rows that are made again: shown where they belong, whatever the blocks, and refused where nothing fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.errors import ModelError, UsageError
from engine.loading import load_backend, open_engine
from engine.restoration.canaries import canaries, canaries_by_kind, input_restorer, scrambled
from engine.restoration.restorers import full_widths
from engine.restoration.rows import RestoredRows
from engine.restoration.settings import RestorationSettings
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft, Step

torch = pytest.importorskip("torch", reason="the checkpoints are written with torch")
pytest.importorskip("mlx.core", reason="conformance needs both backends")

from safetensors.torch import save_file  # noqa: E402

from tests.conformance.engine.test_streamed_rows import prompt_of  # noqa: E402
from tests.fakes import tiny_torch  # noqa: E402

KINDS = ("gemma4", "qwen3", "gemma4-shared")
RANK = 8
LAYOUT = CacheLayout.parse(f"sink2+window16+ftheta{RANK}")


class Loaded:
    """A backend with its random targets, their drafters, and f_thetas of random numbers."""

    def __init__(self, name: str, root: Path) -> None:
        torch.set_num_threads(1)
        self.backend, self.root = load_backend(name, device="cpu" if name == "torch" else None), root
        tiny_torch.write_dflash(root / "dflash")
        self.targets = {kind: self.backend.load_target(tiny_torch.write_target(root / kind, kind)) for kind in KINDS}
        self.drafters = {kind: self.backend.load_dflash(root / "dflash", self.targets[kind]) for kind in KINDS}

    def settings(self, kind: str, **changes: Any) -> RestorationSettings:
        target, drafter = self.targets[kind], self.drafters[kind]
        named = [(info.name, info.digest) for info in (target.info, drafter.info)]
        widths = full_widths(target.family)
        return replace(RestorationSettings("context", tiny_torch.HIDDEN, RANK, widths, *named), **changes)

    def restorer(self, kind: str, settings: RestorationSettings | None = None, **tensors: Any) -> Any:
        """Load an f_theta of random numbers as a file with these settings and tensors."""
        settings = settings or self.settings(kind)
        folder = self.root / f"{kind}-ftheta"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(settings.config()))
        generator = torch.Generator().manual_seed(7)
        made = {name: torch.randn(shape, generator=generator) for name, shape in settings.tensor_shapes.items()}
        save_file(made | tensors, folder / "model.safetensors")
        return self.backend.load_restoration(folder, self.targets[kind], self.drafters[kind])

    def decoding(
        self,
        kind: str,
        restorer: Any,
        drafter: Any,
        depth: int,
        prompt: tuple[int, ...],
        stopping: Stopping | None = None,
    ) -> tuple[Any, Iterator[Step]]:
        """Return a sequence on the layout, and its steps."""
        target = self.targets[kind]
        sequence = target.open(drafter.capture, LAYOUT, restorer)
        parts = Parts(sequence, drafter.open(), self.backend.greedy(target), FixedDepth(depth), self.backend.clock)
        return sequence, speculative(parts, prompt, stopping or Stopping(12), 33)


@pytest.fixture(scope="module", params=["mlx", "torch"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded(request.param, tmp_path_factory.mktemp("restored"))


@pytest.mark.parametrize("kind", KINDS)
def test_exact_rows_made_again_answer_as_native_and_noise_does_not(loaded: Loaded, kind: str) -> None:
    results = canaries_by_kind(loaded.backend, loaded.targets[kind], prompt_of(70), LAYOUT)
    layers = full_widths(loaded.targets[kind].family)
    assert sorted(layer for each in results for layer in each.layers) == sorted(layers)
    assert ("full_shared" in {each.layer_kind for each in results}) == kind.endswith("shared")
    for each in results:
        assert each.rows > 0
        assert each.identity_logit_change <= 1e-4, each
        assert each.noise_logit_change > 0.1, each


class CutTarget:
    """A target that takes what restores rows, and restores none."""

    def __init__(self, target: Any) -> None:
        self.info, self.family, self._target = target.info, target.family, target

    def open(self, capture: tuple[int, ...], layout: CacheLayout, restorer: Any = None) -> Any:
        del restorer
        return self._target.open(capture, replace(layout, rank=None))


def test_a_cut_injection_is_found(loaded: Loaded) -> None:
    canary = canaries(loaded.backend, CutTarget(loaded.targets["qwen3"]), prompt_of(70), LAYOUT, scrambled)
    assert not canary.passed
    assert canary.identity > 0.1
    assert canary.rows == 0


@pytest.mark.parametrize("rank", [RANK, tiny_torch.HIDDEN])
def test_a_row_sees_what_it_would_by_itself_however_it_comes(loaded: Loaded, rank: int) -> None:
    """Prefilled in one piece, in blocks with rejected drafts, or token by token: the same answer."""
    kind, prompt = "qwen3", prompt_of(40)
    restorer = loaded.restorer(kind, loaded.settings(kind, rank=rank))
    layout, target = replace(LAYOUT, rank=rank), loaded.targets[kind]
    at_once, other, third = (target.open((), layout, restorer) for _ in range(3))
    for sequence, count in ((at_once, 39), (other, 20), (third, 1)):
        assert sum(forward.rows for forward in sequence.prefill(prompt[:count], 512)) == count
    while other.length < 39:
        at = other.length
        wrong = tuple((token + 1) % tiny_torch.VOCAB for token in prompt[at + 4 : at + 7])
        block = (*prompt[at : at + 4], *wrong)[: 39 - at + 3]
        other.forward_block(block[0], Draft(tokens=block[1:], count=len(block) - 1))
        other.crop(min(39, at + 4))
    while third.length < 39:
        third.forward_block(prompt[third.length], Draft())
        third.crop(third.length)
    last = [sequence.forward_block(prompt[39], Draft()) for sequence in (at_once, other, third)]
    assert [forward.rows for forward in last] == [1, 1, 1]
    assert loaded.backend.apart(last[0], last[1]) < 1e-4
    assert loaded.backend.apart(last[0], last[2]) < 1e-4
    assert at_once.latents.rows_made > 0


def test_drafted_tokens_are_those_without_a_drafter_and_sessions_do_not_mix(loaded: Loaded) -> None:
    """Sessions on different prompts, stepped in turn: each emits what it does alone, from one forward a position."""
    kind, first, other = "gemma4", prompt_of(80), prompt_of(83)
    restorer, drafter = loaded.restorer(kind), NgramModel(min_tokens=1)
    sessions = ((drafter, 0, first), (drafter, 5, other), (loaded.drafters[kind], 7, first), (drafter, 0, other))
    beside = in_turns([loaded.decoding(kind, restorer, *each) for each in sessions[:3]])
    alone = in_turns([loaded.decoding(kind, restorer, *sessions[3])])
    assert beside[0][0] == beside[2][0]
    assert beside[1][0] == alone[0][0]
    assert beside[0][0] != alone[0][0]
    for (_, steps, forwarded), (_, depth, prompt) in zip(beside, sessions, strict=False):
        ahead = forwarded - len(prompt) - sum(step.drafted + step.target_forwards for step in steps if not step.prefill)
        assert 0 <= ahead <= (depth == 0)


def in_turns(sessions: list[Any]) -> list[tuple[list[int], list[Step], int]]:
    """Step every session in turn to its end; return tokens, steps and positions forwarded of each."""
    steps: list[list[Step]] = [[] for _ in sessions]
    running = list(range(len(sessions)))
    while running:
        for index in list(running):
            step = next(sessions[index][1], None)
            running.remove(index) if step is None else steps[index].append(step)
    tokens = [[token for step in each for token in step.tokens] for each in steps]
    forwarded = [sequence.positions_forwarded for sequence, _ in sessions]
    return list(zip(tokens, steps, forwarded, strict=True))


def test_a_prompt_of_one_token_and_a_stop_inside_a_block_end_as_without_a_drafter(loaded: Loaded) -> None:
    kind = "qwen3"
    restorer, drafter, prompt = loaded.restorer(kind), NgramModel(min_tokens=1), prompt_of(1)
    (plain,) = in_turns([loaded.decoding(kind, restorer, drafter, 0, prompt, Stopping(40))])
    stop = plain[0][30]
    stopped = loaded.decoding(kind, restorer, drafter, 5, prompt, Stopping(40, frozenset({stop})))
    (answer,) = in_turns([stopped])
    assert answer[0] == plain[0][: plain[0].index(stop) + 1]
    assert stopped[0].length <= len(prompt) + len(answer[0])


@pytest.mark.parametrize("pages", ["+stream", "+pages4x5+stream", "+pages4x5", "+pages4x5/recent"])
def test_pages_made_again_of_the_layers_inputs_are_those_that_left(loaded: Loaded, pages: str) -> None:
    target, prompt = loaded.targets["gemma4"], prompt_of(300)
    name = f"sink2+window16{pages}"
    stored = target.open((), CacheLayout.parse(name))
    layout = CacheLayout.parse(f"{name}+ftheta1")
    made = target.open((), layout, input_restorer(target, layout))
    last = []
    for sequence in (stored, made):
        for _ in sequence.prefill(prompt[:-4], 100):
            pass
        last.append(sequence.forward_block(prompt[-4], Draft(tokens=prompt[-3:], count=3)))
    assert loaded.backend.apart(*last) < 1e-4
    assert made.latents.rows_made > 0
    assert made.page_counts().bytes_read == 0
    assert stored.page_counts().pages_moved == made.page_counts().pages_moved


def test_memory_grows_by_the_latents_alone_and_an_exact_layer_is_kept(loaded: Loaded) -> None:
    kind = "qwen3"
    target, restorer, sizes = loaded.targets[kind], loaded.restorer(kind), {}
    layers = len(full_widths(target.family))
    exact = replace(LAYOUT, exact=(5,))
    for layout in (LAYOUT, exact):
        for length in (120, 450):
            sequence = target.open((), layout, restorer)
            for _ in sequence.prefill(prompt_of(length), 512):
                pass
            list(sequence.decode_ahead(7, 2))
            sizes[str(layout), length] = sequence.measured_bytes() - sequence.latents.measured_bytes()
            assert sequence.latents.measured_bytes() % (4 * 2 * RANK) == 0
            assert length <= sequence.latents.measured_bytes() // (4 * 2 * RANK) <= length + 257
            restored = sum(
                isinstance(cache, RestoredRows) for cache in getattr(sequence.caches, "layers", sequence.caches)
            )
            assert restored == layers - len(layout.exact)
    assert sizes[str(LAYOUT), 450] == sizes[str(LAYOUT), 120]
    assert sizes[str(exact), 450] > sizes[str(exact), 120]


@pytest.mark.parametrize("rest", ["", "+stream", "+pages8x3/recent", f"+ftheta{RANK}"])
def test_every_row_is_kept_on_the_layers_a_layout_names_and_on_no_other(loaded: Loaded, rest: str) -> None:
    target, restorer, sizes = loaded.targets["qwen3"], loaded.restorer("qwen3"), []
    layout = CacheLayout.parse(f"sink2+window16+exact5{rest}")
    for length in (160, 480):
        sequence = target.open((), layout, restorer if layout.rank else None)
        for _ in sequence.prefill(prompt_of(length), 64):
            pass
        list(sequence.decode_ahead(7, 2))
        caches = getattr(sequence.caches, "layers", sequence.caches)
        sizes.append([sum(buffer.nbytes for buffer in cache.buffers()) for cache in caches])
        sequence.close()
    widths = full_widths(target.family)
    for layer, (short, long) in enumerate(zip(*sizes, strict=True)):
        if layer in layout.exact:
            row = 4 * (widths[layer].keys + widths[layer].values)
            assert short >= 160 * row
            assert long >= 480 * row
        else:
            assert short == long < 160 * 4 * (widths[layer].keys + widths[layer].values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": ("another", "ab" * 32)}, r"was fitted for the target 'another' \(abababababab\); this is 'qwen3'"),
        ({"drafter": ("another", "cd" * 32)}, r"was fitted for the drafter 'another' \(cdcdcdcdcdcd\)"),
        ({"input_size": 31}, "reads 31 values; 'dflash' makes 32"),
        ({"layers": {9: (16, 16)}}, r"restores layer 9 of 16 and 16 values; the target's full-attention layers are"),
        ({"rank": 40}, "has rank 40; expected at most its input's 32 values"),
    ],
)
def test_what_does_not_belong_together_is_refused_in_a_line(loaded: Loaded, changes: Any, message: str) -> None:
    if "layers" in changes:
        widths = next(iter(full_widths(loaded.targets["qwen3"].family).values()))
        changes = {"layers": dict.fromkeys(changes["layers"], widths)}
    with pytest.raises(ModelError, match=message) as caught:
        loaded.restorer("qwen3", loaded.settings("qwen3", **changes))
    assert "\n" not in str(caught.value)


def test_numbers_that_are_none_and_shapes_that_differ_are_refused(loaded: Loaded) -> None:
    broken = torch.full((tiny_torch.HIDDEN, 2 * RANK), float("nan"))
    with pytest.raises(ModelError, match=r"holds NaN or infinite values in \['encoder'\]"):
        loaded.restorer("qwen3", encoder=broken)
    with pytest.raises(ModelError, match=r"tensor encoder has shape \(3, 2\); its config says \(32, 16\)"):
        loaded.restorer("qwen3", encoder=torch.ones((3, 2)))
    with pytest.raises(ModelError, match=r"tensor layers\.9\.keys has shape"):
        loaded.restorer("qwen3", **{"layers.9.keys": torch.ones((3, 2))})


def test_a_layout_that_nothing_restores_is_refused_before_any_work(loaded: Loaded) -> None:
    target, restorer = loaded.targets["qwen3"], loaded.restorer("qwen3")
    with pytest.raises(UsageError, match="no f_theta is loaded; name its folder with --restoration"):
        target.open((), LAYOUT)
    with pytest.raises(UsageError, match="the f_theta that is loaded has rank 8"):
        target.open((), CacheLayout.parse("sink2+window16+ftheta9"), restorer)
    some = {layer: widths for layer, widths in full_widths(target.family).items() if layer != 3}
    partial = loaded.restorer("qwen3", loaded.settings("qwen3", layers=some))
    with pytest.raises(
        UsageError, match=r"restores the layers \[0, 1, 2, 4, 5\], not 3; keep that whole with \+exact3"
    ):
        target.open((), LAYOUT, partial)
    target.open((), replace(LAYOUT, exact=(3,)), partial)


def test_an_engine_restores_by_the_f_theta_it_was_opened_with(loaded: Loaded) -> None:
    direct = loaded.targets["qwen3"].open((), LAYOUT, loaded.restorer("qwen3"))
    target, drafter, folder = (str(loaded.root / name) for name in ("qwen3", "dflash", "qwen3-ftheta"))
    opened = open_engine(loaded.backend, target, drafter, restoration=folder).target.open((), LAYOUT)
    forwards = []
    for sequence in (direct, opened):
        for _ in sequence.prefill(prompt_of(40), 512):
            pass
        forwards.append(sequence.forward_block(7, Draft()))
    assert loaded.backend.apart(*forwards) == 0
    assert opened.latents.rows_made == direct.latents.rows_made > 0


def test_a_block_longer_than_the_window_is_refused(loaded: Loaded) -> None:
    sequence = loaded.targets["qwen3"].open((), replace(LAYOUT, window=4), loaded.restorer("qwen3"))
    for _ in sequence.prefill(prompt_of(30), 512):
        pass
    with pytest.raises(UsageError, match=r"a block of 6 rows .* its window of 4"):
        sequence.forward_block(7, Draft(tokens=(1, 2, 3, 4, 5), count=5))
