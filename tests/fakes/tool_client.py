"""A client of the tools: knows tool descriptions and answers, nothing of the program behind them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp.client.client import Client

ANSWER_MAX_BYTES = 8192


@dataclass
class ToolClient:
    """One connection."""

    client: Client
    progress: list[str] = field(default_factory=list)

    async def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in (await self.client.list_tools()).tools}

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Return the JSON of an answer, after a look at its size."""
        result = await self.raw(name, **arguments)
        assert not result.is_error, result.content[0].text
        return json.loads(result.content[0].text)

    async def raw(self, name: str, **arguments: Any) -> Any:
        async def heard(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append(message or "")

        result = await self.client.call_tool(name, arguments, progress_callback=heard)
        size = sum(len(part.model_dump_json(exclude_none=True).encode()) for part in result.content)
        assert size <= ANSWER_MAX_BYTES, f"{name} answered {size} bytes"
        return result

    async def seen_through(self, run_id: str) -> dict[str, Any]:
        """Wait as the description of the tools says."""
        while True:
            status = await self.call("wait", id=run_id)
            if status["outcome"]["reason"] != "pending":
                return status


def run_id_of(text: str) -> str:
    match = re.search(r"\b[0-9a-z]{26}\b", text)
    assert match is not None, text
    return match[0]


@asynccontextmanager
async def connected(server: Any, **options: Any) -> AsyncIterator[ToolClient]:
    """Connect to a server in this process, or to the one that parameters start."""
    async with Client(server, **options) as client:
        yield ToolClient(client)
