"""A model that presets need and that is not here is said before a run fails for it, with what brings it here."""

from __future__ import annotations

import pytest

from bridge.diagnostics import lines
from bridge.presets.installed import registry
from bridge.runner.maintenance.model_checks import check_models
from bridge.runner.policy.model import Policy

PRESETS = tuple(registry()[name] for name in ("k3-native-baseline", "k3-fused-allmlx-code", "mlx-env-probe"))
TARGET, DRAFTER = "kakeya-tiny-gemma4", "kakeya-tiny-gemma4-dflash"


@pytest.fixture
def engine(tmp_path):
    """The engine of a wheel: the folders of the models are there, their weights are not."""
    for name in (TARGET, DRAFTER):
        (tmp_path / "engine" / "assets" / name).mkdir(parents=True)
    return tmp_path / "engine"


def found(policy, engine, presets=PRESETS):
    return [(check.level, check.text, check.remedy) for check in check_models(policy, presets, engine)]


def test_models_without_weights_are_said_with_the_command_that_adds_them(engine):
    remedy = "kakeya-engine assets add CLONE, the folder of a clone of this version"
    assert found(Policy(schema=1, name="here"), engine) == [
        ("warn", f"{TARGET}: no weights, 2 allowed presets need it", remedy),
        ("warn", f"{DRAFTER}: no weights, 1 allowed preset needs it", remedy),
    ]
    for check in check_models(Policy(schema=1, name="here"), PRESETS, engine):
        assert all(len(line) <= 100 for line in lines(check))
    (engine / "assets" / TARGET / "model.safetensors").write_bytes(b"weights")
    assert found(Policy(schema=1, name="here"), engine)[0] == ("ok", f"{TARGET}: 2 allowed presets need it", None)
    assert found(Policy(schema=1, name="here"), engine, PRESETS[2:]) == []


def test_a_model_that_is_nowhere_belongs_into_the_owners_folders(tmp_path):
    level, text, remedy = found(Policy(schema=1, name="here"), None)[0]
    assert (level, text) == ("warn", f"{TARGET}: not found, 2 allowed presets need it")
    assert "model_roots" in remedy
    (tmp_path / "roots" / TARGET).mkdir(parents=True)
    (tmp_path / "roots" / TARGET / "model-00001-of-00002.safetensors").write_bytes(b"weights")
    assert found(Policy(schema=1, name="here", model_roots=(str(tmp_path / "roots"),)), None)[0][0] == "ok"


def test_only_the_models_that_runs_would_take_are_looked_for(engine, tmp_path):
    (tmp_path / "big").mkdir()
    own = Policy(schema=1, name="here", target=str(tmp_path / "big"))
    assert [(level, text.partition(":")[0]) for level, text, _ in found(own, engine)] == [("ok", str(tmp_path / "big"))]
    other = Policy(schema=1, name="here", drafter=str(tmp_path / "none"))
    assert [level for level, _, _ in found(other, engine)] == ["fail", "warn"]
