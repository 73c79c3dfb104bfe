"""What signing and verifying a result cost, as ratios to hashing the same tree and to the checks made without a key."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from benchmarks.interleave import interleave, ratio
from bridge.publish import build_tree, verify_tree
from bridge.publish.attestation import ATTESTATION_FILE, Link, attest, verify_attestation
from bridge.runner import keys

SIZES = {"small": 2_000, "1 MB": 1_000_000, "16 MB": 16_000_000}
REPEATS = 30


def measure(repeats: int = REPEATS, sizes: Mapping[str, int] = SIZES) -> dict[str, object]:
    """Return medians in milliseconds and ratios by size of the reports in the result."""
    with tempfile.TemporaryDirectory() as folder:
        keys.generate(Path(folder), "bench")
        return {name: _measured(Path(folder), size, repeats) for name, size in sizes.items()}


def _measured(folder: Path, size: int, repeats: int) -> dict[str, object]:
    records = import_module("tests.unit.bridge.publish.records")
    files = build_tree(
        request_bytes=None, signature=None, claims=(), log=b"", record=records.RECORD, spec=records.SPEC,
        reports={"r.json": b"0" * size}, verdict=records.VERDICT, bus_id="0" * 32, request_oid=records.OID,
        attestation="dsse",
    )  # fmt: skip
    link = Link("c" * 64, 1)

    def sign() -> bytes:
        signer, _ = keys.load(folder, "bench")
        return attest(
            files, ref="refs/heads/x", record=records.RECORD, verdict=records.VERDICT, link=link, signer=signer
        )

    signed = {**files, ATTESTATION_FILE: sign()}
    trusted = keys.published(folder)
    timings = interleave(
        {
            "hash": lambda: [hashlib.sha256(data).digest() for data in files.values()],
            "check without a key": lambda: verify_tree(signed),
            "sign": sign,
            "verify": lambda: verify_attestation(signed, trusted),
        },
        repeats,
    )
    return {
        "tree_bytes": sum(map(len, files.values())),
        "envelope_bytes": len(signed[ATTESTATION_FILE]),
        "median_ms": {name: round(1000 * timing.median_s, 3) for name, timing in timings.items()},
        "p90_ms": {name: round(1000 * timing.p90_s, 3) for name, timing in timings.items()},
        "sign_over_hash": round(ratio(timings, "sign", "hash"), 3),
        "verify_over_hash": round(ratio(timings, "verify", "hash"), 3),
        "verify_over_check_without_a_key": round(ratio(timings, "verify", "check without a key"), 3),
        "repeats": repeats,
    }
