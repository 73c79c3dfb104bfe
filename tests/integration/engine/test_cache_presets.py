"""The presets of caches and of what verifying costs through the real bridge: request, runner, sandbox, gate, result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.clone import Clone

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    clone = Clone(tmp_path_factory.mktemp("requester"))
    yield clone
    clone.stop_runners()


@pytest.mark.parametrize(
    ("preset", "report", "claim"),
    [
        ("k3-kv-quant-eval", "kv-quant.json", "recall_affine8"),
        ("k3-bounded-kv", "bounded-kv.json", "kv_saving"),
        ("mlx-verify-cost", "verify-cost.json", "verify_8_at_512"),
        ("k3-step1-incremental", "bounded-recall.json", "recall"),
        ("cuda-step1-incremental -p device=cpu", "bounded-recall.json", "recall"),
        ("k3-step2-fused", "bounded-recall.json", "recall"),
        ("k3-step2-fused-allmlx", "bounded-recall.json", "recall"),
    ],
)
def test_a_smoke_run_passes_the_gate_with_its_primary_claim(clone: Clone, preset: str, report: str, claim: str) -> None:
    ran = clone.mac("run", *preset.split(), "--wait", timeout_s=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.match(r"passed +(quotable|measured) \(smoke\)", ran.stdout)
    folder = Path(clone.mac("open", "@last").stdout.strip())
    assert (folder / "reports" / report).is_file()
    verdict = json.loads((folder / "verdict.json").read_text())
    assert [finding["code"] for finding in verdict["findings"] if finding["severity"] == "reject"] == []
    assert claim in {entry["id"] for entry in verdict["claims"] if entry["role"] == "primary"}


def test_rows_made_again_elsewhere_are_a_parameter_of_the_distributed_presets(tmp_path: Path) -> None:
    """For a pair that has an f_theta; the presets' own has none, and says so in a line."""
    pair = {"KAKEYA_TARGET": "kakeya-tiny-qwen3", "KAKEYA_DRAFTER": "kakeya-tiny-qwen3-dflash"}
    restored = "restored=sink4+window64+ftheta64@remote"
    for environment, code, line in (
        (pair, 0, "rows made elsewhere gave the tokens of rows made here on 2 of 2 prompts"),
        ({}, 1, "no f_theta of rank 64 is known for 'kakeya-tiny-gemma4'"),
    ):
        clone = Clone(tmp_path / str(code), environment)
        try:
            ran = clone.mac("run", "mlx-distributed-dflash-e2e-grpc", "-p", restored, "--wait", timeout_s=400)
            assert (ran.returncode == 0) == (code == 0), ran.stdout + ran.stderr
            assert line in clone.mac("logs", "@last").stdout
        finally:
            clone.stop_runners()
