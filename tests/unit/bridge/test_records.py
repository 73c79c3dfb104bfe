"""Records: strict, frozen, canonical, and their published schemas are current."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bridge import strictjson
from bridge.ids import is_id, new_id
from bridge.records.request import Request
from tests import drift
from tests.generated import record_schemas

VALID = {
    "schema_version": 2,
    "id": new_id(1_700_000_000_000, bytes(10)),
    "bus_id": "a" * 32,
    "ref": "refs/heads/mac-bridge/mlx-env-probe-x",
    "principal": "unsigned",
    "signer": None,
    "preset": "mlx-env-probe",
    "params": {"n": 3},
    "profile": "smoke",
    "workload": None,
    "runner": {"name": None, "labels": []},
    "limits": {"wall_s": None, "log_bytes": None, "output_bytes": None},
    "created": "2026-01-01T00:00:00.000Z",
    "expires": "2026-01-01T01:00:00.000Z",
    "idempotency_key": "0" * 64,
    "retry_of": None,
}


def encoded(**changes: object) -> bytes:
    return strictjson.encode({**VALID, **changes})


def test_canonical_bytes_survive_a_round_trip() -> None:
    data = encoded()
    assert Request.parse(data).canonical() == data


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": True},
        {"schema_version": 3},
        {"id": "x" * 26},
        {"id": VALID["id"].upper()},
        {"id": VALID["id"] + "\n"},
        {"preset": "Mlx"},
        {"preset": "-x"},
        {"params": {"n": None}},
        {"params": {"n": [1]}},
        {"params": {"n": "a\u0000"}},
        {"params": {"n": "a\u2028"}},
        {"params": {"n": "a\x1b[31m"}},
        {"profile": "quick"},
        {"created": "2026-01-01T00:00:00"},
        {"created": "2026-01-01Z"},
        {"created": "20260101T000000Z"},
        {"created": "2026-01-01T00:00Z"},
        {"limits": {"wall_s": -1.0}},
        {"limits": {"wall_s": "3"}},
        {"unknown": 1},
        {"runner": {"name": None, "labels": [], "count": 2}},
        {"idempotency_key": "0" * 63},
    ],
    ids=lambda change: json.dumps(change)[:40],
)
def test_a_field_of_another_type_or_form_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Request.parse(encoded(**change))


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b"[" * 17 + b"]" * 17,
        b"[" * 100_000,
        b"\xff",
        b"",
        b"{",
        b'{"a":1} x',
        b" " * 70_000,
        b'{"a":01}',
        '{"a":５}'.encode(),
        b'{"a":1_0}',
    ],
    ids=lambda data: repr(data[:16]),
)
def test_json_that_is_not_strict_is_refused(data: bytes) -> None:
    with pytest.raises(strictjson.StrictJsonError):
        strictjson.decode(data)


@pytest.mark.parametrize("digits", [65, 400, 5000])
def test_an_integer_that_no_double_holds_is_refused_and_digits_in_a_text_are_none(digits: int) -> None:
    with pytest.raises(strictjson.StrictJsonError, match=f"an integer of {digits} digits, at most 64 are read"):
        strictjson.decode(b'{"a": [1, -' + b"7" * digits + b"]}")
    assert strictjson.decode(b'["' + b"7" * digits + b'", -' + b"7" * 64 + b"]") == ["7" * digits, -int("7" * 64)]


def test_brackets_inside_strings_are_not_depth() -> None:
    text = '"' + "[" * 500 + '\\"]"'
    assert strictjson.decode(b'{"a":' + text.encode() + b"}") == {"a": json.loads(text)}


def test_a_float_that_equals_the_version_is_not_canonical() -> None:
    data = encoded(schema_version=2.0)
    assert Request.parse(data).canonical() != data


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=8
    )
)
def test_what_is_encoded_decodes_to_itself(value: object) -> None:
    assert strictjson.decode(strictjson.encode({"v": value})) == {"v": value}


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_ids_sort_by_time_and_have_one_form(unix_ms: int, entropy: bytes) -> None:
    run_id = new_id(unix_ms, entropy)
    assert is_id(run_id)
    assert unix_ms == 0 or new_id(unix_ms - 1, b"\xff" * 10) < run_id


def test_records_cannot_be_changed() -> None:
    request = Request.parse(encoded())
    with pytest.raises(ValidationError):
        request.preset = "other"  # type: ignore[misc]


def test_published_schemas_are_current_and_accept_a_request() -> None:
    files = record_schemas.generate()
    assert drift.differing(files) == []
    schema = json.loads(files["bridge/records/schemas/request.schema.json"])
    jsonschema.Draft202012Validator(schema).validate(VALID)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate({**VALID, "unknown": 1})


def test_a_changed_generated_file_is_named(tmp_path) -> None:
    (tmp_path / "a").write_text("old")
    assert drift.differing({"a": "new", "b": "x"}, tmp_path) == ["a", "b"]


def test_records_name_their_types_as_objects():
    """A type that is text is compiled for each field as the program starts: pydantic asks for all of them."""
    for module in (drift.ROOT / "bridge" / "records").glob("*.py"):
        if module.name != "__init__.py":
            assert "from __future__ import annotations" not in module.read_text(), module.name
