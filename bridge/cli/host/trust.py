"""`kakeya-runner trust` and `revoke`: whose requests this host takes, and whose code it trusts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pydantic

from bridge.errors import UsageError
from bridge.runner.authorisation.trust_files import TrustFiles, Use, check_principal, read_key, who_is
from bridge.runner.policy.file import load_policy
from bridge.runner.policy.trust import SignerEntry
from bridge.runner.service.serve import default_policy_path
from bridge.trust.ssh_signatures import fingerprint_of


def trust(arguments: argparse.Namespace) -> int:
    """Add, list or remove trusted keys."""
    files = _files(arguments)
    if arguments.action == "list":
        return _list(files, as_json=arguments.json)
    if not arguments.key:
        raise UsageError(f"trust {arguments.action} needs a key", remedy=f"kakeya-runner trust {arguments.action} KEY")
    use: Use = "code" if arguments.code else "request"
    if arguments.action == "add":
        return _add(files, use, arguments)
    who = who_is(arguments.key)
    count = files.remove(use, who)
    if count == 0:
        raise UsageError(f"{who} is not trusted for {_WHAT[use]}", remedy="kakeya-runner trust list")
    _say(f"{who} is no longer trusted for {_WHAT[use]}; its running requests end within a second")
    return 0


def revoke(arguments: argparse.Namespace) -> int:
    """Refuse a principal or a key from now on, and end what runs for it."""
    who = who_is(arguments.who)
    done = _files(arguments).revoke(who)
    also = f", and with it {', '.join(done.keys)}" if done.keys else ""
    _say(
        f"{who} is revoked{also} ({done.path}); its running requests end within a second, its results stay as they are"
    )
    if done.others:
        _say(
            f"the same key was listed for {', '.join(done.others)}: refused too, until trusted with a key of their own"
        )
    for key in done.authorities:
        _say(f"certificate authority {key} stays trusted: others' certificates hang on it; kakeya-runner revoke {key}")
    return 0


def _add(files: TrustFiles, use: Use, arguments: argparse.Namespace) -> int:
    key, comment = read_key(arguments.key)
    names = tuple(check_principal(name) for name in (arguments.principal or [comment]))
    try:
        entry = SignerEntry(
            principals=names, key=key, valid_after=arguments.valid_after, valid_before=arguments.valid_before
        )
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise UsageError(
            f"{first['loc'][0]}: got {first['input']!r}; expected YYYYMMDD[HHMM[SS]][Z]",
            remedy="kakeya-runner trust --help",
        ) from error
    path = files.add(use, entry)
    print(fingerprint_of(key))
    _say(f"{', '.join(names)} is trusted for {_WHAT[use]} ({path}); a running runner sees it at once")
    return 0


def _list(files: TrustFiles, *, as_json: bool) -> int:
    found = files.listed()
    if as_json:
        print(json.dumps([vars(one) for one in found], indent=1))
        return 0
    for one in found:
        print(f"{one.use:<8} {','.join(one.principals) or '-':<32} {one.fingerprint or '-':<50} {one.options}".rstrip())
    if not found:
        _say("nobody is trusted: unsigned requests run the host's code only; kakeya-runner trust add KEY")
    return 0


def _files(arguments: argparse.Namespace) -> TrustFiles:
    path = default_policy_path() if arguments.policy is None else Path(arguments.policy)
    return TrustFiles(load_policy(path) if path.exists() else None, path.absolute().parent)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


_WHAT: Final[dict[Use, str]] = {"request": "signing requests", "code": "vouching for code"}
HANDLERS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {"trust": trust, "revoke": revoke}
