"""The facts a run is given by whoever started it, and the machine facts every report carries.

A runner sets the KAKEYA_* variables; started by hand, a report says so: its run id is zeros and its preset `manual`.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import UsageError

MANUAL_ID = "0" * 26
MANUAL_DIGEST = "0" * 64
PROFILES = ("smoke", "claim")


@dataclass(frozen=True)
class RunContext:
    """Which run this is.

    Attributes:
        out: directory for reports.
        pipe_fd: descriptor of the sample pipe, None when there is none.
        nonce: what the order of everything asked is drawn from: the runner's, made after the start; by hand the
            request's digest.
    """

    run_id: str
    request_digest: str
    preset: str
    params: Mapping[str, Any]
    profile: str
    out: Path
    pipe_fd: int | None
    nonce: str = MANUAL_DIGEST

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str], *, out: Path | None = None, profile: str | None = None
    ) -> RunContext:
        """Read the run's facts; `out` and `profile` are for runs started by hand and never override a runner's.

        Raises:
            UsageError: a variable is malformed, or a flag contradicts the runner.
        """
        profile_set = environ.get("KAKEYA_PROFILE")
        if profile_set and profile and profile != profile_set:
            raise UsageError(
                f"--profile {profile} contradicts the runner's KAKEYA_PROFILE={profile_set}; leave the flag out"
            )
        chosen = profile_set or profile or "smoke"
        if chosen not in PROFILES:
            raise UsageError(f"unknown profile {chosen!r}; expected one of {', '.join(PROFILES)}")
        out_set = environ.get("KAKEYA_OUT")
        descriptor = environ.get("KAKEYA_SAMPLE_PIPE")
        return cls(
            run_id=environ.get("KAKEYA_RUN_ID", MANUAL_ID),
            request_digest=environ.get("KAKEYA_REQUEST_DIGEST", MANUAL_DIGEST),
            preset=environ.get("KAKEYA_PRESET", "manual"),
            params=_params(environ.get("KAKEYA_PARAMS", "{}")),
            profile=chosen,
            out=Path(out_set) if out_set else (out or Path.cwd()),
            nonce=environ.get("KAKEYA_NONCE", environ.get("KAKEYA_REQUEST_DIGEST", MANUAL_DIGEST)),
            pipe_fd=int(descriptor) if descriptor and descriptor.isascii() and descriptor.isdigit() else None,
        )

    @classmethod
    def current(cls, *, out: Path | None = None, profile: str | None = None) -> RunContext:
        """Read the facts of this process's environment."""
        return cls.from_environment(os.environ, out=out, profile=profile)

    def as_run(self) -> dict[str, Any]:
        """Return the report's `run` object."""
        return {
            "id": self.run_id,
            "request_digest": self.request_digest,
            "preset": self.preset,
            "params": dict(self.params),
            "profile": self.profile,
        }


def utc_now() -> str:
    """Return the wall time as RFC 3339 UTC with milliseconds."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def machine_facts() -> dict[str, str]:
    """Return operating system, machine and Python version."""
    return {
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def processor_name() -> str:
    """Return what the system calls its processor, and how many of it there are; the architecture where it has no name.

    On a Mac it is the chip, whose GPU comes with it.
    """
    return f"{_processor() or platform.machine()}, {os.cpu_count()} processors"


def _processor() -> str:
    if sys.platform == "darwin":
        name, size = ctypes.create_string_buffer(256), ctypes.c_size_t(256)
        if ctypes.CDLL(None).sysctlbyname(b"machdep.cpu.brand_string", name, ctypes.byref(size), None, 0):
            return ""
        return name.value.decode("utf-8", "replace").strip()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return ""


def thread_facts(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the thread settings that change CPU timing, as they are set."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    return {name: environ[name] for name in names if name in environ}


def _params(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"KAKEYA_PARAMS is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"KAKEYA_PARAMS must be a JSON object, got {type(value).__name__}")
    return value
