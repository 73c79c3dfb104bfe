"""Typed views of reports. Generated from the schemas (`python -m tests.drift --write`); never edit it.

`config` and `rows` hold every field that some kind has; G0-SCHEMA has checked what a kind requires of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

# ruff: noqa: D101 (the schemas describe the fields)


class StatedTarget(TypedDict):
    name: str
    digest: str
    format: str
    parameters: int
    vocab_size: int
    dtype: str
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


class StatedByPositionRow(TypedDict):
    position: int
    reached: int
    accepted: int


class StatedPoint(TypedDict):
    arm: str
    role: Literal["baseline", "candidate"]
    process: int
    repeat: int
    context_tokens: int
    decode_steps: int
    kv_bytes: int
    kv_bytes_peak: int
    host_bytes: int
    drafter_bytes: int
    latent_bytes: int
    allocator_idle_bytes: int | None
    allocator_active_bytes: int | None
    token_digest: str


class StatedCandidate(TypedDict):
    arm: str
    role: Literal["baseline", "candidate"]
    layout: str
    restored_from: Literal[None, "f_theta", "identity"]
    drafts: bool


class StatedAnswer(TypedDict):
    arm: str
    prompt_id: str
    prompt_digest: str
    prompt_tokens: int
    expected: str
    tokens: list[int]
    text: str
    correct: bool
    steps: int
    drafted: int
    accepted: int
    positions_forwarded: int
    kv_bytes: int
    pool_bytes: int
    index_bytes: int
    drafter_bytes: int
    latent_bytes: int
    rows_injected: int
    pages_moved: int
    bytes_read: int


class StatedLayerCanary(TypedDict):
    layer_kind: Literal["full", "full_shared"]
    layers: list[int]
    identity_logit_change: float
    noise_logit_change: float
    rows: int


class StatedTreesBase(TypedDict):
    commit: str
    imported: str
    sources_sha256: str


class StatedTreesHead(TypedDict):
    commit: str
    imported: str
    sources_sha256: str


class StatedTrees(TypedDict):
    base: StatedTreesBase
    head: StatedTreesHead


class StatedRpc(TypedDict):
    arm: str
    method: str
    seconds: list[float]
    drafting_s: list[float]
    round_trips_s: list[float]
    bytes_sent: int
    bytes_received: int


class StatedDraft(TypedDict):
    arm: str
    sample: str
    digest: str


class StatedDrafterParityBlock(TypedDict):
    prompt_id: str
    position: int
    bonus: int
    mlx_tokens: list[int]
    torch_tokens: list[int]
    top2_margin_at_divergence: float | None


class StatedFusedGraphProbeBlock(TypedDict):
    index: int
    mode: Literal["two_evaluations", "one_graph"]
    position: int
    drafted: int
    accepted: int
    eval_s: float
    is_warmup: bool


class StatedGeneration(TypedDict):
    prompt_id: str
    prompt_digest: str
    mlx_tokens: list[int]
    torch_tokens: list[int]
    mlx_accepted_per_step: list[int]
    torch_accepted_per_step: list[int]


class StatedCheck(TypedDict):
    name: str
    ok: bool
    required: bool
    detail: str
    value: Any


class StatedMatmulRow(TypedDict):
    backend: str
    dtype: str
    n: int
    seconds: list[float]
    gflop_per_s: float
    device: str
    max_abs_error: float


class StatedCurveRow(TypedDict):
    step: int
    loss: float
    learning_rate: float


class StatedHeldOutRow(TypedDict):
    sequence_digest: str
    tokens: int
    loss_before: float
    loss_after: float


class StatedCanaries(TypedDict):
    noise_logit_change: float
    identity_logit_change: float


class StatedError(TypedDict):
    arm: str
    layer: int
    side: Literal["keys", "values"]
    values: int
    bits: float
    error_sq: float
    reference_sq: float


class StatedLaunchPrompt(TypedDict):
    id: str
    text: str


class StatedLaunch(TypedDict):
    launch: int
    nonce: str
    prompts: list[StatedLaunchPrompt]


class StatedTest(TypedDict):
    id: str
    outcome: Literal["passed", "failed", "skipped", "error"]
    duration_s: float
    reason: str | None


class StatedVerifyRow(TypedDict):
    context_tokens: int
    rows: int
    token_digest: str
    seconds: list[float]


class StatedDraftRow(TypedDict):
    context_tokens: int
    drafted_tokens: int
    token_digest: str
    seconds: list[float]


class StatedRows(TypedDict):
    by_position: NotRequired[list[StatedByPositionRow]]
    points: NotRequired[list[StatedPoint]]
    candidates: NotRequired[list[StatedCandidate]]
    answers: NotRequired[list[StatedAnswer]]
    layer_canaries: NotRequired[list[StatedLayerCanary]]
    passes: NotRequired[list[list[int]]]
    trees: NotRequired[StatedTrees]
    rpcs: NotRequired[list[StatedRpc]]
    drafts: NotRequired[list[StatedDraft]]
    blocks: NotRequired[list[StatedDrafterParityBlock] | list[StatedFusedGraphProbeBlock]]
    generations: NotRequired[list[StatedGeneration]]
    checks: NotRequired[list[StatedCheck]]
    matmul: NotRequired[list[StatedMatmulRow]]
    curve: NotRequired[list[StatedCurveRow]]
    held_out: NotRequired[list[StatedHeldOutRow]]
    training_digests: NotRequired[list[str]]
    canaries: NotRequired[StatedCanaries]
    parameters: NotRequired[int]
    collect_s: NotRequired[float]
    train_s: NotRequired[float]
    asked_blocks: NotRequired[int]
    limit_s: NotRequired[float]
    errors: NotRequired[list[StatedError]]
    words: NotRequired[list[str]]
    launches: NotRequired[list[StatedLaunch]]
    exit_code: NotRequired[int]
    command: NotRequired[list[str]]
    junit_digest: NotRequired[str]
    tests: NotRequired[list[StatedTest]]
    collected: NotRequired[int]
    verify: NotRequired[list[StatedVerifyRow]]
    draft: NotRequired[list[StatedDraftRow]]


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
