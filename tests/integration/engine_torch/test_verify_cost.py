"""What verifying costs is measured of targets that say something, and of no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import NonFiniteLogitsError
from engine.loading import open_engine
from engine.studies.verify_cost import CostPlan, measure_costs
from tests.fakes import tiny_families

PLAN = CostPlan((8,), (1, 4), 1, "seed")


@pytest.mark.timeout(240)
def test_a_target_without_a_usable_token_is_an_error_and_no_endless_measurement(backend: Any, tmp_path: Path) -> None:
    engine: Any = open_engine(backend, str(tiny_families.write_family(tmp_path, "llama")), None)
    with torch.no_grad():
        engine.target.module.lm_head.weight.fill_(float("nan"))
    with pytest.raises(NonFiniteLogitsError, match="no usable next token after 9 positions: non-finite logits"):
        measure_costs(engine, PLAN)


def test_a_target_that_ends_an_answer_with_its_last_id_is_measured_too(backend: Any, tmp_path: Path) -> None:
    folder = tiny_families.write_family(tmp_path, "llama", eos_token_id=tiny_families.VOCAB - 1)
    costs = measure_costs(open_engine(backend, str(folder), None), PLAN)
    assert [(row.context_tokens, row.rows) for row in costs.verify] == [(8, 1), (8, 4)]
