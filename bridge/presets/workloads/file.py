"""What `workload.toml` may say: strict, frozen, data only.

Knows the shape of the file and nothing about the folder around it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from bridge.presets.model import PresetSandbox, ProfileLimits, Tokens, VariableName
from bridge.presets.parameters import Parameter
from bridge.records.base import Name, Record, Sha256, Text
from bridge.records.request import Measuring
from bridge.records.verdict import Premise
from bridge.records.workload import Aggregate

_RelativeFile = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*){0,3}$", max_length=120)
]
_Times = Annotated[int, Field(ge=1, le=32)]
_DeclaredAggregate = Literal["median", "mean", "share", "count", "ratio", "none"]
"""What an owner may declare; percentiles are of what the runner asks servers."""


class RunsOn(Record):
    """Which program runs what has no program of its own.

    Attributes:
        interpreter: absolute path of a Python.
        venv: folder of a virtual environment, from the workload's folder; its `bin/python` runs.
        binary: a program of the folder; what `argv` says are its arguments.
        variables: environment variables of every run.
    """

    interpreter: Text | None = None
    venv: Text | None = None
    binary: Text | None = None
    variables: dict[VariableName, Text] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if sum(program is not None for program in (self.interpreter, self.venv, self.binary)) > 1:
            raise ValueError("name one of interpreter, venv and binary")
        return self


class PinnedInput(Record):
    """A file that the program reads, by digest."""

    path: Text
    sha256: Sha256


class Times(Record):
    """How many processes a profile makes."""

    smoke: _Times = 1
    claim: _Times = 6


class Items(Record):
    """A list of a report, and what of it counts."""

    items: Text
    correct: Text = ""


class TwoPrograms(Record):
    """Two programs that the runner times by turns; or one, in the trees of two commits, or with both sides in it.

    Attributes:
        commits: the command that is timed in both trees.
        build: run in each tree before anything is timed.
        turns: a program that holds both sides and takes the turns itself (docs/turns.md), e.g. as it starts slowly.
    """

    baseline: Tokens | None = None
    candidate: Tokens | None = None
    commits: Tokens | None = None
    build: Tokens | None = None
    turns: Tokens | None = None

    @model_validator(mode="after")
    def _is_one_of_three(self) -> Self:
        pair = (self.baseline is not None, self.candidate is not None)
        if pair not in {(True, True), (False, False)} or sum((all(pair), bool(self.commits), bool(self.turns))) != 1:
            raise ValueError("name baseline and candidate, or commits, or turns")
        if self.build is not None and self.commits is None:
            raise ValueError("build goes with commits; build two programs of the folder before you allow it")
        return self


class NumberTable(Record):
    """Where a program that knows nothing of Kakeya leaves a number: what it prints, or a file that it writes.

    Attributes:
        stdout: pattern of what it prints, whose first group is the number; exactly one place matches.
        file: what it writes, from the folder that it runs in; then one of `pattern`, `pointer` and `column`.
        pattern: as `stdout`, of that file.
        pointer: JSON pointer; without `file`, of what it prints.
        column: name of a column of a CSV file with a head, and `row` which of its rows counts.
    """

    stdout: Text | None = None
    file: _RelativeFile | None = None
    pattern: Text | None = None
    pointer: Text | None = None
    column: Text | None = None
    row: Literal["first", "last"] = "last"

    @model_validator(mode="after")
    def _is_in_one_place(self) -> Self:
        ways = [way for way in (self.stdout, self.pattern, self.pointer, self.column) if way is not None]
        if len(ways) != 1 or (self.file is None and (self.pattern or self.column)) or (self.file and self.stdout):
            raise ValueError(
                'a number is { stdout = "PATTERN" }, { pointer = "/KEY" }, or { file = "NAME" } with one of pattern, '
                "pointer and column"
            )
        pattern = self.stdout or self.pattern
        if pattern is not None:
            try:
                groups = re.compile(pattern).groups
            except re.error as error:
                raise ValueError(f"pattern {pattern!r} is none: {error}") from error
            if groups != 1:
                raise ValueError(f"pattern {pattern!r} has {groups} groups; write one, ( ), around the number")
        return self


class MetricTable(Record):
    """One number: where it stands in a report, and what is made of its repeats.

    Attributes:
        number: where the program leaves it that writes no report of its own.
    """

    unit: Text | None = None
    better: Literal["higher", "lower"] | None = None
    pointer: Text | None = None
    number: NumberTable | None = None
    bounds: tuple[float, float] | None = None
    repeats: Times | _Times = Times()
    claim: _DeclaredAggregate | None = None
    share: Items | None = None
    count: Items | None = None
    ratio: TwoPrograms | None = None
    premises: tuple[Premise, ...] = ()
    exact: bool = False
    digits: Annotated[int, Field(ge=1, le=15)] = 6

    @property
    def aggregate(self) -> Aggregate:
        """What is made of the repeats."""
        if self.claim is not None:
            return self.claim
        tables: dict[Aggregate, object] = {"share": self.share, "count": self.count, "ratio": self.ratio}
        return next((name for name, table in tables.items() if table is not None), "median")

    def times(self, profile: Measuring) -> int:
        """Return how many processes a profile makes for it."""
        if isinstance(self.repeats, int):
            return self.repeats
        return self.repeats.claim if profile == "claim" else self.repeats.smoke

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        tables = [name for name in ("share", "count", "ratio") if getattr(self, name) is not None]
        if len(tables) > 1 or (tables and self.claim not in (None, tables[0])):
            raise ValueError(f"one metric is one of {', '.join((*tables, *([self.claim] if self.claim else [])))}")
        if not tables and self.claim in {"share", "count", "ratio"}:
            raise ValueError(f"claim = {self.claim!r} needs a table of that name")
        if not tables and (self.pointer is None) == (self.number is None):
            raise ValueError(
                "pointer is missing: the JSON pointer of the number in the report; or number: where it is read"
                if self.pointer is None
                else "pointer and number are two places of one number: write one of them"
            )
        if not tables and self.unit is None:
            raise ValueError('unit is missing; a number without one is "1"')
        if tables and (self.pointer is not None or self.number is not None):
            raise ValueError(f"{'pointer' if self.number is None else 'number'} does not go with {tables[0]}")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"bounds are [smallest, largest], got {list(self.bounds)}")
        if self.exact and tables:
            raise ValueError(f"exact is of a number that a run reports, and does not go with {tables[0]}")
        return self


class Numeric(Record):
    """Confirmed within a tolerance."""

    numeric: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RecomputeTable(Record):
    """The command that computes a report's numbers again."""

    argv: Tokens
    confirms: Annotated[dict[Name, Literal["exact", "near", "drawn"] | Numeric], Field(min_length=1)]


class PresetTable(Record):
    """One thing that may be asked of the workload.

    Attributes:
        argv: the program of the folder first, then literals and ``{parameter}`` tokens.
        metrics: which of the workload's; all of them where nothing is said.
    """

    description: Text
    argv: Tokens | None = None
    params: dict[Name, Parameter] = Field(default_factory=dict)
    profiles: Annotated[tuple[Measuring, ...], Field(min_length=1)] = ("smoke", "claim")
    limits: ProfileLimits = ProfileLimits()
    sandbox: PresetSandbox = PresetSandbox()
    metrics: tuple[Name, ...] = ()


class ServerTable(Record):
    """One inference server with OpenAI's completions: a command that starts it, or where it listens already.

    Attributes:
        command: its program and literal words; ``{port}`` is a free port, ``{python}`` the environment's interpreter,
            ``{folder}`` the workload's folder.
        endpoint: ``http://127.0.0.1:PORT`` of a server that runs.
        ready: the path that answers with 200 once it can be asked.
        model: what a request calls its model.
    """

    command: Tokens | None = None
    endpoint: Text | None = None
    ready: Annotated[str, Field(pattern=r"^/[A-Za-z0-9_./-]{0,100}$")] = "/v1/models"
    model: Text

    @model_validator(mode="after")
    def _is_started_or_runs(self) -> Self:
        if (self.command is None) == (self.endpoint is None):
            raise ValueError('write command = ["PROGRAM", "--port", "{port}"], or endpoint = "http://127.0.0.1:PORT"')
        return self


class ServersTable(Record):
    """Inference servers that the runner asks: two against each other, or one alone.

    Attributes:
        prompts: the pinned ones.
        max_tokens: of every answer.
        streams: how many requests at once may be asked for; the first is what a request gets that names none.
        same_weights: both have the same weights in the same dtype, so that equal answers are expected.
        files: of the models, folders or single files: digested, and shown to the servers.
        tokenizer: folder of the tokenizer that counts the tokens of answers; left out, characters are counted.
        target: folder of a model with the servers' weights that the host's own engine reads: it continues the prompts
            and says how answers begin; left out, the servers continue them.
    """

    prompts: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=20_000)], ...], Field(min_length=1, max_length=64)
    ]
    max_tokens: Annotated[int, Field(ge=2, le=4096)]
    streams: Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(min_length=1, max_length=8)] = (1, 4, 8)
    same_weights: bool = False
    files: tuple[Text, ...] = ()
    tokenizer: Text | None = None
    target: Text | None = None
    baseline: ServerTable | None = None
    candidate: ServerTable | None = None

    @property
    def sides(self) -> dict[str, ServerTable]:
        """The servers by arm, the baseline first."""
        tables = {"baseline": self.baseline, "candidate": self.candidate}
        return {name: table for name, table in tables.items() if table is not None}

    @model_validator(mode="after")
    def _names_one_or_two(self) -> Self:
        if not self.sides:
            raise ValueError("name [servers.baseline] and [servers.candidate], or one of them")
        if len(self.sides) > 1 and any(table.endpoint is not None for table in self.sides.values()):
            raise ValueError("a server that runs already is measured alone: nobody saw what it runs, or beside what")
        return self


class OutputsTable(Record):
    """Files that a repeat leaves beside its report, by name."""

    keep: tuple[_RelativeFile, ...] = ()


class WorkloadFile(Record):
    """`workload.toml`."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Name
    description: Text = ""
    environment: RunsOn = RunsOn()
    inputs: dict[Name, PinnedInput] = Field(default_factory=dict)
    presets: Annotated[dict[Name, PresetTable], Field(min_length=1)]
    metrics: dict[Name, MetricTable] = Field(default_factory=dict)
    recompute: RecomputeTable | None = None
    servers: ServersTable | None = None
    outputs: OutputsTable = OutputsTable()

    @model_validator(mode="after")
    def _leaves_something(self) -> Self:
        if self.servers is not None:
            return self._asks_servers_only()
        if not self.metrics and not self.outputs.keep:
            raise ValueError('it leaves nothing: add [metrics.NAME], or [outputs] keep = ["plot.png"]')
        return self

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = serialise(self)
        return {name: value for name, value in fields.items() if value is not None or name != "servers"}

    def _asks_servers_only(self) -> Self:
        own = [name for name, table in self.presets.items() if table.argv or table.metrics or table.params]
        if own or self.metrics or self.recompute is not None or self.outputs.keep:
            place = f"presets.{own[0]}" if own else "the file"
            raise ValueError(
                f"{place} says what runs or is read, beside [servers]: there the runner asks, and says what is claimed"
            )
        return self

    def is_read(self, preset: PresetTable) -> bool:
        """Return whether a preset's program is run as it is, its numbers read by the runner's own program."""
        metrics = [self.metrics[name] for name in (preset.metrics or tuple(self.metrics)) if name in self.metrics]
        reports = [metric for metric in metrics if metric.ratio is None]
        return preset.argv is not None and bool(reports or not metrics) and all(metric.number for metric in reports)
