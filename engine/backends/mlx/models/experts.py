"""Whether MLX multiplies the experts of a model in the dtype they have here: on a CPU it does so in float32 alone."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.switch_layers import SwitchLinear

from engine.errors import BackendMissingError


def check_expert_products(module: Any, device: str) -> None:
    """Check with a product of each dtype that experts have; quantised ones are multiplied otherwise.

    Raises:
        BackendMissingError: If the device has none for it.
    """
    kinds = {part.weight.dtype for part in module.modules() if type(part) is SwitchLinear}
    for kind in sorted(kinds, key=str):
        try:
            mx.eval(mx.gather_mm(mx.ones((1, 1, 2), kind), mx.ones((1, 2, 2), kind), rhs_indices=mx.array([0])))
        except (RuntimeError, ValueError) as error:
            name, said = str(kind).removeprefix("mlx.core."), str(error).rstrip(".")
            raise BackendMissingError(
                f"mlx on {device} does not multiply experts in {name}: {said}. Use --dtype float32, or --backend torch."
            ) from error
