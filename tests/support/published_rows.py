"""The published configs that are read in tests: what the reader reads of each, and what it must answer.

Made by ``python -m tests.support.published_rows FOLDER`` from the files of ``model_configs/`` in the wheel
aiconfigurator-core 0.12.0 (Apache-2.0), which holds them as their publishers have them. Fields that nothing here reads
are left out, and a list of equal layer kinds is written in runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

ROWS = Path(__file__).parents[1] / "data" / "published_configs.jsonl"
FIELDS = (
    *("architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "layer_types"),
    *("sliding_window", "use_sliding_window", "max_window_layers", "sliding_window_pattern", "full_attention_interval"),
    *("rope_scaling", "rope_parameters", "rope_theta", "rope_local_base_freq", "partial_rotary_factor"),
    *("num_kv_shared_layers", "final_logit_softcapping", "attn_logit_softcapping", "rms_norm_eps", "hidden_act"),
    *("hidden_activation", "tie_word_embeddings", "eos_token_id", "dtype", "torch_dtype", "attention_bias"),
    *("use_bidirectional_attention", "num_experts", "num_local_experts", "num_experts_per_tok", "top_k_experts"),
    *("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"),
    *("linear_conv_kernel_dim",),
)


def answer(config: dict[str, Any]) -> str:
    """Return what the reader makes of a config: its layers in one line, or the one refusal."""
    from engine.checkpoint import quantisation_of
    from engine.errors import EngineError
    from engine.structure.decoder import positions_of, read_structure
    from engine.structure.families import model_type

    try:
        model_type(config)
        structure = read_structure(config)
    except EngineError as error:
        return f"refused: {str(error).partition(';')[0]}"
    text = config.get("text_config") or config
    runs = [f"{len(list(run))} {kind.partition('_')[0]}" for kind, run in groupby(structure.kinds)]
    layers = " ".join(runs if len(runs) < 7 else [*runs[:4], "...", *runs[-1:]])
    return (
        f"{structure.model_type}: {layers}; window {structure.window}; {positions_of(text)} positions; "
        f"head of {structure.head_dim}; tied {structure.tied}; cap {structure.soft_cap}; {quantisation_of(config)}"
    )


def rows() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield name, config and expected answer of every row."""
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for part in (row["config"], row["config"].get("text_config", {})):
            if isinstance(part.get("layer_types"), str):
                runs = (run.split(" x ") for run in part["layer_types"].split(", "))
                part["layer_types"] = [kind for count, kind in runs for _ in range(int(count))]
        yield row["name"], row["config"], row["answer"]


def reduced(config: dict[str, Any]) -> dict[str, Any]:
    """Return what is read of a config."""
    fields = {name: config[name] for name in FIELDS if name in config}
    if isinstance(fields.get("layer_types"), list):
        fields["layer_types"] = ", ".join(f"{len(list(run))} x {kind}" for kind, run in groupby(fields["layer_types"]))
    quantised = config.get("quantization_config")
    if isinstance(quantised, dict):
        fields["quantization_config"] = {
            name: quantised[name] for name in ("quant_method", "bits") if name in quantised
        }
    if isinstance(config.get("text_config"), dict):
        fields["text_config"] = reduced(config["text_config"])
    return fields


def main(folder: Path) -> None:
    """Write the rows anew."""
    lines = []
    for file in sorted(folder.glob("*_config.json")):
        if file.name.endswith("_hf_quant_config.json"):
            continue
        config = json.loads(file.read_text(encoding="utf-8"))
        name = file.name.removesuffix("_config.json").replace("--", "/")
        lines.append(json.dumps({"name": name, "config": reduced(config), "answer": answer(config)}))
    ROWS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
