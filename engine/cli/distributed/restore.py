"""``kakeya-engine distributed restore``: evicted rows made again here and by a host elsewhere, beside every row."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from engine.bench.restored import RestoredDecode, RestoredTrial
from engine.decoding.prompt import check_prompts
from engine.distributed.loopback import check_loopback
from engine.errors import UsageError
from engine.isolation.drafter_process import DrafterProcess, served_words
from engine.loading import ELSEWHERE, Engine, own_restoration
from engine.measurement.selection import Prompt, answered, load_prompts
from engine.options import open_undrafted
from engine.structure.layout import EXACT, CacheLayout
from engine.tokenizer import Tokenizer

RECALL = "recall-one"
USUAL = "sink4+window64+ftheta64@remote"


def layouts(text: str) -> tuple[CacheLayout, CacheLayout]:
    """Return the layout of the rows made here and of those made elsewhere.

    Raises:
        UsageError: If nothing is made elsewhere, or the rank is not said.
    """
    there = CacheLayout.parse(USUAL if text == str(CacheLayout.NATIVE) else text)
    if there.remote is None or not there.rank:
        raise UsageError(
            f"--cache {there}: restore compares rows made here with those made elsewhere; expected a layout with "
            f"+fthetaRANK@remote, such as {USUAL}"
        )
    return replace(there, remote=None), there


def show(options: argparse.Namespace) -> int:
    """Decode on every rung, print what each found, held and moved; return 1 where exact rows gave other tokens there.

    Raises:
        UsageError: If the layout has nothing made elsewhere, nothing was, or the f_theta there is another one.
    """
    if options.cache == str(CacheLayout.FULL):
        print("nothing is made again: every row is kept")
        return 0
    here, there = layouts(options.cache)
    if options.restoration and options.restoration.startswith(ELSEWHERE):
        raise UsageError(f"--restoration {options.restoration}: name the folder here, and the host with --address")
    engine = open_undrafted(argparse.Namespace(**(vars(options) | {"cache": str(here)})))
    tokenizer = Tokenizer(engine.folder)
    prompts = load_prompts(options.set or RECALL, tokenizer, engine.target.info.name).prompts[: options.prompts]
    check_prompts((prompt.ids for prompt in prompts), engine.target.info, options.max_new)
    trial = RestoredTrial(engine, options.max_new)
    with ExitStack() as stack:
        remote = None if options.here else stack.enter_context(_served(options, engine))
        restorer = None if remote is None else engine.backend.restored_elsewhere(remote, engine.target)
        decodes = {"native": [trial.decode(prompt.ids, CacheLayout.NATIVE) for prompt in prompts]}
        decodes["here"] = [trial.decode(prompt.ids, here) for prompt in prompts]
        if remote is not None:
            decodes["elsewhere"] = [trial.decode(prompt.ids, there, restorer, remote.traffic) for prompt in prompts]
    print("\n".join(table(decodes, prompts, tokenizer)))
    if options.here:
        return 0
    if not any(decode.traffic.asks for decode in decodes["elsewhere"]):
        raise UsageError(
            f"--cache {there}: no row left the window on any prompt, so nothing was made again and nothing "
            "compared. Take longer prompts (--set), or a smaller window"
        )
    same = sum(mine.tokens == other.tokens for mine, other in zip(decodes["here"], decodes["elsewhere"], strict=True))
    print(f"rows made elsewhere gave the tokens of rows made here on {same} of {len(prompts)} prompts")
    return 0 if same == len(prompts) or there.remote != EXACT else 1


@contextmanager
def _served(options: argparse.Namespace, engine: Engine) -> Iterator[Any]:
    """Yield the f_theta at the address named, or of a host started in a process of its own.

    Raises:
        UsageError: If it is another one than is loaded here.
    """
    from engine.distributed.rpc.remote import remote_restoration

    process: DrafterProcess | None = None
    if options.address:
        address = check_loopback(options.address, "a host at")
    else:
        target: Any = engine.target
        named = options.restoration or own_restoration(engine.folder, target.restorer.settings.rank)
        process = DrafterProcess([*served_words(options), "--restoration", named])
        address = process.address
    try:
        remote = remote_restoration(address)
        loaded = engine.restoration
        if loaded is not None and loaded.digest != remote.offer.digest:
            raise UsageError(
                f"{remote.offer.name!r} is served at {address}, {loaded.name!r} is loaded here; expected the same "
                "f_theta on both sides. Name one with --restoration"
            )
        yield remote
    finally:
        if process is not None:
            process.close()


def table(decodes: dict[str, list[RestoredDecode]], prompts: Sequence[Prompt], tokenizer: Tokenizer) -> Iterator[str]:
    """Yield a line for each way: what it found, held and moved, a prompt."""
    recall = any(prompt.expected is not None for prompt in prompts)
    for way, answers in decodes.items():
        texts = [tokenizer.decode(decode.tokens) for decode in answers]
        right = sum(answered(prompt, text) for prompt, text in zip(prompts, texts, strict=True))
        count = len(answers)
        words = f"{way:<10} " + (f"{right} of {count} codes found, " if recall else "")
        words += f"{sum(decode.held_bytes for decode in answers) / count / 1e6:.2f} MB held, "
        words += f"first token after {sum(decode.prefill_s for decode in answers) / count:.2f} s, "
        words += f"then {1e3 * sum(decode.decode_s for decode in answers) / count:.0f} ms"
        moved = [decode.traffic for decode in answers]
        if any(traffic.asks for traffic in moved):
            words += f"; sent {sum(each.sent for each in moved) / count / 1e6:.2f} MB, received "
            words += f"{sum(each.received for each in moved) / count / 1e6:.2f} MB in "
            words += f"{sum(each.asks for each in moved) / count:.0f} asks, which were waited for "
            words += f"{sum(each.waited_s for each in moved) / count:.2f} s"
        yield words
