"""What both backends hold lies within what the gate computes from the sizes a runner reads from the model's folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.gate import profiles
from bridge.gate.facts.model_sizes import layout_bytes, most_bytes, native_bytes
from bridge.gate.interface import Evidence, Skip
from bridge.gate.registry import rules
from bridge.gate.reports.loading import load
from bridge.records.run import CacheShape, ModelDigest
from bridge.runner.machine.models import ModelDigests
from engine.checkpoint import ASSETS
from engine.cli import eval as eval_cli
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.none import NoDrafter
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from tests.corpus.gate.breaks import honest

LENGTHS = ((5, 3), (63, 2), (64, 3), (220, 4))
BOUNDED = ("", "+exact5", "+stream", "+pages16x4", "+pages16x2/recent", "+pages16x2+stream", "+pages16x4+layer5")
LAYOUTS = ("native", "full", "affine8", "e8x4", *(f"sink4+window64{part}" for part in BOUNDED))
RULES = ("G2-MODELS", "G4-ERRORS", "G4-PROMPTS", "G7-NATIVE")


def backend_named(name: str) -> Any:
    if name == "mlx":
        from engine.backends.mlx.backend import MlxBackend

        return MlxBackend()
    from engine.backends.torch.backend import TorchBackend

    return TorchBackend("cpu")


def digested(folder: Path, tmp_path: Path) -> ModelDigest:
    (digests,) = ModelDigests(tmp_path.with_suffix(".cache")).of([str(folder)], [], None)
    assert digests.shape is not None
    return digests


@pytest.mark.ci
@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("kakeya-tiny-gemma4", "mlx"),
        ("kakeya-tiny-qwen3", "torch"),
        pytest.param("kakeya-tiny-gemma4", "torch", marks=pytest.mark.slow),
        pytest.param("kakeya-tiny-qwen3", "mlx", marks=pytest.mark.slow),
    ],
)
def test_real_caches_hold_what_arithmetic_says(tmp_path: Path, name: str, model: str) -> None:
    shape = digested(ASSETS / model, tmp_path).shape
    assert shape is not None
    assert shape.caches is not None
    backend = backend_named(name)
    target = backend.load_target(ASSETS / model)
    assert target.info.parameters == pytest.approx(shape.parameters, rel=1e-3)
    assert (target.info.vocab_size, target.info.dtype) == (shape.vocabulary, shape.dtype)
    report: Any = SimpleNamespace(
        body={"environment": {"backend": name}, "config": {"target": {"dtype": target.info.dtype}}}
    )
    for length, more in LENGTHS:
        ids, positions = tuple(6 + index * 7 % 2000 for index in range(length)), length + more
        native = backend.native(target)
        assert len(list(native.decode(ids, Stopping(more + 1, frozenset()), 512))) == more + 1
        low, high = native_bytes(shape.caches, report, positions)
        assert low <= native.measured_bytes() <= high, (length, more)
        for layout in LAYOUTS:
            sequence = target.open((), CacheLayout.parse(layout))
            parts = Parts(sequence, NoDrafter(), backend.greedy(target), FixedDepth(0), backend.clock)
            list(speculative(parts, ids, Stopping(more + 1, frozenset()), 512))
            bounds = layout_bytes(layout, shape.caches, report, positions)
            assert bounds is not None
            assert bounds[0] <= sequence.measured_bytes(), (layout, length)
            assert sequence.measured_bytes() <= bounds[1], (layout, length)
            if layout.startswith("affine"):
                bits = int(layout[-1]) + 64 / 32  # groups of 32 at least on these heads
                assert sequence.measured_bytes() <= most_bytes(bits + 0.5, shape.caches, positions), (layout, length)


@pytest.mark.parametrize(("sink", "window"), [(4, 64), (500, 64), (512, 1024), (1200, 64)])
def test_a_layer_that_streams_holds_what_arithmetic_says(sink: int, window: int) -> None:
    import mlx.core as mx

    from engine.backends.mlx.caches import make_cache
    from engine.backends.streaming import StreamedRows

    layout, shape = f"sink{sink}+window{window}+stream", CacheShape(keys=4, values=4, window=None)
    cache = make_cache(None, CacheLayout.parse(layout), 4)
    assert isinstance(cache, StreamedRows)
    report: Any = SimpleNamespace(body={"environment": {"backend": "mlx"}, "config": {"target": {"dtype": "float32"}}})
    positions, blocks = 0, [512] * (2 * (sink + window) // 512) + [8] * 12  # more than a page of blocks
    for rows in blocks:
        cache.ask(mx.zeros((1, 1, rows, 4)), 1, 1.0)
        mx.eval(*cache.append(mx.zeros((1, 1, rows, 4)), mx.zeros((1, 1, rows, 4))))
        positions += rows
        bounds = layout_bytes(layout, (shape,), report, positions)
        assert bounds is not None
        if rows == 8:
            assert bounds[0] <= cache.measured_bytes() <= (bounds[1] or 0.0), positions


@pytest.mark.ci
@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("kv-quant", "torch"),
        ("bounded-kv", "mlx"),
        ("acceptance", "mlx"),
        pytest.param("kv-quant", "mlx", marks=pytest.mark.slow),
        pytest.param("bounded-kv", "torch", marks=pytest.mark.slow),
        pytest.param("acceptance", "torch", marks=pytest.mark.slow),
    ],
)
def test_a_studys_report_agrees_with_what_the_runner_reads(
    root: Path, run_environment: Path, tmp_path: Path, name: str, verb: str
) -> None:
    path = measured(root, run_environment, verb, name)
    reports, problems = load({path.name: path.read_bytes()})
    assert problems == {}
    case = honest("kv_quantisation")
    record = case.record_value()
    assert record is not None
    models = (digested(root / "tiny", tmp_path), digested(root / "tiny-dflash", tmp_path))
    record = record.model_copy(update={"models": models, "environment": (("KAKEYA_TARGET", "tiny"),)})
    evidence = Evidence(reports, record, case.spec_value(), profiles.named("default", "smoke"))
    looked = {code: rules()[code](evidence) for code in RULES}
    messages = {
        code: [] if isinstance(findings, Skip) else [finding.message for finding in findings]
        for code, findings in looked.items()
    }
    assert not any(messages.values()), messages
    assert {code for code, findings in looked.items() if not isinstance(findings, Skip)} == {
        "kv-quant": set(RULES),
        "bounded-kv": {"G2-MODELS", "G7-NATIVE"},
        "acceptance": {"G2-MODELS", "G4-PROMPTS", "G7-NATIVE"},
    }[verb]


def measured(root: Path, out: Path, verb: str, backend: str) -> Path:
    """Return the report of a small study."""
    common = ["--backend", backend, *(["--device", "cpu"] if backend == "torch" else [])]
    if verb == "bounded-kv":
        options = ["--set", str(root / "set.json"), "--contexts", "24,96", "--max-new", "4", "--cache", "sink2+window8"]
        for launch in range(2):
            assert eval_cli.main([verb, *common, *options, "--launch", str(launch), "--launches", "2"]) == 0
        assert eval_cli.main([verb, *common, *options, "--assemble"]) == 0
    else:
        named = {"kv-quant": "needles.json", "acceptance": "set.json"}[verb]
        assert eval_cli.main([verb, *common, "--set", str(root / named), "--max-new", "8"]) == 0
    (path,) = out.glob("*.json")
    return path
