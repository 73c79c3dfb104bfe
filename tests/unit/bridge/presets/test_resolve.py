"""What runs is the meet of request, preset and host policy: a request tightens, never loosens."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge import limits
from bridge.errors import PolicyRefusedError, RequestRejectedError
from bridge.presets.facts import LimitCaps, PolicyFacts, SandboxMode, Trust
from bridge.presets.installed import load, registry
from bridge.presets.resolution import explain, resolve
from bridge.records.network import describe_network
from bridge.records.request import LimitRequest, Workload
from bridge.records.workload import MetricDefinition, WorkloadDefinition
from tests.fakes.asking import make_request

FACTS = PolicyFacts(digest="0" * 64, interpreter="/opt/python")
CODE = Workload(commit="a" * 40, tree="b" * 40, origin="", dirty=False)
NOW = dt.datetime(2026, 11, 20, 10, 0, tzinfo=dt.UTC)
STRICT: dict[SandboxMode, int] = {"off": 0, "preferred": 1, "required": 2}

FULL = """
schema = 1
name = "x"
status = "ready"
description = "d"
labels = ["study"]
secrets = ["TOKEN"]
environment = { OMP_NUM_THREADS = "2", MINE = "preset" }
[[commands]]
name = "launch"
argv = ["${engine}", "go", "--n", "{n}", "--launch", "${launch}", "--of", "${launches}", "{fast}"]
repeat = { smoke = 1, claim = 3 }
[[commands]]
name = "join"
argv = ["${engine}", "join", "${target}", "${profile}"]
[[outputs]]
path = "r.json"
kind = "code_throughput"
[models]
target = "small"
drafter = "small-drafter"
[params.n]
type = "int"
min = 0
max = 9
default = 3
help = "h"
[params.fast]
type = "flag"
token = "--fast"
help = "h"
[limits]
wall_s = 100.0
[limits.claim]
wall_s = 900.0
[sandbox]
mode = "preferred"
network = ["data.example.org", "*.example.net"]
gpu = true
"""


def ask(preset="x", **changes):
    return make_request("bus", preset, now=NOW, **changes)


def preset(text=FULL):
    return load("x", text.encode())


def test_argv_is_the_hosts_interpreter_isolated_and_whole_tokens():
    spec = resolve(ask(params={"n": 4, "fast": True}), preset(), FACTS, Trust())
    engine = ("/opt/python", "-I", "-m", "engine.cli")
    assert spec.commands[0].argv == (*engine, "go", "--n", "4", "--launch", "0", "--of", "1", "--fast")
    assert spec.commands[1].argv == (*engine, "join", "small", "smoke")
    assert spec.params == {"n": 4, "fast": True}


def test_the_claim_profile_repeats_commands_and_has_limits_of_its_own():
    spec = resolve(ask(profile="claim"), preset(), FACTS, Trust())
    assert [command.name for command in spec.commands] == ["launch-0", "launch-1", "launch-2", "join"]
    assert spec.commands[2].argv[-4:] == ("--launch", "2", "--of", "3")
    assert spec.limits.wall_s == 900.0


def test_request_code_is_found_first_and_never_installed():
    spec = resolve(ask("pytest-path", workload=CODE), registry()["pytest-path"], replace(FACTS, embedded=True), Trust())
    assert spec.commands[0].argv[:4] == ("/opt/python", "-s", "-m", "engine.cli")
    assert (spec.code, spec.trust_class, spec.tree) == ("request", "untrusted", CODE.tree)
    assert {"embedded", "trust_pushers", "untrusted_code"} <= set(spec.labels)


def test_the_environment_names_its_origins_and_the_requester_is_none_of_them():
    facts = replace(FACTS, environment={"MINE": "policy"}, secrets={"TOKEN": "s3cret", "OTHER": "x"}, target="/m/big")
    spec = resolve(ask(), preset(), facts, Trust())
    variables = {v.name: v for v in spec.environment}
    assert {v.origin for v in spec.environment} == {"runner", "policy", "preset"}
    assert variables["MINE"].value == "policy"
    assert (variables["TOKEN"].secret, variables["TOKEN"].value) == (True, "s3cret")
    assert "OTHER" not in variables
    assert variables["KAKEYA_TARGET"].value == "/m/big"
    assert "KAKEYA_DRAFTER" not in variables  # the preset's drafter does not belong to the host's target
    assert "s3cret" not in "\n".join(explain(spec))


BOTH = ("data.example.org", "*.example.net")


@pytest.mark.parametrize(
    ("host", "network"),
    [(False, False), ("host", BOTH), ("internet", BOTH), (("data.example.org",), ("data.example.org",))],
)
def test_a_run_reaches_what_preset_and_host_both_allow_and_explain_says_so(host, network):
    facts = replace(FACTS, sandbox_network=host)
    spec = resolve(ask(), preset(), facts, Trust())
    assert spec.sandbox.network == network
    (line,) = (line for line in explain(spec) if line.startswith("network "))
    assert line.startswith(f"network {describe_network(network)} (")
    assert ("sandbox.network in policy.toml" in line) is (network != BOTH)
    closed = preset(FULL.replace('network = ["data.example.org", "*.example.net"]', "network = false"))
    assert resolve(ask(), closed, facts, Trust()).sandbox.network is False


def test_devices_are_the_hosts_and_only_for_presets_that_ask():
    facts = replace(FACTS, devices=("/dev/nvidia0",))
    assert resolve(ask(), preset(), facts, Trust()).sandbox.devices == ("/dev/nvidia0",)
    without = preset(FULL.replace("gpu = true", "gpu = false"))
    assert resolve(ask(), without, facts, Trust()).sandbox.devices == ()


def test_an_endpoint_is_shown_to_the_presets_that_name_it_and_to_no_other():
    facts = replace(FACTS, endpoints=("unix:/run/drafter",))
    asking = preset(FULL.replace('"join", "${target}"', '"join", "${endpoint}"'))
    spec = resolve(ask(), asking, facts, Trust())
    assert spec.commands[1].argv[-2:] == ("unix:/run/drafter", "smoke")
    assert spec.sandbox.read_only == ("/run/drafter",)
    assert "endpoint unix:/run/drafter" in "\n".join(explain(spec))
    assert resolve(ask(), preset(), facts, Trust()).sandbox.read_only == ()
    with pytest.raises(PolicyRefusedError, match="no endpoint for it"):
        resolve(ask(), asking, FACTS, Trust())


def test_request_code_is_refused_on_a_served_bus_and_the_message_says_what_to_do():
    request, tests = ask("pytest-path", workload=CODE), registry()["pytest-path"]
    with pytest.raises(PolicyRefusedError, match="the request is unsigned") as caught:
        resolve(request, tests, FACTS, Trust())
    assert "kakeya-runner welcome LINE --may PRESET" in str(caught.value)
    assert "embedded" in str(caught.value)
    with pytest.raises(PolicyRefusedError, match="nobody this host trusts") as caught:
        resolve(request, tests, FACTS, Trust(principal="agent", signer="SHA256:x"))
    assert "kakeya-runner trust add KEY --code" in str(caught.value)


def test_trusting_pushers_needs_another_user_and_a_required_sandbox():
    request, tests = ask("pytest-path", workload=CODE), registry()["pytest-path"]
    with pytest.raises(PolicyRefusedError):
        resolve(request, tests, replace(FACTS, trust_pushers=True), Trust())
    served = resolve(request, tests, replace(FACTS, trust_pushers=True, sandbox_service=True), Trust())
    assert served.sandbox.mode == "required"
    spec = resolve(request, tests, replace(FACTS, trust_pushers=True, sandbox_uid=1000), Trust())
    assert (spec.sandbox.mode, spec.sandbox.uid) == ("required", 1000)
    assert {"trust_pushers", "untrusted_code"} <= set(spec.labels)


def test_a_request_without_a_sandbox_is_refused_by_every_host_but_the_requesters_own_machine():
    code = ask("pytest-path", workload=CODE, unsandboxed=True)
    tests = registry()["pytest-path"]
    for facts in (FACTS, replace(FACTS, sandbox_mode="off"), replace(FACTS, trust_pushers=True, sandbox_uid=1000)):
        with pytest.raises(PolicyRefusedError, match=r"only sandbox\.mode in policy\.toml") as caught:
            resolve(code, tests, facts, Trust(principal="agent", signer="SHA256:x", sent_code="trusted"))
        assert "--bus embedded --unsandboxed" in str(caught.value)
        with pytest.raises(PolicyRefusedError, match="--unsandboxed"):
            resolve(ask(unsandboxed=True), preset(), facts, Trust())
    spec = resolve(code, tests, replace(FACTS, embedded=True), Trust())
    assert (spec.sandbox.mode, "unsandboxed" in spec.labels) == ("off", True)
    assert any("--unsandboxed" in line for line in explain(spec))
    confined = resolve(ask("pytest-path", workload=CODE), tests, replace(FACTS, embedded=True), Trust())
    assert (confined.sandbox.mode, "unsandboxed" in confined.labels) == ("required", False)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"params": {"n": 10}}, "0 to 9"),
        ({"params": {"m": 1}}, "unknown parameter"),
        ({"limits": LimitRequest(wall_s=0.0)}, "wall_s is 0"),
    ],
)
def test_a_request_that_does_not_fit_its_preset_is_rejected(changes, says):
    with pytest.raises(RequestRejectedError, match=says):
        resolve(ask(**changes), preset(), FACTS, Trust())


def test_a_planned_preset_and_a_missing_workload_are_rejected():
    with pytest.raises(RequestRejectedError, match="planned, not built yet"):
        resolve(ask(), load("x", b'schema = 1\nname = "x"\nstatus = "planned"\ndescription = "d"\n'), FACTS, Trust())
    with pytest.raises(RequestRejectedError, match="brings none"):
        resolve(ask("pytest-path"), registry()["pytest-path"], replace(FACTS, embedded=True), Trust())


seconds = st.one_of(st.none(), st.floats(min_value=0.1, max_value=1e5))
count = st.one_of(st.none(), st.integers(min_value=1, max_value=1 << 40))
modes = st.sampled_from(sorted(STRICT))


@given(
    host_wall=seconds, asked_wall=seconds, host_log=count, asked_log=count, asked_out=count, host_out=count,
    host_mode=modes, preset_mode=modes, profile=st.sampled_from(["smoke", "claim"]),
)  # fmt: skip
def test_effective_permissions_are_the_meet_of_host_preset_and_request(
    host_wall, asked_wall, host_log, asked_log, asked_out, host_out, host_mode, preset_mode, profile
):
    facts = replace(
        FACTS, limits=LimitCaps(wall_s=host_wall, log_bytes=host_log, output_bytes=host_out), sandbox_mode=host_mode
    )
    requested = LimitRequest(wall_s=asked_wall, log_bytes=asked_log, output_bytes=asked_out)
    own = preset(FULL.replace('mode = "preferred"', f'mode = "{preset_mode}"'))
    spec = resolve(ask(limits=requested, profile=profile), own, facts, Trust())
    preset_wall = {"smoke": 100.0, "claim": 900.0}[profile]
    for value, bounds in (
        (spec.limits.wall_s, (host_wall, asked_wall, preset_wall)),
        (spec.limits.log_bytes, (host_log, asked_log, limits.LOG_MAX_BYTES)),
        (spec.limits.output_bytes, (host_out, asked_out, limits.OUTPUT_DEFAULT_BYTES)),
    ):
        assert value == min(bound for bound in bounds if bound is not None)
    assert STRICT[spec.sandbox.mode] == max(STRICT[host_mode], STRICT[preset_mode])
    without = resolve(ask(profile=profile), own, facts, Trust())
    assert spec.sandbox == without.sandbox
    assert spec.commands == without.commands
    assert {v.name for v in spec.environment} == {v.name for v in without.environment}


def test_every_decision_is_explained():
    lines = "\n".join(explain(resolve(ask(params={"n": 4}), preset(), FACTS, Trust())))
    for word in (
        "presets.allow",
        "n = 4 (request)",
        "fast = False (preset default)",
        "wall_s = 100",
        "sandbox",
        "network",
    ):
        assert word in lines


def test_servers_that_are_asked_offer_no_standing_claim():
    """A sitting has five launches, and six have to say that no answer was prepared: it would be refused at its end."""
    preset = registry()["k3-fused-allmlx-code"]
    assert preset.offered_profiles == (*preset.profiles, "standing")
    with_asker = tuple(
        command if command.launches is None else command.evolve(asker=command.argv) for command in preset.commands
    )
    assert preset.model_copy(update={"commands": with_asker}).offered_profiles == preset.profiles


def test_a_baseline_beside_itself_offers_no_standing_claim():
    """A standing claim is a ratio, and of these two arms none is claimed."""
    for name in ("k3-native-baseline", "cuda-native-baseline"):
        preset = registry()[name]
        assert preset.offered_profiles == preset.profiles


@pytest.mark.parametrize(("aggregate", "has_ratio"), [("ratio", True), ("percentiles", False)])
def test_one_server_alone_has_no_ratio_that_a_load_could_be_drawn_for(aggregate, has_ratio):
    metric = MetricDefinition(name="answers", aggregate=aggregate, unit="s")
    servers = WorkloadDefinition(name="servers", digest="0" * 64, program="new", metrics=(metric,))
    preset = registry()["k3-fused-allmlx-code"].model_copy(update={"workload": servers})
    assert preset.has_ratio is has_ratio
