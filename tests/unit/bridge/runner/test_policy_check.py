"""`policy check` names everything that is wrong, each with the next thing to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bridge.runner.policy.check import content_problems, problems

GOOD = f'schema = 1\nname = "mini"\ninterpreter = "{sys.executable}"\n'


def found(text: str) -> dict[str, tuple[str, str]]:
    return {problem.name: (problem.text, problem.remedy) for problem in content_problems(text.encode())}


@pytest.fixture
def check(tmp_path):
    def run(text: str, mode: int = 0o600) -> dict[str, tuple[str, str, bool]]:
        tmp_path.chmod(0o700)
        path = tmp_path / "policy.toml"
        path.write_text(text)
        path.chmod(mode)
        return {problem.name: (problem.text, problem.remedy, problem.level == "fail") for problem in problems(path)}

    return run


def test_a_good_policy_has_no_problem(check):
    assert check(GOOD) == {}


def test_every_unknown_key_is_named_at_once_with_the_nearest_known_one():
    text = GOOD + 'lables = ["mac"]\nxyzzy = 1\n[sandbox]\nuuid = 5\n[limits]\nwall = 3.0\n[lfs]\nurls = "x"\n'

    assert {where: remedy for where, (_text, remedy) in found(text).items()} == {
        "lables": "did you mean labels?",
        "xyzzy": found(text)["xyzzy"][1],
        "sandbox.uuid": "did you mean uid?",
        "limits.wall": "did you mean wall_s?",
        "lfs.urls": "did you mean url?",
    }
    assert "remove it" in found(text)["xyzzy"][1]
    assert all(text == "unknown key" for text, _remedy in found(text).values())


PRESET = """
schema = 1
name = "fetch"
status = "ready"
description = "d"
[[commands]]
name = "fetch"
argv = ["${engine}", "go"]
[[outputs]]
path = "r.json"
kind = "code_throughput"
[sandbox]
network = ["data.example.org"]
"""


@pytest.mark.parametrize(
    ("network", "given"),
    [
        ("false", "none"),
        ('["other.example.org"]', "other.example.org"),
        ('["*.example.org"]', None),
        ('"internet"', None),
        ("true", "true is not taken: write names"),
    ],
)
def test_a_preset_that_asks_for_more_of_a_network_than_the_policy_gives_is_named(check, tmp_path, network, given):
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets").chmod(0o700)
    (tmp_path / "presets" / "fetch.toml").write_text(PRESET)
    (tmp_path / "presets" / "fetch.toml").chmod(0o600)
    text = f'{GOOD}[presets]\nfolder = "{tmp_path / "presets"}"\n[sandbox]\nnetwork = {network}\n'
    problem = check(text).get("sandbox.network")

    if given is None:
        assert problem is None
    elif network == "true":
        assert given in problem[0]
        assert problem[2]
    else:
        assert problem == (
            f"fetch asks for data.example.org; this policy gives {given}",
            'network = ["data.example.org"] in [sandbox], or more, if it may',
            False,
        )


def test_every_value_of_another_form_is_named_with_the_examples_line():
    faults = found(
        'schema = 2\nname = "Not A Name"\nslots = "two"\nonly_when = ["sometimes"]\n[sandbox]\nmode = "on"\n'
    )

    assert set(faults) == {"schema", "name", "slots", "only_when.0", "sandbox.mode"}
    assert faults["slots"] == (
        'Input should be a valid integer; got "two"',
        (
            "as in: slots = 1                        # runs at the same time; each NVIDIA card is one run's, "
            "a Mac's GPU is everybody's"
        ),
    )
    assert "idle" in faults["only_when.0"][1]


def test_what_contradicts_itself_is_said():
    assert "trust_pushers" in found(GOOD + 'trust_pushers = true\n[sandbox]\nmode = "off"\n')["the whole file"][0]


@pytest.mark.parametrize("text", ["schema = ", "schema = 1\nschema = 1\n", "schema = 1\nname = 2026-01-01\n", "[a\n"])
def test_what_is_no_policy_at_all_is_one_problem(text):
    assert len(found(text)) >= 1


def test_a_missing_key_is_named():
    assert found("schema = 1\n")["name"][0] == "missing"


def test_a_file_open_to_others_says_chmod(check):
    assert check(GOOD, 0o644)["file"][1].startswith("chmod 600 ")


def test_a_file_that_is_not_there_says_setup(tmp_path):
    assert [problem.remedy for problem in problems(tmp_path / "policy.toml")] == ["kakeya-runner setup"]


def test_what_this_machine_has_not_is_named(check, tmp_path):
    faults = check(
        'schema = 1\nname = "mini"\ninterpreter = "/no/such/python"\nmodel_roots = ["/no/such/models"]\n'
        'approval = ["/no/such/program"]\n[presets]\nallow = ["mlx-env-prob", "k3-*"]\n'
        f'[sandbox]\ndevices = ["{tmp_path}"]\nread_only = ["/no/such/folder"]\nuid = 3999999999\n'
    )

    sandbox = {f"sandbox.{name}" for name in ("devices", "read_only", "uid")}
    assert set(faults) == {"interpreter", "model_roots", "approval", "presets.allow", *sandbox}
    assert faults["presets.allow"][1] == "did you mean mlx-env-probe?"
    assert faults["interpreter"][2]
    assert not faults["model_roots"][2]


def test_a_broken_preset_of_the_owners_is_named(check, tmp_path):
    folder = tmp_path / "presets"
    folder.mkdir(mode=0o700)
    (folder / "mine.toml").write_text("schema = 1\n")
    Path(folder / "mine.toml").chmod(0o600)

    assert "presets.folder" in check(GOOD + f'[presets]\nfolder = "{folder}"\n')
