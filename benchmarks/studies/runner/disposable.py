"""State, clone and remote damaged between runs, every ordered pair of ways: is a run lost or begun twice?

A case is an owned, signing bus with two runners and three clients. Between any two of its rounds two things happen to a
drawn runner, client, ref or object, both before the next start; a request waits meanwhile, and one more is sent
afterwards. Then both runners mend the bus by its own command and run what waits. Counted are the starts of each run,
what was lost without a word, and results that do not verify. Further cases delete the claims all the time, and the key.
"""

from __future__ import annotations

import datetime as dt
import io
import os
import random
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.studies.study import Entry, Row, Study, rows_of
from bridge.bus import open_bus
from bridge.bus.refbus import RefBus
from bridge.bus.views import RequestRef
from bridge.errors import BusMissingError, KakeyaError
from bridge.runner.connection.known_keys import KnownKeys
from bridge.runner.policy.policy_file import PolicyFile
from bridge.runner.service.serve import once, runner_on, runner_place
from bridge.runner.state.log import new_log
from bridge.system.clock import SystemClock
from bridge.system.durable import NameLock
from bridge.trust.verifier import judge_result, verify_tree
from tests.fakes.asking import make_request, push
from tests.support.runner_site import Ran, Site

RUNNERS: Final = ("mini", "other")
CLIENTS: Final = ("laptop", "agent", "ci")
STARTS_MAX: Final = 4
_BACKUPS_COUNT: Final = 5  # rounds of two runs each
_CLOCK_OFF: Final = dt.timedelta(hours=3)
_CLAIMS_DELETED_EVERY_S: Final = 1.0
_CLAIMS_DELETED: Final = tuple(f"claims-deleted-{part}" for part in range(1, 9))
_CLAIMS_DELETED_RUNS: Final = 25  # a part
_WITHIN_S: Final = 1800.0
_DELIVERED_WITHIN_S: Final = 120.0
_LINES: Final = (
    "set back",
    "put back",
    "may have begun",
    "before this runner's state was lost",
    "restored",
    "deleted ",
    "left refs/",
    "clock",
    "git fsck",
    "has no key",
    "the bus shows",
    "lives",
)

_NAMING: Final = ("kakeya-mac retry", "may have begun", "before this runner's state was lost")


def names_what_to_do(line: str, run_id: str) -> bool:
    """Return whether a line tells the requester of a run that it may be lost, and how to ask again."""
    return run_id in line and any(word in line for word in _NAMING)


class _ShiftedClock(SystemClock):
    """The machine's clocks, the wall clock wrong by a while."""

    def __init__(self, by: dt.timedelta) -> None:
        super().__init__()
        self._by = by

    def now(self) -> dt.datetime:
        """Return the wrong wall time."""
        return super().now() + self._by


@dataclass
class Scene:
    """One bus with its runners and clients, and what was kept of their states earlier.

    Attributes:
        refs: the requests that were sent, oldest first.
        lines: what was said that names a disturbance, in this round.
        named: the runs whose requester was told what to do, in any round.
        off: by how much a runner's clock is wrong, until the round ends.
    """

    site: Site
    drawn: random.Random
    refs: list[RequestRef] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    off: dict[str, dt.timedelta] = field(default_factory=dict)
    rounds: int = 0

    @property
    def bus(self) -> Path:
        """The bus's repository."""
        return self.site.folder / "bus.git"

    @property
    def backups(self) -> Path:
        """Where copies of the states lie, by round."""
        return self.site.folder / "backups"

    def state(self, name: str) -> Path:
        """Return the state folder of a runner."""
        return self.site.folder / f"state-{name}"

    def draw_state(self) -> Path:
        """Return the state folder of a drawn runner."""
        return self.state(self.drawn.choice(RUNNERS))

    def git(self, *words: str) -> str:
        """Run git in the bus's repository and return what it says."""
        done = subprocess.run(["git", "-C", self.bus, *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def command(self, *words: str, name: str = "mini") -> Ran:
        """Run a command of a host and keep what it says of a disturbance."""
        ran = self.site.run(*words, name=name)
        self.note(name, f"{ran.stdout}\n{ran.stderr}")
        return ran

    def note(self, name: str, text: str) -> None:
        """Keep the lines of a text that say something of a disturbance."""
        lines = [line for line in text.splitlines() if any(word in line for word in _LINES)]
        self.lines += [f"{name}: {line}" for line in lines]
        self.named |= {ref.id for ref in self.refs for line in lines if names_what_to_do(line, ref.id)}

    def run_once(self, name: str) -> None:
        """Let a runner start and take one request, by its own clock."""
        if name not in self.off:
            self.command("once", "--bus", self.site.route, name=name)
            return
        printed, clock = io.StringIO(), _ShiftedClock(self.off[name])
        policy = PolicyFile(self.site.policy(name), clock)
        place = runner_place(name, self.site.policy(name), self.state(name))
        place.create()
        with NameLock(place.lock).held():
            bus = open_bus(self.site.route, repository=None, state=place.bus, clock=clock)
            log = new_log(printed)
            try:
                with runner_on(
                    bus, policy.started, place, clock=clock, stopping=threading.Event(), log=log, policy_file=policy
                ) as runner:
                    once(runner)
            except KakeyaError as error:
                printed.write(error.line)
        self.note(name, printed.getvalue())

    def repair(self, name: str) -> None:
        """Mend the bus as a runner's owner does, who removes the files that the command names."""
        words = ("bus", "repair", "--yes", "--bus", self.site.route)
        ran = self.command(*words, name=name)
        files = re.findall(r"remove (objects/\S+)", ran.stdout)
        if "git fsck" in ran.stdout + ran.stderr:
            fsck = subprocess.run(["git", "-C", self.bus, "fsck"], capture_output=True, text=True, check=False)
            files += re.findall(r"objects/[0-9a-f]{2}/[0-9a-f]{38}", fsck.stderr)
        for file in files:
            (self.bus / file).unlink(missing_ok=True)
        if files:
            self.command(*words, name=name)

    def client(self, name: str) -> RefBus:
        """Return the bus as one client opens it, which remembers the root that it met."""
        folder = self.site.folder / "clients" / name
        bus = open_bus(self.site.route, repository=None, state=folder, clock=SystemClock())
        bus.use_root(KnownKeys(folder / "keys", name).judge_root)
        return bus

    def ask(self) -> None:
        """Send a request from a drawn client; where nothing shows it the bus, once a runner has put that back."""
        name = self.drawn.choice(CLIENTS)
        try:
            bus_id = self.client(name).identity().bus_id
        except BusMissingError as error:
            self.lines.append(f"{name}: {error.line}")
            self.run_once(RUNNERS[0])
            bus_id = self.client(name).identity().bus_id
        self.refs.append(push(self.client(name), make_request(bus_id, "count")))

    def refs_below(self, *prefixes: str) -> list[str]:
        """Return the refs of the bus below some prefixes, in an order that was drawn."""
        listed = self.git("for-each-ref", "--format=%(refname)", *prefixes).split()
        self.drawn.shuffle(listed)
        return listed


def _delete_state(scene: Scene) -> None:
    shutil.rmtree(scene.draw_state(), ignore_errors=True)


def _copy_state(scene: Scene) -> None:
    """Move a state to another folder and back as a copy: other inodes, other times."""
    state, aside = scene.draw_state(), scene.site.folder / "copied"
    if state.exists():
        shutil.copytree(state, aside)
        shutil.rmtree(state)
        shutil.move(aside, state)


def _restore_state(scene: Scene) -> None:
    """Put a state back from ten runs ago, or from the first copy."""
    state = scene.draw_state()
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(scene.backups / str(max(0, scene.rounds - _BACKUPS_COUNT)) / state.name, state)


def _cut_power(scene: Scene) -> None:
    """Lose a write-ahead log, or a part of the file."""
    file = scene.draw_state() / "state.sqlite"
    if not file.exists():
        return
    if scene.drawn.random() < 0.5:
        file.with_name("state.sqlite-wal").unlink(missing_ok=True)
    else:
        data = file.read_bytes()
        file.write_bytes(data[: scene.drawn.randrange(len(data) + 1)])


def _delete_clone(scene: Scene) -> None:
    shutil.rmtree(scene.site.folder / "clients" / scene.drawn.choice(CLIENTS), ignore_errors=True)


def _delete_refs(scene: Scene) -> None:
    """Delete one kind of the runners' refs: all claims, all logs, beacons, the record, or the root."""
    kind = scene.drawn.choice(["claim", "log", "runner", "bus", "root"])
    for ref in scene.refs_below(f"refs/kakeya/{kind}"):
        scene.git("update-ref", "-d", ref)


def _damage_object(scene: Scene) -> None:
    """Lose the object of one ref, or turn a bit of it: of a claim, a log, a beacon, a request, or the record."""
    for ref in scene.refs_below("refs/kakeya", "refs/heads"):
        oid = scene.git("rev-parse", ref)
        path = scene.bus / "objects" / oid[:2] / oid[2:]
        if path.exists():
            if scene.drawn.random() < 0.8:
                path.unlink()
            else:
                data = bytearray(path.read_bytes())
                data[scene.drawn.randrange(len(data))] ^= 1
                path.chmod(0o644)
                path.write_bytes(data)
            return


def _prune(scene: Scene) -> None:
    scene.git("gc", "--quiet", "--prune=now")


def _set_clock_wrong(scene: Scene) -> None:
    scene.off[scene.drawn.choice(RUNNERS)] = scene.drawn.choice([_CLOCK_OFF, -_CLOCK_OFF])


def _act_as_owner(scene: Scene) -> None:
    """Sign the bus's root anew from one of two machines of the owner; where it refuses, as its line says."""
    folder = scene.site.folder / f"owner-{scene.drawn.choice('ab')}"
    name = f"ci-{scene.rounds}-{scene.drawn.randrange(10**6)}"
    words = ("trust", "ticket", name, "--out", str(scene.site.folder / f"{name}.ticket"), "--bus", scene.site.route)
    with _environment(KAKEYA_OWNER_DIR=str(folder)):
        if scene.command(*words).code != 0:
            for root in folder.glob("root-*.json"):
                root.rename(root.with_suffix(f".{scene.rounds}"))
            scene.command(*words)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


GROUPS: Final[Mapping[str, Callable[[Scene], None]]] = MappingProxyType(
    {
        "state-deleted": _delete_state,
        "state-copied": _copy_state,
        "state-restored": _restore_state,
        "power-cut": _cut_power,
        "clone-deleted": _delete_clone,
        "refs-deleted": _delete_refs,
        "object-damaged": _damage_object,
        "pruned": _prune,
        "clock-wrong": _set_clock_wrong,
        "owner": _act_as_owner,
    }
)


def cases() -> Sequence[str]:
    """Return a case for every group, which comes first in each pair, and those with one disturbance all the time."""
    return [*GROUPS, "identity-deleted", *_CLAIMS_DELETED]


def run(case: str) -> list[Row]:
    """Measure one case."""
    match case:
        case "identity-deleted":
            return [_delete_identity()]
        case part if part in _CLAIMS_DELETED:
            return [_delete_claims_all_the_time(part)]
        case _:
            with _scene(case) as scene:
                return [_run_round(scene, case, second) for second in GROUPS]


def _run_round(scene: Scene, first: str, second: str) -> Row:
    """Let two things happen while a request waits; mend, send another, and let both runners take what there is."""
    scene.lines.clear()
    scene.ask()
    for group in (first, second):
        GROUPS[group](scene)
    for name in RUNNERS:
        scene.repair(name)
    scene.ask()
    for _ in range(STARTS_MAX):
        for name in scene.drawn.sample(RUNNERS, len(RUNNERS)):
            scene.run_once(name)
        if scene.off:
            scene.off.clear()  # somebody sets the clock right
        elif all(ref.id in scene.site.starts() for ref in scene.refs[-2:]):
            break
    row = {"pair": f"{first} {second}"} | _row(scene)
    scene.rounds += 1
    _keep_backup(scene)
    return row


def _row(scene: Scene) -> Row:
    """Return what became of the runs so far."""
    starts = scene.site.starts()
    bus = scene.client("auditor")
    keys = KnownKeys(scene.site.folder / "identity" / "mini", "mini")
    bus.use_root(keys.judge_root)
    bus.use_seals(keys.seals())
    unverified: list[str] = []
    lost: list[str] = []
    named: list[str] = []
    for ref in scene.refs:
        try:
            view = bus.read_claim(ref.id)
            claim = None if view is None else view.claim
        except KakeyaError:
            claim = None
        if claim is None or claim.result_oid is None:
            if scene.git("rev-parse", "--verify", "--quiet", ref.ref) in {ref.oid, ""}:
                (named if ref.id in scene.named else lost).append(ref.id)
            continue
        files = bus.read_result(claim.result_oid).files
        judged = judge_result(files, keys.authority())
        if verify_tree(files, run_id=ref.id) or not judged.answer.signed:
            unverified.append(ref.id)
    newest = [ref.id for ref in scene.refs[-2:]]
    return {
        "runs": len(newest),
        "begun_twice": [ref.id for ref in scene.refs if starts.count(ref.id) > 1],
        "begun": sum(starts.count(run_id) for run_id in newest),
        "lost": lost,
        "named": named,
        "unverified": unverified,
        "lines": list(dict.fromkeys(scene.lines)),
    }


@contextmanager
def _scene(case: str) -> Iterator[Scene]:
    """Make a bus that two runners serve, with an owner on two machines."""
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as folder:
        Path(folder).chmod(0o700)
        site = Site(Path(folder))
        scene = Scene(site, random.Random(case))
        owners = [site.folder / f"owner-{machine}" for machine in "ab"]
        with _environment(KAKEYA_OWNER_DIR=str(owners[0])):
            for name in RUNNERS:
                scene.command("keygen", name=name)
            scene.command("once", "--bus", site.route, "--create-bus")
            other = KnownKeys(site.folder / "identity" / "other", "other").authority().keys[0]
            scene.command("trust", "add", f"other={other.key}", "--bus", site.route)
        shutil.copytree(owners[0], owners[1])
        for name in RUNNERS:
            scene.ask()
            scene.run_once(name)
        _keep_backup(scene)
        try:
            yield scene
        finally:
            site.end()


def _keep_backup(scene: Scene) -> None:
    for name in RUNNERS:
        if scene.state(name).exists():
            shutil.copytree(scene.state(name), scene.backups / str(scene.rounds) / f"state-{name}", symlinks=True)


def _delete_identity() -> Row:
    """Delete the key of a runner: it takes nothing and says what to do."""
    with _scene("identity-deleted") as scene:
        shutil.rmtree(scene.site.folder / "identity" / "mini")
        scene.ask()
        scene.lines.clear()
        scene.run_once("mini")
        begun = scene.site.starts().count(scene.refs[-1].id)
        named = [scene.refs[-1].id] if scene.lines else []
        row = {"runs": 1, "begun": begun, "named": named, "lines": scene.lines}
        return {"pair": "identity-deleted", "begun_twice": [], "lost": [], "unverified": []} | row


def _delete_claims_all_the_time(case: str) -> Row:
    """Let somebody delete every claim once a second while two runners serve."""
    with _scene(case) as scene:
        ended, deleted = threading.Event(), 0
        for name in RUNNERS:
            scene.site.start("serve", "--bus", scene.site.route, name=name)
        for _ in range(_CLAIMS_DELETED_RUNS):
            scene.ask()
        until = SystemClock().steady_s() + _WITHIN_S
        while len(set(scene.site.starts())) < len(scene.refs) and SystemClock().steady_s() < until:
            for ref in scene.refs_below("refs/kakeya/claim"):
                scene.git("update-ref", "-d", ref)
                deleted += 1
            ended.wait(_CLAIMS_DELETED_EVERY_S)
        until = SystemClock().steady_s() + _DELIVERED_WITHIN_S
        while _undelivered(scene) and SystemClock().steady_s() < until:
            ended.wait(_CLAIMS_DELETED_EVERY_S)
        row = {"pair": case, "deleted": deleted} | _row(scene)
        return row | {"runs": _CLAIMS_DELETED_RUNS, "begun": len(set(scene.site.starts())) - len(RUNNERS)}


def _undelivered(scene: Scene) -> bool:
    return any(scene.git("rev-parse", "--verify", "--quiet", ref.ref) == ref.oid for ref in scene.refs)


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return how many runs began twice, were lost without a word, or have a result that does not verify."""
    rows = rows_of(entries)
    twice, lost, unverified = (
        len({run_id for row in rows for run_id in row[key]}) for key in ("begun_twice", "lost", "unverified")
    )
    runs, begun = (sum(row[key] for row in rows) for key in ("runs", "begun"))
    counts = f"{twice} begun twice, {lost} lost without a word, {unverified} whose result does not verify"
    return [f"{counts}; {begun} of {runs} runs began, after {len(rows)} pairs of disturbances"]


STUDY = Study(
    "disposable",
    "Is a run lost or begun twice when state, clone or remote are damaged between two runs?",
    cases,
    run,
    "half an hour",
    summary,
)
