"""Every command of `kakeya-mac` as data: help, completion, README table and agent skill are made from here."""

from __future__ import annotations

from typing import Final

from bridge.cli.table.command import Argument, Verb

PROGRAM: Final = "kakeya-mac"
TAGLINE: Final = (
    "Run allow-listed experiments on a machine you own, over nothing but a git remote, "
    "and refuse numbers nobody measured."
)

_JSON = Argument(("--json",), "print one JSON document on stdout, also for errors and pending runs", "flag")
_JSON_LINES = Argument(
    ("--json-lines",), "print events as JSON lines while waiting, the document of --json last", "flag"
)
_BUS = Argument(
    ("--bus",),
    "bus to use: a remote name, path or URL, with the pinned id after '#'; 'embedded' for this machine",
    metavar="ROUTE[#ID]",
)
_ID = Argument(("id",), "run id, a unique prefix or suffix of one, or @last", metavar="ID", complete="run")
_RESULT = Argument(("id",), "run id, @last or result folder", metavar="ID|PATH", complete="run")
_WAIT_TIMEOUT = Argument(
    ("--wait-timeout",),
    "wait, but no longer than this, e.g. 90s or 1h30m (exit 8); the run goes on",
    metavar="TIME",
    number="seconds",
)
_FOLLOW = Argument(("--follow",), "show the log on stderr while it grows (implies --wait)", "flag")
_REQUIRE = Argument(
    ("--require",), "what exit 0 takes: evidence, or one premise (outputs, times, ...), of the primary claim, or "
    "CLAIM:evidence of another; by default anything but a rejection", metavar="WHAT",
)  # fmt: skip
_PARAM = Argument(("-p", "--param"), "a parameter of the preset", "repeat", metavar="K=V")
_PROFILE = Argument(
    ("--profile",), "smoke: a quick look; claim: measured to be quoted; standing: several claims, ten minutes apart",
    choices=("smoke", "claim", "standing"), default="smoke",
)  # fmt: skip
_PRESET = Argument(("preset",), "name of a preset, see `kakeya-mac presets`", metavar="PRESET", complete="preset")
_REPEAT = Argument(("--repeat",), "run each combination of the values N times: a sweep", metavar="N", number="int")
_KEY = Argument(
    ("--runner-key",), "a runner's name and public key, got out of band; init pins it", "repeat", metavar="NAME=KEY"
)
_OWNER = Argument(("--root-key",), "the key of the bus's owner, or its fingerprint, got out of band", metavar="KEY")
_PROGRAMS = (
    Argument(("--claude",), "Claude Code: .mcp.json, its skill, CLAUDE.md", "flag"),
    Argument(("--codex",), "Codex: ~/.codex/config.toml, AGENTS.md", "flag"),
    Argument(("--cursor",), "Cursor: .cursor/mcp.json, AGENTS.md", "flag"),
    Argument(("--vscode",), "VS Code: .vscode/mcp.json, AGENTS.md", "flag"),
    _JSON,
)
_PATHS = Argument(("paths",), "report files or result folders", "many", metavar="PATH", complete="path")
_LOOK_EXITS: Final = (0, 1, 11, 12)
_RESULT_EXITS: Final = (0, 1, 8, 11, 12)
_RUN_EXITS: Final = (0, 1, 4, 5, 6, 7, 8, 11, 12, 130, 143)

_NOTIFY = Argument(("--notify",), "program to start here when the wait is over: the document on stdin, and "
                   "KAKEYA_RUN_ID, KAKEYA_REASON, KAKEYA_VERDICT", metavar="CMD")  # fmt: skip

_SEND = (
    Verb(
        "run", "Send", "bridge.cli.mac.run:run", "send a request, and with --wait see it through",
        (
            _PRESET,
            Argument(("-p", "--param"), "a parameter of the preset; several values sweep: K=V,V,... or, of texts, "
                     "K=V again for each", "repeat", metavar="K=V"),
            _REPEAT,
            Argument(("--wait",), "wait for the result and end in its exit code", "flag"),
            _WAIT_TIMEOUT, _FOLLOW, _NOTIFY, _JSON, _JSON_LINES, _PROFILE,
            Argument(("--sittings",), "of a standing claim, 6 to 64; 8 unless said", metavar="K", number="int"),
            _REQUIRE,
            Argument(("--dirty",), "send uncommitted changes of tracked files too (request code only)", "flag"),
            Argument(("--ref",), "commit whose tree is sent, default HEAD (request code only)", metavar="REV",
                     complete="ref"),
            Argument(("--against",), "commit to compare --ref with (presets that compare two)", metavar="REV",
                     complete="ref"),
            Argument(("--fail-if",), "end in 1 where the primary claim says so", choices=("slower", "faster")),
            Argument(("--runner",), "runner that may take it: a name, or labels: 'gpu', 'gpu,quiet'", metavar="SEL"),
            Argument(("--expires",), "time after which it is never started, e.g. 1h30m", metavar="TIME",
                     number="seconds"),
            Argument(("--confirms",), "run of the same question that this one is to confirm: not one of several looks",
                     metavar="ID", complete="run"),
            Argument(("--new",), "force another run although the same one is live", "flag"),
            Argument(("--dry-run",), "show the request and what it resolves to; send nothing", "flag"),
            Argument(("--queue",), "send it although no live runner is seen", "flag"),
            Argument(("--unsandboxed",), "run it without a sandbox, on this machine only; a bus refuses it", "flag"),
            _BUS,
            Argument(("--via",), "send it to a host that is reachable over ssh", metavar="ssh://USER@HOST[:PORT]"),
        ),
        "The same preset, parameters, code and bus again while it is live attaches to the run that is already there: "
        "a killed shell just runs the same line again. Ctrl-C and SIGTERM detach and never cancel. A sweep sends one "
        "request a combination and repeat, at most 64; runs of one repeat share their seeds.",
        ("kakeya-mac run mlx-env-probe --wait", "kakeya-mac run k3-fused-allmlx-code --profile claim --wait --json",
         "kakeya-mac run my-train -p lr=0.1,0.01,0.001 --repeat 3 --wait",
         "kakeya-mac run k3-fused-allmlx-code --profile standing --sittings 8 --wait"),
        _RUN_EXITS,
    ),
    Verb(
        "attach", "Send", "bridge.cli.mac.run:attach", "wait for a run that was sent earlier, showing its progress",
        (
            _ID, _WAIT_TIMEOUT, Argument(("--follow",), "show the log on stderr while it grows", "flag"), _NOTIFY,
            _REQUIRE, _JSON, _JSON_LINES, _BUS,
        ),
        examples=("kakeya-mac attach @last",), exit_codes=_RUN_EXITS,
    ),
    Verb(
        "wait", "Send", "bridge.cli.mac.run:wait", "wait silently for runs; the strongest exit code of all of them",
        (
            Argument(("ids",), "run ids, unique prefixes or suffixes of them, or @last", "many", metavar="ID",
                     complete="run"),
            _WAIT_TIMEOUT, _REQUIRE, _JSON, _BUS,
        ),
        examples=("kakeya-mac wait @last --wait-timeout 300",), exit_codes=_RUN_EXITS,
    ),
    Verb(
        "cancel", "Send", "bridge.cli.mac.run:cancel", "ask the host to cancel a queued or running run",
        (_ID, _JSON, _BUS), examples=("kakeya-mac cancel @last",),
    ),
    Verb(
        "retry", "Send", "bridge.cli.mac.run:retry", "send the same request again under a new id",
        (
            _ID, Argument(("--wait",), "wait for the result and end in its exit code", "flag"),
            _WAIT_TIMEOUT, _FOLLOW, _REQUIRE, Argument(("--queue",), "send it although no live runner is seen", "flag"),
            _JSON, _BUS,
        ),
        examples=("kakeya-mac retry @last --wait",), exit_codes=_RUN_EXITS,
    ),
)  # fmt: skip

_WATCH = (
    Verb(
        "status", "Watch", "bridge.cli.mac.watch.look:status", "say where a run is and how it ended",
        (_ID, _JSON, _BUS), examples=("kakeya-mac status @last",), exit_codes=_LOOK_EXITS,
    ),
    Verb(
        "logs", "Watch", "bridge.cli.mac.watch.look:logs", "print a run's log, fenced: it is untrusted text",
        (
            _ID, Argument(("-f", "--follow"), "go on until the run ends", "flag"),
            Argument(("-n", "--lines"), "only the last N lines", metavar="N", number="int"), _JSON, _BUS,
        ),
        examples=("kakeya-mac logs -f @last",), exit_codes=(*_LOOK_EXITS, 130, 143),
    ),
    Verb(
        "ls", "Watch", "bridge.cli.mac.watch.listings:ls", "list runs, newest first",
        (
            Argument(("--state",), "only these", choices=("queued", "claimed", "started", "judging", "published")),
            Argument(("--preset",), "only of this preset", metavar="PRESET", complete="preset"),
            Argument(("-n", "--limit"), "at most N", metavar="N", number="int", default=20),
            Argument(("-q", "--ids"), "print full ids only", "flag"),
            Argument(("--all",), "also runs that only the archives of the bus still hold", "flag"),
            Argument(("-w", "--watch"), "show it anew as it changes, until Ctrl-C", "flag"), _JSON, _BUS,
        ),
        examples=("kakeya-mac ls --state started", "kakeya-mac ls -w", "kakeya-mac ls --all --limit 200"),
    ),
    Verb("fetch", "Watch", "bridge.cli.mac.watch.look:fetch", "write a run's verified result to disk",
            (_ID, Argument(("path",), "one file of it, or the end of its name: copied here", "optional",
                            metavar="PATH"),
             Argument(("--pack",), "write it as one file, NAME.tar.xz", metavar="FILE"), _JSON, _BUS),
            "A packed result is read like its folder: `verify`, `quote`, `open`, `compare`, `report` and `gate check` "
            "take the file. Packed again it is the same bytes.",
            ("kakeya-mac fetch @last", "kakeya-mac fetch @last plot.png",
             "kakeya-mac fetch @last --pack result.tar.xz"), _RESULT_EXITS),
    Verb("open", "Watch", "bridge.cli.mac.watch.look:open_result",
            "print the folder of a run's result, fetching it first",
            (Argument(("id",), "run, sweep, preset, folder or file; with --html alone: the bus", "optional",
                      metavar="ID", complete="run"),
             Argument(("--html",), "write one self-contained page and print its path", "flag"), _JSON, _BUS),
            "A packed result, NAME.tar.xz, is unpacked into the data folder. With --html also a sweep, a preset whose "
            "results are stored here, a result in a folder or file, whether or not it verifies, and, "
            "without ID, the bus. The page needs no network and no script.",
            ('cd "$(kakeya-mac open @last)"', "kakeya-mac open --html @last", "kakeya-mac open --html SWEEP",
             "kakeya-mac open --html"),
            _RESULT_EXITS),
    Verb("runners", "Watch", "bridge.cli.mac.watch.listings:runners", "list the runners of the bus and what they offer",
            (_JSON, _BUS)),
    Verb("presets", "Watch", "bridge.cli.mac.presets:presets", "list what may be run, the bus's own first",
            (Argument(("--all",), "also the engine's where the bus has its own, and planned ones", "flag"), _JSON,
             _BUS)),
    Verb("presets show", "Watch", "bridge.cli.mac.presets:show", "show a preset: parameters, limits, reports",
            (_PRESET, _JSON, _BUS), examples=("kakeya-mac presets show mlx-env-probe",)),
    Verb("explain", "Watch", "bridge.cli.mac.presets:explain",
            "show what a preset or a run resolves to, every decision with its reason",
            (Argument(("what",), "preset or run id", metavar="PRESET|ID", complete="preset"),
             _PARAM, _PROFILE, _JSON, _BUS),
            examples=("kakeya-mac explain mlx-env-probe",), exit_codes=_LOOK_EXITS),
)  # fmt: skip

_JUDGE = (
    Verb("verify", "Judge", "bridge.cli.mac.verify:verify",
            "check results offline: digests, manifest, claim chain, signature",
            (Argument(("what",), "run id, @last, result folder, or request branch", "many", metavar="ID|PATH|BRANCH",
                      complete="run"), _KEY, _OWNER, _JSON, _BUS),
            "Needs only the result tree: a folder written by fetch, or the request branch of a plain clone. Keys come "
            "from --runner-key, from the root of the bus's owner, or from kakeya.toml on the default branch; never "
            "from the result. With several results, or a bus at hand, a run that was left out shows. The reports are "
            "judged again each time. Exit code 0 takes a signature by a key that may say what the result says.",
            ("kakeya-mac verify @last", "kakeya-mac verify origin/mac-bridge/mlx-env-probe-01k9x3…"),
            (0, 1, 9, 10, 11, 12, 13)),
    Verb("quote", "Judge", "bridge.cli.mac.quote:quote", "print a pasteable block: the only wording allowed",
            (Argument(("ids",), "run id, @last or result folder; all sittings of a standing claim, or its set's id",
                      "many", metavar="ID|PATH", complete="run"),
             Argument(("--markdown",), "as markdown", "flag"), _KEY, _JSON, _BUS),
            "A sentence a claim, and the command that checks them. Claims that may not be quoted are named with the "
            "reason. Of several results, which have to be all sittings of one set, it is what they say together. A key "
            "that is named here counts for a result in a folder or a packed file.",
            ("kakeya-mac quote @last", "kakeya-mac quote SITTING-1 SITTING-2 …"), _RESULT_EXITS),
    Verb("compare", "Judge", "bridge.cli.mac.tables.compare:compare", "put two runs side by side and say what differs",
            (Argument(("a",), "run id, @last or result folder; alone, of a run of a sweep, or a sweep's id",
                      metavar="A", complete="run"),
             Argument(("b",), "run id, @last or result folder", "optional", metavar="B", complete="run"), _JSON, _BUS),
            "Facts first; then, where both measured the same prompts, the gate's statistics of B against A with the "
            "noise floor of each run. Two runs at two times are not interleaved, so none of it may be quoted, and "
            "every reason is named. To ask whether a commit is slower: the preset commit-comparison.",
            ("kakeya-mac compare @last 01k9x3", "kakeya-mac compare docs/evidence/RUN-A docs/evidence/RUN-B",
             "kakeya-mac compare SWEEP"),
            _RESULT_EXITS),
    Verb("report", "Judge", "bridge.cli.mac.tables.report:report", "show reports of a run or files, arm by arm",
            (Argument(("what",), "run id or report file", "optional", metavar="ID|PATH", complete="run"),
             Argument(("--history",), "value by run, commit and host of the results that are stored here",
                      metavar="PRESET", complete="preset"), _JSON, _BUS),
            examples=("kakeya-mac report @last", "kakeya-mac report --history my-train"), exit_codes=_RESULT_EXITS),
    Verb("gate check", "Judge", "bridge.cli.mac.gate:check", "judge report files or result folders here",
            (_PATHS,
             Argument(("--format",), "how to print", choices=("table", "markdown", "junit", "annotations"),
                      default="table"),
             _REQUIRE, _KEY, _JSON),
            "The same code that judges on the host. A bare report is never evidence: nobody saw it being measured. A "
            "result folder can be, with a signature by a pinned key.",
            ("kakeya-mac gate check docs/evidence",), (0, 1)),
    Verb("gate rules", "Judge", "bridge.cli.mac.gate:rules", "list the rules of the gate", (_JSON,)),
    Verb("gate explain", "Judge", "bridge.cli.mac.gate:explain",
            "say what a printed word means, and what it comes to in a run",
            (Argument(("what",), "a word that a command printed: a premise, a claim, a check's code; none lists them",
                      "optional", metavar="WORD", complete="rule"),
             Argument(("of",), "the run or result folder it is about", "optional", metavar="ID|PATH",
                      complete="run"), _JSON, _BUS),
            "Of a claim of a run: each premise, held or missing, who saw it, what took it. Of a premise: which claims "
            "lack it there, why, and what mends it.",
            ("kakeya-mac gate explain G4-MARKS", "kakeya-mac gate explain inputs @last"), _RESULT_EXITS),
)  # fmt: skip

_SETUP = (
    Verb("doctor", "Set up", "bridge.cli.mac.setup:doctor", "check everything between here and a runner",
            (Argument(("--no-push",), "skip the probe push", "flag"), _JSON, _BUS),
            "Pushes a probe to the request namespace and removes it again; every finding carries a remedy.",
            ("kakeya-mac doctor",), (0, 1)),
    Verb("init", "Set up", "bridge.cli.mac.setup:init", "choose and pin the bus of this clone",
            (_BUS,
             Argument(("--branch-template",), "request branches, e.g. 'claude/mac-bridge-{preset}-{id}'",
                      metavar="TEXT"),
             Argument(("--commit-as",), "author and committer of what is pushed, where a host has rules about that",
                      metavar="WHO"),
             Argument(("--message-prefix",), "goes before each commit message, where a host looks for a word in it",
                      metavar="TEXT"),
             Argument(("--runner-key",), "a runner's name and public key, got out of band", "repeat",
                      metavar="NAME=KEY"),
             _OWNER,
             Argument(("--new-owner",), "with --root-key: the owner lost the old key and told you the new one", "flag"),
             Argument(("--signing-key",), "key to sign requests with: a file, 'auto' to find or make one, 'none'",
                      metavar="PATH"),
             Argument(("--principal",), "name to sign as; default: git's user.email", metavar="NAME"),
             Argument(("--agents-md",), "also write the agent's section into AGENTS.md", "flag"), _JSON),
            "Where a runner of the bus checks signatures, a key is found (git's own, ssh-agent, ~/.ssh) or made; the "
            "output names the one command with which the host's owner trusts it.",
            ("kakeya-mac init --bus origin", "kakeya-mac init --bus origin --signing-key auto")),
    Verb("gc", "Set up", "bridge.cli.mac.setup:gc", "remove old results here, and request branches that are done",
            (Argument(("--older-than",), "age, e.g. 12h; a bare number is days", metavar="AGE", number="days",
                      default="30d"),
             Argument(("--branches",), "also delete finished request branches on the bus", "flag"),
             Argument(("--dry-run",), "only say what would go", "flag"), _JSON, _BUS)),
    Verb("config", "Set up", "bridge.cli.mac.setup:config", "show the bus, and where that came from", (_JSON, _BUS)),
    Verb("completion", "Set up", "bridge.cli.mac.setup:completion", "print a completion script",
            (Argument(("shell",), "shell", choices=("bash", "zsh", "fish"), complete="shell"),),
            examples=('eval "$(kakeya-mac completion bash)"',)),
    Verb("mcp", "Set up", "bridge.cli.mac.agents.commands:mcp",
            "serve this bus's presets as tools to an agent, over stdio",
            (_BUS,),
            "Speaks the Model Context Protocol on stdin and stdout; needs the extra `mcp`. Tools are what this bus "
            "offers. A call that starts a run returns at once, `wait` takes less than a client's usual time-out, and "
            "the same call after a cut-off connection finds the same run.",
            ("kakeya-mac mcp",)),
    Verb("agent", "Set up", "bridge.cli.mac.agents.commands:agent",
            "print the section for AGENTS.md, or the agent skill",
            (Argument(("form",), "which", "optional", choices=("snippet", "skill"), default="snippet"),)),
    Verb("agent install", "Set up", "bridge.cli.mac.agents.commands:install",
            "put tools, skill and instructions into an agent's files",
            _PROGRAMS, "What is in those files stays. A file that cannot be merged leaves all of them as they were.",
            ("kakeya-mac agent install --claude",)),
    Verb("agent uninstall", "Set up", "bridge.cli.mac.agents.commands:uninstall",
            "take out of those files what `agent install` put there", _PROGRAMS,
            examples=("kakeya-mac agent uninstall --claude",)),
    Verb("version", "Set up", "bridge.cli.mac.setup:version", "print the versions of program, gate and schemas",
            (_JSON,)),
)  # fmt: skip

COMMANDS: Final[tuple[Verb, ...]] = (*_SEND, *_WATCH, *_JUDGE, *_SETUP)
BY_NAME: Final[dict[str, Verb]] = {command.name: command for command in COMMANDS}
GROUPS: Final = ("Send", "Watch", "Judge", "Set up")
FRONT: Final = (
    "run", "attach", "cancel", "status", "logs", "ls", "open", "quote", "verify", "compare", "init", "doctor",
)  # fmt: skip
"""What the first page of the help shows; `help all` shows the rest."""


def find(words: list[str]) -> tuple[Verb | None, list[str]]:
    """Return the command of a command line and the words that follow it; two-word names win."""
    for length in (2, 1):
        name = " ".join(words[:length])
        if len(words) >= length and name in BY_NAME:
            return BY_NAME[name], words[length:]
    return None, words
