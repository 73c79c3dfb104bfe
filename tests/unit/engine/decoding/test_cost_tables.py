from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.decoding.controller import ControlledDepth
from engine.decoding.cost_tables import CostKey, read_costs, write_costs
from engine.errors import UsageError

KEY = CostKey("Linux x86_64 cpu", "ab" * 32, "float32", {"torch": "2.13.0"})
TABLE = {"": {1: 0.010, 2: 0.011, 16: 0.014}}


def test_a_table_comes_back_as_it_was_written_and_a_controller_starts_from_it(tmp_path: Path) -> None:
    write_costs(tmp_path / "costs.json", KEY, TABLE)
    table = read_costs(tmp_path / "costs.json", KEY)
    assert table == TABLE
    assert list(tmp_path.iterdir()) == [tmp_path / "costs.json"]
    assert ControlledDepth(15, table).choose(0, 100).count > 0


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (CostKey("Darwin arm64 gpu", KEY.model, KEY.dtype, KEY.libraries), "machine Linux x86_64 cpu; expected Darwin"),
        (CostKey(KEY.machine, "cd" * 32, KEY.dtype, KEY.libraries), f"model {KEY.model}; expected cd"),
        (CostKey(KEY.machine, KEY.model, "bfloat16", KEY.libraries), "dtype float32; expected bfloat16"),
        (
            CostKey(KEY.machine, KEY.model, KEY.dtype, {"torch": "2.14.0"}),
            r"libraries .*2\.13\.0.*; expected .*2\.14\.0",
        ),
    ],
)
def test_a_table_of_something_else_is_refused_by_the_name_of_what_differs(
    tmp_path: Path, other: CostKey, message: str
) -> None:
    write_costs(tmp_path / "costs.json", KEY, TABLE)
    with pytest.raises(UsageError, match=message):
        read_costs(tmp_path / "costs.json", other)


@pytest.mark.parametrize(
    "steps_s",
    [{}, {"": {"2": 0.1}}, {"": {"1": 0.0}}, {"": {"1": "fast"}}, {"": {"1": 10**400}}, {"": [1]}, [1], None],
)
def test_what_is_no_table_is_one_line(tmp_path: Path, steps_s: object) -> None:
    write_costs(tmp_path / "costs.json", KEY, TABLE)
    stored = json.loads((tmp_path / "costs.json").read_text())
    (tmp_path / "costs.json").write_text(json.dumps(stored | {"steps_s": steps_s}))
    with pytest.raises(UsageError, match=r"costs\.json"):
        read_costs(tmp_path / "costs.json", KEY)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000], ids=["empty", "cut off", "nested"])
def test_a_file_of_something_else_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "costs.json").write_text(text)
    with pytest.raises(UsageError, match="cannot read step costs"):
        read_costs(tmp_path / "costs.json", KEY)


def test_a_table_of_another_schema_is_refused_by_its_number(tmp_path: Path) -> None:
    write_costs(tmp_path / "costs.json", KEY, TABLE)
    stored = json.loads((tmp_path / "costs.json").read_text())
    (tmp_path / "costs.json").write_text(json.dumps(stored | {"schema": 2}))
    with pytest.raises(UsageError, match="step costs of schema 2; expected 1"):
        read_costs(tmp_path / "costs.json", KEY)
