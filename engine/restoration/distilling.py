"""Training an f_theta by steps: restored rows, or what the target makes of them, are brought near to its own.

A question and its answer are forwarded behind a context whose rows behind the window are restored, and again natively.
The loss is the divergence of what is said, answers counting four times, unless another is named: the others compare the
rows, or what each layer's attention makes of them for the target's own inputs. Only the f_theta learns.

Shapes: N positions, S rows of the block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from engine.backends.rows import Rows
from engine.backends.torch.caches import attention_mask
from engine.backends.visibility import Visibility
from engine.errors import UsageError
from engine.restoration.episodes import Episode
from engine.restoration.losses import ATTENTION_LOSSES, BY_ROWS, attended_loss, row_loss
from engine.restoration.restorers import FTheta
from engine.restoration.settings import KL
from engine.structure.layout import CacheLayout
from engine.training.checkpoint import Progress, Resumable

ANSWER_WEIGHT = 4.0
HELD_OUT_EPISODES = 4
RATE, WARM_UP_STEPS, SETTLED_STEPS, LARGEST_GRADIENT = 1e-3, 20, 50, 1.0
"""The rate rises for the first steps, and falls with the root of all steps behind the settled ones."""


class BlockCaches:
    """What one block sees behind a context: exact rows near it and in the sink, in some layers restored ones between.

    In the shape that a decoder's forward and transformers' attention modules call.
    """

    def __init__(
        self,
        held: Mapping[int, Rows],
        restored: Mapping[int, Rows],
        windows: Mapping[int, int | None],
        bound: CacheLayout,
    ) -> None:
        """Hold the exact rows of the context and the restored ones by layer; ``bound`` says sink and window."""
        self.states: dict[int, Any] = {}
        self.asked: dict[int, Any] = {}
        self._held, self._restored, self._windows, self._bound = held, restored, windows, bound

    def masks(self, rows: int, device: torch.device) -> dict[int, torch.Tensor | None]:
        """Return by layer the mask over what its ``update`` will return."""
        return {layer: attention_mask(self._visible(layer, rows), device) for layer in self._held}

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: object, **__: object) -> Rows:
        """Return the rows that the block's queries may attend to, its own last."""
        visible, held = self._visible(layer_idx, int(keys.shape[2])), self._held[layer_idx]
        sides = []
        for place, own in enumerate((keys, values)):
            parts = [
                self._restored[layer_idx][place] if run == visible.again else held[place][:, :, run[0] : run[1]]
                for run in visible.runs
            ]
            sides.append(torch.cat([*parts, own], dim=2))
        return sides[0], sides[1]

    def _visible(self, layer: int, rows: int) -> Visibility:
        start, window, sink = int(self._held[layer][0].shape[2]), self._windows[layer], 0
        restored = self._restored.get(layer)
        if restored is not None:
            window, sink = self._bound.window, self._bound.sink
        first = 0 if window is None else max(0, start - window + 1)
        if restored is None:
            return Visibility(((first, start + rows),), rows, window)
        again = (sink, sink + int(restored[0].shape[2]))
        return Visibility(((0, sink), again, (first, start + rows)), rows, window, sink, again=again)


@dataclass(frozen=True)
class Example:
    """One context with what the target itself makes of it, and of the question and answer behind it.

    Attributes:
        inputs: of the f_theta, ``[N, input]``.
        held: keys and values of the context by layer.
        block: ids of question and answer but its last token, ``[S]``.
        layer_inputs: of the block by restored layer, ``[S, D]``.
        wanted: the target's own log probabilities, ``[S, V]``.
        weights: of the rows, ``[S]``.
    """

    inputs: torch.Tensor
    held: dict[int, Rows]
    block: torch.Tensor
    layer_inputs: dict[int, torch.Tensor]
    wanted: torch.Tensor
    weights: torch.Tensor


class Distillation(Resumable):
    """Trains the tensors of an f_theta on a target; equal seeds and steps give equal tensors."""

    shown = ()

    def __init__(
        self,
        f_theta: FTheta,
        target: Any,
        bound: CacheLayout,
        draw: Callable[[int, bool], Episode],
        work: Path,
        *,
        loss: str = KL,
        made_by: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin with an f_theta's tensors, or go on from the checkpoint in ``work``.

        Args:
            f_theta: As it was fitted.
            target: Torch's target.
            bound: Sink and window of the rows that are exact.
            draw: Returns the episode of a number, held out or not.
            work: Folder of the checkpoint and the curve, of this loss alone.
            loss: One of ``LOSSES``.
            made_by: What makes this training another than the next, beside the loss; plain values.

        Raises:
            UsageError: If the checkpoint is of another training.
        """
        self._loss = loss
        self._f_theta, self._target, self._bound, self._draw = f_theta, target, bound, draw
        named = {_attribute(name): tensor.detach().clone() for name, tensor in f_theta.tensors.items()}
        self.learnt = torch.nn.ParameterDict(named)
        self._optimiser = torch.optim.AdamW(self.learnt.parameters(), lr=RATE, weight_decay=0.0)
        self.resume(work, self.learnt, self, {"loss": loss} | dict(made_by or {}))

    def train(self, steps: int, report: Progress | None = None) -> dict[str, torch.Tensor]:
        """Train to a number of steps and return the tensors by name.

        Raises:
            UsageError: If the checkpoint is of more steps: there is no way back.
        """
        if self.step > steps:
            raise UsageError(
                f"{self.path.parent} is at step {self.step}; it cannot be trained to {steps}. Give --steps {self.step} "
                "or more, another --work, or remove it"
            )
        self.advance(steps, max(1, steps // 4), report, None)
        self.save()
        return {name: self.learnt[_attribute(name)].detach().clone() for name in self._f_theta.tensors}

    def train_step(self) -> float:
        """Take one step on one episode and return its loss."""
        for group in self._optimiser.param_groups:
            # By the steps so far alone, so that a training may be cut and continued to any number.
            group["lr"] = RATE * min(1.0, (self.step + 1) / WARM_UP_STEPS, (SETTLED_STEPS / (self.step + 1)) ** 0.5)
        loss = self.loss(self._example(self.step, held_out=False))
        self._optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.learnt.parameters(), LARGEST_GRADIENT)
        self._optimiser.step()
        self.step += 1
        return float(loss.detach())

    def evaluate(self) -> dict[str, float]:
        """Return the loss on held-out episodes."""
        with torch.no_grad():
            losses = [float(self.loss(example)) for example in self._held_out]
        return {"held_out_loss": sum(losses) / len(losses)}

    @cached_property
    def _held_out(self) -> list[Example]:
        return [self._example(number, held_out=True) for number in range(HELD_OUT_EPISODES)]

    def loss(self, example: Example) -> torch.Tensor:
        """Return what the f_theta misses on an example, by the loss that was asked for."""
        learnt = {name: self.learnt[_attribute(name)] for name in self._f_theta.tensors}
        restorer = replace(self._f_theta, tensors=learnt, read=lambda given: given)
        sink, window = self._bound.sink, int(self._bound.window or 0)
        last = int(example.inputs.shape[0]) + int(example.block.shape[0]) - window
        latents = restorer.latents(example.inputs[sink:last])
        restored = {}
        for layer in restorer.settings.layers:
            like = example.held[layer][0].dtype
            keys, values = restorer.rows(layer, latents, sink)
            restored[layer] = (keys.to(like), values.to(like))
        if self._loss == KL:
            return self._said(example, restored)
        parts = []
        if self._loss in ATTENTION_LOSSES:
            with torch.no_grad():
                wanted = self._attended(example, {})
            parts.append(attended_loss(self._attended(example, restored), wanted, example.weights))
        if self._loss in BY_ROWS:
            kept = {}
            for layer in restored:
                keys, values = example.held[layer]
                kept[layer] = (keys[:, :, sink:last], values[:, :, sink:last])
            parts.append(row_loss(self._loss, restored, kept))
        return torch.stack(parts).sum()

    def _said(self, example: Example, restored: Mapping[int, Rows]) -> torch.Tensor:
        """Return the weighted mean divergence of the block's rows."""
        family, (caches, tables) = self._target.family, self._seen(example, restored)
        found = family.head(family.forward(example.block, caches, tables, ())[0]).float().log_softmax(dim=-1)
        apart = functional.kl_div(found, example.wanted, log_target=True, reduction="none").sum(dim=-1)
        return (apart * example.weights).sum() / example.weights.sum()

    def _attended(self, example: Example, restored: Mapping[int, Rows]) -> dict[int, torch.Tensor]:
        """Return by layer what its attention makes of the target's own inputs behind these rows, ``[S, D]``."""
        caches, tables = self._seen(example, restored)
        return {
            layer: self._target.family.attend(layer, hidden, caches, tables)
            for layer, hidden in example.layer_inputs.items()
        }

    def _seen(self, example: Example, restored: Mapping[int, Rows]) -> tuple[BlockCaches, Any]:
        """Return what a block sees where these rows are restored, and the rotary tables of its positions."""
        family, (start, rows) = self._target.family, (int(example.inputs.shape[0]), int(example.block.shape[0]))
        windows = dict(zip(family.structure.attending, family.windows, strict=True))
        tables = family.rotary(torch.arange(start, start + rows, device=example.block.device)[None])
        return BlockCaches(example.held, restored, windows, self._bound), tables

    @torch.no_grad()
    def _example(self, number: int, *, held_out: bool) -> Example:
        episode, family, device = self._draw(number, held_out), self._target.family, self._target.device
        capture, context = self._f_theta.capture, torch.tensor(episode.context, device=device)
        caches, tail = family.caches(CacheLayout.FULL), (*episode.question, *episode.answer[:-1])
        positions = torch.arange(len(episode.context) + len(tail), device=device)[None]
        begin = len(episode.context)
        _, outputs = family.forward(context, caches, family.rotary(positions[:, :begin]), capture)
        held: dict[int, Rows] = {}
        for layer in family.structure.attending:
            keys, values = caches.layers[layer].held()
            held[layer] = (keys.clone(), values.clone())
        block = torch.tensor(tail, device=device)
        layers = tuple(self._f_theta.settings.layers)
        before = tuple(layer - 1 for layer in layers)
        hidden, given = family.forward(block, caches, family.rotary(positions[:, begin:]), before)
        weights = torch.ones(len(tail), device=device)
        weights[-len(episode.answer) :] = ANSWER_WEIGHT
        inputs = self._f_theta.read(torch.cat(outputs, dim=-1))
        layer_inputs = dict(zip(layers, given, strict=True))
        wanted = family.head(hidden).float().log_softmax(dim=-1)
        return Example(inputs.float(), held, block, layer_inputs, wanted, weights)

    def state(self) -> dict[str, Any]:
        """Return the optimiser's state, for the checkpoint."""
        return self._optimiser.state_dict()

    def restore(self, state: dict[str, Any]) -> None:
        """Take the optimiser's state of a checkpoint."""
        self._optimiser.load_state_dict(state)


def _attribute(name: str) -> str:
    """Return a tensor's name as torch lets a parameter be called."""
    return name.replace(".", "_")
