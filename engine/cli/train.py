"""`kakeya-engine train tokenizer|target|dflash|ftheta`: one seeded, resumable command per shipped model."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.errors import UsageError
from engine.loading import load_backend
from engine.options import amount, out_folder, positive, whole
from engine.restoration.settings import KL, LOSSES
from engine.training.recipe import FAMILIES, SIZES

if TYPE_CHECKING:
    from engine.training.requests import ResponseRequest

DRAFTER_SIZES = (*SIZES, "smollm2")
"""Names of `engine.training.network.drafter_model.SHAPES`, which needs torch."""
MOST_LAG = 64
"""Each is a row more in every block that is trained on."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the training commands."""
    parser = VerbParser(prog="kakeya-engine train", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    common = VerbParser(add_help=False)
    common.add_argument("--out", type=out_folder, required=True, help="folder of the finished model")
    common.add_argument("--seed", type=whole, default=1)
    common.add_argument("--threads", type=positive, default=1, help="torch threads")
    common.add_argument(
        "--work", type=out_folder, default=None, help="folder of checkpoints and curve (default: OUT.work)"
    )
    common.add_argument("--device", default="cpu", help="torch device, such as cpu or cuda")
    common.add_argument("--quiet", action="store_true", help="plain log lines instead of a progress bar")
    verbs.add_parser("tokenizer", parents=[common], help="train the tokenizer")
    target = verbs.add_parser("target", parents=[common], help="train a target from nothing")
    target.add_argument("--family", choices=FAMILIES, required=True)
    target.add_argument("--preset-size", choices=SIZES, default="small")
    target.add_argument(
        "--steps", type=positive, required=True, help="optimiser steps of 2,048 tokens after the copy steps"
    )
    target.add_argument("--tokenizer", type=Path, required=True, help="folder of the trained tokenizer")
    target.add_argument("--evaluate-every", type=positive, default=300)
    target.add_argument("--documents", type=positive, default=12_000, help="structured documents to draw rows from")
    target.add_argument("--export-at", type=positive, default=None, help="stop at this step and export what there is")
    dflash = verbs.add_parser("dflash", parents=[common], help="train a DFlash drafter for a target")
    dflash.add_argument("--target", type=Path, required=True, help="folder of the trained target, or a model's name")
    dflash.add_argument("--preset-size", choices=DRAFTER_SIZES, default="small")
    dflash.add_argument("--steps", type=positive, required=True)
    dflash.add_argument("--rows", type=positive, default=4096, help="regenerated rows to train on")
    dflash.add_argument("--evaluate-every", type=positive, default=300)
    dflash.add_argument(
        "--lag",
        type=lag,
        default=0,
        help=f"newest positions that may lack their features, at most {MOST_LAG}: for a drafter that drafts before the "
        "last block was verified (default: none)",
    )
    dflash.add_argument("--start", type=Path, help="folder of a drafter whose weights to begin with (default: none)")
    dflash.add_argument("--mask-token", help="a special token of the target's that it never writes (default: <mask>)")
    dflash.add_argument("--layers", type=layers, default=(), help="target layers that a drafter reads (default: usual)")
    dflash.add_argument(
        "--prompts",
        choices=("shipped", "packages"),
        default="shipped",
        help="what the target answers: generated documents in the shipped words, or functions and manual pages of "
        "installed packages in its own (default: %(default)s)",
    )
    dflash.add_argument("--head-rows", type=whole, default=0, help="most frequent ids in the loss (default: all)")
    dflash.add_argument("--features-on-disk", action="store_true", help="keep the target's features in the work folder")
    dflash.add_argument(
        "--answers",
        type=Path,
        help="file of the target's answers: read first, and what is made is added (default: one in the work folder)",
    )
    dflash.add_argument("--least-gain", type=amount, help="end where 1,000 steps bring less held-back acceptance")
    ftheta = verbs.add_parser("ftheta", parents=[common], help="fit what makes evicted rows of a target again")
    ftheta.add_argument("--target", type=Path, required=True, help="folder of the trained target")
    ftheta.add_argument("--drafter", type=Path, required=True, help="folder of the DFlash drafter that it reads")
    ftheta.add_argument("--rank", type=positive, default=64, help="values kept a side (default: %(default)s)")
    ftheta.add_argument(
        "--input",
        choices=("context", "drafter_rows"),
        default="context",
        help="the drafter's one vector a position, or the keys and values of its layers (default: %(default)s)",
    )
    ftheta.add_argument("--steps", type=positive, help="train that many steps behind the closed form (default: none)")
    ftheta.add_argument(
        "--loss",
        choices=LOSSES,
        help="what these steps bring near to the target's own: what it says (kl), rows, or what attention makes of "
        "them (default: kl)",
    )
    ftheta.add_argument("--episodes", type=positive, default=64, help="contexts to fit on (default: %(default)s)")
    ftheta.add_argument("--length", type=positive, default=1024, help="tokens of a context (default: %(default)s)")
    return parser


def layers(text: str) -> tuple[int, ...]:
    """Return numbers of layers, an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If they are none, or not ascending.
    """
    numbers = tuple(whole(part) for part in text.split(","))
    if list(numbers) != sorted(set(numbers)):
        raise argparse.ArgumentTypeError(f"{text!r}; expected ascending numbers of layers, separated by commas")
    return numbers


def lag(text: str) -> int:
    """Return how many of the newest positions may lack their features, an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If the text is no such number.
    """
    if whole(text) > MOST_LAG:
        raise argparse.ArgumentTypeError(f"{text!r}; expected at most {MOST_LAG}")
    return int(text)


class TrainingProgress:
    """A rich progress bar on stderr, or a log line every few seconds when `plain`."""

    def __init__(self, label: str, plain: bool) -> None:
        """Remember the label; the bar starts with the first report."""
        self.label, self.plain, self.last = label, plain, 0.0
        self.bar: Any = None

    def __call__(self, step: int, total: int, values: dict[str, Any]) -> None:
        """Show `step` of `total` with the newest values."""
        text = " ".join(f"{key}={value:.4g}" for key, value in values.items())
        if self.plain:
            if "loss" in values or time.perf_counter() - self.last > 20.0:
                self.last = time.perf_counter()
                print(f"{self.label} {step}/{total} {text}", file=sys.stderr, flush=True)
            return
        if self.bar is None:
            from rich.console import Console
            from rich.progress import Progress as Bar

            self.bar = Bar(console=Console(stderr=True))
            self.bar.start()
            self.entry = self.bar.add_task(self.label, total=total)
        self.bar.update(self.entry, completed=step, description=f"{self.label} loss {values['train_loss']:.3f}")
        if step == total:
            self.bar.stop()


def work_folder(arguments: argparse.Namespace) -> Path:
    """Return the folder of checkpoints and curve: the one asked for, else one beside the finished model's."""
    out: Path = arguments.out.resolve()
    return arguments.work or out.with_name(f"{out.name}.work")


def train_tokenizer_command(arguments: argparse.Namespace) -> None:
    """Train and write the tokenizer."""
    from engine.training.corpus import corpus_record, read_corpus, word_pool
    from engine.training.structured import tokenizer_texts
    from engine.training.tokenizer import save_tokenizer, train_tokenizer

    files = read_corpus()
    texts = [file.text for file in files if not file.held_out]
    tokenizer = train_tokenizer(texts + tokenizer_texts(word_pool(files).training, arguments.seed))
    save_tokenizer(tokenizer, arguments.out)
    (arguments.out / "corpus.json").write_text(json.dumps(corpus_record(files), indent=1) + "\n")


def train_target_command(arguments: argparse.Namespace) -> None:
    """Train and export a target."""
    load_backend("torch", arguments.device)
    import torch

    from engine.tokenizer import read_tokenizer
    from engine.training.checkpoint import only_training
    from engine.training.corpus import read_corpus, word_pool
    from engine.training.export import export_target
    from engine.training.recipe import target_recipe
    from engine.training.record import write_training
    from engine.training.target import TargetRun, Trainer

    torch.set_num_threads(arguments.threads)
    files = read_corpus()
    tokenizer = read_tokenizer(arguments.tokenizer)
    recipe = target_recipe(arguments.family, arguments.preset_size, arguments.steps)
    work = work_folder(arguments)
    run = TargetRun(recipe, arguments.seed, work, arguments.evaluate_every, arguments.device)
    with only_training(work):
        trainer = Trainer(run, tokenizer, files, word_pool(files), arguments.documents)
        model = trainer.train(TrainingProgress(arguments.out.name, arguments.quiet), arguments.export_at)
        export_target(model, tokenizer, arguments.out)
        write_training(arguments.out, "target", vars(arguments), trainer=trainer, model=model, files=files)


def train_dflash_command(arguments: argparse.Namespace) -> None:
    """Regenerate data with the target, train its drafter and export it.

    Raises:
        UsageError: If a mask token is named for prompts in the shipped words, which have their own.
    """
    if arguments.mask_token is not None and arguments.prompts != "packages":
        raise UsageError(f"--mask-token {arguments.mask_token!r} is for prompts in other words; add --prompts packages")
    load_backend("torch", arguments.device)
    import torch

    from engine.checkpoint import resolve_model
    from engine.training.corpus import read_corpus
    from engine.training.dflash import DrafterRun, train_drafter
    from engine.training.record import write_training
    from engine.training.tokenizer import MASK_ID, PAD_ID

    torch.set_num_threads(arguments.threads)
    target: Path = arguments.target  # a folder here, as `train target` writes it, or the name of a model
    folder = target.absolute() if (target / "config.json").is_file() else resolve_model(str(target))
    mask, pad, requests = MASK_ID, PAD_ID, None
    if arguments.prompts == "packages":
        mask, pad, requests = _of_packages(arguments, folder)
    run = DrafterRun(
        seed=arguments.seed,
        steps=arguments.steps,
        rows=arguments.rows,
        work=work_folder(arguments),
        prompts=arguments.prompts,
        size=arguments.preset_size,
        evaluate_every=arguments.evaluate_every,
        lag=arguments.lag,
        start=arguments.start,
        mask=mask,
        pad=pad,
        target_layers=arguments.layers,
        head_rows=arguments.head_rows,
        features_on_disk=arguments.features_on_disk,
        least_gain=arguments.least_gain,
        answers=arguments.answers,
    )
    progress = TrainingProgress(arguments.out.name, arguments.quiet)
    trainer = train_drafter(folder, arguments.out, run, progress, arguments.device, requests=requests)
    files = read_corpus() if requests is None else ()
    write_training(arguments.out, "dflash", vars(arguments), trainer=trainer, model=trainer.drafter, files=files)


def _of_packages(arguments: argparse.Namespace, folder: Path) -> tuple[int, int, Callable[[], list[ResponseRequest]]]:
    """Return mask id, padding id and prompts in the words of a target of other people.

    Raises:
        UsageError: If it has no such mask token.
    """
    from engine.checkpoint import read_config, stop_ids
    from engine.tokenizer import Tokenizer
    from engine.training.package_prompts import package_requests

    words = Tokenizer(folder)
    mask = words.special.get(arguments.mask_token or "")
    if mask is None:
        names = ", ".join(sorted(words.special)[:20])
        raise UsageError(
            f"--mask-token {arguments.mask_token!r} is no special token of {folder.name}; name one that it never "
            f"writes: {names}"
        )
    ends = stop_ids(folder, read_config(folder))
    return mask, ends[0] if ends else 0, partial(package_requests, words, arguments.rows, arguments.seed)


def train_ftheta_command(arguments: argparse.Namespace) -> None:
    """Fit an f_theta in closed form, train it further where asked, and write it with its held-out errors.

    Raises:
        UsageError: If a loss is named and no steps, or another training works in the same folder.
    """
    if arguments.loss is not None and arguments.steps is None:
        raise UsageError(f"--loss {arguments.loss} without --steps: the closed form has none; say how many steps")
    load_backend("torch", arguments.device)
    import torch

    from engine.restoration.training import RestorationFit, RestorationRun, write_restoration
    from engine.training.checkpoint import only_training
    from engine.training.record import recorded_command

    torch.set_num_threads(arguments.threads)
    run = RestorationRun(
        target=arguments.target,
        drafter=arguments.drafter,
        input=arguments.input,
        rank=arguments.rank,
        episodes=arguments.episodes,
        length=arguments.length,
        seed=arguments.seed,
        work=work_folder(arguments),
        device=arguments.device,
    )
    with only_training(run.work):
        fit = RestorationFit(run)
        fit.collect(TrainingProgress(arguments.out.name, plain=True))
        tensors, errors = fit.solve()
        if arguments.steps is not None:
            progress = TrainingProgress(arguments.out.name, plain=True)
            tensors, errors = fit.distilled(tensors, arguments.steps, progress, loss=arguments.loss or KL)
        write_restoration(arguments.out, fit, tensors, errors, recorded_command("ftheta", vars(arguments)))
    for (layer, name), error in errors.items():
        print(f"layer {layer} {name}: {error:.3f} of the squares missed on held-out contexts", file=sys.stderr)


def main(argv: list[str]) -> int:
    """Train what the command names and return the exit code."""
    arguments = build_parser().parse_args(argv)
    commands = {
        "tokenizer": train_tokenizer_command,
        "target": train_target_command,
        "dflash": train_dflash_command,
        "ftheta": train_ftheta_command,
    }

    def run() -> int:
        commands[arguments.verb](arguments)
        return 0

    return guarded(run)
