"""A result tree proves by itself that nothing in it was changed, added or taken away."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable

import pytest

from bridge import strictjson
from bridge.errors import PublishError
from bridge.limits import RESULT_MAX_FILES
from bridge.publish import MASK, build_tree
from bridge.records.claim import Claim
from bridge.records.jobspec import EnvironmentVariable, JobSpec
from bridge.records.request import Request
from bridge.records.run import OutputRecord, RunRecord
from bridge.records.verdict import ClaimResult, Verdict
from bridge.system.gitobjects import REGULAR, TreeEntry, blob, commit, tree
from bridge.trust.verifier import verify_tree
from tests.fakes.asking import make_request
from tests.unit.bridge.publish.records import DERIVED, RECORD, SPEC, VERDICT, claim

OID = "e" * 40


def chain(run_id: str, count: int = 3) -> list[tuple[bytes, bytes]]:
    """Return raw commits and claims as the bus stores them."""
    pairs: list[tuple[bytes, bytes]] = []
    parents: tuple[str, ...] = ()
    for number in range(count):
        data = claim(run_id, OID, number).canonical()
        top = tree([TreeEntry(REGULAR, b"claim.json", blob(data).oid)])
        made = commit(top.oid, parents, 1_700_000_000, f"claim {number}")
        pairs.append((made.data, data))
        parents = (made.oid,)
    return pairs


def oids(claims: list[tuple[bytes, bytes]]) -> tuple[str, ...]:
    return tuple(hashlib.sha1(b"commit %d\0" % len(raw) + raw).hexdigest() for raw, _ in claims)


@pytest.fixture
def request_() -> Request:
    return make_request("0" * 32, "mlx-env-probe")


@pytest.fixture
def build(request_: Request) -> Callable[..., dict[str, bytes]]:
    def make(**changes: object) -> dict[str, bytes]:
        data = request_.canonical()
        digest = hashlib.sha256(data).hexdigest()
        log, report = b"hello\n", b'{"a":1}'
        claims = chain(request_.id)
        spec = SPEC.evolve(id=request_.id, request_digest=digest)
        record = RECORD.evolve(
            id=request_.id, bus_id=request_.bus_id, request_digest=digest, request_oid=OID, claims=oids(claims),
            log_bytes=len(log), log_sha256=hashlib.sha256(log).hexdigest(),
            outputs=(
                OutputRecord(
                    path="r.json", bytes=len(report), sha256=hashlib.sha256(report).hexdigest(), after_start=True
                ),
            ),
        )  # fmt: skip
        fields = {
            "request_bytes": data, "signature": None, "claims": claims, "log": log, "record": record, "spec": spec,
            "reports": {"r.json": report}, "verdict": VERDICT.evolve(id=request_.id),
            "derived": DERIVED.evolve(id=request_.id), "bus_id": request_.bus_id, "request_oid": OID,
        }  # fmt: skip
        return build_tree(**{**fields, **changes})

    return make


def reseal(files: dict[str, bytes]) -> dict[str, bytes]:
    """Make the manifest agree with the files again, as a forger would."""
    manifest = json.loads(files["manifest.json"])
    manifest["files"] = [
        {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in sorted(files.items())
        if path != "manifest.json"
    ]
    return {**files, "manifest.json": strictjson.encode(manifest)}


def change(files: dict[str, bytes], path: str, **fields: object) -> dict[str, bytes]:
    return reseal({**files, path: strictjson.encode({**json.loads(files[path]), **fields})})


def test_an_untouched_tree_verifies_and_the_same_input_gives_the_same_bytes(build, request_):
    assert verify_tree(build(), run_id=request_.id) == []
    assert build() == build()


def test_another_runs_tree_is_named_as_such(build):
    assert [p.path for p in verify_tree(build(), run_id="1" * 26)] == ["manifest.json"]


def test_every_single_byte_counts(build):
    files = build()
    for path, data in files.items():
        for at in {0, len(data) // 2, len(data) - 1}:
            changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            assert verify_tree({**files, path: changed}), f"{path} byte {at}"


def test_a_file_added_or_taken_away_is_found(build):
    files = build()
    assert verify_tree({**files, "reports/extra.json": b"{}"})
    for path in files:
        assert verify_tree({k: v for k, v in files.items() if k != path}), path


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("run.json", {"id": "1" * 26}),
        ("run.json", {"request_digest": "1" * 64}),
        ("run.json", {"request_oid": "1" * 40}),
        ("run.json", {"bus_id": "1" * 32}),
        ("run.json", {"log_sha256": "1" * 64}),
        ("run.json", {"claims": []}),
        ("run.json", {"claims": ["1" * 40]}),
        ("run.json", {"outputs": []}),
        ("run.json", {"preset": "other"}),
        ("spec.json", {"request_digest": "1" * 64}),
        ("spec.json", {"id": "1" * 26}),
        ("verdict.json", {"id": "1" * 26}),
        ("verdict.json", {"decision": "great"}),
    ],
)
def test_a_resealed_manifest_does_not_hide_a_contradiction(build, path, fields):
    assert verify_tree(change(build(), path, **fields))


@pytest.mark.parametrize("damage", ["drop first", "drop middle", "swap", "rewrite", "other run"])
def test_a_resealed_claim_chain_must_still_be_the_chain(build, damage):
    files = build()
    lines = files["claims.jsonl"].splitlines(keepends=True)
    if damage == "drop first":
        lines = lines[1:]
    elif damage == "drop middle":
        lines = [lines[0], lines[2]]
    elif damage == "swap":
        lines = [lines[1], lines[0], lines[2]]
    elif damage == "rewrite":
        lines[1] = lines[1].replace(b"mini", b"maxi")
    else:
        lines = [
            line.encode() for line in build(claims=chain("1" * 26))["claims.jsonl"].decode().splitlines(keepends=True)
        ]
    assert verify_tree(reseal({**files, "claims.jsonl": b"".join(lines)}))


def test_files_that_have_no_place_in_a_result_are_refused_even_when_listed(build):
    for path in ("reports/../x", ".github/workflows/ci.yml", "reports/.git/config", "hook.sh", "reports//x"):
        assert verify_tree(reseal({**build(), path: b""})), path


def test_a_tree_without_a_manifest_is_no_result():
    assert verify_tree({"run.json": b"{}"})[0].path == "manifest.json"


def test_secret_values_are_masked(build):
    secret = EnvironmentVariable(name="TOKEN", value="s3cret", origin="policy", secret=True)
    spec = JobSpec.parse(build()["spec.json"]).evolve(environment=(secret,))
    files = build(spec=spec)
    assert MASK in files["spec.json"].decode()
    assert not any(b"s3cret" in data for data in files.values())


def test_a_result_beyond_its_bounds_is_not_built(build):
    with pytest.raises(PublishError, match="at most"):
        build(reports={f"{n}.json": b"" for n in range(RESULT_MAX_FILES)})


def test_a_request_that_could_not_be_read_leaves_a_tree_that_verifies(build):
    empty = hashlib.sha256(b"").hexdigest()
    record = RunRecord.parse(build()["run.json"]).evolve(
        request_digest=empty, outputs=(), commands=(), program_exit=None, log_bytes=0, log_sha256=empty
    )
    files = build(request_bytes=None, spec=None, reports={}, record=record, log=b"")
    assert verify_tree(files) == []


def test_a_run_that_started_something_must_show_its_job_spec(build):
    files = build()
    assert any(p.path == "spec.json" for p in verify_tree(reseal({k: v for k, v in files.items() if k != "spec.json"})))


@pytest.mark.parametrize(
    "text",
    [
        "@everyone look",
        "![x](http://e.vil/p.png)",
        "<img src=x>",
        "[a](javascript:b)",
        "a|b\n# c",
        "https://e.vil",
        "#12",
    ],
)
def test_markdown_shows_strangers_text_as_text(build, text):
    verdict = Verdict.parse(build()["verdict.json"]).evolve(headline=text)
    page = build(verdict=verdict)["summary.md"].decode()
    line = next(line for line in page.splitlines() if line.startswith("| quote"))
    shown = line.removeprefix("| quote | ").removesuffix(" |")
    assert re.search(r"(?<!\\)[\[\]<>|`]|@\w|#\w|https?:|www\.", shown) is None


def test_claims_with_intervals_are_drawn_to_scale_and_no_name_ends_the_block(build):
    claims = tuple(
        ClaimResult(
            id=name, metric=name, role="primary", value=value, interval=interval, confidence=0.95, unit=unit, n=6,
            baseline=None, wording="a claim", kind="metric", decision="valid", premises=(), detail={},
        )
        for name, value, interval, unit in (
            ("speed", 1.5, (1.25, 2.0), "x"), ("``` # speed", 0.5, (0.5, 0.75), "x"), ("loss", 3.0, (3.0, 3.0), "n"),
            ("alone", 2.0, None, "x"),
        )
    )  # fmt: skip
    page = build(verdict=Verdict.parse(build()["verdict.json"]).evolve(claims=claims))["summary.md"].decode()
    _, drawn, after = re.split(r"^```.*$", page, flags=re.MULTILINE)
    assert drawn.strip().splitlines() == [
        "x                  0.5                                     2",
        "speed                           :      [------o------------]  1.50",
        "??? # speed        o------]     :                             0.50",
        "n                  3                                       3",
        "loss                                   o                      3",
    ]
    assert "alone" not in drawn
    assert "## Facts" in after


def test_claims_are_parsed_as_claims(build, request_):
    data = json.loads(build()["claims.jsonl"].splitlines()[0])
    assert Claim.parse(data["claim"].encode("latin-1")).id == request_.id
