"""Make this machine a runner: every step looks first, acts only where something is missing, and changes nothing twice.

Touches only the owner's own files; users, services and packages of the system are the set-up scripts' part.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from bridge.diagnostics import Check
from bridge.errors import UsageError
from bridge.runner.policy.check import problems
from bridge.runner.policy.file import load_policy
from bridge.runner.state.folder import StateFolder
from bridge.system.durable import write_atomically


@dataclass(frozen=True)
class SetupOptions:
    """What the owner wants; what is None keeps the template's default.

    Attributes:
        bus: route of the bus, with its id after ``#``.
        engine: the cluster's queue that runs go to; None keeps them on this machine.
        root_key: the fingerprint of the bus owner's key, where the bus has an owner: no start takes another's root.
        commit_as: author and committer of what the runner pushes.
        keygen: makes the key that signs results, in a folder and under a name; None leaves it out.
    """

    policy_path: Path
    state: StateFolder
    name: str
    bus: str | None = None
    labels: tuple[str, ...] = ()
    model_roots: tuple[str, ...] = ()
    interpreter: str | None = None
    keygen: Callable[[Path, str], object] | None = None
    engine: str | None = None
    root_key: str | None = None
    commit_as: str | None = None


@dataclass(frozen=True)
class SetupStep:
    """One thing that has to be so.

    Attributes:
        act: makes it so; None when it is so already, or when only a person can.
        problem: what only a person can put right.
    """

    what: str
    act: Callable[[], object] | None = None
    problem: Check | None = None


def template(name: str) -> str:
    """Return the commented policy of safe defaults for a runner of this name: the one source of every example."""
    text = resources.files("bridge.runner.policy").joinpath("policy_template.toml").read_text("utf-8")
    return text.replace('"NAME"', json.dumps(name))


def policy_text(options: SetupOptions) -> str:
    """Return the template with what was asked for turned on, all else as it is."""
    chosen = {
        "bus": options.bus,
        "labels": list(options.labels) or None,
        "interpreter": options.interpreter,
        "model_roots": list(options.model_roots) or None,
        "engine": options.engine,
        "root_key": options.root_key,
        "committer": options.commit_as,
    }
    given = {"[executor]": options.engine, "[identity]": options.commit_as}
    tables = [table for table, value in given.items() if value is not None]
    lines = []
    for line in template(options.name).splitlines(keepends=True):
        key = line.removeprefix("# ").partition(" = ")[0]
        value = chosen.pop(key, None)
        table = line.removeprefix("# ").partition("]")[0] + "]"
        if table in tables and line.startswith("# ["):
            lines.append(f"{table}\n")
            continue
        lines.append(line if value is None else f"{key} = {json.dumps(value)}\n")
    return "".join(lines)


def steps(options: SetupOptions) -> Iterator[SetupStep]:
    """Yield the steps in order; each is looked at when it is its turn."""
    yield from state_steps(options)
    yield from policy_steps(options)


def state_steps(options: SetupOptions) -> Iterator[SetupStep]:
    """Yield the steps that need no bus, the key among them: a bus made without one would not sign its results."""
    yield _folder("the state folder", options.state.root, private=True)
    yield SetupStep("the state folder's parts", None if _complete(options.state) else options.state.create)
    yield _key(options)


def policy_steps(options: SetupOptions) -> Iterator[SetupStep]:
    """Yield the steps that write down the bus."""
    yield _folder("the policy's folder", options.policy_path.parent, private=False)
    yield from _policy(options)


def _folder(what: str, path: Path, *, private: bool) -> SetupStep:
    what_it_is = f"{what}: {path}"
    if not path.is_dir():
        return SetupStep(what_it_is, lambda: path.mkdir(mode=0o700, parents=True))
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (0o077 if private else 0o022) and not (mode & stat.S_ISVTX and not private):
        return SetupStep(f"{what_it_is}, closed to others", lambda: path.chmod(mode & (0o700 if private else 0o755)))
    return SetupStep(what_it_is)


def _policy(options: SetupOptions) -> Iterator[SetupStep]:
    path = options.policy_path
    if not path.exists():
        yield SetupStep(
            f"a policy of safe defaults: {path}", lambda: write_atomically(path, policy_text(options).encode())
        )
        return
    if stat.S_IMODE(path.stat().st_mode) & 0o077 and path.stat().st_uid == os.geteuid():
        yield SetupStep(f"the policy, closed to others: {path}", lambda: path.chmod(0o600))
    else:
        yield SetupStep(f"the policy, yours to edit: {path}")
    for problem in problems(path):
        if problem.remedy != f"chmod 600 {shlex.quote(str(path))}":
            yield SetupStep(f"the policy: {problem.name}", problem=problem)
    for lack in _lacking_in_policy(options):
        yield SetupStep(f"the policy: {lack.name}", problem=lack)


def _lacking_in_policy(options: SetupOptions) -> Iterator[Check]:
    """Yield what is wanted and what a policy that was there, and stays as it is, does not say."""
    try:
        policy = load_policy(options.policy_path)
    except UsageError:
        return  # why, `problems` says
    pairs = {
        "labels": (options.labels, policy.labels),
        "model_roots": (options.model_roots, policy.model_roots),
        "interpreter": (options.interpreter, policy.interpreter),
        "[executor] engine": (options.engine, policy.executor.engine),
        "[identity] committer": (options.commit_as, policy.identity.committer),
    }
    for key, (wish, value) in pairs.items():
        if wish and wish != value:
            line = f"{key} = {json.dumps(wish)}"
            yield Check(key, "warn", "the policy was there, stays as it is and says otherwise", f"write there: {line}")


def _complete(state: StateFolder) -> bool:
    parts = (state.reports, state.late, state.runs, state.spool, state.bus, state.identity)
    return all(folder.is_dir() for folder in parts)


def _key(options: SetupOptions) -> SetupStep:
    from bridge.trust.runner_key import KEY_FILE

    path, keygen = options.state.identity / KEY_FILE, options.keygen
    if path.exists() or keygen is None:
        return SetupStep(f"the key that signs results: {path}" if path.exists() else "no key: results are not signed")
    return SetupStep(f"the key that signs results: {path}", lambda: keygen(options.state.identity, options.name))


def serve_argv(options: SetupOptions) -> list[str]:
    """Return the command a service runs; `python -I` imports nothing from where it is started."""
    return [
        sys.executable, "-I", "-m", "bridge.cli.host.main", "serve",
        "--policy", str(options.policy_path), "--state", str(options.state.root),
        *(["--bus", options.bus] if options.bus is not None else []),
    ]  # fmt: skip


def unit(argv: Sequence[str], platform: str = sys.platform) -> tuple[Path, str]:
    """Return where this user's service manager looks and what it wants to find there."""
    if platform == "darwin":
        import plistlib

        value = {
            "Label": "kakeya-runner",
            "ProgramArguments": ["/usr/bin/caffeinate", "-i", *argv],
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},  # drain and stop end it in 0, and for good
            "AbandonProcessGroup": True,  # a run that goes on is not the runner's to take along
        }
        return Path.home() / "Library/LaunchAgents/kakeya-runner.plist", plistlib.dumps(value).decode()
    words = " ".join([_unit_word(argv[0]), *(_unit_word(word).replace("$", "$$") for word in argv[1:])])
    text = (
        "[Unit]\nDescription=Kakeya runner\nAfter=network-online.target\n\n"
        f"[Service]\nExecStart={words}\nRestart=on-failure\nRestartSec=10\nKillMode=process\n\n"
        "[Install]\nWantedBy=default.target\n"
    )
    return Path.home() / ".config/systemd/user/kakeya-runner.service", text


def _unit_word(word: str) -> str:
    """Return a word of a command as a unit of systemd writes it; behind the program, a dollar is doubled as well."""
    return '"{}"'.format(word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%"))


def service_commands(options: SetupOptions, mine: Sequence[str], platform: str = sys.platform) -> tuple[str, ...]:
    """Return what the owner types next: serve now, serve for good.

    Args:
        options: what was set up.
        mine: the command that prints the unit.
        platform: whose service manager is meant.
    """
    argv = shlex.join(serve_argv(options))
    path, _ = unit(serve_argv(options), platform)
    start = (
        f"launchctl bootstrap gui/{os.getuid()} {shlex.quote(str(path))}"
        if platform == "darwin"
        else "systemctl --user enable --now kakeya-runner && loginctl enable-linger"
    )
    folder, file = shlex.quote(str(path.parent)), shlex.quote(str(path))
    return (argv, f"mkdir -p {folder} && {shlex.join(mine)} > {file} && {start}")
