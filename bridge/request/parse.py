"""Untrusted bytes -> Request, or one clear line.

Order: size, depth and duplicate keys; schema version; shape; canonical bytes; then what only the receiver knows: the
branch, the bus, the clock. Knows nothing about presets or policy; the host verifies the signature.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from bridge import strictjson
from bridge.errors import RequestRejectedError
from bridge.limits import CLOCK_SKEW_MAX_S, EXPIRY_MAX_S
from bridge.records.request import (
    FINGERPRINT_PATTERN,
    PRINCIPAL_PATTERN,
    LimitRequest,
    Request,
    RunnerSelector,
    SweepPlace,
)
from bridge.request.branches import run_id_of
from bridge.system.clock import parse_rfc3339

if TYPE_CHECKING:
    from bridge.records.base import ParamValue

UNSIGNED = "unsigned"
SCHEMA = 2
_PRINCIPAL = re.compile(PRINCIPAL_PATTERN)
_FINGERPRINT = re.compile(FINGERPRINT_PATTERN)
_USER_INFO = re.compile(r"://[^/]*@")


def parse(received_bytes: bytes, *, ref: str, bus_id: str, now: dt.datetime) -> Request:
    """Return the request in untrusted bytes.

    Args:
        received_bytes: the stored request, exactly as it was pushed.
        ref: full name of the branch it was found on.
        bus_id: id of the bus it was found on.
        now: the receiver's wall clock, UTC.

    Raises:
        RequestRejectedError: any check fails; the message is one line.
    """
    try:
        document = strictjson.decode(received_bytes)
    except strictjson.StrictJsonError as error:
        raise RequestRejectedError(f"request is not strict JSON: {_line(error)}") from error
    _check_schema(document)
    try:
        request = Request.model_validate_json(received_bytes)
    except ValidationError as error:
        raise RequestRejectedError(f"request does not fit schema {SCHEMA}: {_first(error)}") from error
    if _canonical(request) != received_bytes:
        raise RequestRejectedError(
            "request bytes are not canonical: expected sorted keys, no spaces, every field present, shortest numbers"
        )
    _check_binding(request, ref, bus_id)
    _check_times(request, now)
    _check_meaning(request)
    return request


def expired(request: Request, now: dt.datetime) -> bool:
    """Return whether a request may no longer be started."""
    return parse_rfc3339(request.expires) <= now


def idempotency_key(
    *,
    bus_id: str,
    principal: str,
    preset: str,
    params: Mapping[str, ParamValue],
    profile: str,
    tree: str | None,
    runner: RunnerSelector,
    limits: LimitRequest,
    confirms: str | None = None,
    unsandboxed: bool = False,
    sweep: SweepPlace | None = None,
    asks: str | None = None,
    load: str | None = None,
) -> str:
    """Return the digest under which a repeated request is the same run (sha256, hex).

    The bus, the principal, the preset and its params, the profile, the runner selector and the limits enter it;
    `tree` is the workload's tree, or None for host code. The run that is to be confirmed, a wish to run without a
    sandbox, the place in a sweep, the word that is asked and the load enter where there is one.
    """
    value: dict[str, object] = {
        "bus_id": bus_id,
        "limits": limits.model_dump(mode="json"),
        "params": dict(params),
        "preset": preset,
        "principal": principal,
        "profile": profile,
        "runner": runner.model_dump(mode="json"),
        "tree": tree,
    }
    if confirms is not None:
        value["confirms"] = confirms
    value |= {"unsandboxed": True} if unsandboxed else {}
    value |= {"sweep": sweep.model_dump(mode="json")} if sweep is not None else {}
    value |= {"asks": asks} if asks is not None else {}
    value |= {"load": load} if load is not None else {}
    return hashlib.sha256(strictjson.encode(value)).hexdigest()


def key_of(request: Request) -> str:
    """Return the idempotency key that a request's own fields give."""
    return idempotency_key(
        bus_id=request.bus_id,
        principal=request.principal,
        preset=request.preset,
        params=request.params,
        profile=request.profile,
        tree=None if request.workload is None else request.workload.tree,
        runner=request.runner,
        limits=request.limits,
        confirms=request.confirms,
        unsandboxed=request.unsandboxed,
        sweep=request.sweep,
        asks=request.asks,
        load=request.load,
    )


def _check_schema(document: object) -> None:
    if not isinstance(document, dict):
        raise RequestRejectedError(f"request is a JSON {type(document).__name__}; expected an object")
    version = document.get("schema_version")
    if type(version) is not int:
        raise RequestRejectedError(f"request has schema_version {_short(version)}; expected the integer {SCHEMA}")
    if version == 1:
        raise RequestRejectedError(
            "request has schema_version 1, which binds no bus, no branch and no expiry; schema 2 is needed: "
            "install kakeya and send it again with 'kakeya-mac run PRESET'"
        )
    if version > SCHEMA:
        raise RequestRejectedError(
            f"request has schema_version {_short(version)}, this host reads {SCHEMA}: upgrade kakeya on the host"
        )
    if version != SCHEMA:
        raise RequestRejectedError(f"request has schema_version {_short(version)}; expected {SCHEMA}")


def _check_binding(request: Request, ref: str, bus_id: str) -> None:
    if request.ref != ref:
        raise RequestRejectedError(f"request was written for {_short(request.ref)}, found on {_short(ref)}")
    if run_id_of(ref) != request.id:
        raise RequestRejectedError(f"request has id {request.id}, its branch {_short(ref)} says {run_id_of(ref)}")
    if request.bus_id != bus_id:
        raise RequestRejectedError(f"request was written for bus {_short(request.bus_id)}, this is bus {bus_id}")
    if request.retry_of == request.id:
        raise RequestRejectedError("request repeats itself: retry_of is its own id")
    _check_sitting(request)
    if request.asks is not None and (request.confirms is not None or request.profile == "standing"):
        raise RequestRejectedError(
            f"request asks whether it is {request.asks}, and is to be quoted: what is answered with yes or no has no "
            "number that may be",
            remedy="leave out one of --fail-if, --confirms and --profile standing",
        )
    if request.load is not None and (request.profile != "claim" or request.asks is not None):
        raise RequestRejectedError(
            f"request draws its load in profile {request.profile}; expected profile claim, and no word that is asked",
            remedy="send it with --profile claim --load drawn, without --fail-if",
        )
    if request.confirms is not None and (request.confirms == request.id or request.profile != "claim"):
        raise RequestRejectedError(
            f"request confirms {request.confirms} in profile {request.profile}; expected another run and profile claim",
            remedy="send it with --profile claim --confirms ID",
        )


def _check_sitting(request: Request) -> None:
    """Refuse one sitting alone, or one of so few that nobody could claim anything from them."""
    if request.profile != "standing":
        return
    from bridge.launches.standing import SITTINGS_LEAST

    count = 0 if request.sweep is None else request.sweep.count
    if count < SITTINGS_LEAST:
        raise RequestRejectedError(
            f"request is one of {count} sittings; expected at least {SITTINGS_LEAST}",
            remedy=f"send them together: --profile standing --sittings {SITTINGS_LEAST}",
        )
    if request.sweep is not None and request.sweep.repeat >= count:
        raise RequestRejectedError(f"request is sitting {request.sweep.repeat + 1} of {count}")


def _check_times(request: Request, now: dt.datetime) -> None:
    try:
        created, expires = parse_rfc3339(request.created), parse_rfc3339(request.expires)
        valid_s, ahead_s = (expires - created).total_seconds(), (created - now).total_seconds()
    except (ValueError, TypeError, OverflowError) as error:
        raise RequestRejectedError(f"request has an unreadable time: {_line(error)}") from error
    if not 0 < valid_s <= EXPIRY_MAX_S:
        raise RequestRejectedError(f"request is valid for {valid_s:.0f} s; expected 1 to {EXPIRY_MAX_S}")
    if ahead_s > CLOCK_SKEW_MAX_S:
        raise RequestRejectedError(
            f"request was created {ahead_s:.0f} s in the future; at most {CLOCK_SKEW_MAX_S} s are accepted: "
            "check the clocks"
        )


def _check_meaning(request: Request) -> None:
    if (request.principal == UNSIGNED) != (request.signer is None):
        raise RequestRejectedError(
            f"request names principal {_short(request.principal)} and signer {_short(request.signer)}; "
            f"expected a name and its key, or '{UNSIGNED}' and none"
        )
    if _PRINCIPAL.fullmatch(request.principal) is None or (
        request.signer is not None and _FINGERPRINT.fullmatch(request.signer) is None
    ):
        raise RequestRejectedError(
            f"request names principal {_short(request.principal)} and signer {_short(request.signer)}; "
            "expected a name such as agent@example.org and a fingerprint SHA256:..."
        )
    if request.workload is not None and _USER_INFO.search(request.workload.origin):
        raise RequestRejectedError("workload.origin carries user information; expected a URL without it")
    if request.idempotency_key != key_of(request):
        raise RequestRejectedError("idempotency_key does not match the request's fields")


def _canonical(request: Request) -> bytes:
    try:
        return request.canonical()
    except ValueError as error:  # a lone surrogate cannot be written as UTF-8
        raise RequestRejectedError(f"request cannot be written back: {_line(error)}") from error


def _first(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    where = ".".join(str(part) for part in problems[0]["loc"]) or "document"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{_short(where)}: {_line(problems[0]['msg'])}{more}"


def _line(value: object) -> str:
    text = "".join(char if char.isprintable() else "?" for char in str(value))
    return text if len(text) <= 200 else text[:197] + "..."


def _short(value: object) -> str:
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**12 else "a number of more than 12 digits"
    return text if len(text) <= 100 else text[:97] + "..."
