"""What people see in fourteen situations, as text at two widths: `UPDATE_GOLDEN=1 pytest` writes the files anew.

One requester and one scripted host go through a day; a line that is wider than its screen holds one word that is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bridge.gate.catalogue import explain
from bridge.records.claim import RunProgress
from bridge.records.run import LimitHit
from bridge.records.verdict import ClaimResult, PremiseResult
from tests.fakes.requester import Requester, normal
from tests.fakes.scripted_host import ScriptedHost
from tests.unit.bridge.cli.looking import claim

GOLDEN = Path(__file__).parent / "golden" / "screens"
WIDTHS = (80, 120)
WHOLE = ("kakeya-", "FOLDER")
FAILED = (
    b'loading the model\nTraceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
    b"RuntimeError: no Metal device was found\n[kakeya] exit code 1\n"
)


class Day:
    """One clone over a day, and what each situation printed."""

    def __init__(self, folder: Path, width: int) -> None:
        environment = {"COLUMNS": str(width), "NO_COLOR": "1"}
        self.requester = Requester(folder, environment=environment, record={"lease_s": 600.0})
        self.host = ScriptedHost(self.requester.bus, self.requester.clock)
        self.requester.pin(self.host.sign())
        self.folder = folder
        self.ids: list[str] = []
        self.screens: dict[str, str] = {}

    def show(self, name: str, *words: str) -> None:
        ran = self.requester.run(*words)
        lines = [f"$ kakeya-mac {' '.join(words)}", *ran.err.splitlines(), *ran.out.splitlines()]
        self.screens[name] = f"{self.stable(chr(10).join(lines))}\n[exit code {ran.code}]\n"

    def stable(self, text: str) -> str:
        """Return a screen without what differs from day to day, the words of the gate's rules and the key's file."""
        for number, run_id in enumerate(self.ids, 1):
            text = text.replace(run_id, f"01{number:024d}").replace(run_id[-8:], f"{number:08d}")
        text = re.sub(r"(?<=findings  )G\d.*(\n {12}.*)*", "(codes of rules)", text)
        text = re.sub(r"\bsigned by mini, key .*(\n {12}.*)*", "(whose key, and its file)", text)
        return re.sub(r"(?<=efused, because ).*(\n {12}.*)*", "(why)", normal(text, self.folder))

    def sent(self, *words: str) -> str:
        self.requester.clock.sleep(61)
        self.host.beat()
        self.ids.append(self.requester.run("run", "mlx-env-probe", "--new", *words).out.strip())
        return self.ids[-1]

    def ended(self, log: bytes, **ending: object) -> str:
        run_id = self.sent()
        self.host.claim(run_id)
        self.host.start(run_id)
        self.host.log(run_id, log, final=True)
        self.host.judge(run_id)
        self.requester.clock.sleep(95)
        self.host.finish(run_id, **ending)
        return run_id


def lacking() -> ClaimResult:
    why = ("G5-DESIGN: a smoke run is a first look: few prompts and launches carry no claim",)
    premise = PremiseResult(premise="inputs", held=False, seen_by="gate", rules=("G5-DESIGN",), why=why)
    return claim(decision="valid", premises=(premise,))


def day(folder: Path, width: int) -> dict[str, str]:
    """Go through every situation once."""
    here = Day(folder, width)
    clock, host = here.requester.clock, here.host
    here.show("empty", "ls")
    here.show("no-runner", "run", "mlx-env-probe")
    host.beat()
    here.show("not-there", "status", "01zzz")
    waiting = here.sent()
    clock.sleep(5)
    here.show("queued", "status", waiting)
    host.claim(waiting)
    host.start(waiting)
    for seconds, done in ((20, 12), (70, 40)):
        progress = RunProgress(
            step="train", number=1, steps=2, unit="sample", done=done, most=60, left_s=4.0 * (60 - done)
        )
        clock.plan(
            seconds,
            lambda progress=progress: host._advance(waiting, state="started", phase="running", progress=progress),
        )
    clock.plan(25, lambda: host.log(waiting, b"epoch 3, loss 1.93\n"))
    here.show("watched", "attach", waiting, "--wait-timeout", "1m40s")
    here.show("running", "status", waiting)
    host.judge(waiting)
    host.finish(waiting, decision="valid", claims=(lacking(),))
    here.show("passed", "status", waiting)
    here.show("quote-refused", "quote", waiting)
    failed = here.ended(FAILED, reason="program_failed", decision="rejected", message="exit code 1", program_exit=1)
    here.show("program-failed", "status", failed)
    hit = LimitHit(limit="wall_s", bound=300.0, observed=301.0, action="killed")
    message = "wall limit reached: 5m1s, at most 5m (limits.wall_s)"
    late = here.ended(b"step 1\n", reason="timed_out", decision="rejected", message=message, limits_hit=(hit,))
    here.show("timed-out", "status", late)
    here.sent()
    here.show("listed", "ls")
    here.show("compared", "compare", waiting, failed)
    report = folder / "data" / "runs" / waiting[-8:] / "reports" / "probe.json"
    report.write_bytes(report.read_bytes().replace(b"0.32", b"0.99"))
    here.show("forged", "verify", str(report.parent.parent))
    here.show("wrong-word", "statsu")
    return here.screens


@pytest.mark.parametrize("width", WIDTHS)
def test_each_screen_is_as_it_was_and_fits(tmp_path, width):
    screens = day(tmp_path, width)
    assert len(screens) >= 12
    for name, text in screens.items():
        path = GOLDEN / f"{name}-{width}.txt"
        if os.environ.get("UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), name
        wide = [line for line in text.splitlines()[1:] if len(line) > width]
        assert [line for line in wide if not any(mark in line for mark in WHOLE)] == [], name


SITUATIONS = ("passed", "program-failed", "timed-out", "quote-refused", "forged", "compared", "queued", "running")
OF_THE_SCRIPT = {"speed", "bus"}
"""A claim that no kind of report makes, and the line about the connection."""
WORD = re.compile(r"\bG\d-[A-Z0-9]+\b|\b(?:may be quoted|not yet|refused|measured|smoke|verified|altered|unsigned)\b")


def printed(screen: str) -> set[str]:
    """Return the label of every line of a screen, and the words on it that say what becomes of a number."""
    lines = [line for line in screen.splitlines() if not line.startswith(("$", "[", " "))]
    labels = {line.lstrip("=* ").split()[0] for line in lines}
    return labels.union(*(WORD.findall(line) for line in lines)) - OF_THE_SCRIPT


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_word_of_a_screen_is_explained(name):
    words = printed((GOLDEN / f"{name}-120.txt").read_text("utf-8"))
    words = {word for word in words if not re.fullmatch(r"SHORT\d", word)}
    assert len(words) > 1
    for word in words:
        assert len(explain(word)) > 30, word
