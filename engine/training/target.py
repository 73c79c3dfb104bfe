"""Training of a target from nothing: curriculum, periodic held-out evaluation, resumable checkpoints."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.training.checkpoint import Progress, Resumable
from engine.training.corpus import SourceFile, WordPool, corpus_record
from engine.training.needles import hide, make_needles
from engine.training.network.models import (
    build_target,
    emulates_bfloat16,
    logits_of,
    mixed_precision,
    neutralise_mask_row,
)
from engine.training.network.optimiser import Optimisers, Schedule
from engine.training.network.windowed import use_windowed
from engine.training.recipe import COPY_STAGE, Stage, TargetRecipe
from engine.training.rows import RowSource, encode
from engine.training.structured import make_document, regular_words
from engine.training.tokenizer import BOS_ID, EOS_ID, MASK_ID

COPY_STREAM = 3
EVALUATION_ROWS = 8


@dataclass(frozen=True)
class TargetRun:
    """One training run: recipe, seed, where its state lives and how often it evaluates."""

    recipe: TargetRecipe
    seed: int
    work: Path
    evaluate_every: int = 300
    device: str = "cpu"


class Trainer(Resumable):
    """Trains one target from nothing through its recipe's stages."""

    shown = ("tokens", "trained_s")

    def __init__(
        self, run: TargetRun, tokenizer: Any, files: tuple[SourceFile, ...], words: WordPool, documents: int = 12_000
    ) -> None:
        """Build model, optimisers and rows, and restore the last checkpoint when there is one.

        Raises:
            UsageError: If the checkpoint is of another training.
        """
        self.run, self.words, self.tokenizer = run, words, tokenizer
        recipe = run.recipe
        self.source = RowSource(tokenizer, files, words, run.seed, documents)
        self.model = build_target(recipe.family, recipe.size, tokenizer.get_vocab_size(), run.seed).to(run.device)
        use_windowed(self.model)
        self.optimisers = Optimisers(
            self.model, recipe.matrix_lr, recipe.vector_lr, emulates_bfloat16(self.device_kind)
        )
        self.total = recipe.warmup_copy_steps + recipe.steps
        self.schedule = Schedule(recipe.steps, recipe.warmup_steps, recipe.constant_until, recipe.final_lr_share)
        made_by: dict[str, Any] = {"seed": run.seed, "family": recipe.family, "size": recipe.size}
        made_by |= {"tokenizer": hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:16]}
        made_by |= {"documents": documents, "corpus": str(corpus_record(files)["listing_sha256"])[:16]}
        self.resume(run.work, self.model, self.optimisers, made_by)
        self.held_out_code = self._held_out_code(files)

    def _held_out_code(self, files: tuple[SourceFile, ...]) -> np.ndarray:
        ids: list[int] = []
        for file in files:
            if file.held_out:
                ids += [*encode(self.tokenizer, file.text), EOS_ID]
        return np.array(ids, dtype=np.int64)

    def stage_of(self, step: int) -> tuple[Stage, int, float]:
        """Return stage, row stream and learning-rate share of global `step`."""
        warm = self.run.recipe.warmup_copy_steps
        if step < warm:
            return COPY_STAGE, COPY_STREAM, min(1.0, (step + 1) / self.run.recipe.warmup_steps)
        main = step - warm
        share = main / self.run.recipe.steps
        stage = next(item for item in self.run.recipe.stages if share < item.until)
        return stage, 2, self.schedule.share(main)

    def positions(self, rows: int, length: int, step: int) -> torch.Tensor | None:
        """Return position ids with two random jumps per row, so that short rows visit far positions; None for none."""
        if not self.run.recipe.position_jumps or length >= 1024:
            return None
        rng = np.random.default_rng([self.run.seed, 9, step])
        ids = np.tile(np.arange(length), (rows, 1))
        for row in range(rows):
            if rng.random() < 0.5:
                continue
            for place in rng.integers(1, length, size=2):
                ids[row, place:] += int(rng.integers(0, (2048 - length) // 2))
        return torch.from_numpy(ids).to(self.run.device)

    @property
    def device_kind(self) -> str:
        """The device's name without an index."""
        return self.run.device.split(":")[0]

    def train_step(self) -> float:
        """Take one optimiser step and return its weighted loss."""
        stage, stream, share = self.stage_of(self.step)
        batch = self.source.batch(stage, self.step, stream)
        ids = torch.from_numpy(batch.ids).to(self.run.device)
        weights = torch.from_numpy(batch.weights).to(self.run.device)
        positions = self.positions(stage.rows, stage.length, self.step)
        with mixed_precision(self.device_kind):
            logits = logits_of(self.model, ids[:, :-1], positions)
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (losses * weights.flatten()).sum() / weights.sum().clamp(min=1.0)
        loss.backward()
        self.optimisers.step(share)
        self.step += 1
        self.tokens += int(ids[:, 1:].numel())
        return float(loss.detach())

    def evaluate(self) -> dict[str, float]:
        """Return held-out code loss and accuracy, structured accuracy and needle recall at 150, 300 and 480 tokens."""
        self.model.eval()
        with torch.no_grad(), mixed_precision(self.device_kind):
            result = self._held_out_language()
            result["structured_accuracy"] = self._structured_accuracy()
            for length in (150, 300, 480, 1000):
                result[f"needle_{length}"] = self._needle_recall(length, 16 if length < 900 else 6)
        self.model.train()
        return result

    def _held_out_language(self) -> dict[str, float]:
        rng = np.random.default_rng(11)
        starts = rng.integers(0, len(self.held_out_code) - 400, size=EVALUATION_ROWS)
        rows = np.stack([np.concatenate([[BOS_ID], self.held_out_code[s : s + 384]]) for s in starts])
        ids = torch.from_numpy(rows).to(self.run.device)
        logits = logits_of(self.model, ids[:, :-1])
        labels = ids[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": float(loss), "accuracy": float((logits.argmax(-1) == labels).float().mean())}

    def _structured_accuracy(self) -> float:
        rng, regular = np.random.default_rng(12), regular_words(self.tokenizer, self.words.held_out)
        right = total = 0
        for _ in range(EVALUATION_ROWS):
            document = make_document(rng, regular, held_out=True)
            prompt = [BOS_ID, *encode(self.tokenizer, document.prompt)]
            ids = torch.tensor(
                [[*prompt, *encode(self.tokenizer, document.completion), EOS_ID]], device=self.run.device
            )
            guess = logits_of(self.model, ids[:, :-1]).argmax(-1)[0, len(prompt) - 1 :]
            right += int((guess == ids[0, len(prompt) :]).sum())
            total += guess.shape[0]
        return right / total

    def _needle_recall(self, length: int, count: int) -> float:
        rng = np.random.default_rng([13, length])
        right = 0
        for _ in range(count):
            needles = make_needles(rng, self.words.training, 2)
            lines = [encode(self.tokenizer, needle.note) for needle in needles]
            start = int(rng.integers(0, len(self.held_out_code) - length))
            filler = [int(i) for i in self.held_out_code[start : start + length - 60]]
            body = hide(filler, lines, [float(d) for d in rng.random(2)], self.source.newlines)
            prompt = [BOS_ID, *body, *encode(self.tokenizer, needles[0].question)]
            ids = torch.tensor([[*prompt, *encode(self.tokenizer, needles[0].answer)]], device=self.run.device)
            guess = logits_of(self.model, ids[:, :-1]).argmax(-1)[0, len(prompt) - 1 :]
            right += int(bool((guess == ids[0, len(prompt) :]).all()))
        return right / count

    def train(self, report: Progress | None = None, stop_after: int | None = None) -> Any:
        """Train to the end (or `stop_after` steps), evaluating on the way, and return the model.

        Args:
            report: Called after each step with step, total and the newest values.
            stop_after: Global step to stop at with a checkpoint, for tests of resumption.
        """
        self.advance(self.total, self.run.evaluate_every, report, stop_after)
        if self.step == self.total:
            neutralise_mask_row(self.model, MASK_ID, self.run.seed)
        self.save()
        return self.model
