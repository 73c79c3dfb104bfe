"""Serve the tools over stdio with the official SDK: handlers here, what they do elsewhere.

Commands run in threads, so that a call that waits stands in nobody's way; a call that its client gave up ends soon.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.to_thread
import mcp_types as types
import pydantic
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from bridge.durations import duration_text
from bridge.errors import KakeyaError
from bridge.mcp import answers
from bridge.mcp.interface import Commands, Document
from bridge.mcp.offer import Offer
from bridge.mcp.resources import TEMPLATES, Resources
from bridge.mcp.tools import ToolSpec

INSTRUCTIONS: Final = (
    "Runs allow-listed experiments on a machine that this bus reaches over git. Start one with `run`, which "
    "returns a run id at once; call `wait` with the id until it has ended. Quote numbers only as `quote` words them. "
    "A connection that breaks loses nothing: the run goes on, and the same call finds it again."
)

Context = ServerRequestContext[Any, Any]


class Handlers:
    """Answers the protocol's requests.

    Args:
        commands: runs commands of the program.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._offer = Offer(commands)
        self._resources = Resources(commands)

    async def list_tools(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Return the tools of this bus as it is now."""
        specs = await anyio.to_thread.run_sync(self._offer.tools)
        return types.ListToolsResult(tools=[_tool(spec) for spec in specs])

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run the command of a tool and return what it said."""
        preset = (params.arguments or {}).get("preset")
        spec = await anyio.to_thread.run_sync(lambda: self._offer.find(params.name, preset))
        if spec is None:
            return _failed(f"no tool {params.name[:100]!r} on this bus; list the tools again")
        try:
            words = spec.words(spec.checked(params.arguments or {}))
        except KakeyaError as error:
            return _failed(error.message)
        if spec.waits:
            document = await self._watch(context, [*words, "--follow"])
        else:
            document = await anyio.to_thread.run_sync(lambda: self._commands.answer(words), abandon_on_cancel=True)
        return _result(document, self._commands.tool_of)

    async def _watch(self, context: Context, words: list[str]) -> Document:
        """Run a command that waits, its events told as progress; ends when the client gives the call up."""
        gone = threading.Event()
        ticks = iter(range(1, 1_000_000_000))

        def tell(event: Mapping[str, Any]) -> None:
            if not gone.is_set():
                anyio.from_thread.run(
                    context.session.report_progress, float(next(ticks)), None, progress_text(event)
                )  # fmt: skip

        try:
            return await anyio.to_thread.run_sync(
                lambda: self._commands.watch(words, tell, gone.is_set), abandon_on_cancel=True
            )
        finally:
            gone.set()

    async def list_resources(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Return none: answers link to what a run has."""
        return types.ListResourcesResult(resources=[])

    async def list_templates(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Return what may be read of a run."""
        templates = [
            types.ResourceTemplate(uri_template=uri, name=name, description=text) for uri, name, text in TEMPLATES
        ]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def read_resource(self, _context: Context, params: types.ReadResourceRequestParams) -> Any:
        """Return a page of a resource, and where it goes on."""
        try:
            page = await anyio.to_thread.run_sync(lambda: self._resources.read(str(params.uri)), abandon_on_cancel=True)
        except KakeyaError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=error.message) from None
        contents = [types.TextResourceContents(uri=page.uri, text=page.text, mime_type=page.media_type)]
        meta = None if page.more is None else {"kakeya/more": page.more}
        return types.ReadResourceResult(contents=list(contents), _meta=meta)


def make_server(commands: Commands, version: str) -> Server[Any]:
    """Return a server whose tools are the commands."""
    does = Handlers(commands)
    return Server(
        "kakeya",
        version=version,
        title="Kakeya",
        instructions=INSTRUCTIONS,
        on_list_tools=does.list_tools,
        on_call_tool=does.call_tool,
        on_list_resources=does.list_resources,
        on_list_resource_templates=does.list_templates,
        on_read_resource=does.read_resource,
    )


def serve(commands: Commands, version: str) -> None:
    """Serve one client over stdin and stdout until it closes them."""

    async def main() -> None:
        server = make_server(commands, version)
        onward, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def forward(incoming: Any, outgoing: Any) -> None:
            async with onward:
                async for message in incoming:
                    refused = refusal(message) if isinstance(message, Exception) else None
                    await (onward.send(message) if refused is None else outgoing.send(SessionMessage(refused)))

        async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as group:
            group.start_soon(forward, incoming, outgoing)
            await server.run(read, outgoing, server.create_initialization_options())
            group.cancel_scope.cancel()

    anyio.run(main)


def refusal(error: Exception) -> types.JSONRPCError | None:
    """Return the answer to a line that the SDK cannot read and whose sender waits for one, else None.

    JSON may name half of a character, a lone surrogate (RFC 8259, section 8.2), and no UTF-8 holds one.
    """
    if not isinstance(error, pydantic.ValidationError):
        return None
    details = error.errors(include_url=False)[0]
    try:
        message = json.loads(details["input"]) if details["type"] == "json_invalid" else None
        request_id = message["id"] if isinstance(message, dict) else None
        json.dumps(request_id, ensure_ascii=False).encode()
    except (KeyError, ValueError, RecursionError):
        return None
    if type(request_id) not in {int, str}:
        return None
    reason = f"this message cannot be read: {details['msg'][:300]}; expected JSON whose texts are whole characters"
    return types.JSONRPCError(
        jsonrpc="2.0", id=request_id, error=types.ErrorData(code=types.PARSE_ERROR, message=reason)
    )


def progress_text(event: Mapping[str, Any]) -> str:
    """Return an event in a few words; the lines of a log are counted, not repeated."""
    parts = [f"{event['state']} after {duration_text(event['elapsed_s'])}"]
    if event["progress"] is not None:
        parts.append(event["progress"]["text"])
    if event["log_bytes"]:
        parts.append(f"log {event['log_bytes']} bytes")
    if event["event"] == "trouble":
        parts += event["lines"][:1]
    return ", ".join(parts)


def _tool(spec: ToolSpec) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=spec.changes == "nothing",
        destructive_hint=spec.changes == "ends",
        idempotent_hint=True,
        open_world_hint=True,
    )
    return types.Tool(
        name=spec.name,
        description=spec.description,
        input_schema=spec.schema,
        annotations=hints,
    )


def _result(document: Document, tool_of: Mapping[str, str]) -> types.CallToolResult:
    texts, links = answers.answer(document, tool_of)
    content: list[Any] = [types.TextContent(text=text) for text in texts]
    content += [types.ResourceLink(uri=uri, name=name) for uri, name in links]
    return types.CallToolResult(content=content, is_error=answers.is_error(document))


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text[:2000])], is_error=True)
