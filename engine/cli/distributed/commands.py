"""``kakeya-engine distributed serve|verify|restore|demo|bench``: a drafter in another process, and what it is worth."""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from engine.bench.remote import RemoteDecode, RemoteTrial, measured_terms
from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.cli.distributed import demo, restore
from engine.cli.distributed.input_end import input_ends
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.decoding.prompt import check_prompts
from engine.distributed.compatibility import named_format
from engine.distributed.loopback import check_loopback
from engine.distributed.placement import PlacementSnapshot, plan
from engine.distributed.restoring import ServedRestoration
from engine.distributed.served import serve_dflash, serve_ngram, serve_restoration
from engine.distributed.session import Served
from engine.distributed.sessions import LEASE_S, MOST_SESSIONS
from engine.drafters.ngram import NgramModel
from engine.errors import UsageError, needs_extra
from engine.isolation.delayed_link import DelayedLink
from engine.isolation.drafter_process import SERVING, DrafterProcess, served_words, serves_lookup
from engine.loading import ELSEWHERE, Engine, resolve_model
from engine.measurement.ratio import paired_ratio
from engine.measurement.selection import Prompt, load_prompts
from engine.options import (
    add_cache_option,
    add_model_options,
    amount,
    cache_layout,
    from_here,
    longest_draft,
    open_lent,
    open_selected,
    open_undrafted,
    positive,
)
from engine.protocols import DrafterModel
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

VERBS = {
    "serve": "offer a drafter, with --restoration rows made again too, on a port of this machine until interrupted",
    "verify": "compare drafts and output with the drafter here, in another process, and with plain decoding",
    "restore": "compare evicted rows made again here and in another process, beside the cache with every row",
    "demo": "two nodes exchange cards, the other one drafts, the target here verifies; link and speeds in one table",
    "agree": "print what both ends of a session have to agree on, as one hash",
    "plan": "measure what a remote drafter brings and costs here, and say whether it is worth asking",
    "bench": "plain decoding, the drafter here, and the drafter behind links of several round-trip times",
}
LOOPBACK = "127.0.0.1:0"
CODE = "code-structured"
PATIENT_S = 600.0
"""How long `verify` waits for a draft: what it compares does not depend on how busy the machine is."""


def parser() -> argparse.ArgumentParser:
    """Return the command line of every verb."""
    built = VerbParser(
        prog="kakeya-engine distributed",
        description="; ".join(f"{verb}: {about}" for verb, about in VERBS.items()),
    )
    built.add_argument("verb", choices=VERBS)
    add_model_options(built)
    built.add_argument(
        "--address",
        help="serve: where to listen; others: a drafter that is served already (default: one started for it). "
        f"127.0.0.1:PORT or unix:/PATH, never another machine's: ssh -L carries it there (default: {LOOPBACK})",
    )
    built.add_argument("--sessions", type=positive, default=MOST_SESSIONS, help="serve: at most (default: %(default)s)")
    built.add_argument("--until-eof", action="store_true", help="serve: also end when standard input does")
    built.add_argument(
        "--rows", default="exact", help="dtype of the rows sent: exact, bfloat16, float8_e4m3 (default: %(default)s)"
    )
    built.add_argument("--set", help=f"prompt set or file (default: {CODE}; restore: {restore.RECALL})")
    built.add_argument("--prompts", type=positive, default=6, help="how many prompts (default: %(default)s)")
    built.add_argument("--max-new", type=positive, default=64, help="token budget (default: %(default)s)")
    built.add_argument("--depth", type=positive, default=3, help="verify, demo: tokens a draft (default: %(default)s)")
    built.add_argument(
        "--rtt", type=_trips, default="0,20,50", help="bench: round-trip times in ms (default: %(default)s)"
    )
    built.add_argument("--here", action="store_true", help="restore: only rows made here, beside every row")
    add_cache_option(built)
    built.add_argument("--link-ms", type=amount, default=0.0, help="plan: round trip of the way there (default: 0)")
    built.add_argument("--link-mib-s", type=amount, help="plan: what goes over it a second (default: unbounded)")
    built.add_argument(
        "--target-ms",
        type=amount,
        default=0.0,
        help="bench, plan, demo: emulate a target this slow a token (default: 0)",
    )
    return built


def _trips(text: str) -> tuple[float, ...]:
    """Return comma-separated round-trip times in ms, an ``argparse`` type.

    Raises:
        argparse.ArgumentTypeError: If one is no number, or there twice.
    """
    trips = tuple(amount(part) for part in text.split(","))
    if len(set(trips)) != len(trips):
        raise argparse.ArgumentTypeError(f"{text!r}; expected each round-trip time once")
    return trips


def _check_measured(options: argparse.Namespace) -> None:
    """Check that there will be something to compare, before anything is loaded.

    Raises:
        UsageError: If there will not.
    """
    if options.max_new < 2:
        raise UsageError("--max-new 1: the first token is the prompt's; expected at least 2, to time one behind it")
    if options.verb == "bench" and options.prompts < 2:
        raise UsageError("--prompts 1: one prompt says nothing about others; expected at least 2")
    if options.link_mib_s == 0:
        raise UsageError("--link-mib-s 0: nothing would ever come; expected what goes over the link in a second")


def main(argv: list[str]) -> int:
    """Run a verb; verify exits 1 where anything differs."""
    options = parser().parse_args(argv)
    verbs = {
        "serve": _serve,
        "verify": _verify,
        "restore": _restore,
        "demo": _demo,
        "agree": _agree,
        "plan": _plan,
        "bench": _bench,
    }
    return guarded(lambda: verbs[options.verb](options))


def _rpc() -> Any:
    """Import what needs gRPC.

    Raises:
        BackendMissingError: If it is not installed.
    """
    with needs_extra("distributed", "gRPC"):
        from engine.distributed.rpc import client, methods, node, remote, server
    return argparse.Namespace(client=client, methods=methods, node=node, remote=remote, server=server)


def _dflash_served(options: argparse.Namespace) -> tuple[Served, ServedRestoration | None]:
    """Load a DFlash drafter with what it borrows of its target, and offer it; with the f_theta that reads it, if named.

    Raises:
        UsageError: If the f_theta named is an address.
    """
    named = from_here(options.restoration)
    if named is not None and named.startswith(ELSEWHERE):
        raise UsageError(f"--restoration {named}: serve loads an f_theta; expected its folder or name")
    backend, drafter, lender, folder = open_lent(options)
    restoring = None if named is None else serve_restoration(backend, drafter, lender, resolve_model(named))
    return serve_dflash(backend, drafter, lender.info, folder), restoring


def _restore(options: argparse.Namespace) -> int:
    _check_measured(options)
    _rpc()
    return restore.show(options)


def _serve(options: argparse.Namespace) -> int:
    rpc = _rpc()
    restoration: ServedRestoration | None = None
    if serves_lookup(options):
        served = {rpc.methods.NGRAM: serve_ngram(NgramModel())}
        if options.restoration is not None:
            raise UsageError(
                "--restoration: prompt lookup reads nothing that rows could be made of; serve a DFlash drafter"
            )
    else:
        drafter, restoration = _dflash_served(options)
        served = {rpc.methods.DFLASH: drafter}
    server = rpc.server.DrafterServer(served, LEASE_S, options.sessions, restoration=restoration)

    async def serve() -> None:
        address = await server.start(options.address or LOOPBACK)
        names = ", ".join(each.offer.info.name for each in served.values())
        names += "" if restoration is None else f", {restoration.offer.name}"
        print(f"{SERVING}{address} · {names}", flush=True)
        try:
            if options.until_eof:
                await input_ends()
            else:
                await server.wait()
        finally:
            await server.stop()

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())
    return 0


@contextmanager
def _served(options: argparse.Namespace) -> Iterator[str]:
    """Yield the address of a drafter: the one named, or one started in a process of its own.

    Raises:
        UsageError: If the one named is no address of this machine.
    """
    if options.address:
        yield check_loopback(options.address, "a drafter at")
        return
    process = DrafterProcess(served_words(options))
    try:
        yield process.address
    finally:
        process.close()


@contextmanager
def _remote(options: argparse.Namespace, engine: Engine, address: str, patience_s: float) -> Iterator[DrafterModel]:
    """Yield the drafter at an address."""
    rpc = _rpc()
    service = rpc.methods.DFLASH if engine.drafter.capture else rpc.methods.NGRAM
    channel = rpc.client.DrafterChannel(address, service)
    try:
        yield rpc.remote.remote_model(
            channel, engine.backend, engine.target, engine.folder, rows=options.rows, patience_s=patience_s
        )
    finally:
        channel.close()


def _opened(options: argparse.Namespace) -> tuple[Engine, list[Prompt]]:
    """Return the engine and the prompts that its budget fits behind.

    Raises:
        UsageError: If there is no drafter, or a cache is named that none of these verbs decodes on.
        PromptError: If the budget does not fit behind one of them.
    """
    if cache_layout(options) != CacheLayout.NATIVE:
        raise UsageError(
            f"--cache {options.cache}: {options.verb} decodes on the native cache; leave it out, or take `distributed "
            "demo` or `restore`, which decode on another"
        )
    depth, options.depth = options.depth, None
    engine = open_selected(options)
    options.depth = depth
    if engine.drafter.info.name == "none":
        raise UsageError("this compares a drafter here with the same one elsewhere; give --drafter one")
    prompts = _prompts(options, engine)
    check_prompts((prompt.ids for prompt in prompts), engine.target.info, options.max_new)
    return engine, list(prompts)


def _prompts(options: argparse.Namespace, engine: Engine) -> tuple[Prompt, ...]:
    """Return as many prompts of the set as were asked for."""
    prompts = load_prompts(options.set or CODE, Tokenizer(engine.folder), engine.target.info.name).prompts
    return prompts[: options.prompts]


def _verify(options: argparse.Namespace) -> int:
    """Compare drafts and output.

    Raises:
        UsageError: If nothing was drafted.
    """
    engine, prompts = _opened(options)
    trial, depth = RemoteTrial(engine, options.max_new), FixedDepth(options.depth)
    drafts = output = compared = 0
    with _served(options) as address, _remote(options, engine, address, PATIENT_S) as remote:
        for prompt in prompts:
            here, there = (trial.decode(prompt.ids, model, depth) for model in (engine.drafter, remote))
            plain = trial.decode(prompt.ids, None, FixedDepth(0))
            same_drafts = there.drafted_as(here)
            drafts += same_drafts
            compared += there.drafted_steps
            output += here.tokens == there.tokens == plain.tokens
            same = "identical" if same_drafts and here.tokens == there.tokens else "DIFFERENT"
            print(f"{prompt.id}: {same}, {there.drafted_steps} drafts, {len(there.tokens)} tokens", flush=True)
    if not compared:
        raise UsageError("no draft was made, so nothing was compared. Try more --prompts, or a larger --max-new")
    count = len(prompts)
    print(f"drafts identical on {drafts} of {count} prompts, output identical to plain decoding on {output} of {count}")
    return 0 if output == count and (drafts == count or options.rows != "exact") else 1


def _demo(options: argparse.Namespace) -> int:
    """Show the chain on one prompt.

    Raises:
        UsageError: If the layout is none, or there would be nothing to time.
    """
    _check_measured(options)
    cache_layout(options)
    rpc = _rpc()
    engine = open_undrafted(options)
    prompt = _prompts(options, engine)[0]
    check_prompts([prompt.ids], engine.target.info, options.max_new)
    return demo.show(options, engine, prompt.ids, rpc)


def _agree(options: argparse.Namespace) -> int:
    backend, drafter, lender, folder = open_lent(options)
    offer = serve_dflash(backend, drafter, lender.info, folder).offer
    row_format = named_format(options.rows, backend.row_dtype(lender))
    print(f"{offer.compatibility(row_format).hex()} {offer.info.name} {row_format}")
    return 0


def _plan(options: argparse.Namespace) -> int:
    _check_measured(options)
    engine, prompts = _opened(options)
    trial = RemoteTrial(engine, options.max_new, options.target_ms / 1e3)
    with ExitStack() as stack:
        address = way = stack.enter_context(_served(options))
        if options.link_ms:
            link = DelayedLink(address, options.link_ms)
            stack.callback(link.close)
            way = link.address
        remote = stack.enter_context(_remote(options, engine, way, PATIENT_S))
        depth = FixedDepth(longest_draft(remote))
        # The first prompt of each warms both ways up.
        plain = [trial.decode(prompt.ids, None, FixedDepth(0)) for prompt in (prompts[0], *prompts)][1:]
        there = [trial.decode(prompt.ids, remote, depth) for prompt in (prompts[0], *prompts)][1:]
        plain_s = sum(decode.decode_s for decode in plain) / sum(len(decode.drafts) for decode in plain)
        placement = plan(PlacementSnapshot(plain_s, (measured_terms(address, there, options.link_mib_s),)))
    print("\n".join(placement.reasons))
    print("no remote drafter" if placement.node is None else f"ask {placement.node}")
    return 0


def _bench(options: argparse.Namespace) -> int:
    _check_measured(options)
    engine, prompts = _opened(options)
    trial = RemoteTrial(engine, options.max_new, options.target_ms / 1e3)
    with ExitStack() as stack:
        address = stack.enter_context(_served(options))
        models: dict[str, DrafterModel | None] = {"plain": None, "here": engine.drafter}
        for trip in options.rtt:
            link = DelayedLink(address, trip)
            stack.callback(link.close)
            models[f"{trip:g} ms away"] = stack.enter_context(_remote(options, engine, link.address, PATIENT_S))
        by_way: dict[str, list[RemoteDecode]] = {way: [] for way in models}
        chooser = random.Random(0)  # noqa: S311 - a reproducible order, not a secret
        # The first prompt of each warms every way up.
        for number, prompt in enumerate((prompts[0], *prompts)):
            for way, model in chooser.sample(sorted(models.items(), key=lambda pair: pair[0]), len(models)):
                depth = FixedDepth(0) if model is None else ControlledDepth(longest_draft(model))
                decode = trial.decode(prompt.ids, model, depth)
                by_way[way] += [decode] if number else []
    plain = by_way["plain"]
    for way, decodes in by_way.items():
        ratio = paired_ratio([decode.decode_s for decode in plain], [decode.decode_s for decode in decodes])
        same = sum(decode.tokens == other.tokens for decode, other in zip(plain, decodes, strict=True))
        print(
            f"{way:<12} {ratio.value:.2f}x plain [{ratio.low:.2f}, {ratio.high:.2f}], identical on {same} of "
            f"{len(decodes)} prompts; {_figures(decodes[-1])}"
        )
    return 0


def _figures(decode: RemoteDecode) -> str:
    """Return what one decode drafted and what crossed the link, as words."""
    row = decode.row()
    words = f"{row['drafted_steps']} of {row['steps']} steps drafted, {row['accepted']} tokens accepted"
    if row["answer_p50_s"] is not None:
        median_ms, most_ms = (1e3 * row[name] for name in ("answer_p50_s", "answer_most_s"))
        words += f"; a draft took {median_ms:.1f} ms in the median, {most_ms:.1f} at most"
        asks = max(len(decode.answers_s), 1)
        sent = ", ".join(f"{kind} {size / asks:.0f}" for kind, size in sorted(decode.sent.items()))
        got = ", ".join(f"{kind} {size / asks:.0f}" for kind, size in sorted(decode.received.items()))
        words += f"; bytes a draft: sent {sent}; received {got}"
    return words
