"""The part of `policy.toml` that says where runs go: this machine, or the nodes of a cluster.

All of it is the owner's. A request may ask for labels; which nodes a label means, only this says.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from bridge.executor.engines.jobs_server import check_address
from bridge.records.base import Name, Record
from bridge.runner.policy.trust import AbsolutePath

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:,=/-]{0,119}$")]
Feature = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]

Module = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+/-]{0,119}$")]
_OWN_WORDS: Final = (
    "parsable|job-name|no-requeue|requeue|time|chdir|output|error|open-mode|export|export-file|ntasks|wrap|array|"
    "constraint|partition|account|qos|cpus-per-task|mem|gres|uid|gid|wait|test-only|hold"
)


def _check_word(word: str) -> str:
    name = word.removeprefix("--").partition("=")[0]
    if any(own.startswith(name) for own in _OWN_WORDS.split("|")):  # sbatch takes the beginning of a name for the name
        raise ValueError(f"--{name} is the runner's own, or a key of [executor]")
    return word


SbatchWord = Annotated[
    str,
    StringConstraints(pattern=r"^--[a-z][a-z0-9-]{1,39}(=[A-Za-z0-9._:,=/@+-]{1,120})?$"),
    AfterValidator(_check_word),
]
"""A further option of sbatch, in one word; none that the runner sets itself."""


_OF_ENGINES: Final = {
    "slurm": {"partition", "account", "qos", "gres", "modules", "sbatch", "jobs"},
    "ray": {"address", "token_file", "gpus"},
}
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class JobOptions(Record):
    """What of a Slurm job the owner decides, for every job or for those of one label.

    Attributes:
        partition, account, qos, gres, memory: as Slurm writes them.
        cpus: processors of a run.
        modules: environment modules loaded on the node before the supervisor starts.
        sbatch: further options of sbatch, such as ``--exclusive``.
    """

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    memory: Word | None = None
    gres: Word | None = None
    modules: tuple[Module, ...] = ()
    sbatch: tuple[SbatchWord, ...] = ()


class ExecutorPolicy(JobOptions):
    """Where runs go.

    Attributes:
        engine: ``local``: this machine; ``slurm`` and ``ray``: nodes that share the state folder with it.
        partition, account, qos, gres, modules, sbatch: of every job, as `JobOptions` has them.
        jobs: what a label of a request changes about its job.
        address: of Ray's dashboard.
        token_file: a file of the runner's alone with Ray's token; None sends none.
        gpus: of every job, for Ray.
        cpus: of every job.
        memory: of every job: a number with its unit, such as ``8G``.
        constraints: what a label of a request means: a feature of Slurm's nodes, a resource of Ray's; a label without
            one is any node's.
        longest_wait_s: how long a run may wait in the engine's queue.
    """

    engine: Literal["local", "slurm", "ray"] = "local"
    address: str = "http://127.0.0.1:8265"
    token_file: AbsolutePath | None = None
    gpus: Annotated[float, Field(gt=0, le=4096)] | None = None
    jobs: dict[Name, JobOptions] = Field(default_factory=dict)
    constraints: dict[Name, Feature] = Field(default_factory=dict)
    longest_wait_s: Annotated[float, Field(gt=0, le=7 * 24 * 3600.0)] = 6 * 3600.0

    @model_validator(mode="after")
    def _options_have_an_engine(self) -> Self:
        given = self.model_fields_set - {"engine"}
        for engine, own in _OF_ENGINES.items():
            if engine != self.engine and given & own:
                raise ValueError(f'{", ".join(sorted(given & own))} of [executor] need engine = "{engine}"')
        if self.engine == "local" and given:
            raise ValueError(f'{", ".join(sorted(given))} of [executor] need engine = "slurm" or "ray"')
        if self.engine == "ray":
            if (wrong := check_address(self.address, with_token=self.token_file is not None)) is not None:
                raise ValueError(f"address of [executor]: {wrong}")
            _ = self.memory_bytes
        return self

    def meanings(self) -> dict[str, str]:
        """Return the labels that mean something for a node or its job, with a word for people: feature or label."""
        return {label: self.constraints.get(label, label) for label in (*self.constraints, *self.jobs)}

    @property
    def memory_bytes(self) -> int | None:
        """The memory of every job, in bytes.

        Raises:
            ValueError: it is not a number with a unit.
        """
        if self.memory is None:
            return None
        number, unit = self.memory[:-1], self.memory[-1:]
        if not number.isascii() or not number.isdigit() or unit not in _UNITS:
            raise ValueError(f"memory of [executor] is a number with {', '.join(_UNITS)}, such as 8G")
        return int(number) * _UNITS[unit]
