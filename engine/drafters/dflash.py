"""DFlash drafters: what a checkpoint's config and tensor names mean.

Knows no tensors; both backends read their settings here. A DFlash drafter (arXiv 2602.06036) proposes a whole block in
one pass: row 0 is the bonus, the other rows are the mask token, and row j predicts the token at its own position. Its
context is the target's hidden states of chosen layers, projected once per committed position. What DFlash 2 adds is in
``engine.drafters.dflash2``.

Published files and engines disagree on some rules; the reading here:
1. ``block_size``, ``mask_token_id``, ``target_layer_ids`` come from ``dflash_config`` first, then from the top level.
2. ``layer_types`` absent means every layer is full attention; ``use_sliding_window: false`` does too.
3. Full layers see the whole block and sliding layers are causal inside it, unless ``dflash_config.causal``,
   ``dflash_config.is_causal`` or ``is_causal`` says otherwise. A sliding query at q sees keys with q - k < window, on
   both sides when it is not causal. ``dflash_config.use_swa`` makes every layer a sliding one of ``swa_window_size``.
4. ``MuseGlimmerAssistantModel`` (the class in transformers) is bidirectional with abs(q - k) <= window.
5. The target's embedding rows are used unscaled, times ``input_embedding_scale``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from engine.drafters import affine, dflash2
from engine.drafters.affine import AffineCodes
from engine.drafters.dflash2 import DFlash2Config
from engine.drafters.dflash_settings import UNSAID_POSITIONS, DFlashSettings, rope
from engine.errors import ModelConfigError, ModelMismatchError, ModelWeightsError
from engine.types import DrafterInfo, TargetInfo

SUPPORTED = ("DFlashDraftModel", dflash2.ARCHITECTURE, "MuseGlimmerAssistantModel")
CAUSAL = ("ForCausalLM", "ForConditionalGeneration")
"""What the classes of models end with that decode by themselves."""
DEFAULT_CONTEXT_TOKENS = 2048
FLUSH_ROWS = 128
"""Committed rows that may wait for their projection while no draft is wanted: the bound of what is held back."""
_ALIASES = {"encoder.fc.": "fc.", "encoder.output_norm_enc.": "hidden_norm."}


@dataclass(frozen=True, slots=True)
class LayerRule:
    """Which keys a draft layer's query may see. ``reach`` is the largest allowed distance, None for any."""

    reach: int | None
    causal: bool


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """A validated drafter configuration. Sizes are counts; ``block_size`` counts the bonus row."""

    hidden_size: int
    intermediate_size: int
    head_count: int
    kv_head_count: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    max_positions: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    target_layer_count: int | None
    vocab_size: int | None
    layers: tuple[LayerRule, ...]
    softcap: float | None
    output_multiplier: float
    input_embedding_scale: float
    context_tokens: int
    second: DFlash2Config | None
    """The parts that DFlash 2 adds, None in v1."""

    @property
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor a checkpoint must hold, by canonical name."""
        hidden, inner = self.hidden_size, self.intermediate_size
        queries, keys = self.head_count * self.head_dim, self.kv_head_count * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (hidden, hidden * len(self.target_layer_ids)),
            "hidden_norm.weight": (hidden,),
            "norm.weight": (hidden,),
        }
        for index in range(len(self.layers)):
            prefix = f"layers.{index}."
            shapes |= {
                prefix + "input_layernorm.weight": (hidden,),
                prefix + "post_attention_layernorm.weight": (hidden,),
                prefix + "self_attn.q_proj.weight": (queries, hidden),
                prefix + "self_attn.k_proj.weight": (keys, hidden),
                prefix + "self_attn.v_proj.weight": (keys, hidden),
                prefix + "self_attn.o_proj.weight": (hidden, queries),
                prefix + "self_attn.q_norm.weight": (self.head_dim,),
                prefix + "self_attn.k_norm.weight": (self.head_dim,),
                prefix + "mlp.gate_proj.weight": (inner, hidden),
                prefix + "mlp.up_proj.weight": (inner, hidden),
                prefix + "mlp.down_proj.weight": (hidden, inner),
            }
        if self.second is not None and self.vocab_size is not None:
            shapes |= self.second.tensor_shapes(hidden, len(self.layers), self.vocab_size)
        return shapes


def parse(config: Mapping[str, Any]) -> DFlashConfig:
    """Read a drafter's config.json.

    Raises:
        ModelConfigError: If the architecture is another one or a required field is missing or unusable.
    """
    architecture = _architecture(config)
    settings = DFlashSettings.of(config)
    read, whole = settings.read, settings.whole
    if read("sample_from_anchor"):
        raise ModelConfigError(
            "drafter samples from its anchor: its rows stand one token later than DFlash's. Use a DFlash checkpoint."
        )
    _check_computed(config)
    theta, scaling = rope(config)
    heads, hidden, block = (whole(name) for name in ("num_attention_heads", "hidden_size", "block_size"))
    vocab, second = config.get("vocab_size"), architecture == dflash2.ARCHITECTURE
    parsed = DFlashConfig(
        hidden_size=hidden,
        intermediate_size=whole("intermediate_size"),
        head_count=heads,
        kv_head_count=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        rms_norm_eps=settings.positive("rms_norm_eps") or 1e-6,
        rope_theta=theta,
        rope_scaling=scaling,
        max_positions=whole("max_position_embeddings", UNSAID_POSITIONS),
        block_size=block,
        mask_token_id=whole("mask_token_id"),
        target_layer_ids=settings.numbers("target_layer_ids"),
        target_layer_count=config.get("num_target_layers"),
        vocab_size=vocab,
        layers=_layer_rules(config, settings.nested, architecture),
        # Some publishers write 0 for "no cap".
        softcap=settings.positive("final_logit_softcapping") if read("final_logit_softcapping") else None,
        output_multiplier=settings.positive("output_multiplier") or 1.0,
        input_embedding_scale=settings.positive("input_embedding_scale") or 1.0,
        context_tokens=whole("context_tokens", DEFAULT_CONTEXT_TOKENS),
        second=dflash2.parse(read, hidden, block, vocab) if second else None,
    )
    _check_values(parsed)
    return parsed


def _check_computed(config: Mapping[str, Any]) -> None:
    """Check for what a drafter may ask and no backend computes, and for a config of another layout."""
    if "transformer_layer_config" in config:
        raise ModelConfigError(
            "drafter config.json is in the speculators format (transformer_layer_config); expected DFlash's own. Fetch "
            "the drafter as its authors publish it."
        )
    activation = config.get("hidden_act", "silu")
    if activation not in {None, "silu", "swish"}:
        raise ModelConfigError(f"drafter hidden_act is {activation!r}; expected silu. Use another drafter.")
    rotary = config.get("rope_parameters")
    for place in (config, rotary if isinstance(rotary, Mapping) else {}):
        if place.get("partial_rotary_factor") not in {None, 1}:
            raise ModelConfigError(
                f"drafter partial_rotary_factor is {place['partial_rotary_factor']!r}; expected whole heads to be "
                "rotated. Use another drafter."
            )


def is_dflash(config: Mapping[str, Any]) -> bool:
    """Return whether a config is that of a DFlash drafter, whole or not."""
    return "dflash_config" in config or "target_layer_ids" in config or _named(config).endswith(SUPPORTED)


def check_causal(config: Mapping[str, Any], name: str) -> None:
    """Check that a drafter which is no DFlash one is a model by itself.

    Raises:
        ModelConfigError: If it is a head of another kind, such as EAGLE-3's.
    """
    named = _named(config)
    if named and not named.endswith(CAUSAL):
        raise ModelConfigError(
            f"drafter {name!r} is a {named}; expected {', '.join(SUPPORTED)} or a small model of the target's "
            "vocabulary. Use a DFlash checkpoint."
        )


def _named(config: Mapping[str, Any]) -> str:
    """Return the first architecture that a config names, "" where it names none."""
    named = config.get("architectures") or ""
    return str(named if isinstance(named, str) else next(iter(named), ""))


def _architecture(config: Mapping[str, Any]) -> str:
    """Return the architecture, or raise ModelConfigError for one that is not supported."""
    named = _named(config) or SUPPORTED[0]
    # Trainers write the class of their own tree, such as Qwen3DFlashDraftModel; config and tensors say the rest.
    supported = next((architecture for architecture in SUPPORTED if named.endswith(architecture)), None)
    if supported is None:
        raise ModelConfigError(
            f"drafter architecture {named!r} cannot be loaded; expected one of {', '.join(SUPPORTED)}, or one that "
            "ends like that. Use a DFlash checkpoint."
        )
    return supported


def _layer_rules(config: Mapping[str, Any], nested: Mapping[str, Any], architecture: str) -> tuple[LayerRule, ...]:
    count = config.get("num_hidden_layers")
    if count is None:
        raise ModelConfigError("drafter config.json has no 'num_hidden_layers'")
    usual = "sliding_attention" if nested.get("use_swa") else "full_attention"
    kinds = [usual] * count if nested.get("use_swa") else list(config.get("layer_types") or [usual] * count)
    if len(kinds) != count:
        raise ModelConfigError(f"drafter layer_types names {len(kinds)} layers; expected num_hidden_layers = {count}")
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if nested.get("use_swa"):
        window = nested.get("swa_window_size") or config.get("sliding_window")
        if type(window) is not int or window < 1:
            raise ModelConfigError(
                f"drafter swa_window_size is {window!r} with use_swa; expected a whole number of at least 1"
            )
    native = architecture == "MuseGlimmerAssistantModel"
    choices = (nested.get("causal"), nested.get("is_causal"), config.get("is_causal"))
    override = next((choice for choice in choices if choice is not None), None)
    sliding_causal = (not native) if override is None else override
    rules = []
    for kind in kinds:
        if kind not in {"full_attention", "sliding_attention"}:
            raise ModelConfigError(f"drafter layer type {kind!r}; expected full_attention or sliding_attention")
        if kind == "sliding_attention" and window:
            rules.append(LayerRule(reach=int(window) if native else int(window) - 1, causal=bool(sliding_causal)))
        else:
            rules.append(LayerRule(reach=None, causal=bool(override)))
    return tuple(rules)


def _check_values(config: DFlashConfig) -> None:
    if config.block_size < 2:
        raise ModelConfigError(
            f"drafter block_size is {config.block_size}; expected at least 2 (the bonus and a draft)"
        )
    if config.context_tokens < 1:
        raise ModelConfigError(f"drafter context_tokens is {config.context_tokens}; expected at least 1")
    ids = config.target_layer_ids
    if not ids or list(ids) != sorted(set(ids)) or ids[0] < 0:
        raise ModelConfigError(f"drafter target_layer_ids is {list(ids)}; expected ascending zero-based layer numbers")
    if config.head_count % config.kv_head_count:
        raise ModelConfigError(
            f"drafter has {config.head_count} query heads and {config.kv_head_count} key heads; expected a multiple"
        )


def check_fits(config: DFlashConfig, target: TargetInfo) -> None:
    """Check that a drafter belongs to a target.

    Raises:
        ModelMismatchError: If hidden size, layer count, vocabulary or mask id do not fit.
    """
    facts = [
        ("hidden_size", config.hidden_size, target.hidden_size),
        ("num_target_layers", config.target_layer_count, target.layer_count),
        ("vocab_size", config.vocab_size, target.vocab_size),
    ]
    for name, got, expected in facts:
        if got is not None and got != expected:
            raise ModelMismatchError(
                f"drafter {name} is {got}; the target {target.name!r} has {expected}. Use the drafter trained for it."
            )
    if config.target_layer_ids[-1] >= target.layer_count:
        raise ModelMismatchError(
            f"drafter reads target layer {config.target_layer_ids[-1]}; {target.name!r} has {target.layer_count} "
            "layers. Use the drafter trained for it."
        )
    if not 0 <= config.mask_token_id < target.vocab_size:
        raise ModelMismatchError(
            f"drafter mask_token_id is {config.mask_token_id}; expected 0 <= id < vocabulary size {target.vocab_size}"
        )


def info_of(config: DFlashConfig, name: str, digest: str, parameters: int) -> DrafterInfo:
    """Return what a report says of a drafter."""
    return DrafterInfo(
        name=name,
        digest=digest,
        format="dflash-v1" if config.second is None else "dflash-v2",
        parameters=parameters,
        block_size=config.block_size,
        settings={
            "target_layer_ids": list(config.target_layer_ids),
            "context_tokens": config.context_tokens,
            "layers": [asdict(rule) for rule in config.layers],
            "input_embedding_scale": config.input_embedding_scale,
        }
        | ({} if config.second is None else asdict(config.second)),
    )


def canonical_name(name: str) -> str:
    """Return the z-lab name of a tensor: no leading ``model.``, encoder aliases resolved, codebooks bare."""
    name = name.removeprefix("model.")
    if name.removesuffix(".weight") in dflash2.CODEBOOKS:
        return name.removesuffix(".weight")
    for alias, canonical in _ALIASES.items():
        if name.startswith(alias):
            return canonical + name.removeprefix(alias)
    return name


def dense_tensors(
    config: DFlashConfig, loaded: Mapping[str, Any], dequantise: Callable[[AffineCodes[Any]], Any]
) -> dict[str, Any]:
    """Return a checkpoint's tensors by canonical name, those stored as codes as the values they stand for.

    Raises:
        ModelWeightsError: If a tensor is missing, unexpected, of another shape or of codes that cannot be read.
    """
    named = {canonical_name(name): tensor for name, tensor in loaded.items()}
    tensors = affine.dense(named, config.tensor_shapes, dequantise)
    check_tensors(config, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
    return tensors


def check_tensors(config: DFlashConfig, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check canonical tensor names and shapes of a checkpoint.

    Raises:
        ModelWeightsError: If a tensor is missing, unexpected or has another shape.
    """
    expected = config.tensor_shapes
    missing, extra = sorted(expected.keys() - shapes.keys()), sorted(shapes.keys() - expected.keys())
    if missing or extra:
        raise ModelWeightsError(
            f"drafter tensors do not match its config: missing {missing[:4]} ({len(missing)} in all), "
            f"unexpected {extra[:4]} ({len(extra)} in all). Fetch weights and config of the same drafter."
        )
    for name, shape in expected.items():
        if tuple(shapes[name]) != shape:
            raise ModelWeightsError(
                f"drafter tensor {name} has shape {tuple(shapes[name])}; expected {shape} by its config. Fetch weights "
                "and config of the same drafter."
            )
