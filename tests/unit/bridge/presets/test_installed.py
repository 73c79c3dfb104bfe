"""Preset files are strict data, and every name of the design is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import PresetNotFoundError, UsageError
from bridge.gate import profiles
from bridge.gate.report_kinds import KINDS
from bridge.presets.installed import find, load, registry
from bridge.presets.names import installed_names

NAMES = [
    "mlx-env-probe",
    "mlx-backend-tests",
    "integration-tests",
    "pytest-path",
    "k3-step1-incremental",
    "k3-step2-fused",
    "k3-step2-fused-allmlx",
    "k3-native-baseline",
    "k3-evidence-gate",
    "k3-drafter-parity",
    "k3-drafter-parity-fp32",
    "k3-bounded-kv",
    "k3-kv-quant-eval",
    "k3-fused-allmlx-natural",
    "k3-fused-allmlx-code",
    "k3-fused-allmlx-code-trim",
    "k3-fused-singlefused-probe",
    "mlx-distributed-spec-decode-demo",
    "mlx-distributed-spec-decode-bench",
    "mlx-distributed-dflash-e2e-inproc",
    "mlx-distributed-dflash-e2e-grpc",
    "mlx-distributed-dflash-e2e-crosshost",
    "cuda-env-probe",
    "cuda-fused-code",
    "cuda-step1-incremental",
    "cuda-native-baseline",
    "cuda-verify-cost",
    "mlx-verify-cost",
    "cuda-humaneval-acceptance",
]

GOOD = """
schema = 1
name = "x"
status = "ready"
description = "d"
[[commands]]
name = "a"
argv = ["${engine}", "probe", "mlx", "{n}"]
[[outputs]]
path = "r.json"
kind = "environment_probe"
[params.n]
type = "int"
min = 0
max = 9
default = 3
help = "h"
"""


def test_every_name_of_the_design_is_known():
    assert set(NAMES) <= set(registry())


@pytest.mark.parametrize("name", NAMES)
def test_a_ready_preset_declares_kinds_and_profiles_the_gate_has(name):
    preset = registry()[name]
    if preset.status == "ready":
        assert {output.kind for output in preset.outputs} <= {*KINDS, "recompute"}
        assert preset.gate_profile in profiles.names()
        claimless = {output.kind for output in preset.outputs} - {"recompute"} == {"fused_graph_probe"}
        assert claimless or preset.primary_claim is not None


def test_a_well_formed_file_loads():
    assert load("x", GOOD.encode()).params["n"].default == 3


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"{n}"', '"--n={n}"', "mixes text and a placeholder"),
        ('"{n}"', '"{m}"', "argv uses"),
        ("${engine}", "${secret}", "unknown"),
        ("default = 3", "default = 12", "0 to 9"),
        ("default = 3", "default = true", "valid"),
        ('name = "x"', 'name = "y"', "named as its file"),
        ('status = "ready"', 'status = "ready"\nshell = "yes"', "shell"),
        ('status = "ready"', 'status = "maybe"', "status"),
        ('type = "int"', 'type = "eval"', "params"),
        ("schema = 1", "schema = 2", "schema"),
        ('description = "d"', 'description = "d"\nenvironment = { KAKEYA_OUT = "/" }', "the runner sets"),
        ('description = "d"', 'description = "d"\ncode = "request"\nsecrets = ["TOKEN"]', "no secret"),
        ('kind = "environment_probe"', "", "kind"),
        ("schema = 1", "schema = 1\nschema = 1", "x.toml"),
    ],
)
def test_a_malformed_file_is_refused_with_a_reason(old, new, says):
    assert old in GOOD
    with pytest.raises(UsageError, match=says):
        load("x", GOOD.replace(old, new, 1).encode())


def test_a_preset_may_not_take_the_name_of_cancel_branches():
    with pytest.raises(UsageError, match="reserved"):
        load("cancel", GOOD.replace('"x"', '"cancel"').encode())


def test_an_unknown_preset_is_refused_with_the_known_ones():
    with pytest.raises(PresetNotFoundError, match=r"known: commit-comparison, .* more"):
        find("nope")


def test_the_digest_changes_with_any_effective_value():
    digests = {load("x", GOOD.replace(*change).encode()).digest() for change in [("h", "h"), ("max = 9", "max = 8")]}
    assert len(digests) == 2
    assert load("x", (GOOD + "# a comment\n").encode()).digest() == load("x", GOOD.encode()).digest()


def test_the_test_suites_that_presets_name_are_there():
    root = Path(__file__).parents[4]
    named = [
        token
        for preset in registry().values()
        for command in preset.commands
        for token in command.argv
        if token.startswith("tests/")
    ]
    assert named
    assert [path for path in named if not (root / path).exists()] == []


def test_the_names_of_installed_presets_are_known_without_reading_one():
    assert installed_names() == tuple(registry())


def test_the_set_that_prompts_are_compared_with_is_the_presets_and_not_the_reports():
    asking = [
        preset for preset in registry().values() if "verify_cost" not in {output.kind for output in preset.outputs}
    ]
    last = {preset.name: preset.commands[-1] for preset in asking if preset.commands}
    confirming = {name: command.argv for name, command in last.items() if command.confirms}
    assert len(confirming) > 10
    assert [name for name, argv in confirming.items() if "--set" not in argv] == []


@pytest.mark.parametrize("name", ["cuda-verify-cost", "mlx-verify-cost"])
def test_what_verifying_costs_is_measured_without_a_drafter_that_the_runner_was_not_told_of(name):
    """Left to itself the engine asks the one named like the target, which nobody digested or which is not there."""
    preset = registry()[name]
    assert preset.models.drafter is None
    assert [command.argv[command.argv.index("--drafter") + 1] for command in preset.commands] == ["none", "none"]
