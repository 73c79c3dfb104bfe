"""The kinds of report and what they have in common."""

from __future__ import annotations

from typing import Final

SCHEMA_VERSION: Final = 3

ENVIRONMENT_PROBE: Final = "environment_probe"
TEST_SUITE: Final = "test_suite"
CODE_THROUGHPUT: Final = "code_throughput"
NEEDLE_RECALL: Final = "needle_recall"
ACCEPTANCE: Final = "acceptance"
DRAFTER_PARITY: Final = "drafter_parity"
KV_QUANTISATION: Final = "kv_quantisation"
F_THETA_TRAINING: Final = "f_theta_training"
BOUNDED_KV: Final = "bounded_kv"
DISTRIBUTED_E2E: Final = "distributed_e2e"
DISTRIBUTED_BENCH: Final = "distributed_bench"
VERIFY_COST: Final = "verify_cost"
FUSED_GRAPH_PROBE: Final = "fused_graph_probe"
COMMIT_COMPARISON: Final = "commit_comparison"
REQUEST_CODE: Final = "request_code"

SAMPLED: Final = (
    *(CODE_THROUGHPUT, NEEDLE_RECALL, ACCEPTANCE, KV_QUANTISATION),
    *(DISTRIBUTED_E2E, DISTRIBUTED_BENCH, COMMIT_COMPARISON, REQUEST_CODE),
)
"""Kinds whose arms hold samples of generated tokens."""

STUDIES: Final = (DRAFTER_PARITY, F_THETA_TRAINING, BOUNDED_KV, VERIFY_COST, FUSED_GRAPH_PROBE)
"""Kinds with rows of their own instead of samples."""

KINDS: Final = frozenset((ENVIRONMENT_PROBE, TEST_SUITE, *SAMPLED, *STUDIES))

PAIRED: Final = (CODE_THROUGHPUT, DISTRIBUTED_BENCH, COMMIT_COMPARISON, REQUEST_CODE)
"""Kinds that compare the times of interleaved arms."""

INTERLEAVED: Final = (CODE_THROUGHPUT, NEEDLE_RECALL, DISTRIBUTED_BENCH, COMMIT_COMPARISON, REQUEST_CODE)
"""Kinds whose arms meet the same prompts in an order drawn from the request digest."""

MARKED: Final = (*INTERLEAVED, ACCEPTANCE)
"""Kinds whose samples are announced on the sample pipe."""

ONE_EACH: Final = (*INTERLEAVED, ACCEPTANCE)
"""Kinds with one baseline, one control and one candidate at most."""

SAME_PROMPTS: Final = (*ONE_EACH, KV_QUANTISATION, DISTRIBUTED_E2E)
"""Kinds whose arms all meet the same prompts."""

ATTACHMENTS: Final = frozenset({"junit", "text", "attachment"})
"""Declared outputs of these kinds are files beside a report and are not judged by themselves."""

ROLES: Final = {
    "autoregressive": "baseline",
    "autoregressive_again": "control",
    "speculative": "candidate",
    "local": "baseline",
    "local_again": "control",
    "distributed": "candidate",
    "base": "baseline",
    "base_again": "control",
    "head": "candidate",
    "peer": "candidate",
}
"""Arm names with a fixed role."""

PLAIN: Final = frozenset({"autoregressive", "autoregressive_again"})
"""Arms that decode without a drafter."""

DRAFTING: Final = frozenset({"speculative", "distributed"})
"""Arms that decode with a drafter."""

UNSEEN: Final = frozenset({"peer"})
"""Arms that only answer: their tokens and times are seen from outside, their steps and bytes are not and stay 0."""
