from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.areas import AREAS
from benchmarks.show import __main__ as program
from benchmarks.show import bus, rooms, source
from benchmarks.show.line import Line
from benchmarks.show.registry import LINES
from benchmarks.studies.report import report_of


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A product of five modules with one circle and one name that means two things."""
    files = {
        "bridge/__init__.py": "",
        "bridge/run/__init__.py": "",
        "bridge/run/state.py": "from bridge.run import lease\n\nclass Run: ...\nclass _Kept: ...\n",
        "bridge/run/lease.py": "def renew():\n    import bridge.run.state\n\nclass _Kept: ...\n",
        "bridge/run/end.py": "from bridge.run.state import Run as Other\n\nclass Ended: ...\n",
        "engine/__init__.py": "",
        "engine/run.py": "import json\n\nclass Run: ...\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_figures_of_a_tree_are_counted(tree: Path) -> None:
    assert source.rooms(tree) == {"bridge/run": 3, "engine": 1}
    assert source.circles(tree) == [["bridge.run.lease", "bridge.run.state"]]
    assert source.class_names_with_two_meanings(tree) == {"Run": ["bridge.run.state", "engine.run"]}
    assert source.lines("engine", tree) == 3
    known = source.modules(tree)
    assert source.imports(known["bridge.run.end"], known) == {"bridge.run.state"}


def test_contracts_are_counted_by_type(tmp_path: Path) -> None:
    contracts = [{"name": "floors", "type": "layers"}, {"name": "apart", "type": "independence"}]
    text = "".join(
        f"[[tool.importlinter.contracts]]\nname = '{one['name']}'\ntype = '{one['type']}'\n" for one in contracts
    )
    (tmp_path / "pyproject.toml").write_text(text)
    assert source.layer_contracts(tmp_path) == ["floors"]


def test_the_cost_of_a_fresh_clone_is_read_from_its_report(tmp_path: Path) -> None:
    assert rooms.fresh_clone("make demo", "make test", folder=tmp_path) is None
    row = {"wall_s": 61.4, "processor_s": 90.2, "install_wall_s": 40.0, "install_processor_s": 20.0, "outcome": "done"}
    report_of("rooms", "fresh-clone", tmp_path).append(
        {"case": "make demo", "rows": [row], "commit": "f" * 40, "machine": "a machine"}
    )
    assert rooms.fresh_clone("make demo", "make test", folder=tmp_path) == (
        "make demo: 61 s (90 s of processor time) after an installation of 40 s, done, "
        "at ffffffffffff on a machine; make test: not measured yet"
    )


def test_what_ci_costs_counts_its_own_installation(tmp_path: Path) -> None:
    row = {"wall_s": 480.2, "processor_s": 800.0, "outcome": "7 passed"}
    report_of("rooms", "fresh-clone", tmp_path).append(
        {"case": ".ci/run", "rows": [row], "commit": "f" * 40, "machine": "a machine"}
    )
    assert rooms.fresh_clone(".ci/run", folder=tmp_path) == (
        ".ci/run: 480 s (800 s of processor time), 7 passed, at ffffffffffff on a machine"
    )


def test_planted_faults_are_compared_by_name(tmp_path: Path) -> None:
    def write(suffix: str, **detected: bool) -> None:
        trials = [{"fault": name, "detected": found, "commit": "f" * 40} for name, found in detected.items()]
        (tmp_path / f"planted-faults{suffix}.json").write_text(json.dumps({"trials": trials}))

    def said(after: str) -> str:
        return f"before: 2 of 3 tried are found; after: {after}"

    write("-before", one=True, two=True, three=False)
    assert rooms.planted_faults(tmp_path) is None
    write("-after", one=True, two=False, three=True)
    assert rooms.planted_faults(tmp_path) == said("2 of 3 tried are found; lost: two")
    write("-after", one=True)
    assert rooms.planted_faults(tmp_path) == said("1 of 1 tried are found; lost: none; not tried again yet: 2")
    write("-after", one=True, two=True, three=False)
    write("", one=True, two=True, three=True, four=True)
    now = "2 of 3 tried are found; now: 4 of 4 tried are found at ffffffffffff; lost: none"
    assert rooms.planted_faults(tmp_path) == said(now)
    write("", one=False, three=True)
    now = "2 of 3 tried are found; now: 1 of 2 tried are found at ffffffffffff; lost: one; not tried again yet: 1"
    assert rooms.planted_faults(tmp_path) == said(now)


def test_a_line_shows_its_figure_and_command_or_that_nobody_measured_it(capsys) -> None:
    program.show("bus", [Line("fast", "make bench", lambda: "3 ms"), Line("calm", "make calm")])
    assert capsys.readouterr().out == (
        "bus\n- fast\n    3 ms\n    $ make bench\n- calm\n    not measured yet\n    $ make calm\n"
    )
    program.show("bus", [])
    assert capsys.readouterr().out == "bus\n  no lines yet\n"


def test_every_area_can_be_shown(capsys) -> None:
    assert tuple(LINES) == AREAS
    assert program.main(["rooms"]) == 0
    said = capsys.readouterr().out
    assert said.count("    $ ") == len(LINES["rooms"])
    assert "folders hold more than 12 modules" in said
    with pytest.raises(SystemExit):
        program.main(["nope"])
    assert "got 'nope', expected one of rooms, executor" in capsys.readouterr().err


def test_what_a_run_costs_is_told_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"raw git": {"push": 5, "processor ms": 10}, "runner": {"listing": 0, "push": 4, "processor ms": 20}}
    monkeypatch.setattr(bus, "rows_of", lambda _study: {"one run": row})
    assert bus.calls() == ("raw git: 5 push; 10 ms of processor time; runner: 4 push; 20 ms of processor time")
