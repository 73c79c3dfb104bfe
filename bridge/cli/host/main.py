"""`kakeya-runner`: what a machine's owner types. Parses and dispatches; the work is in `bridge.cli.host.commands`.

Imports nothing heavy: `--help` is as quick as Python itself.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from bridge.cli.boundary import guarded
from bridge.cli.table.values import age, duration
from bridge.errors import UsageError, meant

_EPILOG = """\
Start here:
  kakeya-runner setup --bus ROUTE --create-bus     folders, a policy of safe defaults, a key; says what to type next
  kakeya-runner doctor                             try everything a run needs, with a remedy per finding
  kakeya-runner serve

ROUTE is a remote name, a path, or a file, ssh or https URL; ROUTE#ID insists on the bus id.
Only policy.toml decides what runs; a request can ask for less, never for more. stdout is data, stderr is talk.

Exit codes: 0 fine or idle · 1 a finding (doctor, policy check, state show), or the gate refused · 2 usage or
request rejected · 3 infrastructure · 4 program failed · 5 timed out · 6 cancelled · 7 policy refused · 70 bug ·
130/143 stopped by a signal. `once` ends in the code of the request it took.
"""


_TRUST_ACTIONS = ("add", "list", "remove", "init", "merge", "retire", "revoke", "rotate", "show", "ticket")
_TRUST_EPILOG = """\
On a bus that this account owns, these say whose key is whose for everybody who uses it:
  kakeya-runner trust show --bus ROUTE
  kakeya-runner trust add hostb=KEY --bus ROUTE                       one more runner; keygen prints NAME=KEY
  kakeya-runner trust add dev.pub --principal dev --bus ROUTE         a requester; policy.toml says what it may do
  kakeya-runner trust retire NAME|KEY --bus ROUTE                     what it signed still counts
  kakeya-runner trust revoke NAME|KEY --bus ROUTE                     nothing that it signed counts
  kakeya-runner trust rotate --bus ROUTE                              a new key for the owner
  kakeya-runner trust merge --bus ROUTE [--take NAME]                 unite two roots: revocations of both count
  kakeya-runner trust ticket ci-1 --for 12h --bus ROUTE               a key for `once --ephemeral`, into ci-1.ticket
  kakeya-runner trust init --bus ROUTE [--new-owner]                  own a bus that nobody owns, or whose key is lost

This host's own lists:
  kakeya-runner trust add agent.pub --principal agent@example.org     may sign requests, also for request code
  kakeya-runner trust add dev.pub --principal dev --code              commits signed with it are trusted code
  kakeya-runner trust list
  kakeya-runner revoke agent@example.org                              ends its running requests within a second

The keys lie beside policy.toml, in allowed_signers, code_signers and revoked; a running runner reads them anew for each
request. Policy keys: allowed_signers, code_signers, revoked, require_signature, quota_per_hour, quotas, owners,
protected_refs, floor_commit, names, root_key, runner_keys.
"""


_WORKLOAD_EPILOG = """\
examples:
  kakeya-runner workload new my-train --from train.py     writes workloads/my-train, which already works
  kakeya-runner workload new search --from /usr/bin/rg --from text --arguments '-c yield text' --number none
  kakeya-runner workload check my-train                   every mistake, with file, line and remedy
  kakeya-runner workload try my-train -p lr=0.1           runs it here, in the sandbox, and shows the verdict
  kakeya-runner workload allow my-train                   from now on this machine's runners offer it

What a folder holds: docs/guides/workloads.md.
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser: argparse.ArgumentParser = _Parser(
        prog="kakeya-runner",
        description="Run allow-listed presets on this machine for people who can reach only a git remote.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="commands", dest="verb", metavar="COMMAND", required=True)
    _setup(verbs)
    _serving(verbs)
    _control(verbs)
    _files(verbs)
    _workloads(verbs)
    _keys(verbs)
    _ssh(verbs)
    _trust(verbs)
    _bus(verbs)
    _people(verbs)
    _actions(verbs)
    _nodes(verbs)
    return parser


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the words in one line, with the nearest of those that are known."""

    def error(self, message: str) -> NoReturn:
        """Raise what was got, what is expected and where more is.

        Raises:
            UsageError: always.
        """
        chosen = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message)
        if chosen is not None:
            known = [word.strip("'") for word in chosen[2].split(", ")]
            message = f"{message[: chosen.start()]}got {chosen[1][:60]!r}; {meant(chosen[1], known, most=2)}"
        verb = self.prog.partition(" ")[2]
        raise UsageError(f"{verb}: {message}" if verb else message, remedy=f"{self.prog} --help")


def _setup(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    setup = _verb(verbs, "setup", "make this machine a runner: folders, policy of safe defaults, key", bus=True)
    _creating(setup)
    setup.add_argument("--name", help="the runner's name on its bus; default: the policy's, then the host's")
    setup.add_argument("--label", action="append", default=[], metavar="NAME", help="what requests may ask for")
    setup.add_argument("--models", action="append", default=[], metavar="DIR", help="a folder of models")
    setup.add_argument("--interpreter", metavar="PYTHON", help="absolute path of the Python with kakeya installed")
    setup.add_argument(
        "--executor", choices=("slurm", "ray"), help="runs go to the nodes of a cluster; docs/guides/clusters.md"
    )
    setup.add_argument("--commit-as", metavar="WHO", help="NAME <ADDRESS> for commits, where a host has rules about it")
    setup.add_argument("--dry-run", action="store_true", help="only print what would be done")
    setup.add_argument("--unit", action="store_true", help="only print the service file for this user")


def _serving(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = _verb(verbs, "serve", "take requests until stopped or drained", bus=True)
    _creating(serve)
    _rehashing(serve)
    serve.add_argument("--embedded", metavar="DIR", help="serve this machine's own bus in DIR until it is idle")
    serve.add_argument("--idle", type=duration, metavar="TIME", help="end after such a time without anything to do")
    one = _verb(verbs, "once", "take one request to its end, then stop; for Actions and cron", bus=True)
    _creating(one)
    _rehashing(one)
    one.add_argument("--branch", metavar="NAME", help="the request branch to take; default: the oldest request")
    one.add_argument("--ephemeral", action="store_true", help="keep nothing: no state, key or beacon is left")
    one.add_argument("--ticket", metavar="FILE", help="with --ephemeral: what `trust ticket` made; -: from a pipe")
    waits = "with --ephemeral: how long to wait for a request; default: take what is there"
    one.add_argument("--wait-up-to", type=duration, metavar="TIME", help=waits)
    summary = "print the result's summary instead of appending it to the file GITHUB_STEP_SUMMARY names"
    one.add_argument("--summary", action="store_true", help=summary)
    doctor = _verb(verbs, "doctor", "try everything a run needs and name a remedy per finding", bus=True)
    doctor.add_argument("--json", action="store_true", help="one JSON document on stdout")


def _control(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stop = _verb(verbs, "stop", "end the runner; what runs goes on, and the next start follows it")
    stop.add_argument("--runs", action="store_true", help="end what runs as well, as interrupted")
    stop.add_argument("--run", metavar="ID", help="end this run alone, as interrupted; the runner goes on")
    seen = _verb(verbs, "status", "what runs now, what waits, the last twenty runs with requester and minutes")
    seen.add_argument("--json", action="store_true", help="one JSON document on stdout")
    drain = _verb(verbs, "drain", "end the runner after what it is running")
    drain.add_argument("--now", action="store_true", help="end what runs now, as interrupted, then the runner")
    _verb(verbs, "pause", "take nothing new until resumed; what runs goes on")
    _verb(verbs, "resume", "take requests again")
    collect = _verb(verbs, "gc", "delete refs of runs that ended long ago, and old files of this runner", bus=True)
    said = "e.g. 12h; a bare number is days; default 14d"
    collect.add_argument("--older-than", type=age, default="14d", metavar="AGE", help=said)
    collect.add_argument("--dry-run", action="store_true", help="only print what would go")


def _files(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    policy = _verb(verbs, "policy", "check or explain the policy file, or print an example")
    policy.add_argument("action", choices=("check", "example", "explain"))
    policy.add_argument("preset", nargs="?", help="with explain: what a request of this preset would get")
    policy.add_argument("--as", dest="asker", metavar="NAME", help="with explain: as a request that this name signed")
    state = _verb(verbs, "state", "show what this runner's state file holds, or a run's events; checks its chain")
    state.add_argument("action", choices=("show",))
    state.add_argument("run", nargs="?", help="a run id, or the end of one: its events")
    logs = _verb(verbs, "logs", "print the runner's own log: what it did, and where it failed")
    logs.add_argument("-f", "--follow", action="store_true", help="go on with what is written from now on")
    logs.add_argument("--run", metavar="ID", help="only this run: its id, or the end of one")
    levels = ("debug", "info", "warning", "error")
    logs.add_argument("--level", choices=levels, default="info", help="the least level to print; default: info")
    logs.add_argument("--json", action="store_true", help="the lines as they are kept: JSON, with versions")


def _workloads(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    own = _verb(verbs, "workload", "offer your own program: new, check, try, allow, list, remove")
    own.formatter_class = argparse.RawDescriptionHelpFormatter
    own.epilog = _WORKLOAD_EPILOG
    own.add_argument("action", choices=("new", "check", "try", "allow", "list", "remove"))
    own.add_argument("folder", nargs="?", metavar="NAME|FOLDER", help="a folder, or the name of one below workloads/")
    own.add_argument(
        "--from",
        dest="program",
        action="append",
        default=[],
        metavar="FILE",
        help="with new: the program as it is, copied; again: a file or folder that it reads",
    )
    own.add_argument(
        "--arguments",
        metavar="WORDS",
        help="with new: what it is started with, always, as a shell reads it: '-n 3 data'",
    )
    own.add_argument("--number", metavar="NAME", help="with new: which number of it is meant; none: files only")
    own.add_argument("--unit", metavar="UNIT", help="with new: unit of the number it reports; default: none")
    own.add_argument("-p", "--param", action="append", default=[], metavar="NAME=VALUE", help="with try: a parameter")
    own.add_argument("--preset", metavar="NAME", help="with try: which of its presets; default: the first")
    own.add_argument("--json", action="store_true", help="with check and list: one JSON document on stdout")


def _ssh(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    door = _verb(verbs, "exec", "serve requesters over ssh: the forced command of an authorized_keys line")
    door.add_argument("--show", action="store_true", help="print that line, the bus id and the key to pin")
    door.add_argument("--no-start", action="store_true", help="start no runner; one serves DIR/ssh/bus.git already")
    door.add_argument("--serve", action="store_true", help="run the runner behind it until it is idle")


def _keys(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    key = _verb(verbs, "keygen", "make the key that signs this runner's results, and print its public half", bus=True)
    key.add_argument("--rotate", action="store_true", help="make a new key, which the bus's owner then lists")
    key.add_argument("--agent", metavar="FILE", help="sign with a key of the ssh-agent: the .pub file of it")


def _trust(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    trust = _verb(
        verbs,
        "trust",
        "say whose key is whose on a bus, whose requests this host takes, whose code it trusts",
        bus=True,
    )
    trust.formatter_class = argparse.RawDescriptionHelpFormatter
    trust.epilog = _TRUST_EPILOG
    trust.add_argument("action", choices=_TRUST_ACTIONS)
    trust.add_argument(
        "key", nargs="*", default=[], metavar="KEY",
        help="a public key, its file, or a runner's NAME=KEY; remove, retire and revoke also take a name",
    )  # fmt: skip
    trust.add_argument("--here", action="store_true", help="with add: into this host's list, whoever owns the bus")
    trust.add_argument("--owner-key", metavar="FILE", help="with init: own the bus with this key; .pub: ssh-agent's")
    trust.add_argument(
        "--take", action="append", default=[], metavar="NAME|KEY", help="with merge: a key that only the bus's root has"
    )
    trust.add_argument("--new-owner", action="store_true", help="with init: the owner's key is lost, begin anew")
    trust.add_argument("--code", action="store_true", help="the key may vouch for code by signing commits")
    trust.add_argument("--principal", action="append", metavar="NAME", help="who holds it; default: the key's comment")
    trust.add_argument("--valid-after", metavar="DATE", help="YYYYMMDD[HHMM[SS]][Z]: signs nothing before")
    trust.add_argument("--valid-before", metavar="DATE", help="YYYYMMDD[HHMM[SS]][Z]: signs nothing from then on")
    trust.add_argument(
        "--for", dest="lasts", type=duration, default="24h", metavar="TIME", help="with ticket: how long; default 24h"
    )
    trust.add_argument("--out", metavar="FILE", help="with ticket: a new file for it; default: NAME.ticket")
    trust.add_argument("--json", action="store_true", help="with list: one JSON document on stdout")
    revoke = _verb(verbs, "revoke", "refuse a principal or a key from now on, and end what runs for it")
    revoke.add_argument("who", nargs="+", metavar="PRINCIPAL|KEY", help="a name, SHA256:..., a public key or its file")


def _bus(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bus = _verb(
        verbs, "bus", "try what a bus's remote allows, mend its refs, take requests in one more space", bus=True
    )
    bus.add_argument("action", choices=("check", "repair", "allow-branches"))
    bus.add_argument(
        "--yes", action="store_true", help="with repair: delete what is damaged or no good, and push again what is here"
    )
    bus.add_argument("--json", action="store_true", help="with check: one JSON document on stdout")
    bus.add_argument(
        "space", nargs="?", metavar="SPACE", help="with allow-branches: e.g. claude, for claude/mac-bridge-*"
    )


def _people(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    hello = _verb(
        verbs, "welcome", "give one person a name, a key and rights here, from the line that they sent", bus=True
    )
    hello.add_argument("line", nargs="+", metavar="LINE", help="'NAME ssh-ed25519 KEY': what kakeya-mac init prints")
    hello.add_argument(
        "--may", nargs="+", action="extend", default=[], metavar="PRESET",
        help="what the person may ask for, patterns allowed; default: what an unsigned request may",
    )  # fmt: skip
    hello.add_argument("--code", action="store_true", help="commits signed with the key are trusted code")
    hello.add_argument("--yes", action="store_true", help="do not ask; look at the fingerprint first")
    asked = _verb(verbs, "who", "show the keys and all rights of one name on this host", bus=True)
    asked.add_argument("name", metavar="NAME", help="as the person signs, e.g. ada@example.org")


def _actions(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    hook = _verb(verbs, "job-hook", "answer the Actions runner before and after each job; see docs/guides/actions.md")
    hook.add_argument("action", choices=("started", "completed", "decide", "digest"))
    words = "digest: a workflow file, to be listed in the policy; decide: a workflow reference and a commit"
    hook.add_argument("words", nargs="*", metavar="WORD", help=words)
    hook.add_argument("--ask", metavar="FILE", help="with started: a program that decides, as a user who may read more")
    hook.add_argument("--stop", metavar="FILE", help="with started: a program that stops the Actions service")


def _nodes(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    summary = "run the job of a run's folder to its end; started by a runner or by a cluster's node"
    node = verbs.add_parser("supervise", help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    node.add_argument("folder", metavar="FOLDER", help="the folder, with job.json in it; see docs/supervisor.md")
    node.add_argument("--apart", action="store_true", help="in a process that does not descend from this one")
    node.add_argument("--probe", action="store_true", help="only answer in FOLDER what this node sees of it")


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, *, bus: bool = False
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    parser.add_argument("--policy", metavar="FILE", help="policy file; default: policy.toml in your config folder")
    parser.add_argument("--state", metavar="DIR", help="state folder; default: the user's state folder, by runner name")
    if bus:
        parser.add_argument("--bus", metavar="ROUTE[#ID]", help="default: KAKEYA_BUS, then bus in the policy")
    return parser


def _rehashing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rehash", action="store_true", help="digest every model file anew, whatever its times say")


def _creating(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--create-bus", action="store_true", help="make the remote a bus if it is none yet")
    parser.add_argument("--wake", choices=("poll", "actions"), default="poll", help="of a new bus: what wakes it")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser()
    return guarded(
        lambda: _dispatch(parser.parse_args(words or ["--help"])),
        lambda error: _talk(f"kakeya-runner: {error}"),
        "kakeya-runner",
        _talk,
    )


def _dispatch(arguments: argparse.Namespace) -> int:
    if arguments.verb == "exec":  # started anew by every connection, so kept light
        return int(importlib.import_module("bridge.cli.host.exec").execute(arguments))
    if arguments.verb == "supervise":
        return int(importlib.import_module("bridge.cli.host.supervise").supervise(arguments))
    handlers = importlib.import_module("bridge.cli.host.commands").HANDLERS
    return int(handlers[arguments.verb](arguments))


def _talk(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
