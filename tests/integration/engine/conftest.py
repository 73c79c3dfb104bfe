from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="the MLX backend is not installed")

from engine.backends.mlx.backend import MlxBackend
from engine.reports import token_digest
from tests.fakes import tiny_mlx

DIGEST = hashlib.sha256(b"request").hexdigest()
WORDS = [f"w{index}" for index in range(tiny_mlx.VOCAB)]


@pytest.fixture(scope="session")
def backend() -> MlxBackend:
    return MlxBackend()


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random checkpoints of every family and format, and drafters for them."""
    root = tmp_path_factory.mktemp("models")
    for kind in tiny_mlx.CONFIGS:
        tiny_mlx.write_target(root / kind, kind)
    tiny_mlx.write_target(root / "wrapped", "gemma4", wrapped=True)
    tiny_mlx.write_target(root / "4bit", "gemma4-moe", bits=4, wrapped=True)
    tiny_mlx.write_dflash(root / "dflash")
    tiny_mlx.write_dflash(
        root / "dflash-sliding",
        layers=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=8,
        use_sliding_window=True,
    )
    return root


@pytest.fixture(scope="session")
def targets(backend: MlxBackend, folders: Path) -> dict[str, object]:
    names = [*tiny_mlx.CONFIGS, "wrapped", "4bit"]
    return {name: backend.load_target(folders / name) for name in names}


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random pair with a word-level tokenizer, and a prompt set."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = tmp_path_factory.mktemp("models")
    tiny_mlx.write_target(made / "tiny", "gemma4")
    tiny_mlx.write_dflash(made / "tiny-dflash")
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(made / "tiny" / "tokenizer.json"))
    prompts = [
        {
            "id": f"p-{index:02d}",
            "kind": "structured",
            "text": " ".join(WORDS[5 + index : 12 + index]),
            "expected": None,
        }
        for index in range(30)
    ]
    for row in prompts:
        ids = [WORDS.index(word) for word in row["text"].split()]
        row["token_digest"] = {"tiny": token_digest(ids)}
        row["greedy_tokens"] = {"tiny": None}
    (made / "set.json").write_text(
        json.dumps({"schema": 1, "set": "words", "rule": "runs of words", "prompts": prompts})
    )
    needles = [row | {"expected": WORDS[20 + index]} for index, row in enumerate(prompts)]
    (made / "needles.json").write_text(
        json.dumps({"schema": 1, "set": "needles", "rule": "as above", "prompts": needles})
    )
    return made


@pytest.fixture
def run_environment(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAKEYA_OUT", str(tmp_path))
    monkeypatch.setenv("KAKEYA_REQUEST_DIGEST", DIGEST)
    monkeypatch.setenv("KAKEYA_MODEL_ROOTS", str(root))
    monkeypatch.setenv("KAKEYA_TARGET", "tiny")
    monkeypatch.setenv("KAKEYA_DRAFTER", "tiny-dflash")
    return tmp_path
