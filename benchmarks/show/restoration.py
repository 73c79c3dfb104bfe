"""What the issue on bounded keys and values promises to show."""

from __future__ import annotations

from benchmarks.show.identity import ran
from benchmarks.show.line import Line
from benchmarks.studies import restored_recall
from benchmarks.studies.report import report_of

STREAMED = "tests/conformance/engine/test_streamed_rows.py"
PROJECTED = "tests/conformance/engine_families/test_projected_rows.py"
BOUNDED = "tests/conformance/engine/test_caches_and_drafters.py"
RESTORED = "tests/conformance/engine/test_restored_rows.py"
PYTEST = "python -m pytest -n 0 -q"


def frontier() -> str | None:
    """Return how many hidden codes each way found, and in how many bytes, of the cases that the report has."""
    entries = report_of("restoration", "restored-recall").entries()
    found = {entry["case"]: entry["rows"][0] for entry in entries}
    if not found:
        return None
    told = [
        f"{case} {row['right']}/{row['of']} in {(row['row_bytes'] + row['latent_bytes']) / 1e6:.2f} MB"
        for case, row in found.items()
    ]
    return f"{len(found)} of {len(restored_recall.cases())} cases: {'; '.join(told)}"


LINES = (
    Line(
        "stream: tokens identical to native in at least 300 generations (so far random targets of two families on both "
        "backends, DFlash and n-gram, up to 300 tokens; bytes that do not grow)",
        f"{PYTEST} {STREAMED}",
        lambda: ran(STREAMED, "-m", "not slow"),
    ),
    Line(
        "one exact layer among bounded ones is the model under those masks, drafted or not, on both backends",
        f"{PYTEST} {BOUNDED} -k 'masks or exact'",
        lambda: ran(BOUNDED, "-k", "masks or exact", "-m", "not slow"),
    ),
    Line(
        "rows made again from a layer's input are bit for bit the cached ones, on both backends",
        f"{PYTEST} {PROJECTED}",
        lambda: ran(PROJECTED),
    ),
    Line("stream: resident bytes flat from 1K to 8K, and to 32K in bytes; at least 8 times below native", "not built"),
    Line("stream: bytes read per committed token over acceptance; tokens per second beside native", "not built"),
    Line("paged: recall of at least .95 of native at 8 times fewer resident bytes, per task", "not built"),
    Line(
        "f_theta: frontier of recall and bytes over rank, loss and input, three seeds (contexts forwarded with the "
        "layout itself; no native prefill, no alpha)",
        "make studies AREA=restoration STUDY=restored-recall",
        frontier,
    ),
    Line(
        "positions forwarded a step are the block; prefill at most two forwards (one here); sessions side by side are "
        "as each alone; identity <= 1e-4 and noise > .1 per layer kind, and cut injection is found, on both backends",
        f"{PYTEST} {RESTORED}",
        lambda: ran(RESTORED),
    ),
)
