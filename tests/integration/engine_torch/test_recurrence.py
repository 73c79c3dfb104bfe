"""Which recurrence a hybrid runs: its reference is named, and the kernels of a package in its place are called once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.drafters.none import NoDrafter
from engine.loading import Engine
from engine.measurement.measure import Instruments
from engine.measurement.selection import Prompt, answered
from engine.reports import SamplePipe, token_digest
from engine.structure.layout import CacheLayout
from engine.studies.kv_quant import QuantPlan, run_kv_quant
from engine.types import Draft
from tests.fakes import tiny_families

ROWS = 5
STAND_IN = """
calls = []

def _rule(name):
    def rule(q, k, v, g=None, beta=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False):
        calls.append(name)
        if initial_state is None:
            initial_state = v.new_zeros((v.shape[0], v.shape[2], k.shape[3], v.shape[3]))
        return v.clone(), initial_state
    return rule

chunk_gated_delta_rule = _rule("chunk")
fused_recurrent_gated_delta_rule = _rule("fused")
"""
PROGRAM = f"""
import sys
from pathlib import Path
import fla
from engine.backends.torch.backend import TorchBackend
from engine.structure.layout import CacheLayout
from engine.types import Draft

target = TorchBackend(device="cpu").load_target(Path(sys.argv[1]))
sequence = target.open((), CacheLayout.NATIVE)
list(sequence.prefill(tuple(range(5, 25)), 512))
fla.calls.clear()
sequence.forward_block(9, Draft((7,) * {ROWS - 1}, {ROWS - 1}))
print(fla.calls == ["fused"] * len(target.family.structure.recurrent), len(fla.calls), sequence.fallbacks())
"""


def test_a_hybrid_names_the_reference_recurrence(backend: Any, tmp_path: Path) -> None:
    target = backend.load_target(tiny_families.write_family(tmp_path, "qwen3_5_text"))
    sequence = target.open((), CacheLayout.NATIVE)
    list(sequence.prefill(tuple(range(5, 25)), 512))
    for _ in range(2):
        sequence.forward_block(9, Draft((7,) * (ROWS - 1), ROWS - 1))
    [(reason, count)] = sequence.fallbacks().items()
    assert "flash-linear-attention is not installed" in reason
    assert count == 2


def test_a_study_of_quantised_caches_says_which_forwards_of_which_layout_ran_slowly(
    backend: Any, tmp_path: Path
) -> None:
    target = backend.load_target(tiny_families.write_family(tmp_path, "qwen3_5_text"))
    engine = Engine(backend, target, NoDrafter(), backend.greedy(target), backend.native(target), tmp_path)
    prompts = []
    for row in range(2):
        ids = tuple(range(5 + row, 25 + row))
        prompts.append(Prompt(f"p{row}", "needle", ids, token_digest(ids)))
    plan = QuantPlan(
        layouts=(CacheLayout.parse("affine8/4"),),
        measured=prompts,
        warmups=(),
        max_new_tokens=4,
        stop_ids=frozenset(),
        chunk_tokens=512,
        seed="seed",
        score=answered,
    )
    instruments = Instruments(backend.clock, SamplePipe(None), backend.allocator_active_bytes, str)
    measured = run_kv_quant(engine, plan, instruments)
    _, quantised = measured.arms
    rows = [(row.arm, row.component, row.sample, row.count) for row in measured.fallbacks]
    assert rows == [("affine8/4", "graphs", sample.id, 3) for sample in quantised.samples]
    assert all("flash-linear-attention is not installed" in row.reason for row in measured.fallbacks)


@pytest.mark.ci
def test_a_package_with_the_kernels_is_called_once_a_recurrent_layer_whatever_the_rows(tmp_path: Path) -> None:
    folder = tiny_families.write_family(tmp_path / "model", "qwen3_5_text")
    (tmp_path / "fla").mkdir()
    (tmp_path / "fla" / "__init__.py").write_text(STAND_IN)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    equal, count, fallbacks = done.stdout.split(maxsplit=2) or (done.stderr, "", "")
    assert (equal, fallbacks.strip()) == ("True", "{}"), done.stderr[-500:]
    assert int(count) > 0


FAILING = {
    "the package": {"__init__.py": "raise RuntimeError('no usable Triton')"},
    "its kernels alone": {"__init__.py": "", "ops/__init__.py": "", "ops/gated_delta_rule.py": "import no_triton_here"},
}


@pytest.mark.parametrize("files", FAILING.values(), ids=FAILING)
def test_a_package_whose_kernels_cannot_be_imported_is_no_reason_to_claim_them(
    tmp_path: Path, files: dict[str, str]
) -> None:
    folder = tiny_families.write_family(tmp_path / "model", "qwen3_5_text")
    (tmp_path / "fla" / "ops").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "fla" / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())]), "OMP_NUM_THREADS": "1"}
    program = "\n".join(line for line in PROGRAM.splitlines() if "fla" not in line) + "\nprint(sequence.fallbacks())"
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert "run transformers' reference, row by row" in done.stdout, done.stderr[-500:]
