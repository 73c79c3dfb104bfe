"""What a target must hold of a context, by arithmetic over the sizes that the runner read from its folder.

Knows rows and windows of caches, not who measured them. Growth: mlx-lm's cache grows by 256 rows at a time,
transformers' by the rows appended; one row more may already be queued. A window of w shows w positions, so that w - 1
earlier ones and the newest are held.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from bridge.gate.interface import Evidence, Report
from bridge.records import CacheShape, ModelShape

GROWTH_ROWS: Final = {"mlx": 256, "torch": 0}
_QUEUED_ROWS: Final = 1
_SLACK_ROWS: Final = (
    257  # the engine's own caches grow by no more than mlx-lm's, its windows by an eighth of them beside
)
_VALUE_BYTES: Final = {"float32": (4.0, 4.0), "bfloat16": (2.0, 2.0), "float16": (2.0, 2.0)}
_CODED: Final = (2.0, 4.0)  # weights in codes are computed with in one of these
_AFFINE: Final = re.compile(r"affine([48])(/[0-9]+)?")
_BOUNDED: Final = re.compile(
    r"sink(?P<sink>[0-9]{1,5})\+window(?P<window>[0-9]{1,7})(?P<exact>(\+exact[0-9]{1,3})*)"
    r"(\+pages(?P<rows>[0-9]{1,4})x(?P<count>[0-9]{1,5}))?(?P<stream>\+stream)?(\+ftheta[0-9]{1,5})?"
)
_STREAM_ROWS: Final = 256  # a page on its way, and its copy


def shape_of(report: Report, evidence: Evidence, role: str = "target") -> ModelShape | None:
    """Return the sizes of the report's target or drafter, None when no runner has read them."""
    named = report.body["config"].get(role)
    if evidence.record is None or not isinstance(named, Mapping):
        return None
    for model in evidence.record.models:
        if model.weights_sha256 is not None and model.weights_sha256 == named["digest"]:
            return model.shape
    return None


def parameters_of(report: Report, evidence: Evidence) -> int:
    """Return how many parameters the target has: the runner's number where there is one."""
    shape = shape_of(report, evidence)
    said = int(report.body["config"]["target"]["parameters"])
    return said if shape is None or not shape.text_only else max(said, shape.parameters)


def native_bytes(caches: tuple[CacheShape, ...], report: Report, positions: int) -> tuple[float, float]:
    """Return the least and the most bytes of the library's own cache, once a step was decoded after the prompt."""
    low, high = value_bytes(report)
    grown = positions + _QUEUED_ROWS + GROWTH_ROWS.get(str(report.body["environment"]["backend"]), 256)
    most = sum(_width(one) * (grown if one.window is None else min(grown, one.window)) for one in caches)
    return low * sum(_width(one) * _shown(one.window, positions) for one in caches), high * most


def layout_bytes(
    layout: str, caches: tuple[CacheShape, ...], report: Report, positions: int
) -> tuple[float, float | None] | None:
    """Return the least and the most bytes of a cache layout, None for a name that says no layout.

    The most is None for codes: how many bytes their scales take is not in the name.
    """
    low, high = value_bytes(report)
    affine, bounded = _AFFINE.fullmatch(layout), _BOUNDED.fullmatch(layout)
    if affine is not None:
        return int(affine[1]) / 8 * sum(_width(one) * _shown(one.window, positions) for one in caches), None
    if bounded is None and layout not in {"native", "full"}:
        return None
    least = most = 0.0
    for layer, one in enumerate(caches):
        window = None if layout == "full" else one.window
        if bounded is not None and window is None and str(layer) not in bounded["exact"].split("+exact"):
            rows = _bounded_rows(bounded, positions)
        else:
            rows = _shown(window, positions), _most_shown(window, positions) + _SLACK_ROWS
        least, most = least + low * _width(one) * rows[0], most + high * _width(one) * rows[1]
    return least, most


def _bounded_rows(parts: re.Match[str], positions: int) -> tuple[int, int]:
    """Return the fewest and the most rows of a layer that keeps a sink, a window, and a pool of pages beside them."""
    kept = int(parts["sink"]) + int(parts["window"])
    pool = int(parts["rows"]) * int(parts["count"]) if parts["rows"] else 0
    least = min(positions, kept - 1 + pool)
    # Streamed rows leave in whole pages: until the next one is full, as many rows as the sink has stay beside it.
    streamed = _STREAM_ROWS + int(parts["sink"]) if parts["stream"] else 0
    return least, _most_shown(kept, positions) + pool + _SLACK_ROWS + streamed


def most_bytes(bits: float, caches: tuple[CacheShape, ...], positions: int) -> float:
    """Return the most bytes of rows in codes of so many bits a value, scales included; windows keep some slack."""
    return bits / 8 * sum(_width(one) * (_most_shown(one.window, positions) + _SLACK_ROWS) for one in caches)


def value_bytes(report: Report) -> tuple[float, float]:
    """Return the least and the most bytes of one value of a cache that keeps the target's dtype."""
    return _VALUE_BYTES.get(str(report.body["config"]["target"]["dtype"]), _CODED)


def _shown(window: int | None, positions: int) -> int:
    return positions if window is None else min(positions, window - 1)


def _most_shown(window: int | None, positions: int) -> int:
    return positions if window is None else min(positions, window) + window // 8


def _width(one: CacheShape) -> int:
    return one.keys + one.values
