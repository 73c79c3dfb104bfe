"""The arms of studies with a drafter elsewhere: plain decoding, the drafter here, and the same one over a connection.

The baseline is the array library's own decoding. What each arm proposed and called is kept beside its samples::

    {"rpcs": [{"arm", "method", "seconds", "drafting_s", "round_trips_s", "bytes_sent", "bytes_received"}]}
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from engine.decoding.controller import ControlledDepth
from engine.decoding.prompt import check_prompts
from engine.decoding.speculative import Parts, speculative
from engine.distributed.remote_drafter import RemoteDrafter
from engine.errors import UsageError, needs_extra
from engine.isolation.delayed_link import DelayedLink
from engine.isolation.drafter_process import DrafterProcess, served_words
from engine.loading import Engine
from engine.measurement.arms import ArmSettings, Running, fell_back, native
from engine.measurement.launch import fallbacks, top2_margin, with_margins
from engine.measurement.measure import Instruments, Measured, SamplePlace, measure_sample
from engine.measurement.recorded import RecordedSequence
from engine.measurement.selection import Prompt
from engine.protocols import DrafterModel
from engine.reports import Arm, Sample, token_digest
from engine.stopping import Stopping
from engine.types import Step

LOCAL, LOCAL_AGAIN, IN_PROCESS = "local", "local_again", "in-process"
CODE_PATH = "engine.decoding.speculative:speculative"
CHOSEN_PLAIN = "the policy chose plain decoding"
PROBES = 20
"""Round trips timed before and behind the samples of an arm."""
PATIENT_S = 600.0
"""How long a draft is waited for: what is drafted does not depend on how busy the machine is."""


@dataclass(slots=True)
class DraftingArm:
    """An arm that drafts: its drafter, the connection it is asked over if any, and what its calls came to."""

    name: str
    model: DrafterModel
    channel: Any = None
    round_trips_s: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    drafting_s: list[float] = field(default_factory=list)
    bytes_sent: int = 0
    bytes_received: int = 0
    digests: dict[str, str] = field(default_factory=dict)
    opened: Any = None

    def probe(self) -> None:
        """Time round trips that carry nothing."""
        if self.channel is not None:
            self.round_trips_s += [self.channel.round_trip_s() for _ in range(PROBES)]

    def begin(self, engine: Engine, settings: ArmSettings, prompt: tuple[int, ...], stopping: Stopping) -> Running:
        """Begin decoding a prompt with the drafter."""
        sequence: Any = RecordedSequence(engine.target.open(self.model.capture, settings.layout))
        drafter = self.model.open()
        self.opened = (sequence, drafter)
        depth = settings.depth()
        parts = Parts(sequence, drafter, engine.accept, depth, engine.backend.clock, engine.resident)
        steps = speculative(parts, prompt, stopping, settings.chunk_tokens)
        return Running(
            steps=told_plain(steps) if isinstance(depth, ControlledDepth) else steps,
            kv_bytes=sequence.measured_bytes,
            drafter_bytes=drafter.measured_bytes,
            fallbacks=lambda: fell_back(sequence, drafter),
        )

    def end(self, sample_id: str) -> None:
        """Keep what the sample that was begun last proposed, and what it called."""
        sequence, drafter = self.opened
        proposed = sequence.proposed()
        self.digests[sample_id] = token_digest(tuple(one for ids in proposed for one in (len(ids), *ids)))
        if isinstance(drafter, RemoteDrafter):
            self.seconds += drafter.traffic.seconds
            self.drafting_s += drafter.traffic.drafting_s
            self.bytes_sent += sum(drafter.traffic.sent.values())
            self.bytes_received += sum(drafter.traffic.received.values())

    def calls(self) -> dict[str, Any]:
        """Return the report's row of its calls."""
        return {
            "arm": self.name,
            "method": "Draft",
            "seconds": self.seconds,
            "drafting_s": self.drafting_s,
            "round_trips_s": self.round_trips_s,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
        }


def told_plain(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps of a policy that may choose; one that drafted nothing for no other reason says that it chose so.

    A drafter elsewhere that is too far away is asked for nothing at all: a report has to say why nobody called it.
    """
    for step in steps:
        chosen = not (step.prefill or step.drafted or step.skipped)
        yield replace(step, skipped=CHOSEN_PLAIN) if chosen else step


@dataclass(frozen=True, slots=True)
class DistributedPlan:
    """What one launch measures; ``orders`` has one order of the arms for each measured prompt."""

    plain: tuple[str, ...]
    drafting: Sequence[DraftingArm]
    warmups: Sequence[Prompt]
    measured: Sequence[Prompt]
    orders: Sequence[Sequence[str]]
    launch: int
    max_new_tokens: int
    stop_ids: frozenset[int]
    settings: ArmSettings

    @property
    def names(self) -> tuple[str, ...]:
        """Every arm, the baseline first."""
        return (*self.plain, *(arm.name for arm in self.drafting))

    def turns(self) -> Iterator[tuple[Prompt, str, bool]]:
        """Yield every generation in order: warm-ups first, each on every arm."""
        for prompt in self.warmups:
            yield from ((prompt, name, True) for name in self.names)
        for prompt, order in zip(self.measured, self.orders, strict=True):
            yield from ((prompt, name, False) for name in order)


def run_distributed(
    engine: Engine, plan: DistributedPlan, instruments: Instruments, heard: Callable[[Sample], None] = lambda _: None
) -> dict[str, Any]:
    """Measure a launch; return the report's arms, fallbacks and rows. ``heard`` learns of every finished sample.

    Raises:
        PromptError: If a prompt of the plan and its budget do not fit the target.
    """
    used = (*plan.warmups, *plan.measured)
    check_prompts((prompt.ids for prompt in used), engine.target.info, plan.max_new_tokens)
    arms = {arm.name: arm for arm in plan.drafting}
    finished: list[Measured] = []
    turns = list(plan.turns())
    instruments.pipe.plan(len(turns))
    for arm in plan.drafting:
        arm.probe()
    for index, (prompt, name, is_warmup) in enumerate(turns):
        place = SamplePlace(plan.launch, index, name, is_warmup)
        stopping = Stopping(plan.max_new_tokens, plan.stop_ids)
        start: Callable[[], Running] = partial(native, engine.native, prompt.ids, stopping, plan.settings.chunk_tokens)
        if name in arms:
            start = partial(arms[name].begin, engine, plan.settings, prompt.ids, stopping)
        finished.append(measure_sample(start, prompt, place, instruments))
        if name in arms:
            arms[name].end(place.sample_id(prompt))
        heard(finished[-1].sample)
    for arm in plan.drafting:
        arm.probe()
    prompts = {prompt.id: prompt.ids for prompt in used}
    samples = with_margins(finished, prompts, LOCAL, lambda ids: top2_margin(engine, ids, plan.settings))
    return {
        "arms": tuple(_arm(engine, name, samples) for name in plan.names),
        "fallbacks": tuple(fallbacks(finished)),
        "rows": {"rpcs": [arm.calls() for arm in plan.drafting if arm.bytes_sent]},
    }


def _arm(engine: Engine, name: str, samples: Sequence[Sample]) -> Arm:
    role = {LOCAL: "baseline", LOCAL_AGAIN: "control"}.get(name, "candidate")
    own = tuple(sample for sample in samples if sample.id.split("/")[2] == name)
    return Arm(name, role, CODE_PATH if role == "candidate" else engine.native.code_path, own)


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections to drafters elsewhere, ended together."""

    engine: Engine
    stack: ExitStack

    def served(self, options: argparse.Namespace) -> str:
        """Serve the drafter in a process of its own; return its address."""
        process = DrafterProcess(served_words(options))
        self.stack.callback(process.close)
        return process.address

    def delayed(self, address: str, round_trip_ms: float) -> str:
        """Put a link with a round-trip time before an address; return the address before it."""
        link = DelayedLink(address, round_trip_ms)
        self.stack.callback(link.close)
        return link.address

    def arm(self, name: str, address: str, patience_s: float) -> DraftingArm:
        """Return an arm that asks the drafter at an address.

        Raises:
            BackendMissingError: If gRPC is not installed.
            ModelMismatchError: If the drafter there is for another target.
            SessionError: If nobody answers there.
            UsageError: If other machines reach the address, or another drafter is served there than is loaded here.
        """
        with needs_extra("distributed", "gRPC"):
            from engine.distributed.rpc import client, methods, remote
        engine = self.engine
        service = methods.DFLASH if engine.drafter.capture else methods.NGRAM
        channel = client.DrafterChannel(address, service)
        self.stack.callback(channel.close)
        model = remote.remote_model(channel, engine.backend, engine.target, engine.folder, patience_s=patience_s)
        if (model.info.name, model.info.digest) != (engine.drafter.info.name, engine.drafter.info.digest):
            raise UsageError(
                f"{model.info.name!r} is served at {address}, {engine.drafter.info.name!r} is loaded here; expected "
                "the same drafter on both sides. Name one with --drafter"
            )
        return DraftingArm(name, model, channel)


@contextmanager
def connections(engine: Engine) -> Iterator[Connections]:
    """Yield what connects to drafters elsewhere; all of it ends with the block."""
    with ExitStack() as stack:
        yield Connections(engine, stack)
