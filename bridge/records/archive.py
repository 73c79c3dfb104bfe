"""Archives of ended runs: what is said of a whole day, and the line of one run."""

from typing import Annotated, Final, Literal

from pydantic import Field

from bridge.ids import DAY_PATTERN
from bridge.records.base import Count, Moment, Name, Record, RunId, Sha256, Text
from bridge.records.claim import Claim

_COMMIT_MAX_CHARS: Final = 16 * 1024
_PARTS_MAX_COUNT: Final = 256

Day = Annotated[str, Field(pattern=f"^{DAY_PATTERN}$")]


class ArchiveHead(Record):
    """`archive.json` of a commit of an archive, over all runs that were folded into it so far.

    Attributes:
        runner: who folded them and signs.
        day: the day, UTC, on which they were asked for.
        sequence: 0 for the first commit, then one more each.
        runs: how many lines the parts have together.
        parts: sha256 of each part, `0000.jsonl` first.
        time: the runner's wall clock.
    """

    schema_version: Literal[1] = 1
    runner: Name
    day: Day
    sequence: Count
    runs: Count
    parts: Annotated[tuple[Sha256, ...], Field(max_length=_PARTS_MAX_COUNT)]
    time: Moment


class ArchivedRun(Record):
    """One line of a part: a run that ended, with the claim that ended it as its runner signed it.

    Attributes:
        ref: its request branch as it was listed, None where that was gone.
        claim: the terminal claim.
        commit: the raw commit object of that claim, decoded as Latin-1, so that its id can be computed and its seal
            verified without fetching it.
    """

    id: RunId
    ref: Text | None
    claim: Claim
    commit: Annotated[str, Field(max_length=_COMMIT_MAX_CHARS)]
