"""Nine programs that nobody of this project wrote, as they are: how many commands each takes, and what an owner edits.

Each is fetched by the name and version of its package and thrown away afterwards. The owner of a host types at most
three commands, a requester one. Debian's packages are fetched with apt-get where they are missing, which takes root.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.studies.study import Entry, Row, Study, rows_of
from tests.fakes.clone import Clone

PATIENCE_S = 240.0
MAC, RUNNER = ("-m", "bridge.cli.mac.main"), ("-m", "bridge.cli.host.main")
APT = Path("/etc/apt")
ITERTOOLS = "more-itertools==11.2.1"


@dataclass(frozen=True)
class Program:
    """Somebody else's program.

    Attributes:
        kind: what sort of program it is.
        packages: where it comes from: NAME==VERSION of pip, NAME=VERSION of apt, NAME@VERSION of npm.
        prepare: fetches them into a folder.
        new: words of ``workload new`` behind its name, with the fetched files.
        edits: what had to be edited by hand afterwards, a line each.
    """

    kind: str
    packages: tuple[str, ...]
    prepare: Callable[[Path], None]
    new: str
    edits: tuple[str, ...] = ()


def _pip(top: Path, *packages: str) -> None:
    """Install packages into a virtual environment."""
    _do([sys.executable, "-m", "venv", str(top / "venv")])
    _do([str(top / "venv" / "bin" / "pip"), "install", "-q", *packages])


def _unpacked(top: Path, package: str) -> None:
    """Fetch the source of a package and unpack it into the folder ``source``."""
    _do([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(top), package])
    _unpack(top, next(top.glob("*.tar.gz")))


def _unpack(top: Path, archive: Path) -> None:
    (top / "source").mkdir()
    _do(["tar", "-xf", str(archive), "-C", str(top / "source"), "--strip-components=1"])


def _apt(program: str, package: str) -> None:
    """Install a package of Debian where its program is missing."""
    if shutil.which(program) is None:
        _do(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package])


def _apt_source(top: Path, package: str) -> None:
    """Fetch a source package of Debian and unpack what its authors released."""
    (top / "apt" / "lists" / "partial").mkdir(parents=True)
    for place in [*APT.glob("sources.list.d/*.sources"), *APT.glob("sources.list.d/*.list"), *APT.glob("sources.list")]:
        sources = re.sub(r"^(Types: )?deb\b", r"\1deb-src", place.read_text("utf-8"), flags=re.MULTILINE)
        (top / "apt" / place.name).with_suffix(place.suffix if place.suffix == ".sources" else ".list").write_text(
            sources
        )
    places = {"sourcelist": "/dev/null", "sourceparts": str(top / "apt")}
    options = [f"-oDir::Etc::{name}={value}" for name, value in places.items()] + [
        f"-oDir::State::lists={top}/apt/lists"
    ]
    _do(["apt-get", *options, "update", "-qq"])
    _do(["apt-get", *options, "source", "--download-only", "-qq", package], cwd=top)
    _unpack(top, next(top.glob("*.orig.tar.gz")))


def _npm(top: Path, package: str) -> None:
    _do(["npm", "pack", "--silent", package], cwd=top)
    _unpack(top, next(top.glob("*.tgz")))


def _interrogate(top: Path) -> None:
    _pip(top, "interrogate==1.7.0")
    _unpacked(top, ITERTOOLS)


def _pytest(top: Path) -> None:
    _pip(top, "pytest==9.2.0", ITERTOOLS)
    _unpacked(top, ITERTOOLS)


def _graphs(top: Path) -> None:
    _apt("gnuplot", "gnuplot-nox=5.4.4+dfsg1-2+b2")
    _apt("fio_generate_plots", "fio=3.33-3")
    logs = [f"--write_{kind}_log=seq" for kind in ("bw", "iops", "lat")]
    _do(
        ["fio", "--name=seq", "--rw=write", "--size=4m", "--bs=64k", "--directory=.", "--log_avg_msec=1", *logs],
        cwd=top,
    )


def _search(top: Path) -> None:
    _apt("rg", "ripgrep=13.0.0-4+b2")
    _unpacked(top, ITERTOOLS)


def _lines(top: Path) -> None:
    _npm(top, "cloc@2.11.0")
    (top / "texts").mkdir()
    shutil.copy(shutil.__file__, top / "texts")


PROGRAMS = {
    "xkcdpass": Program(
        "argparse, with choices and flags", ("xkcdpass==1.19.3",), lambda top: _unpacked(top, "xkcdpass==1.19.3"),
        "--from source/xkcdpass/xkcd_password.py --from source/xkcdpass/static --arguments=--verbose --number words",
    ),
    "interrogate": Program(
        "a click program", ("interrogate==1.7.0", ITERTOOLS), _interrogate,
        "--from venv/bin/interrogate --from source/more_itertools --arguments '--fail-under 0 more_itertools' "
        "--number actual",
    ),
    "fio-plots": Program(
        "a shell script with gnuplot", ("fio=3.33-3", "gnuplot-nox=5.4.4+dfsg1-2+b2"), _graphs,
        "--from /usr/bin/fio_generate_plots --arguments sequential "
        + " ".join(f"--from seq_{kind}.1.log" for kind in ("bw", "iops", "lat", "slat", "clat")),
    ),
    "mbw": Program(
        "a Makefile and C", ("mbw=1.2.2-1.1",), lambda top: _apt_source(top, "mbw=1.2.2-1.1"),
        "--from source/Makefile --from source/mbw.c "
        "--arguments \"--eval 'bench: mbw ; ./mbw -q -a -n 1 -t0 64' bench\" --number copy --unit MiB/s",
    ),
    "ripgrep": Program(
        "a Rust binary", ("ripgrep=13.0.0-4+b2", ITERTOOLS), _search,
        "--from /usr/bin/rg --from source/more_itertools --arguments '--stats yield more_itertools' --number matches",
    ),
    "pytest": Program(
        "pytest of a package", ("pytest==9.2.0", ITERTOOLS), _pytest,
        "--from venv/bin/pytest --from source/tests --arguments '-q -p no:cacheprovider tests -k chunked' "
        "--number passed",
    ),
    "hyperfine": Program(
        "a benchmark that writes JSON", ("hyperfine=1.15.0-2",), lambda _: _apt("hyperfine", "hyperfine=1.15.0-2"),
        "--from /usr/bin/hyperfine --arguments \"--export-json times.json -w 1 -r 10 'seq 100000'\" --number mean "
        "--unit s",
    ),
    "cloc": Program(
        "a Perl script", ("cloc@2.11.0",), _lines,
        "--from source/lib/cloc --from texts --arguments '--json texts' --number code",
    ),
    "psrecord": Program(
        "a picture and a table", ("psrecord==1.4", "matplotlib==3.11.2"),
        lambda top: _pip(top, "psrecord==1.4", "matplotlib==3.11.2"),
        "--from venv/bin/psrecord --arguments \"'sleep 2' --log activity.csv --plot plot.png --interval 0.1\" "
        "--number none",
    ),
}  # fmt: skip


def _do(argv: Sequence[str], cwd: Path | None = None) -> None:
    """Run a program that has to end well.

    Raises:
        RuntimeError: it did not; with the end of what it said.
    """
    ran = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{shlex.join(argv[:4])} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-400:]}")


def cases() -> Sequence[str]:
    """Return the programs."""
    return tuple(PROGRAMS)


def run(case: str) -> list[Row]:
    """Take one program from its package to a result that a requester has."""
    program = PROGRAMS[case]
    with tempfile.TemporaryDirectory(prefix="kakeya-foreign-") as folder:
        top = Path(folder)
        top.chmod(0o755)
        owner, requester = (
            Clone(_home(top, "owner")),
            Clone(_home(top, "requester")),
        )
        program.prepare(owner.top)
        route = str(top / "bus.git")
        _do(["git", "init", "-q", "--bare", route])
        made = _typed(owner, (*RUNNER, "setup", "--bus", route, "--create-bus", "--name", "desk"))
        opening = next(line for line in made.stdout.splitlines() if line.startswith("there: kakeya-mac "))
        _typed(requester, (*MAC, *shlex.split(opening)[2:]))
        commands = [("workload", "new", case, *shlex.split(program.new)), ("workload", "check", case),
                    ("workload", "allow", case)]  # fmt: skip
        answers = [_typed(owner, (*RUNNER, *words)) for words in commands]
        refused = next((ran for ran in answers if ran.returncode), None)
        result = _asked(owner, requester, case) if refused is None else _refused(refused)
    return [
        {
            "kind": program.kind,
            "packages": list(program.packages),
            "owner": [shlex.join(("kakeya-runner", *words)) for words in commands],
            "owner_codes": [ran.returncode for ran in answers],
            "notes": [line for line in answers[0].stderr.splitlines() if line],
            "edits": list(program.edits),
            "requester": [f"kakeya-mac run {case} --wait"],
        }
        | result
    ]


def _home(top: Path, name: str) -> Path:
    (top / name).mkdir(mode=0o755)
    return top / name


def _typed(clone: Clone, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=clone.top, env=clone.env, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip


def _refused(ran: subprocess.CompletedProcess[str]) -> Row:
    """Return what came of a program that its owner could not offer."""
    lines = (ran.stdout + ran.stderr).splitlines()
    return {"exit_code": ran.returncode, "reason": "not offered", "quotation": None,
            "message": lines[0] if lines else None,
            "numbers": [], "kept": [], "log": lines[-5:]}  # fmt: skip


def _asked(owner: Clone, requester: Clone, case: str) -> Row:
    """Serve while a requester's one command runs; return what came of it."""
    began_s = time.monotonic()
    serving = subprocess.Popen(
        [sys.executable, *RUNNER, "serve"], cwd=owner.top, env=owner.env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not re.search(rf"^{case} ", _typed(requester, (*MAC, "presets")).stdout, re.MULTILINE):
            if time.monotonic() - began_s > PATIENCE_S:
                raise RuntimeError(f"{case} was never offered")
            time.sleep(0.5)
        ran = _typed(requester, (*MAC, "run", case, "--wait", "--json"))
    finally:
        serving.terminate()
        serving.wait(timeout=PATIENCE_S)
    document = json.loads(ran.stdout)
    outcome = document["outcome"]
    return {
        "exit_code": ran.returncode,
        "reason": outcome["reason"],
        "quotation": outcome["quotation"],
        "message": outcome["message"],
        "numbers": [claim["wording"] for claim in document["claims"]],
        "kept": [] if document["files"] is None else document["files"]["kept"],
        "log": [] if ran.returncode == 0 or document["log_tail"] is None else document["log_tail"]["lines"][-5:],
    }


def summary(entries: Sequence[Entry]) -> list[str]:
    """Say of each program what it took and what came of it."""
    lines = []
    for row in rows_of(entries):
        edits = "nothing edited" if not row["edits"] else f"edited: {'; '.join(row['edits'])}"
        outcome = "; ".join([*row["numbers"], *row["kept"]]) or row["message"]
        commands = f"{len(row['owner'])} + {len(row['requester'])} commands"
        lines.append(f"{row['kind']}: {commands}, {edits}: {row['reason']}, {outcome}")
    done = sum(row["reason"] == "passed" and bool(row["numbers"] or row["kept"]) for row in rows_of(entries))
    return [*lines, f"{done} of {len(entries)} came to a result"]


STUDY = Study("foreign-programs", "Do other people's programs run as they are?", cases, run, "5 min", summary)
