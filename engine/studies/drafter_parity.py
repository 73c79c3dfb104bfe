"""Do the MLX and the torch drafter of one checkpoint propose the same tokens, and do both decode the same?

Two comparisons per prompt. *Blocks*: along MLX's own speculative run both drafters are shown the same committed tokens
and the same features (MLX's, as float32 numbers), and both propose at every step: what differs is the drafter alone.
*Generations*: each backend decodes by itself with its own target, features and drafter.

Rows of the report::

    {"blocks": [{"prompt_id", "position", "bonus", "mlx_tokens": [..], "torch_tokens": [..],
                 "top2_margin_at_divergence": float | null}],
     "generations": [{"prompt_id", "prompt_digest", "mlx_tokens", "torch_tokens", "mlx_accepted_per_step",
                      "torch_accepted_per_step"}]}
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from engine.decoding.depth import FixedDepth
from engine.decoding.prompt import check_prompts
from engine.decoding.speculative import Parts, speculative
from engine.drafters.dflash_model import DFlashModel
from engine.drafters.local import LocalDrafter
from engine.errors import ModelMismatchError
from engine.huggingface import take_torch_in
from engine.loading import Engine
from engine.measurement.launch import model_facts
from engine.measurement.selection import Prompt, load_prompts
from engine.measurement.study import Study
from engine.options import add_model_options, add_report_options, open_selected, positive
from engine.reports import RunContext, packed_tokens
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand
from engine.tokenizer import Tokenizer
from engine.types import Choice, Draft, DrafterInfo, Features, Match, Step

PROFILES = {"smoke": (4, 48), "claim": (24, 128)}
"""Prompts and tokens a prompt."""


@dataclass(frozen=True, slots=True)
class DraftedBlock:
    """What both drafters proposed for one step; the margin is torch's at the first different token."""

    prompt_id: str
    position: int
    bonus: int
    mlx_tokens: tuple[int, ...]
    torch_tokens: tuple[int, ...]
    top2_margin_at_divergence: float | None


@dataclass(frozen=True, slots=True)
class Generation:
    """What both backends generated for one prompt, each by itself."""

    prompt_id: str
    prompt_digest: str
    mlx_tokens: tuple[int, ...]
    torch_tokens: tuple[int, ...]
    mlx_accepted_per_step: tuple[int, ...]
    torch_accepted_per_step: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parity:
    """All raw rows, and what they add up to."""

    blocks: tuple[DraftedBlock, ...]
    generations: tuple[Generation, ...]

    @property
    def drafted_tokens(self) -> int:
        """Tokens proposed by both drafters for the same inputs."""
        return sum(len(block.mlx_tokens) for block in self.blocks)

    @property
    def agreed_tokens(self) -> int:
        """Those that are equal, position by position."""
        return sum(
            left == right
            for block in self.blocks
            for left, right in zip(block.mlx_tokens, block.torch_tokens, strict=True)
        )

    @property
    def identical_generations(self) -> int:
        """Prompts on which both backends emitted the same tokens in the same steps."""
        return sum(
            row.mlx_tokens == row.torch_tokens and row.mlx_accepted_per_step == row.torch_accepted_per_step
            for row in self.generations
        )

    def rows(self) -> dict[str, Any]:
        """Return the report's rows."""
        return {
            "blocks": [asdict(block) for block in self.blocks],
            "generations": [asdict(generation) for generation in self.generations],
        }


def compare(
    mlx: Engine,
    torch: Engine,
    prompts: Sequence[Prompt],
    budget_tokens: int,
    heard: Callable[[Prompt, Parity], None] = lambda _prompt, _parity: None,
) -> Parity:
    """Compare two engines that loaded the same folders; ``heard`` learns of each finished prompt.

    Raises:
        ModelMismatchError: If they did not load the same checkpoint, or one has no DFlash drafter.
        PromptError: If a prompt and the budget do not fit the target.
    """
    check_same(mlx, torch)
    # Whole blocks are drafted to the end, so the last one may reach past the budget.
    check_prompts((prompt.ids for prompt in prompts), mlx.target.info, budget_tokens + _drafted(mlx))
    blocks: list[DraftedBlock] = []
    generations: list[Generation] = []
    for prompt in prompts:
        mirror = MirroredModel(mlx.drafter, torch.drafter, prompt.id)
        ours = _decode(mlx, mirror, prompt, budget_tokens)
        theirs = _decode(torch, torch.drafter, prompt, budget_tokens)
        generation = Generation(
            prompt.id, prompt.digest, _tokens(ours), _tokens(theirs), _accepted(ours), _accepted(theirs)
        )
        heard(prompt, Parity(tuple(mirror.blocks), (generation,)))
        blocks += mirror.blocks
        generations.append(generation)
    return Parity(tuple(blocks), tuple(generations))


def check_same(mlx: Engine, torch: Engine) -> None:
    """Check that both engines hold the same target and the same DFlash drafter in the same dtype.

    Raises:
        ModelMismatchError: If they do not.
    """
    pairs = [
        ("target digest", mlx.target.info.digest, torch.target.info.digest),
        ("drafter digest", mlx.drafter.info.digest, torch.drafter.info.digest),
        ("dtype", mlx.target.info.dtype, torch.target.info.dtype),
    ]
    for name, left, right in pairs:
        if left != right:
            raise ModelMismatchError(f"{name} is {left} on mlx and {right} on torch; expected the same on both")
    if not isinstance(mlx.drafter, DFlashModel):
        raise ModelMismatchError(
            f"drafter {mlx.drafter.info.name!r} is no DFlash drafter, whose rows are compared; name one with --drafter"
        )


class WholeBlocks(FixedDepth):
    """Draft a whole block at every step, the last one included: every step then has a block to compare."""

    def choose(self, position: int, limit: int, lookup: Callable[[], Match | None] | None = None) -> Choice:
        """Return the whole length; what exceeds the budget is cut when it is emitted."""
        del position, limit, lookup
        return Choice(self.tokens)


@dataclass
class MirroredModel:
    """MLX's drafter with torch's beside it: both see and propose the same, MLX's proposal is used."""

    mlx: Any
    torch: Any
    prompt_id: str
    blocks: list[DraftedBlock] = field(default_factory=list)

    @property
    def info(self) -> DrafterInfo:
        """Return MLX's description."""
        info: DrafterInfo = self.mlx.info
        return info

    @property
    def capture(self) -> tuple[int, ...]:
        """Return the target layers both read."""
        layers: tuple[int, ...] = self.mlx.capture
        return layers

    def open(self) -> MirroredDrafter:
        """Start both on one sequence."""
        return MirroredDrafter(self, self.mlx.open(), self.torch.open())


@dataclass
class MirroredDrafter(LocalDrafter):
    """One sequence of a ``MirroredModel``."""

    model: MirroredModel
    mlx: Any
    torch: Any

    @property
    def forwards(self) -> int:
        """Forwards of MLX's drafter."""
        return int(self.mlx.forwards)

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Let both propose, keep the pair, return MLX's."""
        draft: Draft = self.mlx.ask(bonus, position, count, wait_s)
        ours = tuple(int(token) for token in draft.tokens.tolist())
        chosen, scores = self.torch.model.best(bonus, self.torch.hidden_rows(bonus, position, draft.count)[1:])
        theirs = tuple(int(token) for token in chosen.tolist())
        different = next((row for row, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), None)
        margin = None
        if different is not None:
            best, second = scores[different].float().topk(2).values.tolist()
            margin = float(best - second)
        self.model.blocks.append(DraftedBlock(self.model.prompt_id, position, bonus, ours, theirs, margin))
        return draft

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Show both the same tokens and the same numbers."""
        self.mlx.observe(start, tokens, features)
        self.torch.observe(start, tokens, _to_torch(features, self.torch.model.target))

    def measured_bytes(self) -> int:
        """Return the bytes of MLX's context."""
        return int(self.mlx.measured_bytes())


def _to_torch(features: Any, target: Any) -> Any:
    import mlx.core as mx
    import torch

    numbers = np.array(features.astype(mx.float32))
    return torch.from_numpy(numbers).to(target.device, target.dtype)


def _decode(engine: Engine, drafter: Any, prompt: Prompt, budget_tokens: int) -> list[Step]:
    parts = Parts(
        engine.target.open(drafter.capture, CacheLayout.NATIVE),
        drafter.open(),
        engine.accept,
        WholeBlocks(_drafted(engine)),
        engine.backend.clock,
    )
    stopping = Stopping(budget_tokens, frozenset(engine.target.info.stop_ids))
    return list(speculative(parts, prompt.ids, stopping))


def _drafted(engine: Engine) -> int:
    """Return the tokens of a whole draft."""
    return (engine.drafter.info.block_size or 2) - 1


def _tokens(steps: Sequence[Step]) -> tuple[int, ...]:
    return tuple(token for step in steps for token in step.tokens)


def _accepted(steps: Sequence[Step]) -> tuple[int, ...]:
    """Return the accepted drafts of each step, as far as the last step's were emitted."""
    return tuple(min(step.accepted, len(step.tokens)) for step in steps if not step.prefill)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, and how much of them is compared."""
    add_model_options(parser)
    add_report_options(parser, "drafter-parity.json")
    parser.add_argument("--set", default="code-structured", help="prompt set or file (default: %(default)s)")
    parser.add_argument("--prompts", type=positive, help="how many prompts (default: the profile's)")
    parser.add_argument("--max-new", type=positive, help="tokens a prompt (default: the profile's)")
    parser.set_defaults(backend="mlx")


def measure(options: argparse.Namespace) -> Parity:
    """Compare both drafters and write the report.

    Raises:
        ModelMismatchError: If the engines did not load the same models in the same dtype.
    """
    context = RunContext.current(out=options.out, profile=options.profile)
    prompts, budget = PROFILES[context.profile]
    mlx, torch = both(options)
    if options.dtype == "float32" and mlx.target.info.dtype != "float32":
        raise ModelMismatchError(
            f"the checkpoint is {mlx.target.info.dtype} on mlx; parity in float32 needs a float32 checkpoint"
        )
    known = load_prompts(options.set, Tokenizer(mlx.folder), mlx.target.info.name)
    chosen = known.drawn(options.prompts or prompts, context.nonce)
    budget = options.max_new or budget

    def run() -> tuple[Parity, dict[str, Any]]:
        found = compare(mlx, torch, chosen.prompts, budget, _show)
        prompts = {prompt.digest: packed_tokens(prompt.ids) for prompt in chosen.prompts}
        return found, {"rows": found.rows(), "prompts": prompts}

    config = model_facts(mlx) | {"prompt_set": chosen.name, "max_new_tokens": budget}
    study = Study("drafter_parity", mlx.backend, config, context, options.report, torch.backend.versions())
    return study.write(run)


def both(options: argparse.Namespace) -> tuple[Engine, Engine]:
    """Return the same folders loaded by MLX and by torch."""
    take_torch_in()
    mlx = open_selected(_changed(options, backend="mlx", device=None, dtype=None, cuda_graphs="auto"))
    return mlx, open_selected(_changed(options, backend="torch", device=options.device or "cpu"))


def report(parity: Parity) -> None:
    """Print how many drafted tokens and generations agree."""
    print(f"drafters agree on {parity.agreed_tokens} of {parity.drafted_tokens} tokens")
    print(f"generations identical on {parity.identical_generations} of {len(parity.generations)} prompts")


def _changed(options: argparse.Namespace, **values: object) -> argparse.Namespace:
    return argparse.Namespace(**(vars(options) | values))


def _show(prompt: Prompt, parity: Parity) -> None:
    same = "identical" if parity.identical_generations else "different"
    print(f"{prompt.id}: {parity.agreed_tokens} of {parity.drafted_tokens} tokens agree, output {same}", flush=True)


COMMAND = StudyCommand(
    "Compare the MLX and the torch drafter of one checkpoint token by token.", options, measure, report
)
