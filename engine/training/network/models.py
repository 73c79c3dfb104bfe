"""Targets built from transformers' own modules, with the initialisation that lets a small one learn to copy."""

from __future__ import annotations

from typing import Any

import torch

from engine.training.recipe import target_config


def build_target(family: str, size: str, vocab_size: int, seed: int) -> Any:
    """Build and initialise a target in fp32.

    Gemma-4 attention has scale 1 and sandwich norms, so the q/k norms start at head_dim**-0.25, the norms after each
    sublayer at 0.25 and the embedding at hidden**-0.5; with the usual initialisation copying never emerges.
    """
    import transformers

    torch.manual_seed(seed)
    values = target_config(family, size, vocab_size)
    if family == "gemma4":
        config: Any = transformers.Gemma4TextConfig(**values)
        model: Any = transformers.Gemma4ForCausalLM(config)
    else:
        config = transformers.Qwen3Config(**values)
        model = transformers.Qwen3ForCausalLM(config)
    model = model.float()
    with torch.no_grad():
        torch.nn.init.normal_(model.model.embed_tokens.weight, std=values["hidden_size"] ** -0.5)
        for name, parameter in model.named_parameters():
            if family != "gemma4":
                break
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                parameter.fill_(parameter.shape[0] ** -0.25)
            elif name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
                parameter.fill_(0.25)
    return model


def attention_masks(model: Any, length: int, device: torch.device) -> dict[str, torch.Tensor | None] | None:
    """Return masks by layer type: None means plain causal, which takes the fast attention path, or a recurrence.

    A model whose layers are all of one type takes no masks by type, and None for all.
    """
    if not hasattr(model.config, "layer_types"):
        return None
    masks: dict[str, torch.Tensor | None] = dict.fromkeys(("full_attention", *model.config.layer_types))
    if "sliding_attention" in model.config.layer_types:
        rows = torch.arange(length, device=device)
        distance = rows[:, None] - rows[None, :]
        masks["sliding_attention"] = ((distance >= 0) & (distance < model.config.sliding_window))[None, None]
    return masks


def logits_of(model: Any, ids: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
    """Return fp32 logits [rows, length, vocab] of `ids` [rows, length] without a cache."""
    output = model(
        input_ids=ids,
        attention_mask=attention_masks(model, ids.shape[1], ids.device),
        position_ids=positions,
        use_cache=False,
    )
    logits: torch.Tensor = output.logits
    return logits.float()


def neutralise_mask_row(model: Any, mask_id: int, seed: int) -> None:
    """Give the never-trained mask token a random embedding of median norm.

    Untrained rows of a tied table drift together, which would start a drafter that embeds the mask far off.
    """
    generator = torch.Generator().manual_seed(seed)
    table = model.model.embed_tokens.weight
    with torch.no_grad():
        row = torch.randn(table.shape[1], generator=generator).to(table.device)
        table[mask_id] = row / row.norm() * table.norm(dim=1).median()


def mixed_precision(device: str) -> torch.autocast:
    """Return the region forwards run in: bfloat16, or what they are in where a processor has to emulate bfloat16.

    An emulated product is much slower than one in float32, which this type is there to be faster than.

    Args:
        device: torch's name of the device's kind, without an index.
    """
    return torch.autocast(device, torch.bfloat16, enabled=not emulates_bfloat16(device))


def emulates_bfloat16(device: str) -> bool:
    """Say whether products in bfloat16 are emulated: on a processor without instructions for them.

    Args:
        device: torch's name of the device's kind, without an index.
    """
    return device == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
