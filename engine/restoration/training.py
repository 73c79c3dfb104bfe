"""Fitting an f_theta on torch: from the rows of a target's own contexts, resumable, judged on held-out ones."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.errors import UsageError
from engine.loading import load_backend
from engine.restoration.distilling import Distillation
from engine.restoration.episodes import Episode, Episodes
from engine.restoration.fitting import Side, Sums, fitted, whole_maps
from engine.restoration.restorers import EMBEDDED, FTheta, full_widths, input_size, reading
from engine.restoration.settings import KL, RestorationSettings
from engine.structure.layout import CacheLayout
from engine.tokenizer import read_tokenizer
from engine.training.checkpoint import Progress, load, save
from engine.training.corpus import corpus_record, read_corpus, word_pool

HELD_OUT_SHARE = 4
"""One held-out episode for so many."""
FIRST_POSITION = 4
"""Positions before it are a sink's: their rows are unlike all others, and no layout restores them."""
TRAINED_BEHIND = CacheLayout(sink=4, window=64)
"""Which rows are exact while an f_theta is trained end to end."""
KEY = ("input", "length", "seed", "target", "drafter", "library")
"""What sums, and a training that begins with what they gave, are of."""


@dataclass(frozen=True)
class RestorationRun:
    """One fit: what of whom, from how many contexts of which length, and where its state lives."""

    target: Path
    drafter: Path
    input: str
    rank: int
    episodes: int
    length: int
    seed: int
    work: Path
    device: str = "cpu"


class RestorationFit:
    """Collects the sums of one fit and solves it."""

    def __init__(self, run: RestorationRun) -> None:
        """Load target and drafter, and go on with the sums of an earlier start.

        Raises:
            UsageError: If the rank is larger than the input, the contexts longer than the target's, or the work folder
                holds the sums of another fit, or of more contexts: there is no way back.
        """
        self.run = run
        backend: Any = load_backend("torch", run.device)
        self.target = backend.load_target(run.target)
        if run.length > self.target.info.max_positions:
            raise UsageError(
                f"contexts of {run.length} tokens; {self.target.info.name!r} holds {self.target.info.max_positions} "
                "positions (--length)"
            )
        self.drafter = backend.load_dflash(run.drafter, self.target)
        size = input_size(self.drafter, run.input)
        infos = (self.target.info, self.drafter.info)
        pair = [(info.name, info.digest) for info in infos]
        whole = RestorationSettings(run.input, size, size, full_widths(self.target.family), *pair)
        self.settings = replace(whole, rank=check_rank(run.rank, whole))
        self._read = reading(self.drafter, run.input, lambda given: given)
        self.files = read_corpus()
        words, tokenizer = word_pool(self.files), read_tokenizer(run.target)
        self.sides = {held: Episodes(tokenizer, self.files, words, held_out=held) for held in (False, True)}
        # Sums do not depend on the rank: a fit of another rank goes on with them.
        listing = str(corpus_record(self.files)["listing_sha256"])
        self._key = [run.input, str(run.length), str(run.seed), *(info.digest for info in infos), listing]
        self.sums = self._resumed()

    def collect(self, report: Progress | None = None) -> None:
        """Sum over the episodes that are missing; every one is written down at once."""
        wanted = {False: self.run.episodes, True: max(1, self.run.episodes // HELD_OUT_SHARE)}
        for held, sums in self.sums.items():
            while sums.episodes < wanted[held]:
                episode = self.sides[held].episode(self.run.seed, sums.episodes, self.run.length)
                sums.add(*self._pairs(episode.context))
                states = [self.sums[side].state() for side in (False, True)]
                save(self._path, {"of": self._key, "sums": states})
                if report is not None:
                    report(sum(each.episodes for each in self.sums.values()), sum(wanted.values()), {})

    def of_rank(self, rank: int) -> RestorationFit:
        """Return the same fit for another rank, with the same sums.

        Raises:
            UsageError: If the rank is larger than the input.
        """
        other = copy(self)
        other.settings = replace(self.settings, rank=check_rank(rank, self.settings))
        return other

    def distilled(
        self, tensors: Mapping[str, torch.Tensor], steps: int, report: Progress | None = None, *, loss: str = KL
    ) -> tuple[dict[str, torch.Tensor], dict[Side, float]]:
        """Train fitted tensors by a loss for so many steps; return them with their errors as ``solve`` does.

        Raises:
            UsageError: If the work folder holds another training, or one of more steps.
        """
        moved = {name: tensor.to(self.target.device) for name, tensor in tensors.items()}
        f_theta = FTheta(self.settings, moved, self.drafter.capture, self._read, self.target.family.finish)

        def draw(number: int, held_out: bool) -> Episode:
            return self.sides[held_out].episode(self.run.seed + 1, number, self.run.length)

        work = self.run.work / f"rank{self.settings.rank}-{loss}"
        made_by = dict(zip(KEY, self._key, strict=True)) | {"episodes": self.sums[False].episodes}
        distillation = Distillation(f_theta, self.target, TRAINED_BEHIND, draw, work, loss=loss, made_by=made_by)
        found = distillation.train(steps, report)
        trained = {name: tensor.cpu().contiguous() for name, tensor in found.items()}
        return trained, self.sums[True].errors(whole_maps(trained, self.settings))

    def solve(self) -> tuple[dict[str, torch.Tensor], dict[Side, float]]:
        """Return the tensors, and by side the squared error on held-out contexts as a share of the rows' squares."""
        tensors = fitted(self.sums[False], self.settings)
        return tensors, self.sums[True].errors(whole_maps(tensors, self.settings))

    @property
    def _path(self) -> Path:
        return self.run.work / "sums.pt"

    def _resumed(self) -> dict[bool, Sums]:
        state = load(self._path)
        if state is None:
            return {False: Sums(), True: Sums()}
        if state["of"] != self._key:
            raise UsageError(
                f"{self._path} holds the sums of another pair, input, length, seed or library; name another --work, or "
                f"remove {self.run.work}"
            )
        sums = {side: Sums.of_state(part) for side, part in zip((False, True), state["sums"], strict=True)}
        summed = sums[False].episodes
        if summed > self.run.episodes:
            raise UsageError(
                f"{self._path} holds the sums of {summed} contexts; none of {self.run.episodes} can be made of them. "
                f"Give --episodes {summed} or more, another --work, or remove {self.run.work}"
            )
        return sums

    @torch.inference_mode()
    def _pairs(self, ids: tuple[int, ...]) -> tuple[torch.Tensor, dict[Side, torch.Tensor]]:
        """Return inputs ``[N, I]`` and targets ``[N, W]`` of a context behind its first positions."""
        family, device = self.target.family, self.target.device
        layers = (EMBEDDED, *range(self.target.info.layer_count))
        tables = family.rotary(torch.arange(len(ids), device=device)[None])
        caches = family.caches(CacheLayout.NATIVE)
        _, outputs = family.forward(torch.tensor(ids, device=device), caches, tables, layers)
        by_layer = {layer: output[FIRST_POSITION:] for layer, output in zip(layers, outputs, strict=True)}
        given = self._read(torch.cat([by_layer[layer] for layer in self.drafter.capture], dim=-1))
        targets: dict[Side, torch.Tensor] = {}
        for layer in self.settings.layers:
            attention = family.text.layers[layer].self_attn
            for name, rows in zip(("keys", "values"), family.project(layer, by_layer[layer - 1]), strict=True):
                normed = hasattr(attention, f"{name[0]}_norm")
                targets[layer, name] = _unit(rows, attention.head_dim) if normed else rows
        return given.cpu(), {side: rows.cpu() for side, rows in targets.items()}


def check_rank(rank: int, settings: RestorationSettings) -> int:
    """Return a rank that an input and the layers can have: that of the input, or one at most as large as their rows.

    Raises:
        UsageError: If it is larger, or no layer is there whose rows could be made.
    """
    widths = settings.layers.values()
    if not widths:
        raise UsageError("the target has no full-attention layer; there are no rows that an f_theta could make again")
    if rank == settings.input_size:
        return rank
    most = min(settings.input_size, sum(each.keys for each in widths), sum(each.values for each in widths))
    if not 1 <= rank <= most:
        raise UsageError(
            f"rank {rank}; expected at most {most}, or {settings.input_size}, all values of the {settings.input}, "
            "which needs no encoder"
        )
    return rank


def write_restoration(
    folder: Path, fit: RestorationFit, tensors: dict[str, torch.Tensor], errors: dict[Side, float], command: str
) -> None:
    """Write config.json, the tensors, and training.json with the command and the held-out errors."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)
    (folder / "config.json").write_text(json.dumps(fit.settings.config(), indent=2) + "\n")
    corpus = corpus_record(fit.files)
    record = {
        "command": command,
        "seed": fit.run.seed,
        "episodes": {"training": fit.sums[False].episodes, "held_out": fit.sums[True].episodes},
        "tokens_an_episode": fit.run.length,
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "held_out_relative_error": {f"{layer}.{name}": round(error, 5) for (layer, name), error in errors.items()},
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        "corpus": {key: corpus[key] for key in ("python", "files", "held_out_files", "characters", "listing_sha256")},
    }
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")


def _unit(rows: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Return rows of heads of size 1: the norm behind them forgets any other."""
    heads = rows.unflatten(-1, (-1, head_dim))
    return (heads * heads.square().mean(dim=-1, keepdim=True).clamp(min=1e-12).rsqrt()).flatten(-2)
