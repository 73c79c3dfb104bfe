"""`kakeya-runner setup` makes this machine a runner from the installed package, and changes nothing twice."""

from __future__ import annotations

import json
import plistlib
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.cli.host.main import main
from bridge.cli.table.commands import MAC
from bridge.cli.table.parser import parse
from bridge.runner.maintenance.setup import SetupOptions, policy_text, serve_argv, service_commands, template, unit
from bridge.runner.policy.file import load_policy
from bridge.runner.state.folder import StateFolder


@pytest.fixture
def machine(tmp_path, capsys):
    """Return a function that runs the command with this machine's folders; gives code, stdout, stderr."""
    tmp_path.chmod(0o700)
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bus.git"], check=True)

    def run(verb: str, *arguments: str):
        places = ["--policy", str(tmp_path / "config" / "policy.toml"), "--state", str(tmp_path / "state")]
        code = main(
            [verb, *arguments[:1], *places, *arguments[1:]] if verb == "policy" else [verb, *places, *arguments]
        )
        out = capsys.readouterr()
        return code, out.out, out.err

    run.folder = tmp_path
    return run


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of all that setup may make."""
    places = [place for name in ("config", "state") for place in (folder / name, *(folder / name).rglob("*"))]
    return {
        str(path.relative_to(folder)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes() if path.is_file() else b"")
        for path in sorted(places)
        if path.exists() and "state/bus" not in str(path)
    }


def test_a_machine_is_a_runner_after_one_command(machine):
    code, out, err = machine(
        "setup", "--bus", str(machine.folder / "bus.git"), "--create-bus", "--name", "desk", "--label", "cpu"
    )

    assert code == 0, out + err
    policy = load_policy(machine.folder / "config" / "policy.toml")
    assert (policy.name, policy.labels, policy.trust_pushers) == ("desk", ("cpu",), False)
    assert policy.bus is not None
    assert policy.bus.partition("#")[0] == str(machine.folder / "bus.git")
    assert len(policy.bus.partition("#")[2]) == 32
    assert policy.root_key is not None
    modes = {name: mode for name, (mode, _) in everything(machine.folder).items()}
    assert modes["config/policy.toml"] == 0o600
    assert modes["state"] == modes["config"] == 0o700
    here, there = out.splitlines()[-2:]
    assert here.startswith("here:  ")
    assert "serve" in here
    assert there == f"there: kakeya-mac init --bus '{policy.bus}' --root-key {policy.root_key}"
    assert (out + err).count("kakeya-mac init") == 1  # one line to send, and no other to choose from
    command, rest = MAC.find(shlex.split(there.removeprefix("there: "))[1:])
    assert parse(command, rest).bus == policy.bus
    assert machine("once")[0] == 0  # the policy alone says where the bus is
    assert machine("doctor")[1].splitlines()[-1] == there


def test_a_bus_made_by_setup_signs_its_results_with_the_key_that_setup_made(machine):
    _code, out, err = machine("setup", "--bus", str(machine.folder / "bus.git"), "--create-bus", "--name", "desk")
    text = subprocess.run(
        ["git", "-C", machine.folder / "bus.git", "ls-tree", "--name-only", "-r", "refs/kakeya/bus"],
        capture_output=True, check=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    record = subprocess.run(
        ["git", "-C", machine.folder / "bus.git", "show", f"refs/kakeya/bus:{text[0]}"], capture_output=True, check=True
    ).stdout

    assert json.loads(record)["attestation"] == "dsse", out + err
    assert [key["name"] for key in json.loads(record)["keys"]] == ["desk"]
    assert "unsigned" not in err


def test_who_makes_a_bus_without_setup_is_given_the_same_one_line(machine):
    machine("setup", "--name", "desk")
    code, out, err = machine("once", "--bus", str(machine.folder / "bus.git"), "--create-bus")
    assert code == 0, out + err
    (line,) = re.findall(r"kakeya-mac init --bus .*", out + err)
    assert re.search(r"#[0-9a-f]{32}'? --root-key SHA256:\S+$", line), line


def test_no_command_shows_the_commands(capsys):
    assert main([]) == 0
    assert "workload new" in capsys.readouterr().out


def test_twice_is_once(machine):
    arguments = ("--bus", str(machine.folder / "bus.git"), "--create-bus", "--name", "desk")
    machine("setup", *arguments)
    before = everything(machine.folder)
    code, out, _err = machine("setup", *arguments)

    assert code == 0
    assert everything(machine.folder) == before
    assert "done" not in out


def test_a_dry_run_makes_nothing(machine):
    code, out, _err = machine("setup", "--bus", str(machine.folder / "bus.git"), "--create-bus", "--dry-run")

    assert code == 0
    assert out.count("would") >= 3
    assert everything(machine.folder) == {}
    refs = subprocess.run(["git", "-C", machine.folder / "bus.git", "for-each-ref"], capture_output=True, check=True)
    assert refs.stdout == b""


def test_what_the_owner_wrote_stays_and_is_only_closed_to_others(machine):
    config = machine.folder / "config"
    config.mkdir(mode=0o755)
    text = '# mine\nschema = 1\nname = "desk"\nslots = 3\n'
    (config / "policy.toml").write_text(text)
    (config / "policy.toml").chmod(0o644)
    code, out, _err = machine("setup")

    assert code == 0, out
    assert (config / "policy.toml").read_text() == text
    assert stat.S_IMODE((config / "policy.toml").stat().st_mode) == 0o600


def test_a_policy_with_mistakes_is_left_to_the_owner(machine):
    machine("setup", "--name", "desk")
    path = machine.folder / "config" / "policy.toml"
    path.write_text(path.read_text().replace("schema = 1", 'schema = 1\nlables = ["x"]'))
    code, out, _err = machine("setup", "--name", "desk")

    assert code == 1
    assert "did you mean labels?" in out
    assert machine("policy", "check")[0] == 1
    assert "lables" in machine("policy", "check")[1]


def test_the_example_and_the_file_come_from_one_text(machine):
    wish = SetupOptions(Path("/p"), StateFolder(Path("/s")), "desk")

    assert policy_text(wish) == template("desk")


@pytest.mark.parametrize("engine", ["slurm", "ray"])
def test_what_was_asked_for_is_turned_on_in_the_template(tmp_path, engine):
    wish = SetupOptions(
        Path("/p"),
        StateFolder(Path("/s")),
        "desk",
        bus="/b#1",
        labels=("a", "b"),
        model_roots=("/m",),
        interpreter="/py",
        engine=engine,
    )
    path = tmp_path / "policy.toml"
    path.write_text(policy_text(wish))
    path.chmod(0o600)
    tmp_path.chmod(0o700)
    policy = load_policy(path)

    assert (policy.bus, policy.labels, policy.model_roots, policy.interpreter) == ("/b#1", ("a", "b"), ("/m",), "/py")
    assert policy.executor.engine == engine
    assert len(policy_text(wish).splitlines()) == len(template("desk").splitlines())


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_service_runs_exactly_the_command_that_is_shown(platform, tmp_path):
    odd = tmp_path / 'a "folder" with 100% names and ${HOME}'
    wish = SetupOptions(odd / "policy.toml", StateFolder(odd), "desk", bus="/b#1")
    argv = serve_argv(wish)
    _path, text = unit(argv, platform)

    assert argv[:2] == [sys.executable, "-I"]
    assert shlex.split(service_commands(wish, ["kakeya-runner", "setup", "--unit"], platform)[0]) == argv
    if platform == "darwin":
        assert plistlib.loads(text.encode())["ProgramArguments"][2:] == argv
    else:
        line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
        assert "${HOME}" not in line.replace("$$", "")
        assert [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.partition("=")[2])] == argv


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_service_of_ones_own_that_was_drained_or_stopped_stays_ended(platform, tmp_path):
    _path, text = unit(["kakeya-runner", "serve"], platform)
    if platform == "darwin":
        assert plistlib.loads(text.encode())["KeepAlive"] == {"SuccessfulExit": False}
    else:
        assert "\nRestart=on-failure\n" in text


def test_every_line_that_setup_prints_can_be_pasted_below_a_folder_with_spaces(machine):
    """On a Mac the policy lies in Application Support."""
    policy, state = machine.folder / "Application Support" / "policy.toml", machine.folder / "a state"
    code, out, err = machine("setup", "--policy", str(policy), "--state", str(state))

    assert code == 0, err
    printed = dict(
        line.split(": ", 1) for line in out.splitlines() if line.startswith(("try it: ", "serve for good: "))
    )
    for line in printed.values():
        words = shlex.split(line)
        assert {str(policy), str(state)} <= set(words), line
    code, out, _err = machine(*shlex.split(printed["try it"])[1:], "--json")
    assert str(policy) in out
    assert code in {0, 1}


def test_what_setup_is_told_and_a_policy_that_is_there_does_not_say_is_named(machine):
    policy = machine.folder / "config" / "policy.toml"
    assert machine("setup", "--name", "desk", "--label", "cpu")[0] == 0
    text = policy.read_bytes()
    code, out, err = machine("setup", "--label", "cpu")
    assert (code, "stays as it is" in out) == (0, False), err
    code, out, err = machine("setup", "--label", "quiet", "--commit-as", "Ann <ann@example.org>")
    assert code == 0, err
    shown = " ".join(out.split())
    assert "labels: the policy was there, stays as it is and says otherwise" in shown
    assert 'write there: labels = ["quiet"]' in shown
    assert 'write there: [identity] committer = "Ann <ann@example.org>"' in shown
    assert policy.read_bytes() == text


def test_setup_makes_no_key_for_another_name_than_the_policy_has(machine):
    assert machine("setup", "--name", "desk")[0] == 0
    before = everything(machine.folder)
    code, _out, err = machine("setup", "--name", "shelf")
    assert (code, "is of runner desk, and --name says shelf" in err) == (2, True)
    assert everything(machine.folder) == before


@pytest.mark.parametrize("first", [None, "other.git"])
def test_the_service_serves_the_bus_that_setup_was_given_where_the_policy_names_another_or_none(machine, first):
    bus, before = machine.folder / "bus.git", () if first is None else ("--bus", str(machine.folder / first))
    assert machine("setup", "--name", "desk", *before)[0] == 0
    code, out, err = machine("setup", "--bus", str(bus), "--create-bus")
    assert code == 0, err
    printed = dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)
    words = shlex.split(printed["serve for good"].split(" && ")[1].partition(" > ")[0])
    code, text, err = machine(words[1], *words[2:])
    assert code == 0, err
    assert f"{bus}#" in text
    assert f"{bus}#" in printed["try it"]


def test_the_service_leaves_it_to_the_policy_which_bus_it_serves_where_that_names_it(machine):
    bus = str(machine.folder / "bus.git")
    assert machine("setup", "--bus", bus, "--create-bus", "--name", "desk")[0] == 0
    code, out, err = machine("setup", "--bus", bus)
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("serve for good: ")]
    assert "--bus" not in line


def test_the_unit_alone_is_data_on_stdout(machine):
    code, out, _err = machine("setup", "--unit")

    assert code == 0
    assert out.startswith(("[Unit]", "<?xml"))
    assert everything(machine.folder) == {}


@pytest.mark.ci
def test_doctor_of_a_fresh_runner_fails_nothing(machine, missing):
    machine("setup", "--bus", str(machine.folder / "bus.git"), "--create-bus", "--name", "desk")
    _code, out, _err = machine("doctor", "--json")
    failed = [finding for finding in json.loads(out) if finding["level"] == "fail"]

    assert failed == []


@pytest.mark.ci
def test_doctor_looks_at_the_key_and_at_who_may_read_it(machine):
    machine("setup", "--name", "desk")
    key = machine.folder / "config" / "identity" / "desk" / "runner.key"

    def level() -> str:
        return next(
            finding["level"] for finding in json.loads(machine("doctor", "--json")[1]) if finding["name"] == "key"
        )

    if key.exists():
        assert level() == "ok"
        key.chmod(0o644)
        assert level() == "fail"
        key.unlink()
    assert level() == "warn"
