"""Required fields say something: no placeholder, no digest of nothing.

A field can have the right type and still be empty of meaning; a model digest of zeros names no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule

PLACEHOLDERS: Final = frozenset(
    {"", "-", "?", "n/a", "na", "none", "null", "tbd", "todo", "unknown", "xxx", "placeholder"}
)
EMPTY_DIGESTS: Final = frozenset({"0" * 64, "f" * 64, hashlib.sha256(b"").hexdigest()})


@report_rule("G0-MEANING", remedy="Fill the field with what was measured, or do not make the report.")
def _look(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    for pointer, value in _meant(report.body):
        if isinstance(value, str) and value.strip().lower() in PLACEHOLDERS:
            yield Violation(f"got {value!r}, expected a value that says something", pointer)
        elif isinstance(value, str) and value in EMPTY_DIGESTS:
            yield Violation("got a digest of nothing, expected the digest of what was used", pointer)


def _meant(value: Any) -> Iterator[tuple[str, Any]]:
    for name in ("device", "os", "machine", "python"):
        yield f"/environment/{name}", value["environment"][name]
    for package, version in value["environment"]["versions"].items():
        yield f"/environment/versions/{package}", version
    for model in ("target", "drafter"):
        settings = value["config"].get(model)
        if isinstance(settings, dict):
            for name in ("name", "digest"):
                yield f"/config/{model}/{name}", settings.get(name)
    for arm_index, arm in enumerate(value["arms"]):
        for index, sample in enumerate(arm["samples"]):
            for name in ("id", "prompt_id", "prompt_digest", "token_digest"):
                yield f"/arms/{arm_index}/samples/{index}/{name}", sample[name]
