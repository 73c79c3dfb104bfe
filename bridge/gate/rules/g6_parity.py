"""In fp32 both backends' drafters propose the same tokens.

The same weights and the same inputs leave no room for another argmax; in lower precision a near-tie may fall either
way.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule(
    "G6-PARITY",
    severity="not_citable",
    kinds=(kinds.DRAFTER_PARITY,),
    remedy="Look at the first differing block and its margin; check embedding scale, masks and position offsets.",
)
def _look(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    dtype = report.body["config"]["target"]["dtype"]
    different = [block for block in report.body["rows"]["blocks"] if block["mlx_tokens"] != block["torch_tokens"]]
    if different:
        first = different[0]
        yield Violation(
            f"{len(different)} blocks differ, first {first['prompt_id']!r} at {first['position']} "
            f"(margin {first['top2_margin_at_divergence']}, {dtype})",
            "/rows/blocks",
            severity="not_citable" if dtype == "float32" else "note",
        )
