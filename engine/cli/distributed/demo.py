"""``kakeya-engine distributed demo``: two nodes exchange cards, the target's asks the other's drafter, one table.

The card says whom to ask, the link is measured, the target verifies here. Each arm decodes the same prompt: plainly,
with the drafter elsewhere, and where the cache is bounded plainly with every row, for the bytes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from engine.bench.remote import RemoteDecode, RemoteTrial, measured_terms
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.distributed.compatibility import tokenizer_digest
from engine.distributed.placement import PlacementSnapshot, plan
from engine.errors import UsageError
from engine.isolation.children import ServingChild
from engine.isolation.drafter_process import SERVING, DrafterProcess, served_words, serves_lookup
from engine.loading import Engine
from engine.options import cache_layout, longest_draft
from engine.protocols import DrafterModel
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

ROUND_TRIPS = 300
HERE = "target"
MEET_S = 60.0
TERMS_TOKENS = 24
PATIENT_S = 600.0


@contextmanager
def nodes(options: argparse.Namespace, node: Any) -> Iterator[Any]:
    """Yield this process's node, which knows the one named, or one started in a process of its own with a drafter.

    Args:
        options: of the verb; ``node`` names one that is there, ``address`` a drafter that is.
        node: the module of nodes.
    """
    from engine.distributed.kakeya.v1 import capability_pb2 as pb
    from engine.distributed.rpc.in_thread import serving

    with ExitStack() as stack:
        seed = options.node
        if not seed:
            address = options.address
            if not address:
                drafter = DrafterProcess(served_words(options))
                stack.callback(drafter.close)
                address = drafter.address
            words = ["serve", "--until-eof", "--name", "drafter", "--drafter", address]
            other = ServingChild("the drafter's node", "engine.cli", ["node", *words])
            stack.callback(other.close)
            seed = other.first_line.removeprefix(SERVING).split()[0]
        card = pb.Card(node=HERE, generation=time.time_ns() // 1_000_000, roles=[pb.NODE_ROLE_TARGET])
        own = node.GossipNode(card, (seed,), round_s=0.2)
        stack.enter_context(serving(own))
        yield own


def meet(own: Any, seed: str, tokenizer: str, *, lookup: bool) -> Any:
    """Wait until a card names a drafter that fits; return what it says.

    Args:
        own: this process's node.
        seed: who was asked, for the message.
        tokenizer: sha256 of the target's tokenizer.
        lookup: whether a drafter for any tokenizer will do.

    Raises:
        UsageError: If none came in time.
    """
    from engine.distributed.gossip.choice import drafters_of

    end_s, choices = time.monotonic() + MEET_S, []
    while time.monotonic() < end_s:
        choices = drafters_of(own.membership.cards().values(), HERE, tokenizer)
        fitting = [choice for choice in choices if not choice.misfit and (lookup or not choice.any_tokenizer)]
        if fitting:
            return fitting[0]
        if choices and len(own.membership.cards()) > 1 and not any(not choice.misfit for choice in choices):
            break
        time.sleep(0.05)
    reasons = "; ".join(f"{choice.node}: {choice.misfit or 'drafts for any tokenizer'}" for choice in choices)
    raise UsageError(f"no node's card names a drafter that fits: {reasons or f'none is known at {seed}'}")


def show(options: argparse.Namespace, engine: Engine, prompt: tuple[int, ...], rpc: Any) -> int:
    """Run the chain and print its table; return 1 where the tokens differ.

    Args:
        options: of the verb.
        engine: the target, without a drafter.
        prompt: what is completed.
        rpc: the modules that need gRPC.
    """
    layout = cache_layout(options)
    with nodes(options, rpc.node) as own:
        seed, tokenizer = options.node or "its address", tokenizer_digest(engine.folder)
        choice = meet(own, seed, tokenizer, lookup=serves_lookup(options))
        cards = own.membership.cards()
        print(f"cards: {', '.join(sorted(cards))}; {choice.node} offers {choice.model} at {choice.address}")
        model, trips = _connected(rpc, engine, choice, options.rows)
        terms = _terms(engine, choice.node, model, prompt, options)
        placement = plan(PlacementSnapshot(terms[0], (terms[1],)))
        print(f"placement: colocated={choice.colocated}; {placement.reasons[0]}")
        trial = RemoteTrial(engine, options.max_new, options.target_ms / 1e3, layout)
        plain = trial.decode(prompt, None, FixedDepth(0))
        depth = min(options.depth, longest_draft(model))
        there = trial.decode(prompt, model, FixedDepth(depth))
        chosen = trial.decode(prompt, model, ControlledDepth(longest_draft(model)))
        native = plain
        if layout != CacheLayout.NATIVE:
            native = RemoteTrial(engine, options.max_new).decode(prompt, None, FixedDepth(0))
    print(Tokenizer(engine.folder).decode(there.tokens))
    same = there.tokens == chosen.tokens == plain.tokens
    for name, value in table(trips, {"local": plain, f"{depth} a draft": there, "auto": chosen}, native, layout):
        print(f"{name:<28} {value}")
    print(f"output: {'identical to' if same else 'OTHER than'} local decoding, {len(there.tokens)} tokens")
    return 0 if same else 1


def table(
    trips_s: list[float], decodes: dict[str, RemoteDecode], native: RemoteDecode, layout: CacheLayout
) -> list[tuple[str, str]]:
    """Return the rows of the table: the link, speeds and acceptance, and the target's keys and values.

    Args:
        trips_s: seconds of calls that nothing is computed for.
        decodes: by name, plain decoding first; then with the drafter elsewhere.
        native: plain decoding with every row.
        layout: of the others.
    """
    (_, plain), *others = decodes.items()
    there = others[0][1]
    trip = f"{1e3 * statistics.median(trips_s):.2f} / {1e3 * max(trips_s):.2f} ms (n {len(trips_s)})"
    memory = f"{there.kv_bytes / 1024:.0f} KiB with {layout}"
    if there.kv_bytes < native.kv_bytes:
        memory += f", {native.kv_bytes / there.kv_bytes:.1f}x less than the {native.kv_bytes / 1024:.0f} of every row"
    return [
        ("round trip, median / most", trip),
        ("local tokens/s", f"{plain.tokens_per_s:.1f}"),
        *((f"distributed, {name}", _speed(plain, decode)) for name, decode in others),
        ("the target's keys and values", memory),
    ]


def _speed(plain: RemoteDecode, decode: RemoteDecode) -> str:
    """Return tokens a second, against plain decoding, and how many drafted tokens were accepted."""
    drafted, accepted = decode.drafted_tokens, decode.accepted_tokens
    share = f"acceptance {accepted / drafted:.3f} ({accepted} of {drafted})" if drafted else "nothing drafted"
    return f"{decode.tokens_per_s:.1f} tokens/s ({plain.decode_s / decode.decode_s:.2f}x), {share}"


def _connected(rpc: Any, engine: Engine, choice: Any, rows: str) -> tuple[DrafterModel, list[float]]:
    """Return the drafter of a card, and seconds of calls to it that nothing is computed for."""
    service = rpc.methods.NGRAM if choice.any_tokenizer else rpc.methods.DFLASH
    channel = rpc.client.DrafterChannel(choice.address, service)
    model = rpc.remote.remote_model(
        channel, engine.backend, engine.target, engine.folder, rows=rows, patience_s=PATIENT_S
    )
    return model, [channel.round_trip_s() for _ in range(ROUND_TRIPS)]


def _terms(
    engine: Engine, node: str, model: DrafterModel, prompt: tuple[int, ...], options: argparse.Namespace
) -> tuple[float, Any]:
    """Return seconds of a plain step and the drafter's terms, measured on a few tokens; both ways are warm then."""
    trial = RemoteTrial(engine, TERMS_TOKENS, options.target_ms / 1e3)
    plain, there = [
        [trial.decode(prompt, drafter, depth) for _ in range(2)][1]
        for drafter, depth in ((None, FixedDepth(0)), (model, FixedDepth(longest_draft(model))))
    ]
    return plain.decode_s / len(plain.drafts), measured_terms(node, [there], options.link_mib_s)
