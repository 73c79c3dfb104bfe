"""The routes of OpenAI's port: bodies in, answers out, and nothing of an array in between."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.chat import UnreadArgumentError
from engine.decoding.prompt import check_prompt, room_tokens
from engine.errors import ModelConfigError, PromptError, UsageError
from engine.generation.answer import GenerationRequest
from engine.loading import Engine
from engine.serving.answers import chat_logprobs, completion_logprobs, envelope, usage
from engine.serving.fields import BODY_MAX_BYTES, Asked, Body, ChatBody, CompletionBody, FieldError, parse
from engine.serving.metrics import Metrics
from engine.serving.refusals import TOO_LONG, Refusal, refuse
from engine.serving.scheduler import BusyError, Scheduler
from engine.serving.sse import Streaming
from engine.serving.streams import Ask, Event, Failed, Finished, Ticket
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from engine.verification.rejection import Sampling

BODY_TIMEOUT_S: Final = 30.0
"""How long a client may take to send a body."""
Handler = Callable[[Request], Awaitable[Response]]
HOST: Final = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Served:
    """What is behind the port.

    Attributes:
        engine: the target and its drafter.
        tokenizer: the target's.
        layout: of every cache.
        chunk_tokens: prompt rows a forward.
        api_key: what a client must show, None for nothing.
    """

    engine: Engine
    tokenizer: Tokenizer
    layout: CacheLayout
    chunk_tokens: int
    api_key: str | None = None

    @property
    def model(self) -> str:
        """The name that clients ask for."""
        return self.engine.target.info.name

    def exact(self, sampling: Sampling | None) -> str:
        """Return what the tokens of an answer are equal to, in a word."""
        if not self.layout.lossless:
            return f"lossy cache {self.layout}"
        kind = "greedy" if sampling is None else "sampled"
        return f"{kind}-{self.engine.target.info.dtype.replace('float32', 'fp32')}"


def build(served: Served, scheduler: Scheduler) -> Starlette:
    """Return the application over a scheduler that has begun, which ends with it."""
    port = _Port(served, scheduler)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(scheduler.stop)

    def route(
        path: str, answer: Callable[[Request], Awaitable[Response]], method: str, *, open_: bool = False
    ) -> Route:
        return Route(path, port.guard(path, answer, open_=open_), methods=[method])

    return Starlette(
        routes=[
            route("/healthz", port.health, "GET", open_=True),
            route("/metrics", port.show_metrics, "GET"),
            route("/v1/models", port.list_models, "GET"),
            route("/v1/completions", port.complete, "POST"),
            route("/v1/chat/completions", port.chat, "POST"),
        ],
        exception_handlers={404: _refuse_route, 405: _refuse_route},
        lifespan=lifespan,
    )


async def _refuse_route(request: Request, error: Exception) -> Response:
    """Say what is served: 404 for another path, 405 with the methods of this one for another method."""
    refused = error if isinstance(error, HTTPException) else HTTPException(404)
    text = f"{request.method} {request.url.path} is not served; see GET /v1/models, POST /v1/chat/completions"
    text += ", POST /v1/completions, GET /metrics, GET /healthz"
    response = Refusal(refused.status_code, text).response()
    response.headers.update(refused.headers or {})
    return response


class _Port:
    def __init__(self, served: Served, scheduler: Scheduler) -> None:
        self._served, self._scheduler = served, scheduler
        self._metrics = Metrics(scheduler)

    def guard(
        self, path: str, answer: Callable[[Request], Awaitable[Response]], *, open_: bool
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a route that answers whoever may ask, and counts."""

        async def guarded(request: Request) -> Response:
            try:
                self._check_host(request)
                if not open_:
                    self._check_key(request)
                response = await answer(request)
            except Refusal as refusal:
                response = refusal.response()
            except ClientDisconnect:
                response = Response(status_code=499)
            self._metrics.responses.labels(path, str(response.status_code)).inc()
            return response

        return guarded

    async def health(self, _: Request) -> Response:
        """Say whether answers are being stepped."""
        return PlainTextResponse("ok\n") if self._scheduler.alive else PlainTextResponse("ended\n", 503)

    async def show_metrics(self, _: Request) -> Response:
        """Show every count."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def list_models(self, _: Request) -> Response:
        """Name the one model."""
        info = self._served.engine.target.info
        model = {"id": info.name, "object": "model", "created": 0, "owned_by": "kakeya", "digest": info.digest}
        return JSONResponse({"object": "list", "data": [model | {"max_model_len": info.max_positions}]})

    async def complete(self, request: Request) -> Response:
        """Answer ``/v1/completions``."""
        body = await self._body(request, CompletionBody)
        sampling, began = self._sampling(body), time.monotonic()
        count, most = len(body.prompts), self._scheduler.bounds.waiting
        if count > most:  # which no later moment would change
            text = f"prompt has {count} prompts and this server lets {most} requests wait; send fewer at once"
            raise Refusal(400, text, param="prompt")
        prompts = await asyncio.to_thread(self._ids, body)
        asks = [
            Ask(
                self._request(body, prompt, body.max_tokens, chat=False),
                sampling,
                score_answer=body.logprobs is not None,
                score_prompt=body.echo and body.logprobs is not None,
            )
            for prompt in prompts
        ]
        number = f"cmpl-{secrets.token_hex(12)}"
        if body.stream:
            return await self._stream(request, self._streaming(body, asks[0], number, chat=False), asks[0])
        ends = await self._finish(request, asks, began)
        choices = []
        for index, (prompt, end) in enumerate(zip(prompts, ends, strict=True)):
            scores = None
            if body.logprobs is not None:
                scores = completion_logprobs(self._served.tokenizer, prompt, end.tokens, end.score, echo=body.echo)
            choices.append(
                {
                    "index": index,
                    "text": (self._served.tokenizer.decode(prompt) if body.echo else "") + end.text,
                    "logprobs": scores,
                    "finish_reason": end.reason,
                }
            )
        spent = usage(ends, [len(prompt) for prompt in prompts], self._served.exact(sampling))
        return JSONResponse(envelope("text_completion", number, body.model, choices) | {"usage": spent})

    async def chat(self, request: Request) -> Response:
        """Answer ``/v1/chat/completions``."""
        body = await self._body(request, ChatBody)
        sampling, began = self._sampling(body), time.monotonic()
        prompt = await asyncio.to_thread(self._turn, body)
        ask = Ask(
            self._request(body, prompt, body.budget_tokens, chat=True), sampling, score_answer=bool(body.logprobs)
        )
        number = f"chatcmpl-{secrets.token_hex(12)}"
        if body.stream:
            return await self._stream(request, self._streaming(body, ask, number, chat=True), ask)
        (end,) = await self._finish(request, [ask], began)
        message: dict[str, Any] = {"role": "assistant", "content": end.text}
        if end.answer is not None and end.answer.thought:
            message["reasoning_content"] = end.answer.thought
        scores = None
        if body.logprobs:
            scores = chat_logprobs(self._served.tokenizer, end.tokens, end.score, top=bool(body.top_logprobs))
        choice = {"index": 0, "message": message, "logprobs": scores, "finish_reason": end.reason}
        spent = usage([end], [len(prompt)], self._served.exact(sampling))
        return JSONResponse(envelope("chat.completion", number, body.model, [choice]) | {"usage": spent})

    def _check_host(self, request: Request) -> None:
        """Check that a page of another name, resolved to this machine, is not what asks."""
        server = request.scope.get("server")
        if server is None or server[1] is None:
            return  # a unix socket has no name
        name = request.headers.get("host")
        if name is not None and HOST.fullmatch(name) is None:  # as it was sent: a URL is made of a part of it
            text = f"the host that was asked for is {name[:200]!r}; this port is for 127.0.0.1 and localhost"
            raise Refusal(403, text)

    def _check_key(self, request: Request) -> None:
        key = self._served.api_key
        shown = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        if key is not None and not hmac.compare_digest(shown, key.encode()):
            text = "a key is needed: Authorization: Bearer KEY"
            raise Refusal(401, text, "authentication_error", code="invalid_api_key")

    async def _body(self, request: Request, kind: type[Body]) -> Body:
        """Read a whole body that can be served.

        Raises:
            Refusal: It cannot.
        """
        sort = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if sort != "application/json":  # which a page elsewhere cannot send without asking first
            raise Refusal(415, f"the body's Content-Type is {sort[:80]!r}; expected application/json")
        data, too_long = bytearray(), Refusal(413, f"the body has more than {BODY_MAX_BYTES} bytes")
        declared = request.headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared) > BODY_MAX_BYTES:
            raise too_long
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                async for part in request.stream():
                    data += part
                    if len(data) > BODY_MAX_BYTES:
                        raise too_long
        except TimeoutError as error:
            raise Refusal(408, f"the body did not come within {BODY_TIMEOUT_S:.0f} s") from error
        try:
            body = parse(kind, bytes(data))
        except FieldError as error:
            raise Refusal(400, str(error), param=error.param) from error
        if body.model != self._served.model:
            text = f"model {body.model[:200]!r} is not served; expected {self._served.model!r}"
            raise Refusal(404, text, param="model", code="model_not_found")
        return body

    def _sampling(self, body: Asked) -> Sampling | None:
        if body.temperature == 0:
            return None
        seed = secrets.randbits(63) if body.seed is None else body.seed
        return Sampling(body.temperature, body.top_k, body.top_p, seed)

    def _ids(self, body: CompletionBody) -> list[tuple[int, ...]]:
        """Return the ids of each prompt; of a long text that takes seconds."""
        encode = self._served.tokenizer.encode
        return [encode(prompt) if isinstance(prompt, str) else prompt for prompt in body.prompts]

    def _turn(self, body: ChatBody) -> tuple[int, ...]:
        """Return the ids of a conversation, ready for its answer."""
        arguments = dict(body.chat_template_kwargs or {})
        if body.reasoning_effort is not None:
            arguments["reasoning_effort"] = body.reasoning_effort
        try:
            messages = [message.message() for message in body.messages]
            return self._served.tokenizer.chat(messages, arguments=arguments)
        except UnreadArgumentError as error:
            is_own_field = error.argument == "reasoning_effort" and body.reasoning_effort is not None
            field = error.argument if is_own_field else f"chat_template_kwargs.{error.argument}"
            raise Refusal(400, str(error), param=field) from error
        except (ModelConfigError, UsageError) as error:
            raise Refusal(400, str(error), param="messages") from error

    def _request(
        self, body: Asked, prompt: tuple[int, ...], budget_tokens: int | None, *, chat: bool
    ) -> GenerationRequest:
        """Return what is decoded, checked against the model before it waits for anything.

        Raises:
            Refusal: Prompt and budget do not fit.
        """
        info, tokenizer = self._served.engine.target.info, self._served.tokenizer
        room, field = room_tokens(len(prompt), info), "messages" if chat else "prompt"
        budget = max(1, room) if budget_tokens is None else budget_tokens
        if max(1, budget) > room:
            text = f"a prompt of {len(prompt)} tokens and an answer of up to {budget}; {info.name!r} holds "
            text += f"{info.max_positions} positions, which leaves {max(0, room)} for the answer"
            text += f"; {'lower max_tokens or ' if room > 0 else ''}shorten the prompt"
            raise Refusal(400, text, param=field, code=TOO_LONG)
        try:
            check_prompt(prompt, info)
        except PromptError as error:
            raise Refusal(400, str(error), param=field) from error
        stop_ids = [tokenizer.special[text] for text in body.stops if text in tokenizer.special]
        return GenerationRequest(
            prompt=prompt,
            max_new_tokens=budget,
            stop_ids=frozenset([*stop_ids, *(() if body.ignore_eos else info.stop_ids)]),
            stop_strings=body.stops,
            layout=self._served.layout,
            chunk_tokens=self._served.chunk_tokens,
            chat=chat,
        )

    def _streaming(self, body: Asked, ask: Ask, number: str, *, chat: bool) -> Streaming:
        wants_usage = body.stream_options is not None and body.stream_options.include_usage
        exact = self._served.exact(ask.sampling)
        return Streaming(number, body.model, exact, len(ask.request.prompt), chat=chat, wants_usage=wants_usage)

    def _submit(self, ask: Ask) -> tuple[Ticket, asyncio.Queue[Event]]:
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Event]()

        def deliver(event: Event) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, event)

        ticket = Ticket(ask, deliver)
        try:
            self._scheduler.submit(ticket)
        except BusyError as error:
            raise refuse(error) from error
        return ticket, events

    async def _finish(self, request: Request, asks: Sequence[Ask], began: float) -> list[Finished]:
        """Return the ends of every answer; a client that leaves ends them all.

        Raises:
            Refusal: One of them failed.
        """
        tickets: list[Ticket] = []
        leaving = asyncio.create_task(_await_leave(request))
        try:
            queues = []
            for ask in asks:
                ticket, events = self._submit(ask)
                tickets.append(ticket)
                queues.append(events)
            return [await self._end_of(events, leaving, began) for events in queues]
        finally:
            leaving.cancel()
            for ticket in tickets:
                ticket.cancel()

    async def _end_of(self, events: asyncio.Queue[Event], leaving: asyncio.Task[None], began: float) -> Finished:
        shown = False
        while True:
            getting = asyncio.ensure_future(events.get())
            await asyncio.wait((getting, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                raise ClientDisconnect
            event = getting.result()
            if isinstance(event, Failed):
                raise refuse(event.error)
            if isinstance(event, Finished):
                self._metrics.whole_s.observe(time.monotonic() - began)
                return event
            if not shown:
                shown = True
                self._metrics.first_text_s.observe(time.monotonic() - began)

    async def _stream(self, request: Request, streaming: Streaming, ask: Ask) -> Response:
        """Answer piece by piece; the first event is awaited, so that what fails at once is an error and no stream."""
        began = time.monotonic()
        ticket, events = self._submit(ask)
        leaving = asyncio.create_task(_await_leave(request))
        first = asyncio.ensure_future(events.get())
        await asyncio.wait((first, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not first.done():
            first.cancel()
            ticket.cancel()
            raise ClientDisconnect
        event = first.result()
        if isinstance(event, Failed):
            raise refuse(event.error)
        self._metrics.first_text_s.observe(time.monotonic() - began)

        async def lines() -> AsyncIterator[bytes]:
            try:
                async for line in streaming.lines(event, events):
                    yield line
                self._metrics.whole_s.observe(time.monotonic() - began)
            finally:
                ticket.cancel()

        return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _await_leave(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
