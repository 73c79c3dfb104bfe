"""What a target must hold of a context, by arithmetic over the sizes that the runner read from its folder.

Knows rows and windows of caches, not who measured them. Growth: mlx-lm's cache grows by 256 rows at a time,
transformers' by the rows appended; one row more may already be queued. A window of w shows w positions, so that w - 1
earlier ones and the newest are held.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from bridge.gate.interface import Evidence, Report
from bridge.records.run import CacheShape, ModelShape

GROWTH_ROWS: Final = {"mlx": 256, "torch": 0}
_QUEUED_ROWS: Final = 1
# The engine's own caches grow by no more than mlx-lm's, its windows by an eighth of them beside; what they grew for may
# be a block of which nothing was accepted.
_SLACK_ROWS: Final = 256 + 17
_VALUE_BYTES: Final = {"float32": (4.0, 4.0), "bfloat16": (2.0, 2.0), "float16": (2.0, 2.0)}
_CODED: Final = (2.0, 4.0)  # weights in codes are computed with in one of these
_CODES: Final = re.compile(r"(?P<codec>affine|d4x|e8x)(?P<bits>[48])(/(?P<group>[1-9][0-9]{0,3}))?")
_BLOCKS: Final = {"affine": 1, "d4x": 4, "e8x": 8}  # values that a group holds at least
_GROUP_MOST: Final = 64  # of a name that says none
_BOUNDED: Final = re.compile(
    r"sink(?P<sink>[0-9]{1,5})\+window(?P<window>[0-9]{1,7})(?P<exact>(\+exact(0|[1-9][0-9]{0,2}))*)"
    r"(\+pages(?P<rows>[0-9]{1,4})x(?P<count>[0-9]{1,5})(/(?P<policy>[a-z]{1,9}))?"
    r"(?P<paged>(\+layer(0|[1-9][0-9]{0,2}))*))?"
    r"(?P<stream>\+stream)?(?P<host>\+host)?(\+ftheta(?P<rank>[0-9]{1,5}))?"
)
_STREAM_PAGE: Final = 64  # rows of a page where a layout names none
_STREAM_ROWS: Final = 256  # a page on its way, and its copy
_BLOCK_ROWS: Final = 32  # of the newest append, behind whose start nothing has left yet
_INDEX_ROWS: Final = 64  # what an index grows by
OTHER_PARTS_MAX: Final = 2.0
"""How many times as many values as its text part a folder may hold, of other parts."""
_LEAST_HEAD: Final = 8  # values of a key that share a scale, at least


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
    """Return how many parameters the target has at least: by the folder that the runner read, where it read one.

    Of a folder that holds other parts, too, a share; what a report says of itself counts only where nobody read it.
    """
    shape = shape_of(report, evidence)
    if shape is None:
        return int(report.body["config"]["target"]["parameters"])
    return shape.parameters if shape.text_only else math.ceil(shape.parameters / OTHER_PARTS_MAX)


def native_bytes(caches: tuple[CacheShape, ...], report: Report, positions: int) -> tuple[float, float]:
    """Return the least and the most bytes of the library's own cache, once a step was decoded after the prompt."""
    low, high = value_bytes(report)
    grown = positions + _QUEUED_ROWS + GROWTH_ROWS.get(str(report.body["environment"]["backend"]), 256)
    most = sum(_width(one) * (grown if one.window is None else min(grown, one.window)) for one in caches)
    return low * sum(_width(one) * _shown(one.window, positions) for one in caches), high * most


def layout_bytes(
    layout: str, caches: tuple[CacheShape, ...], report: Report, positions: int
) -> tuple[float, float] | None:
    """Return the least and the most bytes of a cache layout, None for a name that says no layout of such caches."""
    low, high = value_bytes(report)
    codes, bounded = _CODES.fullmatch(layout), _BOUNDED.fullmatch(layout)
    if codes is not None:
        return _coded_bytes(codes, (low, high), caches, positions)
    if (bounded is None and layout not in {"native", "full"}) or (bounded is not None and not _fits(bounded, caches)):
        return None
    least = most = 0.0
    for layer, one in enumerate(caches):
        window = None if layout == "full" else one.window
        if bounded is not None and layer in bounded_layers(layout, caches):
            rows = _bounded_rows(bounded, positions, layer)
            index = (
                _index_bytes(bounded, one.keys, positions, (low, high)) if _has_pages(bounded, layer) else (0.0, 0.0)
            )
        else:
            rows, index = (_shown(window, positions), _most_shown(window, positions) + _SLACK_ROWS), (0.0, 0.0)
        least, most = least + low * _width(one) * rows[0] + index[0], most + high * _width(one) * rows[1] + index[1]
    return least, most


def _coded_bytes(
    parts: re.Match[str], scales: tuple[float, float], caches: tuple[CacheShape, ...], positions: int
) -> tuple[float, float]:
    """Return the least and the most bytes of rows in codes: a scale a group, and with affine codes an offset too.

    Args:
        parts: The layout's codec, bits and group.
        scales: The least and the most bytes of a scale.
        caches: What each layer keeps of a position.
        positions: How many there are.
    """
    numbers, named = 2 if parts["codec"] == "affine" else 1, int(parts["group"] or 0)
    least = int(parts["bits"]) / 8 + numbers * scales[0] / (named or _GROUP_MOST)
    most = int(parts["bits"]) / 8 + numbers * scales[1] / (named or _BLOCKS[parts["codec"]])
    rows = [(_width(one), one.window) for one in caches]
    return (
        least * sum(width * _shown(window, positions) for width, window in rows),
        most * sum(width * (_most_shown(window, positions) + _SLACK_ROWS) for width, window in rows),
    )


def _named(parts: re.Match[str], what: str) -> set[int]:
    """Return the layers that a layout names as ``exact`` or ``paged``."""
    return {int(number) for number in re.findall("[0-9]+", parts[what] or "")}


def _fits(parts: re.Match[str], caches: tuple[CacheShape, ...]) -> bool:
    """Say whether the layers that a layout names are there, and whether it may name some that have pages."""
    exact, paged = _named(parts, "exact"), _named(parts, "paged")
    full = {layer for layer, one in enumerate(caches) if one.window is None}
    return exact <= full and paged <= full - exact and not (paged and (parts["stream"] or parts["rank"]))


def _has_pages(parts: re.Match[str], layer: int) -> bool:
    """Say whether a bounded layer has a pool of pages."""
    paged = _named(parts, "paged")
    return bool(parts["rows"]) and (not paged or layer in paged)


def _bounded_rows(parts: re.Match[str], positions: int, layer: int) -> tuple[int, int]:
    """Return the fewest and the most rows of a layer that keeps a sink, a window, and a pool of pages beside them."""
    kept = int(parts["sink"]) + int(parts["window"])
    page = int(parts["rows"]) if _has_pages(parts, layer) else 0
    pool = page * int(parts["count"] or 0)
    least = min(positions, kept - 1 + pool)
    beside = (
        _SLACK_ROWS
        + (_STREAM_ROWS if parts["stream"] else 0)
        + (positions if parts["host"] and (page or parts["stream"]) else 0)
    )
    # Rows leave in whole pages: until one is full, as many rows as the sink has stay beside it. Beside the pool there
    # is room for one page more, and a page on its way.
    beside += int(parts["sink"]) + 3 * page if page or parts["stream"] else 0
    # The sink is held whole however short the prompt is, and a row more.
    return least, int(parts["sink"]) + 1 + _most_shown(int(parts["window"]), positions) + pool + beside


def _index_bytes(parts: re.Match[str], keys: int, positions: int, value: tuple[float, float]) -> tuple[float, float]:
    """Return the least and the most bytes of what a layer chooses its pages by: by name ``codes``, unless streamed."""
    if not parts["rows"] or parts["stream"] or parts["policy"] not in {None, "codes"}:
        return 0.0, 0.0
    page, kept = int(parts["rows"]), int(parts["sink"]) + int(parts["window"])
    gone = max(0, positions - kept - page - _BLOCK_ROWS)
    return keys / 4 * gone, (keys / 4 + value[1] * keys / _LEAST_HEAD) * (positions + _INDEX_ROWS)


def kept_rows(layout: str) -> int | None:
    """Return how many rows a bounded layer keeps in memory at most: sink, window, pool; None where none is bounded."""
    bounded = _BOUNDED.fullmatch(layout)
    if bounded is None:
        return None
    return int(bounded["sink"]) + int(bounded["window"]) + int(bounded["rows"] or 0) * int(bounded["count"] or 0)


def bounded_layers(layout: str, caches: tuple[CacheShape, ...]) -> tuple[int, ...]:
    """Return the full-attention layers that a layout bounds, by their place among those that keep rows."""
    bounded = _BOUNDED.fullmatch(layout)
    if bounded is None:
        return ()
    exact = _named(bounded, "exact")
    return tuple(layer for layer, one in enumerate(caches) if one.window is None and layer not in exact)


def index_least(layout: str, caches: tuple[CacheShape, ...], report: Report, positions: int) -> float:
    """Return the least bytes of what the pages of all layers are chosen by; 0 where nothing is remembered of them."""
    bounded = _BOUNDED.fullmatch(layout)
    if bounded is None:
        return 0.0
    layers = [layer for layer in bounded_layers(layout, caches) if _has_pages(bounded, layer)]
    return sum(_index_bytes(bounded, caches[layer].keys, positions, value_bytes(report))[0] for layer in layers)


def made_least(layout: str, caches: tuple[CacheShape, ...], prompt: int, steps: int) -> int:
    """Return how many rows a restored layout makes again at least for the steps behind a prompt of so many tokens.

    Every block is shown what lies behind the window of each layer: of a stream all whole pages that no pool holds, of
    chosen pages those that fill the pool once.
    """
    bounded, kept = _BOUNDED.fullmatch(layout), kept_rows(layout)
    if bounded is None or kept is None:
        return 1
    layers, page = max(1, len(bounded_layers(layout, caches))), int(bounded["rows"] or _STREAM_PAGE)
    if bounded["stream"]:
        least = steps * max(0, prompt - kept - page)
    elif bounded["rows"]:
        least = min(1, steps) * page * int(bounded["count"])
    else:
        least = max(1, steps) * max(0, prompt - kept)
    return max(1, least * layers)


def identity_least(layout: str, caches: tuple[CacheShape, ...], report: Report, positions: int) -> float:
    """Return the least bytes of the inputs of restored layers: no model's are less than half as wide as its keys."""
    keys = sum(caches[layer].keys for layer in bounded_layers(layout, caches))
    return value_bytes(report)[0] * positions * keys / 2


def latent_bytes(layout: str, report: Report, positions: int) -> tuple[float, float] | None:
    """Return the least and the most bytes of what rows are restored from, None where a layout restores none.

    A rank as large as the restoration's input keeps that alone, a smaller one so many values a side.
    """
    bounded = _BOUNDED.fullmatch(layout)
    if bounded is None or bounded["rank"] is None:
        return None
    low, high = value_bytes(report)
    rank = int(bounded["rank"])
    return low * rank * positions, high * 2 * rank * (positions + _SLACK_ROWS)


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
