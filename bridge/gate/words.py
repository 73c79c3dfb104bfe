"""Every word that commands print about a number, in a sentence or two; premises and checks explain themselves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

KNOWN_FAILURES: Final = ("two-mode 10 %", "two-mode 20 %", "AR .5", "AR .8", "one effect a day")
"""Kinds of sittings whose intervals hold the truth in fewer than 90 of 100 claims: docs/evidence/simulation.md."""

WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "quotable": "May be quoted: no premise that the claim rests on is missing. `kakeya-mac quote ID` has the "
        "sentence, which is the only one allowed.",
        "measured": "Not yet: the number was measured, and a premise that it needs is missing. The reason stands on "
        "the same line; run it with `--profile claim`, or mend what the reason names.",
        "refused": "Nothing of the run may be used: it contradicts itself, is not the run's own, or is not what was "
        "signed.",
        "evidence": "A class of `--require`: of a claim, that no premise is missing. To a reader it is `quotable`.",
        "valid": "A class of a verdict: the number is this run's word (`bound`, `code` and `attempts` hold), and "
        "other premises are missing. To a reader it is `measured`.",
        "recorded": "A class of a verdict: what was put out is kept, and nobody vouches for whose program it was. To a "
        "reader it is `measured`.",
        "rejected": "A class of a verdict: a check was violated that makes a run none. To a reader it is `refused`.",
        "nothing": "A class of a claim that lacks even what makes it this run's word. To a reader it is `measured`.",
        "held": "No check took this premise from the claim; who could see it is named beside it.",
        "missing": "A check took this premise from the claim; the reason stands below it.",
        "smoke": "A quick look: few prompts and launches. Of the engine's kinds nothing of it may be quoted; "
        "`--profile claim` measures so that a number may be.",
        "claim": "A profile: measured to be quoted, in turns and beside a reference. Also a number that a report "
        "states and the gate computes again.",
        "launches": "A launch is one process that timed both programs, and the unit of a ratio in one sitting. Its "
        "scatter is printed: between what ratios launches lie, their median, and how many are outlying. "
        "Fewer than five are printed one by one, without an interval.",
        "outlying": "A launch whose ratio lies more than 3.5 scaled median absolute deviations from the median: its "
        "program or its machine did something else.",
        "sittings": "A sitting is one run: what a machine is like for a while is in all of its launches, so its "
        "interval says nothing of a sitting begun now. Over sittings begun apart, with sittings as units, "
        "it does, where they scatter by themselves. Known failures, where such an interval holds the truth "
        f"in fewer than 90 of 100 claims: {', '.join(KNOWN_FAILURES)} (docs/evidence/simulation.md).",
        "standing": "What several sittings of one question say together: `--profile standing --sittings K`, each one "
        "rotation of five launches, begun ten minutes apart or more. The sitting is the unit: the mean of their logs, "
        "with Student's t over K - 1. How many and over how long is part of the claim. A sitting that is missing, lost "
        "a premise or began too soon takes the claim; another set of the same question is one more look.",
        "next": "Where the ratio of one sitting begun now will lie, 95 % of the time: a prediction, wider than the "
        "interval of the ratio itself, and of a machine as it was during these sittings.",
        "load": "What share of the machine others used. Programs are slowed unequally by it, so a ratio says at "
        "which load it was seen, and holds at no other. Where sittings saw loads more than 15 points apart the ratio "
        "is given at the least and the greatest of them, and a word is said only where it holds at each. With `--load "
        "drawn` the runner itself holds half of its processors in every second launch, drawn: one run has both ends.",
        "best": "Best of N: the number is one of N that could have been chosen, the cells of one sweep or the "
        "parameters of one question, so its interval is as wide as that asks. Other questions widen "
        "nothing.",
        "attempts": "Runs of the same question within 30 days are pooled. Left out are those of other code, and those "
        "that the machine spoilt as the runner saw; one that its own program could have spoilt is in and "
        "out: the claim is what holds with it and without. The third of those bars the claim.",
        "digits": "Numbers have the digits that their interval says something of: two of its half-width.",
        "same": "The same in N of N runs: every run gave this number to six digits, so there is no interval. `exact "
        "= true` in workload.toml promises it.",
        "faster": "Its whole interval lies above 1.02. Slower: below 1 / 1.02. Equivalent: within 5 %. Not slower: "
        "above 0.95. No difference shown: none of these. Not measured well enough: none of these, and the "
        "interval spans more than a factor of 1.5, so that it says nothing.",
        "answer": "What a run says that was asked `--fail-if WORD` and not for its number: yes or no, after one of "
        "three looks (8, 13 and 20 launches; of pairs 8, 40 and 240), each at a third of the error. Such a run may "
        "stop sooner, and no number of it is quoted; with `--require` it is measured as any other.",
        "result": "Whose result a screen is about: its run, whether it may be quoted, its profile, its signature.",
        "asked": "What was asked for: a preset, its parameters, and the commit of code that was brought along.",
        "files": "The folder here that holds the files of a result.",
        "cause": "The line of a program's log that most likely says why it failed.",
        "message": "What the host says of how a run ended.",
        "remedy": "What to do about it, as a command where there is one.",
        "log": "The end of what a program printed. The program wrote it: it vouches for nothing.",
        "note": "It is said and takes nothing from a claim.",
        "queued": "No runner has begun it; `waiting` says why.",
        "running": "A runner has begun it; `progress` says how far its program is, by that program's own word.",
        "ok": "A check of `verify` that found nothing against a result.",
        "failed": "A check of `verify` that stands against a result, or what `--fail-if` or `--require` names.",
        "facts": "What `compare` sets side by side of two runs: `=` where both have the same, `*` where they differ.",
        "weaker": "Of `compare`: why what two runs say together is less than what one run in turns would say.",
        "impossible": "Of `compare`: why two runs say nothing together, so that no number is printed.",
        "recomputed": "A second command, which sees no report, computed the number again from what was kept.",
        "reported": "The number is its program's own word: nobody else looked.",
        "signature": "Verified: a key that may say this signed it. Key not pinned: it is signed, by a key that this "
        "clone does not know. Unsigned: it carries no signature. Untrusted, altered: nobody may use it.",
    }
)
ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "slower": "faster",
        "equivalent": "faster",
        "sitting": "sittings",
        "prediction": "next",
        "launch": "launches",
        "attempt": "attempts",
        "unsigned": "signature",
        "verified": "signature",
        "untrusted": "signature",
        "altered": "signature",
        "exact": "same",
        "quote": "quotable",
        "interval": "digits",
        "waiting": "queued",
        "progress": "running",
        "not yet": "measured",
        "may be quoted": "quotable",
        **dict.fromkeys(
            ("preset", "definition", "reason", "runner", "host", "packages", "policy", "wall_s", "models", "profile"),
            "facts",
        ),
        **dict.fromkeys(("gate", "findings"), "facts"),
    }
)


def meaning(word: str) -> str | None:
    """Return what a printed word means; None for one that is not explained here."""
    return WORDS.get(ALIASES.get(word.lower(), word.lower()))
