"""A GGUF file held against what transformers makes of it: whatever it would leave out or take otherwise is named.

transformers reads tensors, settings and the tokenizer of such a file by tables of its own, and leaves out what stands
in none of them. Here each setting and each value of a file is found again in the model, or the file is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from engine.conversion.gguf_header import TOKENS, GgufHeader
from engine.errors import ModelWeightsError

ENDS: Final = ("eos", "eot", "eom")
"""What GGUF calls the ends of a text, of a turn, and of a message that waits for a tool."""
BY_FACTOR: Final = ("linear", "yarn")
"""The ways in which a GGUF file scales positions by its factor alone, and by 1 not at all."""
FACTORS: Final = "rope_freqs.weight"
"""The tensor of a GGUF file by which the period of each pair is multiplied."""
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "attention.causal": ("causal",),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.sliding_window": ("sliding_window",),
    "attention.value_length": ("head_dim",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "context_length": ("max_position_embeddings",),
    "embedding_length": ("hidden_size",),
    "expert_count": ("num_experts", "num_local_experts"),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "expert_used_count": ("num_experts_per_tok",),
    "feed_forward_length": ("intermediate_size",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "full_attention_interval": ("full_attention_interval",),
    "rope.dimension_count": ("rotated",),
    "rope.freq_base": ("rope_theta",),
    "rope.freq_base_swa": ("rope_local_base_freq",),
    "ssm.conv_kernel": ("linear_conv_kernel_dim",),
    "ssm.group_count": ("linear_num_key_heads",),
    "ssm.state_size": ("linear_key_head_dim",),
    "ssm.time_step_rank": ("linear_num_value_heads",),
    "vocab_size": ("vocab_size",),
}
"""What a file says of its model behind the name of its architecture, each with what a config calls it."""
UNCOMPARED: Final = re.compile(
    r"block_count|nextn_predict_layers|pooling_type|rope\.dimension_sections|rope\.scal.*|ssm\.inner_size|"
    r"tensor_data_layout"
)
"""What is checked by the tensors or on its own, and what says nothing of how a text is computed."""
BY_DIGIT: Final = frozenset({"codeshell", "command-r", "exaone", "minerva-7b", "refact", "smollm", "starcoder"})
"""What llama.cpp calls a tokenizer that takes each digit by itself, and everything else as GPT-2 does."""
AS_GPT2: Final = frozenset({"gpt-2", "jais", "mpt", "olmo", "phi-2", "trillion"})
"""What it calls one that splits a text as GPT-2 does."""
WORDS: Final = "tokenizer.ggml.pre"
LLAMA3: Final = frozenset({"llama-bpe", "llama-v3", "llama3"})
"""What it calls that of Llama 3, before whose texts it puts their first token unless a file says otherwise."""
FIRST: Final = "tokenizer.ggml.add_bos_token"
PREFIX: Final = "tokenizer.ggml.add_space_prefix"
SPACE: Final = "\u2581"
"""What SentencePiece writes for a space."""
_BLOCK: Final = re.compile(r"blk\.([0-9]+)\.")


def check_positions(file: Path, header: GgufHeader) -> None:
    """Check that a file scales no positions: what it says of that transformers leaves out when it reads GGUF.

    llama.cpp writes the kind and the factor, and for Llama 3 a tensor of factors. It takes a factor without a kind for
    a linear one, and none, or 0, for 1.

    Raises:
        ModelWeightsError: If it does.
    """
    own = header.architecture
    kind, factor, older = (
        header.values.get(f"{own}.rope.{name}") for name in ("scaling.type", "scaling.factor", "scale_linear")
    )
    kind, factor = kind or "linear", older if factor is None else factor
    plain = kind == "none" or (kind in BY_FACTOR and factor in {None, 0.0, 1.0})
    scaled = None if plain else f"by {kind} with factor {factor}"
    if own == "llama" and FACTORS in header.tensors:
        scaled = f"by {FACTORS}"
    if scaled is not None:
        raise ModelWeightsError(
            f"{file.name} scales positions {scaled}, which transformers leaves out when it reads GGUF; the model would "
            "be another one. Add the folder of the model instead"
        )


def check_settings(file: Path, header: GgufHeader, config: Mapping[str, Any]) -> None:
    """Check that a config says what the file says: transformers takes its own defaults for settings it does not read.

    Args:
        file: The GGUF file.
        header: Of the file.
        config: What transformers made of it, with its rotary settings under their older names too.

    Raises:
        ModelWeightsError: If a setting is another one, or none that is known here.
    """
    own = f"{header.architecture}."
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    made = {**config, "causal": True, "head_dim": head}
    made["rotated"] = head * (config.get("partial_rotary_factor") or 1)
    lists = {name: f"a list of {count}" for name, count in header.lengths.items()}
    settings = {name[len(own) :]: value for name, value in (header.values | lists).items() if name.startswith(own)}
    settings.setdefault("attention.sliding_window", None)
    for name, value in settings.items():
        if UNCOMPARED.fullmatch(name):
            continue
        expected = next((made[key] for key in SETTINGS.get(name, ()) if made.get(key) is not None), None)
        if not _same(value, expected):
            raise ModelWeightsError(
                f"{file.name} says that {own}{name} is {value}, and the model that transformers makes of it has "
                f"{'no such setting' if expected is None else expected}; it would be another one. Add the folder of "
                "the model instead"
            )


def _same(value: Any, expected: Any) -> bool:
    """Return whether two settings are the same within the 32 bits of a GGUF file's floats; none is nothing."""
    numbers = [0 if each is None else each for each in (value, expected)]
    if not all(isinstance(each, int | float) for each in numbers):
        return False
    return math.isclose(*numbers, rel_tol=1e-6)


def check_values(file: Path, header: GgufHeader, tensors: Mapping[str, Any], layers: int) -> None:
    """Check that transformers has a place for every value of a file: it drops a tensor that it has none for.

    Values are counted, as experts lie otherwise in a file than in a model. Blocks behind the last layer are a head for
    several tokens where the file says so.

    Args:
        file: The GGUF file.
        header: Of the file.
        tensors: Of the model that transformers made of it, by name, a head that is the embedding left out.
        layers: How many layers that model has.

    Raises:
        ModelWeightsError: If it has not.
    """
    ahead = header.values.get(f"{header.architecture}.nextn_predict_layers") or 0
    counts = {
        name: math.prod(shape)
        for name, shape in header.tensors.items()
        if not ahead or (match := _BLOCK.match(name)) is None or int(match[1]) < layers
    }
    biases = {name: count for name, count in counts.items() if name.endswith(".bias")}
    used = sum(int(tensor.numel()) for name, tensor in tensors.items() if name.endswith("bias"))
    if sum(biases.values()) > used:
        raise ModelWeightsError(
            f"{file.name} holds the biases {sorted(biases)[:4]} ({len(biases)} in all), some of which the "
            f"{header.architecture} model that transformers makes of it has no place for; it would be another model. "
            "Add the folder of the model instead"
        )
    stored, used = sum(counts.values()), sum(int(tensor.numel()) for tensor in tensors.values())
    if stored != used:
        raise ModelWeightsError(
            f"{file.name} holds {stored:,} values, and the {header.architecture} model that transformers makes of it "
            f"has {used:,}: it leaves tensors out, and it would be another model. Add the folder of the model instead"
        )


def split_words(file: Path, header: GgufHeader, tokenizer: Any) -> None:
    """Have a tokenizer split a text as the file says, where transformers splits it as GPT-2 did for want of a rule.

    Raises:
        ModelWeightsError: If the file names a rule that is not known here, or none.
    """
    from tokenizers import pre_tokenizers

    built, kind = tokenizer.backend_tokenizer, header.values.get(WORDS)
    split = built.pre_tokenizer
    if header.values.get("tokenizer.ggml.model") != "gpt2" or not isinstance(split, pre_tokenizers.ByteLevel):
        return
    if kind in BY_DIGIT:
        built.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split])
    elif kind not in AS_GPT2:
        raise ModelWeightsError(
            f"{file.name} says that its tokenizer splits a text as {kind!r}, which transformers has no rule for; a "
            "prompt would be other tokens. Add the folder of the model instead"
        )


def add_first_token(header: GgufHeader, tokenizer: Any) -> None:
    """Have a tokenizer of Llama 3 begin texts with their first token where the file does not say whether to.

    So do llama.cpp and the tokenizer that such a file was made of; transformers takes silence for no.
    """
    if header.values.get(WORDS) in LLAMA3 and FIRST not in header.values:
        tokenizer.add_bos_token = True


def drop_prefix_space(header: GgufHeader, tokenizer: Any) -> None:
    """Have a tokenizer put no space before a text where the file says so: transformers builds it without that entry.

    What puts none before a text takes none away from an answer either.
    """
    from tokenizers import decoders, pre_tokenizers

    built = tokenizer.backend_tokenizer
    # Of those that transformers builds, what puts a space before a text strips one, and Gemma's does neither.
    if header.values.get(PREFIX) is not False or "Strip(" not in repr(built.decoder):
        return
    built.normalizer = None
    built.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="never", split=False)
    built.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])


def ends(header: GgufHeader) -> list[int]:
    """Return the ids of the tokens that a file says end a text, a turn or a message; transformers reads the first."""
    named = [header.values.get(f"tokenizer.ggml.{name}_token_id") for name in ENDS]
    return list(dict.fromkeys(index for index in named if type(index) is int and 0 <= index < header.lengths[TOKENS]))
