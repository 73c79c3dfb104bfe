"""A converted drafter holds every value of its folder: read back with each format's own library, bit for bit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="the gguf extra is not installed")
torch = pytest.importorskip("torch", reason="the torch backend is not installed")

from safetensors.torch import load_file, save_file  # noqa: E402

from engine.checkpoint import ASSETS  # noqa: E402
from engine.cli import convert  # noqa: E402
from engine.conversion.drafter_file import read_drafter  # noqa: E402
from engine.conversion.gguf_file import gguf_name  # noqa: E402
from engine.drafters.dflash import parse  # noqa: E402
from tests.fakes import tiny_torch  # noqa: E402

SHIPPED = ASSETS / "kakeya-tiny-gemma4-dflash"
SECOND = {
    "architectures": ["DFlash2DraftModel"],
    "is_causal": False,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "mscale": 0.75,
                     "mscale_all_dim": 0.5, "truncate": False},
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 9,
    "rope_theta": 12345.0,
    "rms_norm_eps": 3e-6,
    "final_logit_softcapping": 20.0,
    "dflash_config": {
        "block_size": 5, "mask_token_id": 11, "target_layer_ids": [0, 3], "conv_kernel_size": 2, "conv_group_size": 8,
        "selector_rank": 4, "selector_top_k": 4, "output_multiplier": 0.5, "input_embedding_scale": 2.0,
    },
}  # fmt: skip
KINDS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def second(folder: Path, kind: str) -> Path:
    """A DFlash 2 drafter with a setting of its own for everything a config can say."""
    tiny_torch.write_dflash(folder, **SECOND)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.to(KINDS[kind]) for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def converted(folder: Path, out: Path, *options: str) -> Any:
    assert convert.main(["gguf", str(folder), str(out), *options]) == 0
    return gguf.GGUFReader(out)


def values(folder: Path) -> dict[str, np.ndarray]:
    return {name: tensor.values() for name, tensor in read_drafter(folder).tensors.items()}


def field(reader: Any, key: str) -> Any:
    return reader.fields[key].contents()


def test_the_header_says_what_the_config_says(tmp_path: Path) -> None:
    reader = converted(second(tmp_path / "drafter", "BF16"), tmp_path / "d.gguf", "--arch", "qwen35-dflash-draft")
    arch = "qwen35-dflash-draft"
    expected = {
        "general.architecture": arch,
        f"{arch}.block_count": 2,
        f"{arch}.embedding_length": 32,
        f"{arch}.attention.head_count": 4,
        f"{arch}.attention.head_count_kv": 2,
        f"{arch}.attention.key_length": 8,
        f"{arch}.rope.freq_base": 12345.0,
        f"{arch}.rope.scaling.type": "yarn",
        f"{arch}.rope.scaling.factor": 4.0,
        f"{arch}.rope.scaling.original_context_length": 1024,
        f"{arch}.attention.layer_norm_rms_epsilon": pytest.approx(3e-6),
        f"{arch}.attention.sliding_window": 9,
        f"{arch}.attention.sliding_window_pattern": [True, False],
        f"{arch}.final_logit_softcapping": 20.0,
        f"{arch}.dflash.block_size": 5,
        f"{arch}.dflash.mask_token_id": 11,
        f"{arch}.dflash.target_layer_ids": [0, 3],
        f"{arch}.dflash.n_target_layers": 2,
        f"{arch}.dflash.n_target_features": 64,
        f"{arch}.dflash.causal_pattern": [False, False],
        f"{arch}.dflash.output_multiplier": 0.5,
        f"{arch}.dflash.input_embedding_scale": 2.0,
        f"{arch}.dflash.rope_mscale": 0.75,
        f"{arch}.dflash.rope_mscale_all_dim": 0.5,
        f"{arch}.dflash.rope_truncate": False,
        f"{arch}.dflash.conv_kernel_size": 2,
        f"{arch}.dflash.selector_top_k": 4,
        "tokenizer.ggml.mask_token_id": 11,
    }
    assert {key: field(reader, key) for key in expected} == expected


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_is_there_bit_for_bit(tmp_path: Path, kind: str) -> None:
    folder = second(tmp_path / "drafter", kind)
    reader = converted(folder, tmp_path / "d.gguf")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    stored = load_file(folder / "model.safetensors")
    assert tensors.keys() == {
        gguf_name(name) for name in parse(json.loads((folder / "config.json").read_text())).tensor_shapes
    }
    for name, tensor in read_drafter(folder).tensors.items():
        read = tensors[gguf_name(name)]
        assert tuple(int(size) for size in reversed(read.shape)) == tensor.bits.shape
        assert read.tensor_type.name == (kind if tensor.bits.ndim == 2 else "F32")
        values = gguf.quants.dequantize(read.data, read.tensor_type).reshape(tensor.bits.shape)
        assert np.array_equal(values, stored[name].float().numpy()), name
        if read.tensor_type.name == kind:
            assert read.data.tobytes() == stored[name].contiguous().view(torch.uint8).numpy().tobytes()


def test_q8_0_stays_within_half_a_step_and_float16_keeps_its_rounding(tmp_path: Path) -> None:
    reader = converted(SHIPPED, tmp_path / "q8.gguf", "--type", "q8_0")
    by_name = {gguf_name(name): tensor for name, tensor in values(SHIPPED).items()}
    quantised = [tensor for tensor in reader.tensors if tensor.tensor_type.name == "Q8_0"]
    assert len(quantised) > len(reader.tensors) / 2
    for tensor in quantised:
        exact = by_name[tensor.name]
        blocks = exact.reshape(-1, 32)
        scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
        # Half a step, and what float16 rounds off a scale that is multiplied by up to 127.
        bound = scale / 2 + 127 * (np.abs(scale) * 2**-11 + 2**-25)
        read = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(blocks.shape)
        assert (np.abs(read - blocks) <= bound).all(), tensor.name
    half = converted(SHIPPED, tmp_path / "f16.gguf", "--type", "f16")
    for tensor in half.tensors:
        expected = by_name[tensor.name]
        if tensor.tensor_type.name == "F16":
            expected = expected.astype(np.float16)
        assert np.array_equal(tensor.data.reshape(expected.shape), expected)


def test_rows_that_no_block_divides_keep_their_type_and_are_named(tmp_path: Path, capsys: Any) -> None:
    reader = converted(second(tmp_path / "drafter", "F16"), tmp_path / "d.gguf", "--type", "q8_0")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert kinds["dflash.selector_predecessor.weight"] == "F16"
    assert kinds["blk.0.attn_q.weight"] == "Q8_0"
    assert "candidate_selector.predecessor_codebook" in capsys.readouterr().out


def test_what_cannot_be_converted_is_one_line_and_leaves_nothing(tmp_path: Path, capsys: Any) -> None:
    folder, out = second(tmp_path / "drafter", "F32"), tmp_path / "d.gguf"
    tensors = load_file(folder / "model.safetensors")
    tensors["fc.weight"][0, 0] = 1e9
    save_file(tensors, folder / "model.safetensors")
    assert convert.main(["gguf", str(folder), str(out), "--type", "f16"]) == 3
    tensors["fc.weight"][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors")
    assert convert.main(["gguf", str(folder), str(out)]) == 3
    assert not out.exists()
    out.touch()
    assert convert.main(["gguf", str(SHIPPED), str(out)]) == 2
    assert convert.main(["mlx", str(SHIPPED), str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["error"] * 4
    assert "beyond float16" in lines[0]
    assert "NaN" in lines[1]


KILLED = """
import resource, signal, sys
from engine.cli.convert import main
# The system ends a process that writes more than it may, unless it is told otherwise.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
main(sys.argv[1:])
"""


@pytest.mark.parametrize("kind", ["gguf", "mlx"])
def test_a_conversion_that_is_killed_leaves_nothing_of_that_name(tmp_path: Path, kind: str) -> None:
    if kind == "mlx":
        pytest.importorskip("mlx.core", reason="the MLX backend is not installed")
    out = tmp_path / "out"
    words = [kind, str(SHIPPED), str(out)]
    ended = subprocess.run([sys.executable, "-c", KILLED, *words], check=False, capture_output=True, timeout=120)
    assert ended.returncode == -signal.SIGXFSZ
    assert not out.exists()
    assert len(list(tmp_path.iterdir())) == 1
    assert convert.main(words) == 0
    assert list(tmp_path.iterdir()) == [out]


def test_codes_for_mlx_are_those_of_mlx_and_a_source_like_any_other(tmp_path: Path) -> None:
    mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")
    out = tmp_path / "codes"
    assert convert.main(["mlx", str(SHIPPED), str(out), "--bits", "8", "--group-size", "64"]) == 0
    assert json.loads((out / "config.json").read_text())["quantization"]["bits"] == 8
    written, exact = mx.load(str(out / "model.safetensors")), mx.array(values(SHIPPED)["fc.weight"])
    read = mx.dequantize(*(written[f"fc.{part}"] for part in ("weight", "scales", "biases")), group_size=64, bits=8)
    steps = (exact.reshape(-1, 64).max(axis=1) - exact.reshape(-1, 64).min(axis=1)) / 255
    error = mx.abs(read.astype(mx.float32) - exact).reshape(-1, 64).max(axis=1)
    # mlx-lm's code book puts a group's largest end exactly; a step covers scale and bias in the stored dtype.
    assert (error <= 1.5 * steps + 1e-2 * mx.abs(exact).max()).all().item()
    by_name = {tensor.name: tensor for tensor in converted(out, tmp_path / "d.gguf").tensors}
    assert np.array_equal(by_name["dflash.fc.weight"].data, np.array(read))


@pytest.mark.parametrize(("bits", "group"), [(8, 64), (4, 32)])
def test_codes_stand_for_the_same_values_in_a_conversion_as_on_both_backends(
    tmp_path: Path, bits: int, group: int
) -> None:
    mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")
    from engine.backends.torch.dflash.stored import read_drafter_tensors

    out = tmp_path / "codes"
    assert convert.main(["mlx", str(SHIPPED), str(out), "--bits", str(bits), "--group-size", str(group)]) == 0
    written, tensors = mx.load(str(out / "model.safetensors")), values(out)
    for name, tensor in read_drafter_tensors(out, read_drafter(out).config).items():
        assert np.array_equal(tensors[name], tensor.numpy()), name
    parts = (written[f"layers.0.mlp.down_proj.{part}"] for part in ("weight", "scales", "biases"))
    on_mlx = np.array(mx.dequantize(*parts, group_size=group, bits=bits))
    # MLX may join product and sum in one rounding.
    assert np.abs(tensors["layers.0.mlp.down_proj.weight"] - on_mlx).max() <= 1e-7


def test_scales_without_codes_and_codes_without_scales_are_one_line(tmp_path: Path, capsys: Any) -> None:
    folder = second(tmp_path / "drafter", "F32")
    tensors = load_file(folder / "model.safetensors")
    codes = torch.ones(tensors["fc.weight"].shape, dtype=torch.uint32)
    save_file(tensors | {"fc.weight": codes}, folder / "model.safetensors")
    assert convert.main(["gguf", str(folder), str(tmp_path / "d.gguf")]) == 3
    assert "codes without scales in ['fc.weight']" in capsys.readouterr().err
    save_file(tensors | {"fc.scales": torch.ones(1)}, folder / "model.safetensors")
    assert convert.main(["gguf", str(folder), str(tmp_path / "d.gguf")]) == 3
    assert "no biases beside it" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "a b", "Qwen", "-x"])
def test_an_architecture_that_no_reader_could_look_for_is_refused(tmp_path: Path, capsys: Any, name: str) -> None:
    folder = second(tmp_path / "drafter", "F32")
    assert convert.main(["gguf", str(folder), str(tmp_path / "d.gguf"), f"--arch={name}"]) == 2
    assert f"architecture {name!r}; expected small letters" in capsys.readouterr().err
    assert not (tmp_path / "d.gguf").exists()
