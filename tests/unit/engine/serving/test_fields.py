"""A body is served whole or refused by the field that is not: nothing that a client asked for is dropped in silence."""

from __future__ import annotations

import json

import pytest

from engine.serving.fields import NULLABLE, ChatBody, CompletionBody, FieldError, parse

COMPLETION = {"model": "m", "prompt": "p"}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize(
    ("changes", "param", "message"),
    [
        ({"tools": []}, "tools", "field 'tools' is not served"),
        ({"stop[]": "x"}, "stop[]", r"field 'stop\[\]' is not served"),
        ({"str": "x"}, "str", "field 'str' is not served"),
        ({"stream_options": {"x": 1}, "stream": True}, "stream_options.x", "is not served"),
        ({"n": 2}, "n", "got 2"),
        ({"best_of": 3}, "best_of", "got 3"),
        ({"suffix": "s"}, "suffix", "got 's'"),
        ({"presence_penalty": 0.5}, "presence_penalty", "is 0.5"),
        ({"frequency_penalty": -1.0}, "frequency_penalty", "is -1.0"),
        ({"logit_bias": {"5": 1.0}}, "logit_bias", "not empty"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"temperature": "0"}, "temperature", "valid number"),
        ({"temperature": True}, "temperature", "valid number"),
        ({"temperature": 1e-8}, "temperature", "is 1e-08; expected at least 0.0001, or 0 for greedy"),
        ({"temperature": 5e-324}, "temperature", "0 for greedy"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"top_k": 1.5}, "top_k", "valid integer"),
        ({"max_tokens": -1}, "max_tokens", "greater than or equal to 0"),
        ({"max_tokens": 10**30}, "max_tokens", "less than or equal"),
        ({"max_tokens": 0}, "max_tokens", "asks for nothing without echo"),
        ({"logprobs": 5}, "logprobs", "less than or equal to 1"),
        ({"stop": ""}, "stop", "at least 1 character"),
        ({"stop": ["x"] * 17}, "stop", "at most 16"),
        ({"stream_options": {}}, "stream_options", "is for a stream"),
        ({"stream": True, "echo": True}, "stream", "neither echo nor logprobs"),
        ({"stream": True, "prompt": ["a", "b"]}, "stream", "one prompt at a time"),
        ({"prompt": ""}, "prompt", "is empty"),
        ({"prompt": []}, "prompt", "is empty"),
        ({"prompt": [-1]}, "prompt.0", "greater than or equal to 0"),
        ({"prompt": ["a"] * 65}, "prompt", "at most 64"),
        ({"prompt": None}, "prompt", "valid string; got None"),
    ],
)
def test_a_completion_that_cannot_be_served_whole_is_refused_by_its_field(changes, param, message):
    with pytest.raises(FieldError, match=message) as refused:
        parse(CompletionBody, json.dumps(COMPLETION | changes).encode())
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("changes", "param", "message"),
    [
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", "got nothing"),
        (
            {"messages": [{"role": "u", "content": [{"type": "image_url"}]}]},
            "messages.0.content",
            "should be 'text'",
        ),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": []}]}, "messages.0.tool_calls", "not served"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "greater than or equal to 1"),
        ({"top_logprobs": 1}, "top_logprobs", "goes with logprobs"),
        ({"stream": True, "logprobs": True}, "logprobs", "no logprobs here"),
        ({"response_format": {"type": "json_object"}}, "response_format", "is not served"),
    ],
)
def test_a_conversation_that_cannot_be_served_whole_is_refused_by_its_field(changes, param, message):
    with pytest.raises(FieldError, match=message) as refused:
        parse(ChatBody, json.dumps(CHAT | changes).encode())
    assert str(refused.value.param).startswith(param)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"model": "m", "prompt": "p", "temperature": NaN}',
        b'{"model": "m", "prompt": "p", "temperature": 1e999}',
        b'{"model": "m", "prompt": "\\ud800"}',
        b'{"model": "m", "prompt": "\xff"}',
        b'{"model": "m", "prompt": ' + b"[" * 10_000,
    ],
)
def test_what_is_no_body_is_refused(body):
    with pytest.raises(FieldError):
        parse(CompletionBody, body)


def test_prompts_are_texts_or_ids_one_or_several():
    for prompt, prompts in (
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
    ):
        assert parse(CompletionBody, json.dumps(COMPLETION | {"prompt": prompt}).encode()).prompts == prompts


def test_a_field_without_a_value_is_as_if_nobody_had_named_it():
    """So clients send what their caller left None."""
    unnamed = (*NULLABLE, "stop", "seed", "logit_bias", "logprobs", "stream_options")
    for kind, body in ((CompletionBody, COMPLETION), (ChatBody, CHAT)):
        nulls = dict.fromkeys(name for name in unnamed if name in kind.model_fields)
        first, other = (parse(kind, json.dumps(each).encode()) for each in (body, body | nulls))
        assert other.model_dump() == first.model_dump()
    nothing = parse(CompletionBody, json.dumps(COMPLETION | {"max_tokens": None}).encode())
    assert nothing.max_tokens == 16, "not what the context has room for"


def test_parts_of_a_message_are_one_text():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = parse(ChatBody, json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode())
    assert [message.message() for message in body.messages] == [{"role": "user", "content": "ab"}]


def test_an_answer_comes_back_as_it_went_out():
    """A client goes on with a conversation by the message that it got."""
    answer = {"role": "assistant", "content": "7 is prime.", "reasoning_content": "Is it? Yes."}
    body = parse(ChatBody, json.dumps(CHAT | {"messages": [*CHAT["messages"], answer]}).encode())
    assert [message.message() for message in body.messages] == [*CHAT["messages"], answer]
