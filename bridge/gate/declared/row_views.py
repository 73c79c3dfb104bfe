"""Typed views of the rows of reports. Generated from the schemas (`python -m tests.drift --write`); never edit it.

`StatedRows` holds every field that some kind has; G0-SCHEMA has checked what a kind requires of it.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

# ruff: noqa: D101 (the schemas describe the fields)


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
    tests: NotRequired[list[StatedTest]]
    collected: NotRequired[int]
    verify: NotRequired[list[StatedVerifyRow]]
    draft: NotRequired[list[StatedDraftRow]]
