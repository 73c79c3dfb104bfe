"""What signing and verifying a result cost, as ratios to hashing the same tree and to the checks made without a key."""

from __future__ import annotations

import hashlib
import tempfile
from importlib import import_module
from pathlib import Path

from benchmarks.quick.figures import Figure
from benchmarks.quick.interleave import interleave, ratio
from bridge.publish import build_tree
from bridge.trust import runner_key as keys
from bridge.trust.attestation import ATTESTATION_FILE, ChainPosition, attest, verify_attestation
from bridge.trust.verifier import verify_tree

SIZES = {"small": 2_000, "1 MB": 1_000_000, "16 MB": 16_000_000}


def measure(repeats: int = 15) -> list[Figure]:
    """Return medians and ratios by size of the reports in the result."""
    with tempfile.TemporaryDirectory() as folder:
        keys.generate(Path(folder), "mini")
        return [figure for name, size in SIZES.items() for figure in _measured(Path(folder), name, size, repeats)]


def _measured(folder: Path, name: str, size: int, repeats: int) -> list[Figure]:
    records = import_module("tests.unit.bridge.publish.records")
    files = build_tree(
        request_bytes=None, signature=None, claims=(), log=b"", record=records.RECORD, spec=records.SPEC,
        reports={"r.json": b"0" * size}, verdict=records.VERDICT, derived=records.DERIVED, bus_id="0" * 32,
        request_oid=records.OID, attestation="dsse",
    )  # fmt: skip
    link = ChainPosition("c" * 64, 1)

    def sign() -> bytes:
        signer, _ = keys.load(folder, "mini")
        return attest(
            files, ref="refs/heads/x", record=records.RECORD, verdict=records.VERDICT, link=link, signer=signer
        )

    signed = {**files, ATTESTATION_FILE: sign()}
    trusted = [key.public for key in keys.published(folder)]
    timings = interleave(
        {
            "hash": lambda: [hashlib.sha256(data).digest() for data in files.values()],
            "check without a key": lambda: verify_tree(signed),
            "sign": sign,
            "verify": lambda: verify_attestation(signed, trusted),
        },
        repeats,
    )
    return [
        Figure(f"tree of a result, {name}", sum(map(len, files.values())), "bytes"),
        Figure(f"its attestation, {name}", len(signed[ATTESTATION_FILE]), "bytes"),
        *(Figure(f"{way}, {name}", round(1e3 * timing.median_s, 3), "ms") for way, timing in timings.items()),
        Figure(f"sign to hash, {name}", round(ratio(timings, "sign", "hash"), 2), "ratio"),
        Figure(f"verify to hash, {name}", round(ratio(timings, "verify", "hash"), 2), "ratio"),
        Figure(f"verify to keyless check, {name}", round(ratio(timings, "verify", "check without a key"), 2), "ratio"),
    ]
