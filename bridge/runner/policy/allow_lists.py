"""Check that no allow-list of a policy shows runs the runner's key, policy, state or home."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import platformdirs

from bridge.errors import UsageError
from bridge.executor.interface import HostPaths
from bridge.executor.sandbox.private_paths import exposed, own_homes
from bridge.runner.policy.model import Policy
from bridge.trust.runner_key import KEY_FILE

REMEDY = "name the model folders themselves"


def exposures(policy: Policy, private: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the key of each list with a private path in it, and a sentence about it."""
    hidden = (*private, *own_homes(), platformdirs.user_config_path("kakeya"), platformdirs.user_state_path("kakeya"))
    lists = (
        ("model_roots", policy.model_roots),
        ("sandbox.read_only", policy.sandbox.read_only),
        ("sandbox.endpoints", tuple(path.removeprefix("unix:") for path in policy.sandbox.endpoints)),
        ("sandbox.devices", policy.sandbox.devices),
        ("target", _paths(policy.target)),
        ("drafter", _paths(policy.drafter)),
    )
    for key, paths in lists:
        for path, secret in exposed(paths, map(str, hidden)):
            yield key, f"{path} would show runs {secret}"


def refuse_exposed_lists(policy: Policy, private: Iterable[str]) -> None:
    """Refuse a policy that lets runs read private paths.

    Raises:
        UsageError: a list holds one; the message names list, path and what it shows.
    """
    for key, text in exposures(policy, private):
        raise UsageError(f"policy, {key}: {text}", remedy=REMEDY)


def host_paths(policy: Policy, state: Path, identity: Path | None = None) -> HostPaths:
    """Return what the sandbox hides and shows under this policy, for the executor to try.

    Args:
        policy: the owner's.
        state: the runner's state folder.
        identity: where the runner's key is; None: in the state folder.
    """
    keys = state if identity is None else identity
    own = (
        policy.allowed_signers,
        policy.code_signers,
        policy.revoked,
        policy.lfs.password_file,
        policy.executor.token_file,
        policy.hosting.token_file,
        policy.actions.token_file,
    )
    return HostPaths(
        private=(str(keys / KEY_FILE), *{str(keys), str(state)}, *(path for path in own if isinstance(path, str))),
        read_only=(*policy.model_roots, *policy.sandbox.read_only),
        devices=policy.sandbox.devices,
        interpreter=policy.interpreter,
    )


def _paths(name: str | None) -> tuple[str, ...]:
    return (name,) if name is not None and Path(name).is_absolute() else ()
