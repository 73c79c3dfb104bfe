"""DFlash 2 written out in plain float64 numpy, and checkpoints for it: names and shapes spelled out, nothing shared.

Reads a drafter's raw config.json and its published tensors; knows nothing of the engine, which only unpacks stored
codes. One loop per row, per head, per candidate; no cache, no joined weights, no tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

SHAPE: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["DFlash2DraftModel"],
    "num_hidden_layers": 3,
    "intermediate_size": 80,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
    "is_causal": False,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "sliding_window": 9,
    "use_sliding_window": True,
}
NESTED: dict[str, Any] = {
    "block_size": 8,
    "mask_token_id": 3,
    "target_layer_ids": [1, 3],
    "conv_kernel_size": 2,
    "conv_group_size": 16,
    "selector_rank": 24,
    "selector_top_k": 16,
}


def config_of(hidden: int, vocab: int, **changes: Any) -> dict[str, Any]:
    """Return config.json of a drafter as z-lab publishes it; keys of ``dflash_config`` may be changed alone."""
    nested = NESTED | changes.pop("dflash_config", {})
    return SHAPE | {"hidden_size": hidden, "vocab_size": vocab} | changes | {"dflash_config": nested}


def random_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Return random float32 tensors under their published names, sized so that every part changes the result."""
    generator = np.random.default_rng(seed)
    nested, hidden = config["dflash_config"], config["hidden_size"]
    taps, groups = nested["conv_kernel_size"], hidden // nested["conv_group_size"]
    queries, keys = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))

    def weight(*shape: int, scale: float = 1.0) -> np.ndarray:
        return scale * generator.normal(size=shape) * shape[-1] ** -0.5

    def norm(size: int) -> np.ndarray:
        return 1.0 + 0.2 * generator.normal(size=size)

    rank, vocab, inner = nested["selector_rank"], config["vocab_size"], config["intermediate_size"]
    tensors = {
        "fc.weight": weight(hidden, hidden * len(nested["target_layer_ids"])),
        "hidden_norm.weight": norm(hidden),
        "norm.weight": norm(hidden),
        "candidate_selector.hidden_projection.weight": weight(rank, hidden),
        "candidate_selector.predecessor_codebook": generator.normal(size=(vocab, rank)),
        "candidate_selector.successor_codebook": generator.normal(size=(vocab, rank)),
    }
    for index in range(config["num_hidden_layers"]):
        layer = f"layers.{index}."
        tensors |= {
            layer + "input_layernorm.weight": norm(hidden),
            layer + "post_attention_layernorm.weight": norm(hidden),
            layer + "self_attn.q_proj.weight": weight(queries, hidden),
            layer + "self_attn.k_proj.weight": weight(keys, hidden),
            layer + "self_attn.v_proj.weight": weight(keys, hidden),
            layer + "self_attn.o_proj.weight": weight(hidden, queries),
            layer + "self_attn.q_norm.weight": norm(config["head_dim"]),
            layer + "self_attn.k_norm.weight": norm(config["head_dim"]),
            layer + "mlp.gate_proj.weight": weight(inner, hidden),
            layer + "mlp.up_proj.weight": weight(inner, hidden),
            layer + "mlp.down_proj.weight": weight(hidden, inner),
        }
        for name in ("attention_conv", "mlp_conv"):
            base = 0.25 * generator.normal(size=(2, taps, hidden))
            base[:, 0] += 1.0
            tensors[f"{layer}{name}.base_kernel"] = base
            tensors[f"{layer}{name}.kernel_projection.weight"] = weight(2 * taps * groups, hidden, scale=0.2)
    return {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}


def grown(folder: Path, strength: float, seed: int = 0, **changes: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return config and tensors of a v1 drafter with both parts added; at ``strength`` 0 they change nothing."""
    from engine.backends.torch.dflash.stored import read_drafter_tensors
    from engine.drafters.dflash import parse

    config = json.loads((folder / "config.json").read_text())
    stored = {name: tensor.float().numpy() for name, tensor in read_drafter_tensors(folder, parse(config)).items()}
    for key in ("quantization", "quantization_config"):  # what is written is dense
        config.pop(key, None)
    added = {key: value for key, value in NESTED.items() if key.startswith(("conv", "selector"))}
    nested = config["dflash_config"] | added | changes
    config |= {"architectures": ["DFlash2DraftModel"], "dflash_config": nested}
    tensors = random_tensors(SHAPE | config, seed)
    parts = {
        name: tensor * np.float32(strength) for name, tensor in tensors.items() if "conv" in name or "selector" in name
    }
    for name, tensor in parts.items():
        if name.endswith("base_kernel"):
            tensor[:, 0] += np.float32(1.0 - strength)
    return config, parts | stored


def write(folder: Path, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Path:
    """Write a checkpoint folder in z-lab layout."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def softmax(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values - values.max())
    return weights / weights.sum()


class NaiveDFlash2:
    """The formulas over named tensors; ``table`` is the target's embedding and head, ``[vocabulary, D]``."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, np.ndarray], table: np.ndarray) -> None:
        self.config, self.table = config, table.astype(np.float64)
        self.nested = config["dflash_config"]
        self.w = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
        self.eps, self.head_dim = config["rms_norm_eps"], config["head_dim"]
        self.theta = (config.get("rope_parameters") or config)["rope_theta"]

    def hidden(self, features: np.ndarray, anchor: int, count: int) -> np.ndarray:
        """Return ``[1 + count, D]`` after every position of ``features`` ``[positions, captured * D]``."""
        start, w = len(features), self.w
        context = rms(features.astype(np.float64) @ w["fc.weight"].T, w["hidden_norm.weight"], self.eps)
        oldest = max(0, start - self.nested.get("context_tokens", 2048))
        ids = [anchor] + [self.nested["mask_token_id"]] * count
        x = self.table[ids] * self.nested.get("input_embedding_scale", 1.0)
        for index in range(self.config["num_hidden_layers"]):
            layer = f"layers.{index}."
            normed = rms(x, w[layer + "input_layernorm.weight"], self.eps)
            mixed = self._convolved(normed, normed, layer + "attention_conv", 0)
            attended = self._attention(mixed, context, oldest, start, index)
            x = x + self._convolved(attended, normed, layer + "attention_conv", 1)
            normed = rms(x, w[layer + "post_attention_layernorm.weight"], self.eps)
            mixed = self._convolved(normed, normed, layer + "mlp_conv", 0)
            gate, up = mixed @ w[layer + "mlp.gate_proj.weight"].T, mixed @ w[layer + "mlp.up_proj.weight"].T
            inner = (gate / (1.0 + np.exp(-gate)) * up) @ w[layer + "mlp.down_proj.weight"].T
            x = x + self._convolved(inner, normed, layer + "mlp_conv", 1)
        return rms(x, w["norm.weight"], self.eps)

    def _convolved(self, x: np.ndarray, source: np.ndarray, name: str, side: int) -> np.ndarray:
        """Weigh every row and the rows before it, channel by channel; coefficients come from ``source``."""
        base = self.w[name + ".base_kernel"][side]
        taps, hidden = base.shape
        size = self.nested["conv_group_size"]
        out = np.zeros_like(x)
        for row in range(len(x)):
            flat = self.w[name + ".kernel_projection.weight"] @ source[row]
            correction = flat.reshape(2, taps, hidden // size)[side]
            for tap in range(min(taps, row + 1)):
                for group in range(hidden // size):
                    channels = slice(group * size, (group + 1) * size)
                    coefficient = base[tap, channels] + correction[tap, group]
                    out[row, channels] += coefficient * x[row - tap, channels]
        return out

    def _attention(self, u: np.ndarray, context: np.ndarray, oldest: int, start: int, index: int) -> np.ndarray:
        prefix = f"layers.{index}.self_attn."
        places = list(range(oldest, start + len(u)))
        sources = [context[place] if place < start else u[place - start] for place in places]
        keys = np.stack([self._heads(s, prefix, "k", place) for s, place in zip(sources, places, strict=True)])
        values = np.stack([(self.w[prefix + "v_proj.weight"] @ s).reshape(-1, self.head_dim) for s in sources])
        shared = self.config["num_attention_heads"] // self.config["num_key_value_heads"]
        rows = []
        for row in range(len(u)):
            query = self._heads(u[row], prefix, "q", start + row)
            visible = [at for at, place in enumerate(places) if self._sees(start + row, place, index)]
            heads = []
            for head, own in enumerate(query):
                weights = softmax(keys[visible, head // shared] @ own / np.sqrt(self.head_dim))
                heads.append(weights @ values[visible, head // shared])
            rows.append(self.w[prefix + "o_proj.weight"] @ np.concatenate(heads))
        return np.stack(rows)

    def _sees(self, query: int, key: int, index: int) -> bool:
        sliding = self.config["layer_types"][index] == "sliding_attention" and self.config["use_sliding_window"]
        configured = self.nested.get("causal", self.config.get("is_causal"))
        causal = sliding if configured is None else configured
        return not (causal and key > query) and not (sliding and abs(query - key) >= self.config["sliding_window"])

    def _heads(self, source: np.ndarray, prefix: str, side: str, position: int) -> np.ndarray:
        heads = (self.w[f"{prefix}{side}_proj.weight"] @ source).reshape(-1, self.head_dim)
        normed = rms(heads, self.w[f"{prefix}{side}_norm.weight"], self.eps)
        half = self.head_dim // 2
        angles = position * self.theta ** (-np.arange(half) / half)
        first, second = normed[:, :half], normed[:, half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """Return the head's logits ``[rows, vocabulary]`` with multiplier and soft cap."""
        logits = hidden @ self.table.T * self.nested.get("output_multiplier", 1.0)
        cap = self.nested.get("final_logit_softcapping")
        return logits if cap is None else np.tanh(logits / cap) * cap

    def scores(self, before: int, hidden: np.ndarray, logits: np.ndarray) -> dict[int, float]:
        """Return S of every candidate of one row after the token ``before``."""
        name = "candidate_selector."
        code = self.w[name + "predecessor_codebook"][before] * (self.w[name + "hidden_projection.weight"] @ hidden)
        candidates = sorted(np.argsort(-logits)[: self.nested["selector_top_k"]])
        return {int(b): float(logits[b] + code @ self.w[name + "successor_codebook"][b]) for b in candidates}

    def walk(self, anchor: int, hidden: np.ndarray) -> list[int]:
        """Return the greedy walk over the rows of ``hidden`` that follow the anchor's."""
        path = [anchor]
        for row, logits in zip(hidden, self.logits(hidden), strict=True):
            scores = self.scores(path[-1], row, logits)
            path.append(max(scores, key=lambda b: scores[b]))
        return path[1:]

    def proposal(self, anchor: int, path: list[int], hidden: np.ndarray, temperature: float) -> np.ndarray:
        """Return what every token of ``path`` is drawn from, ``[rows, vocabulary]``."""
        probs = np.zeros((len(path), len(self.table)))
        rows = zip([anchor, *path[:-1]], hidden, self.logits(hidden), strict=True)
        for number, (before, row, logits) in enumerate(rows):
            scores = self.scores(before, row, logits)
            probs[number, list(scores)] = softmax(np.array(list(scores.values())) / temperature)
        return probs
