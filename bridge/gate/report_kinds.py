"""The kinds of report and what they have in common."""

from __future__ import annotations

from typing import Final

from bridge.gate.declared.kind import having, kinds

SCHEMA_VERSION: Final = 3

ENVIRONMENT_PROBE: Final = "environment_probe"
TEST_SUITE: Final = "test_suite"
CODE_THROUGHPUT: Final = "code_throughput"
ACCEPTANCE: Final = "acceptance"
DRAFTER_PARITY: Final = "drafter_parity"
KV_QUANTISATION: Final = "kv_quantisation"
F_THETA_TRAINING: Final = "f_theta_training"
BOUNDED_KV: Final = "bounded_kv"
BOUNDED_RECALL: Final = "bounded_recall"
DISTRIBUTED_E2E: Final = "distributed_e2e"
DISTRIBUTED_BENCH: Final = "distributed_bench"
VERIFY_COST: Final = "verify_cost"
FUSED_GRAPH_PROBE: Final = "fused_graph_probe"
COMMIT_COMPARISON: Final = "commit_comparison"
REQUEST_CODE: Final = "request_code"

SAMPLED: Final = having("sampled")
"""Kinds whose arms hold samples of generated tokens."""

STUDIES: Final = having("rows")
"""Kinds with rows of their own instead of samples."""

KINDS: Final = frozenset(kinds())

PAIRED: Final = having("paired")
"""Kinds that compare the times of interleaved arms."""

INTERLEAVED: Final = having("interleaved")
"""Kinds whose arms meet the same prompts in a drawn order."""

DRAWN: Final = having("drawn")
"""Kinds whose one launch meets its prompts in a drawn order, each on every arm."""

OWN_BASELINE: Final = having("own_baseline")
"""Kinds whose baseline is not the library's own decoding: nothing of the host's is a reference for it."""

MARKED: Final = having("marked")
"""Kinds whose samples are announced on the sample pipe."""

ONE_EACH: Final = having("one_each")
"""Kinds with one baseline, one control and one candidate at most."""

SAME_PROMPTS: Final = having("same_prompts")
"""Kinds whose arms all meet the same prompts."""

IN_PROCESS: Final = "in-process"
"""The arm whose drafter is in its own process; the others of its kind ask elsewhere."""

ROLES: Final = {
    "autoregressive": "baseline",
    "autoregressive_again": "control",
    "speculative": "candidate",
    "local": "baseline",
    "local_again": "control",
    IN_PROCESS: "candidate",
    "loopback": "candidate",
    "crosshost": "candidate",
    "base": "baseline",
    "base_again": "control",
    "head": "candidate",
    "peer": "candidate",
}
"""Arm names with a fixed role."""

UNSEEN: Final = frozenset({"peer"})
"""Arms that only answer: their tokens and times are seen from outside, their steps and bytes are not and stay 0."""
