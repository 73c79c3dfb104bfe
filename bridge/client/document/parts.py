"""Parts of the `--json` document that commands have for people too: declared here alone, as plain values.

The document's schema is made from them; nothing here needs the document's models, which are loaded for a program only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, dataclass_transform

from bridge.client.document.untrusted import clean_line
from bridge.hosting import HostRunner
from bridge.run.state import RunState

_NAMES_SHOWN: Final = 3
_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def part(cls: type[_T]) -> type[_T]:
    """Make a frozen dataclass of which a document has every key and no other."""
    made = dataclass(frozen=True)(cls)
    config = {"extra": "forbid", "json_schema_serialization_defaults_required": True}
    made.__pydantic_config__ = config  # type: ignore[attr-defined]
    return made


@part
class BusPart:
    """Which bus, and which configuration said so.

    Attributes:
        embedded: whether it is the bus of this machine, whose runner starts with a request.
    """

    id: str | None
    route: str | None
    source: str
    where: str
    embedded: bool


@part
class WherePart:
    """Where a run ran; None until that is known. `local` means this machine.

    Attributes:
        sandbox: what confined it: ``none``, ``bwrap``, ``landlock`` or ``seatbelt``; None also where no command ran.
        no_sandbox_because: why there was none.
        uid: numeric user it ran as.
    """

    runner: str | None = None
    local: bool | None = None
    host: str | None = None
    os: str | None = None
    device: str | None = None
    backend: str | None = None
    sandbox: Literal["none", "bwrap", "landlock", "seatbelt"] | None = None
    no_sandbox_because: str | None = None
    uid: int | None = None


@part
class TimesPart:
    """Seconds spent in each phase; None where it did not happen or is not known."""

    queued: float | None = None
    running: float | None = None
    total: float | None = None


@part
class QuotaPart:
    """What the name that this clone asks as may still ask of one live runner within the hour, as that runner says.

    Attributes:
        principal: the name; ``unsigned`` stands for all unsigned requests together.
        left: how many requests were left at the time `as_of`.
        next: when one more will be; None where none counts yet.
    """

    principal: str
    runner: str
    per_hour: int
    left: int
    next: str | None
    as_of: str


@part
class ProgressPart:
    """How far a running run is, as its runner saw it; `text` says it in words.

    Attributes:
        step: the command that runs, the `number`th of `steps`.
        done, most: how many of its units are over, out of how many at most; None where nobody said.
        left_s: how long the rest of the step takes at the pace so far; None without a pace.
        waits: where it waits and why, while it is placed on a cluster and nothing of it runs.
    """

    text: str
    step: str
    number: int
    steps: int
    unit: Literal["sample", "launch"] | None
    done: int
    most: int | None
    left_s: float | None
    waits: str | None


@part
class ActionsView:
    """A workflow run as GitHub shows it.

    Attributes:
        ahead: how many runs of the same workflow wait before it; None when it does not wait.
        runners: the registered runners while it waits; None when GitHub does not tell this token.
    """

    url: str
    status: str
    conclusion: str | None
    ahead: int | None
    runners: tuple[HostRunner, ...] | None

    def text(self) -> str:
        """Return it in a few words, the page last."""
        parts = [f"{self.conclusion or self.status} on GitHub".replace("_", " ")]
        if self.ahead is not None:
            parts.append("next in its queue" if self.ahead == 0 else f"{self.ahead} before it")
        if self.runners is not None and not self.runners:
            parts.append("no runner is registered")
        for runner in (self.runners or ())[:_NAMES_SHOWN]:
            state = "offline" if not runner.online else "busy" if runner.busy else "online"
            parts.append(f"runner {runner.name} {state}")
        return clean_line(f"{', '.join(parts)}, {self.url}")


@part
class RunRow:
    """One run in a listing; what is not known without its result, or without its request, is None.

    Attributes:
        took_s: from the request to the end, or until now.
        metric: the primary claim of the stored result, as a number with its unit.
        options: parameters and commit of a request that this clone sent or has the result of, on one line.
        asked_by: who asked, as the host of a stored result says, else in whose name this clone's request asks.
    """

    id: str
    short: str
    state: RunState
    preset: str | None
    profile: str | None
    reason: str | None
    verdict: str | None
    runner: str | None
    created: str | None
    age_s: float
    fetched: bool
    took_s: float | None = None
    metric: str | None = None
    options: str | None = None
    asked_by: str | None = None


@part
class RemovalRow:
    """One thing that `gc` removed, or would."""

    kind: Literal["result", "request", "ref"]
    name: str


@part
class WaitRow:
    """One run of `wait` for several."""

    id: str
    reason: str
    exit_code: int


@part
class DoctorRow:
    """One finding of `doctor`."""

    check: str
    level: Literal["ok", "warn", "fail"]
    text: str
    remedy: str | None


@part
class PlaceRow:
    """One place where a bus may be configured."""

    source: str
    where: str
    used: bool


@part
class ConfigData:
    """What `config` prints."""

    route: str | None
    bus_id: str | None
    embedded: bool
    source: str
    branch_template: str | None
    runs: str
    looked_at: list[PlaceRow]


@part
class InitData:
    """What `init` wrote; principal, signer and public_key are None while requests go unsigned."""

    path: str
    route: str
    bus_id: str
    principal: str | None
    signer: str | None
    public_key: str | None
    owner_key: str | None
    first_use: bool


@part
class VersionData:
    """What `version` prints."""

    kakeya: str
    gate: str
    gate_digest: str
    envelope: str
    request: int


@part
class DryRunData:
    """What `run --dry-run` would send."""

    request: dict[str, Any]
    live: str | None


@part
class WrittenData:
    """What `open --html` or `open FILE` wrote: a page, or the folder of a result that was packed."""

    path: str


@part
class AgentFileRow:
    """A file of an agent's program that `agent install` or `agent uninstall` looked at."""

    path: str
    change: Literal["unchanged", "written", "removed"]


@part
class PresetRow:
    """One preset of `presets`.

    Attributes:
        name: what it is asked for by; ``NAME@RUNNER`` where hosts differ under one name.
        offered: whether a live runner offers it, or this machine has its packages where the bus is its own.
        definition: the whole of it where its host alone has it; None for an installed one.
    """

    name: str
    status: Literal["ready", "planned"]
    description: str
    code: Literal["host", "request"]
    offered: bool
    definition: dict[str, Any] | None
