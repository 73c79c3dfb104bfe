"""Typed views of reports. Generated from the schemas (`python -m tests.drift --write`); never edit it.

`config` and `rows` hold every field that some kind has; G0-SCHEMA has checked what a kind requires of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from bridge.gate.declared.row_views import StatedRows

# ruff: noqa: D101 (the schemas describe the fields)


class StatedTargetReading(TypedDict):
    digest: str
    mended: list[str]
    unapplied: list[str]
    differing: list[str]


class StatedTarget(TypedDict):
    name: str
    digest: str
    format: str
    parameters: int
    vocab_size: int
    dtype: str
    reading: NotRequired[StatedTargetReading]
    hidden_size: NotRequired[int]
    layer_count: NotRequired[int]
    max_positions: NotRequired[int]


class StatedDrafter(TypedDict):
    name: str
    digest: str | None
    format: str
    parameters: int
    block_size: int | None
    settings: Mapping[str, Any]


class StatedDepthFixed(TypedDict):
    policy: Literal["fixed"]
    tokens: int


class StatedDepthController(TypedDict):
    policy: Literal["controller"]
    longest: int


class StatedRestoration(TypedDict):
    name: str
    digest: str


class StatedConfig(TypedDict):
    target: NotRequired[StatedTarget]
    drafter: NotRequired[StatedDrafter | None]
    block_size: NotRequired[int | None]
    cache_layout: NotRequired[Literal["native", "full"]]
    max_new_tokens: NotRequired[int]
    stop: NotRequired[Literal["natural", "budget"]]
    stopping_ids: NotRequired[list[int]]
    seed: NotRequired[int]
    dtype: NotRequired[str]
    depth: NotRequired[StatedDepthFixed | StatedDepthController | int | None]
    prompt_set: NotRequired[str]
    prompt_rule: NotRequired[str]
    prefill_chunk_tokens: NotRequired[int]
    restoration: NotRequired[StatedRestoration | None]
    drafter_context: NotRequired[int | None]
    least_tokens: NotRequired[int]
    base_commit: NotRequired[str]
    head_commit: NotRequired[str]
    slower_margin: NotRequired[float]
    backend: NotRequired[Literal["mlx", "torch", "none"]]
    accelerator_required: NotRequired[bool]
    loss: NotRequired[str]
    rank: NotRequired[int]
    blocks: NotRequired[int]
    limit_s: NotRequired[float]
    paths: NotRequired[list[str]]
    marker: NotRequired[str]
    require: NotRequired[list[str]]


class StatedRun(TypedDict):
    id: str
    request_digest: str
    preset: str
    params: Mapping[str, str | float | bool]
    profile: Literal["smoke", "claim"]


class StatedEnvironmentBlas(TypedDict):
    name: str
    evidence: str


class StatedEnvironment(TypedDict):
    backend: Literal["mlx", "torch", "none"]
    device: str
    os: str
    machine: str
    python: str
    versions: Mapping[str, str]
    blas: StatedEnvironmentBlas | None
    threads: Mapping[str, int | str]


class StatedSampleStages(TypedDict):
    prefill_s: float
    decode_s: float
    draft_s: float | None
    verify_s: float | None
    other_s: float | None
    total_s: float


class StatedSampleCounters(TypedDict):
    target_forwards: int
    drafter_forwards: int
    drafted_tokens: int
    accepted_tokens: int
    steps: int
    host_syncs: int
    guard_rejections: int
    shadow_drafts: NotRequired[int]


class StatedSampleMemory(TypedDict):
    kv_bytes: int
    kv_bytes_peak: int | None
    drafter_bytes: int | None
    allocator_active_bytes: int | None


class StatedSample(TypedDict):
    id: str
    prompt_id: str
    prompt_digest: str
    kind: str
    launch: int
    order_index: int
    is_warmup: bool
    prompt_tokens: int
    output_tokens: int
    tokens: list[int]
    token_digest: str
    text: str
    stop_reason: Literal["eos", "budget", "loop_guard", "stop_string", "cancelled"]
    stages: StatedSampleStages
    counters: StatedSampleCounters
    accepted_per_step: list[int] | None
    drafted_per_step: list[int] | None
    memory: StatedSampleMemory
    loop_onset: int | None
    top2_margin_at_divergence: float | None
    expected: str | None
    correct: bool | None


class StatedArm(TypedDict):
    name: str
    role: Literal["baseline", "control", "candidate"]
    code_path: str
    samples: list[StatedSample]


class StatedClaim(TypedDict):
    id: str
    metric: str
    arms: list[str]
    value: float
    unit: str
    wording: str | None


class StatedFallback(TypedDict):
    arm: str
    component: str
    sample: str | None
    reason: str
    count: int


class StatedReport(TypedDict):
    kind: str
    schema_version: Literal[3]
    run: StatedRun
    config: StatedConfig
    environment: StatedEnvironment
    started_at: str
    ended_at: str
    wall_s: float
    arms: list[StatedArm]
    claims: list[StatedClaim]
    fallbacks: list[StatedFallback]
    prompts: NotRequired[Mapping[str, str]]
    rows: NotRequired[StatedRows]
