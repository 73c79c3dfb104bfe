"""A drafter served elsewhere, for a target of this process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from engine.distributed.compatibility import named_format, tokenizer_digest
from engine.distributed.remote_drafter import PATIENCE_S, RemoteModel
from engine.distributed.remote_rows import PATIENCE_S as ROWS_PATIENCE_S
from engine.distributed.remote_rows import RemoteRestoration
from engine.distributed.rpc.client import DESCRIBE_S, DrafterChannel
from engine.distributed.rpc.methods import DFLASH, NGRAM, RESTORATION
from engine.errors import EngineError, SessionError
from engine.protocols import Backend
from engine.structure.layout import EXACT

ROUND_TRIPS = 3
"""How many calls are timed, of which the shortest says how far away a server is."""


def found_model(address: str, backend: Backend, target: Any, folder: Path, wait_s: float = DESCRIBE_S) -> RemoteModel:
    """Return the drafter served at an address, of whichever service it is; the connection lasts as long as the process.

    Args:
        address: of this machine.
        backend: whose arrays the target's features are.
        target: the target that it drafts for.
        folder: the target's folder, for its tokenizer.
        wait_s: how long it may take to answer.

    Raises:
        ModelMismatchError: If the drafter is for another target.
        SessionError: If nobody answers.
        UsageError: If other machines reach the address.
    """
    channel = DrafterChannel(address, DFLASH)
    try:
        return remote_model(channel, backend, target, folder, wait_s=wait_s)
    except EngineError as error:
        channel.close()
        if not isinstance(error, SessionError) or error.status != "UNIMPLEMENTED":
            raise
    return remote_model(DrafterChannel(address, NGRAM), backend, target, folder, wait_s=wait_s)


def remote_model(
    channel: DrafterChannel,
    backend: Backend,
    target: Any,
    folder: Path,
    *,
    rows: str = EXACT,
    patience_s: float = PATIENCE_S,
    wait_s: float = DESCRIBE_S,
) -> RemoteModel:
    """Return the drafter at the other end of a channel.

    Args:
        channel: The connection.
        backend: Whose arrays the target's features are.
        target: The target that it drafts for.
        folder: The target's folder, for its tokenizer.
        rows: The dtype rows are sent in, ``exact`` for their own.
        patience_s: How long its server may be silent with an ask.
        wait_s: How long it may take to say what it is.

    Raises:
        ModelMismatchError: If the drafter is for another target.
        SessionError: If nobody answers.
        UsageError: If there is no such format of rows.
    """
    row_format = named_format(rows, backend.row_dtype(target))
    offer = channel.describe(wait_s)
    offer.check_fits(target.info, tokenizer_digest(folder))
    pack = partial(backend.packed, dtype=row_format) if offer.capture else None
    vocab_size = target.info.vocab_size
    return RemoteModel(
        offer=offer,
        vocab_size=vocab_size,
        connect=channel.connect,
        row_format=row_format,
        pack=pack,
        patience_s=patience_s,
        draw=lambda proposals, uniforms: backend.drawn(proposals, vocab_size, uniforms),
        # The connection is there now: making it took longer than a call does. One call may meet a bad moment.
        round_trip_s=min(channel.round_trip_s() for _ in range(ROUND_TRIPS)),
    )


def remote_restoration(
    address: str, wait_s: float = DESCRIBE_S, patience_s: float = ROWS_PATIENCE_S
) -> RemoteRestoration:
    """Return the f_theta served at an address; the connection lasts as long as the process.

    Args:
        address: of this machine.
        wait_s: how long its host may take to say what it is.
        patience_s: how long it may be silent with rows that were asked for.

    Raises:
        ModelMismatchError: If it speaks another version of the protocol, or says something unusable.
        SessionError: If nobody answers, or makes rows there.
        UsageError: If other machines reach the address.
    """
    channel = DrafterChannel(address, RESTORATION)
    try:
        offer = channel.describe_restoration(wait_s)
    except EngineError:
        channel.close()
        raise
    return RemoteRestoration(offer, channel.address, channel.connect, patience_s)
