"""A folder as a module of mlx-lm, computed in the dtype that its config names: for the engine and for its peers alike.

mlx-lm computes in whatever the files store. A model of float32 may be stored in 16 bits, and every arm of a comparison
has to compute the same function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

from engine import checkpoint
from engine.errors import ModelWeightsError
from engine.structure.stored import beside_text

LISTED = {
    re.compile(r"Received \d+ parameters not in model: \n(.+)\.$", re.DOTALL): checkpoint.unused_tensors_of,
    re.compile(r"Missing \d+ parameters: \n(.+)\.$", re.DOTALL): checkpoint.missing_tensors,
}
"""What mlx says of tensors that a model has and files have not, or the other way round."""

MISSHAPEN = re.compile(r"Expected shape (\(.*?\)) but received shape (\(.*?\)) for parameter (\S+?)\.?$")
"""What mlx says of a tensor of another shape."""
CLASSES: Any = inspect.signature(load_model).parameters["get_model_classes"].default
"""How mlx-lm finds the classes of a model and of its arguments, by its config."""


def open_module(folder: Path, dtype: mx.Dtype | None = None, added: Mapping[str, Any] | None = None) -> Any:
    """Return the module of a folder, lazily: MLX reads and casts a tensor when it is computed with.

    Args:
        folder: Of the model.
        dtype: Of the weights; None is float32 where the config names it, else what the files store.
        added: Entries that complete its config.

    Raises:
        ModelConfigError: If its config cannot be read.
        ModelWeightsError: If mlx-lm cannot load it.
    """
    config = checkpoint.read_config(folder)
    try:
        module, _ = load_model(folder, lazy=True, model_config=dict(added or {}), get_model_classes=_classes)
    except Exception as error:
        # mlx-lm reads configs and quantised formats unguarded: what it raises is what it tripped over.
        raise _failure(folder, error) from error
    if dtype is None and checkpoint.number_format(config) == "float32":
        dtype = mx.float32
    if dtype is not None:
        _cast(module, dtype)
    return module


def _classes(config: dict[str, Any]) -> tuple[type[Any], type[Any]]:
    """Return the classes of a model and of its arguments; the model leaves out what stands beside its text."""
    library, arguments = CLASSES(config=config)

    class Text(library):  # type: ignore[misc, valid-type]
        def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
            """Return the tensors under mlx-lm's names; transformers leaves out heads and towers beside the text too."""
            named = super().sanitize(weights) if hasattr(library, "sanitize") else weights
            modules = {name.rpartition(".")[0] for name, _ in tree_flatten(self.parameters())}
            return {
                name: tensor
                for name, tensor in named.items()
                if not beside_text(name) or name.rpartition(".")[0] in modules
            }

    Text.__name__, Text.__qualname__, Text.__module__ = library.__name__, library.__qualname__, library.__module__
    return Text, arguments


def _failure(folder: Path, error: Exception) -> ModelWeightsError:
    """Return what to raise where mlx-lm could not load a folder: tensors that it lists, or its own words."""
    if (misshapen := MISSHAPEN.search(str(error))) is not None:
        return checkpoint.misshapen_tensor(folder, misshapen[3], misshapen[2], misshapen[1])
    if checkpoint.lost_files(folder) is None:
        for said, told in LISTED.items():
            if (names := said.search(str(error))) is not None:
                return told(folder, names[1].split(",\n"))
    return checkpoint.load_failure(folder, error)


def _cast(module: Any, dtype: mx.Dtype) -> None:
    """Cast the weights of a model, but those that mlx-lm keeps wide: the decay rates of a recurrent layer."""
    castable = getattr(module, "cast_predicate", lambda _: True)
    weights = [
        (name, part.astype(dtype) if castable(name) else part)
        for name, part in tree_flatten(module.parameters())
        if mx.issubdtype(part.dtype, mx.floating)
    ]
    module.load_weights(weights, strict=False)
