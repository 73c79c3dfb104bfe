"""What a person sees while samples are measured."""

from __future__ import annotations

from engine.reports import Sample


def show(sample: Sample) -> None:
    """Print one finished sample."""
    stages, counters = sample.stages, sample.counters
    drafted = f", {counters.accepted_tokens}/{counters.drafted_tokens} accepted" if counters.drafted_tokens else ""
    warm = " (warm-up)" if sample.is_warmup else ""
    print(f"  {sample.id}{warm}: {sample.output_tokens} tokens, decode {stages.decode_s:.3f} s{drafted}", flush=True)
