"""How many hidden codes a target finds when what it evicted is made again, a way and a fit a case.

The context is forwarded with the layout itself, so that features and rows are those of the bounded run; with ``native
prefill`` it is forwarded on the native cache. The question comes behind it, its answer with it in one block: an answer
is right when every token of it is the most likely one after those before, which is what greedy decoding gives. Contexts
are of held-out files and words. With ``alpha`` a row lies so far of the way from the exact one to the one that is made:
where recall halves, the error is too large.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.studies.study import Entry, Row, Study
from engine.checkpoint import ASSETS
from engine.loading import load_backend
from engine.restoration.episodes import Episode, Episodes
from engine.restoration.restorers import LayerInputs, full_layers
from engine.restoration.settings import KL, LOSSES
from engine.structure.layout import CacheLayout
from engine.tokenizer import read_tokenizer
from engine.training.corpus import read_corpus, word_pool
from engine.types import Draft

TARGET = "kakeya-tiny-qwen3"
LENGTH, NEEDLES, EPISODES, ASKED_SEED = 1900, 4, 12, 5
FIT_EPISODES, FIT_LENGTH, STEPS = 24, 1024, 300
SEEDS = (1, 2, 3)
BOUNDED = "sink4+window64"
UNFITTED = ("native", BOUNDED, f"{BOUNDED}+exact3", f"{BOUNDED}+exact5")
SHIPPED = f"{BOUNDED}+ftheta64, as shipped"
FROM_NATIVE = f"{SHIPPED}, native prefill"
RANKS = (192, 64, 32, 16)
ALPHAS = (0.25, 0.5, 0.75)


def cases() -> Sequence[str]:
    """Return layouts without an f_theta, then every rank, input and seed, then mixed ones and those trained further."""
    fitted = [f"{BOUNDED}+ftheta{rank}, context, seed {seed}" for seed in SEEDS for rank in RANKS]
    fitted += [f"{BOUNDED}+ftheta64, drafter_rows, seed {seed}" for seed in SEEDS]
    fitted += [f"{BOUNDED}+exact5+ftheta32, context, seed {seed}" for seed in SEEDS]
    fitted += [mixed(alpha) for alpha in ALPHAS]
    fitted += [trained(seed, loss) for loss in LOSSES for seed in SEEDS]
    return [*UNFITTED, SHIPPED, FROM_NATIVE, *fitted]


def trained(seed: int, loss: str = KL) -> str:
    """Return the case of rank 32 that is trained further by a loss."""
    return f"{BOUNDED}+ftheta32, context, {STEPS} steps{'' if loss == KL else f' of {loss}'}, seed {seed}"


def further(how: str) -> tuple[int, str]:
    """Return how many steps a case trains for, and by which loss."""
    steps, _, loss = how.partition(" steps")
    return (int(steps), loss.removeprefix(" of ") or KL) if " steps" in how else (0, KL)


def mixed(alpha: float) -> str:
    """Return the case whose rows lie so far of the way from exact ones to those of rank 16."""
    return f"{BOUNDED}+ftheta16, context, alpha {alpha}, seed 1"


def run(case: str) -> list[Row]:
    """Ask every question in one way."""
    text, _, rest = case.partition(", ")
    layout, target = CacheLayout.parse(text), _target()
    restorer: Any = None
    errors: dict[str, float] = {}
    if case in {SHIPPED, FROM_NATIVE}:
        restorer = _loaded(ASSETS / f"{TARGET}-ftheta{layout.rank}")
    elif layout.rank is not None:
        how, _, seed = rest.rpartition(", seed ")
        name, _, more = how.partition(", ")
        restorer, errors = _fitted(_collected(name, int(seed)).of_rank(layout.rank), *further(more))
        if more.startswith("alpha "):
            restorer = _Mixed(restorer, _inputs(), float(more.removeprefix("alpha ")))
    prefilled = _natively if case == FROM_NATIVE else _bounded
    answers = [_asked(prefilled(target, layout, restorer, episode), episode) for episode in _episodes()]
    right = sum(answer for answer, _ in answers)
    last_sequence = answers[-1][1]
    latents = 0 if last_sequence.latents is None else last_sequence.latents.measured_bytes()
    return [
        {
            "layout": text, "right": right, "of": len(answers), "context_tokens": last_sequence.length,
            "row_bytes": last_sequence.measured_bytes() - latents, "latent_bytes": latents,
            "rows_restored": 0 if last_sequence.latents is None else last_sequence.latents.rows_made,
            "held_out_error": errors,
        }
    ]  # fmt: skip


def _asked(sequence: Any, episode: Episode) -> tuple[bool, Any]:
    """Return whether the answer is the most likely one behind a context, and the sequence."""
    block = (*episode.question, *episode.answer[:-1])
    logits = sequence.forward_block(block[0], Draft(tokens=block[1:], count=len(block) - 1)).logits
    return logits[-len(episode.answer) :].argmax(dim=-1).tolist() == list(episode.answer), sequence


def _bounded(target: Any, layout: CacheLayout, restorer: Any, episode: Episode) -> Any:
    """Return a sequence that forwarded the context with the layout itself."""
    sequence = target.open((), layout, restorer)
    for _ in sequence.prefill(episode.context, 512):
        pass
    return sequence


def _natively(target: Any, layout: CacheLayout, restorer: Any, episode: Episode) -> Any:
    """Return a sequence with rows and latents of a context that was forwarded on the native cache."""
    import torch  # noqa: PLC0415 (as below)

    native, sequence = target.open(restorer.capture, CacheLayout.NATIVE), target.open((), layout, restorer)
    with torch.inference_mode():
        for forward in native.prefill(episode.context, 512):
            sequence.latents.append(forward.start, forward.features)
        for mine, theirs in zip(sequence.caches.layers, native.caches.layers, strict=True):
            keys, values = theirs.held()
            for start in range(0, native.length, layout.window):
                mine.append(keys[:, :, start : start + layout.window], values[:, :, start : start + layout.window])
    return sequence


@dataclass(frozen=True)
class _Mixed:
    """Rows part of the way from exact ones, made of the layers' inputs, to those of an f_theta."""

    fitted: Any
    exact: LayerInputs
    alpha: float

    @property
    def settings(self) -> Any:
        return self.fitted.settings

    @property
    def capture(self) -> tuple[int, ...]:
        return tuple(sorted({*self.fitted.capture, *self.exact.capture}))

    def latents(self, features: Any) -> Any:
        return _beside([self._of(self.exact, features), self.fitted.latents(self._of(self.fitted, features))])

    def rows(self, layer: int, latents: Any, first: int) -> tuple[Any, Any]:
        width = len(self.exact.capture) * self.exact.size
        exact = self.exact.rows(layer, latents[:, :width], first)
        made = self.fitted.rows(layer, latents[:, width:], first)
        keys, values = (
            exact_row + self.alpha * (other - exact_row) for exact_row, other in zip(exact, made, strict=True)
        )
        return keys, values

    def _of(self, restorer: Any, features: Any) -> Any:
        """Return the outputs that a restorer reads, of those of both."""
        size = self.exact.size
        places = [self.capture.index(layer) * size for layer in restorer.capture]
        return _beside([features[:, place : place + size] for place in places])


def _beside(parts: Sequence[Any]) -> Any:
    import torch  # noqa: PLC0415 (the registry imports this module and needs no torch)

    return torch.cat(list(parts), dim=-1)


def _inputs() -> LayerInputs:
    target = _target()
    family = target.family
    return LayerInputs(full_layers(family.structure), target.info.hidden_size, family.project, family.finish)


def _loaded(folder: Path) -> Any:
    backend: Any = load_backend("torch", "cpu")
    drafter = backend.load_dflash(ASSETS / f"{TARGET}-dflash", _target())
    return backend.load_restoration(folder, _target(), drafter)


@cache
def _target() -> Any:
    return load_backend("torch", "cpu").load_target(ASSETS / TARGET)


@cache
def _episodes() -> list[Episode]:
    files = read_corpus()
    held_out = Episodes(read_tokenizer(ASSETS / TARGET), files, word_pool(files), held_out=True)
    return [held_out.episode(ASKED_SEED, number, LENGTH, NEEDLES) for number in range(EPISODES)]


@cache
def _collected(name: str, seed: int) -> Any:
    """Return a fit with all of its sums; they stay in the temporary folder, where a later case finds them."""
    from engine.restoration.training import RestorationFit, RestorationRun  # noqa: PLC0415 (as above)

    work = Path(tempfile.gettempdir()) / f"kakeya-study-ftheta-{name}-{seed}"
    run = RestorationRun(ASSETS / TARGET, ASSETS / f"{TARGET}-dflash", name, 1, FIT_EPISODES, FIT_LENGTH, seed, work)
    fit = RestorationFit(run)
    fit.collect()
    return fit


def _fitted(fit: Any, steps: int, loss: str) -> tuple[Any, dict[str, float]]:
    """Return an f_theta as its file loads, trained by a loss for so many steps, and its held-out errors."""
    from engine.restoration.training import write_restoration  # noqa: PLC0415 (imports torch, the registry does not)

    tensors, errors = fit.solve()
    if steps:
        tensors, errors = fit.distilled(tensors, steps, loss=loss)
    with tempfile.TemporaryDirectory() as folder:
        write_restoration(Path(folder), fit, tensors, errors, "study")
        restorer = _loaded(Path(folder))
    return restorer, {f"{layer}.{side}": round(error, 4) for (layer, side), error in errors.items()}


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return how many hidden codes each way found, and in how many bytes."""
    return [
        f"{entry['case']} {row['right']}/{row['of']} in {(row['row_bytes'] + row['latent_bytes']) / 1e6:.2f} MB"
        for entry in entries
        for row in entry["rows"]
    ]


STUDY = Study(
    "restored-recall",
    "What do codes found cost in bytes when evicted rows are made again?",
    cases,
    run,
    "two hours",
    summary,
)
