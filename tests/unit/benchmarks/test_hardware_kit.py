"""The kit for owners of real machines: nothing private in its bundle, and what is absent is said."""

from __future__ import annotations

import json
import os
import plistlib
import re
import sys
import time
from pathlib import Path

import pytest

from benchmarks.hardware_kit import bundle, sources
from benchmarks.hardware_kit.__main__ import FOLDER, main
from benchmarks.hardware_kit.measuring import room_bytes
from benchmarks.hardware_kit.private import cleaned, left_in, names_of_this_machine
from benchmarks.hardware_kit.rows import append, measure
from benchmarks.hardware_kit.walls import denials
from bridge.executor.observe.accelerators.apple import registry

ROOT = Path(__file__).resolve().parents[3]
PRIVATE = {"anns-mac-mini": "<host>", "/Users/ann": "<home>", "ann": "<user>"}
SECRETS = ("anns-mac-mini", "/Users/ann", "Ann", "C02XG0FDH7JY", "GPU-5f1c0e2a-77aa", "Signal", "Slack", "10.0.0.7")
IOREG = plistlib.dumps(
    [
        {
            "IORegistryEntryID": 1,
            "IOPlatformSerialNumber": "C02XG0FDH7JY",
            "PerformanceStatistics": {"Device Utilization %": 40, "In use system memory": 5, "secret": "Ann"},
            "IORegistryEntryChildren": [
                {
                    "IORegistryEntryID": number,
                    "IOUserClientCreator": f"pid {number}, {program}",
                    "AppUsage": [{"API": "Metal", "accumulatedGPUTime": 10**9, "bundle": "Ann"}],
                }
                for number, program in ((7, "python3.13"), (8, "Signal"))
            ],
        }
    ]
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Run the kit here, with one of its test files."""
    folder = tmp_path_factory.mktemp("kit")
    code = main(["--out", str(folder), "--minutes", "0", "--tests", "tests/hardware/test_metal.py"])
    (path,) = folder.iterdir()
    return code, path.read_text()


@pytest.mark.enable_socket  # the trial of a sandbox listens on loopback
def test_the_kit_runs_here_and_says_what_is_absent(made):
    code, text = made
    value = json.loads(text)
    assert code == 0
    assert value["absent"]["ioreg AGXAccelerator"] == "of macOS only"
    assert value["raw"].keys().isdisjoint(value["absent"])
    assert value["raw"].keys() | value["absent"].keys() == {source.name for source in sources.SOURCES}
    assert {test["outcome"] for test in value["tests"]} <= {"passed", "skipped"}
    assert all(test["why"] for test in value["tests"] if test["outcome"] == "skipped")
    assert re.fullmatch(r"[0-9a-f]{40}", value["commit"])


@pytest.mark.enable_socket  # the trial of a sandbox listens on loopback
def test_nothing_in_the_bundle_names_this_machine_or_who_uses_it(made):
    import getpass
    import socket

    _, text = made
    assert left_in(text, names_of_this_machine()) == []
    for word in (socket.gethostname(), getpass.getuser(), str(Path.home()), str(ROOT)):
        assert word in {"root", "/root"} or not re.search(rf"\b{re.escape(word)}\b", text) or len(word) < 3, word


def test_the_registry_is_cut_down_to_what_the_meter_reads_and_reads_the_same():
    cut = sources.reduced_registry(IOREG)
    text = json.dumps(cut)
    assert not [word for word in SECRETS if word in text]
    assert registry(plistlib.dumps(cut)) == registry(IOREG)
    assert {"pid 7, python", "pid 8, another"} <= set(re.findall(r"pid \d+, \w+", text))


@pytest.mark.parametrize(
    ("name", "output", "lines"),
    [
        ("pmset -g", " sleep   1 (sleep prevented by Slack, Ann)\n womp 1\n", " sleep   1\n womp 1"),
        ("pmset -g assertions", "  PreventSystemSleep 1\n  pid 3(Signal): Ann's call\n", "  PreventSystemSleep 1"),
        ("pmset -g batt", "Now drawing from 'AC Power'\n -Ann's battery 100%\n", "Now drawing from 'AC Power'"),
        ("fdesetup status", "FileVault is On.\nAnn may unlock it\n", "FileVault is On"),
    ],
)  # fmt: skip
def test_of_a_tool_only_the_lines_that_a_parser_reads_are_kept(name, output, lines):
    source = next(source for source in sources.SOURCES if source.name == name)
    assert sources.Source(name, source.system, lambda: output, source.keep).taken() == lines


def test_what_slips_through_is_replaced_and_what_cannot_be_stops_the_bundle():
    sly = {"a": "/Users/ann/models on anns-mac-mini, Ann", "b": "GPU-5f1c0e2a-77aa at 10.0.0.7, ann@example.org"}
    text = bundle.written(sly, PRIVATE)
    assert json.loads(text) == {"a": "<home>/models on <host>, <user>", "b": "GPU-<uuid> at <address>, <mail>"}
    assert left_in("of Ann", PRIVATE) == ["ann"]
    assert left_in("an announcement", PRIVATE) == []
    with pytest.raises(SystemExit, match="private words are left"):
        bundle.written({"a": "ann"}, PRIVATE | {"ann": "ann"})
    assert cleaned("0a:1b:2c:3d:4e:5f", {}) == "<mac>"


def test_a_failed_test_is_its_first_line_and_no_traceback():
    report = (
        '<testsuites><testsuite><testcase classname="a" name="b"><failure message="no&#10;/Users/ann/x">long</failure>'
        '</testcase><testcase classname="a" name="c"/></testsuite></testsuites>'
    )
    assert bundle.ended(report) == [
        {"test": "a.b", "outcome": "failed", "why": "no"},
        {"test": "a.c", "outcome": "passed"},
    ]


@pytest.mark.parametrize(("row", "device"), [("macOS, Apple Silicon, Metal", "metal"), ("Linux, NVIDIA GPU", "cuda")])
def test_the_status_says_untested_until_a_committed_bundle_says_otherwise(row, device):
    bundles = [json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")]
    measured = [bundle for bundle in bundles if any(name.startswith(device) for name in bundle["machine"]["devices"])]
    page = (ROOT / "docs" / "status.md").read_text("utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row}")]
    assert ("untested" in line) == (not measured)


def test_of_what_a_kernel_refused_the_operation_stays_and_no_path_of_anybody():
    line = "2026-11-28 10:00:00.000 E  kernel[0:1a] (Sandbox) Sandbox: python3.13(417) deny(1) "
    refused = [
        *("file-read-data /Users/ann/.ssh/id_ed25519", "file-read-data /Users/ann/notes"),
        *("file-read-metadata /System/Volumes", "iokit-open-user-client IOSurfaceRootUserClient"),
        *("mach-lookup com.apple.securityd.xpc", "sysctl-read kern.procargs2.417"),
        *("ipc-posix-shm-write-create /__KMP_REGISTERED_LIB_4711", "process-fork", "mach-lookup net.example.annsagent"),
    ]
    counts = denials("\n".join(f"{line}{text}" for text in refused) + "\nTimestamp  Thread  Type\n")

    assert counts == {
        "file-read-data <own>": 2,
        "file-read-metadata /System/Volumes": 1,
        "iokit-open-user-client IOSurfaceRootUserClient": 1,
        "ipc-posix-shm-write-create /__KMP_REGISTERED_LIB_N": 1,
        "mach-lookup <own>": 1,
        "mach-lookup com.apple.securityd.xpc": 1,
        "process-fork": 1,
        "sysctl-read kern.procargs2.N": 1,
    }


PRINTING = "import json, time; [print(json.dumps({'row': n}), flush=True) for n in range(2)]"
STEPS = {
    "talking": "print('of anns-mac-mini', flush=True); print(7, flush=True); " + PRINTING,
    "good": PRINTING,
    "broken": PRINTING + "; raise SystemExit('no such device on anns-mac-mini')",
    "hanging": PRINTING + "; time.sleep(600)",
    "after": PRINTING,
}


def python(program):
    """Return what runs a program, begun as quickly as an interpreter is: a step has a second or two."""
    return [sys.executable, "-I", "-S", "-c", program]


def test_a_step_that_breaks_or_hangs_leaves_its_rows_and_the_other_steps(tmp_path):
    began = time.monotonic()
    work = [(name, "torch", python(program)) for name, program in STEPS.items()]
    rows = append(tmp_path / "rows.jsonl", measure(work, 6.0, lambda text: cleaned(text, PRIVATE), least_s=0.5))
    assert time.monotonic() - began < 60
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == rows
    assert [row["row"] for row in rows if "row" in row] == [0, 1] * 5
    assert [row["printed"] for row in rows if "printed" in row] == ["of <host>", "7"]
    assert [(row["step"], row["broken"].split()[:2]) for row in rows if "broken" in row] == [
        ("broken", ["no", "such"]),
        ("hanging", ["stopped", "after"]),
    ]
    assert "anns-mac-mini" not in json.dumps(rows)


def test_rows_are_in_the_file_before_the_step_ends(tmp_path):
    path = tmp_path / "rows.jsonl"
    program = f"import pathlib, time; print('{{}}', flush=True); path = pathlib.Path({str(path)!r})\n"
    program += "while not (path.exists() and path.read_text()): time.sleep(0.01)\nprint('{}')"
    assert len(append(path, measure([("slow", "torch", python(program))], 240.0))) == 2


def test_whoever_leaves_the_rows_of_a_step_leaves_no_process_behind():
    program = "import json, os, time; print(json.dumps({'pid': os.getpid()}), flush=True); time.sleep(600)"
    rows = measure([("hanging", "torch", [sys.executable, "-c", program])], 60.0)
    pid = next(rows)["pid"]
    rows.close()  # as an interrupt does, which a process in a session of its own does not hear
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.enable_socket  # the trial of a sandbox listens on loopback
def test_the_hardware_tests_get_the_time_that_reading_the_machine_leaves(tmp_path):
    hanging = tmp_path / "test_hanging.py"
    hanging.write_text("import time\n\n\ndef test_hanging():\n    time.sleep(600)\n")
    readings = iter((0.0, 40.0))
    made_bundle = bundle.make([str(hanging)], 41.0, lambda: next(readings))
    assert made_bundle["tests"] == [{"test": "all", "outcome": "failed", "why": "not ended after 1 s"}]


def test_what_no_time_is_left_for_is_said():
    (row,) = measure([("late", "torch", ["never"])], 1.0)
    assert (row["left_out"], row["why"]) == ("late", "no time was left")


@pytest.mark.parametrize("minutes", ["5", "-1", "121"])
def test_a_time_too_short_or_too_long_is_refused_before_anything_runs(minutes, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--minutes", minutes, "--out", str(tmp_path / "out")])
    assert "expected 6 to 120" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


class Processor:
    """A backend of a device that does not say what it has room for."""

    def memory(self):
        return None


def test_room_is_told_where_the_system_does_not_say_how_much_memory_is_free():
    names = {name for name in os.sysconf_names if name != "SC_AVPHYS_PAGES"}  # as on macOS
    assert room_bytes(Processor(), names) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < room_bytes(Processor()) <= room_bytes(Processor(), names)
