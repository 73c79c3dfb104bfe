"""The measurements behind the model cards and the shipped prompt sets."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

from engine.cards.language import greedy_samples, held_out_language
from engine.cards.loading import EvaluatedTarget, load_drafter, load_target
from engine.cards.model_card import (
    DrafterPrompts,
    card_of,
    evaluate_drafter,
    evaluate_target,
    humaneval_prompts,
    packaged_prompts,
    sample_summary,
    spread,
    write_card,
)
from engine.cards.prompts import SETS, build_sets, read_set, write_sets
from engine.cards.recall import measure_recall, needle_prompts
from engine.cards.step_costs import step_costs
from engine.checkpoint import ASSETS, resolve_model
from engine.errors import ModelError, UsageError
from engine.huggingface import take_torch_in
from engine.measurement.selection import SUFFIX
from engine.options import out_folder, positive, whole
from engine.studies.command import StudyCommand
from engine.training.corpus import read_corpus, word_pool

PACKAGES = ("torch", "transformers", "tokenizers", "numpy")


def model_folder(text: str) -> Path:
    """Return a folder with a model, as `train` writes one, or that of a model by its name; an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If there is none.
    """
    path = Path(text)
    try:
        return path if (path / "config.json").is_file() else resolve_model(text)
    except ModelError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def options(parser: argparse.ArgumentParser) -> None:
    """Add one word for each measurement."""
    verbs = parser.add_subparsers(dest="verb", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--threads", type=positive, default=1, help="torch threads")
    of_target = argparse.ArgumentParser(add_help=False)
    of_target.add_argument("--target", type=model_folder, required=True)
    common.add_argument("--prompts", type=Path, default=None, help="folder of prompt sets (default: the packaged ones)")
    build = verbs.add_parser("prompts", parents=[common], help="build the prompt sets and their digests")
    build.add_argument("--targets", type=model_folder, nargs="+", required=True, help="target folders")
    build.add_argument("--seed", type=whole, default=5)
    build.add_argument("--out", type=out_folder, required=True)
    card = verbs.add_parser(
        "card", parents=[common, of_target], help="measure a model and write card.json and MODEL_CARD.md"
    )
    card.add_argument(
        "--drafter", type=model_folder, default=None, help="write this drafter's card instead of the target's"
    )
    card.add_argument("--block-sizes", type=positive, nargs="+", default=[4, 8])
    card.add_argument(
        "--costs",
        type=Path,
        metavar="REPORT",
        help="report of `eval verify-cost` with this drafter: the card says at which block sizes it pays there",
    )
    recall = verbs.add_parser("recall", parents=[common, of_target], help="needle recall at one length")
    recall.add_argument("--length", type=positive, required=True)
    recall.add_argument("--count", type=positive, default=61)
    recall.add_argument("--needles", type=positive, default=1)
    recall.add_argument("--seed", type=whole, default=5)
    verbs.add_parser("language", parents=[common, of_target], help="held-out loss and accuracy")
    samples = verbs.add_parser(
        "samples", parents=[common, of_target], help="greedy continuations of a prompt set with repeats"
    )
    samples.add_argument("--set", default="code-structured")
    samples.add_argument("--count", type=positive, default=20)
    samples.add_argument("--budget", type=positive, default=640)
    acceptance = verbs.add_parser(
        "acceptance", parents=[common, of_target], help="acceptance length before the first loop"
    )
    acceptance.add_argument("--drafter", type=model_folder, required=True)
    acceptance.add_argument("--block-sizes", type=positive, nargs="+", default=[4, 8])


def load_sets(arguments: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Read every prompt set.

    Raises:
        UsageError: If one is not there.
    """
    folder = arguments.prompts or ASSETS / "prompts"
    missing = [name for name in SETS if not (folder / f"{name}{SUFFIX}").is_file()]
    if missing:
        raise UsageError(f"no prompt set {missing[0]} in {folder}; expected {', '.join(SETS)}")
    return {name: read_set(folder, name) for name in SETS}


def drafter_prompts(target: EvaluatedTarget, arguments: argparse.Namespace) -> DrafterPrompts:
    """Return what a drafter is measured on: the packaged prompts where its target speaks their words, else HumanEval's.

    Raises:
        UsageError: If they are not there.
    """
    return packaged_prompts(load_sets(arguments)) if target.speaks_shipped_words else humaneval_prompts()


def prompts_command(arguments: argparse.Namespace) -> dict[str, Any]:
    """Build and write the prompt sets."""
    sets = build_sets([load_target(folder) for folder in arguments.targets], arguments.seed)
    write_sets(sets, arguments.out)
    return {name: len(content["prompts"]) for name, content in sets.items()}


def card_command(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure and write the card of the drafter, or of the target when no drafter is given.

    Raises:
        UsageError: If the report of costs is none or is given without a drafter, or prompts are missing.
    """
    if arguments.costs is not None and arguments.drafter is None:
        raise UsageError(f"--costs {arguments.costs} says what steps with a drafter cost; add --drafter FOLDER")
    steps = None if arguments.costs is None else step_costs(arguments.costs)  # before minutes of measuring
    target = load_target(arguments.target)
    environment = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": str(arguments.threads),
    }
    environment |= {name: importlib.metadata.version(name) for name in PACKAGES}
    command = f"kakeya-engine eval model card --target {arguments.target.name}"
    if arguments.drafter is None:
        evaluation = evaluate_target(target, load_sets(arguments))
        card = card_of(arguments.target, "target", evaluation, command, environment)
        write_card(arguments.target, card)
        return {"written": str(arguments.target / "card.json")}
    drafter = load_drafter(arguments.drafter)
    prompts = drafter_prompts(target, arguments)
    measured = evaluate_drafter(target, drafter, prompts, tuple(arguments.block_sizes))
    evaluation = {"target": arguments.target.name, "acceptance": measured}
    command += f" --drafter {arguments.drafter.name}"
    if steps is not None:
        evaluation["steps"] = steps
        command += f" --costs {arguments.costs.name}"
    write_card(arguments.drafter, card_of(arguments.drafter, "drafter", evaluation, command, environment))
    return {"written": str(arguments.drafter / "card.json")}


def recall_command(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure recall at one length."""
    target, files = load_target(arguments.target), read_corpus()
    texts = [file.text for file in files if file.held_out]
    words = word_pool(files).training
    prompts = needle_prompts(
        target, texts, words, arguments.length, arguments.count, seed=arguments.seed, needles=arguments.needles
    )
    return dataclasses.asdict(measure_recall(target, prompts, arguments.length, arguments.needles))


def language_command(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure held-out loss and accuracy."""
    texts = [file.text for file in read_corpus() if file.held_out]
    return dataclasses.asdict(held_out_language(load_target(arguments.target), texts))


def samples_command(arguments: argparse.Namespace) -> dict[str, Any]:
    """Continue prompts greedily and show the text with its repeats."""
    target = load_target(arguments.target)
    sets = load_sets(arguments)
    if arguments.set not in sets:
        raise UsageError(f"no prompt set {arguments.set!r}; known: {', '.join(sets)}")
    prompts = spread(sets[arguments.set], arguments.count)
    samples = greedy_samples(target, prompts, arguments.budget)
    texts = {item.prompt_id: target.tokenizer.decode(list(item.tokens)) for item in samples}
    return {"summary": sample_summary(samples, arguments.budget), "texts": texts}


def acceptance_command(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure acceptance of a drafter beside the n-gram drafter."""
    target, drafter = load_target(arguments.target), load_drafter(arguments.drafter)
    return evaluate_drafter(target, drafter, drafter_prompts(target, arguments), tuple(arguments.block_sizes))


MEASUREMENTS = {
    "prompts": prompts_command,
    "card": card_command,
    "recall": recall_command,
    "language": language_command,
    "samples": samples_command,
    "acceptance": acceptance_command,
}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Take the measurement that the command names."""
    take_torch_in()
    import torch

    torch.set_num_threads(arguments.threads)
    return MEASUREMENTS[arguments.verb](arguments)


def report(found: dict[str, Any]) -> None:
    """Print the result as JSON."""
    print(json.dumps(found, indent=1))


COMMAND = StudyCommand(
    "`kakeya-engine eval model …`: the measurements behind the model cards and the shipped prompt sets.",
    options,
    measure,
    report,
)
