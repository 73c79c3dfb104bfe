"""lm-eval's `local-completions` against the server: its own program on a task file of ours, and the bodies it sends.

Its scores of a text are those of the engine's `score`, and its answers those of `generate`. It asks for the logarithm
of each token's probability by an echo with one token more, which it leaves out of its sums.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.generation.score import score
from engine.loading import resolve_model
from engine.structure.layout import CacheLayout
from tests.integration.serving.conftest import KEY, MODEL, Server

SEED = 1234
NEW_TOKENS = 12
DOCUMENTS = (
    {
        "question": "class Point:\n    def __init__(self, x, y):\n",
        "choices": ["        self.x = x", " apple"],
        "right": 0,
    },
    {"question": "def add(a, b):\n", "choices": ["    return a + b", "    import os", "zebra zebra"], "right": 0},
    {"question": "for index in", "choices": [" 7 7 7", " range(10):"], "right": 1},
)
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: {output}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{target}"
target_delimiter: ""
{more}
metadata:
  version: 1.0
"""
CHOICE = (
    'doc_to_choice: "{{choices}}"\nmetric_list:\n  - metric: acc\n    aggregation: mean\n    higher_is_better: true'
)
UNTIL = (
    f'generation_kwargs:\n  until: ["\\n\\n"]\n  max_gen_toks: {NEW_TOKENS}\n  do_sample: false\n'
    "metric_list:\n  - metric: exact_match\n    aggregation: mean\n    higher_is_better: true"
)
ROLLING = "metric_list:\n  - metric: word_perplexity\n    aggregation: weighted_perplexity\n    higher_is_better: false"


def own_score(server: Server, context: tuple[int, ...], rest: tuple[int, ...]) -> tuple[float, bool]:
    """Return what the engine says of a continuation: the sum of its logarithms, and whether each token is likeliest."""
    result = score(server.engine, (*context, *rest), CacheLayout.NATIVE, len(context))
    return sum(result.log_probabilities), tuple(token for token, _ in result.likeliest) == rest


def plain_ids(server: Server, text: str) -> tuple[int, ...]:
    """Return the ids of a text as lm-eval cuts it: without the token that stands before every text."""
    ids = server.tokenizer.encode(text)
    return ids[1:] if ids[0] in server.tokenizer.special.values() else ids


def read_scores(body: dict[str, Any], contexts: list[int]) -> list[tuple[float, bool]]:
    """Read sums of logarithms and whether each is the best, as that program does."""
    results = []
    for choice, length in zip(sorted(body["choices"], key=lambda each: each["index"]), contexts, strict=True):
        values = choice["logprobs"]["token_logprobs"][length:-1]
        tops = choice["logprobs"]["top_logprobs"][length:-1]
        results.append((sum(values), all(v == max(top.values()) for v, top in zip(values, tops, strict=True))))
    return results


def post(server: Server, body: dict[str, Any], path: str = "/v1/completions") -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*server.place, timeout=240)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    status, data = response.status, json.loads(response.read())
    connection.close()
    return status, data


@pytest.mark.parametrize("form", ["ids", "text", "texts"])
def test_the_body_of_a_likelihood_is_scored_as_the_engine_does(server: Server, form: str) -> None:
    pairs = [
        (plain_ids(server, each["question"]), plain_ids(server, choice))
        for each in DOCUMENTS
        for choice in each["choices"]
    ]
    if form == "ids":
        prompts: Any = [[*context, *rest] for context, rest in pairs]
    else:  # a text is cut by the server, which puts a token before it
        prompts = DOCUMENTS[0]["question"] + DOCUMENTS[0]["choices"][0]
        whole = server.tokenizer.encode(prompts)
        pairs = [(whole[:6], whole[6:])]
        prompts = [prompts] if form == "texts" else prompts
    status, body = post(
        server,
        {
            "model": MODEL,
            "prompt": prompts,
            "temperature": 0,
            "max_tokens": 1,
            "logprobs": 1,
            "seed": SEED,
            "echo": True,
        },
    )
    assert status == 200, body
    read = read_scores(body, [len(context) for context, _ in pairs])
    for (total, likeliest), pair in zip(read, pairs, strict=True):
        own_total, own_likeliest = own_score(server, *pair)
        assert total == pytest.approx(own_total, abs=1e-4)
        assert likeliest is own_likeliest


def test_the_body_of_an_answer_gets_what_generate_gives(server: Server) -> None:
    prompts = [plain_ids(server, each["question"]) for each in DOCUMENTS[:2]]
    end = next(text for text, token in server.tokenizer.special.items() if token in server.engine.target.info.stop_ids)
    body = {
        "prompt": [list(prompt) for prompt in prompts], "model": MODEL, "max_tokens": NEW_TOKENS, "temperature": 0,
        "stop": ["\n\n", end], "seed": SEED,
    }  # fmt: skip
    status, answer = post(server, body)
    assert status == 200, answer
    for prompt, choice in zip(prompts, answer["choices"], strict=True):
        assert choice["text"] == server.expect(prompt, NEW_TOKENS).text.partition("\n\n")[0]


def test_it_is_told_in_a_word_that_nobody_here_cuts_texts_for_it(server: Server) -> None:
    """Before its first question it asks whether a server has a tokenizer; from a 404 it takes its own."""
    for path in ("/tokenize", "/tokenizer_info"):
        assert post(server, {"prompt": "test", "add_special_tokens": False}, path)[0] == 404


def write_task(folder: Path, name: str, output: str, target: str, more: str) -> None:
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(each) + "\n" for each in DOCUMENTS))
    text = TASK.format(name=name, file=data, output=output, target=target, more=more)
    (folder / f"{name}.yaml").write_text(text)


def evaluate(server: Server, folder: Path, tasks: str, at_once: int) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Run its program on task files of ours; return its results and its samples, by task."""
    settings = {
        "model": MODEL, "base_url": f"{server.url}/completions", "tokenizer": str(resolve_model(MODEL)),
        "tokenizer_backend": "huggingface", "max_retries": 1, "num_concurrent": at_once,
    }  # fmt: skip
    argv = [
        str(shutil.which("lm_eval")), "--model", "local-completions",
        "--model_args", ",".join(f"{name}={value}" for name, value in settings.items()),
        "--tasks", tasks, "--include_path", str(folder), "--output_path", str(folder / "out"), "--log_samples",
        "--batch_size", "1" if at_once == 1 else "2",
    ]  # fmt: skip
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "OPENAI_API_KEY": KEY}
    done = subprocess.run(
        argv, env=os.environ | offline, cwd=folder, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results = json.loads(next((folder / "out").rglob("results_*.json")).read_text())["results"]
    samples = {
        name: [json.loads(line) for line in next((folder / "out").rglob(f"samples_{name}_*")).read_text().splitlines()]
        for name in tasks.split(",")
    }
    return results, samples


@pytest.mark.ci
@pytest.mark.needs("lm_eval")
@pytest.mark.parametrize("at_once", [1, 4])
def test_its_program_on_a_task_of_ours_scores_what_the_engine_scores(
    server: Server, tmp_path: Path, at_once: int
) -> None:
    write_task(tmp_path, "own_choice", "multiple_choice", "{{right}}", CHOICE)
    write_task(tmp_path, "own_until", "generate_until", "none", UNTIL)
    write_task(tmp_path, "own_rolling", "loglikelihood_rolling", "{{question}}", ROLLING)
    results, samples = evaluate(server, tmp_path, "own_choice,own_until,own_rolling", at_once)
    right = 0
    for sample in samples["own_choice"]:
        document = sample["doc"]
        context = plain_ids(server, document["question"].rstrip())  # blanks at the end go with what follows
        totals = []
        for choice, response in zip(document["choices"], sample["filtered_resps"], strict=True):
            whole = plain_ids(server, document["question"] + choice)
            own_total, own_likeliest = own_score(server, context, whole[len(context) :])
            assert float(response[0]) == pytest.approx(own_total, abs=1e-4)
            assert str(response[1]) == str(own_likeliest)
            totals.append(own_total)
        right += totals.index(max(totals)) == document["right"]
    assert results["own_choice"]["acc,none"] == pytest.approx(right / len(DOCUMENTS))
    for sample in samples["own_until"]:
        prompt = plain_ids(server, sample["doc"]["question"])
        assert sample["resps"][0][0] == server.expect(prompt, NEW_TOKENS).text.partition("\n\n")[0]
    for sample in samples["own_rolling"]:
        ids = plain_ids(server, sample["doc"]["question"])
        begin = server.tokenizer.special["<bos>"]
        assert float(sample["filtered_resps"][0]) == pytest.approx(own_score(server, (begin,), ids)[0], abs=1e-4)
