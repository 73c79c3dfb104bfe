"""Bytes that anybody could have pushed become a Request, or one clear line and nothing else."""

from __future__ import annotations

import datetime as dt
import hashlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge import strictjson
from bridge.errors import RequestRejectedError
from bridge.records.request import LimitRequest, Request, RunnerSelector
from bridge.request import expired, idempotency_key, key_of, parse
from tests.fakes.byte_mutator import mutations

RUN_ID = "01k9x3aaaaaaaaaaaaaaaaaaaa"
BUS_ID = "0123456789abcdef" * 2
REF = f"refs/heads/mac-bridge/mlx-env-probe-{RUN_ID}"
NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
SEED_MANIFEST = {
    "schema_version": 1,
    "preset": "mlx-env-probe",
    "params": {},
    "nonce": "abcd",
    "ref": "HEAD",
    "requested_by": "agent",
}


def fields(**changes: object) -> dict[str, object]:
    value: dict[str, object] = {
        "schema_version": 2,
        "id": RUN_ID,
        "bus_id": BUS_ID,
        "ref": REF,
        "principal": "unsigned",
        "signer": None,
        "preset": "mlx-env-probe",
        "params": {},
        "profile": "smoke",
        "workload": None,
        "runner": {"labels": [], "name": None},
        "limits": {"log_bytes": None, "output_bytes": None, "wall_s": None},
        "created": "2026-01-02T03:04:05.000Z",
        "expires": "2026-01-02T05:04:05.000Z",
        "retry_of": None,
    }
    value |= changes
    if "idempotency_key" not in value:
        basis = {
            name: value.get(name) for name in ("bus_id", "limits", "params", "preset", "principal", "profile", "runner")
        }
        workload = value.get("workload")
        basis["tree"] = workload["tree"] if isinstance(workload, dict) else None
        value["idempotency_key"] = hashlib.sha256(strictjson.encode(basis)).hexdigest()
    return value


def encoded(**changes: object) -> bytes:
    return strictjson.encode(fields(**changes))


def read(data: bytes, *, ref: str = REF, bus_id: str = BUS_ID, now: dt.datetime = NOW) -> Request:
    return parse(data, ref=ref, bus_id=bus_id, now=now)


def rejected(data: bytes, match: str, **where: object) -> str:
    with pytest.raises(RequestRejectedError, match=match) as caught:
        read(data, **where)  # type: ignore[arg-type]
    message = caught.value.message
    assert "\n" not in message
    assert message.isprintable()
    assert len(message) < 500
    return message


def test_a_request_is_read_and_written_back_byte_for_byte() -> None:
    data = encoded(params={"a": 1, "b": 1.5, "c": True, "d": "é"}, runner={"labels": ["mlx"], "name": None})
    request = read(data)
    assert request.canonical() == data
    assert request.params == {"a": 1, "b": 1.5, "c": True, "d": "é"}
    assert key_of(request) == request.idempotency_key


def test_a_word_is_asked_or_a_number_is_wanted_and_not_both() -> None:
    request = read(encoded()).evolve(profile="claim", asks="slower")
    request = request.evolve(idempotency_key=key_of(request))
    assert read(request.canonical()).asks == "slower"
    assert key_of(request) != key_of(request.evolve(asks=None))
    both = request.evolve(confirms="0" * 26)
    rejected(both.evolve(idempotency_key=key_of(both)).canonical(), "asks whether it is slower, and is to be quoted")


@pytest.mark.parametrize("changes", [{"profile": "smoke"}, {"profile": "claim", "asks": "faster"}])
def test_a_load_is_drawn_in_a_claim_that_answers_nothing(changes: dict[str, str]) -> None:
    request = read(encoded()).evolve(load="drawn", **changes)
    rejected(request.evolve(idempotency_key=key_of(request)).canonical(), "draws its load")


def test_a_seed_manifest_says_how_to_send_the_new_schema() -> None:
    assert "kakeya-mac run" in rejected(strictjson.encode(SEED_MANIFEST), "schema_version 1")


def test_a_newer_schema_means_upgrade() -> None:
    rejected(encoded(schema_version=3), "upgrade kakeya on the host")
    rejected(b'{"schema_version":' + b"9" * 60 + b"}", "a number of more than 12 digits.*upgrade")


@pytest.mark.parametrize("version", [True, 2.0, "2", None, 0, -1, [2]])
def test_a_schema_version_is_the_integer_and_nothing_like_it(version: object) -> None:
    assert f"schema_version {version!r}" in rejected(encoded(schema_version=version), "expected")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "not JSON"),
        (b"null", "object"),
        (b"[]", "object"),
        (b'"x"', "object"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"[" * 100_000, "larger|bytes"),
        (b"[" * 60_000, "nested deeper"),
        (b'{"a":' * 20 + b"1" + b"}" * 20, "nested deeper"),
        (b'{"schema_version":2,"schema_version":2}', "duplicate key"),
        (b'{"schema_version":NaN}', "NaN"),
        (b'{"schema_version":Infinity}', "Infinity"),
        (b'{"schema_version":1e999}', "overflow"),
        (b'{"schema_version":' + b"1" * 5000 + b"}", "JSON"),
        (b" " * 70_000, "bytes"),
    ],
)
def test_what_is_no_strict_json_is_refused(data: bytes, match: str) -> None:
    rejected(data, match)


def test_a_preset_cannot_be_swapped_by_a_second_key() -> None:
    rejected(encoded().replace(b'"preset":"mlx-env-probe"', b'"preset":"mlx-env-probe","preset":"other"'), "duplicate")


@pytest.mark.parametrize(
    "changes",
    [
        {"extra": 1},
        {"preset": "-x"},
        {"preset": "UPPER"},
        {"preset": "a\n"},
        {"preset": "ａｂｃ"},
        {"preset": "../x"},
        {"id": RUN_ID.upper()},
        {"id": RUN_ID + "a"},
        {"profile": "fast"},
        {"params": {"k": None}},
        {"params": {"k": [1]}},
        {"params": {"k": {"a": 1}}},
        {"params": {"k": "line\nbreak"}},
        {"params": {"k": "\x1b[31m"}},
        {"params": {"k": "\u2028"}},
        {"params": {"k": "x" * 2000}},
        {"params": {"-k": 1}},
        {"params": {"K": 1}},
        {"params": {f"k{number}": 1 for number in range(65)}},
        {"params": []},
        {"runner": {"labels": ["a"] * 17, "name": None}},
        {"runner": {"labels": "mlx", "name": None}},
        {"limits": {"log_bytes": 0, "output_bytes": None, "wall_s": None}},
        {"limits": {"log_bytes": True, "output_bytes": None, "wall_s": None}},
        {"limits": {"log_bytes": None, "output_bytes": None, "wall_s": -1.0}},
        {"limits": {"log_bytes": None, "output_bytes": None, "wall_s": "60"}},
        {"created": "2026-01-02 03:04:05"},
        {"created": "2026-01-02T03:04:05+01:00"},
        {"created": 1767323045},
        {"workload": {"commit": "x", "dirty": False, "origin": "", "tree": "0" * 40}},
        {"workload": {"commit": "0" * 40, "dirty": 0, "origin": "", "tree": "0" * 40}},
        {"retry_of": "x"},
        {"idempotency_key": "0" * 63},
        {"signer": 1},
    ],
    ids=str,
)
def test_a_field_of_another_shape_is_refused_by_name(changes: dict[str, object]) -> None:
    message = rejected(encoded(**changes), "does not fit schema 2")
    assert next(iter(changes)) in message


@pytest.mark.parametrize("name", sorted(set(fields()) - {"schema_version"}))
def test_every_field_must_be_there(name: str) -> None:
    value = fields()
    del value[name]
    rejected(strictjson.encode(value), f"{name}|canonical")


@pytest.mark.parametrize(
    "text",
    ['"1_0"', '"\uff15"', '" 5 "', '"5"', "5.0", "05", "+5", "0x5", "5e0"],
)
def test_a_limit_that_looks_like_an_integer_is_none(text: str) -> None:
    data = encoded().replace(b'"log_bytes":null', f'"log_bytes":{text}'.encode())
    rejected(data, "limits.log_bytes|not JSON")


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b"\n",
        lambda data: b" " + data,
        lambda data: data.replace(b'":', b'": ', 1),
        lambda data: data.replace(b'"smoke"', b'"sm\\u006fke"'),
        lambda data: json.dumps(json.loads(data), indent=1).encode(),
        lambda data: json.dumps(dict(reversed(json.loads(data).items())), separators=(",", ":")).encode(),
    ],
)
def test_bytes_that_are_not_canonical_are_refused(change) -> None:
    rejected(change(encoded()), "not canonical")


def test_a_number_written_otherwise_is_not_canonical() -> None:
    rejected(encoded(params={"a": 1.0}).replace(b'{"a":1.0}', b'{"a":1.00}'), "not canonical")


def test_a_lone_surrogate_is_refused() -> None:
    rejected(encoded().replace(b'"smoke"', b'"\\ud800"'), "does not fit|written back|canonical")
    rejected(encoded().replace(b'"params":{}', b'"params":{"a":"\\ud800"}'), "does not fit|written back|canonical")


def test_a_request_is_bound_to_its_branch_its_id_and_its_bus() -> None:
    data = encoded()
    other = REF.replace(RUN_ID, "0" * 26)
    rejected(data, "was written for", ref=other)
    rejected(encoded(ref=other), "its branch", ref=other)
    rejected(data, "was written for bus", bus_id="f" * 32)
    rejected(encoded(ref="refs/heads/main"), "its branch", ref="refs/heads/main")


def test_times_are_bounded_and_expiry_is_a_fact_of_its_own() -> None:
    rejected(encoded(expires="2026-01-02T03:04:05.000Z"), "valid for 0 s")
    rejected(encoded(expires="2026-01-03T03:04:06.000Z"), "valid for 86401 s")
    rejected(encoded(), "in the future", now=NOW - dt.timedelta(hours=1))
    assert read(encoded(), now=NOW - dt.timedelta(minutes=10))
    late = NOW + dt.timedelta(hours=3)
    assert expired(read(encoded(), now=late), late)
    assert not expired(read(encoded()), NOW)


KEY = "SHA256:" + "A" * 43


def test_a_principal_and_its_key_come_together() -> None:
    assert read(encoded(principal="agent@example.org", signer=KEY)).signer == KEY
    rejected(encoded(principal="owner"), "a name and its key")
    rejected(encoded(signer=KEY), "a name and its key")


@pytest.mark.parametrize("name", ["-I", "a b", "", "*", "a,b", "x" * 200, "owner\n"])
def test_a_principal_is_a_name(name: str) -> None:
    rejected(encoded(principal=name, signer=KEY), "expected a name|control characters")


@pytest.mark.parametrize("key", ["", "SHA256:short", "MD5:aa", KEY + "=", "sha256:" + "A" * 43])
def test_a_signer_is_a_fingerprint(key: str) -> None:
    rejected(encoded(principal="agent", signer=key), "fingerprint")


def test_user_information_in_an_origin_is_refused_and_not_repeated() -> None:
    workload = {"commit": "0" * 40, "dirty": False, "origin": "https://me:hunter2@x/y", "tree": "1" * 40}
    assert "hunter2" not in rejected(encoded(workload=workload), "user information")


def test_a_key_over_other_fields_is_refused() -> None:
    rejected(encoded(idempotency_key="0" * 64), "does not match")
    rejected(encoded(retry_of=RUN_ID), "repeats itself")


def test_the_key_covers_what_is_asked_and_nothing_else() -> None:
    basis: dict[str, object] = {
        "bus_id": BUS_ID,
        "principal": "unsigned",
        "preset": "p",
        "params": {"a": 1},
        "profile": "smoke",
        "tree": None,
        "runner": RunnerSelector(),
        "limits": LimitRequest(),
    }
    changes: list[dict[str, object]] = [
        {"bus_id": "f" * 32},
        {"principal": "x"},
        {"preset": "q"},
        {"params": {"a": 1.0}},
        {"params": {"a": True}},
        {"profile": "claim"},
        {"tree": "0" * 40},
        {"runner": RunnerSelector(name="x")},
        {"limits": LimitRequest(wall_s=1.0)},
    ]
    keys = [idempotency_key(**basis), *(idempotency_key(**{**basis, **change}) for change in changes)]  # type: ignore[arg-type]
    assert len(set(keys)) == len(keys)
    assert idempotency_key(**basis) == keys[0]  # type: ignore[arg-type]


def only_declared(data: bytes) -> bool:
    """Read bytes; whatever comes is a request with these very bytes, or the declared error on one line."""
    try:
        request = read(data)
    except RequestRejectedError as error:
        assert "\n" not in error.message  # noqa: PT017
        assert error.message.isprintable()  # noqa: PT017
        return False
    assert request.canonical() == data
    return True


WORKLOAD = {"commit": "0" * 40, "dirty": True, "origin": "https://x/y", "tree": "1" * 40}
SEEDS = (
    encoded(),
    encoded(params={"a": 1, "b": -0.0, "c": "text", "d": False}, workload=WORKLOAD),
    strictjson.encode(SEED_MANIFEST),
)


def test_twenty_thousand_mutations_of_real_requests_raise_only_the_declared_error() -> None:
    accepted = sum(only_declared(data) for data in mutations(SEEDS, 20_000, seed=20_260_102))
    # Some mutations are still this request, e.g. another digit in the workload's commit.
    assert accepted < 2_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(fields())), value=JSON)
def test_any_value_in_any_field_raises_only_the_declared_error(name: str, value: object) -> None:
    document = fields()
    document[name] = value
    only_declared(
        json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    )


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_any_bytes_raise_only_the_declared_error(data: bytes) -> None:
    assert not only_declared(data)
