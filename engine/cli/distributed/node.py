"""``kakeya-engine node serve|ls``: say what this machine can do, and who else is there."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.cli.distributed.input_end import input_ends
from engine.errors import UsageError, needs_extra

VERBS = {
    "serve": "tell others of this node and hear of them until interrupted",
    "ls": "list the nodes that one of them knows",
}
ROLES = ("target", "drafter")
SERVING = "serving at "


def parser() -> argparse.ArgumentParser:
    """Return the command line of every verb."""
    built = VerbParser(
        prog="kakeya-engine node", description="; ".join(f"{verb}: {about}" for verb, about in VERBS.items())
    )
    built.add_argument("verb", choices=VERBS)
    built.add_argument(
        "--address",
        help="serve: where to listen (default: 127.0.0.1:0); ls: the node that is asked. 127.0.0.1:PORT or "
        "unix:/PATH, never another machine's: ssh -L carries it there",
    )
    built.add_argument("--seed", action="append", default=[], help="serve: a node there is already, or several")
    built.add_argument("--name", default="", help="serve: the node's name (default: the host's)")
    built.add_argument("--role", action="append", default=[], choices=ROLES, help="serve: may be given again")
    built.add_argument("--drafter", help="serve: address of a drafter here; its model is told, and its role")
    built.add_argument("--until-eof", action="store_true", help="serve: also end when standard input does")
    return built


def main(argv: list[str]) -> int:
    """Run a verb."""
    options = parser().parse_args(argv)
    return guarded(lambda: {"serve": _serve, "ls": _list}[options.verb](options))


def _node() -> Any:
    """Import what needs gRPC.

    Raises:
        BackendMissingError: If it is not installed.
    """
    with needs_extra("distributed", "gRPC"):
        from engine.distributed.rpc import node
    return node


def _serve(options: argparse.Namespace) -> int:
    module = _node()
    node = module.GossipNode(_card(options), tuple(options.seed), said=_say)

    async def serve() -> None:
        address = await node.start(options.address or "127.0.0.1:0")
        print(f"{SERVING}{address} · {node.membership.node}", flush=True)
        try:
            if options.until_eof:
                await input_ends()
            else:
                await node.wait()
        finally:
            await node.stop()

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())
    return 0


def _say(warning: str) -> None:
    print(f"warning: {warning}", file=sys.stderr, flush=True)


def _card(options: argparse.Namespace) -> Any:
    """Return what is known of this machine without measuring, and the drafter that is served here.

    Raises:
        UsageError: If a name is no text.
    """
    from engine.distributed.kakeya.v1 import capability_pb2 as pb

    page = os.sysconf("SC_PAGE_SIZE")
    free = os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else 0
    try:
        card = pb.Card(
            node=options.name or socket.gethostname(),
            # A start is newer than the one before it, also after the machine was off.
            generation=time.time_ns() // 1_000_000,
            roles=[_role(pb, name) for name in options.role],
            device=platform.machine(),
            memory_total_bytes=page * os.sysconf("SC_PHYS_PAGES"),
            memory_free_bytes=page * free,
        )
    except UnicodeEncodeError as error:
        raise UsageError(f"a name of this node: {error}; expected UTF-8. Give another --name") from error
    if options.drafter:
        offer = _drafter_at(options.drafter)
        card.endpoints["drafter"] = options.drafter
        facts = {"name": offer.info.name, "digest": offer.info.digest or "", "tokenizer": offer.tokenizer}
        card.models.add(vocab_size=offer.vocab_size, **facts)
        if "drafter" not in options.role:
            card.roles.append(_role(pb, "drafter"))
    return card


def _role(pb: Any, name: str) -> Any:
    return pb.NodeRole.Value(f"NODE_ROLE_{name.upper()}")


def _drafter_at(address: str) -> Any:
    """Return what is served at an address, of whichever service it is."""
    from engine.distributed.rpc.client import DrafterChannel
    from engine.distributed.rpc.methods import DFLASH, NGRAM
    from engine.errors import SessionError

    for service in (DFLASH, NGRAM):
        channel = DrafterChannel(address, service)
        try:
            return channel.describe()
        except SessionError as error:
            if error.status != "UNIMPLEMENTED" or service is NGRAM:
                raise
        finally:
            channel.close()
    raise AssertionError("either service answers or raises")


def _asked(options: argparse.Namespace) -> str:
    if not options.address:
        raise UsageError(f"{options.verb} asks a node; give its --address, as `node serve` printed it")
    return str(options.address)


def _listed(options: argparse.Namespace) -> list[Any]:
    """Return what a node tells; a card that nobody can read is said and left out."""
    from engine.distributed.gossip.membership import unreadable

    entries = _node().listed(_asked(options))
    reasons = [reason for reason in (unreadable(entry.card) for entry in entries) if reason]
    for reason, count in Counter(reasons).items():
        print(f"{count} left out: {reason}", file=sys.stderr)
    return [entry for entry in entries if not unreadable(entry.card)]


def _list(options: argparse.Namespace) -> int:
    entries = _listed(options)
    rows = [("node", "roles", "models", "memory", "heard", "endpoints"), *map(_row, entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _row(entry: Any) -> Sequence[str]:
    from engine.distributed.kakeya.v1 import capability_pb2 as pb

    card = pb.Card.FromString(entry.card)
    names = {value: name.removeprefix("NODE_ROLE_").lower() for name, value in pb.NodeRole.items()}
    columns = (
        card.node,
        ",".join(names.get(role, f"role {role}") for role in card.roles) or "-",
        ",".join(model.name for model in card.models) or "-",
        _memory(card),
        "now" if not entry.silent_ms else f"{entry.silent_ms / 1e3:.1f} s ago",
        " ".join(f"{name}={address}" for name, address in sorted(card.endpoints.items())) or "-",
    )
    # Names and addresses are other nodes' words: no newline and no escape sequence of theirs reaches a terminal.
    return tuple("".join(character if character.isprintable() else "?" for character in text) for text in columns)


def _memory(card: Any) -> str:
    """Return a node's memory in words; what is free a Mac does not tell, and its card leaves out."""
    free, total = (f"{size / 2**30:.1f}" for size in (card.memory_free_bytes, card.memory_total_bytes))
    return f"{free} of {total} GiB" if card.memory_free_bytes else f"{total} GiB"
