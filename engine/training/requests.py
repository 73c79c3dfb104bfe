"""What a target is asked, what it answered, and the ids around an answer; plain values, without an array library."""

from __future__ import annotations

from dataclasses import dataclass

from engine.training.tokenizer import EOS_ID, PAD_ID


@dataclass(frozen=True)
class Response:
    """Token ids of prompt and response; supervised positions start at `prompt_tokens`."""

    ids: tuple[int, ...]
    prompt_tokens: int


@dataclass(frozen=True)
class ResponseRequest:
    """A prompt, the most tokens to generate after it, and a guess of the length used to batch alike rows."""

    prompt: tuple[int, ...]
    limit: int
    expected: int


@dataclass(frozen=True)
class Ends:
    """The ids of a tokenizer that rows are filled up with, and that end a response."""

    pad: int = PAD_ID
    stops: tuple[int, ...] = (EOS_ID,)


SHIPPED = Ends()
"""Those of the shipped tokenizer."""
