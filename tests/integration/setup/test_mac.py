"""The set-up of a Mac by its dry run."""

from __future__ import annotations

import hashlib
import os
import plistlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.setup.machine import SETUP

GOLDEN = Path(__file__).parent / "golden"
MAC = {
    "mac-dry-run.txt": ["--models", "/Users/Shared/kakeya-models"],
    "mac-actions-dry-run.txt": [
        *("--create-bus", "--ssh-from", "100.64.0.0/10", "--labels", "mlx,quiet"),
        *("--actions-url", "https://example.org/o/r", "--actions-token-file", "-"),
    ],
}


@pytest.mark.parametrize("golden", MAC)
def test_the_mac_dry_run_is_the_recorded_one(golden: str, tmp_path) -> None:
    """`UPDATE_GOLDEN=1 pytest` writes it anew; files are shown as they would be written."""
    archive, key = tmp_path / "runner.tar.gz", tmp_path / "agent.pub"
    archive.write_bytes(b"archive")
    key.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAgentKey agent@example.org\n")
    command = ["bash", str(SETUP / "setup_mac.sh"), "--dry-run", "--bus", "https://example.org/owner/bus.git"]
    command += ["--name", "mac-mini", "--python", sys.executable, "--root", str(tmp_path), *MAC[golden]]
    if "--actions-url" in command:
        command += ["--actions-archive", str(archive), "--ssh-key", str(key)]
        command += ["--actions-sha256", hashlib.sha256(b"archive").hexdigest()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    interpreter = str(Path(sys.executable).resolve())
    own = re.compile(r"(ok|would) +(git|sudo)")  # what this machine has of a Mac's tools
    lines = [
        line.replace(interpreter, "PYTHON").replace(str(SETUP.parent), "CLONE").replace(str(tmp_path), "")
        for line in done.stdout.splitlines()
        if not own.match(line)
    ]
    text = re.sub(r"^\d+ change", "N change", "\n".join(lines), flags=re.MULTILINE) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / golden).write_text(text)
    assert text == (GOLDEN / golden).read_text()


def test_a_daemon_that_its_owner_drained_or_stopped_stays_ended() -> None:
    """launchd.plist(5), SuccessfulExit: false starts it again unless it ended in 0, as `drain` and `stop` end it."""
    shown = (GOLDEN / "mac-dry-run.txt").read_text().partition("org.kakeya.runner.plist")[2].splitlines()[1:]
    text = "\n".join(line.partition("| ")[2] for line in shown if "|" in line).partition("</plist>")[0]
    daemon = plistlib.loads(f"{text}</plist>".encode())
    assert (daemon["KeepAlive"], daemon["RunAtLoad"]) == ({"SuccessfulExit": False}, True)


def test_a_user_for_jobs_is_refused_with_the_reason() -> None:
    command = ["bash", str(SETUP / "setup_mac.sh"), "--dry-run", "--bus", "https://example.org/owner/bus.git"]
    done = subprocess.run([*command, "--job-user"], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --job-user is for Linux: a run here has the runner's user")
    assert "next: leave --job-user out" in done.stderr


@pytest.mark.parametrize(
    ("real", "link", "target", "lasting"),
    [
        (
            "opt/homebrew/Cellar/python@3.13/3.13.5/Frameworks/Python.framework/Versions/3.13/bin/python3.13",
            *("opt/homebrew/opt/python@3.13", "../Cellar/python@3.13/3.13.5"),
            "opt/homebrew/opt/python@3.13/bin/python3.13",
        ),
        (
            "share/uv/python/cpython-3.12.13-macos-aarch64-none/bin/python3.12",
            *("share/uv/python/cpython-3.12-macos-aarch64-none", "cpython-3.12.13-macos-aarch64-none"),
            "share/uv/python/cpython-3.12-macos-aarch64-none/bin/python3.12",
        ),
        ("usr/bin/python3.13", None, None, "usr/bin/python3.13"),
    ],
)
def test_an_interpreter_is_pinned_by_the_name_that_survives_an_upgrade(tmp_path, real, link, target, lasting) -> None:
    program = tmp_path / real
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o755)
    if link is not None:
        (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / link).symlink_to(target)
    if "Cellar" in real:
        (tmp_path / "opt/homebrew/Cellar/python@3.13/3.13.5/bin").symlink_to(
            "Frameworks/Python.framework/Versions/3.13/bin"
        )
    gone = f"{tmp_path}/uv/python/cpython-3.9.1-x/p"
    words = f'source {SETUP}/lib.sh; lasting_python "{program}"; echo; lasting_python "{gone}"'
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout.splitlines() == [f"{tmp_path}/{lasting}", gone], done.stderr


def ask_shell(words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"source {SETUP}/lib.sh; {words}"],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_before_the_service_starts_its_user_has_to_come_to_the_bus(tmp_path) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "bus.git")], check=True)
    words = f"ROOT={tmp_path} DAEMON=_kakeya-runner BUS={tmp_path}/%s; ensure_way_to_bus {tmp_path}; echo and on"
    open_bus, no_bus = ask_shell(words % "bus.git"), ask_shell(words % "none.git")
    pinned_bus = ask_shell(words % "bus.git#01k9x3")

    assert open_bus.stdout.splitlines() == ["ok     the bus: _kakeya-runner comes to it", "and on"]
    assert pinned_bus.stdout == open_bus.stdout, pinned_bus.stderr
    assert (no_bus.returncode, no_bus.stdout) == (2, "")
    assert no_bus.stderr.startswith("error: the service is not started: _kakeya-runner does not come to the bus: ")
    assert f"put the host's key into {tmp_path}/.ssh/known_hosts" in no_bus.stderr


def test_a_user_of_the_service_on_a_mac_is_a_role_account_with_a_free_number() -> None:
    script = (SETUP / "setup_mac.sh").read_text()
    program = script[script.index("free_role_uid() {") :].partition("\n}\n")[0] + "\n}\nfree_role_uid"
    taken = [f"_daemon{uid} {uid}" for uid in (400, 399, 397, 501)]

    assert ask_shell(program, "\n".join(taken)).stdout == "398\n"
    assert 'sysadminctl -addUser "$1" -roleAccount -UID' in script
    assert set(re.findall(r"^(?:RUN|ACTIONS)_USER=(.)", script, re.MULTILINE)) == {"_"}


@pytest.mark.parametrize(
    ("mode", "owner", "group", "fine"),
    [
        ("600", "kakeya-runner", "kakeya-runner", True),
        ("640", "root", "kakeya-runner", True),
        ("640", "root", "staff", False),
        ("640", "kakeya-runner", "kakeya-runner", False),
        ("600", "root", "kakeya-runner", False),
    ],
)
def test_a_policy_that_its_owner_gave_to_root_and_shows_the_service_is_left_as_it_is(
    tmp_path, mode, owner, group, fine
) -> None:
    """The runner takes both forms; set-up made the second into the first."""
    (tmp_path / "policy.toml").touch()
    users = f"stat_mode() {{ echo {mode}; }}; stat_owner() {{ echo {owner}; }}; stat_group() {{ echo {group}; }}"
    words = f"OWN_PATHS=({tmp_path}); {users}; id() {{ echo kakeya-runner; }}; MODE=check"
    done = ask_shell(f"{words}; ensure_policy {tmp_path}/policy.toml python kakeya-runner")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok     policy" if fine else "WRONG  policy"), done.stdout


LAUNCHD = """#!/bin/sh
# Stands in for launchctl: notes its calls, and knows whether a daemon is loaded.
echo "$@" >> "$(dirname "$0")/calls"
case "$1" in
  print) test -f "$(dirname "$0")/loaded" ;;
  bootout) rm "$(dirname "$0")/loaded" ;;
  bootstrap) touch "$(dirname "$0")/loaded" ;;
esac
"""


def function_of_the_script(name: str, script_name: str = "setup_mac.sh") -> str:
    script = (SETUP / script_name).read_text()
    return script[script.index(f"\n{name}() {{") :].partition("\n}\n")[0] + "\n}\n"


def test_a_daemon_whose_file_changed_is_loaded_anew_and_another_is_left_alone(tmp_path) -> None:
    manager = tmp_path / "launchctl"
    manager.write_text(LAUNCHD)
    manager.chmod(0o755)
    (tmp_path / "loaded").touch()
    functions = "".join(map(function_of_the_script, ("unload_daemon", "reload_daemon", "ensure_service")))
    names = f"SERVICE_MANAGER={manager} SERVICE=org.kakeya.runner SERVICE_FILE=/runner.plist"

    same = ask_shell(f"{functions}{names}; ensure_service 0")
    assert same.stdout == "ok     daemon: loaded\n", same.stderr
    changed = ask_shell(f"{functions}{names}; ensure_service 1")
    assert changed.stdout == "do     load the changed daemon org.kakeya.runner\n", changed.stderr
    assert [line for line in (tmp_path / "calls").read_text().splitlines() if not line.startswith("print")] == [
        "bootout system/org.kakeya.runner",
        "bootstrap system /runner.plist",
    ]


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        (" sleep 1\n autorestart          1\n", "ok     restarts after a power failure"),
        (" autorestart          0\n", "WRONG  the Mac stays off after a power failure"),
        (" sleep 1\n womp 1\n", "ok     this Mac has no setting for power failures"),
        ("", "WRONG  the Mac stays off after a power failure"),
    ],
    ids=["on", "off", "a laptop", "unknown"],
)
def test_a_mac_without_a_setting_for_power_failures_passes_its_check(settings, answer) -> None:
    """As doctor has it; the repair would change nothing there."""
    words = f"{function_of_the_script('ensure_wakefulness')}pmset() {{ printf '{settings}'; }}; MODE=check"
    done = ask_shell(f"{words}; ensure_wakefulness")
    assert done.stdout.splitlines()[0] == answer, done.stderr


@pytest.mark.parametrize("loaded", [True, False])
def test_a_set_up_that_ended_before_its_daemon_was_loaded_is_taken_away_too(tmp_path, loaded) -> None:
    """As one does whose user did not come to the bus; launchctl fails where it is to unload what is not loaded."""
    manager = tmp_path / "launchctl"
    manager.write_text(LAUNCHD)
    manager.chmod(0o755)
    if loaded:
        (tmp_path / "loaded").touch()
    root = tmp_path / "root"
    files = [root / "Library/LaunchDaemons/org.kakeya.runner.plist", root / "usr/local/etc/kakeya/policy.toml"]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    functions = "".join(map(function_of_the_script, ("paths", "unload_daemon", "uninstall_all")))
    names = f"ROOT={root} SERVICE_MANAGER={manager} MODE=uninstall"

    done = ask_shell(f"{functions}{names}; dscl() {{ return 1; }}; paths; uninstall_all; finish")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{3 if loaded else 2} change(s) made"
    assert [file for file in files if file.exists()] == []
    calls = (tmp_path / "calls").read_text().splitlines()
    assert ("bootout system/org.kakeya.runner" in calls) is loaded
    assert "bootout system/org.kakeya.actions" not in calls


@pytest.mark.parametrize("code", [0, 3])
def test_runs_end_before_their_daemon_and_their_folders_are_taken_away(tmp_path, code) -> None:
    """What is unloaded leaves them to its next start; that they do not end in time keeps nothing from going."""
    manager, root = tmp_path / "launchctl", tmp_path / "root"
    manager.write_text(LAUNCHD)
    (tmp_path / "loaded").touch()
    runner = root / "usr/local/kakeya/bin/kakeya-runner"
    runner.parent.mkdir(parents=True)
    runner.write_text(f'#!/bin/sh\necho "kakeya-runner $*" >>{tmp_path}/calls\nexit {code}\n')
    policy, state = root / "usr/local/etc/kakeya/policy.toml", root / "usr/local/var/kakeya"
    policy.parent.mkdir(parents=True)
    policy.touch()
    (state / "ssh").mkdir(parents=True)
    for program in (manager, runner):
        program.chmod(0o755)
    functions = "".join(map(function_of_the_script, ("paths", "unload_daemon", "end_runs", "uninstall_all")))
    names = f"ROOT={root} SERVICE_MANAGER={manager} MODE=uninstall RUN_USER=_kakeya-runner"

    done = ask_shell(f"{functions}{names}; dscl() {{ return 1; }}; paths; uninstall_all; finish")

    assert done.returncode == 0, done.stdout + done.stderr
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if not line.startswith("print")]
    assert calls == [
        f"kakeya-runner stop --runs --policy {policy} --state {state}",
        f"kakeya-runner stop --runs --policy {policy} --state {state}/ssh",
        "bootout system/org.kakeya.runner",
    ]
    assert [path for path in (runner, policy, state) if path.exists()] == []


STEPS = (
    "check_bus check_paths check_policy_words check_ssh_access check_actions_archive find_python pin_python needs_git"
    " say_filevault needs ensure_apparmor ensure_user ensure_folder ensure_environment ensure_models ensure_policy"
    " ensure_key ensure_file ensure_ssh_access ensure_actions drop_other_way ensure_wakefulness ensure_service"
    " ensure_receipt plist_text rotate_text"
)


@pytest.mark.parametrize("script", ["setup_mac.sh", "setup_gpu.sh"])
def test_while_the_bus_is_closed_to_its_user_nothing_is_changed_that_a_service_goes_by(tmp_path, script) -> None:
    """As another --bus is at first: the next run would find its file right, and leave the loaded service alone."""
    functions = "".join(function_of_the_script(name, script) for name in ("paths", "install_all"))
    steps = f'for name in {STEPS}; do eval "$name() {{ echo $name; }}"; done'
    root = tmp_path if script == "setup_mac.sh" else ""  # below a root of its own Linux has no user to ask as
    words = f"{functions}ROOT={root}; {steps}; ensure_way_to_bus() {{ echo ensure_way_to_bus; exit 2; }}"

    done = ask_shell(f"{words}; paths; install_all")

    assert done.returncode == 2, done.stderr
    *before, last = done.stdout.splitlines()
    assert (last, "ensure_user" in before, "ensure_folder" in before) == ("ensure_way_to_bus", True, True)
    assert {"ensure_environment", "ensure_file", "drop_other_way"}.isdisjoint(before)
