"""Errors as OpenAI's port answers them."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import JSONResponse

from engine.errors import EngineError, PromptError, UsageError
from engine.serving.scheduler import BusyError, ClosingError

RETRY_AFTER_S: Final = "1"
TOO_LONG: Final = "context_length_exceeded"
"""The code by which clients know that a shorter conversation would be answered."""


class Refusal(Exception):  # noqa: N818 - it becomes a response
    """An answer that is an error, in OpenAI's form."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.param, self.code = status, kind, param, code

    def response(self) -> JSONResponse:
        """Return it as a response."""
        headers = {"Retry-After": RETRY_AFTER_S} if self.status in {429, 503} else {}
        return JSONResponse(self.body(), self.status, headers)

    def body(self) -> dict[str, Any]:
        """Return it as a body."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


def refuse(error: EngineError) -> Refusal:
    """Return the response to what an answer failed with."""
    if isinstance(error, BusyError):
        return Refusal(503 if isinstance(error, ClosingError) else 429, str(error), "overloaded_error")
    if isinstance(error, (PromptError, UsageError)):
        return Refusal(400, str(error))
    return Refusal(500, str(error), "server_error")
