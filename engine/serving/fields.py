"""What a client may ask for, field by field; every other field is refused by its name.

Names, defaults and meanings are those of OpenAI's completions and chat completions; ``top_k``, ``ignore_eos`` and
``chat_template_kwargs`` are the extensions that other servers know too.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from engine.verification.rejection import COLDEST

BODY_MAX_BYTES: Final = 8 << 20
PROMPTS_MAX: Final = 64
STOPS_MAX: Final = 16
TOKENS_MAX: Final = 1_000_000
NO_PENALTY: Final = (None, 0, 0.0)
NULLABLE: Final = ("temperature", "top_p", "top_k", "stream", "ignore_eos", "echo", "max_tokens")
"""Fields that OpenAI lets a client send without a value, which is then their default's."""

TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]
StopText = Annotated[str, Field(min_length=1, max_length=1_000)]


class FieldError(ValueError):
    """A body that cannot be served.

    Attributes:
        param: the field that is meant, None where it is the body as a whole.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class StreamOptions(_Fields):
    """What a stream says beside its text."""

    include_usage: bool = False


class Asked(_Fields):
    """What completions and chat completions share."""

    model: str
    temperature: Annotated[float, Field(ge=0, le=10)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=TOKENS_MAX)] = 0
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=STOPS_MAX)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    n: Literal[1, None] = 1
    user: str | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @field_validator(*NULLABLE, mode="before", check_fields=False)
    @classmethod
    def _take_the_default(cls, value: Any, info: ValidationInfo) -> Any:
        """Return what a field is where nobody names it: null says no more than that."""
        return cls.model_fields[str(info.field_name)].default if value is None else value

    @model_validator(mode="after")
    def _check_unserved(self) -> Self:
        if 0 < self.temperature < COLDEST:
            text = f"temperature is {self.temperature}; expected at least {COLDEST}, or 0 for greedy decoding"
            raise FieldError(text, "temperature")
        for name in ("presence_penalty", "frequency_penalty"):
            if getattr(self, name) not in NO_PENALTY:
                raise FieldError(f"{name} is {getattr(self, name)}; this server draws from the model's own", name)
        if self.logit_bias:
            raise FieldError("logit_bias is not empty; this server draws from the model's own", "logit_bias")
        if self.stream_options is not None and not self.stream:
            raise FieldError("stream_options is for a stream; add stream: true", "stream_options")
        return self


class CompletionBody(Asked):
    """A body of ``/v1/completions``."""

    prompt: str | list[str] | list[TokenId] | list[list[TokenId]]
    max_tokens: Annotated[int, Field(ge=0, le=TOKENS_MAX)] = 16
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=1)] | None = None
    best_of: Literal[1, None] = None
    suffix: None = None

    @property
    def prompts(self) -> tuple[str | tuple[int, ...], ...]:
        """Each prompt of the body, as text or as ids."""
        if isinstance(self.prompt, str):
            return (self.prompt,)
        ids = tuple(part for part in self.prompt if isinstance(part, int))
        if ids:
            return (ids,)
        parts = (part for part in self.prompt if not isinstance(part, int))
        return tuple(part if isinstance(part, str) else tuple(part) for part in parts)

    @model_validator(mode="after")
    def _check_prompts(self) -> Self:
        if not self.prompt:
            raise FieldError("prompt is empty; expected at least one character or token", "prompt")
        if len(self.prompts) > PROMPTS_MAX:
            raise FieldError(f"prompt has {len(self.prompts)} prompts; expected at most {PROMPTS_MAX}", "prompt")
        if self.stream and len(self.prompts) > 1:
            raise FieldError("stream is for one prompt at a time", "stream")
        if self.stream and (self.echo or self.logprobs is not None):
            raise FieldError("a stream carries neither echo nor logprobs here; leave stream out", "stream")
        if self.max_tokens == 0 and not self.echo:
            raise FieldError("max_tokens is 0, which asks for nothing without echo", "max_tokens")
        return self


class TextPart(_Fields):
    """A part of a message that is text."""

    type: Literal["text"]
    text: str


class MessageBody(_Fields):
    """A message of a conversation; one that was an answer here comes back with the thoughts that it came with."""

    role: Annotated[str, Field(min_length=1, max_length=40)]
    content: str | Annotated[list[TextPart], Field(max_length=1_000)]
    name: str | None = None
    reasoning_content: str | None = None

    def message(self) -> dict[str, str]:
        """Return it as a template takes it."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        more = {"name": self.name, "reasoning_content": self.reasoning_content}
        return {"role": self.role, "content": text} | {key: value for key, value in more.items() if value is not None}


class ChatBody(Asked):
    """A body of ``/v1/chat/completions``."""

    messages: Annotated[list[MessageBody], Field(min_length=1, max_length=10_000)]
    max_tokens: Annotated[int, Field(ge=1, le=TOKENS_MAX)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=TOKENS_MAX)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=1)] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def budget_tokens(self) -> int | None:
        """How long the answer may be, None for what the context has room for."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @model_validator(mode="after")
    def _check_scores(self) -> Self:
        if self.stream and self.logprobs:
            raise FieldError("a stream carries no logprobs here; leave stream out", "logprobs")
        if self.top_logprobs is not None and not self.logprobs:
            raise FieldError("top_logprobs goes with logprobs: true", "top_logprobs")
        return self


Body = TypeVar("Body", CompletionBody, ChatBody)


def parse(kind: type[Body], body: bytes) -> Body:
    """Return a body whose every field can be served.

    Raises:
        FieldError: It is no JSON object, or a field is unknown, of another type or out of range.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        # Of a field of several types, what is wrong in the type that fits says more than that others do not fit.
        first = next((each for each in errors if not each["type"].endswith("_type")), errors[0])
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, FieldError):
            raise FieldError(str(cause), cause.param) from error
        # Of a field that is unknown the last part is its own name, whatever that looks like.
        location = first["loc"]
        own = len(location) - (first["type"] == "extra_forbidden")
        named = [part for number, part in enumerate(location) if number == own or not _is_kind(part)]
        place = ".".join(map(str, named))[:200]
        if first["type"] == "extra_forbidden":
            raise FieldError(f"field {place!r} is not served here; leave it out", place) from error
        got = repr(first["input"])[:80] if first["type"] != "missing" else "nothing"
        raise FieldError(f"{place or 'the body'}: {first['msg']}; got {got}", place or None) from error


def _is_kind(part: int | str) -> bool:
    """Return whether a part of a place names the type that was tried and no field."""
    return isinstance(part, str) and (part in {"str", "constrained-str"} or "[" in part)
