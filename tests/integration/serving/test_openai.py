"""The real client of OpenAI's port against the real server: every answer is the one that `generate` gives."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import random
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from engine.cli.serve import _load, parser
from engine.decoding.depth import FixedDepth
from engine.generation.answer import GenerationRequest, generate, sampled
from engine.options import DEFAULT_DEPTH
from engine.structure.layout import CacheLayout
from engine.verification.rejection import Sampling
from tests.integration.serving.conftest import KEY, MODEL, Server, open_small

PROMPTS = (
    "class Point:\n",
    "def add(a, b):\n",
    "import os\n\n",
    "for index in range(",
    "class Shape:\n    def area",
    "x = {",
)
SCRATCH_BYTES = 2048
"""What one forward may hold more than another, whatever came before; a row of a cache takes more."""


@pytest.fixture
def client(server: Server):
    with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0, timeout=240) as made:
        yield made


def complete(client, prompt, new_tokens=24, **changes):
    return client.completions.create(model=MODEL, prompt=prompt, max_tokens=new_tokens, temperature=0, **changes)


def test_a_completion_equals_generate_and_says_what_it_took(server: Server, client) -> None:
    answer, expected = complete(client, PROMPTS[0]), server.expect(PROMPTS[0], 24)
    assert answer.choices[0].text == expected.text
    assert answer.choices[0].finish_reason == "length"
    used = answer.usage.model_dump()
    assert (used["prompt_tokens"], used["completion_tokens"]) == (expected.prompt_tokens, 24)
    assert used["target_forwards"] == expected.target_forwards < 23
    assert (used["accepted_tokens"], used["exact"]) == (expected.accepted_tokens, "greedy-fp32")


def test_a_message_streams_the_text_that_it_has_whole(server: Server, client) -> None:
    messages = [{"role": "user", "content": "write a class"}]
    expected = server.expect(server.tokenizer.chat(messages), 24, chat=True)
    whole = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=24, temperature=0)
    assert whole.choices[0].message.content == expected.text
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=messages,
            max_tokens=24,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == expected.text
    assert sum(map(bool, pieces)) > 2
    assert chunks[-1].usage.completion_tokens == len(expected.tokens)


def test_eight_streams_in_turn_each_give_their_own_answer(server: Server) -> None:
    questions = [(prompt, 8 + 5 * index) for index, prompt in enumerate((*PROMPTS, *PROMPTS[:2]))]

    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0, timeout=240) as client:

            async def one_stream(prompt: str, new_tokens: int) -> str:
                stream = await client.completions.create(
                    model=MODEL, prompt=prompt, max_tokens=new_tokens, temperature=0, stream=True
                )
                return "".join([chunk.choices[0].text async for chunk in stream])

            return list(await asyncio.gather(*(one_stream(*each) for each in questions)))

    assert asyncio.run(ask()) == [server.expect(*each).text for each in questions]


def array_bytes(server: Server) -> int:
    """Return the bytes of all arrays of this process."""
    gc.collect()
    if type(server.engine.backend).__module__.startswith("engine.backends.mlx"):
        import mlx.core as mx

        return int(mx.get_active_memory())
    import torch

    arrays = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in arrays}.values())


def held_beside_caches(server: Server) -> int:
    """Return the bytes of all arrays once nothing is made, without ended conversations (the server knows theirs)."""
    complete_first = {"model": MODEL, "prompt": PROMPTS[0], "max_tokens": 2, "temperature": 0}
    with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0, timeout=240) as client:
        client.completions.create(**complete_first)
    server.settle()
    idle = server.scheduler._idle
    assert server.scheduler.held_bytes == sum(each.measured_bytes() for each in idle) > 0
    idle.clear()  # how many there are depends on who left when
    return array_bytes(server)


@pytest.mark.parametrize("count", [24, pytest.param(1_000, marks=pytest.mark.ci)])
def test_clients_that_leave_at_any_moment_leave_nothing_behind(server: Server, client, count: int) -> None:
    drawn = random.Random(5)
    sequence = type(server.engine.target.open((), CacheLayout.NATIVE))
    body = {"model": MODEL, "max_tokens": 200, "temperature": 0, "ignore_eos": True, "stream": True}

    def leave(prompt: str, lines: int) -> None:
        connection = http.client.HTTPConnection(*server.place, timeout=240)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        connection.request("POST", "/v1/completions", json.dumps(body | {"prompt": prompt}), headers)
        if lines:  # else it leaves before it is answered
            with connection.getresponse() as response:
                for _ in range(lines):
                    response.readline()
        connection.close()

    def leave_together(clients_count: int) -> None:
        with ThreadPoolExecutor(8) as clients:
            leaving = [clients.submit(leave, drawn.choice(PROMPTS), drawn.randrange(8)) for _ in range(clients_count)]
            for left in leaving:
                left.result()
        server.settle()

    # What a process makes once, for sizes it has not met, belongs to no client.
    for prompt in PROMPTS:
        complete(client, prompt, 200, extra_body={"ignore_eos": True})
    leave_together(16)
    counts = server.scheduler.counts
    bytes_before = held_beside_caches(server)
    before = counts.cancelled + counts.finished
    leave_together(count)
    assert count // 2 < counts.cancelled + counts.finished - before <= count  # some leave before they are handed over
    bytes_after = held_beside_caches(server)
    sequences = sum(type(each) is sequence for each in gc.get_objects())
    assert sequences <= server.scheduler.idle + 1, "a sequence outlived its client"
    assert bytes_after - bytes_before < SCRATCH_BYTES
    assert complete(client, PROMPTS[1]).choices[0].text == server.expect(PROMPTS[1], 24).text


def test_a_seed_draws_again_and_another_one_otherwise(client) -> None:
    def draw(seed: int) -> str:
        answer = client.completions.create(model=MODEL, prompt="class ", max_tokens=24, temperature=1.2, seed=seed)
        return str(answer.choices[0].text)

    assert draw(3) == draw(3)
    assert len({draw(seed) for seed in range(4)}) > 1


@pytest.mark.parametrize("backend", [pytest.param("torch", marks=pytest.mark.ci), "mlx"])
def test_the_command_as_it_is_draws_of_a_seed_what_generate_draws_with_the_same_drafter(backend: str) -> None:
    """Unless its owner says otherwise greedy steps choose among drafters, and an answer that draws asks one of them."""
    library = {"mlx": "mlx.core", "torch": "torch"}[backend]
    pytest.importorskip(library, reason=f"the backend {backend} is not installed")
    words = ["--openai", "127.0.0.1:0", "--target", MODEL, "--backend", backend]
    options = parser().parse_args([*words, "--device", "cpu"] if backend == "torch" else words)
    decoder, own = _load(options, CacheLayout.NATIVE), open_small(backend)
    prompt = decoder.tokenizer.encode(PROMPTS[0])
    request = GenerationRequest(prompt, 24, frozenset(), (), CacheLayout.NATIVE, 512)
    answers = []
    for engine, depth in ((own, FixedDepth(DEFAULT_DEPTH)), (decoder.engine, decoder.depths(True))):
        drawing, rule = sampled(engine, Sampling(1.2, seed=3))
        answers.append(generate(drawing, decoder.tokenizer, request, (rule, depth)))
    assert answers[1].tokens == answers[0].tokens
    assert answers[1].drafted_steps == answers[0].drafted_steps
    assert answers[1].drafted_tokens == answers[0].drafted_tokens > 0


def test_stops_end_an_answer_before_them(server: Server, client) -> None:
    text = server.expect(PROMPTS[0], 24).text
    stop = text[5:8]
    answer = complete(client, PROMPTS[0], stop=[stop])
    assert answer.choices[0].text == text[: text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"


def test_an_echo_is_scored_as_a_harness_wants_it(server: Server, client) -> None:
    """What lm-eval's local-completions asks: ids of context and continuation, one token more, the best beside each."""
    ids = [list(server.tokenizer.encode(text)) for text in PROMPTS[:2]]
    answer = complete(client, ids, 1, logprobs=1, echo=True, seed=1234)
    assert [choice.index for choice in answer.choices] == [0, 1]
    for prompt, choice in zip(ids, answer.choices, strict=True):
        scores = choice.logprobs
        assert len(scores.tokens) == len(prompt) + 1
        assert scores.token_logprobs[0] is None
        scored = zip(scores.token_logprobs[1:], scores.top_logprobs[1:], strict=True)
        assert all(value <= max(top.values()) for value, top in scored)
        # The token that greedy decoding chose is the likeliest in its place.
        assert scores.token_logprobs[-1] == max(scores.top_logprobs[-1].values())


def test_a_prompt_that_goes_on_is_not_forwarded_again(server: Server, client) -> None:
    server.settle()
    first = complete(client, "def first(values):\n    return values", 16)
    again = "def first(values):\n    return values" + first.choices[0].text
    answer = complete(client, again, 8)
    details = answer.usage.prompt_tokens_details
    assert details.cached_tokens > answer.usage.prompt_tokens // 2
    assert answer.choices[0].text == server.expect(again, 8).text
