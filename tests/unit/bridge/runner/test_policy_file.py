"""A served policy file is read again when it changed, and nothing is taken while it cannot be gone by."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.presets.installed import registry
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.authorisation.rules_in_force import RulesInForce
from bridge.runner.policy.file import load_policy
from bridge.runner.policy.model import Policy
from bridge.runner.policy.name_files import FOLDER
from bridge.runner.policy.policy_file import REST_S, PolicyFile, PolicyProblem, read_at_start
from bridge.runner.state.log import mask_also, new_log
from tests.support.runner_world import POLICY, Lines
from tests.unit.bridge.runner.test_leases import HandClock

ONLY_MINE = '[presets]\nallow = ["mine"]\n'


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "config"
    folder.mkdir(mode=0o700)
    path = folder / "policy.toml"
    path.write_text(POLICY)
    path.chmod(0o600)
    return path


def rested(file: PolicyFile, clock: HandClock) -> Policy | PolicyProblem:
    """Look, leave the file alone for as long as it takes, and look again."""
    file.look()
    clock.sleep(REST_S)
    return file.look()


def closed(folder: Path) -> None:
    folder.mkdir(mode=0o000)


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: folder.symlink_to(folder.name),  # a circle
        lambda folder: folder.symlink_to("not-mounted"),
        lambda folder: folder.write_text(""),
        pytest.param(closed, marks=pytest.mark.skipif(os.geteuid() == 0, reason="no folder is closed to root")),
    ],
    ids=["a circle", "a folder that is not mounted", "a file", "a folder of somebody else"],
)
def test_rules_of_names_that_cannot_be_looked_into_are_not_taken_for_none(path, clock, make):
    """Without rules a name that this host lists may ask for whatever the policy allows."""
    file = PolicyFile(path, clock)
    make(path.parent / FOLDER)
    problem = file.look()
    assert isinstance(problem, PolicyProblem)
    assert f"rules of names {path.parent / FOLDER}: " in problem.reason
    assert problem.public == "its policy.toml cannot be used"
    with pytest.raises(UsageError, match="rules of names"):
        load_policy(path)


def test_an_unchanged_file_is_not_parsed_again(path, clock):
    file = PolicyFile(path, clock)
    assert file.look() is file.started
    assert file.look() is file.started


def test_a_changed_file_counts_once_it_was_left_alone(path, clock):
    file = PolicyFile(path, clock)
    path.write_text(POLICY + ONLY_MINE)
    first = file.look()
    assert isinstance(first, PolicyProblem)
    assert (first.public, "just changed" in first.reason) == ("", True)
    clock.sleep(REST_S)
    answer = file.look()
    assert isinstance(answer, Policy)
    assert answer.presets.allow == ("mine",)
    assert file.look() is answer


def test_a_file_that_is_written_in_pieces_never_counts_before_its_last_piece(path, clock):
    """The first piece is a whole policy by itself, and one that allows everything."""
    path.write_text(POLICY + ONLY_MINE)
    file = PolicyFile(path, clock)
    path.write_text(POLICY)
    for piece in ("[limits]\n", "wall_s = 5.0\n", ONLY_MINE):
        assert isinstance(file.look(), PolicyProblem)
        clock.sleep(REST_S * 0.9)
        with path.open("a") as writing:
            writing.write(piece)
    answer = rested(file, clock)
    assert (answer.limits.wall_s, answer.presets.allow) == (5.0, ("mine",))


def test_the_owner_and_the_mode_are_checked_each_time(path, clock):
    file = PolicyFile(path, clock)
    path.chmod(0o644)
    assert "0644" in file.look().reason
    path.chmod(0o600)
    assert rested(file, clock) == file.started
    path.parent.chmod(0o777)
    assert "others may replace it" in file.look().reason
    path.parent.chmod(0o700)
    assert file.look() == file.started


@pytest.mark.parametrize("text", ["", POLICY[:20], "not = [", POLICY + "unheard_of = 1\n"])
def test_what_is_no_policy_stops_everything_and_the_bus_hears_no_more_than_that(path, clock, text):
    file = PolicyFile(path, clock)
    path.write_text(text)
    problem = rested(file, clock)
    assert problem.public == "its policy.toml cannot be used"
    assert str(path) in problem.reason
    path.write_text(POLICY)
    assert rested(file, clock) == file.started


def test_a_file_that_is_gone_stops_everything(path, clock):
    file = PolicyFile(path, clock)
    path.rename(path.with_name("elsewhere"))
    assert "no such file" in file.look().reason


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("slots = 2", "slots"), ('bus = "elsewhere"', "bus"), ('audit = "journald"', "audit"),
        ('[sandbox]\nmode = "off"', "sandbox"), ('[executor]\nengine = "slurm"', "executor"),
        ('[env]\nA = "1"', "env"), ('[presets]\nfolder = "/presets"', "presets.folder"),
        ('code_signers = "/elsewhere/code_signers"', "code_signers"),
    ],
)  # fmt: skip
def test_what_a_runner_was_put_together_with_needs_a_restart(path, clock, line, key):
    file = PolicyFile(path, clock)
    path.write_text(f"{POLICY}{line}\n")
    problem = rested(file, clock)
    assert problem.public == problem.reason == f"{key} changed in policy.toml: restart the runner"
    path.write_text(POLICY)
    assert rested(file, clock) == file.started


def test_every_other_value_takes_effect_at_once(path, clock):
    file = PolicyFile(path, clock)
    live = (
        'rate_per_hour = 7\nrequire_signature = true\nowners = ["dev"]\nquotas = { dev = 1 }\n'
        'only_when = ["idle"]\nexpiry_max_s = 60.0\napproval = ["/bin/true"]\n'
        '[names."dev"]\nper_hour = 2\n[limits]\nwall_s = 5.0\n[secrets]\nTOKEN = "hidden value"\n'
    )
    path.write_text(POLICY.replace("rate_per_hour = 0\n", live))
    answer = rested(file, clock)
    assert isinstance(answer, Policy), answer
    assert read_at_start(file.started, answer) == ()
    assert (answer.rate_per_hour, answer.require_signature, answer.secrets) == (
        7,
        True,
        {"TOKEN": "hidden value"},
    )


def test_a_new_secret_is_masked_before_anything_goes_by_it_and_an_old_one_stays_masked(path, clock):
    path.write_text(f'{POLICY}[secrets]\nTOKEN = "the first value"\n')
    file, lines = PolicyFile(path, clock), []
    log = new_log(Lines(lines), file.started.secrets.values())
    rules = RulesInForce(
        OwnerRules(file.started, registry()), file, log, lambda policy: mask_also(log, policy.secrets.values())
    )
    before = rules.now
    path.write_text(f'{POLICY}[secrets]\nTOKEN = "another value"\n')
    assert rules.look() is not None
    clock.sleep(REST_S)
    assert rules.look() is None
    log.info("the first value, another value")
    assert lines[-1].endswith("[redacted], [redacted]")
    assert before.policy.secrets == {"TOKEN": "the first value"}, "a run keeps what it was let in by"
    assert rules.now.policy.secrets == {"TOKEN": "another value"}
