"""A draft model made of a target's first layers: whatever dtype the target is stored in."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from safetensors.torch import load_file

from benchmarks.engine_peers.first_layers import first_layers
from tests.drift import ROOT


def test_the_first_layers_of_a_packaged_model_are_its_own(tmp_path) -> None:
    target = ROOT / "engine" / "assets" / "kakeya-tiny-qwen3"
    first_layers(target, tmp_path / "shallow", 2)
    whole, shallow = (load_file(folder / "model.safetensors") for folder in (target, tmp_path / "shallow"))
    layers = {int(name.split(".")[2]) for name in shallow if ".layers." in name}
    assert layers == {0, 1}
    assert set(shallow) < set(whole)
    assert all(tensor.dtype == whole[name].dtype and tensor.equal(whole[name]) for name, tensor in shallow.items())
