"""The bus that a host keeps for requesters who reach it over ssh: one bare repository, and what they may do with it.

They speak git to exactly this repository, whatever path they name. They may read all of it and write request and cancel
branches; the refs of bus and runner are hidden from their pushes, so only this host's runner moves them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.errors import UsageError
from bridge.limits import TRANSFER_WALL_S, TREE_MAX_BYTES
from bridge.system.clock import Clock
from bridge.system.gitrepository import HARMLESS_SLIPS, BareRepository, GitSettings
from bridge.system.process import become

Verb = Literal["upload-pack", "receive-pack"]
COMMAND_MAX_CHARS: Final = 1000
_COMMAND = re.compile(r"git[ -](upload-pack|receive-pack)")
_PROTOCOL = re.compile(r"version=[0-2]")
_CONFIG: Final = (
    ("receive.hideRefs", "refs"),
    ("receive.maxInputSize", str(TREE_MAX_BYTES)),
    ("receive.fsckObjects", "true"),
    *((f"receive.fsck.{slip}", "warn") for slip in HARMLESS_SLIPS),
    ("receive.autogc", "false"),
    ("uploadpack.allowAnySHA1InWant", "true"),  # a result is read by its id after its ref moved on
)


def asked_for(command: str) -> Verb:
    """Return the git service that an ssh client requested; the path it names is ignored.

    Raises:
        UsageError: anything but git reading or writing one repository.
    """
    refusal = UsageError(
        f"this key may only send Kakeya requests; got {command[:80]!r}",
        remedy="kakeya-mac run PRESET --via ssh://USER@HOST",
    )
    if len(command) > COMMAND_MAX_CHARS:
        raise refusal
    try:
        words = shlex.split(command)
    except ValueError:
        raise refusal from None
    match = _COMMAND.fullmatch(" ".join(words[:-1]))
    if match is None or words[-1].startswith("-"):
        raise refusal
    return "upload-pack" if match[1] == "upload-pack" else "receive-pack"


def writable_folders(repository: BareRepository) -> tuple[str, ...]:
    """Return the folders of refs that requesters may write to: those of the branches that the bus record names.

    Git hides refs by whole parts of their names, so of ``claude/mac-bridge-*`` all below ``claude/`` may be written.
    """
    shown = repository.run(["cat-file", "blob", f"{names.bus_ref(names.DEFAULT_PREFIX)}:{commits.BUS_FILE.decode()}"])
    try:
        patterns = json.loads(shown.stdout)["request_branches"]
    except (ValueError, KeyError, TypeError):
        return ()  # no bus yet, so nothing to write to
    return tuple(sorted({prefix.rpartition("/")[0] for prefix in names.listing_prefixes(patterns)}))


def serve_git(path: Path, verb: Verb, environment: Mapping[str, str]) -> None:
    """Become git, serving the repository on the standard streams under the bounds above; does not return.

    Raises:
        InfrastructureError: git cannot be started.
    """
    writable = (("receive.hideRefs", f"!{folder}") for folder in writable_folders(BareRepository(path)))
    argv, variables = BareRepository(path, GitSettings(config=(*_CONFIG, *writable))).serving(verb)
    protocol = environment.get("GIT_PROTOCOL", "")
    if _PROTOCOL.fullmatch(protocol):
        variables["GIT_PROTOCOL"] = protocol
    variables |= {"PATH": environment.get("PATH", os.defpath), "LC_ALL": "C"}
    become(argv, env=variables, wall_s=int(TRANSFER_WALL_S))


def ensure_served(path: Path, clock: Clock) -> None:
    """Make the repository and its bus record unless they are there, for its user only."""
    made = path.parent / "made"
    if made.exists():
        return
    from bridge.bus.open.create import ensure_repository

    ensure_repository(path, clock)
    made.touch(mode=0o600)
