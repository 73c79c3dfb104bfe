"""Bytes of caches that were never measured so."""

from __future__ import annotations

from tests.integration.gate.lies.registry import told
from tests.integration.gate.workload import Report


@told("memory-by-formula", "G7-BUFFERS", fell="memory", preset="memory")
def _(report: Report) -> None:
    for point in report["rows"]["points"]:
        if point["role"] == "candidate":
            point["kv_bytes"] = 4 * 512


@told("memory-of-both-arms-in-one-process", "G7-DESIGN", fell="memory", preset="memory")
def _(report: Report) -> None:
    for point in report["rows"]["points"]:
        point["process"] = 4242


@told("a-native-cache-inflated-in-buffers-and-allocator", "G7-NATIVE", fell="memory", preset="memory")
def _(report: Report) -> None:
    for point in report["rows"]["points"]:
        if point["role"] == "baseline":
            more = 3 * point["kv_bytes"]
            for name in ("kv_bytes", "kv_bytes_peak", "allocator_active_bytes"):
                point[name] += more


@told("a-window-that-keeps-less-than-its-name", "G7-NATIVE", fell="memory", preset="memory")
def _(report: Report) -> None:
    for point in report["rows"]["points"]:
        if point["role"] == "candidate":
            for name in ("kv_bytes", "allocator_active_bytes"):
                point[name] -= 16 * 512
