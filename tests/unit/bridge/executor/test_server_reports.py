"""What the runner writes of servers stands where it belongs, whatever they left in its place."""

from __future__ import annotations

from pathlib import Path

from bridge.executor.servers.turns import write_reports
from tests.support.deep_folder import make_deep


def test_folders_deeper_than_any_path_in_the_place_of_a_report_give_way_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    folder.mkdir()
    make_deep(folder)
    write_reports(tmp_path, {"servers/report.json": b"{}"})
    assert {path: path.read_bytes() for path in folder.iterdir()} == {folder / "report.json": b"{}"}
