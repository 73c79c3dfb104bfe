from __future__ import annotations

import re
from multiprocessing.synchronize import SemLock
from pathlib import Path

import pytest

from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox import seatbelt

GOLDEN = Path(__file__).with_name("golden") / "seatbelt.sb"
READABLE = ("/opt/venv", "/models/tiny")
WRITABLE = ("/private/tmp/run/work", "/private/tmp/run/out")


def test_the_profile_is_the_golden_one():
    assert seatbelt.profile(READABLE, WRITABLE, network=False) == GOLDEN.read_text()


def test_everything_is_denied_that_is_not_named():
    lines = seatbelt.profile(READABLE, WRITABLE, network=False).splitlines()

    assert lines[:2] == ["(version 1)", "(deny default)"]
    assert not any(re.fullmatch(r"\(allow file-(read|write)\*?\)", line) for line in lines)


def test_the_root_itself_can_be_read_as_the_dynamic_linker_does_and_nothing_below_it():
    lines = seatbelt.profile(READABLE, WRITABLE, network=False).splitlines()

    assert '(allow file-read* file-test-existence (literal "/"))' in lines
    assert not any('(subpath "/")' in line for line in lines)


def test_only_the_runs_folders_are_writable():
    text = seatbelt.profile(READABLE, WRITABLE, network=False)
    rules = [rule for rule in text.split("\n(") if "file-write*" in rule]
    written = {path for rule in rules for path in re.findall(r'"([^"]+)"', rule)}

    assert {path for path in written if not path.startswith("/dev/")} == set(WRITABLE)


def test_the_network_is_allowed_only_when_asked_for():
    assert "network" not in seatbelt.profile(READABLE, WRITABLE, network=False)
    assert "(allow network*)" in seatbelt.profile(READABLE, WRITABLE, network=True)


def test_metal_is_reachable():
    text = seatbelt.profile(READABLE, WRITABLE, network=False)

    assert '(global-name "com.apple.MTLCompilerService")' in text
    assert '(iokit-user-client-class "AGXDeviceUserClient")' in text


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("/psm_3f2a9c1d", True),
        ("/mp-k2x9w_ab", True),
        ("/__KMP_REGISTERED_LIB_4711", True),
        ("/__KMP_REGISTERED_LIB_4711/other", False),
        ("/other/mp-k2x9w_ab", False),
        ("apple.shm.notification_center", False),
    ],
)
def test_only_the_names_of_pythons_and_openmps_shared_memory_are_open(name, allowed):
    text = seatbelt.profile(READABLE, WRITABLE, network=False)
    (rule,) = [rule for rule in text.split("\n(") if rule.startswith("allow ipc-posix-shm* ipc-posix-sem*")]
    patterns = re.findall(r'\(ipc-posix-name-regex #"([^"]+)"\)', rule)

    assert any(re.search(pattern, name) for pattern in patterns) is allowed


def test_a_lock_of_multiprocessing_has_a_name_that_is_open():
    text = seatbelt.profile(READABLE, WRITABLE, network=False)
    name = SemLock._make_name()

    assert any(re.search(pattern, name) for pattern in re.findall(r'ipc-posix-name-regex #"([^"]+)"', text))


@pytest.mark.parametrize("name", ['a"b', "a\\b", 'x")) (allow default) ((subpath "'])
def test_a_path_cannot_end_its_own_quotes(name):
    quoted = seatbelt.quoted(name)

    assert re.fullmatch(r'"(?:[^"\\]|\\.)*"', quoted)


def test_the_command_runs_under_a_profile_file_that_the_run_cannot_write(tmp_path):
    directory = RunDirectory(tmp_path, *(tmp_path / name for name in ("work", "out", "home", "tmp")))
    box = seatbelt.Seatbelt("(version 1)\n", directory, network=False, uid=501)

    with box.command(("/opt/venv/bin/python", "x.py"), {"A": "1"}) as wrapped:
        assert wrapped.argv == (seatbelt.PROGRAM, "-f", str(tmp_path / "profile.sb"), "/opt/venv/bin/python", "x.py")
        assert (tmp_path / "profile.sb").read_text() == "(version 1)\n"
        assert wrapped.environment == {"A": "1"}
    assert not (tmp_path / "profile.sb").exists()
    assert box.applied.kind == "seatbelt"
    assert "experimental" in box.applied.filters


def test_what_is_masked_is_denied_after_its_folder_is_allowed():
    text = seatbelt.profile(READABLE, WRITABLE, network=True, masked=["/models/tiny/.netrc"])

    denied = '(deny file-read* file-write* network-outbound\n  (subpath "/models/tiny/.netrc"))'
    assert text.endswith(denied + "\n")
    assert text.index(denied) > max(text.index('(subpath "/models/tiny")'), text.index("(allow network*)"))
