"""A model that does not fit is refused by its headers, in one line with a remedy, before a byte of it is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelMemoryError
from engine.loading import open_engine
from engine.structure.memory import DeviceMemory, check_memory, memory_need, metal_memory

GIB = 1 << 30
MAC_16 = metal_memory({"max_recommended_working_set_size": 11_453_251_584, "memory_size": 16 * GIB})
MAC_64 = metal_memory({"max_recommended_working_set_size": 48 * GIB, "memory_size": 64 * GIB})
CONFIG = {
    "model_type": "qwen3", "num_hidden_layers": 2, "max_position_embeddings": 131072, "sliding_window": 1024,
    "layer_types": ["full_attention", "sliding_attention"],
}  # fmt: skip


def write_model(
    folder: Path, billions: float, kind: str = "BF16", width: int = 2, *, beside: tuple[str, ...] = (), **changes: Any
) -> Path:
    """Write a folder whose weights are a header and a hole: nobody can have read what was refused."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    shapes = {"model.embed_tokens.weight": [int(billions * 1e6), 1000]}
    shapes |= {f"model.layers.{layer}.self_attn.{side}_proj.weight": [512, 64] for layer in (0, 1) for side in "kv"}
    shapes |= {name: [1000, 1000] for name in beside}
    header, at = {}, 0
    for name, (rows, columns) in shapes.items():
        size = rows * columns * width
        header[name] = {"dtype": kind, "shape": [rows, columns], "data_offsets": [at, at + size]}
        at += size
    data = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(data).to_bytes(8, "little") + data)
        file.truncate(8 + len(data) + at)
    return folder


class Mac:
    """A backend on a Mac with 16 GB, whose loading nobody may reach."""

    def memory(self) -> DeviceMemory | None:
        return MAC_16

    def load_target(self, folder: Path) -> Any:
        raise AssertionError(f"{folder} was loaded")


def test_26_billion_weights_are_refused_on_a_mac_with_16_gb_before_they_are_loaded(tmp_path: Path) -> None:
    target = write_model(tmp_path / "big-26b", 26)
    with pytest.raises(ModelMemoryError) as refused:
        open_engine(Mac(), str(target), None)
    message = str(refused.value)
    assert "big-26b needs 52.0 GB (weights 52.0 GB, cache of 4,096 positions 0.0 GB)" in message
    assert "metal recommends a working set of 11.5 GB (of 17.2 GB)" in message
    assert message.endswith("next: use a smaller model, or a machine with more memory")
    assert "\n" not in message


def test_weights_stored_in_16_bits_are_counted_as_the_float32_that_their_config_names(tmp_path: Path) -> None:
    stored = memory_need(write_model(tmp_path / "bfloat16", 1, dtype="bfloat16"), ())
    wide = memory_need(write_model(tmp_path / "float32", 1, dtype="float32"), ())
    assert (wide.weights, wide.cache) == (2 * stored.weights, 2 * stored.cache)


@pytest.mark.parametrize(
    ("billions", "device", "remedy"),
    [
        (6, MAC_16, "sudo sysctl iogpu.wired_limit_mb=11455"),
        (12, MAC_16, "use a smaller layout: weights of 8 bits take about 12.8 GB"),
        (20, MAC_16, "use a smaller layout: weights of 4 bits take about 11.3 GB"),
        (26, MAC_64, "sudo sysctl iogpu.wired_limit_mb=49602"),
        (30, DeviceMemory("cuda", 20 * GIB, 80 * GIB), "end what else holds memory on the card (nvidia-smi)"),
        (30, DeviceMemory("cuda", 20 * GIB, 24 * GIB), "use a smaller layout: weights of 4 bits take about 16.9 GB"),
    ],
)
def test_the_remedy_is_what_would_make_it_fit(
    tmp_path: Path, billions: float, device: DeviceMemory, remedy: str
) -> None:
    with pytest.raises(ModelMemoryError, match=r"^model needs .*; next: ") as refused:
        check_memory(write_model(tmp_path / "model", billions), [], device)
    assert remedy in str(refused.value)


def test_a_drafter_counts_and_can_be_left_out(tmp_path: Path) -> None:
    target, drafter = write_model(tmp_path / "target", 5), write_model(tmp_path / "drafter", 2)
    check_memory(target, [], MAC_16)
    with pytest.raises(ModelMemoryError, match=r"drafter 4\.0 GB.* next: leave the drafter out"):
        check_memory(target, [drafter], MAC_16)


def test_a_cache_is_as_wide_as_its_projections_and_as_long_as_its_windows(tmp_path: Path) -> None:
    need = memory_need(write_model(tmp_path / "model", 1), [])
    assert need.cache == (4096 + 1024) * (512 + 512) * 2
    shared = write_model(tmp_path / "shared", 1, num_kv_shared_layers=1, max_position_embeddings=100)
    assert memory_need(shared, []).cache == 100 * (512 + 512) * 2


def test_a_window_counts_where_a_config_leaves_its_layers_kinds_to_its_family(tmp_path: Path) -> None:
    unlisted: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 8, "layer_types": None}
    gemma = unlisted | {"model_type": "gemma3_text", "sliding_window_pattern": 2}
    assert memory_need(write_model(tmp_path / "gemma", 1, **gemma), []).cache == (1024 + 4096) * (512 + 512) * 2
    mistral = unlisted | {"model_type": "mistral"}
    assert memory_need(write_model(tmp_path / "mistral", 1, **mistral), []).cache == 2 * 1024 * (512 + 512) * 2
    whole = write_model(tmp_path / "whole", 1, **mistral, sliding_window=None)
    assert memory_need(whole, []).cache == 2 * 4096 * (512 + 512) * 2


def test_weights_are_counted_as_the_device_holds_them(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", 1)
    assert memory_need(model, [], 4).weights == 2 * memory_need(model, []).weights
    codes = write_model(tmp_path / "codes", 6, kind="U32", width=4)
    assert memory_need(codes, [], 4).weights == memory_need(codes, []).weights
    with pytest.raises(ModelMemoryError, match="next: use a smaller model, or a machine with more memory"):
        check_memory(codes, [], MAC_16)


def test_what_a_text_can_be_loaded_without_is_not_counted(tmp_path: Path) -> None:
    towers = (
        "vision_tower.encoder.weight",
        "model.visual.blocks.0.weight",
        "model.embed_audio.weight",
        "mtp.fc.weight",
    )
    plain = memory_need(write_model(tmp_path / "plain", 1), [])
    assert memory_need(write_model(tmp_path / "towers", 1, beside=towers), []) == plain
    more = write_model(tmp_path / "more", 1, beside=("model.layers.0.mlp.up_proj.weight", "lm_head.weight"))
    assert memory_need(more, []).weights == plain.weights + 2 * 2 * 1000 * 1000


@pytest.mark.parametrize("info", [{}, {"memory_size": GIB}, {"max_recommended_working_set_size": 0, "memory_size": 1}])
def test_where_metal_says_nothing_nothing_is_refused(tmp_path: Path, info: dict[str, int]) -> None:
    assert metal_memory(info) is None
    check_memory(write_model(tmp_path / "model", 26), [], None)
