"""The services of ``kakeya.v1`` as gRPC paths with their messages.

Both services carry the same sessions; they differ in whether rows come with the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.stream import Message, Reply

MESSAGE_BYTES = 4 << 20
"""The largest message either side takes: a chunk, or the tokens of a block, with room to spare."""
KINDS = {
    pb.Open: "open",
    pb.Block: "block",
    pb.Renew: "renew",
    pb.Close: "close",
    pb.Chunk: "chunk",
    pb.Shown: "shown",
    pb.Wanted: "wanted",
}


@dataclass(frozen=True, slots=True)
class DraftingService:
    """One service: its full name, its two methods, and the messages that wrap those of a session."""

    name: str
    describe: str
    stream: str
    describe_request: Any
    described: Any
    request: Any
    response: Any

    def path(self, method: str) -> str:
        """Return the path of a method."""
        return f"/{self.name}/{method}"

    def wrapped(self, message: Message) -> Any:
        """Return a session's message as a request of the stream."""
        return self.request(**{KINDS[type(message)]: message})

    def unwrapped(self, response: Any) -> Reply | None:
        """Return what a response carries, None where it is a kind that is not known here."""
        kind = response.WhichOneof("kind")
        return None if kind is None else getattr(response, kind)


NGRAM = DraftingService(
    "kakeya.v1.ProposerService",
    "DescribeProposer",
    "Propose",
    pb.DescribeProposerRequest,
    pb.DescribeProposerResponse,
    pb.ProposeRequest,
    pb.ProposeResponse,
)
DFLASH = DraftingService(
    "kakeya.v1.DFlashProposerService",
    "DescribeDFlash",
    "DraftBlocks",
    pb.DescribeDFlashRequest,
    pb.DescribeDFlashResponse,
    pb.DraftBlocksRequest,
    pb.DraftBlocksResponse,
)
RESTORATION = DraftingService(
    "kakeya.v1.RestorationService",
    "DescribeRestoration",
    "Restore",
    pb.DescribeRestorationRequest,
    pb.DescribeRestorationResponse,
    pb.RestoreRequest,
    pb.RestoreResponse,
)
SERVICES = {"ngram": NGRAM, "dflash": DFLASH}
