"""What a name may do on a host stands in its policy.toml; a name in the root alone may do nothing more than nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import PolicyRefusedError
from bridge.presets.installed import find
from bridge.runner.authorisation.explain import what_would_run
from bridge.runner.authorisation.names import check_rights, counts_as, facts_for
from bridge.runner.policy.file import load_policy, read_policy
from bridge.runner.policy.name_files import write_name_file
from bridge.runner.policy.names import NameRules
from bridge.system.clock import SystemClock
from bridge.trust.ssh_signatures import Signer
from tests.fakes.asking import make_request

RULES = b"""schema = 1
name = "mini"
[names."alice"]
presets = ["k3-*"]
profiles = ["smoke"]
params = {depth = {at_least = 0, at_most = 4}}
limits = {wall_s = 60.0}
per_hour = 3
[names."elsewhere"]
runners = ["other"]
"""
PRESET = "k3-fused-allmlx-code"
POLICY, ROOTED, LISTED = read_policy(RULES), Signer("alice", "SHA256:x", on_host=False), Signer("alice", "SHA256:x")


def check(signer: Signer | None, preset: str = PRESET, **changes: object) -> None:
    request = make_request("0" * 32, preset, **changes)
    check_rights(POLICY, signer, request, find(preset))


@pytest.mark.parametrize("signer", [ROOTED, LISTED])
def test_a_name_may_do_what_its_rules_say(signer: Signer) -> None:
    check(signer, params={"depth": 4})
    assert counts_as(POLICY, signer) == signer
    assert POLICY.quota("alice") == 3
    facts = facts_for(POLICY, signer, POLICY.facts(embedded=False))
    assert facts.limits.wall_s == 60.0
    assert facts_for(POLICY, None, POLICY.facts(embedded=False)).limits.wall_s is None


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("names.'alice'.presets", {"preset": "mlx-env-probe"}),
        ("names.'alice'.profiles", {"profile": "claim"}),
        ("names.'alice'.params.depth", {"params": {"depth": 5}}),
    ],
)
def test_a_refusal_names_the_rule(rule: str, changes: dict[str, object]) -> None:
    with pytest.raises(PolicyRefusedError, match=rule.replace(".", r"\.")):
        check(ROOTED, **changes)


@pytest.mark.parametrize("filed", [True, False])
def test_a_refusal_names_the_file_in_which_the_change_counts(tmp_path: Path, filed: bool) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_bytes(b'schema = 1\nname = "mini"\n' + (b"" if filed else b'[names."ada"]\npresets = ["k3-*"]\n'))
    policy.chmod(0o600)
    if filed:
        write_name_file(policy, "ada", NameRules(presets=("k3-*",)))
    request = make_request("0" * 32, "mlx-env-probe")
    with pytest.raises(PolicyRefusedError) as refused:
        check_rights(load_policy(policy), Signer("ada", "SHA256:x"), request, find("mlx-env-probe"))
    place = "names.d/ada.toml beside policy.toml" if filed else '[names."ada"] in policy.toml'
    assert refused.value.remedy == f"the host's owner changes presets in {place}"


def test_rules_for_another_runner_let_nothing_run_here() -> None:
    with pytest.raises(PolicyRefusedError, match=r"names\.'elsewhere'\.runners"):
        check(Signer("elsewhere", "SHA256:x"))


def test_a_name_in_the_root_without_a_rule_counts_as_unsigned() -> None:
    stranger = Signer("bob", "SHA256:x", on_host=False)
    assert counts_as(POLICY, stranger) is None
    check(stranger, "mlx-env-probe")  # the host's own code, as anybody
    with pytest.raises(PolicyRefusedError, match=r"names\.'bob' in policy.toml is missing"):
        check(stranger, "repo-tests") if "repo-tests" in known() else check_code(stranger)
    assert counts_as(POLICY, Signer("bob", "SHA256:x")) is not None  # on the host's own list: as before


def known() -> set[str]:
    from bridge.presets.installed import registry

    return set(registry())


def check_code(signer: Signer) -> None:
    from bridge.presets.installed import registry

    preset = next(preset for preset in registry().values() if preset.code == "request")
    check_rights(POLICY, signer, make_request("0" * 32, preset.name), preset)


def test_explain_as_a_name_says_its_rules() -> None:
    lines = list(what_would_run(POLICY, PRESET, SystemClock(), "alice"))
    assert any("names.alice.params" in line for line in lines)
    assert any("asked by alice" in line for line in lines)
    (refused,) = [line for line in what_would_run(POLICY, "mlx-env-probe", SystemClock(), "alice") if "refused" in line]
    assert "names.'alice'.presets" in refused
    assert any("count as unsigned" in line for line in what_would_run(POLICY, PRESET, SystemClock(), "bob"))
