"""A model that presets need and that is not here is said before a run fails for it, with what brings it here."""

from __future__ import annotations

import json

import pytest

from bridge.diagnostics import lines
from bridge.presets.installed import registry
from bridge.runner.maintenance.model_checks import check_models, what_is_missing
from bridge.runner.policy.model import Policy

PRESETS = tuple(registry()[name] for name in ("k3-native-baseline", "k3-fused-allmlx-code", "mlx-env-probe"))
INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
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
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "big" / name).write_text("{}")
    own = Policy(schema=1, name="here", target=str(tmp_path / "big"))
    assert [(level, text.partition(":")[0]) for level, text, _ in found(own, engine)] == [("ok", str(tmp_path / "big"))]
    for drafter in ("ngram", "mtp", "none", f"{tmp_path / 'big'},ngram", "grpc:127.0.0.1:7000"):
        beside = own.model_copy(update={"drafter": drafter})
        assert {level for level, _, _ in found(beside, engine)} == {"ok"}
    other = Policy(schema=1, name="here", drafter=str(tmp_path / "none"))
    assert [level for level, _, _ in found(other, engine)] == ["fail", "warn"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no config.json"),
        ({"config.json": "{}"}, "has no weights"),
        ({"config.json": "{}", "model.safetensors": "w"}, None),
        ({"config.json": "{}", "weights.npz": "w"}, None),
        (
            {"config.json": "{}", "model.safetensors.index.json": INDEX, "model-1.safetensors": "w"},
            "lacks 1 of 2 files of weights, e.g. model-2.safetensors",
        ),
        ({"config.json": "{}", "model.safetensors.index.json": "[1]"}, "is no index of weights"),
        ({"config.json": "{}", "model.safetensors": "w", "x.incomplete": ""}, "is half of a download"),
        ({"config.json": "{}", "model.safetensors": POINTER}, "is a pointer of git-lfs"),
    ],
)
def test_a_folder_is_whole_or_says_what_it_lacks(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    problem = what_is_missing(tmp_path)
    assert problem is None if message is None else message in str(problem)
