"""A causal language model of transformers from a folder on this machine, or one error that names what is wrong with it.

Knows no family of models. Keeps torch out of a process that does without it, too: mlx-lm imports transformers for its
tokenizers, and transformers imports torch wherever that is installed, which is half of what a start costs.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.checkpoint import (
    load_failure,
    misshapen_tensor,
    missing_tensors,
    read_config,
    resolve_model,
    text_config,
    unused_tensors_of,
    weight_files,
)
from engine.errors import ModelConfigError, ModelWeightsError
from engine.structure.decoder import read_structure
from engine.structure.families import FAMILIES, model_type
from engine.structure.stored import unused_tensors

TIE = "tie_word_embeddings"
INSIDE = {"qwen3_vl_text": "qwen3"}
"""Language models that transformers opens with images alone, by the type that computes the same for text."""
INNER_NAMES = {r"^model\.language_model\.": "model."}
"""What the tensors of a language model are called inside of its wrapper, and by itself."""


def leave_torch_out() -> None:
    """Let torch be imported as where it is not installed, unless it is there already; until `take_torch_in`."""
    modules: dict[str, Any] = sys.modules
    # The import system's own way: an import of a name that stands for None raises ModuleNotFoundError.
    modules.setdefault("torch", None)


def take_torch_in() -> None:
    """End that; what transformers loaded without torch is loaded again where it is next imported."""
    modules: dict[str, Any] = sys.modules
    if modules.get("torch", modules) is not None:
        return
    del modules["torch"]
    for name in [name for name in modules if name.partition(".")[0] == "transformers"]:
        del modules[name]


def check_opened(config: Mapping[str, Any], folder: Path) -> None:
    """Check that transformers opens a model of this type as one that writes text.

    Raises:
        ModelConfigError: If it knows no such class, as of models that see or hear.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = str(config.get("model_type"))
    if model_type(config) in INSIDE:
        return
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelConfigError(
            f"{folder} holds a {kind!r} around its language model, which transformers opens with its other parts; "
            "expected a language model. Use it by itself, or --backend mlx where mlx-lm has this type."
        )


def open_causal(folder: Path, dtype: Any = "float32", device: Any = "cpu", attention: str = "sdpa") -> Any:
    """Load the model of a folder onto a device, frozen; nothing is fetched and nothing is written.

    On the device ``meta`` its tensors have names and shapes and no values.

    Raises:
        ModelNotFoundError: If there is no such folder.
        ModelWeightsError: If it cannot be read, or a tensor is missing, not used, not finite or of another shape than
            said.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    folder = resolve_model(str(folder.absolute()))
    weight_files(folder)
    transformers_logging.disable_progress_bar()
    noisy = logging.getLogger("transformers")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        module, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation=attention,
            **placed(device),
            **_unpacked(folder, device),
            **(_inside(folder) or _tied(folder)),
            local_files_only=True,
            use_safetensors=True,  # never a pickle that lies beside them
            output_loading_info=True,
            # Named below with their shapes; transformers itself would only say that there are some.
            ignore_mismatched_sizes=True,
        )
    except Exception as error:
        # Readers of configs, weights and quantised formats raise classes of their own, with no common base.
        raise load_failure(folder, error) from error
    finally:
        noisy.setLevel(level)
    misshapen, missing = sorted(report["mismatched_keys"]), sorted(report["missing_keys"])
    if misshapen:
        name, got, expected = misshapen[0]
        raise misshapen_tensor(folder, name, str(tuple(got)), str(tuple(expected)))
    if missing:
        raise missing_tensors(folder, missing)
    unused = unused_tensors(report["unexpected_keys"])
    if unused:
        raise unused_tensors_of(folder, unused)
    module = module.to(device).eval().requires_grad_(False)
    if str(device) != "meta":
        check_finite(dict(module.named_parameters()), folder)
    return module


def placed(device: Any) -> dict[str, Any]:
    """Return how each tensor is read onto an accelerator at once, where the package that transformers needs for it is.

    Without it a model lies in the memory of the host first, whole, which a large one may not fit into.
    """
    if str(device) == "cpu" or importlib.util.find_spec("accelerate") is None:
        return {}
    return {"device_map": {"": device}}


def _inside(folder: Path) -> dict[str, Any]:
    """Return how the language model of a wrapper is opened that transformers opens with its other parts alone."""
    from transformers import AutoConfig

    raw = read_config(folder)
    kind = model_type(raw)
    if kind not in INSIDE:
        return {}
    structure, text = read_structure(raw), {**FAMILIES[kind].defaults, **text_config(raw)}
    if "rope_parameters" in text:
        del text["rope_theta"]  # what it says stands there
    text |= {TIE: structure.tied, "model_type": INSIDE[kind]}
    text.pop("architectures", None)
    return {"config": AutoConfig.for_model(**text), "key_mapping": INNER_NAMES}


def _tied(folder: Path) -> dict[str, Any]:
    """Return the config to open a wrapper with that ties head and embedding otherwise than its language model says.

    What the wrapper says counts; transformers opens its language model alone and would go by that.
    """
    from transformers import AutoConfig

    raw = read_config(folder)
    text, outer = text_config(raw), raw.get(TIE)
    if text is raw or outer is None or outer == text.get(TIE):
        return {}
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    config.get_text_config().tie_word_embeddings = outer
    return {"config": config}


def _unpacked(folder: Path, device: Any) -> dict[str, Any]:
    """Return how weights packed in 4-bit blocks are loaded onto a CPU or as names and shapes alone.

    As numbers, which needs no further package.
    """
    from transformers import Mxfp4Config

    quantization = read_config(folder).get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    if str(device) not in {"cpu", "meta"} or method != "mxfp4":
        return {}
    return {"quantization_config": Mxfp4Config(dequantize=True)}


def read_tensors(folder: Path) -> dict[str, Any]:
    """Return the tensors of a folder's files.

    Raises:
        ModelWeightsError: If there are none, or a file cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, Any] = {}
    for file in weight_files(folder):
        try:
            tensors |= load_file(file)
        except (OSError, SafetensorError) as error:
            raise ModelWeightsError(f"cannot read {file}: {error}; fetch the file again") from error
    return tensors


def check_finite(tensors: Mapping[str, Any], folder: Path) -> None:
    """Check the floating tensors of a folder, with one read from the device for all of them.

    Raises:
        ModelWeightsError: If one holds NaN or infinity.
    """
    import torch

    floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    verdicts = torch.stack([tensor.isfinite().all() for tensor in floating.values()]).tolist()
    bad = [name for name, fine in zip(floating, verdicts, strict=True) if not fine]
    if bad:
        raise ModelWeightsError(f"{folder} holds NaN or infinite values in {bad[:4]} ({len(bad)} tensors in all)")
