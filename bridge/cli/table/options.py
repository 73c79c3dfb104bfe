"""What each command of `kakeya-mac` takes: an option is declared once, as a typed attribute with its words and help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bridge.cli.table.command import Options, flag, option, word

if TYPE_CHECKING:
    from bridge.records.request import DrawnLoad, EffectWord, Profile

_JSON: Final[Any] = flag("print one JSON document on stdout, also for errors and pending runs")
_JSON_LINES: Final[Any] = flag("print events as JSON lines while waiting, the document of --json last")
_BUS: Final[Any] = option(
    "bus to use: a remote name, path or URL, with the pinned id after '#'; 'embedded' for this machine",
    metavar="ROUTE[#ID]",
)
_ID: Final[Any] = word("run id, a unique prefix or suffix of one, or @last", metavar="ID", complete="run")
_WAIT_TIMEOUT: Final[Any] = option(
    "wait, but no longer than so many seconds, or 1h30m (exit 8); the run goes on", metavar="TIME", number="seconds"
)
_FOLLOW: Final[Any] = flag("show the log on stderr while it grows (implies --wait)")
_REQUIRE: Final[Any] = option(
    "what exit 0 takes: evidence, or one premise (outputs, times, ...), of the primary claim, or "
    "CLAIM:evidence of another; by default anything but a rejection",
    metavar="WHAT",
)
_PROFILE: Final[Any] = option(
    "smoke: a quick look; claim: measured to be quoted; standing: several claims, ten minutes apart",
    choices=("smoke", "claim", "standing"),
    default="smoke",
)
_PRESET: Final[Any] = word("name of a preset, see `kakeya-mac presets`", metavar="PRESET", complete="preset")
_KEY: Final[Any] = option(
    "a runner's name and public key, got out of band; `init` pins it", metavar="NAME=KEY", kind="repeat"
)
_OWNER: Final[Any] = option("the key of the bus's owner, or its fingerprint, got out of band", metavar="KEY")
_NOTIFY: Final[Any] = option(
    "program to start here when the wait is over: the document on stdin, and KAKEYA_RUN_ID, "
    "KAKEYA_REASON, KAKEYA_VERDICT",
    metavar="CMD",
)


class JsonOptions(Options):
    """Of a command that asks no bus."""

    json: bool = _JSON


class BusOptions(JsonOptions):
    """Of a command that asks a bus."""

    bus: str | None = _BUS


class RunIdOptions(BusOptions):
    """Of a command about one run."""

    id: str = _ID


class SendOptions(BusOptions):
    """Of a command that sends a request."""

    wait: bool = flag("wait for the result and end in its exit code")
    wait_timeout: float | None = _WAIT_TIMEOUT
    follow: bool = _FOLLOW
    require: str | None = _REQUIRE
    queue: bool = flag("send it although no live runner is seen")


class RunOptions(SendOptions):
    """Of `run`."""

    preset: str = _PRESET
    param: list[str] | None = option(
        "a parameter of the preset; several values sweep: K=V,V,... or, of texts, K=V again for each",
        metavar="K=V",
        kind="repeat",
        short="-p",
    )
    repeat: int | None = option("run each combination of the values N times: a sweep", metavar="N", number="int")
    notify: str | None = _NOTIFY
    json_lines: bool = _JSON_LINES
    profile: Profile = _PROFILE
    sittings: int | None = option("of a standing claim, 6 to 64; 8 unless said", metavar="K", number="int")
    load: DrawnLoad | None = option(
        "hold half of the processors in every second launch: the ratio at both loads", choices=("drawn",)
    )
    dirty: bool = flag("send uncommitted changes of tracked files too (request code only)")
    ref: str | None = option(
        "commit whose tree is sent, default HEAD (request code only)", metavar="REV", complete="ref"
    )
    against: str | None = option(
        "commit to compare --ref with (presets that compare two)", metavar="REV", complete="ref"
    )
    fail_if: EffectWord | None = option(
        "end in 1 where the primary claim says so; without --require it is asked for that alone, in three looks",
        choices=("slower", "faster"),
    )
    runner: str | None = option("runner that may take it: a name, or labels: 'gpu', 'gpu,quiet'", metavar="SEL")
    expires: float | None = option("time after which it is never started, e.g. 1h30m", metavar="TIME", number="seconds")
    confirms: str | None = option(
        "run of the same question that this one is to confirm: not one of several looks", metavar="ID", complete="run"
    )
    new: bool = flag("force another run although the same one is live")
    dry_run: bool = flag("show the request and what it resolves to; send nothing")
    unsandboxed: bool = flag("run it without a sandbox, on this machine only; a bus refuses it")
    via: str | None = option("send it to a host that is reachable over ssh", metavar="ssh://USER@HOST[:PORT]")


class AttachOptions(BusOptions):
    """Of `attach`."""

    id: str = _ID
    wait_timeout: float | None = _WAIT_TIMEOUT
    follow: bool = flag("show the log on stderr while it grows")
    notify: str | None = _NOTIFY
    require: str | None = _REQUIRE
    json_lines: bool = _JSON_LINES


class WaitOptions(BusOptions):
    """Of `wait`."""

    ids: list[str] = word(
        "run ids, unique prefixes or suffixes of them, or @last", metavar="ID", kind="many", complete="run"
    )
    wait_timeout: float | None = _WAIT_TIMEOUT
    require: str | None = _REQUIRE


class RetryOptions(SendOptions):
    """Of `retry`."""

    id: str = _ID


class LogsOptions(BusOptions):
    """Of `logs`."""

    id: str = _ID
    follow: bool = flag("go on until the run ends", short="-f")
    lines: int | None = option("only the last N lines", metavar="N", short="-n", number="int")


class LsOptions(BusOptions):
    """Of `ls`."""

    state: str | None = option("only these", choices=("queued", "claimed", "started", "judging", "published"))
    preset: str | None = option("only of this preset", complete="preset")
    limit: int = option("at most N", metavar="N", short="-n", number="int", default=20)
    ids: bool = flag("print full ids only", short="-q")
    all: bool = flag("also runs that only the archives of the bus still hold")
    watch: bool = flag("show it anew as it changes, until Ctrl-C", short="-w")


class FetchOptions(BusOptions):
    """Of `fetch`."""

    id: str = _ID
    path: str | None = word("one file of it, or the end of its name: copied here", metavar="PATH", kind="optional")
    pack: str | None = option("write it as one file, NAME.tar.xz", metavar="FILE")


class OpenOptions(BusOptions):
    """Of `open`."""

    id: str | None = word(
        "run, sweep, preset, folder or file; with --html alone: the bus", metavar="ID", kind="optional", complete="run"
    )
    html: bool = flag("write one self-contained page and print its path")


class PresetsOptions(BusOptions):
    """Of `presets`."""

    all: bool = flag("also the engine's where the bus has its own, and planned ones")


class PresetsShowOptions(BusOptions):
    """Of `presets show`."""

    preset: str = _PRESET


class ExplainOptions(BusOptions):
    """Of `explain`."""

    what: str = word("preset or run id", metavar="PRESET|ID", complete="preset")
    param: list[str] | None = option("a parameter of the preset", metavar="K=V", kind="repeat", short="-p")
    profile: Profile = _PROFILE


class VerifyOptions(BusOptions):
    """Of `verify`."""

    what: list[str] = word(
        "run id, @last, result folder, or request branch", metavar="ID|PATH|BRANCH", kind="many", complete="run"
    )
    runner_key: list[str] | None = _KEY
    root_key: str | None = _OWNER


class QuoteOptions(BusOptions):
    """Of `quote`."""

    ids: list[str] = word(
        "run id, @last or result folder; all sittings of a standing claim, or its set's id",
        metavar="ID|PATH",
        kind="many",
        complete="run",
    )
    markdown: bool = flag("as markdown")
    runner_key: list[str] | None = _KEY


class CompareOptions(BusOptions):
    """Of `compare`."""

    a: str = word(
        "run id, @last or result folder; alone, of a run of a sweep, or a sweep's id", metavar="A", complete="run"
    )
    b: str | None = word("run id, @last or result folder", metavar="B", kind="optional", complete="run")


class ReportOptions(BusOptions):
    """Of `report`."""

    what: str | None = word("run id or report file", metavar="ID|PATH", kind="optional", complete="run")
    history: str | None = option(
        "value by run, commit and host of the results that are stored here", metavar="PRESET", complete="preset"
    )


class GateCheckOptions(JsonOptions):
    """Of `gate check`."""

    paths: list[str] = word("report files or result folders", metavar="PATH", kind="many", complete="path")
    format: str = option("how to print", choices=("table", "markdown", "junit", "annotations"), default="table")
    require: str | None = _REQUIRE
    runner_key: list[str] | None = _KEY


class GateExplainOptions(BusOptions):
    """Of `gate explain`."""

    what: str | None = word(
        "a word that a command printed: a premise, a claim, a check's code; none lists them",
        metavar="WORD",
        kind="optional",
        complete="rule",
    )
    of: str | None = word("the run or result folder it is about", metavar="ID|PATH", kind="optional", complete="run")


class DoctorOptions(BusOptions):
    """Of `doctor`."""

    no_push: bool = flag("skip the probe push")


class InitOptions(BusOptions):
    """Of `init`."""

    branch_template: str | None = option("request branches, e.g. 'claude/mac-bridge-{preset}-{id}'", metavar="TEXT")
    commit_as: str | None = option(
        "author and committer of what is pushed, where a host has rules about that", metavar="WHO"
    )
    message_prefix: str | None = option(
        "goes before each commit message, where a host looks for a word in it", metavar="TEXT"
    )
    runner_key: list[str] | None = _KEY
    root_key: str | None = _OWNER
    new_owner: bool = flag("with --root-key: the owner lost the old key and told you the new one")
    signing_key: str | None = option(
        "key to sign requests with: a file, 'auto' to find or make one, 'none'", metavar="PATH"
    )
    principal: str | None = option("name to sign as; default: git's user.email", metavar="NAME")


class GcOptions(BusOptions):
    """Of `gc`."""

    older_than: float = option("age, e.g. 12h; a bare number is days", metavar="AGE", number="days", default="30d")
    branches: bool = flag("also delete finished request branches on the bus")
    dry_run: bool = flag("only say what would go")


class CompletionOptions(Options):
    """Of `completion`."""

    shell: str = word("shell", choices=("bash", "zsh", "fish"), complete="shell")


class McpOptions(Options):
    """Of `mcp`."""

    bus: str | None = _BUS


class AgentOptions(Options):
    """Of `agent`."""

    form: str = word("which", kind="optional", choices=("snippet", "skill"), default="snippet")


class ProgramsOptions(JsonOptions):
    """Of `agent install` and `agent uninstall`."""

    claude: bool = flag("Claude Code: .mcp.json, its skill, CLAUDE.md")
    codex: bool = flag("Codex: ~/.codex/config.toml, AGENTS.md")
    cursor: bool = flag("Cursor: .cursor/mcp.json, AGENTS.md")
    vscode: bool = flag("VS Code: .vscode/mcp.json, AGENTS.md")
    agents_md: bool = flag("any other program: AGENTS.md alone")
