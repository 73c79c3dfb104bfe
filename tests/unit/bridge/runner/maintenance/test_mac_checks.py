"""A Mac that nobody looks after, over samples of what fdesetup(8), pmset(1) and defaults(1) document."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.runner.maintenance.mac_checks import check_folders, check_interpreter, check_mac
from bridge.runner.policy.file import read_policy

PMSET = """System-wide power settings:
Currently in use:
 autorestart          {autorestart}
 powernap             0
 disksleep            10
 sleep                {sleep}
 womp                 1
"""
ASSERTIONS = """2026-11-20 10:00:00 +0000
Assertion status system-wide:
   BackgroundTask                 0
   PreventUserIdleDisplaySleep    0
   PreventSystemSleep             {asserted}
   PreventUserIdleSystemSleep     {asserted}
Listed by owning process:
   pid 417(caffeinate): [0x00000d2a000187a5] 00:41:10 PreventSystemSleep named: "caffeinate command-line tool"
"""
BATTERY = "Now drawing from '{source}'\n -InternalBattery-0 (id=1234)\t100%; charged; 0:00 remaining present: true\n"


def mac(
    vault="FileVault is Off.\n", updates="0\n", autorestart="1", asserted="1", sleep="1", source="AC Power", **gone
):
    outputs = {
        ("fdesetup", "status"): vault,
        ("pmset", "-g"): PMSET.format(autorestart=autorestart, sleep=sleep),
        ("pmset", "-g", "assertions"): ASSERTIONS.format(asserted=asserted),
        ("pmset", "-g", "batt"): BATTERY.format(source=source),
        ("defaults", "read", "/Library/Preferences/com.apple.SoftwareUpdate", "AutomaticallyInstallMacOSUpdates"):
            updates,
    }  # fmt: skip
    checks = check_mac(lambda program, *words: "" if gone else outputs[Path(program).name, *words])
    return {check.name: check for check in checks}


def test_a_mac_that_is_ready_for_its_cupboard_has_nothing_to_do():
    assert {name: check.level for name, check in mac().items()} == dict.fromkeys(
        ("filevault", "restart", "updates", "awake"), "ok"
    )


@pytest.mark.parametrize(
    ("state", "name", "text", "remedy"),
    [
        ({"vault": "FileVault is On.\n"}, "filevault", "waits for a password", "sudo fdesetup authrestart"),
        ({"autorestart": "0"}, "restart", "stays off after a power failure", "sudo pmset -a autorestart 1"),
        ({"updates": "1\n"}, "updates", "restarts by itself", "AutomaticallyInstallMacOSUpdates -bool false"),
        ({"updates": ""}, "updates", "may restart by itself", "AutomaticallyInstallMacOSUpdates -bool false"),
        ({"asserted": "0", "sleep": "10"}, "awake", "it may sleep in mid-run", "caffeinate -is"),
        ({"source": "Battery Power"}, "awake", "on battery", "plug it in"),
    ],
)
def test_each_state_is_one_line_with_a_remedy(state, name, text, remedy):
    wrong = [check for check in mac(**state).values() if check.level != "ok"]
    assert [check.name for check in wrong] == [name]
    assert text in wrong[0].text
    assert remedy in wrong[0].remedy
    assert "\n" not in wrong[0].text + wrong[0].remedy


def test_what_a_tool_does_not_say_is_never_taken_for_fine():
    assert {name: check.level for name, check in mac(nothing=True).items()} == dict.fromkeys(
        ("filevault", "restart", "updates", "awake"), "warn"
    )
    assert mac(vault="Deferred enablement appears to be active\n")["filevault"].level == "warn"


def test_a_mac_that_is_told_never_to_sleep_needs_no_caffeinate():
    assert mac(asserted="0", sleep="0 (sleep prevented by powerd)")["awake"].level == "ok"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            'model_roots = ["/Users/ann/Documents/m"]',
            "model_roots[0]: /Users/ann/Documents/m is in Documents",
        ),
        ('target = "/Volumes/Data/big"', "target: /Volumes/Data/big is on another volume"),
        ('model_roots = ["/Users/ann/models", "/Users/Shared/m"]', None),
    ],
)
def test_folders_behind_a_privacy_prompt_are_named(line, text):
    policy = read_policy(f'schema = 1\nname = "mac"\ninterpreter = "/usr/bin/python3"\n{line}\n'.encode())
    checks = list(check_folders(policy, Path("/usr/local/var/kakeya"), Path("/Users/ann")))
    assert [check.text.partition(",")[0] for check in checks] == ([] if text is None else [text])
    assert all("Full Disk Access" in check.remedy for check in checks)
    state = next(iter(check_folders(policy, Path("/Users/ann/Desktop/state"), Path("/Users/ann"))))
    assert state.text.startswith("state: /Users/ann/Desktop/state is in Desktop")


@pytest.mark.parametrize(
    ("home", "lasts"),
    [
        ("/opt/homebrew/Cellar/python@3.13/3.13.5/Frameworks/Python.framework/Versions/3.13/bin", False),
        ("/Users/a/.local/share/uv/python/cpython-3.12.13-macos-aarch64-none/bin", False),
        ("/opt/homebrew/opt/python@3.13/bin", True),
        ("/Users/a/.local/share/uv/python/cpython-3.12-macos-aarch64-none/bin", True),
        ("/usr/bin", True),
    ],
)
def test_an_environment_that_the_next_upgrade_breaks_is_named(tmp_path, home, lasts):
    (tmp_path / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    checks = list(check_interpreter(tmp_path / "bin" / "python"))

    assert [check.level for check in checks] == ([] if lasts else ["warn"])
    assert all(home in check.text and "setup_mac.sh" in check.remedy for check in checks)
    assert [check.level for check in check_interpreter(Path(home) / "python3")] == ([] if lasts else ["warn"])
