"""The part of `policy.toml` that says where runs go: this machine, or the nodes of a cluster.

All of it is the owner's. A request may ask for labels; which nodes a label means, only this says.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bridge.records import Record
from bridge.records.base import Name

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:,=/-]{0,119}$")]
Feature = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class ExecutorPolicy(Record):
    """Where runs go.

    Attributes:
        engine: ``local``: this machine; ``slurm``: nodes that share the state folder with it.
        partition, account, qos, cpus, memory, gres: of every job, as Slurm writes them.
        constraints: the node feature that a label of a request means; a label without one is any node's.
        longest_wait_s: how long a run may wait in the engine's queue.
    """

    engine: Literal["local", "slurm"] = "local"
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    memory: Word | None = None
    gres: Word | None = None
    constraints: dict[Name, Feature] = Field(default_factory=dict)
    longest_wait_s: Annotated[float, Field(gt=0, le=7 * 24 * 3600.0)] = 6 * 3600.0

    @model_validator(mode="after")
    def _options_have_an_engine(self) -> Self:
        given = sorted(self.model_fields_set - {"engine"})
        if self.engine == "local" and given:
            raise ValueError(f'{", ".join(given)} of [executor] need engine = "slurm"')
        return self
