"""What `kakeya-runner doctor` says of the hosting site: what the policy wants of it, and who could come in by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bridge.diagnostics import Check
from bridge.errors import HostingError
from bridge.hosting import Feature
from bridge.hosting.checkup import check_place
from bridge.hosting.token import Token, find_token, read_token_file
from bridge.runner.policy.model import Policy


def check_site(policy: Policy, route: str | None, environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield what was found; nothing where neither policy nor environment speaks of a hosting site.

    Args:
        policy: what is told of results, and whether Actions jobs run here.
        route: the bus's route as it was resolved.
        environ: variables, for the token and for naming the site.
    """
    features: tuple[Feature, ...] = ()
    if policy.hosting.status:
        features += ("status",)
    if policy.hosting.comment:
        features += ("pulls", "comment")
    registered = bool(policy.actions.workflows)
    try:
        token = _token(policy, environ)
        if policy.actions.token_file is not None:
            read_token_file(Path(policy.actions.token_file))
    except HostingError as error:
        yield Check("github", "fail", error.message, error.remedy)
        return
    if token is None and not features and not registered:
        return
    wanted: tuple[Feature, ...] = (*features, "runners") if registered else features
    yield from check_place(route, environ, wanted, token=token, registered=registered)


def _token(policy: Policy, environ: Mapping[str, str]) -> Token | None:
    own = policy.hosting.token_file
    return find_token(environ) if own is None else read_token_file(Path(own))
