"""The README's first blocks, a guide and the wheel on Debian with nothing installed: what a stranger's first lines say.

Blocks are read from `README.md` and typed as they are printed, line by line. A line that fails has to name its remedy
in one line; what that line names is done, and the line is typed again. Python 3.11 for Debian 11, which has 3.9, is
built from the source of Debian 12: what a stranger fetches instead is another registry's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.studies.host.roots import PATIENCE_S, SECOND_USER, STAND_IN, UID, USER, BareRoot, do, stand_in_python
from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Entry, Row, Study, rows_of
from tests.release import build_wheel
from tests.support.printed_page import GUIDES, steps

TAKEN_FOR_GRANTED = "git make ca-certificates"
TRIES = 6
_FENCE = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMANDS = re.compile(r"(git|make|\.|kakeya-(mac|runner|engine)) ")
_PACKAGES = re.compile(r"sudo apt-get install ([a-z][a-z0-9.+-]*(?: [a-z][a-z0-9.+-]*)*)")
_SERVES = re.compile(r"runner \S+ serves")


def command_blocks(text: str) -> list[list[str]]:
    """Return the lines of each block of a page that has nothing but commands."""
    blocks = [[line for line in block.splitlines() if line.strip()] for block in _FENCE.findall(text)]
    return [lines for lines in blocks if lines and all(_COMMANDS.match(line) for line in lines)]


def ends_well(line: str, code: int) -> bool:
    """Return whether a line ended as its page says: nothing of a first run may be quoted, and `quote` ends in 1."""
    return code == 0 or (code == 1 and "kakeya-mac quote @last" in line)


def remedy_in(printed: Sequence[str]) -> str | None:
    """Return what the lines of a failure name as the next thing to type; None where they name nothing."""
    for line in reversed(printed):
        if match := _PACKAGES.search(line):
            return f"sudo apt-get install {match[1]}"
        if match := re.search(r"install (git [\d.]+ or newer)", line):
            return f"install {match[1]}"
        if match := re.search(r"(make \w+) PYTHON=", line):
            return f"{match[1]} PYTHON={STAND_IN}"
        if re.search(r"\bmake requester\b", line) and not line.startswith("make requester:"):
            return "make requester"
    return None


@dataclass
class Typist:
    """Somebody at the shell of a root, who does what a failure tells.

    Attributes:
        root: where.
        user: as whom.
        state: the lines that changed the shell itself: it is a new one for each line.
        rows: what was typed, and what came of each try.
    """

    root: BareRoot
    user: str = USER
    state: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def type(self, step: str, line: str) -> bool:
        """Type one line, again after each remedy; return whether it ended well at last."""
        tries: list[Row] = []
        did: str | None = None
        for _ in range(TRIES):
            began_s = time.monotonic()
            ran = self.root.shell("\n".join([*self.state, line]), self.user)
            printed = [text for text in ran.stdout.splitlines() if text.strip()]
            # The last line of `make` says only that its target failed, these of pip which indexes this machine has.
            printed = [text for text in printed if not re.match(r"make: \*\*\* |WARNING: Location ", text)]
            tries.append({"after": did, "code": ran.returncode, "seconds": round(time.monotonic() - began_s, 1),
                          "said": printed[-3:] if ran.returncode == 0 else printed[-24:]})  # fmt: skip
            did = None if ends_well(line, ran.returncode) else remedy_in(printed[-8:])
            # A release has one git, so that there is no second try.
            if did is None or did.startswith("install ") or did in [earlier["after"] for earlier in tries]:
                break
            line = self._apply(did, line)
        self.rows.append({"step": step, "user": self.user, "typed": line, "tries": tries})
        well = ends_well(line, tries[-1]["code"])
        if well:
            self.state += ["cd kakeya"] if "cd kakeya" in line else [line] if line.startswith(". ") else []
        return well

    def type_all(self, step: str, lines: Sequence[str]) -> bool:
        """Type lines until one fails for good; return whether none did."""
        return all(self.type(step, line) for line in lines)

    def _apply(self, remedy: str, line: str) -> str:
        """Do what a failure told, and return the line that is typed next."""
        if remedy.startswith("make "):
            return re.sub(r"make \S+( PYTHON=\S+)?", remedy, line, count=1)
        began_s = time.monotonic()
        self.root.apt(remedy.removeprefix("sudo apt-get install "))
        self.rows.append({"step": "remedy", "user": "root", "typed": remedy, "tries": [
            {"after": None, "code": 0, "seconds": round(time.monotonic() - began_s, 1), "said": []}]})  # fmt: skip
        return line


def _front_page(root: BareRoot, release: str) -> list[Row]:
    """Type the README's blocks: this machine, a runner, and whoever asks it."""
    typist = Typist(root)
    first, runner, requester, *_ = command_blocks((ROOT / "README.md").read_text("utf-8"))
    seed(root, USER)
    if not typist.type_all("first block", [_from_seed(line, USER) for line in first]):
        return typist.rows
    do_in_home = root.shell("git init -q --bare route.git")
    assert do_in_home.returncode == 0, do_in_home.stdout
    *before, serve = [line.replace("ROUTE", f"/home/{USER}/route.git") for line in runner]
    well = typist.type_all("second block", before)
    if release == "bullseye":  # it has no MLX to run the preset with
        return typist.rows
    setup = "\n".join(row["output"] for row in _said(typist, "kakeya-runner setup"))
    if not well or not serve.startswith("kakeya-runner serve"):
        return typist.rows
    typist.rows += _served(typist, serve, requester, setup)
    return typist.rows


def _said(typist: Typist, beginning: str) -> list[Row]:
    rows = [row for row in typist.rows if row["typed"].startswith(beginning)]
    return [{"output": "\n".join(row["tries"][-1]["said"])} for row in rows]


def _served(typist: Typist, serve: str, requester: Sequence[str], setup: str) -> list[Row]:
    """Type the requester's block while the runner serves; return the row of the runner's line."""
    began_s = time.monotonic()
    argv = typist.root.argv(["bash", "-c", "\n".join([*typist.state, serve])])
    printed: list[str] = []
    with tempfile.TemporaryFile("w+") as stream:
        serving = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, text=True)
        try:
            while not any(_SERVES.search(line) for line in printed) and serving.poll() is None:
                if time.monotonic() - began_s > PATIENCE_S:
                    break
                time.sleep(0.5)
                stream.seek(0)
                printed = stream.read().splitlines()
            took_s = round(time.monotonic() - began_s, 1)
            opening = re.search(r"there: (kakeya-mac init .*)", setup)
            lines = [re.sub(r"kakeya-mac init --bus ROUTE.*", opening[1] if opening else "false", line)
                     for line in requester]  # fmt: skip
            if serving.poll() is None:
                typist.type_all("third block", lines)
        finally:
            serving.terminate()
            serving.wait(timeout=60)
    well = any(_SERVES.search(line) for line in printed)
    code = 0 if well else serving.returncode
    served = {"after": None, "code": code, "seconds": took_s, "said": printed[-3:]}
    return [{"step": "second block", "user": typist.user, "typed": serve, "tries": [served]}]


def _clock(root: BareRoot, _release: str) -> list[Row]:
    """Type the first block, then as somebody else the first block and a guide with a program of one's own."""
    first = command_blocks((ROOT / "README.md").read_text("utf-8"))[0]
    rows: list[Row] = []
    for user in (USER, SECOND_USER):
        seed(root, user)
        typist = Typist(root, user)
        well = typist.type_all(f"clone of {user}", [_from_seed(line, user) for line in first])
        rows += typist.rows
        if not well:
            return rows
    writer = Typist(root, SECOND_USER, ["cd kakeya", ". .venv/bin/activate", "mkdir -p ~/mine", "cd ~/mine"])
    for what, name, block in steps((GUIDES / "ten-minutes-workload.md").read_text("utf-8")):
        if what:
            path = root.folder / "home" / SECOND_USER / "mine" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((path.read_text() if what == "append" else "") + block, encoding="utf-8")
            do(["chown", "-R", f"{UID + 1}:{UID + 1}", str(root.folder / "home" / SECOND_USER / "mine")])
        elif not writer.type_all("own script", [line for line in block.splitlines() if line.strip()]):
            break
    return rows + writer.rows


def _wheel(root: BareRoot, _release: str) -> list[Row]:
    """Install the wheel of the release in three ways, in a root that has never seen the tree."""
    with tempfile.TemporaryDirectory(prefix="kakeya-wheel-") as name:
        wheel = build_wheel("HEAD", Path(name), {"PYTHONHASHSEED": "1"})
        shutil.copy(wheel, root.folder / "home" / USER)
    file = f"./{wheel.name}"
    typist = Typist(root)
    mine = "export PATH=$HOME/.local/bin:$PATH"
    for line in (
        f"python3 -m venv own && own/bin/pip install -q {file} && cd own && bin/kakeya-mac presets",
        f"pipx install {file} && {mine} && kakeya-mac presets && kakeya-runner --help && kakeya-engine --help",
        f"pipx install uv && {mine} && uvx --from {file} kakeya-mac presets",
        f"{mine} && kakeya-mac run mlx-env-probe --wait || test $? = 4",
    ):
        typist.type("wheel", line)
    return typist.rows


def seed(root: BareRoot, user: str) -> None:
    """Put this commit where a user of the root may clone it from."""
    place, uid = root.folder / "srv" / f"{user}.git", UID if user == USER else UID + 1
    do(["git", "clone", "-q", "--bare", str(ROOT), str(place)])
    do(["chown", "-R", f"{uid}:{uid}", str(place)])


def _from_seed(line: str, user: str) -> str:
    return line.replace("REPOSITORY", f"file:///srv/{user}.git")


@dataclass(frozen=True)
class Case:
    """A root, and what is typed in it."""

    release: str
    packages: str
    walk: Callable[[BareRoot, str], list[Row]]


CASES = {
    "Debian 12 without Python": Case("bookworm", TAKEN_FOR_GRANTED, _front_page),
    "Debian 12": Case("bookworm", f"{TAKEN_FOR_GRANTED} python3", _front_page),
    "Debian 13": Case("trixie", f"{TAKEN_FOR_GRANTED} python3", _front_page),
    "Debian 11": Case("bullseye", f"{TAKEN_FOR_GRANTED} python3", _front_page),
    "clock on Debian 12": Case("bookworm", f"{TAKEN_FOR_GRANTED} python3", _clock),
    "wheel on Debian 12": Case("bookworm", "ca-certificates git python3-venv pipx", _wheel),
    "wheel on Debian 13": Case("trixie", "ca-certificates git python3-venv pipx", _wheel),
}


def cases() -> Sequence[str]:
    """Return the roots."""
    return tuple(CASES)


def run(case: str) -> list[Row]:
    """Type everything of one case in a root of its own."""
    chosen = CASES[case]
    binds = {"/opt/python3.11": stand_in_python()} if chosen.release == "bullseye" else {}
    with tempfile.TemporaryDirectory(prefix="kakeya-bare-roots-") as folder:
        Path(folder).chmod(0o755)
        root = BareRoot.copy(chosen.release, chosen.packages, Path(folder) / "root", binds)
        return chosen.walk(root, chosen.release)


def summary(entries: Sequence[Entry]) -> list[str]:
    """Say of each root how many lines ended well, after which remedies, and how long the clock ran."""
    lines = []
    for entry in entries:
        rows = entry["rows"]
        typed = [row for row in rows if row["step"] != "remedy"]
        well = sum(ends_well(row["typed"], row["tries"][-1]["code"]) for row in typed)
        named = [each["after"] for row in rows for each in row["tries"] if each["after"]]
        minutes = sum(each["seconds"] for row in rows for each in row["tries"]) / 60
        lines.append(f"{entry['case']}: {well} of {len(typed)} lines ended well, in {len(rows)} commands and "
                     f"{minutes:.0f} minutes; named and done: {'; '.join(named) or 'nothing'}")  # fmt: skip
    failed = [each for row in rows_of(entries) for each in row["tries"] if not ends_well(row["typed"], each["code"])]
    silent = [each for each in failed if remedy_in(each["said"]) is None]
    return [*lines, f"{len(failed)} tries failed, {len(silent)} of them named no remedy"]


STUDY = Study("bare-roots", "What do a stranger's first lines say on a machine with nothing?", cases, run, "40 min",
              summary)  # fmt: skip
