"""Options that several verbs share, and what they choose: models, a depth policy, a cache layout."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from engine.chat import Message, render_chat
from engine.decoding.arms import CostTable
from engine.decoding.controller import ControlledDepth
from engine.decoding.cost_tables import CostKey, read_costs
from engine.decoding.depth import FixedDepth
from engine.distributed.compatibility import tokenizer_digest
from engine.drafters.dflash_model import DFlashModel
from engine.drafters.ngram import LONGEST_DRAFT, NgramModel
from engine.drafters.none import NoDrafter
from engine.drafters.several import SeveralModel
from engine.errors import SessionError, UsageError, needs_extra
from engine.loading import (
    BACKENDS,
    ELSEWHERE,
    NGRAM,
    Engine,
    known_drafter,
    load_backend,
    open_engine,
    own_drafter,
    resolve_model,
)
from engine.protocols import Backend, Depth, DrafterModel, Lender
from engine.reader import read_checkpoint
from engine.reports.context import PROFILES, processor_name
from engine.restoration.choice import add_restoration_option, chosen_restoration
from engine.structure.layout import CacheLayout

DEFAULT_TARGET = "kakeya-tiny-gemma4"
DEFAULT_DEPTH = 3
"""Drafted tokens per step: a block of 4 rows was the best measured one on CPU."""
AUTO = "auto"
KERNELS = ("flash-linear-attention", "causal-conv1d")
"""Packages whose kernels transformers calls where they are: with them a step costs what it does not without."""
NODE_S = 2.0
"""How long a node that is named may take to tell its cards."""
MAX_DIGITS = 9
MOST_AMOUNT = 1e9


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add backend, target and drafter."""
    parser.add_argument("--backend", choices=BACKENDS, default="mlx", help="array library (default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="torch only: where to run (default: cuda if there)")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16", "auto"),
        help="dtype of the weights, auto for the checkpoint's (default: float32 with torch on a cpu, else auto)",
    )
    parser.add_argument(
        "--cuda-graphs",
        choices=("auto", "on", "off"),
        default="auto",
        help="torch on CUDA only: replay recorded forwards; auto where a trial says they pay (default: %(default)s)",
    )
    parser.add_argument(
        "--target", help=f"model folder or name (default: KAKEYA_TARGET, else the packaged {DEFAULT_TARGET})"
    )
    parser.add_argument(
        "--drafter",
        help="folder or name of a DFlash drafter or of a small model, mtp (the head for several tokens in the target's "
        "own folder, of the Qwen3.5 kind), ngram, none, grpc:127.0.0.1:PORT for one that "
        "`kakeya-engine distributed serve` offers, several separated by commas (needs "
        "--depth auto: each step asks one of them or ngram), or auto: the one named like the target with -dflash "
        "behind, and with --depth auto ngram beside it (default: KAKEYA_DRAFTER, else auto)",
    )
    parser.add_argument(
        "--node",
        metavar="ADDRESS",
        help="with --drafter auto: ask the drafter that `kakeya-engine node serve` at this address knows of, where a "
        "card fits the target (default: KAKEYA_NODE, else none)",
    )
    parser.add_argument(
        "--drafter-context",
        type=positive,
        metavar="TOKENS",
        help="newest positions that a DFlash drafter remembers: its context takes bytes beside the target's (default: "
        "what its config says, else 2048)",
    )


def add_decoding_options(
    parser: argparse.ArgumentParser,
    zero: str = "plain decoding",
    depth: str | None = str(DEFAULT_DEPTH),
    default: str = "%(default)s",
) -> None:
    """Add cache layout and draft depth, where 0 means what ``zero`` says and help tells the default as ``default``."""
    add_cache_option(parser)
    parser.add_argument(
        "--depth",
        default=depth,
        help=f"drafted tokens per step, 0 for {zero}; auto for the never-slower controller, which chooses drafter and "
        f"depth at each step (default: {default})",
    )
    add_chunk_option(parser)


def add_chat_options(parser: argparse.ArgumentParser) -> None:
    """Add how a conversation becomes a prompt."""
    parser.add_argument("--chat-template", metavar="NAME", help="one of the model's templates (default: the usual one)")
    parser.add_argument(
        "--thinking",
        choices=("on", "off"),
        help="tell a template that knows it (default: what it does by itself)",
    )
    parser.add_argument(
        "--template-argument",
        action="append",
        type=template_argument,
        default=[],
        metavar="NAME=VALUE",
        help="what else the template reads, such as reasoning_effort=high: JSON, a word, or @FILE of JSON (as in "
        "tools=@FILE); repeatable",
    )
    parser.add_argument(
        "--date",
        type=day,
        metavar="YYYY-MM-DD",
        help="the day that a template writes into the prompt: with it, another day gives the same (default: today)",
    )
    parser.add_argument("--system", type=utf8, help="what the model is told before the first turn")


def thinking(options: argparse.Namespace) -> bool | None:
    """Return whether the model is to think first, None to leave that to its template."""
    return None if options.thinking is None else str(options.thinking) == "on"


def template_argument(text: str) -> tuple[str, Any]:
    """Return name and value of an argument of a template, an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If there is no name, or the value's file holds no JSON.
    """
    name, equals, value = utf8(text).partition("=")
    if not name.isidentifier() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}; expected NAME=VALUE")
    if value.startswith("@"):
        try:
            return name, json.loads(Path(value[1:]).read_text(encoding="utf-8"))
        except (OSError, RecursionError, ValueError) as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}; expected a file of JSON") from error
    try:
        return name, json.loads(value)
    except RecursionError as error:
        raise argparse.ArgumentTypeError(f"the value of {name!r}: {error}; expected JSON or a word") from error
    except ValueError:
        return name, value


def day(text: str) -> date:
    """Return a date, an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}; expected a date such as 2026-01-31") from error


def conversation_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return how a conversation is rendered, as `Tokenizer.chat` takes it."""
    return {
        "template": options.chat_template,
        "thinking": thinking(options),
        "arguments": dict(options.template_argument),
        "day": options.date,
    }


def check_conversation(options: argparse.Namespace, messages: Sequence[Message]) -> None:
    """Check that the target's template takes a conversation as the options say it, before weights are read.

    Raises:
        ModelError: If the target is none, or its template takes no such conversation.
        UsageError: If the template does not read what it is told.
    """
    folder = target_folder(options)
    read_checkpoint(folder)  # what is no target at all is refused for that
    render_chat(folder, messages, **conversation_settings(options))


def out_folder(text: str) -> Path:
    """Return a folder reports can be written to, an ``argparse`` type: found out before anything is measured.

    Raises:
        argparse.ArgumentTypeError: If a file is in the way, or it cannot be written to.
    """
    path = Path(text)
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: {existing} is a file; expected a folder for reports")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r}: {existing} cannot be written to; expected a folder for reports")
    return path


def add_out_option(parser: argparse.ArgumentParser) -> None:
    """Add where a report goes that no runner asked for."""
    parser.add_argument("--out", type=out_folder, help="report directory when started by hand (default: here)")


def add_report_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add how much a study measures, and where its one report goes."""
    parser.add_argument("--profile", choices=PROFILES, help="how much to measure (default: KAKEYA_PROFILE)")
    parser.add_argument("--report", default=name, help="name of the report (default: %(default)s)")
    add_out_option(parser)


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Add which launch of how many this process is."""
    parser.add_argument("--launch", type=whole, default=0, help="which launch this is, from 0")
    parser.add_argument("--launches", type=positive, default=1, help="how many launches there are")


def check_launch(options: argparse.Namespace) -> None:
    """Check that the launch is one of those there are.

    Raises:
        UsageError: If it is none.
    """
    if not 0 <= options.launch < options.launches:
        raise UsageError(f"--launch {options.launch} of --launches {options.launches}; expected 0 <= launch < launches")


def add_chunk_option(parser: argparse.ArgumentParser) -> None:
    """Add how much of a prompt is forwarded at once."""
    parser.add_argument(
        "--prefill-chunk", type=positive, default=512, help="prompt rows per forward (default: %(default)s)"
    )


def add_cache_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--cache``, the layout of keys and values."""
    parser.add_argument(
        "--cache",
        default="native",
        metavar="LAYOUT",
        help="native: window and block on sliding layers; full: every row on all; lossy: affine8, affine4, affine8/32 "
        "(groups of 32 values), d4x4 and e8x4 (blocks of 4 or 8 values as points of a lattice, 4 bits a value; x8 for "
        "8), sink4+window64 (first 4 and newest 64 rows on full layers), sink4+window64+exact5 "
        "(every row on layer 5), sink4+window64+pages16x10 (and 10 pages of 16 older rows, chosen for each block by "
        "2-bit codes of their keys, or the newest by /recent; +layer5 behind it: on layer 5 alone), "
        "sink4+window64+ftheta64 (older rows are made again by an f_theta of that rank; +ftheta@remote: on the "
        "drafter's host, which sends them, as 16-bit floats with /bfloat16 behind); exact in little memory: "
        "sink4+window64+stream "
        "(older rows are read from a file for every block), sink4+window64+pages16x10+stream (the pages with most "
        "attention stay in memory); +host behind either keeps older rows in the host's memory (default: %(default)s)",
    )
    add_restoration_option(parser)


def utf8(text: str) -> str:
    """Return a text as it is, an ``argparse`` type: a shell hands on bytes that are none.

    Raises:
        argparse.ArgumentTypeError: If it cannot be written in UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"no UTF-8 text at character {error.start}") from error
    return text


def whole(text: str) -> int:
    """Return a number >= 0, an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If the text is none.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number of at most {MAX_DIGITS} digits")
    return int(text)


def positive(text: str) -> int:
    """Return a number >= 1, an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If the text is none.
    """
    if whole(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; expected at least 1")
    return int(text)


def amount(text: str) -> float:
    """Return a number >= 0 that is finite, an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If the text is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 <= number <= MOST_AMOUNT:
        raise argparse.ArgumentTypeError(f"{text!r}; expected a number from 0 to {MOST_AMOUNT:g}")
    return number


def cache_layout(options: argparse.Namespace, *, lossless: bool = False) -> CacheLayout:
    """Return the layout asked for, before anything is loaded.

    Raises:
        UsageError: If the text names none, or one that changes what is decoded where ``lossless`` forbids that.
    """
    layout = CacheLayout.parse(options.cache)
    if lossless and not layout.lossless:
        raise UsageError(
            f"--cache {layout} changes what the target decodes, and this compares tokens with the exact target's; "
            "expected native or full. `kakeya-engine eval kv-quant` and `bounded-kv` measure lossy caches."
        )
    return layout


def counts(name: str, text: str) -> tuple[int, ...]:
    """Return comma-separated counts.

    Raises:
        UsageError: If one is no number.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= MAX_DIGITS for part in parts):
        raise UsageError(f"{name} {text!r}; expected numbers separated by commas")
    return tuple(int(part) for part in parts)


def target_folder(options: argparse.Namespace) -> Path:
    """Return the folder of the target that the options or the environment name.

    Raises:
        ModelNotFoundError: If there is none.
    """
    return resolve_model(from_here(options.target) or os.environ.get("KAKEYA_TARGET") or DEFAULT_TARGET)


def open_selected(options: argparse.Namespace) -> Engine:
    """Load what the options and the environment name; a path that begins with ./ or ../ is taken from here."""
    if getattr(options, "depth", None) is not None:
        check_depth(str(options.depth))
    target = target_folder(options)
    several = getattr(options, "depth", None) == "auto"
    drafter = offered_drafter(options, target, several=several)
    drafter = drafter or chosen_drafter(from_here(options.drafter), target, several=several)
    named = from_here(getattr(options, "restoration", None))
    restoration = chosen_restoration(named, getattr(options, "cache", None), target, drafter)
    backend = load_backend(options.backend, options.device, options.dtype, options.cuda_graphs)
    engine = open_engine(backend, str(target), drafter, restoration=restoration)
    for model in (engine.drafter, *(engine.drafter.named.values() if isinstance(engine.drafter, SeveralModel) else ())):
        if why := getattr(model, "why", ""):  # of one elsewhere that is away
            print(f"warning: {why}; decoding without it, and asking again", file=sys.stderr)
    if options.drafter_context is None:
        return engine
    return replace(engine, drafter=bounded(engine.drafter, options.drafter_context))


def open_undrafted(options: argparse.Namespace) -> Engine:
    """Load what the options name, to decode without a drafter; an f_theta that the layout needs reads the one named."""
    layout = CacheLayout.parse(options.cache)
    changes: dict[str, Any] = {"drafter": "none"} if layout.rank is None or layout.remote is not None else {}
    if layout.remote is not None:
        changes["restoration"] = chosen_restoration(options.restoration, options.cache, Path(), options.drafter)
    return replace(open_selected(argparse.Namespace(**(vars(options) | changes))), drafter=NoDrafter())


def open_lent(options: argparse.Namespace) -> tuple[Backend, DrafterModel, Lender, Path]:
    """Load the drafter that the options and the environment name, and of its target only what it borrows.

    Returns:
        The backend, the drafter, the lender, and the target's folder.

    Raises:
        UsageError: If no DFlash drafter is named.
    """
    target = target_folder(options)
    named = chosen_drafter(from_here(options.drafter), target)
    if named is None or named == NGRAM or named.startswith(ELSEWHERE):
        raise UsageError(f"drafter {named or 'none'} borrows nothing of a target; expected a DFlash drafter")
    folder = resolve_model(named)
    backend = load_backend(options.backend, options.device, options.dtype, options.cuda_graphs)
    lender = backend.load_lender(target)
    model: DrafterModel = backend.load_dflash(folder, lender)
    if options.drafter_context is not None:
        model = bounded(model, options.drafter_context)
    return backend, model, lender, target


def bounded(model: DrafterModel, context_tokens: int) -> DrafterModel:
    """Return a drafter that remembers at most so many positions of its context.

    Raises:
        UsageError: If it keeps no context of its own.
    """
    if isinstance(model, SeveralModel):
        reading = {name: bounded(each, context_tokens) for name, each in model.named.items() if each.capture}
        if reading:
            return replace(model, named=dict(model.named) | reading)
    if isinstance(model, DFlashModel):
        return model.bounded(context_tokens)
    raise UsageError(
        f"--drafter-context {context_tokens} with drafter {model.info.name}; expected a DFlash drafter, which alone "
        "keeps a context beside the target's. Leave the option out"
    )


def chosen_drafter(requested: str | None, target: Path, *, several: bool = False) -> str | None:
    """Return the drafter asked for, else the environment's, else the one that belongs to the target; None for none.

    Where each step may choose among ``several``, ``ngram`` stands beside the target's own drafter, or alone.

    Raises:
        UsageError: If none is named and none is known for the target, or several are named and one is needed.
    """
    named = requested or os.environ.get("KAKEYA_DRAFTER") or AUTO
    if named == AUTO:
        own = own_drafter(target) if not several else known_drafter(target)
        return f"{own},{NGRAM}" if several and own else own or NGRAM
    if "," in named and not several:
        raise UsageError(f"--drafter {named!r} names several; expected one, or --depth auto, which chooses among them")
    return None if named == "none" else named


def offered_drafter(options: argparse.Namespace, target: Path, *, several: bool) -> str | None:
    """Return the drafter elsewhere that a card fits the target by, None where no node is named or none fits.

    Why a node that is named is not asked goes to standard error; decoding goes on with the drafter here.

    Raises:
        BackendMissingError: If gRPC is not installed.
        UsageError: If other machines would be asked.
    """
    node = getattr(options, "node", None) or os.environ.get("KAKEYA_NODE")
    if not node or (options.drafter or os.environ.get("KAKEYA_DRAFTER") or AUTO) != AUTO:
        return None
    with needs_extra("distributed", "gRPC"):
        from engine.distributed.gossip.choice import drafters_of
        from engine.distributed.rpc.node import known_cards
    try:
        choices = drafters_of(known_cards(node, NODE_S), "", tokenizer_digest(target))
    except SessionError as error:
        print(f"warning: {error}; drafting here", file=sys.stderr)
        return None
    fitting = [choice for choice in choices if not choice.misfit and not choice.any_tokenizer]
    if not fitting:
        reasons = "; ".join(f"{choice.node}: {choice.misfit or 'prompt lookup, as here'}" for choice in choices)
        print(f"warning: no card that {node} knows fits ({reasons or 'none has a drafter'}); here", file=sys.stderr)
        return None
    return f"{ELSEWHERE}{fitting[0].address}" + (f",{NGRAM}" if several else "")


def from_here(model: str | None) -> str | None:
    """Return a relative path that says it is one as an absolute one, of several separated by commas each.

    A bare name never means a folder in here.
    """
    parts = [] if model is None else model.split(",")
    paths = [str(Path(part).absolute()) if part.split("/", 1)[0] in {".", ".."} else part for part in parts]
    return ",".join(paths) if paths else None


def check_depth(text: str) -> None:
    """Check a depth before anything is loaded.

    Raises:
        UsageError: If ``text`` names no policy.
    """
    if text != AUTO and not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise UsageError(f"--depth {text!r}; expected a number of tokens, or {AUTO}")


def longest_depth(engine: Engine) -> int:
    """Return how many tokens a step may draft at most: the drafter's block without its bonus row."""
    if isinstance(engine.drafter, SeveralModel):
        return max([LONGEST_DRAFT, *map(longest_draft, engine.drafter.named.values())])
    return longest_draft(engine.drafter)


def longest_draft(model: DrafterModel) -> int:
    """Return how many tokens a drafter proposes at most."""
    return model.info.block_size - 1 if model.info.block_size else LONGEST_DRAFT


def asked_drafters(model: DrafterModel) -> dict[str, int]:
    """Return by name the drafters of a step that must be asked to know what they propose, with the most they draft."""
    if isinstance(model, SeveralModel):
        return {name: longest_draft(each) for name, each in model.named.items()}
    return {} if isinstance(model, NgramModel) else {"": longest_draft(model)}


def cost_key(engine: Engine) -> CostKey:
    """Return what step costs that are measured with an engine hold for."""
    info, backend = engine.target.info, engine.backend
    machine = f"{platform.system()} {processor_name()}, {backend.device}"
    kernels = _versions(KERNELS) if backend.name == "torch" else {}
    return CostKey(machine, info.digest, info.dtype, {**backend.versions(), **kernels})


def _versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    installed: dict[str, str] = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def check_drafting(layout: CacheLayout, engine: Engine, policy: Mapping[str, object]) -> None:
    """Check a layout against the drafter and a depth policy as `depth_factory` describes it.

    Raises:
        UsageError: If they do not go together.
    """
    drafted = 0 if isinstance(engine.drafter, NoDrafter) else policy.get("longest", policy.get("tokens"))
    layout.check_block(1 + int(str(drafted)))


def add_costs_option(parser: argparse.ArgumentParser) -> None:
    """Add the file of step costs that the controller starts from."""
    parser.add_argument(
        "--costs",
        type=Path,
        metavar="FILE",
        help="step costs of this model on this machine, as `eval verify-cost --costs FILE` writes them: --depth auto "
        "starts from them; those of another machine, model, dtype or library are named and not used",
    )


def starting_costs(path: Path | None, engine: Engine) -> CostTable | None:
    """Return the table that a controller starts from, None without a file or where it holds for something else.

    Of drafters it says what steps with those of the same names take, and nothing of another.
    """
    if path is None:
        return None
    try:
        table = read_costs(path, cost_key(engine))
    except UsageError as error:
        print(f"note: {error}; costs are measured while decoding", file=sys.stderr)
        return None
    own = table.get(engine.drafter.info.name)
    # A drafter that is the only one has no name where it is asked.
    return table if own is None else {**table, "": own}


def depth_factory(
    text: str, engine: Engine, costs: Path | None = None
) -> tuple[Callable[[], Depth], dict[str, object]]:
    """Return a maker of fresh depth policies and their description for reports; a cut to the drafter's block is said.

    A fixed depth of several drafters asks the first of them, and looks nothing up.

    Args:
        text: Names the policy.
        engine: Whose drafters are asked.
        costs: File of step costs that a controller starts from.

    Raises:
        UsageError: If ``text`` names no policy.
    """
    check_depth(text)
    if text == "auto":
        drafters, table = asked_drafters(engine.drafter), starting_costs(costs, engine)
        return lambda: ControlledDepth(drafters, table), {"policy": "controller", "longest": longest_depth(engine)}
    source, drafter = "", engine.drafter
    if isinstance(drafter, SeveralModel):
        source, drafter = next(iter(drafter.named.items()), ("", drafter.looking))
    longest = longest_draft(drafter)
    depth = min(int(text), longest)
    if depth < int(text):
        name = drafter.info.name
        print(f"note: --depth {text}: {name} proposes at most {longest} tokens a step, so {depth}", file=sys.stderr)
    return lambda: FixedDepth(depth, source), {"policy": "fixed", "tokens": depth}
