"""Whose step costs a file holds: those of another drafter or of other kernels are not taken for one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.decoding.cost_tables import write_costs
from engine.decoding.lookups import LOOKED_UP
from engine.loading import load_backend, open_engine
from engine.options import cost_key, starting_costs
from engine.studies.verify_cost import DraftCost, MeasuredCosts, VerifyCost

DRAFTER = "kakeya-tiny-gemma4-dflash"


@pytest.fixture(scope="module")
def engine() -> Any:
    return open_engine(load_backend("torch", "cpu"), "kakeya-tiny-gemma4", DRAFTER)


@pytest.mark.parametrize("measured_with", [DRAFTER, "another-dflash"])
def test_a_controller_starts_from_the_costs_of_its_own_drafter_alone(
    engine: Any, tmp_path: Path, measured_with: str
) -> None:
    verify = (VerifyCost(64, 1, (0.5,), ""), VerifyCost(64, 8, (0.625,), ""))
    table = MeasuredCosts(verify, (DraftCost(64, 7, (0.25,), ""),)).table(measured_with)
    write_costs(tmp_path / "costs.json", cost_key(engine), table)
    costs = starting_costs(tmp_path / "costs.json", engine)
    assert costs is not None
    assert costs[LOOKED_UP] == {1: 0.5, 8: 0.625}
    assert costs.get("") == ({1: 0.5, 8: 0.875} if measured_with == DRAFTER else None)


def test_costs_of_other_kernels_are_refused_by_the_name_of_their_package(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without = cost_key(engine)
    write_costs(tmp_path / "costs.json", without, {LOOKED_UP: {1: 0.5, 8: 0.625}})
    for name in ("flash-linear-attention", "causal-conv1d"):
        folder = tmp_path / "packages" / f"{name.replace('-', '_')}-9.8.7.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.8.7\n")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    assert without.difference(cost_key(engine)) is not None
    assert starting_costs(tmp_path / "costs.json", engine) is None
    assert "'flash-linear-attention': '9.8.7'" in capsys.readouterr().err
