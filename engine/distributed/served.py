"""Drafters of this machine as a server offers them."""

from __future__ import annotations

from pathlib import Path

from engine.checkpoint import folder_digest, read_object
from engine.distributed.compatibility import DrafterOffer, tokenizer_digest
from engine.distributed.restoration_offer import RestorationOffer
from engine.distributed.restoring import ServedRestoration
from engine.distributed.session import Drawing, Served
from engine.distributed.sessions import LEASE_S
from engine.drafters.ngram import NgramModel
from engine.errors import SessionError, UsageError
from engine.protocols import Backend, Drafter, DrafterModel, LateStartModel, Lender
from engine.restoration.settings import parse
from engine.types import TargetInfo

MOST_PROPOSED = 64
"""Ids of a distribution that are told for each token: what is likelier than chance is among far fewer."""


def serve_ngram(model: NgramModel, lease_s: float = LEASE_S) -> Served:
    """Return prompt lookup as it is offered: for any tokenizer, from the first token on."""

    def opened(position: int) -> Drafter:
        if position:
            raise SessionError("INVALID_ARGUMENT", f"tokens from position {position} on; expected those before it too")
        return model.open()

    offer = DrafterOffer(model.info, (), None, 0, 0, "", lease_s)
    return Served(offer, opened)


def serve_dflash(
    backend: Backend, model: DrafterModel, target: TargetInfo, folder: Path, lease_s: float = LEASE_S
) -> Served:
    """Return a DFlash drafter as it is offered, for targets with the tokenizer in ``folder``.

    Raises:
        UsageError: If the drafter reads no hidden states, or its context must begin at the first token.
    """
    if not model.capture or not isinstance(model, LateStartModel):
        raise UsageError(f"{model.info.name} reads no hidden states; expected a DFlash drafter, or ngram")
    offer = DrafterOffer(
        info=model.info,
        capture=model.capture,
        context_tokens=model.context_tokens,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        tokenizer=tokenizer_digest(folder),
        lease_s=lease_s,
        most_proposed=MOST_PROPOSED if model.rows_apart else 0,
    )
    drawing = Drawing(model.open_at, backend.proposals) if model.rows_apart else None
    return Served(offer, model.open_at, backend.unpacked, drawing)


def serve_restoration(
    backend: Backend, model: DrafterModel, lender: Lender, folder: Path, lease_s: float = LEASE_S
) -> ServedRestoration:
    """Return an f_theta as it is offered, beside the drafter whose input it reads.

    Args:
        backend: whose arrays rows are made with.
        model: the drafter, loaded here.
        lender: what is loaded of the target.
        folder: the f_theta's.
        lease_s: how long a sequence is kept that nothing is heard of.

    Raises:
        ModelError: If it cannot be loaded, or was fitted for another drafter.
    """
    opened = backend.lend_restoration(folder, lender, model)
    settings = parse(read_object(folder / "config.json"), folder.name)
    digest, hidden_size = folder_digest(folder), lender.info.hidden_size
    offer = RestorationOffer(folder.name, digest, settings, tuple(model.capture), hidden_size, lease_s)
    return ServedRestoration(offer, opened, backend.unpacked, backend.packed)
