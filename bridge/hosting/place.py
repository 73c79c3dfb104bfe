"""Which repository of which site a route leads to; None when that cannot be told, and then git alone is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

API_URL = "https://api.github.com"
SITE = "github.com"
REPOSITORY_VARIABLE = "KAKEYA_GITHUB_REPOSITORY"
API_VARIABLE = "KAKEYA_GITHUB_API"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/:]+):(?P<path>[^/].*)")


@dataclass(frozen=True)
class HostedRepository:
    """A repository (`owner/name`) and the REST endpoint of its site."""

    repository: str
    api_url: str


def place_of(route: str | None, environ: Mapping[str, str]) -> HostedRepository | None:
    """Return the place a route leads to.

    First hit wins: KAKEYA_GITHUB_REPOSITORY (agents that push through a proxy see another URL), the route's own host,
    and inside a job of Actions what GitHub itself says.

    Args:
        route: the bus's route as it was resolved, None when there is none.
        environ: variables.
    """
    named = environ.get(REPOSITORY_VARIABLE)
    if named and _NAME.fullmatch(named):
        return HostedRepository(named, environ.get(API_VARIABLE, API_URL))
    own_site = urlsplit(environ.get("GITHUB_SERVER_URL", "")).hostname
    own_api = environ.get("GITHUB_API_URL")
    host, name = _parts(route or "")
    if host == SITE and name:
        return HostedRepository(name, environ.get(API_VARIABLE, API_URL))
    if host is not None and host == own_site and name and own_api:
        return HostedRepository(name, own_api)
    here = environ.get("GITHUB_REPOSITORY", "")
    if environ.get("GITHUB_ACTIONS") == "true" and own_api and _NAME.fullmatch(here):
        return HostedRepository(here, own_api)
    return None


def _parts(route: str) -> tuple[str | None, str | None]:
    """Return host and `owner/name` of a URL or an scp-like route, None where there is none."""
    if "://" in route:
        url = urlsplit(route)
        host, path = url.hostname, url.path
    elif (match := _SCP.fullmatch(route)) is not None:
        host, path = match["host"].lower(), match["path"]
    else:
        return None, None
    name = path.strip("/").removesuffix(".git")
    return host, name if _NAME.fullmatch(name) else None
