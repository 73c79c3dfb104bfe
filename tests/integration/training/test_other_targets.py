"""A drafter is trained for a target of other people: its words, its mask, its prompts, and goes on where it ended."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from safetensors.torch import load_file, save_file  # noqa: E402

from engine.cli.main import main  # noqa: E402
from engine.errors import UsageError  # noqa: E402
from engine.huggingface import open_causal  # noqa: E402
from engine.training.dflash import (  # noqa: E402
    BLOCK_SIZE,
    DrafterRun,
    DrafterTrainer,
    cached_responses,
    export_drafter,
    weights_digest,
)
from engine.training.features import FeatureFile  # noqa: E402
from engine.training.network.drafter_model import DFlashNetwork, drafter_config  # noqa: E402
from engine.training.network.models import logits_of, mixed_precision  # noqa: E402
from engine.training.package_prompts import TASKS, _turns, functions, package_requests  # noqa: E402
from engine.training.requests import Ends, Response, ResponseRequest  # noqa: E402
from engine.training.responses import Answers, regenerate_in_order  # noqa: E402
from tests.fakes import tiny_families  # noqa: E402
from tests.unit.engine.evaluation.test_installed_prompts import PROBLEMS, install  # noqa: E402

VOCABULARY, MASK = 97, 96
SMOLLM2 = {
    "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152,
    "max_position_embeddings": 8192,
}  # fmt: skip


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory):
    return open_causal(tiny_families.write_family(tmp_path_factory.mktemp("target"), "llama"))


@pytest.fixture(scope="module")
def responses():
    rng = np.random.default_rng(3)
    return [Response(tuple(int(token) for token in rng.integers(5, 60, 30)), 8) for _ in range(12)]


def trainer_of(folder: Path, target, responses, **options) -> DrafterTrainer:
    run = DrafterRun(4, 3, 12, folder, mask=MASK, pad=0, target_layers=(0, 2), **options)
    return DrafterTrainer(run, target, responses)


def test_the_recipe_s_drafter_in_8_bit_codes_has_less_than_nine_million_bytes(tmp_path: Path) -> None:
    config = drafter_config(SMOLLM2, "smollm2", BLOCK_SIZE, 7, (8, 16, 24))
    assert config["dflash_config"]["target_layer_ids"] == [8, 16, 24]
    export_drafter(DFlashNetwork(config), tmp_path / "float32")
    assert main(["convert", "mlx", str(tmp_path / "float32"), str(tmp_path / "codes"), "--bits", "8"]) == 0
    assert 8_000_000 < (tmp_path / "codes" / "model.safetensors").stat().st_size <= 9_000_000


def test_a_loss_over_every_id_is_the_whole_head_s_and_over_few_it_is_less(tmp_path: Path, target, responses) -> None:
    losses = {}
    for rows in (0, 4, VOCABULARY):
        trainer = trainer_of(tmp_path / str(rows), target, responses, head_rows=rows)
        with torch.no_grad():
            part, _ = trainer.loss(responses[:4], np.random.default_rng(1), whole_head=False)
            whole, _ = trainer.loss(responses[:4], np.random.default_rng(1))
        losses[rows] = float(part) - float(whole)
    assert losses[0] == losses[VOCABULARY] == 0.0
    assert losses[4] < 0.0


def test_a_drafter_speaks_through_the_head_that_its_target_has_beside_its_embedding(
    tmp_path: Path, target, responses
) -> None:
    assert not torch.equal(target.lm_head.weight, target.model.embed_tokens.weight)
    trainer, places = trainer_of(tmp_path, target, responses), torch.tensor([[12]])
    response, ids = responses[0], torch.tensor([responses[0].ids])
    with torch.no_grad():
        logits, *_ = trainer._forward([response], ids, places, torch.zeros_like(places))
        trainer.target = deepcopy(target)
        trainer.target.lm_head.weight.mul_(2.0)
        doubled, *_ = trainer._forward([response], ids, places, torch.zeros_like(places))
    assert torch.equal(doubled, 2.0 * logits)


def test_of_the_last_layer_a_drafter_reads_what_it_puts_out_and_not_what_the_norm_makes_of_it(
    tmp_path: Path, target, responses
) -> None:
    trainer = DrafterTrainer(DrafterRun(4, 3, 12, tmp_path, mask=MASK, pad=0, target_layers=(0, 3)), target, responses)
    ids = torch.tensor([responses[0].ids])
    with torch.no_grad(), mixed_precision("cpu"):
        states = target.model(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states
        first, last = trainer._target_features(ids).chunk(2, dim=-1)
        normed = target.model.norm(last)
    assert torch.allclose(first, states[1].float())
    assert torch.allclose(normed.float(), states[4].float())
    assert not torch.allclose(last, states[4].float())


def test_a_target_with_recurrent_layers_is_asked_without_a_mask_for_them(tmp_path: Path, responses) -> None:
    hybrid, ids = open_causal(tiny_families.write_family(tmp_path, "qwen3_5_text")), torch.tensor([responses[0].ids])
    with torch.no_grad():
        assert torch.allclose(logits_of(hybrid, ids), hybrid(input_ids=ids).logits.float(), atol=1e-4)


def test_features_in_a_file_train_as_those_in_memory_and_are_found_again(tmp_path: Path, target, responses) -> None:
    memory, disk = (
        trainer_of(tmp_path / name, target, responses, features_on_disk=name == "disk") for name in ("memory", "disk")
    )
    assert memory.train_step() == disk.train_step()
    count = len(disk.features_by_ids)
    assert 0 < count <= len(responses)
    again = trainer_of(tmp_path / "disk", target, responses, features_on_disk=True)
    assert len(again.features_by_ids) == count
    for ids, features in memory.features_by_ids.items():
        assert torch.equal(again.features_by_ids[ids], features)
    with pytest.raises(UsageError, match="features of other rows or layers"):
        FeatureFile(tmp_path / "disk", [responses[0].ids], 64, (0, 2))
    run = replace(again.run, target_layers=(0, 1))
    with pytest.raises(UsageError, match="features of other rows or layers"):
        DrafterTrainer(run, target, responses)


def test_training_ends_where_it_no_longer_gains(tmp_path: Path, target, responses) -> None:
    trainer = trainer_of(tmp_path, target, responses, least_gain=0.02)
    trainer.curve.rows = [
        {"step": step, "acceptance_teacher_forced": 2.0 + step / 1e5} for step in range(250, 2001, 250)
    ]
    trainer.step = 2000
    assert trainer._has_levelled()
    trainer.curve.rows[-1]["acceptance_teacher_forced"] = 2.2
    assert not trainer._has_levelled()


def test_answers_that_were_made_are_not_made_again_on_another_machine(tmp_path: Path, target) -> None:
    requests = [ResponseRequest((5, 6, 7 + index), 6, 6) for index in range(5)]
    marks, path = Ends(0, (1,)), tmp_path / "answers" / "target.json.xz"
    first = regenerate_in_order(target, requests[:3], rows=2, marks=marks, answers=Answers(path, "a" * 64))
    copied = tmp_path / "copied.json.xz"
    copied.write_bytes(path.read_bytes())
    assert regenerate_in_order(None, requests[:3], marks=marks, answers=Answers(copied, "a" * 64)) == first
    whole = regenerate_in_order(target, requests, rows=2, marks=marks, answers=Answers(copied, "a" * 64))
    assert whole[:3] == first
    assert all(each.ids[: each.prompt_tokens] == request.prompt for each, request in zip(whole, requests, strict=True))
    assert regenerate_in_order(None, requests[::-1], marks=marks, answers=Answers(copied, "a" * 64)) == whole[::-1]
    assert Answers(copied, "a" * 64).get(replace(requests[0], limit=7)) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"half a file", "holds no answers of a target"),
        (lzma.compress(b"[]"), "holds no answers of a target"),
        (lzma.compress(json.dumps({"target_sha256": "b" * 64, "answers": {}}).encode()), "answers of weights bbbb"),
    ],
)
def test_a_file_of_no_or_other_answers_is_refused_and_left(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "answers.json.xz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        Answers(path, "a" * 64)
    assert path.read_bytes() == content


def test_prompts_are_drawn_once_whatever_is_installed_when_a_run_goes_on(tmp_path: Path, target) -> None:
    folder = tiny_families.write_family(tmp_path / "target", "llama")
    run = DrafterRun(4, 3, 3, tmp_path / "work", prompts="packages", mask=MASK, pad=0)
    draws = [[ResponseRequest((5, 6, first + index), 6, 6) for index in range(3)] for first in (7, 20)]
    marks = Ends(0, (1,))
    first = cached_responses(folder, target, lambda: draws[0], run, marks=marks)
    (run.work / "responses.json").unlink()  # ended before the last of them was written
    assert cached_responses(folder, None, lambda: draws[1], run, marks=marks) == first
    other = replace(run, prompts="shipped")
    assert cached_responses(folder, target, lambda: draws[1], other, marks=marks) != first


def test_a_target_whose_weights_lie_in_several_files_is_answered_for(tmp_path: Path, target) -> None:
    folder = tiny_families.write_family(tmp_path / "target", "llama")
    assert weights_digest(folder) == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = [folder / f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for file, names in zip(parts, (sorted(tensors)[:9], sorted(tensors)[9:]), strict=True):
        save_file({name: tensors[name] for name in names}, file, metadata={"format": "pt"})
    run = DrafterRun(4, 3, 1, tmp_path / "work", prompts="packages", mask=MASK, pad=0)
    request = ResponseRequest((5, 6, 7), 6, 6)
    [response] = cached_responses(folder, target, lambda: [request], run, marks=Ends(0, (1,)))
    assert response.ids[:3] == request.prompt
    before = weights_digest(folder)
    save_file({name: tensors[name] + 1 for name in sorted(tensors)[9:]}, parts[1], metadata={"format": "pt"})
    assert weights_digest(folder) != before


def test_prompts_of_packages_have_every_task_and_none_of_humaneval_s_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "\n".join(json.dumps(problem) for problem in PROBLEMS)
    install(tmp_path / "site", monkeypatch, gzip.compress(lines.encode()))
    root = tmp_path / "package"
    root.mkdir()
    body = "    '''Say {0}.'''\n    total = 0\n    for item in items:\n        total += item\n    return total\n\n\n"
    names = ("add_up", "work_1", "count_all")
    (root / "sums.py").write_text("".join(f"def {name}(items):\n" + body.format(name) for name in names))
    assert [each.name for each in functions(root, frozenset({"work_1"}))] == ["add_up", "count_all"]

    class Letters:
        def encode(self, text: str) -> tuple[int, ...]:
            self.texts = [*getattr(self, "texts", []), text]
            return tuple(range(9))

        def chat(self, messages) -> tuple[int, ...]:
            return self.encode(messages[0]["content"])

    words = Letters()
    requests = package_requests(words, 8, 1, [root])
    assert len(requests) == 2 * len(TASKS)
    assert not any("work_1" in text for text in words.texts)
    assert any("Explain this function" in text for text in words.texts)
    assert words.texts == (again := Letters(), package_requests(again, 8, 1, [root]))[0].texts


def test_a_template_that_leaves_a_prompt_no_room_is_named_and_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "\n".join(json.dumps(problem) for problem in PROBLEMS)
    install(tmp_path / "site", monkeypatch, gzip.compress(lines.encode()))
    (tmp_path / "package").mkdir()
    body = "    total = 0\n    for item in items:\n        total += item\n    return total\n\n\n"
    (tmp_path / "package" / "sums.py").write_text("".join(f"def {name}(items):\n{body}" for name in ("add", "sum_up")))

    class LongTemplate:
        def encode(self, text: str) -> tuple[int, ...]:
            return tuple(range(9))

        def chat(self, messages) -> tuple[int, ...]:
            return tuple(range(500))

    with pytest.raises(UsageError, match="no prompt of the task 'explain' has 2 to 192 tokens"):
        package_requests(LongTemplate(), 8, 1, [tmp_path / "package"])


def test_a_package_more_leaves_the_order_of_the_other_prompts() -> None:
    texts = [f"text {index}" for index in range(20)]
    order = [texts[place] for place, _ in islice(_turns("complete", texts, 1), 20)]
    more = ["before", *texts]
    grown = [more[place] for place, _ in islice(_turns("complete", more, 1), 21)]
    assert [text for text in grown if text != "before"] == order != texts
    assert [place for place, _ in islice(_turns("complete", texts, 2), 20)] != [texts.index(text) for text in order]
