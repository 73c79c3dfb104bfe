"""Every contestant decodes real tiny models to the tokens of plain decoding, and the verbs run."""

from __future__ import annotations

import json
import math
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.bench.overhead import loop_overhead
from engine.bench.peer import Contestant, engine_peers, oracle
from engine.bench.peers_torch import torch_peers
from engine.bench.turns import Decode, take_turns
from engine.cli import bench
from engine.decoding.depth import FixedDepth
from engine.errors import ModelWeightsError
from engine.huggingface import open_causal
from engine.loading import Engine, load_backend, open_engine
from tests.fakes import tiny_torch

PROMPT = tuple(5 + index * 11 % 90 for index in range(17))
BUDGET = 14


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bench")
    for kind in ("gemma4", "qwen3"):
        tiny_torch.write_target(root / kind, kind)
    tiny_torch.write_target(root / "small", "qwen3", seed=3, num_hidden_layers=2)
    scale = {"input_embedding_scale": math.sqrt(tiny_torch.HIDDEN)}
    tiny_torch.write_dflash(root / "drafter", dflash_config=scale)
    return root


def decoded(engine: Engine, peer: Contestant, prompt: tuple[int, ...]) -> Decode:
    with closing(peer.start(prompt, BUDGET)) as running:
        decode = Decode(running, engine.backend.clock)
        take_turns([decode], random.Random(0), slice_tokens=5)
    return decode


@pytest.mark.parametrize("kind", ["gemma4", "qwen3"])
def test_every_torch_contestant_emits_the_tokens_of_plain_decoding(models: Path, kind: str) -> None:
    engine = open_engine(load_backend("torch", "cpu"), str(models / kind), str(models / "drafter"))
    target: Any = engine.target
    peers = torch_peers(engine, target.module, models / "drafter", models / "small" if kind == "qwen3" else None)
    peers += engine_peers(engine, {"depth 4": lambda: FixedDepth(4)})
    assert len(peers) == (7 if kind == "qwen3" else 6)
    expected = oracle(engine, PROMPT, BUDGET)
    for peer in peers:
        decode = decoded(engine, peer, PROMPT)
        assert tuple(decode.tokens) == expected, peer.name
        assert decode.first_s > 0
        assert decode.arrivals.seconds[-1] > 0


def test_a_drafter_that_is_asked_elsewhere_is_compared_without_the_librarys_own_way(models: Path) -> None:
    engine = open_engine(load_backend("torch", "cpu"), str(models / "qwen3"), str(models / "drafter"))
    elsewhere: Any = SimpleNamespace(info=engine.drafter.info, capture=engine.drafter.capture)
    options = bench.parser().parse_args(["compare", "--drafter", "grpc:127.0.0.1:50551"])
    names = [peer.name for peer in bench.contestants(replace(engine, drafter=elsewhere), options)]
    assert "transformers native DFlash" not in names
    assert names[-1] == f"engine, {engine.drafter.info.name}, depth 3"


def pickled(models: Path, folder: Path, *beside: str) -> Path:
    """Return a folder whose weights are a pickle, with safetensors of other names beside it that lack nothing."""
    folder.mkdir()
    (folder / "config.json").write_bytes((models / "small" / "config.json").read_bytes())
    weights = load_file(models / "small" / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    for name in beside:
        save_file(weights, folder / name, {"format": "pt"})
    return folder


@pytest.mark.parametrize("beside", [(), ("model-own.safetensors",)], ids=["alone", "beside others"])
def test_weights_that_are_a_pickle_are_refused(models: Path, tmp_path: Path, beside: tuple[str, ...]) -> None:
    engine = open_engine(load_backend("torch", "cpu"), str(models / "qwen3"), str(models / "drafter"))
    folder, target = pickled(models, tmp_path / "pickled", *beside), cast("Any", engine.target)
    with pytest.raises(ModelWeightsError, match="safetensors"):
        torch_peers(engine, target.module, None, folder)
    with pytest.raises(ModelWeightsError, match="safetensors"):
        open_causal(folder)


def test_every_mlx_contestant_emits_the_tokens_of_plain_decoding(models: Path) -> None:
    pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
    from engine.bench.peers_mlx import mlx_peers
    from engine.errors import UsageError

    engine = open_engine(load_backend("mlx"), str(models / "qwen3"), str(models / "drafter"))
    target: Any = engine.target
    peers = mlx_peers(engine, target.module, models / "small") + engine_peers(
        engine, {"depth 4": lambda: FixedDepth(4)}
    )
    assert len(peers) == 4
    expected = oracle(engine, PROMPT, BUDGET)
    for peer in peers:
        assert tuple(decoded(engine, peer, PROMPT).tokens) == expected, peer.name
    sliding = open_engine(load_backend("mlx"), str(models / "gemma4"), None)
    with pytest.raises(UsageError, match="emits wrong tokens"):
        mlx_peers(sliding, None, models / "small")


def test_the_loops_own_share_is_between_nothing_and_everything(models: Path) -> None:
    engine = open_engine(load_backend("torch", "cpu"), str(models / "gemma4"), str(models / "drafter"))
    for depth in (0, 4):
        overhead = loop_overhead(engine, PROMPT, BUDGET, FixedDepth(depth))
        assert 0 < overhead.calls_s < overhead.decode_s
        assert 0 < overhead.share < 1
        assert overhead.steps > 1


@pytest.mark.ci
def test_compare_writes_every_decode_and_the_standings(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenizers import Tokenizer
    from tokenizers import models as kinds
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(kinds.WordLevel({f"w{index}": index for index in range(tiny_torch.VOCAB)}, unk_token="w0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(models / "gemma4" / "tokenizer.json"))
    rows = [{"id": f"p{row}", "kind": "raw", "text": f"w{5 + row} w9 w30 w{20 + row}"} for row in range(3)]
    (tmp_path / "set.json").write_text(json.dumps({"schema": 1, "set": "s", "rule": "made", "prompts": rows}))
    monkeypatch.chdir(models)
    argv = ["compare", "--backend", "torch", "--device", "cpu", "--target", "./gemma4", "--drafter", "./drafter"]
    argv += ["--set", str(tmp_path / "set.json"), "--prompts", "2", "--max-new", "12"]
    assert bench.main([*argv, "--repeats", "1", "--depths", "3,auto", "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "bench.json").read_text())
    assert len(report["rows"]["entries"]) == 2 * len(report["rows"]["standings"]) == 2 * 7
    assert all(entry["identical"] for entry in report["rows"]["entries"])
    assert "transformers native DFlash" in capsys.readouterr().out
    assert bench.main([*argv, "--reference", "nobody", "--out", str(tmp_path)]) == 2
    assert "no contestant 'nobody'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_controller_verb_decodes_every_world_to_the_forced_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["controller", "--backend", "torch", "--device", "cpu", "--prompts", "2", "--max-new", "12"]
    assert bench.main([*argv, "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "controller.json").read_text())["rows"]
    assert len(rows["pairs"]) == 5 * 2
    assert all(pair["identical"] and pair["times"]["12"]["tokens"] >= 12 for pair in rows["pairs"])
    assert set(rows["curves"]) == {pair["world"] for pair in rows["pairs"]}
    assert all(set(by) == {"12"} for by in rows["curves"].values())
    assert "useless drafter, long context" in capsys.readouterr().out
    assert bench.main([*argv, "--drafter", "none", "--out", str(tmp_path)]) == 2
    assert "nothing to control" in capsys.readouterr().err
