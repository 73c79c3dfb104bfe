"""The code that ran is known: whose it is, which commit or wheel, unchanged, on which interpreter and packages.

A number without the code behind it cannot be repeated. Changed code has no name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from bridge import strictjson
from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule
from bridge.records import JobSpec, RunRecord


@rule(
    "G2-CODE",
    remedy="Install the host's engine from a commit or a wheel without local changes; `kakeya-runner doctor`.",
)
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.record is None or evidence.spec is None:
        return Skip("no RunRecord or no JobSpec")
    return _code(evidence.record, evidence.spec)


def _code(record: RunRecord, spec: JobSpec) -> Iterator[Violation]:
    code = record.code
    if code is None:
        yield Violation("the record names no code")
        return
    for name, got, wanted in (
        ("origin", code.origin, spec.code),
        ("trust_class", code.trust_class, spec.trust_class),
        ("tree", code.tree, spec.tree if spec.code == "request" else code.tree),
    ):
        if got != wanted:
            yield Violation(f"{name}: the record says {got!r}, the job spec {wanted!r}", name)
    if code.identity.strip().lower() in {"", "unknown", "none"}:
        yield Violation("neither commit nor wheel digest of the code is known", "identity", severity="not_citable")
    if code.dirty is not False:
        said = "unknown whether it differs" if code.dirty is None else "it differs"
        yield Violation(f"the code is not exactly that commit: {said}", "dirty", severity="not_citable")
    if code.lock_digest != hashlib.sha256(strictjson.encode(code.packages)).hexdigest():
        yield Violation("lock_digest is not the digest of the package list", "lock_digest")
    first = spec.commands[0].argv[0]
    if code.interpreter != first:
        yield Violation(
            f"the record's interpreter is {code.interpreter!r}, the commands start {first!r}", "interpreter"
        )
