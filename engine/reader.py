"""The one reader of a model folder: what its files say, as one record that both backends and a person get.

Knows no array library. Structure, stop ids, tensors, template, tokenizer and number format are read here and nowhere
else, so that no part of the engine can see less of a folder than another.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.chat import CLOCK, DEFAULT, chat_templates, read_names
from engine.checkpoint import (
    GENERATION_CONFIG,
    SAME_MODEL,
    check_files,
    lost_files,
    missing_tensors,
    named_dtype,
    quantisation_of,
    read_object,
    read_target_config,
    stop_sources,
    text_config,
    tokenizer_settings,
    unused_tensors_of,
)
from engine.errors import ModelConfigError, ModelWeightsError
from engine.structure.decoder import Structure, positions_of, rope_type, rotary_entries, structure_of
from engine.structure.families import model_type
from engine.structure.stored import (
    FLOATS,
    beside_text,
    check_stored_once,
    head_name,
    same_values,
    stored_tensors,
    unused_tensors,
)

CAUSAL = ("ForCausalLM", "ForConditionalGeneration")
"""What the classes of models end with that write text."""
ADAPTER = "adapter_config.json"
ARGUMENTS = ("enable_thinking", "thinking", "reasoning_effort", "tools", "documents", "date_string")
"""What published templates read beside the messages, and a request may say."""
UNAPPLIED = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "bad_words_ids": None, "forced_bos_token_id": None}
"""What a generation_config may ask for and greedy decoding here leaves out, each with what means nothing."""
PACKERS = frozenset(
    {
        *("aqlm", "auto-round", "awq", "bitnet", "bitsandbytes", "compressed-tensors", "eetq", "fbgemm_fp8"),
        *("fouroversix", "fp8", "fp_quant", "gemma", "gguf", "gptq", "higgs", "hqq", "metal", "modelopt", "mxfp4"),
        *("mxfp8", "nvfp4", "quanto", "quark", "sinq", "spqr", "torchao", "vptq"),
    }
)
"""What ``quant_method`` may be called, as far as transformers or mlx-lm have code for it."""
PACKED_BY = {"quantization": ("bits", "group_size"), "quantization_config": ()}
"""Where a config says how weights are packed, each with the whole numbers that it must have there."""
_LAYER = re.compile(r"(?:^|\.)layers\.([0-9]{1,5})\.")
_BIAS = re.compile(r"self_attn\.([qkvo])_proj\.bias$")
VOCABULARY = ("embed_tokens.weight", "lm_head.weight")
"""What the tensors are called that have a row for each token, packed or not."""
BIASED = frozenset({"qwen2", "gpt_oss"})
"""Model types whose projections have biases whatever the config says."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """What the files of a folder store.

    Attributes:
        count: how many tensors there are.
        missing: what the config describes and no file holds, as far as names alone can tell.
        unused: what a file holds and no model of this config computes with.
        beside: how many belong to towers for images and sound or to heads for several tokens.
        head: how many belong to a head for several tokens, which ``--drafter mtp`` drafts with.
        kinds: types of the values in safetensors' words, each with how many tensors have it.
        rows: of the embedding and of a head of its own, by the tensor's name; as many as the vocabulary has tokens.
    """

    count: int
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    beside: int
    head: int
    kinds: Mapping[str, int]
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Template:
    """The chat template of a folder.

    Attributes:
        names: of all its templates.
        arguments: what the usual one reads beside the messages.
        reads_clock: whether it writes the day into a prompt.
        sha256: of the usual one's text, hex.
    """

    names: tuple[str, ...]
    arguments: tuple[str, ...]
    reads_clock: bool
    sha256: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a target's folder says.

    Attributes:
        folder: the model's.
        name: what the model is called: its folder, or its name in the Hugging Face cache.
        config: config.json.
        structure: of the decoder.
        positions: how many the model holds.
        stops: the ids that end an answer, each with the files that name it.
        tensors: of its files.
        template: its chat template, None for a base model.
        tokenizer_class: what tokenizer_config.json calls it.
        legacy: whether its tokenizer says that it is of the older kind.
        quantisation: how weights are packed, None where they are not.
        dtype: what the config says the weights are.
        mended: what a library computes otherwise and the engine sets right.
        unapplied: what the files ask for and decoding here leaves out.
        differing: what the two libraries compute otherwise than each other, and is left as each has it.
    """

    folder: Path
    name: str
    config: Mapping[str, Any]
    structure: Structure
    positions: int
    stops: Mapping[int, tuple[str, ...]]
    tensors: Tensors
    template: Template | None
    tokenizer_class: str | None
    legacy: bool | None
    quantisation: str | None
    dtype: str | None
    mended: tuple[str, ...]
    unapplied: tuple[str, ...]
    differing: tuple[str, ...]

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end an answer."""
        return tuple(self.stops)

    @property
    def reading(self) -> dict[str, Any]:
        """What a report says of how its target's folder was read: the digest of the whole record, and its notes."""
        notes = {name: list(getattr(self, name)) for name in ("mended", "unapplied", "differing")}
        return {"digest": self.digest(), **notes}

    def stated(self) -> dict[str, Any]:
        """Return the record as JSON can say it, without the folder it lies in."""
        record = asdict(self)
        for name in ("folder", "config"):
            del record[name]
        record["stops"] = {str(index): list(files) for index, files in self.stops.items()}
        record["structure"]["kinds"] = list(self.structure.kinds)
        loaded: dict[str, Any] = json.loads(json.dumps(record))
        return loaded

    def digest(self) -> str:
        """Return sha256 hex of what was read."""
        text = json.dumps(self.stated(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def check_tensors(self) -> None:
        """Check that the files hold what the config describes and nothing else.

        Raises:
            ModelWeightsError: If they do not.
        """
        check_files(self.folder)
        lost = lost_files(self.folder) if self.tensors.missing else None
        if lost is not None:
            raise lost
        check_stored_once(self.folder)
        if self.tensors.missing:
            raise missing_tensors(self.folder, self.tensors.missing)
        if self.tensors.unused:
            raise unused_tensors_of(self.folder, self.tensors.unused)
        _check_tie(self)
        expected = text_config(self.config).get("vocab_size") or self.config.get("vocab_size")
        for name, rows in self.tensors.rows.items():
            if expected not in {None, rows}:
                raise ModelWeightsError(
                    f"tensor {name} in {self.folder} has {rows} rows; expected {expected}, the vocab_size of its "
                    f"config.json. {SAME_MODEL}"
                )


def read_checkpoint(folder: Path) -> Checkpoint:
    """Return what a target's folder says.

    Raises:
        ModelConfigError: If its files cannot be read, or describe no target that is decoded here.
        ModelWeightsError: If it holds no weights.
    """
    try:
        return _read(folder)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # Not every value that somebody may write is checked by its name.
        raise ModelConfigError(f"cannot read {folder}: {type(error).__name__}: {error}; check its files") from error


def _read(folder: Path) -> Checkpoint:
    _check_target(folder)
    config = read_target_config(folder)
    _check_packer(folder, config)
    structure = structure_of(folder, config)
    text = text_config(config)
    settings = tokenizer_settings(folder)
    legacy = settings.get("legacy")
    dtype = named_dtype(config)
    return Checkpoint(
        folder=folder,
        name=model_name(folder),
        config=config,
        structure=structure,
        positions=positions_of(text),
        stops=stop_sources(folder, config),
        tensors=_tensors(folder, structure, text),
        template=_template(folder),
        tokenizer_class=None if (kind := settings.get("tokenizer_class")) is None else str(kind),
        legacy=legacy if isinstance(legacy, bool) else None,
        quantisation=quantisation_of(config),
        dtype=dtype,
        mended=_mended(structure, {**structure.family.defaults, **text}),
        unapplied=_unapplied(folder),
        differing=_differing(structure, dtype),
    )


def model_name(folder: Path) -> str:
    """Return what a model is called: a snapshot of the Hugging Face cache by its model, not by its commit."""
    repository = folder.parent.parent.name
    if folder.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.rpartition("--")[2]
    return folder.name


def _check_target(folder: Path) -> None:
    """Check that a folder holds a model that writes text, before a size of it is read."""
    path = folder / "config.json"
    if (folder / ADAPTER).is_file():
        raise ModelConfigError(
            f"{folder} holds a LoRA adapter ({ADAPTER}), no model; expected a whole checkpoint. Merge the adapter into "
            "its base model first."
        )
    config = read_object(path)
    if "dflash_config" not in config:
        try:
            model_type(config)
        except ModelConfigError as error:
            raise ModelConfigError(f"{folder}: {error}") from error
        named = config.get("architectures")
        first = next(iter(named), None) if isinstance(named, list) else None
        if isinstance(first, str) and not first.endswith(CAUSAL):
            raise ModelConfigError(
                f"{folder} holds a {first}, which writes no text; expected a class that ends in "
                f"{' or '.join(CAUSAL)}. Use a checkpoint of a language model."
            )


def _check_tie(read: Checkpoint) -> None:
    """Check that a head which is the embedding is not stored as something else: each library takes another then."""
    stored = stored_tensors(read.folder)
    heads = [name for name in read.tensors.rows if name.endswith("lm_head.weight") and stored[name][0] in FLOATS]
    embeddings = [name for name in read.tensors.rows if name.endswith("embed_tokens.weight")]
    if read.structure.tied and heads and embeddings and not same_values(read.folder, heads[0], embeddings[0]):
        raise ModelWeightsError(
            f"{read.folder} says that its head is its embedding (tie_word_embeddings) and stores another {heads[0]}; "
            "expected the same values or none. Set tie_word_embeddings to what was meant, or remove the tensor"
        )


def _check_packer(folder: Path, config: Mapping[str, Any]) -> None:
    """Check that one of the libraries knows who packed the weights; transformers would leave that out."""
    for name, numbers in PACKED_BY.items():
        entry = config.get(name)
        if entry is not None and not isinstance(entry, Mapping):
            raise ModelConfigError(f"{name} in {folder} is {entry!r}; expected an object. Fetch config.json again.")
        stated = entry or {}
        wrong = [number for number in numbers if entry is not None and type(stated.get(number)) is not int]
        if wrong:
            raise ModelConfigError(
                f"{name} in {folder} has {wrong[0]} {stated.get(wrong[0])!r}; expected a whole number, as mlx-lm "
                "writes it. Fetch config.json again."
            )
    for part in (config, text_config(config)):
        entry = part.get("quantization_config")
        method = entry.get("quant_method") if isinstance(entry, Mapping) else None
        if method is not None and method not in PACKERS:
            raise ModelConfigError(
                f"{folder} is packed by {method!r}, which neither library reads; expected one of "
                f"{', '.join(sorted(PACKERS))}. Use a copy of the model packed by one of these, or not at all."
            )


def _tensors(folder: Path, structure: Structure, text: Mapping[str, Any]) -> Tensors:
    stored = stored_tensors(folder)
    own = [name for name in unused_tensors(stored) if not beside_text(name)]
    layers, count = {int(match[1]) for name in own if (match := _LAYER.search(name))}, len(structure.kinds)
    missing = [f"layers.{index}" for index in range(count) if stored and index not in layers]
    if stored and not any("embed_tokens." in name for name in own):
        missing.append("embed_tokens")
    if stored and not structure.tied and not any("lm_head." in name for name in own):
        missing.append("lm_head")
    unused = [name for name in own if (match := _LAYER.search(name)) and int(match[1]) >= count]
    biased = text.get("attention_bias") or text.get("qkv_bias") or structure.model_type in BIASED
    unused += [] if biased else [name for name in own if _BIAS.search(name) and name not in unused]
    kinds: dict[str, int] = {}
    for kind, _ in stored.values():
        kinds[kind] = kinds.get(kind, 0) + 1
    whole = [name for name in own if name.endswith(VOCABULARY) and (stored[name][0] in FLOATS or _codes(name, stored))]
    rows = {name: stored[name][1][0] for name in whole if stored[name][1]}
    head = sum(head_name(name) is not None for name in stored)
    return Tensors(len(stored), tuple(missing), tuple(unused), sum(map(beside_text, stored)), head, kinds, rows)


def _codes(name: str, stored: Mapping[str, Any]) -> bool:
    """Return whether a matrix is stored as codes row by row, its scales beside."""
    return f"{name.removesuffix('.weight')}.scales" in stored


def _template(folder: Path) -> Template | None:
    templates = chat_templates(folder)
    if not templates:
        return None
    usual = templates.get(DEFAULT) or next(iter(templates.values()))
    argument_names = read_names(usual)
    return Template(
        names=tuple(sorted(templates)),
        arguments=tuple(name for name in ARGUMENTS if name in argument_names),
        reads_clock=CLOCK in usual,
        sha256=hashlib.sha256(usual.encode()).hexdigest(),
    )


def _mended(structure: Structure, text: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what mlx-lm computes otherwise than the config says, and is told."""
    notes: list[str] = []
    entries = rotary_entries(text)
    if any(rope_type(entry) == "yarn" and entry.get("truncate") is False for entry in entries):
        notes.append("rope_scaling.truncate is false: mlx-lm rounds YaRN's bounds, the engine sets the periods itself")
    if structure.model_type in {"mixtral", "qwen3_moe"} and any(rope_type(entry) != "default" for entry in entries):
        notes.append("rope_scaling: mlx-lm leaves it out for this model type, the engine scales positions itself")
    if structure.model_type == "mistral" and structure.window is not None:
        notes.append("sliding_window: mlx-lm leaves it out for mistral, the engine sets it")
    if structure.model_type == "gemma3_text":
        notes.append("embeddings: mlx-lm rounds their factor to bfloat16, the engine multiplies in the weights' dtype")
    return tuple(notes)


def _differing(structure: Structure, dtype: str | None) -> tuple[str, ...]:
    """Return what mlx-lm and transformers compute otherwise than each other."""
    if structure.model_type != "gemma3_text" or dtype != "float16":
        return ()
    return ("residuals in float16: mlx-lm bounds them to its range, transformers lets them leave it",)


def _unapplied(folder: Path) -> tuple[str, ...]:
    path = folder / GENERATION_CONFIG
    settings = read_object(path) if path.is_file() else {}
    return tuple(
        f"{name} {settings[name]!r} of {GENERATION_CONFIG} is not applied"
        for name, nothing in UNAPPLIED.items()
        if settings.get(name) not in (None, nothing)
    )
