"""Places that give less than a runner wants: one line with a remedy each."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.executor.observe.accelerators.cards import Card
from bridge.executor.sandbox.confinement import nothing
from bridge.gate.facts.cuda import wheel_cuda
from bridge.runner.maintenance.place_checks import (
    Place,
    check_cuda,
    check_packages,
    check_slots,
    this_place,
    why_no_sandbox,
)

CARDS = (Card("GPU-a"), Card("GPU-b"))
UID_MAP = "it does not start: bwrap: setting up uid map: Permission denied"
LOOPBACK = "it does not start: bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"
NO_NAMESPACE = "it does not start: bwrap: Creating new namespace failed: Operation not permitted"
DRIVER = {"nvidia": "550.54.15", "cuda": "12.4"}


@pytest.mark.parametrize(
    ("reason", "place", "why", "remedy"),
    [
        (UID_MAP, Place(), "AppArmor restricts user namespaces", "setup_gpu.sh"),
        (LOOPBACK, Place(), "AppArmor restricts user namespaces", "/etc/apparmor.d/kakeya-bwrap"),
        ("another", Place(restricted=True), "AppArmor restricts user namespaces", "setup_gpu.sh"),
        (NO_NAMESPACE, Place(container=True, root=True), "root in a container", "--cap-add SYS_ADMIN"),
        (NO_NAMESPACE, Place(systemd=False, root=True), "runs are user 65533 and unconfined", "virtual machine"),
        (NO_NAMESPACE, Place(container=True, root=True, shut="/root"), "cannot pass /root: nothing runs", "/usr/local"),
        (NO_NAMESPACE, Place(), "Creating new namespace failed", "allow user namespaces"),
        ("bubblewrap (bwrap) is not installed", Place(restricted=True), "is not installed", "apt-get install"),
    ],
)
def test_a_place_without_a_sandbox_says_why_and_what_helps(reason, place, why, remedy):
    text, advice = why_no_sandbox(nothing(reason), place)
    assert why in text
    assert remedy in advice
    assert "\n" not in text + advice


def test_a_place_is_read_from_the_files_that_the_kernel_and_the_container_leave(tmp_path):
    assert this_place(tmp_path) == Place(systemd=False, root=this_place().root)
    for path, text in (("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n"), (".dockerenv", "")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert this_place(tmp_path) == Place(restricted=True, container=True, root=this_place().root)


@pytest.mark.parametrize(
    ("slots", "cards", "platform", "level", "text"),
    [
        (1, (), "linux", None, ""),
        (4, (), "linux", None, ""),
        (2, CARDS, "linux", "ok", "2 of 2 cards, one each"),
        (3, CARDS, "linux", "warn", "slots = 3, and there are 2 cards: 2 runs at a time"),
        (2, None, "linux", "warn", "nobody names them: one run at a time"),
        (1, (), "darwin", None, ""),
        (2, (), "darwin", "warn", "a Mac has one GPU"),
    ],
)
def test_slots_are_compared_with_what_they_share_out(slots, cards, platform, level, text):
    checks = list(check_slots(slots, cards, platform))
    assert [check.level for check in checks] == ([] if level is None else [level])
    assert all(text in check.text and (check.remedy or level == "ok") for check in checks)


def test_a_list_that_names_no_card_is_said():
    (check,) = check_slots(2, None, "linux", "MIG-1f2e")
    assert "devices that CUDA_VISIBLE_DEVICES = MIG-1f2e in [env] lists and nobody names" in check.text
    assert "list whole cards" in check.remedy


@pytest.mark.parametrize(
    ("packages", "cuda"),
    [
        ({}, None),
        ({"torch": "2.9.1+cpu"}, "cpu"),
        ({"torch": "2.9.1+cu128"}, (12, 8)),
        ({"torch": "2.9.1+cu118"}, (11, 8)),
        ({"torch": "2.9.1", "nvidia-cuda-runtime-cu12": "12.8.90"}, (12, 8)),
        ({"torch": "2.10.0", "nvidia-cuda-runtime": "13.0.48"}, (13, 0)),
        ({"torch": "2.9.1"}, None),
        ({"torch": "2.9.1", "nvidia-cuda-runtime-cu12": "odd"}, None),
    ],
)
def test_a_wheel_says_what_it_was_built_for(packages, cuda):
    assert wheel_cuda(packages) == cuda


@pytest.mark.parametrize(
    ("packages", "drivers", "level", "text"),
    [
        ({"torch": "2.10.0+cu130"}, DRIVER, "fail", "built for CUDA 13.0, the driver has 12.4"),
        ({"torch": "2.9.1+cpu"}, DRIVER, "fail", "built without CUDA"),
        ({"torch": "2.9.1+cu128"}, DRIVER, "warn", "newer than the driver's 12.4: absolute numbers do not count"),
        ({"torch": "2.9.1"}, DRIVER, "warn", "does not say which CUDA"),
        ({"torch": "2.6.0+cu124"}, DRIVER, "ok", ""),
        ({"torch": "2.6.0+cu118"}, DRIVER, "ok", ""),
        ({"torch": "2.10.0+cu130"}, {"nvidia": "unknown"}, None, ""),
        ({}, DRIVER, None, ""),
    ],
)
def test_torch_for_another_cuda_is_one_line_with_a_remedy(packages, drivers, level, text):
    checks = list(check_cuda(packages, drivers))
    assert [check.level for check in checks] == ([] if level is None else [level])
    for check in checks:
        assert text in check.text
        assert level == "ok" or "built for cu124" in check.remedy


def test_what_no_package_lists_is_named_before_a_claim_runs_for_nothing(tmp_path: Path) -> None:
    assert list(check_packages((tmp_path,), ())) == []
    for number in range(6):
        (tmp_path / f"added{number}.py").write_text("")
    (tmp_path / "start.pth").write_text("import added0")
    (check,) = check_packages((tmp_path,), (tmp_path / "elsewhere",))
    assert check.level == "warn"
    assert check.text.startswith(f"Python loads what no package lists: start.pth, {tmp_path}/elsewhere, added0.py,")
    assert check.text.endswith("added2.py and 3 more; no claim run counts")
    assert "python3 -m venv" in check.remedy
