"""The head for several tokens in a target's own folder drafts what transformers' head does, and changes no token."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.checkpoint import ASSETS
from engine.cli import generate, inspect
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters import mtp
from engine.errors import ModelConfigError, ModelError, ModelWeightsError
from engine.loading import load_backend, open_engine
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.structure.memory import memory_need
from engine.types import Step
from engine.verification.rejection import Sampling
from tests.fakes import tiny_families
from tests.fakes.tiny_families import RECURRENT, VOCAB
from tests.support.decoding import tokens_of

PROMPT = tuple(5 + (index * 7) % (VOCAB - 5) for index in range(30))
TOKENS = 24
SOME = "qwen3_5_text"
KINDS = [SOME, *(pytest.param(kind, marks=pytest.mark.ci) for kind in RECURRENT if kind != SOME)]
BACKENDS = ["torch", "mlx"]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return an engine with the head of a random folder as its drafter, by backend, kind and whether it is right."""
    torch.set_num_threads(1)
    folders: dict[tuple[str, bool], Path] = {}
    engines: dict[tuple[str, str, bool], Any] = {}

    def engine(name: str, kind: str = SOME, *, right: bool = False) -> Any:
        if (kind, right) not in folders:
            folder = tmp_path_factory.mktemp(f"{kind}-{right}")
            # transformers takes the norms of its head's inputs for those of the target's last layer, which must attend.
            folders[kind, right] = tiny_families.write_head(folder, kind, right=right, num_hidden_layers=4)
        if (name, kind, right) not in engines:
            backend = load_backend(name, "cpu" if name == "torch" else None)
            engines[name, kind, right] = open_engine(backend, str(folders[kind, right]), "mtp")
        return engines[name, kind, right]

    return engine


def decoded(engine: Any, depth: int, settings: Sampling | None = None, chunk: int = 512) -> list[Step]:
    sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
    drafter = engine.drafter.open() if settings is None else engine.drafter.sampling(settings).open()
    accept = engine.accept if settings is None else engine.backend.sampling(engine.target, settings)
    parts = Parts(sequence, drafter, accept, FixedDepth(depth), engine.backend.clock)
    return list(speculative(parts, PROMPT, Stopping(TOKENS), chunk))


def drafter_behind(engine: Any, tokens: tuple[int, ...], chunk: int = 512) -> Any:
    """Return a drafter that was shown a text."""
    sequence, drafter, shown = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE), engine.drafter.open(), 0
    for forward in sequence.prefill(tokens, chunk):
        drafter.observe(shown, tokens[shown : shown + forward.rows], sequence.committed(forward, forward.rows))
        shown += forward.rows
    return drafter


def oracle(engine: Any) -> Any:
    """Return transformers' own model of the head; it names its parts otherwise than published checkpoints do."""
    from safetensors.torch import load_file
    from transformers.modeling_layers import MtpModel

    module = engine.target.module
    module.config.num_mtp_layers, module.config.mtp_layer_types = 1, ["full_attention"]
    model: Any = MtpModel(module, 1)
    names = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "post_norm"}
    renamed = {}
    for name, tensor in load_file(engine.folder / "model.safetensors").items():
        part, _, rest = name.removeprefix("mtp.").partition(".")
        if name.startswith("mtp."):
            renamed["layers.0." + (f"{names[part]}.{rest}" if part in names else f"mtp_block.{rest[2:]}")] = tensor
    result = model.load_state_dict(renamed, strict=False)
    assert not result.unexpected_keys
    assert all("embed_tokens" in name or "shared_head" in name for name in result.missing_keys)
    return model.eval()


@pytest.mark.parametrize("name", BACKENDS)
def test_drafts_are_those_of_transformers_head_chained(opened: Any, name: str) -> None:
    stock, bonus, count = oracle(opened("torch")), 9, 4
    with torch.inference_mode():
        whole = opened("torch").target.module(torch.tensor([PROMPT]), output_hidden_states=True)
        hidden, ids, expected = whole.hidden_states[-1], [*PROMPT[1:], bonus], []
        for _ in range(count):
            positions = torch.arange(1, len(ids) + 1)[None]
            rows = stock.forward_layer(0, hidden, positions, None, input_ids=torch.tensor([ids]))
            best = int(stock._project_to_logits(rows[:, -1:]).argmax())
            hidden, ids = torch.cat([hidden, rows[:, -1:]], dim=1), [*ids, best]
            expected.append(best)
    for chunk in (512, 7):
        draft = drafter_behind(opened(name), PROMPT, chunk).ask(bonus, len(PROMPT), count)
        assert draft.ids() == tuple(expected)
    assert len(set(expected)) > 1


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_plain_decoding(opened: Any, name: str, kind: str) -> None:
    engine = opened(name, kind)
    sequence = engine.target.open((), CacheLayout.NATIVE)
    expected = tokens_of(list(autoregressive(sequence, engine.accept, PROMPT, Stopping(TOKENS))))
    for depth, chunk in ((1, 512), (3, 7), (7, 512)):
        steps = decoded(engine, depth, chunk=chunk)
        assert tokens_of(steps) == expected
        assert sum(step.drafted for step in steps) > 0


@pytest.mark.parametrize("name", BACKENDS)
def test_a_head_that_knows_what_its_target_says_is_accepted_whole(opened: Any, name: str) -> None:
    steps = decoded(opened(name, right=True), 3)
    assert [step.accepted for step in steps if step.drafted] == [step.drafted for step in steps if step.drafted]
    assert len(steps) < TOKENS / 3


@pytest.mark.parametrize("name", BACKENDS)
def test_a_head_that_draws_is_accepted_at_the_rate_of_overlap(opened: Any, name: str) -> None:
    settings = Sampling(temperature=30.0, seed=3)
    steps = decoded(opened(name), 4, settings)
    drafted, accepted = sum(step.drafted for step in steps), sum(step.accepted for step in steps)
    assert accepted > 0.6 * drafted > 0
    assert tokens_of(decoded(opened(name), 4, settings)) == tokens_of(steps)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_drafter_that_went_back_drafts_as_one_that_was_never_there(opened: Any, name: str) -> None:
    engine, other = opened(name), tuple(range(20, 30))
    for after_a_draft, back in ((False, 30), (False, 20), (True, 30), (True, 12)):
        drafter = drafter_behind(engine, PROMPT)
        if after_a_draft:
            drafter.ask(9, len(PROMPT), 4)
        left = drafter.rewind(back)
        assert left == (back - 1 if after_a_draft else back)
        # A row is made with the token behind it, which comes again where the drafter went back one further.
        text, again = (*PROMPT[:back], *other), (*PROMPT[left:back], *other)
        sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
        [forward] = sequence.prefill(text, 512)
        drafter.observe(left, again, sequence.committed(forward, forward.rows)[left:])
        expected = drafter_behind(engine, text).ask(9, len(text), 4).ids()
        assert drafter.ask(9, len(text), 4).ids() == expected
        # Asked again at the same place it drafts the same.
        assert drafter.ask(9, len(text), 4).ids() == expected


def test_a_long_text_is_forwarded_before_a_draft_asks(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = drafter_behind(opened("torch"), PROMPT).ask(9, len(PROMPT), 3).ids()
    monkeypatch.setattr(mtp, "FLUSH_ROWS", 8)
    drafter = drafter_behind(opened("torch"), PROMPT, 5)
    assert drafter.forwards == 3
    assert drafter.ask(9, len(PROMPT), 3).ids() == expected


@pytest.mark.ci
@pytest.mark.parametrize("name", BACKENDS)
def test_generate_drafts_with_the_head_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    shipped = ASSETS / "kakeya-tiny-qwen3"
    vocabulary = json.loads((shipped / "config.json").read_text())["vocab_size"]
    folder = tiny_families.write_head(tmp_path / "hybrid", SOME, right=True, vocab_size=vocabulary)
    shutil.copy(shipped / "tokenizer.json", folder)
    assert inspect.main([str(folder)]) == 0
    assert "tensors; --drafter mtp drafts with it" in capsys.readouterr().out
    answers = []
    for drafter, depth in (("mtp", "3"), ("mtp", "auto"), ("mtp,ngram", "auto"), ("none", "0")):
        words = ["--target", str(folder), "--drafter", drafter, "--depth", depth, "--backend", name, "--max-new", "12"]
        assert generate.main([*words, "--ignore-stop-tokens", "--json", "def add(a, b):"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert len({tuple(answer["tokens"]) for answer in answers}) == 1
    assert [answer["drafter"] for answer in answers[:3]] == ["mtp", "mtp", "mtp or ngram"]
    assert answers[0]["acceptance_length"] > 2


def test_a_head_counts_into_what_has_to_fit_where_it_drafts(opened: Any) -> None:
    engine = opened("torch")
    without, with_head = memory_need(engine.folder, []), memory_need(engine.folder, [], head=True)
    assert with_head.weights == without.weights
    assert with_head.drafters > 4 * engine.drafter.info.parameters > without.drafters == 0


def altered(folder: Path, change: str) -> str:
    """Change a folder with a head; return what its refusal says."""
    from safetensors.torch import load_file, save_file

    path, tensors = folder / "model.safetensors", load_file(folder / "model.safetensors")
    messages = {
        "none": "holds no head for several tokens",
        "two layers": "of 2 layers",
        "said otherwise": r"mtp_num_hidden_layers 2\b",
        "own embeddings": "has embeddings of its own",
        "packed": r"tensor mtp\.fc\.weight in .* is of type I8",
        "missing": r"lacks the tensors \['layers\.0\.self_attn\.",
        "further": r"does not compute with the tensors \['extra\.weight'\]",
        "misshapen": r"tensor mtp\.fc\.weight in .* has shape \(32, 32\); expected \(32, 64\)",
    }
    config = json.loads((folder / "config.json").read_text())
    if change == "none":
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("mtp.")}
    elif change == "two layers":
        tensors["mtp.layers.1.input_layernorm.weight"] = torch.zeros(32)
    elif change == "said otherwise":
        config["mtp_num_hidden_layers"] = 2
    elif change == "own embeddings":
        config["mtp_use_dedicated_embeddings"] = True
    elif change == "packed":
        tensors["mtp.fc.weight"] = tensors["mtp.fc.weight"].to(torch.int8)
    elif change == "missing":
        del tensors["mtp.layers.0.self_attn.o_proj.weight"], tensors["mtp.layers.0.self_attn.k_proj.weight"]
    elif change == "further":
        tensors["mtp.extra.weight"] = torch.zeros(3)
    else:
        tensors["mtp.fc.weight"] = tensors["mtp.fc.weight"][:, :32].contiguous()
    save_file(tensors, path, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return messages[change]


CHANGES = ["none", "two layers", "said otherwise", "own embeddings", "packed", "missing", "further", "misshapen"]


@pytest.mark.ci
@pytest.mark.parametrize("change", CHANGES)
def test_a_head_that_cannot_draft_is_refused_alike(tmp_path: Path, change: str) -> None:
    message = altered(tiny_families.write_head(tmp_path, SOME), change)
    messages = []
    for name in BACKENDS:
        with pytest.raises(ModelError, match=message) as caught:
            open_engine(load_backend(name, "cpu" if name == "torch" else None), str(tmp_path), "mtp")
        assert isinstance(caught.value, (ModelConfigError, ModelWeightsError))
        messages.append(str(caught.value))
    assert len(set(messages)) == 1
    assert all("\n" not in message for message in messages)
