"""Where a route leads, and what git needs of the user's configuration to get there.

A route is the name of a remote of a clone, a path, or a URL (file, ssh, https, http). Configuration is read once and
what concerns the transport is carried by name: proxies, credential helpers, certificates, the ssh command. Nothing
else of it reaches the bridge's own repositories. Knows nothing about what is at the other end.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bridge.errors import BusError, RouteMissingError, UsageError
from bridge.system.git import last_words, run_in_work_tree, without_user_info

_CARRIED = re.compile(r"(http|credential)\..*|core\.(sshcommand|askpass|gitproxy)|ssh\.variant")
_SCP_LIKE = re.compile(r"(?!/|\.)[^/:\s]+:(?!//)\S+")
_SSH_USER = re.compile(r"((?:git\+)?ssh://)([^/:@\s]+)(?::[^/@\s]*)?@")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PROMISOR: Final = "where-the-clone-came-from"
_SCHEMES: Final = ("file://", "ssh://", "git+ssh://", "https://", "http://")


@dataclass(frozen=True)
class Route:
    """A resolved route.

    Attributes:
        url: what git is given; may hold user information, so it is never shown.
        shown: the same without user information.
        config: transport configuration to carry, in order.
        is_local: whether the remote is a folder of this machine, where pushes need no budget.
        trusted: folders of other users that the user's git reads (safe.directory); of a local remote only, whose git
            reads none of our configuration.
    """

    url: str
    shown: str
    config: tuple[tuple[str, str], ...]
    is_local: bool
    trusted: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """Where others find it: with the user of an ssh URL, which is no secret, and without all else of that kind."""
        user = _SSH_USER.match(self.url)
        return self.shown if user is None else f"{user[1]}{user[2]}@{self.shown.removeprefix(user[1])}"

    @property
    def is_loopback(self) -> bool:
        """Whether this machine itself answers there, perhaps for another one: a proxy of an agent, a forwarded port."""
        return "://" in self.url and urlsplit(self.url).hostname in _LOOPBACK

    @property
    def folder(self) -> Path | None:
        """The repository's own folder where the route is a path of this machine, None on any other."""
        path = self.url.removeprefix("file://")
        if not path.startswith("/"):
            return None
        inner = Path(path) / ".git"
        return inner if inner.is_dir() else Path(path)


def resolve(route: str, repository: Path | None, state: Path) -> Route:
    """Return where a route leads.

    Args:
        route: a remote's name, a path or a URL.
        repository: the user's clone, or None outside of one.
        state: a folder that exists; where configuration is read when there is no clone.

    Raises:
        UsageError: no such remote and no such path, or a URL of another kind.
        BusError: the clone's configuration sends pushes elsewhere.
    """
    config = _configuration(repository or state)
    urls = _values(config, f"remote.{route}.url")
    if repository is not None and urls:
        pushed = _values(config, f"remote.{route}.pushurl") or urls
        if len(pushed) != 1:
            raise BusError(
                f"remote {route} pushes to {len(pushed)} places; a bus is one place", remedy="give a URL with --bus URL"
            )
        named, proxy = pushed[0], _proxy(config, route)
    else:
        named, proxy = route, ()
    _refuse_push_instead_of(config, named)
    try:
        url = _absolute(_instead_of(config, named), repository)
    except UsageError:
        if repository is not None:
            check_owner(repository)
        raise
    carried = tuple((key, value) for key, value in config if _CARRIED.fullmatch(key.lower()))
    is_local = _is_local(url)
    trusted = _values(config, "safe.directory") if is_local else ()
    return Route(url, without_user_info(url), (*carried, *proxy), is_local, trusted)


def origin_of(repository: Path) -> str:
    """Return where a clone came from, without user information; empty when it does not say."""
    config = _configuration(repository)
    urls = _values(config, "remote.origin.url") or tuple(
        value for key, value in config if key.startswith("remote.") and key.endswith(".url")
    )
    return without_user_info(urls[0])[:500] if urls else ""


def check_owner(top: Path) -> None:
    """Refuse a clone that git does not read because it is another user's: it would look like one without remotes.

    Raises:
        UsageError: git says so.
    """
    finished = run_in_work_tree(top, ["rev-parse", "--git-dir"])
    if finished.exit_code != 0:
        raise UsageError(
            f"git does not read {top}: {last_words(finished.stderr)}",
            remedy=f"if you trust what is in it: git config --global --add safe.directory {shlex.quote(str(top))}",
        )


def promisor_of(repository: Path) -> tuple[tuple[str, str], ...]:
    """Return the configuration with which git fetches what a partial clone left out, from where that clone came from.

    It goes by another name here: what is fetched lies in a repository of ours, and no remote of the user's is meant.
    """
    config = _configuration(repository)
    for key, value in config:
        name = key.removeprefix("remote.").removesuffix(".promisor")
        if key == f"remote.{name}.promisor" and value == "true":
            url = _absolute(_instead_of(config, _values(config, f"remote.{name}.url")[-1]), repository)
            carried = tuple((key, value) for key, value in config if _CARRIED.fullmatch(key.lower()))
            ours = {"url": url, "promisor": "true", "partialclonefilter": "blob:none"}
            return (*carried, *((f"remote.{_PROMISOR}.{part}", text) for part, text in ours.items()))
    return ()


def _configuration(folder: Path) -> tuple[tuple[str, str], ...]:
    finished = run_in_work_tree(folder, ["config", "--list", "--includes", "-z"])
    if finished.exit_code != 0:
        return ()
    entries = (entry.partition("\n") for entry in finished.stdout.decode("utf-8", "replace").split("\0") if entry)
    return tuple((key, value if newline else "true") for key, newline, value in entries)


def _values(config: tuple[tuple[str, str], ...], key: str) -> tuple[str, ...]:
    return tuple(value for name, value in config if name == key)


def _proxy(config: tuple[tuple[str, str], ...], remote: str) -> tuple[tuple[str, str], ...]:
    """A remote's own proxy, as configuration for a push by URL."""
    names = {f"remote.{remote}.proxy": "http.proxy", f"remote.{remote}.proxyauthmethod": "http.proxyAuthMethod"}
    return tuple((names[key], value) for key, value in config if key in names)


def _instead_of(config: tuple[tuple[str, str], ...], url: str) -> str:
    """Apply the longest matching `url.<base>.insteadOf`, as git does."""
    best = ("", "")
    for key, prefix in config:
        lower = key.lower()
        if lower.startswith("url.") and lower.endswith(".insteadof") and url.startswith(prefix):
            best = max(best, (prefix, key[len("url.") : -len(".insteadof")]), key=lambda rule: len(rule[0]))
    return best[1] + url[len(best[0]) :] if best[0] else url


def _refuse_push_instead_of(config: tuple[tuple[str, str], ...], url: str) -> None:
    resolved = _instead_of(config, url)
    for key, prefix in config:
        if (
            key.lower().endswith(".pushinsteadof")
            and prefix
            and (url.startswith(prefix) or resolved.startswith(prefix))
        ):
            raise BusError(
                f"git's configuration sends pushes for {without_user_info(url)} elsewhere ({without_user_info(key)})",
                remedy="give the URL that is meant with --bus URL, or remove that setting",
            )


def _absolute(url: str, repository: Path | None) -> str:
    """Return a URL or an absolute path.

    Raises:
        UsageError: neither.
    """
    if url.startswith(_SCHEMES):
        return url
    if "://" in url or url.startswith("-") or "::" in url:
        raise UsageError(
            f"route {without_user_info(url)!r} is of a kind that is not supported",
            remedy="use a remote's name, a path, or a file, ssh or https URL",
        )
    path = Path(os.path.expanduser(url))  # noqa: PTH111 - "~user" as a shell would
    if not path.is_absolute():
        path = (repository or Path.cwd()) / path
    if path.is_dir():
        return _named(str(path.resolve()))
    if _SCP_LIKE.fullmatch(url):
        return url
    if url.startswith(("/", "~", ".")):
        raise RouteMissingError(
            f"route {without_user_info(url)!r}: there is no such folder",
            remedy="mount or make it, or give another: kakeya-mac config shows where the route is from",
        )
    raise UsageError(
        f"route {without_user_info(url)!r} is no remote of this clone, no folder and no URL",
        remedy="git remote -v shows the remotes' names",
    )


def _named(place: str) -> str:
    """Return a folder's path that a request can name.

    Raises:
        UsageError: it is no UTF-8.
    """
    try:
        place.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the bus lies in {place!r}, whose name is no UTF-8", remedy="give that folder another name: mv OLD NEW"
        ) from None
    return place


def _is_local(url: str) -> bool:
    return url.startswith(("/", "file://"))
