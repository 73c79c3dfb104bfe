"""The table of planted faults stays honest: every fault still applies to this tree, in exactly one place."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.planted import reports
from tests.planted.fault import Fault, FaultGone, faults
from tests.planted.rooms import STAGES, stages
from tests.planted.tree import Tree
from tests.planted.trial import Outcome, doubt, passing

ROOT = Path(__file__).resolve().parents[2]
EACH_AT_LEAST = {"gate": 14, "bus": 12, "runner": 12, "executor": 12, "client": 6, "engine": 14, "request": 3}


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_a_fault_changes_one_place_of_this_tree(fault: Fault) -> None:
    path, text = fault.planted(ROOT)
    assert text != path.read_text(encoding="utf-8")


def test_the_faults_are_spread_over_the_rooms() -> None:
    counts = Counter(fault.room for fault in faults())
    assert set(counts) == set(STAGES)
    assert {room: counts[room] for room, least in EACH_AT_LEAST.items() if counts[room] < least} == {}


def tree_with(tmp_path: Path, text: str) -> Path:
    (tmp_path / "bridge").mkdir()
    (tmp_path / "bridge" / "module.py").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_fault_is_found_wherever_its_symbol_moved(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, "def other():\n    return 1\n\n\nclass Room:\n    def symbol(self):\n        return 1\n")
    fault = Fault("one", "gate", "Room.symbol", "return 1", "return 2", "why")
    path, text = fault.planted(tree)
    assert path == tree / "bridge" / "module.py"
    assert text.endswith("return 2\n")
    assert text.startswith("def other():\n    return 1\n")


@pytest.mark.parametrize(
    ("symbol", "old", "new", "hint"),
    [
        ("gone", "return 1", "return 2", ""),
        ("symbol", "return 3", "return 2", ""),
        ("symbol", "1", "2", ""),
        ("symbol", "return 1", "return (", ""),
        ("symbol", "return 1", "return 2", "not there"),
    ],
    ids=["no symbol", "no snippet", "twice", "no Python", "another module"],
)
def test_a_fault_that_does_not_apply_says_so(tmp_path: Path, symbol: str, old: str, new: str, hint: str) -> None:
    tree = tree_with(tmp_path, "def symbol():\n    if 1:\n        return 1\n")
    with pytest.raises(FaultGone, match="fault no longer applies: one"):
        Fault("one", "gate", symbol, old, new, "why", hint).planted(tree)


def test_a_report_that_was_begun_is_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "planted-faults.json"
    begun = reports.load(file)
    assert begun["trials"] == []
    begun["trials"] += [{"fault": name, "room": "gate", "detected": True, "commit": name * 40} for name in "ba"]
    reports.save(file, begun)
    assert [(row["fault"], row["commit"][:2]) for row in reports.load(file)["trials"]] == [("a", "aa"), ("b", "bb")]


def test_what_found_a_fault_before_is_tried_first(tmp_path: Path) -> None:
    row = {"fault": "one", "room": "gate", "detected": True, "by": "tests/test_one.py::test_b[x]"}
    missed = {"fault": "two", "room": "gate", "detected": False, "by": None}
    reports.save(tmp_path / "planted-faults.json", {"trials": [row | {"by": "tests/test_one.py::test_a"}, row, missed]})
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text("def test_b(x): ...\n", encoding="utf-8")
    assert reports.finders(tmp_path / "planted-faults.json") == {"one": ("tests/test_one.py::test_b[x]",)}
    finders = ("tests/test_one.py::test_a", "tests/test_one.py::test_b[x]")
    fault = Fault("one", "gate", "symbol", "old", "new", "why", look=("tests/test_one.py", "tests/gone.py"))
    assert [*stages(fault, tmp_path, finders)] == [
        ("found before", ["tests/test_one.py::test_b[x]"]),
        ("look", ["tests/test_one.py"]),
    ]


def test_a_test_that_a_busy_machine_held_up_found_nothing() -> None:
    failed, hung = (Outcome(1, "test_one", output, 310.0) for output in ("assert 1 == 2", "Failed: Timeout (>300.0s)"))
    quick, slow, red = Outcome(0, None, "", 5.0), Outcome(0, None, "", 200.0), Outcome(1, "test_one", "", 5.0)
    assert [doubt(failed, quick), doubt(failed, slow), doubt(hung, quick)] == [None, None, None]
    assert doubt(hung, slow) == "ran out of time, and takes 200 s without the fault"
    assert doubt(failed, red) == "fails without the fault too"


class Here(Tree):
    """A folder of tests that this interpreter runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def python(self) -> Path:
        return Path(sys.executable)


def test_what_passes_without_a_fault_is_known_beside_tests_that_are_gone(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.parametrize('x', ['a b', 'c'])\ndef test_one(x): assert x == 'a b'\n"
    (tmp_path / "test_one.py").write_text(text + "def test_two(): ...\n", encoding="utf-8")
    ids = [f"test_one.py::{test}" for test in ("test_one[a b]", "test_one[c]", "test_two[gone]")]
    assert passing(Here(tmp_path), ids) == {"test_one.py::test_one[a b]"}
