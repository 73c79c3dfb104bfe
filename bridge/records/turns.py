"""Launches and their turns: what a job spec asks for, and the supervisor's own stamps of what happened."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from bridge.records.base import Count, Name, Record, Seconds, Sha256, Text

Stamp = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StopRule(Record):
    """When a series of launches ends; who reads the record can repeat the decision from the same stamps.

    Attributes:
        least, most: launches that count, at least and at most; the first one of a series never counts.
        blocks: launch k runs block (k - 1) mod blocks; with more than one, only whole rotations are looked at.
        half_width: of the log ratio's interval, at which the series ends.
        allowed_s: no launch begins after this much time of the series, and no rotation whose last launch would, by
            how long the one before took; None leaves that to the run's limits.
    """

    least: Annotated[int, Field(ge=2)] = 8
    most: Annotated[int, Field(ge=2, le=1000)] = 20
    blocks: Annotated[int, Field(ge=1, le=100)] = 1
    half_width: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.03
    allowed_s: Seconds | None = None

    @model_validator(mode="after")
    def _rotations_are_whole(self) -> Self:
        from bridge.launches.stopping import LaunchRule

        LaunchRule(self.least, self.most, self.blocks, self.half_width)
        return self


class AskedWord(Record):
    """A word that a ratio is asked for, so that three looks answer it and no number of it is quoted.

    Attributes:
        margin: how many times as fast, or as slow, it has to be at least.
    """

    word: Literal["faster", "slower"]
    margin: Annotated[float, Field(gt=1, allow_inf_nan=False)]


class LaunchSeries(Record):
    """A command that is launched again and again as a process each, and whose two arms get their turns handed out.

    Attributes:
        arms: the baseline first.
        unit: whether a turn ends at a multiple of ``turn_tokens`` of its sample, or with its sample.
        turn_least_s: how long the faster arm's turn has to last; launch 0 finds the tokens for it.
        solo_s: how long each arm runs alone, once in every launch; 0 for never.
        prefill: whether each sample's first turn ends with its first token, outside of the ratio that ends the series.
        asks: what ends the series once it is answered, instead of a width; written only where it is asked.
        load: ``drawn`` holds half of the processors in every second launch; written only where it is.
    """

    arms: tuple[Name, Name]
    rule: StopRule = StopRule.model_construct()  # its own values need no check, which would load what decides by it
    unit: Literal["tokens", "samples"] = "tokens"
    turn_least_s: Seconds = 0.05
    solo_s: Seconds = 3.0
    prefill: bool = False
    asks: AskedWord | None = None
    load: Literal["drawn"] | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        optional = ("asks", "load")
        return {name: value for name, value in serialise(self).items() if value is not None or name not in optional}


class Turn(Record):
    """One turn of one arm.

    Attributes:
        number: position in the launch, solo stretches counted too.
        sample: which sample of the launch it worked on.
        go_s, done_s: seconds on the supervisor's CLOCK_MONOTONIC: before the order was written, after the answer came.
        tokens: what the program says it committed.
        over: whether the program says that the sample ended with it.
        cpu_s: processor time of the process that the turn was, where whoever started it collected it with wait4;
            written only where there is one.
    """

    number: Count
    arm: Name
    sample: Count
    go_s: Stamp
    done_s: Stamp
    tokens: Count
    over: bool
    cpu_s: Seconds | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialise(self).items() if value is not None or name != "cpu_s"}


class SoloStretch(Record):
    """A stretch in which one arm ran alone, outside of the ratio.

    Attributes:
        sample: the sample before which it ran, drawn by the supervisor.
        cpu_s: processor time of all processes of the launch meanwhile; None where there is no source.
        waited_s: time they stood in a run queue meanwhile; None where there is no source.
        source: where the two come from.
        gpu_s: for how long they kept the accelerators busy meanwhile; None where there is no source.
        gpu_source: where that comes from.
    """

    number: Count
    arm: Name
    sample: Count
    go_s: Stamp
    done_s: Stamp
    tokens: Count
    cpu_s: Seconds | None
    waited_s: Seconds | None
    source: Text
    gpu_s: Seconds | None = None
    gpu_source: Text = "unknown: not read"


class LaunchRecord(Record):
    """One launch of a command, as the supervisor saw it.

    Attributes:
        number: 0 is the first one, which calibrates and never counts.
        block: which block of the pinned set it was told to run.
        nonce: made after its process had started; orders and draws of the program follow from it.
        turn_tokens: a turn ended at a multiple of this many tokens of its sample; 0 for whole samples.
        started_s, ready_s, ended_s: process start, the program's ``ready``, end; ready is None when it never came.
        slept_s: how long the machine slept meanwhile.
        reference: a stretch of the host's own loop over the same samples, in a process of its own right afterwards;
            None where the job spec names no such command, or it did not answer.
        cut: why it did not come to its end, or None.
        loaded: how many processors the supervisor itself held meanwhile; written only where its load is drawn.
    """

    schema_version: Literal[1] = 1
    command: Name
    number: Count
    block: Count
    nonce: Sha256
    turn_tokens: Count
    started_s: Stamp
    ready_s: Stamp | None
    ended_s: Stamp
    slept_s: Seconds
    turns: tuple[Turn, ...] = ()
    solos: tuple[SoloStretch, ...] = ()
    reference: SoloStretch | None = None
    cut: Text | None = None
    loaded: Count | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialise(self).items() if value is not None or name != "loaded"}
