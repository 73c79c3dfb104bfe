"""Training brings restored rows, or what a target makes of them, nearer to its own, and goes on after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="f_thetas are trained with torch")

from engine.errors import UsageError  # noqa: E402
from engine.loading import load_backend  # noqa: E402
from engine.restoration import losses  # noqa: E402
from engine.restoration.distilling import BlockCaches, Distillation  # noqa: E402
from engine.restoration.episodes import Episode  # noqa: E402
from engine.restoration.restorers import FTheta, full_widths  # noqa: E402
from engine.restoration.settings import LOSSES, RestorationSettings  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from tests.fakes import tiny_torch  # noqa: E402

BOUND = CacheLayout.parse("sink2+window12")


def drawn(number: int, held_out: bool) -> Episode:
    """Return one of two episodes: random ones have nothing in common that could be learnt."""
    del held_out
    rng = np.random.default_rng(number % 2)
    ids = [int(token) for token in rng.integers(5, tiny_torch.VOCAB, size=50)]
    return Episode(tuple(ids[:40]), tuple(ids[40:44]), tuple(ids[44:]))


@pytest.fixture(scope="module", params=["qwen3", "gemma4"])
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[FTheta, Any]:
    return written(tmp_path_factory.mktemp("distilled"), request.param)


def written(root: Path, family: str, dtype: str | None = None) -> tuple[FTheta, Any]:
    """Return an f_theta of drawn tensors, and the target it is of."""
    torch.set_num_threads(1)
    backend = load_backend("torch", "cpu", dtype)
    target = backend.load_target(tiny_torch.write_target(root / "target", family))
    drafter = backend.load_dflash(tiny_torch.write_dflash(root / "drafter"), target)
    named = [(info.name, info.digest) for info in (target.info, drafter.info)]
    settings = RestorationSettings("context", tiny_torch.HIDDEN, 8, full_widths(target.family), *named)
    generator = torch.Generator().manual_seed(2)
    shapes = settings.tensor_shapes.items()
    tensors = {name: torch.randn(shape, generator=generator) / shape[0] ** 0.5 for name, shape in shapes}
    return FTheta(settings, tensors, drafter.capture, drafter.context, target.family.finish), target


@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_falls(tmp_path: Path, loss: str) -> None:
    f_theta, target = written(tmp_path, "gemma4")
    distillation = Distillation(f_theta, target, BOUND, drawn, tmp_path / "work", loss=loss)
    before = distillation.evaluate()["held_out_loss"]
    tensors = distillation.train(8)
    assert 0 < distillation.evaluate()["held_out_loss"] < before
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        name: tensor.shape for name, tensor in f_theta.tensors.items()
    }


def test_a_killed_training_ends_in_the_same_numbers(fitted: tuple[FTheta, Any], tmp_path: Path) -> None:
    f_theta, target = fitted
    loss = "attn_distill"
    straight = Distillation(f_theta, target, BOUND, drawn, tmp_path / "whole", loss=loss).train(8)
    cut = Distillation(f_theta, target, BOUND, drawn, tmp_path / "cut", loss=loss)
    cut.advance(8, 4, None, stop_after=3)
    cut.save()
    again = Distillation(f_theta, target, BOUND, drawn, tmp_path / "cut", loss=loss)
    assert again.step == 3
    other = again.train(8)
    assert all(torch.equal(straight[name], other[name]) for name in straight)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_target_of_fewer_bits_trains_an_f_theta_of_float32(tmp_path: Path, loss: str) -> None:
    f_theta, target = written(tmp_path, "qwen3", "bfloat16")
    distillation = Distillation(f_theta, target, BOUND, drawn, tmp_path / "work", loss=loss)
    assert distillation._example(0, held_out=False).held[0][0].dtype == torch.bfloat16
    tensors = distillation.train(1)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())


def test_the_checkpoint_of_another_training_is_refused_and_so_are_fewer_steps(
    fitted: tuple[FTheta, Any], tmp_path: Path
) -> None:
    f_theta, target = fitted
    Distillation(f_theta, target, BOUND, drawn, tmp_path, made_by={"target": "aa", "seed": 1}).train(2)
    with pytest.raises(UsageError, match="another training: seed 1 instead of 2, target aa instead of bb"):
        Distillation(f_theta, target, BOUND, drawn, tmp_path, made_by={"target": "bb", "seed": 2})
    again = Distillation(f_theta, target, BOUND, drawn, tmp_path, made_by={"target": "aa", "seed": 1})
    with pytest.raises(UsageError, match=r"is at step 2; it cannot be trained to 1\. Give --steps 2 or more"):
        again.train(1)


def test_every_loss_is_another_and_every_tensor_learns_by_each(fitted: tuple[FTheta, Any], tmp_path: Path) -> None:
    f_theta, target = fitted
    values = {}
    for loss in LOSSES:
        distillation = Distillation(f_theta, target, BOUND, drawn, tmp_path / loss, loss=loss)
        value = distillation.loss(distillation._example(0, held_out=False))
        value.backward()
        values[loss] = float(value.detach())
        assert all(bool(tensor.grad.abs().sum() > 0) for tensor in distillation.learnt.values()), loss
    assert len(set(values.values())) == len(LOSSES)


def test_the_attention_that_is_compared_is_the_one_the_target_computes(
    fitted: tuple[FTheta, Any], tmp_path: Path
) -> None:
    f_theta, target = fitted
    distillation = Distillation(f_theta, target, BOUND, drawn, tmp_path, loss="attn_distill")
    example = distillation._example(0, held_out=False)
    heard: dict[int, Any] = {}
    layers = target.family.text.layers
    hooks = [
        layers[layer].self_attn.register_forward_hook(
            lambda *hook_args, at=layer: heard.update({at: hook_args[2][0][0]})
        )
        for layer in f_theta.settings.layers
    ]
    caches, tables = distillation._seen(example, {})
    assert isinstance(caches, BlockCaches)
    with torch.no_grad():
        target.family.forward(example.block, caches, tables, ())
        own = dict(heard)
        again = distillation._attended(example, {})
    for hook in hooks:
        hook.remove()
    assert own.keys() == again.keys() == f_theta.settings.layers.keys()
    assert all(torch.allclose(own[layer], again[layer], atol=1e-6) for layer in own)


def test_each_term_has_its_weight_and_a_collapse_is_seen() -> None:
    rows = torch.randn((1, 2, 9, 4), generator=torch.Generator().manual_seed(3))
    turned = rows.roll(1, dims=-1)
    assert float(losses.direction(rows * 0.1, rows)) == pytest.approx(0, abs=1e-6)
    assert float(losses.size(rows * 0.1, rows)) == pytest.approx(0.81)
    assert float(losses.size(turned, rows)) == pytest.approx(0, abs=1e-6)
    for compare, weights in (
        (losses.mse, (0, 0, 1)),
        (losses.cos_mag, (1, 1, 0)),
        (losses.combined, (1, 1, 0.1 / float(rows.var(correction=0)))),
        (losses.hybrid, (1, 0.1, 0)),
    ):
        made = 0.5 * turned
        terms = (float(each(made, rows)) for each in (losses.direction, losses.size, losses.mse))
        expected = sum(weight * term for weight, term in zip(weights, terms, strict=True))
        assert float(compare(made, rows)) == pytest.approx(expected, rel=1e-5)
        assert float(compare(rows, rows)) == pytest.approx(0, abs=1e-6)
