"""Say in one line what a run was asked to do: preset, parameters, and the commits of the code it brings.

Knows no preset: what the request does not say is the host's default. The texts are a requester's: clean before showing.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from bridge import strictjson

if TYPE_CHECKING:
    from bridge.records.base import ParamValue
    from bridge.records.request import Request

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_COMMIT_SHOWN: Final = 12
_LONGEST: Final = 60
_START: Final = 48
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "_./:@+-")


def asked_text(request: Request) -> str:
    """Return what a request asks for, as in ``digits lr=0.2`` or ``bench base=0123456789ab head=a584764b56db``."""
    return " ".join(part for part in (request.preset, options_text(request)) if part)


def options_text(request: Request) -> str:
    """Return the parameters of a request and the commit that it brings; empty where it has neither."""
    parts = [parameters_text(request.params)]
    if request.workload is not None:
        changed = "+changes" if request.workload.dirty else ""
        parts.append(f"head={request.workload.commit[:_COMMIT_SHOWN]}{changed}")
    return " ".join(part for part in parts if part)


def parameters_text(params: Mapping[str, ParamValue]) -> str:
    """Return parameters by name, as in ``lr=0.2 seed=3``; two sets that differ give two texts."""
    return " ".join(f"{name}={_value_text(value)}" for name, value in sorted(params.items()))


def _value_text(value: ParamValue) -> str:
    """Return a value on one line: a commit by its beginning, a long text by its beginning and a digest of the whole."""
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if _COMMIT.fullmatch(value):
        return value[:_COMMIT_SHOWN]
    if len(value) > _LONGEST:
        digest = hashlib.sha256(value.encode()).hexdigest()[:8]
        return f"{_quoted(value[:_START])}…{digest}"
    return value if value and _PLAIN.issuperset(value) else _quoted(value)


def _quoted(text: str) -> str:
    return strictjson.encode(text).decode()
