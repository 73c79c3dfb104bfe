"""What the decoding policy needs from a backend, a drafter and a host.

A backend implements these with its own arrays; the policy never looks inside them. Implementations satisfy the
protocols structurally and pass ``tests/conformance/engine``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.structure.memory import DeviceMemory
from engine.types import (
    BlasInfo,
    Choice,
    Decision,
    Draft,
    DrafterInfo,
    Features,
    Forward,
    Ids,
    Match,
    Pause,
    Proposal,
    Rows,
    Step,
    StoredError,
    TargetInfo,
)
from engine.verification.rejection import Sampling


class Sequence(Protocol):
    """One request on a target: its caches and its captured layers."""

    @property
    def length(self) -> int:
        """Positions in the cache; the bonus sits at this position and is not in it."""

    @property
    def max_positions(self) -> int:
        """Positions that the target holds: prompt and answer end there."""

    def expect(self, new_tokens: int) -> None:
        """Take, before the prompt, how many tokens may follow it: what their number decides is made once."""

    def prefill(self, ids: tuple[int, ...], chunk: int) -> Iterator[Forward]:
        """Forward the prompt in chunks of at most ``chunk`` rows; only the last forward carries logits (one row)."""

    def forward_block(self, bonus: int, draft: Draft) -> Forward:
        """Queue one forward over ``[bonus, *draft]`` and append its rows to the cache."""

    def draft_ahead(self, ids: tuple[int, ...], count: int) -> Ids:
        """Queue ``count`` greedy forwards, the first over ``ids``, each later one over the prediction before it.

        Returns:
            The ``count`` predicted ids on the device, nothing of them read. ``len(ids) + count - 1`` rows were
            appended; the caller crops what is not committed. A row without a usable prediction gives any id.
        """

    def decode_ahead(
        self, bonus: int, limit: int, goes_on: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Decision, Forward]]:
        """Decode up to ``limit`` tokens greedily without drafting, each forward queued before the previous is read.

        Once ``goes_on`` says no, no other forward is queued, and the token of one that is under way is the last. A
        consumer that stops early must ``crop`` to the committed length: one row may have been written ahead.
        """

    def committed(self, forward: Forward, rows: int) -> Features:
        """Return the features of the first ``rows`` rows of ``forward``, None when nothing is captured."""

    def crop(self, length: int) -> None:
        """Crop every layer's cache to ``length`` positions; called exactly once after each ``forward_block``."""

    def rewind(self, length: int) -> None:
        """Go back to any earlier ``length``, between decodes, to continue from there with other tokens.

        Raises:
            CacheCropError: If rows that later ones may see are gone: the sequence has to begin anew.
        """

    def measured_bytes(self) -> int:
        """Return the bytes of all cache buffers, each shared buffer counted once, and of latents."""

    def latent_bytes(self) -> int:
        """Return the bytes of the latents that evicted rows are made of again."""

    def fallbacks(self) -> Mapping[str, int]:
        """Return by reason how many forwards did not run the way the backend was asked to run them."""

    def stored_errors(self, layout: CacheLayout) -> tuple[StoredError, ...]:
        """Return by layer and side what storing the rows held now in ``layout`` would change.

        Raises:
            UsageError: If the sequence does not keep every row.
        """


class TargetModel(Protocol):
    """Weights of the big model, shared by sequences and threads."""

    @property
    def info(self) -> TargetInfo:
        """Name, digest and sizes."""

    def open(self, capture: tuple[int, ...], layout: CacheLayout) -> Sequence:
        """Start a sequence that captures the residual stream after the given zero-based layers."""


class Drafter(Protocol):
    """A proposer's state for one sequence. It is shown committed tokens only, so it never has anything to forget."""

    def round_trip_s(self, source: str) -> float | None:
        """Return the seconds that an ask is on its way at least; None for a drafter of this process.

        Of several drafters ``source`` names the one that is meant.
        """

    def lookup(self, bonus: int) -> Match | None:
        """Return what an earlier place like this one says comes after ``bonus``; None where there is none."""

    def select(self, choice: Choice) -> None:
        """Take what was chosen for the next ``ask``: of several drafters, the one that is asked."""

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Draft up to ``count`` tokens for ``position + 1`` on; ``bonus`` sits at ``position``.

        A drafter elsewhere waits for its draft at most ``wait_s`` seconds, None for as long as its patience lasts; one
        that has not come by then is under way. The next ask drops it.
        """

    def ready(self, bonus: int) -> Draft:
        """Return what is left, behind ``bonus``, of the draft that is under way; never waits.

        ``bonus`` is the newest committed token, the one before it the last that was observed. It may be asked for again
        behind a newer one.
        """

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Take the committed ``tokens`` at ``start`` on with the target's features of those rows.

        Raises:
            ObservationError: If ``start`` is not the number of positions observed so far: after a gap or a repeat every
                later position would be another one, without a sign but fewer accepted tokens.
        """

    def expect(self, new_tokens: int) -> None:
        """Make ready for at most ``new_tokens`` of an answer, in each turn, once the whole prompt was observed.

        What that takes counts as the prompt's time.
        """

    def rewind(self, length: int) -> int:
        """Go back to the first ``length`` positions, between decodes; return how many of them it has observed.

        Raises:
            CacheCropError: If the context before it is gone: the drafter has to begin anew.
        """

    def close(self) -> None:
        """Let go of what is held outside this object, a connection or a thread; the loop calls it when it ends.

        May be called again. Counters and bytes may still be read.
        """

    def measured_bytes(self) -> int:
        """Return the bytes of context held on the device."""

    @property
    def forwards(self) -> int:
        """Drafter forwards run so far; 0 for ever for a drafter without a network."""


class DrafterModel(Protocol):
    """A proposer's weights or rules, shared by sequences."""

    @property
    def info(self) -> DrafterInfo:
        """Name, digest and settings."""

    @property
    def capture(self) -> tuple[int, ...]:
        """Target layers whose features ``observe`` needs, ascending; empty for none."""

    def open(self) -> Drafter:
        """Start a proposer for one sequence."""


@runtime_checkable
class SamplingDrafterModel(DrafterModel, Protocol):
    """A proposer with probabilities: under a sampling rule its own draws are accepted more often than its argmax."""

    def sampling(self, settings: Sampling) -> DrafterModel:
        """Return the proposer drawing its tokens, with their distribution in every draft."""


@runtime_checkable
class LateStartModel(DrafterModel, Protocol):
    """A proposer whose context may begin late: what it shows of a long text is its end."""

    @property
    def context_tokens(self) -> int:
        """How many of the newest positions the context shows."""

    @property
    def rows_apart(self) -> bool:
        """Whether the distribution of each proposed token is known before another one is drawn."""

    def open_at(self, position: int, settings: Sampling | None = None) -> Drafter:
        """Start a proposer that is shown positions from ``position`` on; with ``settings`` one that draws."""


class Accept(Protocol):
    """The rule that turns a forward into tokens: the only host synchronisation of a step."""

    @property
    def greedy(self) -> bool:
        """Whether the rule is the argmax, so that a sequence may decode ahead of it."""

    def first(self, forward: Forward) -> Decision:
        """Decide the first token from the last prefill forward."""

    def decide(self, draft: Draft, forward: Forward) -> Decision:
        """Decide how much of ``draft`` is accepted and which token follows."""

    def margin(self, forward: Forward) -> float:
        """Return the last row's largest logit minus its second largest: how near a tie the choice was."""


class Depth(Protocol):
    """How many tokens to draft next and by whom, learnt from what earlier steps cost and brought."""

    def begin(self, round_trip_s: Callable[[str], float | None]) -> None:
        """Take that another sequence begins, whose text may be of another kind, and how far away its drafters are."""

    def choose(self, position: int, limit: int, lookup: Callable[[], Match | None]) -> Choice:
        """Return the draft of the next step, at most ``limit`` tokens; ``lookup`` finds a match for it."""

    def interrupts(self, position: int, limit: int, lookup: Callable[[], Match | None]) -> bool:
        """Say in a pause whether what a match promises here is worth ending it behind the forward under way."""

    def park(self, position: int) -> Pause:
        """Return for how many tokens (>= 1) to decode without drafting once ``choose`` said 0."""

    def shadowed(self, drafted: int, accepted: int) -> bool:
        """Take how many tokens of a pause's shadow draft came true; return whether to end the pause now."""

    def asked(self, position: int, count: int, draft: Draft, elapsed_s: float) -> None:
        """Take what came of an ask for ``count`` tokens: a draft, or nothing, for which ``elapsed_s`` seconds passed.

        Of one under way first that it is, which plain steps that follow may take longer for, then what became of it.
        One that still is the second time is not looked for any more.
        """

    def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float | None) -> None:
        """Take one finished step that began at ``position``; ``drafted`` is what was really proposed.

        ``elapsed_s`` is None for a plain step of which nobody knows what it took, since a device computed it while the
        consumer was away.
        """


class Clock(Protocol):
    """Time as a benchmark needs it."""

    @property
    def eager(self) -> bool:
        """Whether a call has done its work when it returns, so that readings around it tell what it cost."""

    def now_ns(self) -> int:
        """Wait for every stream in use, then return monotonic nanoseconds."""

    def host_ns(self) -> int:
        """Return monotonic nanoseconds without waiting: for moments right after a host read."""


class NativeDecoder(Protocol):
    """The array library's own autoregressive decoding: the baseline a user would run otherwise."""

    @property
    def code_path(self) -> str:
        """``module:function`` of the code that decodes."""

    def decode(self, prompt: tuple[int, ...], stopping: Stopping, chunk: int) -> Iterator[Step]:
        """Yield one step per token until ``stopping`` ends it, the first from the prefill."""

    def measured_bytes(self) -> int:
        """Return the bytes of the cache of the sequence that made the newest step."""


class Lender(Protocol):
    """What a drafter's host holds of a target that decodes elsewhere."""

    @property
    def info(self) -> TargetInfo:
        """Name and sizes."""


class Backend(Protocol):
    """One array library on one device."""

    @property
    def name(self) -> str:
        """``mlx`` or ``torch``."""

    @property
    def device(self) -> str:
        """``cpu``, ``metal`` or ``cuda:<name>``."""

    @property
    def clock(self) -> Clock:
        """The device clock."""

    def check_tensors(self, folder: Path) -> None:
        """Check names and shapes of a target's tensors against the library's own module; no weights are read."""

    def load_target(self, folder: Path) -> TargetModel:
        """Load a checkpoint folder."""

    def load_lender(self, folder: Path) -> Lender:
        """Load of a target what a DFlash drafter borrows: embedding rows, head, dtype and sizes."""

    def load_mtp(self, folder: Path, target: Any) -> DrafterModel:
        """Load the head for several tokens from a target's own folder.

        Raises:
            ModelWeightsError: If tensors are missing, misshapen, not used or not finite.
        """

    def load_dflash(self, folder: Path, target: Any) -> DrafterModel:
        """Load a DFlash drafter for ``target``, which this backend loaded."""

    def row_dtype(self, target: Any) -> str:
        """Return the name of the dtype of a target's features."""

    def packed(self, features: list[Features], dtype: str) -> bytes:
        """Return the bits of features in a dtype, row by row, little-endian; all of them are read at once."""

    def unpacked(self, data: bytearray, shape: tuple[int, int], dtype: str) -> Features:
        """Return features of such bits on the device."""

    def proposals(self, probs: Rows, most: int) -> list[Proposal]:
        """Return for each row the ids that can be drawn, at most the ``most`` likeliest, with their probabilities."""

    def drawn(self, proposals: list[Proposal], vocab_size: int, uniforms: list[float]) -> tuple[Ids, Rows]:
        """Return an id drawn from each proposal, and the proposals as rows ``[N, vocab_size]``."""

    def load_restoration(self, folder: Path, target: Any, drafter: Any) -> Any:
        """Load an f_theta for ``target`` and ``drafter``, which this backend loaded: a ``Restorer``."""

    def lend_restoration(self, folder: Path, lender: Any, drafter: Any) -> Callable[[], Any]:
        """Load an f_theta for a target elsewhere; return what begins to keep one sequence: ``KeptLatents``."""

    def restored_elsewhere(self, served: Any, target: Any) -> Any:
        """Return what has rows made by an f_theta that is served, once that is known to belong to ``target``."""

    def greedy(self, target: Any) -> Accept:
        """Return the greedy accept rule."""

    def sampling(self, target: Any, settings: Sampling) -> Accept:
        """Return a sampling rule; it owns the draws of one sequence."""

    def native(self, target: Any) -> NativeDecoder:
        """Return the library's own autoregressive decoder."""

    def resident(self, target: Any) -> AbstractContextManager[None]:
        """Return what keeps a target's weights in the accelerator's memory while it decodes; decodes may overlap."""

    def gaps(self, forward: Forward, tokens: tuple[int, ...]) -> tuple[float, ...]:
        """Return by row how far the best logit is above that of ``tokens[row]``, in fp32; 0 where it is the best."""

    def likeliest(self, forward: Forward) -> tuple[int, ...]:
        """Return by row the id that the target holds likeliest, the lowest of several."""

    def log_probabilities(self, forward: Forward, tokens: tuple[int, ...]) -> tuple[float, ...]:
        """Return by row the natural logarithm of the probability of ``tokens[row]`` in it, in fp32."""

    def apart(self, forward: Forward, other: Forward) -> float:
        """Return the largest difference between the logits of two forwards of as many rows, in fp32."""

    def leave_thread(self) -> None:
        """Give back what the calling thread alone may use, at its end; nothing is computed in it after this."""

    def memory(self) -> DeviceMemory | None:
        """Return what the device has room for, None on a CPU or where the library does not say."""

    def allocator_active_bytes(self) -> int | None:
        """Return the allocator's live bytes, None where the library has no counter."""

    def keep_no_freed_memory(self) -> None:
        """Give freed buffers back at once, for a study of memory: one reused for a smaller array counts in full."""

    def versions(self) -> dict[str, str]:
        """Return the versions of the packages that compute."""

    def blas(self) -> BlasInfo | None:
        """Return the matrix library in use on a CPU, None on an accelerator."""
