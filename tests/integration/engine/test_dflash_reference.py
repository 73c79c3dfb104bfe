"""The MLX drafter against DFlash as transformers itself implements it: hidden states, drafts and greedy output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.local import LocalDrafter
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft
from tests.fakes.tiny_mlx import HIDDEN, VOCAB

torch = pytest.importorskip("torch", reason="the reference implementation needs torch")

BLOCK = 6
KINDS = {"full": (["full_attention"] * 2, 64), "sliding": (["sliding_attention", "full_attention"], 9)}


class Recorder(LocalDrafter):
    """Runs the real drafter and keeps the hidden states of every full block it proposed."""

    def __init__(self, model: Any) -> None:
        self.model, self.info, self.capture = model, model.info, model.capture
        self.inner = model.open()
        self.blocks: dict[int, mx.array] = {}

    def open(self) -> Recorder:
        return self

    @property
    def forwards(self) -> int:
        return self.inner.forwards

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        if count == BLOCK - 1:
            ids = mx.array([bonus] + [self.model.config.mask_token_id] * count)
            self.blocks[position] = self.model.hidden_rows(ids, position, self.inner.shown())
        return self.inner.ask(bonus, position, count, wait_s)

    def observe(self, start: int, tokens: tuple[int, ...], features: Any) -> None:
        self.inner.observe(start, tokens, features)

    def measured_bytes(self) -> int:
        return self.inner.measured_bytes()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path, Any, Any]]:
    """A random Qwen3 target and random drafters of transformers' own class, saved as checkpoints."""
    import transformers
    from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel

    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("reference")
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.Qwen3Config(
        **sizes, head_dim=8, num_hidden_layers=5, vocab_size=VOCAB, tie_word_embeddings=True, rms_norm_eps=1e-6
    )
    target = transformers.Qwen3ForCausalLM(config).float().eval()
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.mul_(4.0 if parameter.ndim > 1 else 1.0).add_(0.05 * torch.randn_like(parameter))
    target.save_pretrained(root / "target")
    made = {}
    for name, (layer_types, window) in KINDS.items():
        draft_config = MuseGlimmerAssistantConfig(
            **sizes,
            head_dim=8,
            num_hidden_layers=2,
            layer_types=layer_types,
            sliding_window=window,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            block_size=BLOCK,
            mask_token_id=3,
            target_layer_ids=[0, 2],
        )
        drafter = MuseGlimmerAssistantModel(draft_config).float().eval()
        with torch.no_grad():
            for parameter in drafter.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        drafter.save_pretrained(root / name)
        made[name] = (root / "target", root / name, target, drafter)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_and_greedy_output_equal_transformers_native_dflash(backend: Any, pairs: Any, kind: str) -> None:
    target_folder, drafter_folder, reference_target, reference_drafter = pairs[kind]
    prompt = tuple(range(20, 37))
    expected_blocks: dict[int, Any] = {}
    positions = [0]

    def record(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        positions[0] += kwargs["context_hidden_states"].shape[1]
        expected_blocks[positions[0]] = output.last_hidden_state[0]

    handle = reference_drafter.register_forward_hook(record, with_kwargs=True)
    generated = reference_target.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        assistant_model=reference_drafter,
        speculation_type="dflash",
        max_new_tokens=36,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    handle.remove()
    target = backend.load_target(target_folder)
    recorder = Recorder(backend.load_dflash(drafter_folder, target))
    parts = Parts(
        target.open(recorder.capture, CacheLayout.NATIVE),
        recorder,
        backend.greedy(target),
        FixedDepth(BLOCK - 1),
        backend.clock,
    )
    tokens = [token for step in speculative(parts, prompt, Stopping(36)) for token in step.tokens]
    assert tokens == generated[0, len(prompt) :].tolist()
    shared = sorted(expected_blocks.keys() & recorder.blocks.keys())
    # Same positions means that both accepted the same tokens at every step before.
    assert len(shared) >= 15
    assert shared == sorted(recorder.blocks)
    for position in shared:
        difference = torch.tensor(recorder.blocks[position].tolist()) - expected_blocks[position]
        assert difference.abs().max() < 1e-5, f"block at {position}"
