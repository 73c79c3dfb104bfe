"""The first stage: untrusted bytes become a Request, or one clear line."""

from bridge.request.branches import DEFAULT_TEMPLATE, cancel_branch, cancelled_id_of, request_branch, run_id_of
from bridge.request.parse import UNSIGNED, expired, idempotency_key, key_of, parse

__all__ = [
    "DEFAULT_TEMPLATE",
    "UNSIGNED",
    "cancel_branch",
    "cancelled_id_of",
    "expired",
    "idempotency_key",
    "key_of",
    "parse",
    "request_branch",
    "run_id_of",
]
