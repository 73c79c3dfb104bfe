"""The structure of a decoder: its layers' kinds, windows and states, read from config.json and checked.

Every backend runs the layers as this says, whoever computes them. Nothing is guessed: what a config asks for and no
backend computes is an error that names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checkpoint import text_config
from engine.errors import ModelConfigError
from engine.structure.families import FAMILIES, FULL, LINEAR, SLIDING, Config, Family, model_type, window_of

ROPE_TYPES = frozenset({"default", "dynamic", "linear", "llama3", "proportional", "yarn"})
"""Rotary types whose tables depend on the position alone within the model's context; ``longrope`` tables do not."""
ORIGINAL = "original_max_position_embeddings"
UNSAID_POSITIONS = 131072
"""What a model is taken to hold whose config does not say."""
SCALED = frozenset({"dynamic", "linear", "llama3", "yarn"})
"""Of these, those that cannot do without a factor."""
ACTIVATIONS = frozenset(
    {
        *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh"),
        *("gelu_pytorch_tanh", "hardswish", "laplace", "leaky_relu", "linear", "mish", "prelu", "quick_gelu", "relu"),
        *("relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "swish", "tanh", "xielu"),
    }
)
"""What ``hidden_act`` may be called, as far as transformers has a function for it; mlx-lm has one a model type."""
ROTARY_PLACES = ("rope_scaling", "rope_parameters")
BASES = ("rope_theta", "rope_local_base_freq")
STATE_SIZES = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)


@dataclass(frozen=True, slots=True)
class Structure:
    """The layers of a decoder.

    Attributes:
        model_type: of the language model, whatever wraps it.
        kinds: of every layer: ``full_attention``, ``sliding_attention`` or ``linear_attention`` (recurrent).
        owners: how many layers keep rows or a state of their own; those behind share an earlier layer's rows.
        window: positions that a sliding layer attends to, None where there is no such layer.
        head_dim: values of a head, where layers do not differ.
        tied: whether the head is the embedding.
        activation: of the feed-forward layers.
        soft_cap: bound of the logits, None for none.
    """

    model_type: str
    kinds: tuple[str, ...]
    owners: int
    window: int | None
    head_dim: int
    tied: bool
    activation: str
    soft_cap: float | None

    @property
    def family(self) -> Family:
        """What is known of the model type."""
        return FAMILIES[self.model_type]

    @property
    def recurrent(self) -> tuple[int, ...]:
        """The layers that keep a state instead of rows."""
        return tuple(index for index, kind in enumerate(self.kinds) if kind == LINEAR)

    @property
    def attending(self) -> tuple[int, ...]:
        """The layers that keep rows of keys and values."""
        return tuple(index for index, kind in enumerate(self.kinds[: self.owners]) if kind != LINEAR)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The window of every layer that keeps rows, None on full-attention layers."""
        return tuple(self.window if self.kinds[index] == SLIDING else None for index in self.attending)

    @property
    def sources(self) -> tuple[int, ...]:
        """The layer whose rows each layer attends to: itself, or the last one of its kind that keeps rows."""
        last = {kind: index for index, kind in enumerate(self.kinds[: self.owners])}
        return tuple(index if index < self.owners else last[kind] for index, kind in enumerate(self.kinds))


def read_structure(config: Config) -> Structure:
    """Return the structure that a config.json describes.

    Raises:
        ModelConfigError: If it describes none, or one that is not computed.
    """
    kind = model_type(config)
    family = FAMILIES[kind]
    text = {**family.defaults, **text_config(config), "model_type": kind}
    for name in ("num_hidden_layers", "num_attention_heads", "hidden_size"):
        if type(text.get(name)) is not int:
            inside = text_config(config) is not config and name not in text_config(config)
            remedy = (
                ". Its publisher left that to a library: add it to text_config of its config.json" if inside else ""
            )
            raise ModelConfigError(
                f"{name} is {text.get(name)!r} for model type {kind!r}; expected a whole number{remedy}"
            )
    kinds = _kinds(text, family)
    _check_rotary(text, family)
    _check_places(text_config(config), family)
    _check_attention(text)
    activation = text.get("hidden_act") or text.get("hidden_activation") or family.activation
    if activation not in ACTIVATIONS:
        raise ModelConfigError(
            f"hidden_act is {activation!r}, which neither library computes; expected one of "
            f"{', '.join(sorted(ACTIVATIONS))}. Fetch config.json again."
        )
    if LINEAR in kinds:
        _check_state(text)
    _check_experts(text)
    head = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    cap, tied = text.get("final_logit_softcapping"), config.get("tie_word_embeddings")
    if tied is None:
        # A wrapper that says nothing leaves it to its language model, as in transformers.
        tied = text.get("tie_word_embeddings")
    return Structure(
        model_type=kind,
        kinds=tuple(kinds),
        owners=len(kinds) - int(text.get("num_kv_shared_layers") or 0),
        window=window_of(text) if SLIDING in kinds else None,
        head_dim=int(head),
        tied=family.tied if tied is None else bool(tied),
        activation=str(activation),
        soft_cap=None if cap is None else float(cap),
    )


def structure_of(folder: Path, config: Config) -> Structure:
    """Return the structure of the decoder in a folder.

    Raises:
        ModelConfigError: If its config describes none, or one that is not computed.
    """
    try:
        return read_structure(config)
    except ModelConfigError as error:
        raise ModelConfigError(f"{folder}: {error}") from error


def rotary_entries(text: Config) -> list[Config]:
    """Return the rotary settings of a config: one for all layers, or one for each kind of layer."""
    entries: list[Config] = []
    for place in map(text.get, ROTARY_PLACES):
        if isinstance(place, dict):
            nested = [entry for entry in place.values() if isinstance(entry, dict)]
            entries += nested or [place]
    return entries


def positions_of(text: Config) -> int:
    """Return how many positions a model holds: as many as its config says, or as YaRN stretches its context to.

    Publishers tell their users to add YaRN to a config whose ``max_position_embeddings`` stays as it was.
    """
    lengths = [int(text.get("max_position_embeddings") or UNSAID_POSITIONS)]
    for entry in rotary_entries(text):
        factor, original = entry.get("factor"), original_positions(text, entry)
        if rope_type(entry) == "yarn" and factor and original:
            lengths.append(int(factor * original))
    return max(lengths)


def original_positions(text: Config, entry: Config) -> Any:
    """Return the context that an entry scales, None where nobody says; transformers goes by what stands beside it."""
    return text.get(ORIGINAL) or entry.get(ORIGINAL)


def rope_type(entry: Config) -> str:
    """Return the rotary type of one entry; older configs call it ``type``."""
    return str(entry.get("rope_type") or entry.get("type") or "default")


def older_names(text: Config) -> dict[str, Any]:
    """Return what ``rope_parameters`` says, under its older names.

    As in transformers it counts where both places say something, but for a scaling: the older place's hides it.
    """
    rotary = text.get("rope_parameters")
    if not isinstance(rotary, dict):
        return {}
    by_kind, local = rotary.get(FULL), rotary.get(SLIDING)
    entry = by_kind if isinstance(by_kind, dict) else rotary
    added = {
        "rope_theta": entry.get("rope_theta"),
        "rope_scaling": None if rope_type(entry) == "default" else dict(entry),
        "partial_rotary_factor": entry.get("partial_rotary_factor"),
        "rope_local_base_freq": local.get("rope_theta") if isinstance(local, dict) else None,
    }
    hidden = {"rope_scaling"} if text.get("rope_scaling") else set[str]()
    return {name: value for name, value in added.items() if value is not None and name not in hidden}


def _kinds(text: Config, family: Family) -> list[str]:
    """Return the kind of every layer, checked."""
    listed, count = text.get("layer_types"), text["num_hidden_layers"]
    expected = (FULL, LINEAR) if family.hybrid else (FULL, SLIDING)
    default = family.kinds(text)
    if listed is None:
        kinds = default
    elif not isinstance(listed, list) or len(listed) != count:
        got = len(listed) if isinstance(listed, list) else repr(listed)
        raise ModelConfigError(f"layer_types lists {got} layers; expected a list of {count}, as num_hidden_layers says")
    elif not family.listed and listed != default:
        raise ModelConfigError(
            f"layer_types of model type {text['model_type']!r} differs from {_short(default)}, which is all that its "
            "code computes. Remove layer_types, or use the model type that was meant."
        )
    else:
        kinds = list(listed)
    unknown = sorted({str(kind) for kind in kinds} - set(expected))
    if unknown:
        raise ModelConfigError(
            f"layer kinds {unknown} in layer_types of model type {text['model_type']!r}; expected "
            f"{' and '.join(expected)}"
        )
    if SLIDING in kinds and window_of(text) is None:
        raise ModelConfigError("sliding layers without a window; expected sliding_window to be a whole number")
    return kinds


def _check_rotary(text: Config, family: Family) -> None:
    for place in ROTARY_PLACES:
        if text.get(place) is not None and not isinstance(text[place], dict):
            raise ModelConfigError(f"{place} is {text[place]!r}; expected an object. Fetch config.json again.")
    entries = rotary_entries(text)
    unknown = sorted({rope_type(entry) for entry in entries} - ROPE_TYPES)
    if unknown:
        raise ModelConfigError(
            f"rope type {unknown} is not supported; expected one of {', '.join(sorted(ROPE_TYPES))}. "
            "Use a checkpoint without it."
        )
    for entry in (text, *entries):
        for name in (*BASES, *([] if entry is text else ["factor"])):
            value = entry.get(name)
            if value is not None and (type(value) not in {int, float} or not 0 < value < math.inf):
                raise ModelConfigError(f"{name} is {value!r}; expected a number above 0. Fetch config.json again.")
        share = entry.get("partial_rotary_factor")
        if share not in {None, 1} and not family.partial:
            raise ModelConfigError(
                f"partial_rotary_factor is {share!r}; model type {text['model_type']!r} rotates whole heads. Remove "
                "it, or use the model type that was meant."
            )
    lacking = [rope_type(entry) for entry in entries if rope_type(entry) in SCALED and entry.get("factor") is None]
    if lacking:
        raise ModelConfigError(f"rope type {lacking[0]!r} has no 'factor'; expected it beside the type")


def _check_places(text: Config, family: Family) -> None:
    """Check that no scaling in the older place hides a base: transformers then reads the older place alone."""
    older, newer = (text.get(place) for place in ROTARY_PLACES)
    if not isinstance(older, dict) or not isinstance(newer, dict) or not older:
        return
    places = (newer, older, text, family.defaults)
    value, *others = (place.get("rope_theta") for place in places)
    if value not in {None, next((base for base in others if base is not None), None)}:
        raise ModelConfigError(
            f"rope_theta is {value!r} in rope_parameters beside a rope_scaling, for which transformers leaves it out; "
            "expected all of it in one place. Move what rope_scaling says into rope_parameters in config.json."
        )


def _check_attention(text: Config) -> None:
    if text.get("use_bidirectional_attention") in {True, "all"}:
        raise ModelConfigError("the target attends to later tokens; expected a causal language model")
    if text.get("attn_logit_softcapping") is not None:
        raise ModelConfigError("attn_logit_softcapping is set; attention with soft-capped scores is not supported")


def _check_state(text: Config) -> None:
    """Check the sizes of a recurrent state: all of them or none can be used."""
    missing = [name for name in STATE_SIZES if type(text.get(name)) is not int or text[name] < 1]
    if missing:
        raise ModelConfigError(
            f"{missing[0]} is {text.get(missing[0])!r} in a config with recurrent layers; expected whole numbers of at "
            f"least 1 for {_short(STATE_SIZES)}. Fetch config.json again."
        )
    keys, values = text["linear_num_key_heads"], text["linear_num_value_heads"]
    if values % keys:
        raise ModelConfigError(f"linear_num_value_heads is {values}; expected a multiple of {keys}, the key heads")


def _check_experts(text: Config) -> None:
    experts = text.get("num_experts") or text.get("num_local_experts") or 0
    chosen = text.get("num_experts_per_tok") or text.get("top_k_experts") or 0
    if experts and not 0 < chosen <= experts:
        raise ModelConfigError(f"{chosen} experts a token of {experts}; expected at least 1 and at most all of them")


def _short(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
