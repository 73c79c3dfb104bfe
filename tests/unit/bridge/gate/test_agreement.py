"""What both sides define alike is computed alike, and the gate stays light."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from bridge.gate import profiles, report_kinds
from bridge.gate.catalogue import rules_catalogue
from bridge.gate.declared.workload import kind_of
from bridge.gate.facts import outputs
from bridge.gate.interface import Evidence, Report
from bridge.gate.judging import judge
from bridge.gate.registry import rules
from bridge.gate.reports import schema
from bridge.gate.rules.arms import balancing_orders, shuffled
from bridge.records.workload import KIND as WORKLOAD
from bridge.runner.machine.models import ModelDigests
from engine.checkpoint import folder_digest, number_format
from engine.measurement.schedule import PROFILES, every_order, in_turns
from engine.measurement.schedule import shuffled as engine_shuffled
from engine.measurement.selection import read_packaged
from engine.reports import tokens as engine_tokens
from engine.studies import acceptance
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.mutator import mutants, mutate
from tests.corpus.gate.studies import BUILDERS

G5_DESIGN = rules()["G5-DESIGN"]
SMALL_TOKENS = st.lists(st.integers(0, 3), max_size=160)


@given(SMALL_TOKENS)
@settings(max_examples=150, deadline=None)
def test_loop_onset_is_the_engines(tokens):
    assert outputs.loop_onset(tokens) == engine_tokens.loop_onset(tokens)


@given(st.lists(st.integers(0, 2), max_size=70))
@settings(max_examples=80, deadline=None)
def test_loop_onset_is_its_definition(tokens):
    """Search every start and period by brute force."""
    onset = None
    for start in range(len(tokens)):
        for period in range(1, 33):
            needed = max(48, 3 * period)
            part = tokens[start : start + needed]
            if len(part) == needed and all(a == b for a, b in zip(part, part[period:], strict=False)):
                onset = start if onset is None else min(onset, start)
    assert outputs.loop_onset(tokens) == onset


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40))
@settings(max_examples=60, deadline=None)
def test_digests_and_repeats_are_the_engines(tokens):
    assert outputs.token_digest(tokens) == engine_tokens.token_digest(tokens)
    assert outputs.repeated_share(tokens) == pytest.approx(engine_tokens.repeated_share(tokens))


def test_orders_are_drawn_as_the_engine_draws_them():
    items = [(str(index),) for index in range(24)]
    assert shuffled(items, "digest", 3, "orders") == engine_shuffled(items, "digest", 3, "orders")
    assert balancing_orders(list("abcdef")) == every_order("abcdef")
    assert balancing_orders(list("abcde")) == every_order("abcde")


@pytest.mark.parametrize("kind", sorted(report_kinds.KINDS))
def test_every_kind_has_a_schema_that_is_one(kind):
    Draft202012Validator.check_schema(schema.document(kind))


STRIDES = {"smoke": 13, "probe": 1, "suite": 1, "verify_cost": 5, "bounded_kv": 5}
EACH = [pytest.param(name, 1, marks=pytest.mark.slow) for name, stride in STRIDES.items() if stride > 1]


@pytest.mark.parametrize(("name", "stride"), [*STRIDES.items(), *EACH])
def test_the_quick_validator_refuses_what_the_plain_one_refuses(name, stride):
    value = honest(name).report
    registry = Registry().with_resource("report.schema.json", Resource.from_contents(schema.document("report")))
    plain = Draft202012Validator(schema.document(value["kind"]), registry=registry)
    for mutant in islice(mutants(value, "report", 1, seed=3), 0, None, stride):
        if mutant.path[0] == "kind" or mutant.operator not in {"drop", "retype", "swap", "x1000"}:
            continue
        (changed,) = mutate(value, mutant.path, mutant.operator)
        if changed.get("kind") != value["kind"]:
            continue
        refused = any(True for _ in schema.problems(changed, at_most=1))
        # The plain one takes 3.0 for an integer; the quick one refuses at least what the plain one does.
        assert refused or plain.is_valid(changed), mutant
    assert not list(schema.problems(value, at_most=1))


def test_both_profiles_have_the_same_numbers_and_a_reason_for_each():
    smoke, claim = profiles.reasons("smoke"), profiles.reasons("claim")
    assert set(smoke) == set(claim)
    assert all(len(why) > 8 for _, why in (*smoke.values(), *claim.values()))


def test_every_kind_has_rules_of_its_own_and_an_honest_builder():
    looked_at = {kind for entry in rules_catalogue() for kind in entry.kinds}
    assert looked_at == {*report_kinds.KINDS, WORKLOAD}
    built = {honest(name).report["kind"] for name in ("smoke", "probe", "suite", *BUILDERS)}
    assert built == report_kinds.KINDS


@pytest.mark.parametrize("name", ["trained", "paired"])
def test_an_owners_own_program_has_honest_builders_that_every_rule_of_its_kind_passes(name):
    """No folder declares this kind and no report names it: its definition is in the job spec."""
    case = honest(name)
    assert kind_of(case.spec_value().workload).name == WORKLOAD
    judged = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert [finding.code for finding in judged.findings if finding.severity != "note"] == []


def test_judging_imports_no_array_library():
    program = (
        "import sys, json, bridge.gate.judging as g\n"
        "from tests.corpus.gate.breaks import honest\n"
        "case = honest('smoke'); g.judge(case.run_id, case.files(), case.record_value(), case.spec_value())\n"
        "print(json.dumps([m for m in ('numpy', 'scipy', 'pandas', 'torch', 'mlx') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_a_model_has_one_digest_for_the_runner_and_the_report(tmp_path):
    """The gate compares the two: they must be the same function of the same files."""
    (tmp_path / "config.json").write_text('{"model_type": "gemma4"}')
    for part in ("model-00002-of-00002", "model-00001-of-00002"):
        (tmp_path / f"{part}.safetensors").write_bytes(part.encode() * 100)
    (tmp_path / "tokenizer.json").write_text("{}")
    (model,) = ModelDigests(tmp_path.with_suffix(".cache")).of([str(tmp_path)], [], None)
    assert model.weights_sha256 == folder_digest(tmp_path)
    (tmp_path / "tokenizer.json").write_text("[]")
    (again,) = ModelDigests(tmp_path.with_suffix(".cache")).of([str(tmp_path)], [], None)
    assert again.weights_sha256 == model.weights_sha256
    assert again.sha256 != model.sha256
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"other")
    (other,) = ModelDigests(tmp_path.with_suffix(".cache")).of([str(tmp_path)], [], None)
    assert other.weights_sha256 == folder_digest(tmp_path) != model.weights_sha256


def test_a_folder_without_weights_has_no_digest_of_them(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (model,) = ModelDigests(tmp_path.with_suffix(".cache")).of([str(tmp_path)], [], None)
    assert model.weights_sha256 is None


@pytest.mark.parametrize("kind", sorted(report_kinds.KINDS))
def test_every_number_format_the_engine_can_name_is_one_a_report_may_state(kind):
    """A quantised folder names its packing; a schema with a list of its own would refuse an honest report."""
    formats = [number_format({"quantization": {"bits": bits}}) for bits in (2, 3, 4, 5, 6, 8)]
    formats += [number_format({"quantization": {"bits": 4, "mode": mode}}) for mode in ("mxfp4", "nvfp4", "mxfp8")]
    formats += [number_format({"quantization": {"bits": 4, "model.embed_tokens": {"bits": 8}}})]
    formats += [
        number_format({"quantization_config": {"quant_method": method, "bits": 4}}) for method in ("awq", "gptq")
    ]
    formats += [number_format({"dtype": name}) for name in ("float32", "bfloat16", "float16")]
    text = json.dumps([schema.document(kind), schema.document("report")["$defs"]["model"]])
    patterns = set(re.findall(r'"dtype": {"type": "string", "pattern": "([^"]+)"', text))
    assert patterns
    assert [dtype for dtype in formats if not all(re.search(pattern, dtype) for pattern in patterns)] == []


def test_the_engines_acceptance_study_meets_the_claim_profile():
    """The study takes this many prompts and warm-ups, and its prompt set holds them."""
    prompts, warmups, _ = acceptance.PROFILES["claim"]
    profile = profiles.named("default", "claim")
    assert prompts >= profile["prompts_min_count"]
    assert warmups >= profile["warmups_per_arm_and_launch"]
    rows = json.loads(read_packaged("code-raw"))["prompts"]
    assert len({row["text"] for row in rows}) >= prompts + warmups


@pytest.mark.parametrize("name", ["smoke", "claim"])
def test_the_engines_launches_in_turns_meet_the_profile(name):
    """One warm-up too few would take the inputs from every claim of a run of a quarter of an hour."""
    made, profile = in_turns(PROFILES[name]), profiles.named("default", name)
    assert made.warmups >= profile["warmups_per_arm_and_launch"]
    assert name == "smoke" or made.prompts_per_launch * made.blocks >= profile["prompts_min_count"]


@pytest.mark.parametrize("count", [59, 20])
def test_a_claim_of_acceptance_needs_its_prompts(count):
    case = honest("acceptance")
    names = [s["prompt_id"] for s in case.report["arms"][0]["samples"] if not s["is_warmup"]][:count]
    for arm in case.report["arms"]:
        arm["samples"] = [s for s in arm["samples"] if s["is_warmup"] or s["prompt_id"] in names]
    violations = G5_DESIGN(
        Evidence((Report("report.json", b"", case.report),), None, None, profiles.named("default", "claim"))
    )
    assert [f"has {count} samples" in violation.message for violation in violations] == [True, True]
