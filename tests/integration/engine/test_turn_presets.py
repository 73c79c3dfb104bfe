"""The presets whose turns are handed out, through the real bridge: what a smoke run lacks is its size alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.clone import Clone

pytestmark = pytest.mark.slow
SMALL = {"G5-DESIGN", "G5-LAUNCHES", "G5-REFERENCE"}
RATIOS = ("identical_prompts", "acceptance_length", "decode_speedup")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    clone = Clone(tmp_path_factory.mktemp("requester"))
    yield clone
    clone.stop_runners()


@pytest.mark.parametrize(
    ("preset", "quoted"),
    [
        ("k3-fused-allmlx-code", RATIOS),
        ("k3-fused-allmlx-natural", RATIOS),
        ("k3-native-baseline", ("baseline_tokens_per_s",)),
    ],
)
def test_inputs_times_and_ratio_of_a_smoke_run_lack_its_size_alone(
    clone: Clone, preset: str, quoted: tuple[str, ...]
) -> None:
    ran = clone.mac("run", preset, "--wait", timeout_s=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    folder = Path(clone.mac("open", "@last").stdout.strip())
    record = json.loads((folder / "run.json").read_text())
    assert [launch["number"] for launch in record["launches"]] == [0, 1, 2]
    assert all(launch["turns"] and launch["cut"] is None for launch in record["launches"])
    claims = {claim["id"]: claim for claim in json.loads((folder / "verdict.json").read_text())["claims"]}
    for name in quoted:
        premises = [premise for premise in claims[name]["premises"] if premise["premise"] not in {"code", "machine"}]
        why = [reason for premise in premises for reason in premise["why"]]
        assert {reason.split(":")[0] for reason in why if "a claim needs" not in reason} <= SMALL, why
    log = (folder / "log.txt").read_text("utf-8")
    assert " s," not in log.split("assemble", 1)[0]
