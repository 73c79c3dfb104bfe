"""State, clone and remote damaged between two runs, every ordered pair of ways: is a run lost or begun twice?

Each case is an owned, signing bus of its own on which three runs have ended and one request waits. Two things happen to
it, both before the runner's next start; then one more request is sent, the bus is mended by its own command, and the
runner starts again. Counted are the starts of each run, what was lost without a word, and results that do not verify.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.studies.study import Entry, Row, Study, rows_of
from bridge.bus.views import RequestRef
from bridge.errors import KakeyaError
from bridge.runner.connection.known_keys import KnownKeys
from bridge.trust.verifier import judge_result, verify_tree
from tests.support.runner_site import Site

STARTS_MAX: Final = 4
_LINES: Final = (
    "set back",
    "put back",
    "may have begun",
    "before this runner's state was lost",
    "restored",
    "deleted ",
)


@dataclass
class Scene:
    """One bus with its runner, and what was kept of its state earlier.

    Attributes:
        refs: the requests that were sent, oldest first.
        lines: what was said that names a disturbance.
    """

    site: Site
    drawn: random.Random
    refs: list[RequestRef] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def bus(self) -> Path:
        """The bus's repository."""
        return self.site.folder / "bus.git"

    @property
    def state(self) -> Path:
        """The runner's state folder."""
        return self.site.folder / "state-mini"

    def git(self, *words: str) -> str:
        """Run git in the bus's repository and return what it says."""
        done = subprocess.run(["git", "-C", self.bus, *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def command(self, *words: str) -> int:
        """Run a command of the host, keep what it says of a disturbance, and return its exit code."""
        ran = self.site.run(*words)
        printed = [*ran.stdout.splitlines(), *ran.stderr.splitlines()]
        self.lines += [line for line in printed if any(word in line for word in _LINES)]
        return ran.code

    def refs_below(self, *prefixes: str) -> list[str]:
        """Return the refs of the bus below some prefixes, in an order that was drawn."""
        listed = self.git("for-each-ref", "--format=%(refname)", *prefixes).split()
        self.drawn.shuffle(listed)
        return listed


def _delete_state(scene: Scene) -> None:
    shutil.rmtree(scene.state)


def _copy_state(scene: Scene) -> None:
    """Move the state to another folder and back as a copy: other inodes, other times."""
    aside = scene.site.folder / "copied"
    shutil.copytree(scene.state, aside)
    shutil.rmtree(scene.state)
    shutil.move(aside, scene.state)


def _restore_state(scene: Scene) -> None:
    shutil.rmtree(scene.state, ignore_errors=True)
    shutil.copytree(scene.site.folder / "backup", scene.state)


def _cut_power(scene: Scene) -> None:
    """Lose the write-ahead log, or a part of the file."""
    file = scene.state / "state.sqlite"
    if not file.exists():
        return
    if scene.drawn.random() < 0.5:
        file.with_name("state.sqlite-wal").unlink(missing_ok=True)
    else:
        data = file.read_bytes()
        file.write_bytes(data[: scene.drawn.randrange(len(data) + 1)])


def _delete_clone(scene: Scene) -> None:
    shutil.rmtree(scene.site.folder / "requester", ignore_errors=True)


def _delete_refs(scene: Scene) -> None:
    """Delete one kind of the runner's refs: all claims, all logs, beacons, the record, or the root."""
    kind = scene.drawn.choice(["claim", "log", "runner", "bus", "root"])
    for ref in scene.refs_below(f"refs/kakeya/{kind}"):
        scene.git("update-ref", "-d", ref)


def _damage_object(scene: Scene) -> None:
    """Lose the object of one ref: of a claim, a log, a beacon or a request."""
    for ref in scene.refs_below("refs/kakeya/claim", "refs/kakeya/log", "refs/kakeya/runner", "refs/heads"):
        oid = scene.git("rev-parse", ref)
        path = scene.bus / "objects" / oid[:2] / oid[2:]
        if path.exists():
            path.unlink()
            return


def _prune(scene: Scene) -> None:
    scene.git("gc", "--quiet", "--prune=now")


def _act_as_owner(scene: Scene) -> None:
    """Sign the bus's root anew from a second copy of the owner's folder."""
    scene.command("trust", "rotate", "--bus", scene.site.route)


GROUPS: Final[Mapping[str, Callable[[Scene], None]]] = MappingProxyType(
    {
        "state-deleted": _delete_state,
        "state-copied": _copy_state,
        "state-restored": _restore_state,
        "power-cut": _cut_power,
        "clone-deleted": _delete_clone,
        "refs-deleted": _delete_refs,
        "object-lost": _damage_object,
        "pruned": _prune,
        "owner": _act_as_owner,
    }
)


def cases() -> Sequence[str]:
    """Return every ordered pair of ways."""
    return [f"{first} {second}" for first in GROUPS for second in GROUPS]


def run(case: str) -> list[Row]:
    """Measure one case."""
    first, second = case.split()
    with _scene(case) as scene:
        site = scene.site
        for group in (first, second):
            GROUPS[group](scene)
        scene.command("bus", "repair", "--yes", "--bus", site.route)
        for number in range(STARTS_MAX):
            scene.command("once", "--bus", site.route)
            if number == 0:
                scene.refs.append(site.ask())
        return [_row(scene)]


def _row(scene: Scene) -> Row:
    """Return what became of the runs."""
    starts = scene.site.starts()
    bus = scene.site.requester()
    bus.use_seals(KnownKeys(scene.site.folder / "identity" / "mini", "mini").seals())
    keys = KnownKeys(scene.site.folder / "identity" / "mini", "mini")
    unverified, lost = 0, []
    for ref in scene.refs:
        try:
            view = bus.read_claim(ref.id)
            claim = None if view is None else view.claim
        except KakeyaError:
            claim = None
        if claim is None or claim.result_oid is None:
            tip = scene.git("rev-parse", "--verify", "--quiet", ref.ref)
            named = any(ref.id in line or "retry" in line for line in scene.lines)
            if tip == ref.oid and not named:
                lost.append(ref.id)
            continue
        files = bus.read_result(claim.result_oid).files
        judged = judge_result(files, keys.authority())
        unverified += bool(verify_tree(files, run_id=ref.id)) or not judged.answer.signed
    return {
        "runs": len(scene.refs),
        "begun_twice": sum(starts.count(ref.id) > 1 for ref in scene.refs),
        "last_began": starts.count(scene.refs[-1].id),
        "lost": lost,
        "unverified": unverified,
        "lines": sorted(set(scene.lines)),
    }


@contextmanager
def _scene(case: str) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name:
        Path(name).chmod(0o700)
        scene = Scene(Site(Path(name)), random.Random(case))
        site = scene.site
        scene.command("keygen")
        scene.command("once", "--bus", site.route, "--create-bus")
        for number in range(3):
            scene.refs.append(site.ask())
            scene.command("once", "--bus", site.route)
            if number == 0:
                shutil.copytree(scene.state, site.folder / "backup")
        scene.refs.append(site.ask())
        scene.lines.clear()
        try:
            yield scene
        finally:
            site.end()


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return how many runs began twice, were lost without a word, or have a result that does not verify."""
    rows = rows_of(entries)
    twice, unverified = (sum(row[key] for row in rows) for key in ("begun_twice", "unverified"))
    lost, idle = sum(len(row["lost"]) for row in rows), sum(row["last_began"] != 1 for row in rows)
    counts = f"{twice} begun twice, {lost} lost, {unverified} whose result does not verify"
    return [f"{counts}, {idle} requests afterwards that did not run once, of {sum(row['runs'] for row in rows)} runs"]


STUDY = Study(
    "disposable",
    "Is a run lost or begun twice when state, clone or remote are damaged between two runs?",
    cases,
    run,
    "half an hour",
    summary,
)
