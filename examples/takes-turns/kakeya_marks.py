"""Let a Kakeya runner say which of two sides of a program works next. Copy this file beside yours: standard library.

    import kakeya_marks
    kakeya_marks.take_turns({"baseline": old, "candidate": new}, samples=4)

Each side is a function of a sample's number, from 0, that returns when all its work is done. Let one call last 20 ms or
more. The runner draws who is next and stamps each call; what the program says of time is never asked. The protocol is
docs/turns.md; in C it is kakeya_marks.h.
"""

import json
import os
import time


def take_turns(sides, samples):
    """Work when the runner says so, until it says that the launch is over.

    Args:
        sides: functions by name, ``baseline`` and ``candidate``; both are warm.
        samples: how many calls of each side a launch has.
    """
    if "KAKEYA_TURN_ORDERS" not in os.environ:
        raise SystemExit("nobody hands out turns: start this with kakeya-mac run")
    numbers = [int(os.environ[name]) for name in ("KAKEYA_TURN_ORDERS", "KAKEYA_TURN_ANSWERS")]
    with open(numbers[0], "rb") as orders, open(numbers[1], "wb", buffering=0) as answers:
        _say(answers, event="ready", protocol=1, samples=samples, calibration={})
        for line in orders:
            order = json.loads(line)
            if order["event"] == "end":
                return
            if order["event"] == "go":
                calls = _work(sides[order["arm"]], order["sample"], order["seconds"])
                _say(answers, event="done", turn=order["turn"], tokens=calls, over=True)
    raise SystemExit("the runner went away")


def _work(side, sample, seconds):
    """Call a side once, or alone for at least so many seconds; return how often."""
    began, calls = time.monotonic(), 0
    while calls == 0 or (seconds is not None and time.monotonic() - began < seconds):
        side(sample)
        calls += 1
    return calls


def _say(answers, **fields):
    answers.write(json.dumps(fields).encode() + b"\n")
