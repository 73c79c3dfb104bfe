"""Announce a result at the hosting site: job summary, commit status, comment on a pull request. Never fails a run.

A repeated announcement adds nothing: the summary and the status stay, the comment is rewritten. The text is the
result's own `summary.md`, escaped when it was made; no log line leaves this way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bridge.bus.views import RequestRef
from bridge.hosting import Hosting
from bridge.hosting.door import Door, open_door
from bridge.hosting.interface import StatusState
from bridge.publish.markdown import escape
from bridge.records.request import Request
from bridge.records.verdict import Verdict
from bridge.run.outcomes import Ending, one_line
from bridge.runner.policy.hosting import HostingPolicy
from bridge.trust.judgement import NOBODY, KeyAuthority
from bridge.trust.verifier import judge_result

SUMMARY_VARIABLE: Final = "GITHUB_STEP_SUMMARY"
SUMMARY_MAX_BYTES: Final = 512 * 1024  # GitHub takes 1 MiB of a step
COMMENT_MAX_CHARS: Final = 60_000
_STATES: Final[Mapping[str, StatusState]] = {
    "passed": "success",
    "gate_rejected": "failure",
    "program_failed": "failure",
    "timed_out": "failure",
    "request_rejected": "failure",
}


@dataclass(frozen=True)
class RunAnnouncement:
    """A run that has its result: its request branch and commit, how it ended, and the result's files."""

    ref: RequestRef
    route: str
    request: Request | None
    ending: Ending
    files: Mapping[str, bytes]

    @property
    def summary(self) -> str:
        """The result's own summary, already escaped."""
        return self.files.get("summary.md", b"").decode("utf-8", "replace")

    @property
    def commit(self) -> str:
        """The commit the result is about: the workload's where one was sent, else the request's."""
        workload = None if self.request is None else self.request.workload
        return self.ref.oid if workload is None else workload.commit


class Announcer:
    """Tells of results, as far as the owner's policy says so.

    Args:
        policy: what is told.
        environ: variables: the job's summary file and page inside Actions, the token elsewhere.
        say: takes one line for people.
        summary: takes the text of the job summary; None appends it to the file that the job names.
        authority: returns what this runner knows about keys, for the answer about its own result.
    """

    def __init__(
        self,
        policy: HostingPolicy,
        environ: Mapping[str, str],
        say: Callable[[str], None],
        summary: Callable[[str], None] | None = None,
        authority: Callable[[], KeyAuthority] = lambda: NOBODY,
    ) -> None:
        self._policy, self._environ, self._say, self._summary = policy, environ, say, summary
        self._authority = authority
        self._doors: dict[str, Door] = {}

    def __call__(self, ended: RunAnnouncement) -> None:
        """Tell of one result."""
        self._write_summary(ended)
        if not (self._policy.status or self._policy.comment):
            return
        door = self._door(ended.route)
        if self._policy.status:
            door.ask(lambda site: self._set_status(site, ended))
        if self._policy.comment:
            self._comment(door, ended)

    def _write_summary(self, ended: RunAnnouncement) -> None:
        path, data = (
            self._environ.get(SUMMARY_VARIABLE),
            f"{_told(ended, self._answer(ended))}\n\n".encode()[:SUMMARY_MAX_BYTES],
        )
        if self._summary is not None:
            self._summary(data.decode("utf-8", "ignore"))
            return
        if not path:
            return
        try:
            with Path(path).open("a+b") as file:
                file.seek(0)
                if data not in file.read():
                    file.write(data)
        except OSError as error:
            self._say(f"{ended.ref.id[-8:]} no job summary: {path}: {error.strerror}")

    def _door(self, route: str) -> Door:
        if route not in self._doors:
            own = self._policy.token_file
            self._doors[route] = open_door(
                route, self._environ, self._say, token_file=None if own is None else Path(own)
            )
        return self._doors[route]

    def _set_status(self, site: Hosting, ended: RunAnnouncement) -> None:
        context = "kakeya" if ended.request is None else f"kakeya/{ended.request.preset}"
        state = _STATES.get(ended.ending.reason, "error")
        site.set_status(ended.commit, state, context, _headline(ended), self._page())

    def _comment(self, door: Door, ended: RunAnnouncement) -> None:
        """Comment once per run, so that a later run never hides an earlier one."""
        branch, body = _branch(ended.ref), _told(ended, self._answer(ended))[:COMMENT_MAX_CHARS]
        for pull in door.ask(lambda site: site.open_pulls(branch, frozenset({ended.commit, ended.ref.oid}))) or ():
            url = door.ask(partial(_comment, pull=pull.number, marker=f"kakeya {ended.ref.id}", body=body))
            if url is not None:
                self._say(f"{ended.ref.id[-8:]} told pull request {pull.number}: {url}")

    def _answer(self, ended: RunAnnouncement) -> str:
        """Return the answer about the result, as requesters see it who know what this runner knows."""
        return judge_result(ended.files, self._authority()).answer.text

    def _page(self) -> str:
        """Return the page of the job we are in, nothing outside of one."""
        server, repository, run = (
            self._environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
        )
        inside = self._environ.get("GITHUB_ACTIONS") == "true" and run.isdigit()
        return f"{server}/{repository}/actions/runs/{run}" if inside and server and repository else ""


def announcer(
    policy: HostingPolicy,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    summary: Callable[[str], None] | None = None,
    authority: Callable[[], KeyAuthority] = lambda: NOBODY,
) -> Callable[[RunAnnouncement], None]:
    """Return what announces results: `announce_nothing` where neither the policy nor the job asks for it."""
    asked = policy.status or policy.comment or summary is not None or environ.get(SUMMARY_VARIABLE)
    return Announcer(policy, environ, say, summary, authority) if asked else announce_nothing


def announce_nothing(ended: RunAnnouncement) -> None:
    """Announce nothing: neither the policy nor the job asks for it."""
    del ended


def _comment(site: Hosting, *, pull: int, marker: str, body: str) -> str:
    return site.comment(pull, marker, body)


def _branch(ref: RequestRef) -> str:
    return ref.ref.removeprefix("refs/heads/")


def _told(ended: RunAnnouncement, answer: str) -> str:
    """Return how it ended and for which request, then the result's own summary."""
    ending = escape(ended.ending.reason if ended.ending.message is None else
                    f"{ended.ending.reason}: {ended.ending.message}")  # fmt: skip
    request = f"Request `{ended.ref.id}` on {escape(_branch(ended.ref))}, commit `{ended.commit[:12]}`"
    return f"**{ending}**\n\n{request}\n\n{escape(answer)}\n\n{ended.summary}"


def _headline(ended: RunAnnouncement) -> str:
    """Return verdict and headline on one line; a status text is shown as it is, so nothing is escaped."""
    data = ended.files.get("verdict.json")
    text = ended.ending.message or ended.ending.reason
    if data is not None:
        verdict = Verdict.parse(data)
        text = f"{verdict.decision}: {verdict.headline}" if ended.ending.reason == "passed" else text
    return one_line(text)
