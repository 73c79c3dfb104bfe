"""What an owner's own program promises to report, and what it is made of: part of a job spec and of an offer."""

import hashlib
import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from bridge.records.base import Count, Name, Record, Sha256, Text
from bridge.records.verdict import Premise

Aggregate = Literal["median", "mean", "share", "count", "ratio", "percentiles", "none"]
ProgramRole = Literal["folder", "program", "interpreter", "environment", "timer", "reader", "input"]
REPORT_FILE: Final = "report.json"
KIND: Final = "workload"
"""The kind of report of every workload; what it holds is in its definition."""


class MetricDefinition(Record):
    """One number of a workload.

    Attributes:
        pointer: JSON pointer of the number in a report; None for aggregates that count items or time processes.
        better: which direction is an improvement, None where none is.
        bounds: smallest and largest value that is possible.
        items: JSON pointer of a list, for `share` and `count`.
        correct: key of each item that says whether it counts; the item itself where empty.
        premises: what it needs beyond the gate's least premises.
        exact: whether every run must give the same number.
        digits: to how many significant digits runs may be called equal.
    """

    name: Name
    aggregate: Aggregate
    unit: Text
    better: Literal["higher", "lower"] | None = None
    pointer: Text | None = None
    bounds: tuple[float, float] | None = None
    items: Text | None = None
    correct: Text | None = None
    premises: tuple[Premise, ...] = ()
    exact: bool = False
    digits: Annotated[int, Field(ge=1, le=15)] = 6


class ConfirmedMetric(Record):
    """A metric that the recompute command computes again, and how far the two may be apart.

    Attributes:
        way: ``numeric`` compares within `tolerance`, ``exact`` wants the same number.
    """

    name: Name
    way: Literal["exact", "numeric"]
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class ProgramDigest(Record):
    """A file or folder that a run of a workload is made of, by what is in it.

    Attributes:
        path: absolute, on the host.
        sha256: of the file; of one line ``path size digest`` a file for a folder.
    """

    role: ProgramRole
    path: Text
    sha256: Sha256
    files: Count
    bytes: Count


class ServersDefinition(Record):
    """What the runner asks of inference servers, and may say of them.

    Attributes:
        sides: `baseline` and `candidate`, or the one that is asked alone.
        same_weights: whether both are said to have the same weights in the same dtype, so that answers may be compared.
        endpoint: whether it ran before: nobody saw what runs there.
        tokenizer: folder of the tokenizer that counts what the answers hold; None counts characters.
        target: folder of the host's own model that continues prompts; None lets the servers continue them.
    """

    sides: tuple[Name, ...]
    same_weights: bool = False
    endpoint: bool = False
    tokenizer: Text | None = None
    target: Text | None = None


class WorkloadDefinition(Record):
    """What the gate judges a workload's reports by.

    Attributes:
        name: of the workload's folder.
        digest: sha256 over everything the owner wrote there and what it runs with.
        program: what people call the program, e.g. ``train.py``.
        metrics: the first one decides the class of a report; none where only files are kept.
        confirms: what the recompute command confirms.
        report_schema: JSON Schema of a report; None for ``{"metrics": {NAME: number}}``.
        keep: files of a repeat that are kept beside its report.
        programs: everything that runs, as it was when the workload was read.
        servers: what the runner asks of servers; written only where it asks some.
    """

    name: Name
    digest: Sha256
    program: Text
    metrics: tuple[MetricDefinition, ...]
    confirms: tuple[ConfirmedMetric, ...] = ()
    report_schema: dict[str, Any] | None = None
    keep: tuple[Text, ...] = ()
    programs: tuple[ProgramDigest, ...] = ()
    servers: ServersDefinition | None = None

    @model_serializer(mode="wrap")
    def _leave_out(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = serialise(self)
        return {name: value for name, value in fields.items() if value is not None or name != "servers"}

    @property
    def label(self) -> str:
        """The program with the digest of its folder, as wordings name it."""
        folder = next((program.sha256 for program in self.programs if program.role == "folder"), self.digest)
        return f"{self.program}@{folder[:12]}"


def started_by(argv: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the command lines that a program of the runner's own was given: each follows a word ``--@NAME``.

    ``--@commit``, ``--@build`` and ``--@of`` are followed by something else; ``--@in FOLDER`` stays with its program.
    """
    marks = [place for place, word in enumerate(argv) if word.startswith("--@") and word != "--@in"]
    for place, end in itertools.pairwise([*marks, len(argv)]):
        if argv[place] not in {"--@commit", "--@build", "--@of"}:
            yield argv[place + 1 : end]


def seed_of(basis: str, repeat: int) -> int:
    """Return the seed of a repeat: 31 bits of sha256 over ``BASIS:REPEAT``, never chosen by the program.

    Args:
        basis: the run's id, or that of the sweep it belongs to, so that the runs of a sweep are paired.
        repeat: from 0.
    """
    return int.from_bytes(hashlib.sha256(f"{basis}:{repeat}".encode()).digest()[:4], "big") >> 1
