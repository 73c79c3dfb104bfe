"""A Mac that nobody looks after, over samples of what fdesetup(8), pmset(1) and defaults(1) document."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.runner.maintenance.mac_checks import check_folders, check_mac
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
   PreventSystemSleep             {held}
   PreventUserIdleSystemSleep     {held}
Listed by owning process:
   pid 417(caffeinate): [0x00000d2a000187a5] 00:41:10 PreventSystemSleep named: "caffeinate command-line tool"
"""
BATTERY = "Now drawing from '{source}'\n -InternalBattery-0 (id=1234)\t100%; charged; 0:00 remaining present: true\n"


def mac(vault="FileVault is Off.\n", updates="0\n", autorestart="1", held="1", sleep="1", source="AC Power", **gone):
    said = {
        ("fdesetup", "status"): vault,
        ("pmset", "-g"): PMSET.format(autorestart=autorestart, sleep=sleep),
        ("pmset", "-g", "assertions"): ASSERTIONS.format(held=held),
        ("pmset", "-g", "batt"): BATTERY.format(source=source),
        ("defaults", "read", "/Library/Preferences/com.apple.SoftwareUpdate", "AutomaticallyInstallMacOSUpdates"):
            updates,
    }  # fmt: skip
    found = check_mac(lambda program, *words: "" if gone else said[Path(program).name, *words])
    return {one.name: one for one in found}


def test_a_mac_that_is_ready_for_its_cupboard_has_nothing_to_do():
    assert {name: one.level for name, one in mac().items()} == dict.fromkeys(
        ("filevault", "restart", "updates", "awake"), "ok"
    )


@pytest.mark.parametrize(
    ("state", "name", "said", "remedy"),
    [
        ({"vault": "FileVault is On.\n"}, "filevault", "waits for a password", "sudo fdesetup authrestart"),
        ({"autorestart": "0"}, "restart", "stays off after a power failure", "sudo pmset -a autorestart 1"),
        ({"updates": "1\n"}, "updates", "restarts by itself", "AutomaticallyInstallMacOSUpdates -bool false"),
        ({"updates": ""}, "updates", "may restart by itself", "AutomaticallyInstallMacOSUpdates -bool false"),
        ({"held": "0", "sleep": "10"}, "awake", "it may sleep in mid-run", "caffeinate -is"),
        ({"source": "Battery Power"}, "awake", "on battery", "plug it in"),
    ],
)
def test_each_state_is_one_line_with_a_remedy(state, name, said, remedy):
    wrong = [one for one in mac(**state).values() if one.level != "ok"]
    assert [one.name for one in wrong] == [name]
    assert said in wrong[0].text
    assert remedy in wrong[0].remedy
    assert "\n" not in wrong[0].text + wrong[0].remedy


def test_what_a_tool_does_not_say_is_never_taken_for_fine():
    assert {name: one.level for name, one in mac(nothing=True).items()} == dict.fromkeys(
        ("filevault", "restart", "updates", "awake"), "warn"
    )
    assert mac(vault="Deferred enablement appears to be active\n")["filevault"].level == "warn"


def test_a_mac_that_is_told_never_to_sleep_needs_no_caffeinate():
    assert mac(held="0", sleep="0 (sleep prevented by powerd)")["awake"].level == "ok"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'model_roots = ["/Users/ann/Documents/m"]',
            "model_roots[0]: /Users/ann/Documents/m is in Documents",
        ),
        ('target = "/Volumes/Data/big"', "target: /Volumes/Data/big is on another volume"),
        ('model_roots = ["/Users/ann/models", "/Users/Shared/m"]', None),
    ],
)
def test_folders_behind_a_privacy_prompt_are_named(line, said):
    policy = read_policy(f'schema = 1\nname = "mac"\ninterpreter = "/usr/bin/python3"\n{line}\n'.encode())
    found = list(check_folders(policy, Path("/usr/local/var/kakeya"), Path("/Users/ann")))
    assert [one.text.partition(",")[0] for one in found] == ([] if said is None else [said])
    assert all("Full Disk Access" in one.remedy for one in found)
    state = next(iter(check_folders(policy, Path("/Users/ann/Desktop/state"), Path("/Users/ann"))))
    assert state.text.startswith("state: /Users/ann/Desktop/state is in Desktop")
