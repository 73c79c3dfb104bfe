"""Read what an HTTP server answered out of git's trace of curl: the last status and the headers that go with it.

Git keeps them to itself, and with them how long a server asks to be left alone. Secrets are left out by git
(GIT_TRACE_REDACT). Knows nothing about what was asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_HEADER = re.compile(r"<= Recv header: (?P<line>[^\n]*)")
_STATUS = re.compile(r"HTTP/[\d.]+ (?P<status>\d{3})")


@dataclass(frozen=True)
class HttpAnswer:
    """The last answer of a server, its status 0 where there was none.

    Attributes:
        wait_s: how long it asks not to be asked again, 0 where it does not.
        is_page: whether it is a page for people.
    """

    status: int = 0
    wait_s: float = 0.0
    is_page: bool = False


def variables_for(trace: Path) -> dict[str, str]:
    """Return the variables with which git writes the headers of each answer to a file, and none of its content."""
    return {"GIT_TRACE_CURL": str(trace), "GIT_TRACE_CURL_NO_DATA": "1"}


def read_answer(trace: str) -> HttpAnswer:
    """Return the last answer in a trace."""
    status, headers = 0, dict[str, str]()
    for match in _HEADER.finditer(trace):
        line = match["line"].strip()
        if (begun := _STATUS.match(line)) is not None:
            status, headers = int(begun["status"]), {}
            continue
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    wait = headers.get("retry-after", "")
    is_page = status == 200 and headers.get("content-type", "").lower().startswith("text/html")
    return HttpAnswer(status, float(wait) if wait.isdecimal() else 0.0, is_page)
