"""Try a call to a remote again where its failure may pass: a limit of calls, a broken gateway, a reset connection.

Three tries with growing pauses, longer where an HTTP server asks for it. A push is never repeated here: whether it
landed is looked up first, by whoever sent it. Knows nothing about what is called.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.errors import GivenUpError, RemoteError, RemoteRefusedError
from bridge.system.clock import SystemClock

if TYPE_CHECKING:
    from bridge.bus.store.http_trace import HttpAnswer
    from bridge.bus.store.route import Route
    from bridge.system.git import CallStop, Finished

PAUSES_S: Final = (0.5, 2.0)  # before a second and a third try
WAIT_MAX_S: Final = 60.0  # what a server may ask for without ending the command
_LOOK_S: Final = 0.1
_CLOCK: Final = SystemClock()


class Tries:
    """The tries of calls to one remote.

    Args:
        route: of the remote.
        folder: where git notes what an HTTP server answers.
        pauses_s: before each further try.
    """

    def __init__(self, route: Route, folder: Path, pauses_s: Sequence[float] = PAUSES_S) -> None:
        self._route, self._folder = route, folder
        self.pauses_s = tuple(pauses_s)
        self._wait_s = 0.0

    def run(self, call: Callable[[Mapping[str, str]], Finished], stop: CallStop | None, *, repeats: bool) -> Finished:
        """Make a call, again where it may work then, and return how the last one ended.

        Args:
            call: runs git once with more variables.
            stop: when to give up, because the program is asked to end.
            repeats: whether it may be made again.

        Raises:
            GivenUpError: the program is asked to end.
            RemoteError: the server asks to be left alone for long, or what answers is a page for people.
        """
        tries = 0
        while True:
            with self._traced() as (variables, read):
                finished = call(variables)
                answer = read()
            self._wait_s = 0.0 if answer is None else answer.wait_s
            if answer is not None and answer.is_page:
                raise _page(self._route.shown)
            if not _may_pass(finished):
                return finished
            if self._wait_s > WAIT_MAX_S:
                raise _left_alone(self._route.shown, self._wait_s)
            if not repeats or not self.pause(tries, stop):
                return finished
            tries += 1

    def pause(self, tries: int, stop: CallStop | None) -> bool:
        """Wait before one more try; return False, at once, where there were enough.

        Args:
            tries: how many pauses there were already.
            stop: when to give up.

        Raises:
            GivenUpError: the program is asked to end.
        """
        if tries >= len(self.pauses_s) or self._wait_s > WAIT_MAX_S:
            return False
        until_s = _CLOCK.steady_s() + max(self.pauses_s[tries], self._wait_s)
        while (left_s := until_s - _CLOCK.steady_s()) > 0:
            if stop is not None and stop.is_due():
                raise GivenUpError(f"{self._route.shown}: given up, as this program is asked to end")
            _CLOCK.sleep(min(left_s, _LOOK_S))
        return True

    @contextmanager
    def _traced(self) -> Iterator[tuple[Mapping[str, str], Callable[[], HttpAnswer | None]]]:
        """Lend variables with which git notes what an HTTP server answers, and what reads it; of others, nothing."""
        if not self._route.url.startswith(("http://", "https://")):
            yield {}, lambda: None
            return
        from bridge.bus.store.http_trace import read_answer, variables_for

        descriptor, name = tempfile.mkstemp(prefix="answers-", dir=self._folder)
        os.close(descriptor)
        trace = Path(name)
        try:
            yield variables_for(trace), lambda: read_answer(trace.read_text("utf-8", "replace"))
        finally:
            trace.unlink(missing_ok=True)


def _may_pass(finished: Finished) -> bool:
    """Return whether the same call may work within seconds."""
    if finished.exit_code == 0 or finished.timed_out or finished.hit_file_bound:
        return False
    from bridge.system.remote_words import cause_of  # of a call that works there is nothing to explain

    return cause_of(finished.stderr).is_brief


def _page(route: str) -> RemoteRefusedError:
    from bridge.system.remote_words import Cause, remedy_of

    cause = Cause.LOGIN_PAGE
    words = f"{route} answers with a page for people, as a login page is"
    return RemoteRefusedError(words, remedy=remedy_of(cause, route), cause=cause)


def _left_alone(route: str, wait_s: float) -> RemoteError:
    from bridge.system.remote_words import Cause

    moment = (_CLOCK.now() + dt.timedelta(seconds=wait_s)).astimezone().strftime("%H:%M:%S")
    return RemoteError(
        f"{route} asks to be left alone for {wait_s:.0f} s: too many calls",
        remedy=f"repeat it after {moment}: the same command goes on with what it began",
        cause=Cause.RATE,
        is_passing=True,
    )
