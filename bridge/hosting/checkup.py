"""Try what a token may do at the hosting site and say what each missing permission costs; both doctors use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from bridge.diagnostics import Check
from bridge.errors import HostingError
from bridge.hosting.interface import Feature, Hosting, RepositoryFacts
from bridge.hosting.place import place_of
from bridge.hosting.token import Token, find_token

# Of each feature: what is missing without it, and the permission of a fine-grained token (a classic one needs `repo`).
COSTS: Final[Mapping[Feature, tuple[str, str]]] = {
    "runs": ("a run's page and its place in the queue are not shown", "Actions: read"),
    "runners": ("whether a registered runner is online is not shown", "Administration: read"),
    "cancel": ("`cancel` asks the host only; a workflow run that waits stays in the queue", "Actions: write"),
    "status": ("no commit status carries the verdict", "Commit statuses: write"),
    "pulls": ("no pull request is found to comment on", "Pull requests: read"),
    "comment": ("no pull request is told of a result", "Pull requests: write"),
}


def check_place(
    route: str | None, environ: Mapping[str, str], features: tuple[Feature, ...], *, token: Token | None = None,
    registered: bool = False,
) -> Iterator[Check]:  # fmt: skip
    """Yield what was found at the site of a route; nothing for a route that leads to no such site.

    Args:
        route: the bus's route as it was resolved.
        environ: variables, for the token and for naming the site.
        features: what the asker would use.
        token: the token to use, None to look for one.
        registered: whether this very machine is a registered runner, whatever the token may see.
    """
    place = place_of(route, environ)
    if place is None:
        return
    try:
        secret = token or find_token(environ)
    except HostingError as error:
        yield Check("github", "fail", error.message, error.remedy)
        return
    if secret is None:
        lost = "; ".join(COSTS[feature][0] for feature in features)
        yield Check("github", "warn", f"no token for {place.repository}: {lost}", "GH_TOKEN, or `gh auth login`")
        return
    from bridge.hosting.github import GitHubHosting

    yield from check(GitHubHosting(place.repository, secret, api_url=place.api_url), secret.source, features,
                     registered=registered)  # fmt: skip


def check(hosting: Hosting, source: str, features: tuple[Feature, ...], *, registered: bool = False) -> Iterator[Check]:
    """Yield what was found: the token, each feature, and whether strangers could reach a registered runner."""
    try:
        facts = hosting.repository()
    except HostingError as error:
        yield Check("github", "fail", error.message, error.remedy)
        return
    kind = "private" if facts.private else "public"
    yield Check("github", "ok", f"{facts.name} is {kind}, token from {source}")
    for feature in features:
        yield _feature(hosting, feature)
    yield from _exposure(hosting, facts, registered=registered)


def _feature(hosting: Hosting, feature: Feature) -> Check:
    costs, permission = COSTS[feature]
    try:
        if hosting.may(feature):
            return Check(f"github {feature}", "ok", f"permitted ({permission})")
    except HostingError as error:
        return Check(f"github {feature}", "warn", error.message, error.remedy)
    remedy = f"give the token `{permission}`, or do without"
    return Check(f"github {feature}", "warn", f"not permitted: {costs}", remedy)


def _exposure(hosting: Hosting, facts: RepositoryFacts, *, registered: bool) -> Iterator[Check]:
    """Yield whether strangers can reach a registered runner by a pull request to a public repository."""
    if facts.private:
        return
    remedy = (
        "make the repository private, or remove the runner (Settings, Actions, Runners) and use kakeya-runner serve"
    )
    try:
        names = [runner.name for runner in hosting.runners()]
    except HostingError:
        names = None
    if names or registered:
        who = ", ".join((names or ["this machine"])[:3])
        text = f"{facts.name} is public and has a registered runner ({who}): strangers may reach it with a pull request"
        yield Check("exposure", "fail", text, remedy)
    elif names is None:
        text = f"{facts.name} is public, and this token cannot see whether a runner is registered for it"
        yield Check("exposure", "warn", text, "give the token `Administration: read`, or look in Settings, Actions")
