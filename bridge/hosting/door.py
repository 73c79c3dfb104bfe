"""The way to a hosting site that callers use: an answer that does not come is said once and costs nothing else.

Nothing of the bus protocol depends on what comes through here; without a token or a network, git alone suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from bridge.errors import HostingError
from bridge.hosting.interface import Hosting
from bridge.hosting.place import place_of
from bridge.hosting.token import find_token, read_token_file

Answer = TypeVar("Answer")
# After these another question would end the same way: no answer at all, a token that is not valid, a spent limit.
_CLOSING = frozenset({0, 401, 429})
_HAND_OVER = "git alone goes on without it"


class Door:
    """Asks a hosting site, or answers None where there is none.

    Args:
        hosting: the site; None where there is none.
        say: takes one line for people.
    """

    def __init__(self, hosting: Hosting | None, say: Callable[[str], None]) -> None:
        self._hosting = hosting
        self._say = say
        self._lines_shown: set[str] = set()

    def ask(self, question: Callable[[Hosting], Answer]) -> Answer | None:
        """Return the site's answer, None when there is none; why is said once."""
        if self._hosting is None:
            return None
        try:
            return question(self._hosting)
        except HostingError as error:
            if error.message not in self._lines_shown:
                self._lines_shown.add(error.message)
                self._say(f"{error.message}; {_HAND_OVER}" + (f" ({error.remedy})" if error.remedy else ""))
            if error.status in _CLOSING or error.is_limit:
                self._hosting = None
            return None


def open_door(
    route: str | None, environ: Mapping[str, str], say: Callable[[str], None], *, token_file: Path | None = None
) -> Door:
    """Return the door to the site a route leads to, closed when there is no such site or no token.

    Args:
        route: the bus's route as it was resolved.
        environ: variables.
        say: takes one line for people.
        token_file: a file of the owner's alone that holds the token; None looks where `find_token` looks.
    """
    place = place_of(route, environ)
    if place is None:
        return Door(None, say)
    try:
        token = find_token(environ) if token_file is None else read_token_file(token_file)
    except HostingError as error:
        say(f"{error.message}; {_HAND_OVER} ({error.remedy})")
        return Door(None, say)
    if token is None:
        say(f"no token for {place.repository}: {_HAND_OVER} (GH_TOKEN, or `gh auth login`)")
        return Door(None, say)
    from bridge.hosting.github import GitHubHosting

    return Door(GitHubHosting(place.repository, token, api_url=place.api_url), say)
