"""A small random Llama as one GGUF file, with its tokenizer in it, and wheels that carry it."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, HEADS, LAYERS, FEED = 64, 4, 2, 96
TOKENS = 300
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"


def write_gguf(
    file: Path,
    *,
    rows: int = TOKENS,
    licence: str | None = "apache-2.0",
    architecture: str = "llama",
    words: str | None = "smollm",
    pieces: bool = False,
    seed: int = 0,
    left_out: str = "",
    more: Callable[[Any], None] | None = None,
) -> Path:
    """Write a model of 4-bit and 8-bit matrices.

    Args:
        file: Where.
        rows: Of the embedding.
        licence: What the file says of its licence, None for nothing.
        architecture: Of the model, in llama.cpp's words.
        words: How its tokenizer splits a text, in the same, None for nothing.
        pieces: Whether its tokenizer is SentencePiece's, with bytes to fall back to, and no byte-level one.
        seed: Of the random values.
        left_out: A tensor that is not written.
        more: What adds to what is written.
    """
    import gguf

    chooser = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(file), architecture)
    writer.add_name("tiny")
    if licence is not None:
        writer.add_license(licence)
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS // 2)
    writer.add_rope_freq_base(5e5)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(TOKENS)
    if pieces:
        _add_pieces(writer)
    else:
        _add_byte_level(writer, words)
    writer.add_chat_template(TEMPLATE)
    if more is not None:
        more(writer)

    def add(name: str, *shape: int, kind: Any = gguf.GGMLQuantizationType.Q8_0) -> None:
        if name == left_out:
            return
        values = chooser.standard_normal(shape, dtype=np.float32) * shape[-1] ** -0.5
        if len(shape) == 1:
            writer.add_tensor(name, values + 1)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", rows, HIDDEN)
    add("output_norm.weight", HIDDEN)
    for layer in range(LAYERS):
        for name, shape in _LAYER.items():
            add(f"blk.{layer}.{name}.weight", *shape, kind=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add_byte_level(writer: Any, words: str | None) -> None:
    alphabet = _alphabet()
    tokens = [*alphabet, "ab", "ĠĠ", *(f"<{index}>" for index in range(TOKENS - len(alphabet) - 3)), "<|end|>"]
    writer.add_tokenizer_model("gpt2")
    if words is not None:
        writer.add_tokenizer_pre(words)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (TOKENS - 1) + [3])
    writer.add_token_merges(["a b", "Ġ Ġ"])
    writer.add_bos_token_id(TOKENS - 1)
    writer.add_eos_token_id(TOKENS - 1)


def _add_pieces(writer: Any) -> None:
    spelt = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a"]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*spelt, *(f"<{index}>" for index in range(TOKENS - len(spelt)))])
    writer.add_token_scores([0.0] * TOKENS)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (TOKENS - 259)])
    writer.add_token_merges(["▁ a"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


_LAYER: Mapping[str, tuple[int, ...]] = {
    "attn_norm": (HIDDEN,),
    "ffn_norm": (HIDDEN,),
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (HIDDEN // 2, HIDDEN),
    "attn_v": (HIDDEN // 2, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_gate": (FEED, HIDDEN),
    "ffn_up": (FEED, HIDDEN),
    "ffn_down": (HIDDEN, FEED),
}


def _alphabet() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def write_wheel(
    folder: Path,
    name: str,
    files: Mapping[str, bytes],
    licence: str | None = "Apache-2.0",
    packing: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """Write a wheel whose own module must not be imported."""
    path = folder / f"{name}-1.0.0-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n"
    metadata += "" if licence is None else f"License: {licence}\n"
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr(f"{name}/__init__.py", "raise RuntimeError('the code of the package ran')\n")
        for inside, data in files.items():
            archive.writestr(inside, data)
        archive.writestr(f"{name}-1.0.0.dist-info/METADATA", metadata)
        record = [f"{name}/__init__.py,,", *(f"{inside},," for inside in files)]
        archive.writestr(f"{name}-1.0.0.dist-info/RECORD", "\n".join(record) + "\n")
    return path


def write_parts(folder: Path, file: Path, count: int = 3) -> Path:
    """Write a wheel of checksums and terms, and one beside it for each part of a file."""
    data = file.read_bytes()
    size = -(-len(data) // count)
    for index in range(count):
        part = {f"many_part{index + 1}/data/{file.name}.part{index:02d}": data[index * size : (index + 1) * size]}
        write_wheel(folder, f"many_part{index + 1}", part, None)
    sums = f"{hashlib.sha256(data).hexdigest()}  {file.name}\n".encode()
    return write_wheel(folder, "many", {"many/data/SHA256SUMS": sums, "many/data/SOME_TERMS.html": b"terms"}, None)
