"""Live logs over a store: a chain of chunk commits, so that a slow reader loses nothing.

Knows nothing about the content of a log; its bytes are untrusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.store.interface import MalformedObjectError, RefStore, RefUpdate
from bridge.bus.store.quarantine import Quarantine
from bridge.bus.store.swap import SwapResult, tips_of
from bridge.bus.views import LogChunk
from bridge.errors import BusError, ObjectError, UntrustedLogError
from bridge.limits import LOG_CHUNK_MAX_BYTES, LOG_MAX_BYTES
from bridge.records.logs import LogHead
from bridge.system.gitobjects import Commit
from bridge.trust.judgement import UNCHECKED, TrustAnswer
from bridge.trust.seals import BusSeals, seal_in

CHAIN_MAX_BYTES: Final = 4 * LOG_MAX_BYTES  # a whole log with its commits and trees


@dataclass(frozen=True)
class _Sent:
    """A log as its writer knows it: the remote's tip, the newest local commit, and the last chunk's number and end."""

    remote: str | None
    built: str
    seq: int
    end_bytes: int


class Logs:
    """The log refs of one bus."""

    def __init__(self, store: RefStore, prefix: str, seals: BusSeals, quarantine: Quarantine) -> None:
        self._store, self._prefix, self._seals, self._quarantine = store, prefix, seals, quarantine
        self._sent: dict[str, _Sent] = {}
        self._signatures: dict[str, TrustAnswer] = {}

    def append(self, chunk: LogChunk, time_unix_s: int, runner: str) -> None:
        """Build a chunk's commit in a runner's name; `pending` sends it. The newest one again changes nothing.

        Raises:
            BusError: it is too large, or does not follow the chunk before it.
        """
        head = chunk.head
        sent = self._sent.get(head.id)
        if sent is not None and (head.seq, head.offset + head.length) == (sent.seq, sent.end_bytes):
            return
        expected = (0, 0) if sent is None else (sent.seq + 1, sent.end_bytes)
        if (head.seq, head.offset) != expected or len(chunk.data) != head.length or head.length > LOG_CHUNK_MAX_BYTES:
            raise BusError(
                f"log chunk {head.seq} at byte {head.offset} with {len(chunk.data)} bytes does not follow; "
                f"expected chunk {expected[0]} at byte {expected[1]}, at most {LOG_CHUNK_MAX_BYTES} bytes"
            )
        parents = () if sent is None else (sent.built,)
        seal = self._seals.sign("log", names.log_ref(self._prefix, head.id), runner, parents, head)
        made, objects = commits.log_commit(chunk, parents, time_unix_s, seal, self._store.committer)
        self._store.write(objects)
        self._sent[head.id] = _Sent(
            None if sent is None else sent.remote, made.oid, head.seq, head.offset + head.length
        )

    def pending(self, run_id: str) -> list[RefUpdate]:
        """Return the update that brings the remote up to date, or nothing."""
        sent = self._sent.get(run_id)
        if sent is None or sent.remote == sent.built:
            return []
        return [RefUpdate(names.log_ref(self._prefix, run_id), sent.built, sent.remote)]

    def acknowledge(self, run_id: str, outcome: SwapResult | None) -> None:
        """Note the outcome of the update that `pending` returned."""
        sent = self._sent.get(run_id)
        if sent is None or outcome is None:
            return
        remote = sent.built if outcome.landed else outcome.tip
        self._sent[run_id] = _Sent(remote, sent.built, sent.seq, sent.end_bytes)

    def forget(self, run_id: str) -> None:
        """Forget the chunks sent for a run that has ended."""
        self._sent.pop(run_id, None)

    def resume(self, run_id: str) -> LogHead | None:
        """Go on behind the chunks that an earlier process sent; None where there are none, and the log begins anew."""
        ref = names.log_ref(self._prefix, run_id)
        tip = tips_of(self._store, [ref]).get(ref)
        head = None if tip is None else self.newest(run_id, tip)
        if tip is not None and head is not None:
            self._sent[run_id] = _Sent(tip, tip, head.seq, head.offset + head.length)
        return head  # None: somebody else's is replaced by the first chunk of ours

    def newest(self, run_id: str, tip: str) -> LogHead | None:
        """Return the newest chunk's head of a log that counts, None where what is there does not.

        One that nobody signed is shown to people; where runners sign it shows nobody that a run was begun.

        Raises:
            InfrastructureError: it cannot be read now.
        """
        ref = names.log_ref(self._prefix, run_id)
        try:
            self._store.obtain({ref: tip}, max_bytes=CHAIN_MAX_BYTES)
            with self._store.reader() as reader:
                chunk, commit = commits.read_chunk(reader, tip)
            self._check(ref, tip, chunk, commit, -1)
        except (ObjectError, UntrustedLogError):
            return None
        counts = chunk.head.id == run_id and not self._answer(ref, chunk, commit).refused
        return chunk.head if counts else None

    def read(self, run_id: str, after_seq: int, tip: str | None = None) -> tuple[LogChunk, ...]:
        """Return the chunks after a sequence number, in order; `tip` is where the log was just seen to end.

        Raises:
            UntrustedLogError: it is not signed by its runner, or was set back behind what this reader has seen.
            ObjectError: the chain has a gap, or holds something else.
        """
        ref = names.log_ref(self._prefix, run_id)
        tip = tip or tips_of(self._store, [ref]).get(ref)
        if tip is None:
            return ()
        with self._quarantine.reading("log", ref, tip):
            return self._chunks(run_id, ref, tip, after_seq)

    def _chunks(self, run_id: str, ref: str, tip: str, after_seq: int) -> tuple[LogChunk, ...]:
        self._store.obtain({ref: tip}, max_bytes=CHAIN_MAX_BYTES)
        chunks: list[LogChunk] = []
        at: str | None = tip
        with self._store.reader() as reader:
            while at is not None:
                chunk, head = commits.read_chunk(reader, at)
                if at == tip:
                    self._check(ref, tip, chunk, head, after_seq)
                if chunk.head.id != run_id or (chunks and chunk.head.seq != chunks[-1].head.seq - 1):
                    raise MalformedObjectError(
                        f"log of run {run_id} has a gap before chunk {chunks[-1].head.seq if chunks else '?'}"
                    )
                if chunk.head.seq <= after_seq:
                    break
                chunks.append(chunk)
                at = head.parents[0] if head.parents else None
        if chunks and chunks[-1].head.seq > max(0, after_seq + 1):
            raise MalformedObjectError(f"log of run {run_id} begins at chunk {chunks[-1].head.seq}")
        return tuple(reversed(chunks))

    def signature(self, run_id: str) -> TrustAnswer:
        """Return the state of the signature of the log last read."""
        return self._signatures.get(run_id, UNCHECKED)

    def _check(self, ref: str, tip: str, chunk: LogChunk, head: Commit, after_seq: int) -> None:
        """Verify the newest chunk; its seal signs the id of its parent, and so every chunk before it.

        Raises:
            UntrustedLogError: the signature is refused.
        """
        signature, runner = self._answer(ref, chunk, head), _signer(head)
        if self._seals.verifies and chunk.head.seq < after_seq:
            signature = TrustAnswer("untrusted", f"set back from chunk {after_seq} to {chunk.head.seq}")
        elif signature.refused and not runner:
            # An unsigned log is shown with a warning, as the signed result carries the log again.
            signature = TrustAnswer("unsigned", signature.why)
        self._signatures[chunk.head.id] = signature
        self._seals.note("log", runner, ref, tip, signature)
        if signature.refused:
            raise UntrustedLogError(
                f"the live log of run {chunk.head.id} is not its runner's: {signature.why}",
                remedy="wait for the result, whose log is signed with it",
            )

    def _answer(self, ref: str, chunk: LogChunk, head: Commit) -> TrustAnswer:
        """Return whether the runner that a chunk names may say it; of one without a seal, whether nobody may."""
        return self._seals.verify("log", ref, runner=_signer(head), head=head, record=chunk.head)


def _signer(head: Commit) -> str:
    """Return the runner that a chunk's seal names, empty where it has none."""
    seal = seal_in(head.message)
    return "" if seal is None else seal.runner
