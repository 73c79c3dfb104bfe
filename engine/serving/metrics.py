"""What ``/metrics`` shows: one registry for each server."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.serving.scheduler import Scheduler


class Metrics:
    """Counts requests and times, and reads the scheduler's own counts when it is asked.

    Args:
        scheduler: whose counts are shown.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Counts(scheduler))
        self.responses = Counter(
            "kakeya_http_responses",
            "Answered requests, by path and status.",
            ["path", "status"],
            registry=self._registry,
        )
        self.first_text_s = Histogram(
            "kakeya_first_text_seconds", "From a request to the first of its text.", registry=self._registry
        )
        self.whole_s = Histogram("kakeya_answer_seconds", "From a request to its end.", registry=self._registry)

    def text(self) -> bytes:
        """Return the page."""
        return generate_latest(self._registry)


class _Counts(Collector):
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def collect(self) -> Iterator[Metric]:
        counts = self._scheduler.counts
        for name, text, value in (
            ("answers", "Whole answers.", counts.finished),
            ("cancelled", "Requests that their clients left.", counts.cancelled),
            ("failed", "Requests that could not be answered.", counts.failed),
            ("prompt_tokens", "Tokens of prompts.", counts.prompt_tokens),
            ("reused_tokens", "Those of them that were in a cache already.", counts.reused_tokens),
            ("answer_tokens", "Tokens of answers.", counts.answer_tokens),
            ("drafted_tokens", "Tokens that were drafted.", counts.drafted_tokens),
            ("accepted_tokens", "Those of them that the target would have chosen.", counts.accepted_tokens),
            ("target_forwards", "Forwards of the target while decoding.", counts.target_forwards),
        ):
            yield CounterMetricFamily(f"kakeya_{name}", text, value=value)
        for name, text, value in (
            ("active", "Answers that are being made.", self._scheduler.active),
            ("waiting", "Requests that have not begun.", self._scheduler.waiting),
            ("idle", "Ended conversations whose caches stay.", self._scheduler.idle),
            ("cache_bytes", "Measured bytes of all caches.", self._scheduler.held_bytes),
        ):
            yield GaugeMetricFamily(f"kakeya_{name}", text, value=value)
