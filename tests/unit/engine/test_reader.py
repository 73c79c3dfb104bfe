"""One reader says what a folder holds: published configs, what ends an answer, what is missing and what is unused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.checkpoint import ASSETS, quantisation_of, resolve_model
from engine.cli.inspect import main
from engine.errors import ModelConfigError, ModelError, ModelNotFoundError, ModelWeightsError
from engine.loading import load_backend
from engine.reader import PACKERS, read_checkpoint
from tests.support.published_rows import answer, rows

ROWS, HIDDEN, INNER = 16, 8, 12
SMALL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": ROWS,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
}
NAMES = ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "model.layers.0.mlp.up_proj.weight")
LAST = "model.layers.1.mlp.up_proj.weight"
LAYER = {f"self_attn.{side}_proj.weight": (HIDDEN, HIDDEN) for side in "qkvo"} | {
    "mlp.gate_proj.weight": (INNER, HIDDEN),
    "mlp.up_proj.weight": (INNER, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, INNER),
    "input_layernorm.weight": (HIDDEN,),
    "post_attention_layernorm.weight": (HIDDEN,),
}
WHOLE = {"model.norm.weight": (HIDDEN,), "lm_head.weight": (ROWS, HIDDEN), "model.embed_tokens.weight": (ROWS, HIDDEN)}
WHOLE |= {f"model.layers.{index}.{name}": shape for index in (0, 1) for name, shape in LAYER.items()}


def write(folder: Path, *more: str, names: tuple[str, ...] = tuple(WHOLE), **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SMALL | changes))
    shapes = {name: WHOLE.get(name, (ROWS, 2)) for name in (*names, *more)}
    tensors = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(("name", "config", "expected"), list(rows()), ids=[row[0] for row in rows()])
def test_a_published_config_is_read_or_refused_in_one_line(name: str, config: dict[str, Any], expected: str) -> None:
    assert answer(config) == expected


def test_what_a_folder_says_stands_in_one_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "model", "vision_tower.layers.0.weight", "mtp.fc.weight", rope_theta=1e4)
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 2], "repetition_penalty": 1.1}')
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer", "legacy": false}')
    (folder / "chat_template.jinja").write_text(
        "{{ strftime_now('%d') }}{{ reasoning_effort }}{{ messages[0].thinking }}"
    )
    assert main([str(folder), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    read = read_checkpoint(folder)
    assert record == read.stated() | {"digest": read.digest(), "tokenizer_file": False}
    assert record["stops"] == {"1": ["generation_config.json", "config.json"], "2": ["generation_config.json"]}
    rows = {"lm_head.weight": ROWS, "model.embed_tokens.weight": ROWS}
    assert record["tensors"] == {
        "count": 23, "missing": [], "unused": [], "beside": 2, "head": 1, "kinds": {"F32": 23}, "rows": rows,
    }  # fmt: skip
    assert (record["template"]["arguments"], record["template"]["reads_clock"]) == (["reasoning_effort"], True)
    assert (record["tokenizer_class"], record["legacy"], record["dtype"]) == ("LlamaTokenizer", False, "bfloat16")
    assert record["unapplied"] == ["repetition_penalty 1.1 of generation_config.json is not applied"]
    assert main([str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "ends at 2: generation_config.json" in printed
    assert "head for several tokens: 1 tensors; --drafter mtp drafts with it" in printed
    assert "no tokenizer.json, without which no text is read or written" in printed


@pytest.mark.parametrize(
    ("more", "names", "message"),
    [
        (("model.layers.1.self_attn.q_proj.bias",), (*NAMES, LAST), "q_proj.bias.*does not compute with"),
        (("model.layers.2.mlp.up_proj.weight",), (*NAMES, LAST), "layers.2.*does not compute with"),
        ((), NAMES, "lacks the tensors.*layers.1"),
        ((), (NAMES[0], NAMES[3], LAST), "lacks the tensors.*lm_head"),
    ],
)
def test_tensors_that_the_config_does_not_describe_are_named(
    tmp_path: Path, more: tuple[str, ...], names: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, *more, names=names)
    with pytest.raises(ModelWeightsError, match=message):
        read_checkpoint(folder).check_tensors()
    assert main([str(folder)]) == 3
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["model.layers.0.mlp.odd_proj.weight", "somewhere.else", "encoder.layers.0.weight"])
@pytest.mark.parametrize("backend", ["mlx", "torch"])
def test_a_tensor_of_no_known_name_is_named_before_weights_are_read(tmp_path: Path, name: str, backend: str) -> None:
    folder = write(tmp_path, name)
    read_checkpoint(folder).check_tensors()
    with pytest.raises(ModelWeightsError, match=f"{name}.*does not compute with"):
        load_backend(backend).check_tensors(folder)


def test_a_lost_norm_or_another_shape_is_named_by_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(write(tmp_path, names=tuple(name for name in WHOLE if "1.input_layernorm" not in name)))]) == 3
    assert "model.layers.1.input_layernorm.weight" in capsys.readouterr().err
    assert main([str(write(tmp_path, intermediate_size=INNER + 4))]) == 3
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("backend", ["mlx", "torch"])
def test_a_tower_beside_the_text_is_left_out_by_both_libraries(tmp_path: Path, backend: str) -> None:
    load_backend(backend).check_tensors(write(tmp_path, "vision_tower.layers.0.weight", "mtp.fc.weight"))


def test_an_embedding_of_another_vocabulary_is_named(tmp_path: Path) -> None:
    read = read_checkpoint(write(tmp_path, vocab_size=ROWS + 4))
    with pytest.raises(ModelWeightsError, match=r"lm_head\.weight in .* has 16 rows; expected 20"):
        read.check_tensors()


def test_a_head_beside_the_embedding_that_it_is_said_to_be_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, tie_word_embeddings=True)
    read_checkpoint(folder).check_tensors()
    tensors = {name: np.ones(shape, np.float32) for name, shape in WHOLE.items()}
    tensors["lm_head.weight"][3, 2] = 2
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelWeightsError, match=r"\(tie_word_embeddings\) and stores another lm_head\.weight"):
        read_checkpoint(folder).check_tensors()


def in_parts(folder: Path) -> dict[str, str]:
    """Put a folder's tensors into two files with an index; return what it says."""
    names = sorted(WHOLE)
    parts = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    for file, inside in parts.items():
        save_file({name: np.ones(WHOLE[name], np.float32) for name in inside}, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    places = {name: file for file, inside in parts.items() for name in inside}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return places


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("none", None),
        (
            "no index",
            r"holds weights in parts \(model-00001-of-00002\.safetensors; 2 in all\) and no model\.safetensors\.i",
        ),
        ("half an index", r"cannot read .*index\.json"),
        ("elsewhere", r"lacks \.\./\.\./passwd \(1 of the 1 files"),
        ("lost", r"lacks model-00002-of-00002\.safetensors \(1 of the 2 files"),
        ("twice", r"lies in model-00002-of-00002\.safetensors and in model-00003\.safetensors of"),
    ],
)
def test_parts_and_their_index_belong_together(tmp_path: Path, change: str, message: str | None) -> None:
    folder = write(tmp_path)
    index, places = folder / "model.safetensors.index.json", in_parts(folder)
    if change == "no index":
        index.unlink()
    elif change == "half an index":
        index.write_text("{")
    elif change == "elsewhere":
        index.write_text(json.dumps({"weight_map": dict.fromkeys(places, "../../passwd")}))
    elif change == "lost":
        (folder / "model-00002-of-00002.safetensors").unlink()
    elif change == "twice":
        (folder / "model-00003.safetensors").write_bytes((folder / "model-00002-of-00002.safetensors").read_bytes())
    if message is None:
        read_checkpoint(folder).check_tensors()
        return
    with pytest.raises(ModelError, match=message):
        read_checkpoint(folder).check_tensors()


@pytest.mark.parametrize("backend", ["mlx", "torch"])
def test_a_tensor_of_another_shape_is_named_alike(tmp_path: Path, backend: str) -> None:
    folder = write(tmp_path, num_key_value_heads=1)
    with pytest.raises(
        ModelWeightsError, match=r"layers\.0\.self_attn\..* has shape \(8, 8\); expected \(4, 8\) by its c"
    ):
        load_backend(backend).check_tensors(folder)


def test_half_a_file_of_weights_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    assert main([str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert (f"cannot read {file}" in error, error.count("\n")) == (True, 1)


def test_who_may_have_packed_weights_is_whom_a_library_knows(tmp_path: Path) -> None:
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    # transformers has two entries for one packer, and mlx-lm reads one that transformers does not.
    theirs = {name.removesuffix("_4bit").removesuffix("_8bit") for name in AUTO_QUANTIZATION_CONFIG_MAPPING}
    assert theirs | {"modelopt"} == PACKERS
    with pytest.raises(ModelConfigError, match="packed by 'zip9', which neither library reads; expected one of aqlm"):
        read_checkpoint(write(tmp_path, quantization_config={"quant_method": "zip9", "bits": 9}))


@pytest.mark.parametrize(
    ("changes", "files", "message"),
    [
        ({"architectures": ["LlamaForSequenceClassification"]}, {}, "writes no text"),
        ({"quantization": [32, 4]}, {}, r"quantization in .* is \[32, 4\]; expected an object"),
        ({"quantization": {"group_size": 32}}, {}, "has bits None; expected a whole number"),
        ({"quantization": {"group_size": "32", "bits": 4}}, {}, "has group_size '32'; expected a whole number"),
        ({"quantization_config": "awq"}, {}, "quantization_config in .* is 'awq'; expected an object"),
        ({"hidden_act": "gelu_weird"}, {}, "hidden_act is 'gelu_weird', which neither library computes"),
        ({"model_type": "gemma3n_text", "intermediate_size": [1, 2]}, {}, "model type 'gemma3n_text' is not supported"),
        ({}, {"adapter_config.json": {"r": 8}}, "LoRA adapter"),
    ],
)
def test_what_is_no_language_model_is_named_before_its_sizes(
    tmp_path: Path, changes: dict[str, Any], files: dict[str, Any], message: str
) -> None:
    folder = write(tmp_path, **changes)
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    with pytest.raises(ModelConfigError, match=message):
        read_checkpoint(folder)


def test_a_value_of_another_kind_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": "4096"}
    assert main([str(write(tmp_path, rope_scaling=scaling))]) == 3
    error = capsys.readouterr().err
    assert (f"cannot read {tmp_path}: TypeError: " in error, error.count("\n")) == (True, 1)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"quantization": {"group_size": 64, "bits": 4}}, "affine4"),
        ({"quantization": {"bits": 4, "model.embed_tokens": {"bits": 8}}}, "affine4/8"),
        ({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq4"),
        ({}, None),
    ],
)
def test_how_weights_are_packed_has_a_name_of_its_own(entry: dict[str, Any], expected: str | None) -> None:
    assert quantisation_of(entry) == expected


def test_a_model_is_found_in_the_hugging_face_cache_and_called_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--Qwen--Qwen3-4B"
    older, newer = (write(repository / "snapshots" / commit) for commit in ("0" * 40, "f" * 40))
    assert resolve_model("Qwen/Qwen3-4B", roots="") == older
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("f" * 40)
    assert resolve_model("Qwen/Qwen3-4B", roots="") == newer
    assert read_checkpoint(newer).name == "Qwen3-4B"
    with pytest.raises(ModelNotFoundError, match="models--Qwen--Qwen3-8B"):
        resolve_model("Qwen/Qwen3-8B", roots="")


@pytest.mark.parametrize(("variable", "hub"), [("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub")])
def test_the_cache_lies_where_its_own_library_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, hub: str
) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    folder = write(tmp_path / hub / "models--Qwen--Qwen3-4B" / "snapshots" / ("0" * 40))
    assert resolve_model("Qwen/Qwen3-4B", roots="") == folder


def test_a_folder_in_here_is_named_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "models" / "small")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError, match=r"no model 'models/small'.* The folder in here is \./models/small\."):
        resolve_model("models/small", roots="")


def test_a_drafter_that_does_not_scale_its_input_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = json.loads((ASSETS / "kakeya-tiny-gemma4-dflash" / "config.json").read_text())
    unsaid = {name: value for name, value in shipped.items() if name != "input_embedding_scale"}
    unsaid["dflash_config"] = {k: v for k, v in shipped["dflash_config"].items() if k != "input_embedding_scale"}
    (tmp_path / "config.json").write_text(json.dumps(unsaid))
    assert main([str(tmp_path)]) == 0
    assert "no input_embedding_scale" in capsys.readouterr().out


@pytest.mark.parametrize(("dtype", "notes"), [("float16", 1), ("float32", 0)])
def test_what_the_libraries_compute_otherwise_than_each_other_is_named(tmp_path: Path, dtype: str, notes: int) -> None:
    config: dict[str, Any] = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "sliding_window": 8,
        "head_dim": 4,
    }
    read = read_checkpoint(write(tmp_path, torch_dtype=dtype, **config))
    assert len(read.differing) == notes
    assert [note.partition(":")[0] for note in read.mended] == ["embeddings"]
