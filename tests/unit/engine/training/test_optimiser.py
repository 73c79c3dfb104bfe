"""Muon where products in bfloat16 are emulated."""

from __future__ import annotations

from typing import Any


def test_muon_iterates_in_float32_where_it_is_told_to_and_comes_to_the_same() -> None:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from engine.training.network.optimiser import Optimisers

    def step(in_float32: bool) -> tuple[set[torch.dtype], torch.Tensor]:
        multiplied: set[torch.dtype] = set()

        class Noting(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if func is torch.ops.aten.mm.default:
                    multiplied.add(args[0].dtype)
                return func(*args, **(kwargs or {}))

        model = torch.nn.Linear(24, 16)
        model.weight.data = torch.randn(16, 24, generator=torch.Generator().manual_seed(1))
        model.weight.grad = gradient = torch.randn(16, 24, generator=torch.Generator().manual_seed(2))
        before, direction = model.weight.detach().clone(), gradient / gradient.norm()
        with Noting():
            Optimisers(model, 0.1, 0.1, in_float32).step(1.0)
        assert torch.allclose(gradient / gradient.norm(), direction, atol=1e-6)  # clipped, nothing else
        return multiplied, model.weight.detach() - before

    (float32_dtypes, exact), (usual, rounded) = step(in_float32=True), step(in_float32=False)
    assert (float32_dtypes, usual) == ({torch.float32}, {torch.bfloat16})
    assert 0.0 < (exact - rounded).norm() / rounded.norm() < 0.02
