"""What each command of `kakeya-runner` takes: each option is declared once, as a typed attribute with its help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bridge.cli.table.command import Options, flag, option, word

if TYPE_CHECKING:
    from bridge.records.bus import Wake

_JSON: Final[Any] = flag("one JSON document on stdout")
_REHASH: Final[Any] = flag("digest every model file anew, whatever its times say")
_KEYS: Final[Any] = word("a public key, its file, or a name", metavar="NAME|KEY", kind="many")
_CODE: Final[Any] = flag("the key may vouch for code by signing commits")
_FOLDER: Final[Any] = word("a folder, or the name of one below workloads/", metavar="NAME|FOLDER", complete="path")


class PlaceOptions(Options):
    """Of a command about this host's runner."""

    policy: str | None = option("policy file; default: policy.toml in your config folder", metavar="FILE")
    state: str | None = option("state folder; default: the user's state folder, by runner name", metavar="DIR")


class RunnerBusOptions(PlaceOptions):
    """Of a command that asks a bus."""

    bus: str | None = option("default: KAKEYA_BUS, then bus in the policy", metavar="ROUTE[#ID]")


class CreatingOptions(RunnerBusOptions):
    """Of a command that may make the bus."""

    create_bus: bool = flag("make the remote a bus if it is none yet")
    wake: Wake = option("of a new bus: what wakes it", choices=("poll", "actions"), default="poll")


class SetupOptions(CreatingOptions):
    """Of `setup`."""

    name: str | None = option("the runner's name on its bus; default: the policy's, then the host's", metavar="NAME")
    label: list[str] | None = option("what requests may ask for", kind="repeat", metavar="NAME")
    models: list[str] | None = option("a folder of models", kind="repeat", metavar="DIR")
    interpreter: str | None = option("absolute path of the Python with kakeya installed", metavar="PYTHON")
    executor: str | None = option(
        "runs go to the nodes of a cluster; docs/guides/clusters.md", choices=("slurm", "ray")
    )
    commit_as: str | None = option("NAME <ADDRESS> for commits, where a host has rules about it", metavar="WHO")
    dry_run: bool = flag("only print what would be done")
    unit: bool = flag("only print the service file for this user")


class DoctorOptions(RunnerBusOptions):
    """Of `doctor` and `bus check`."""

    json: bool = _JSON


class ServeOptions(CreatingOptions):
    """Of `serve`."""

    rehash: bool = _REHASH
    embedded: str | None = option("serve this machine's own bus in DIR until it is idle", metavar="DIR")
    idle: float | None = option("end after such a time without anything to do", metavar="TIME", number="seconds")


class OnceOptions(CreatingOptions):
    """Of `once`."""

    rehash: bool = _REHASH
    branch: str | None = option("the request branch to take; default: the oldest request", metavar="NAME")
    ephemeral: bool = flag("keep nothing: no state, key or beacon is left")
    ticket: str | None = option("with --ephemeral: what `trust ticket` made; -: from a pipe", metavar="FILE")
    wait_up_to: float | None = option(
        "with --ephemeral: how long to wait for a request; default: take what is there",
        metavar="TIME",
        number="seconds",
    )
    summary: bool = flag("print the result's summary instead of appending it to the file GITHUB_STEP_SUMMARY names")


class StopOptions(PlaceOptions):
    """Of `stop`."""

    runs: bool = flag("end what runs as well, as interrupted")
    run: str | None = option("end this run alone, as interrupted; the runner goes on", metavar="ID")


class StatusOptions(PlaceOptions):
    """Of `status`, `trust list` and `workload list`."""

    json: bool = _JSON


class DrainOptions(PlaceOptions):
    """Of `drain`."""

    now: bool = flag("end what runs now, as interrupted, then the runner")


class GcOptions(RunnerBusOptions):
    """Of `gc`."""

    older_than: float = option("e.g. 12h; a bare number is days", metavar="AGE", number="days", default="14d")
    dry_run: bool = flag("only print what would go")


class PolicyExplainOptions(PlaceOptions):
    """Of `policy explain`."""

    preset: str = word("what a request of this preset would get", metavar="PRESET", complete="preset")
    as_: str | None = option("as a request that this name signed", metavar="NAME")


class StateOptions(PlaceOptions):
    """Of `state show`."""

    run: str | None = word("a run id, or the end of one: its events", kind="optional", metavar="RUN")


class LogsOptions(PlaceOptions):
    """Of `logs`."""

    follow: bool = flag("go on with what is written from now on", short="-f")
    run: str | None = option("only this run: its id, or the end of one", metavar="ID")
    level: str = option("the least level to print", choices=("debug", "info", "warning", "error"), default="info")
    json: bool = flag("the lines as they are kept: JSON, with versions")


class WorkloadNewOptions(PlaceOptions):
    """Of `workload new`."""

    folder: str = _FOLDER
    from_: list[str] | None = option(
        "the program as it is, copied; again: a file or folder that it reads", kind="repeat", metavar="FILE"
    )
    arguments: str | None = option("what it is started with, always, as a shell reads it: '-n 3 data'", metavar="WORDS")
    number: str | None = option("which number of it is meant; none: files only", metavar="NAME")
    unit: str | None = option("unit of the number it reports; default: none", metavar="UNIT")


class WorkloadOptions(PlaceOptions):
    """Of `workload allow` and `workload remove`."""

    folder: str = _FOLDER


class WorkloadCheckOptions(WorkloadOptions):
    """Of `workload check`."""

    json: bool = _JSON


class WorkloadTryOptions(WorkloadOptions):
    """Of `workload try`."""

    param: list[str] | None = option("a parameter", kind="repeat", metavar="NAME=VALUE", short="-p")
    preset: str | None = option("which of its presets; default: the first", metavar="NAME")


class BusRepairOptions(RunnerBusOptions):
    """Of `bus repair`."""

    yes: bool = flag("delete what is damaged or no good, and push again what is here")


class BusMoveOptions(RunnerBusOptions):
    """Of `bus move`."""

    place: str | None = word("an empty repository: a remote's name, a path or a URL", metavar="NEW", kind="optional")
    as_: str | None = option("what others are told, where they reach it by another URL", metavar="ROUTE")
    now: bool = flag("do not wait for what runs: each runner's next start, at the new place, delivers it")
    stay: bool = flag("take back a move that has not ended")


class BranchesOptions(RunnerBusOptions):
    """Of `bus allow-branches`."""

    space: str = word("what stands before the slash, e.g. claude, for claude/mac-bridge-*", metavar="SPACE")


class WelcomeOptions(RunnerBusOptions):
    """Of `welcome`."""

    line: list[str] = word("'NAME ssh-ed25519 KEY': what kakeya-mac init prints", kind="many", metavar="LINE")
    may: list[str] | None = option(
        "what the person may ask for, patterns allowed; default: what an unsigned request may",
        kind="many",
        metavar="PRESET",
    )
    code: bool = flag("commits signed with the key are trusted code")
    yes: bool = flag("do not ask; look at the fingerprint first")


class WhoOptions(RunnerBusOptions):
    """Of `who`."""

    name: str = word("as the person signs, e.g. ada@example.org", metavar="NAME")


class KeygenOptions(RunnerBusOptions):
    """Of `keygen`."""

    rotate: bool = flag("make a new key, which the bus's owner then lists")
    agent: str | None = option("sign with a key of the ssh-agent: the .pub file of it", metavar="FILE")


class TrustAddOptions(RunnerBusOptions):
    """Of `trust add`."""

    key: list[str] = word("a public key, its file, or a runner's NAME=KEY", metavar="KEY", kind="many")
    here: bool = flag("into this host's list, whoever owns the bus")
    code: bool = _CODE
    principal: list[str] | None = option("who holds it; default: the key's comment", kind="repeat", metavar="NAME")
    valid_after: str | None = option("YYYYMMDD[HHMM[SS]][Z]: signs nothing before", metavar="DATE")
    valid_before: str | None = option("YYYYMMDD[HHMM[SS]][Z]: signs nothing from then on", metavar="DATE")


class TrustRemoveOptions(PlaceOptions):
    """Of `trust remove`."""

    key: list[str] = _KEYS
    code: bool = flag("from those who may vouch for code")


class RootKeyOptions(RunnerBusOptions):
    """Of `trust retire` and `trust revoke`."""

    key: list[str] = _KEYS


class TrustInitOptions(RunnerBusOptions):
    """Of `trust init`."""

    owner_key: str | None = option("own the bus with this key; .pub: ssh-agent's", metavar="FILE")
    new_owner: bool = flag("the owner's key is lost, begin anew")


class TrustMergeOptions(RunnerBusOptions):
    """Of `trust merge`."""

    take: list[str] | None = option("a key that only the bus's root has", kind="repeat", metavar="NAME|KEY")


class TicketOptions(RunnerBusOptions):
    """Of `trust ticket`."""

    name: str = word("of the runner, such as ci-1", metavar="NAME")
    for_: float = option("how long it lasts", metavar="TIME", number="seconds", default="24h")
    out: str | None = option("a new file for it; default: NAME.ticket", metavar="FILE")


class RevokeOptions(PlaceOptions):
    """Of `revoke`."""

    who: list[str] = word("a name, SHA256:..., a public key or its file", metavar="PRINCIPAL|KEY", kind="many")


class ExecOptions(PlaceOptions):
    """Of `exec`."""

    show: bool = flag("print that line, the bus id and the key to pin")
    no_start: bool = flag("start no runner; one serves DIR/ssh/bus.git already")
    serve: bool = flag("run the runner behind it until it is idle")


class SuperviseOptions(Options):
    """Of `supervise`."""

    folder: str = word("the folder, with job.json in it; see docs/supervisor.md", metavar="FOLDER")
    apart: bool = flag("in a process that does not descend from this one")
    probe: bool = flag("only answer in FOLDER what this node sees of it")


class HookStartedOptions(PlaceOptions):
    """Of `job-hook started`."""

    ask: str | None = option("a program that decides, as a user who may read more", metavar="FILE")
    stop: str | None = option("a program that stops the Actions service", metavar="FILE")


class HookDecideOptions(PlaceOptions):
    """Of `job-hook decide`."""

    workflow: str = word("the workflow reference, as GitHub gives it to the hook", metavar="REF")
    commit: str = word("the commit of the workflow file", metavar="COMMIT")
