"""Read git's report of a push: what the remote answered of each ref, and its words where it refused one.

The words are a stranger's: they become one line of printable characters, bounded, without what may be secret in a URL.
Knows nothing about what refs mean.
"""

from __future__ import annotations

import re
from typing import Final

from bridge.bus.store.interface import RefAnswer
from bridge.system.git import last_words

WORDS_MAX_CHARS: Final = 300
_REMOTE: Final = "remote: "
_PROGRESS = re.compile(r"\d+% \(\d+/\d+\)")
_QUERY = re.compile(r"(://[^\s?#]*)[?#]\S*")
_REASON = re.compile(r"\((.*)\)$")


def read_answers(porcelain: str, stderr: str) -> dict[str, RefAnswer]:
    """Return what the remote said of each ref; a ref whose report was lost is left out.

    Args:
        porcelain: what `git push --porcelain` wrote.
        stderr: what it wrote beside that: messages of the remote and its hooks, progress.
    """
    reasons: dict[str, str | None] = {}
    for line in porcelain.split("\n"):
        flag, _, rest = line.partition("\t")
        spec, tab, summary = rest.partition("\t")
        lost = flag == "!" and "failed to report" in summary
        if len(flag) == 1 and tab and ":" in spec and not lost:
            reasons[spec.rpartition(":")[2]] = summary if flag == "!" else None
    messages = [line for line in stderr.replace("\r", "\n").split("\n") if line.startswith(_REMOTE)]
    messages = [line for line in messages if not _PROGRESS.search(line)]
    return {
        ref: RefAnswer(taken=True)
        if summary is None
        else RefAnswer(taken=False, why=_words(ref, summary, messages, reasons))
        for ref, summary in reasons.items()
    }


def _words(ref: str, summary: str, messages: list[str], refs: dict[str, str | None]) -> str:
    """Return why a ref was refused: the reason beside it, then the messages that are not about another ref."""
    reason = _REASON.search(summary)
    about = [line for line in messages if ref in line or not any(other in line for other in refs if other != ref)]
    lines = [summary if reason is None else reason[1], *(line.removeprefix(_REMOTE) for line in about[-3:])]
    text = "; ".join(last_words(_QUERY.sub(r"\1", line)) for line in lines if line.strip())
    return text if len(text) <= WORDS_MAX_CHARS else f"{text[: WORDS_MAX_CHARS - 1]}…"
