"""Generate the history of a busy bus: runs that ended, each with its request branch, claims and result, by fast-import.

Every ref leads to real objects: a request of the product's form, a claimed and a terminal claim, a result of one file.
"""

from __future__ import annotations

import datetime as dt
import io
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.ids import new_id
from bridge.records.claim import Claim
from bridge.system.clock import rfc3339
from bridge.system.gitobjects import GitObject, commit

PRESET = "mlx-env-probe"
_SCRATCH = "refs/scratch"


@dataclass(frozen=True)
class History:
    """How many runs ended over how many days."""

    runs: int
    days: float

    def moments_ms(self, now: dt.datetime) -> list[int]:
        """Return when each run was asked for, newest first, evenly spread."""
        now_ms, span_ms = int(now.timestamp() * 1000), int(self.days * 86_400_000)
        return [now_ms - 1000 - number * span_ms // self.runs for number in range(self.runs)]


@dataclass(frozen=True)
class EndedRefs:
    """A run of a history: its id and the tips of its two refs."""

    id: str
    branch: str
    request_oid: str
    claim_oid: str


def write_history(remote: Path, history: History, now: dt.datetime, runner: str = "older") -> list[str]:
    """Add ended runs to a bare repository; return their ids, newest first.

    Raises:
        CalledProcessError: git refuses what was generated.
    """
    made: list[EndedRefs] = []
    importer = subprocess.Popen(["git", "-C", str(remote), "fast-import", "--quiet", "--force"], stdin=subprocess.PIPE)
    assert importer.stdin is not None
    with importer.stdin as stream:
        for number, moment_ms in enumerate(history.moments_ms(now)):
            made.append(_write(stream, new_id(moment_ms, number.to_bytes(10, "big")), moment_ms, runner))
    if importer.wait() != 0:
        raise subprocess.CalledProcessError(importer.returncode, importer.args)
    subprocess.run(["git", "-C", str(remote), "update-ref", "-d", _SCRATCH], check=True)
    _pack_refs(remote, made)
    return [run.id for run in made]


def _pack_refs(remote: Path, made: list[EndedRefs]) -> None:
    """Write the refs as a repository has them that was tidied: packed."""
    listed = subprocess.run(
        ["git", "-C", str(remote), "for-each-ref", "--format=%(objectname) %(refname)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = listed.stdout.splitlines()
    lines += [f"{run.request_oid} {run.branch}" for run in made]
    lines += [f"{run.claim_oid} {names.claim_ref(names.DEFAULT_PREFIX, run.id)}" for run in made]
    packed = "\n".join(sorted(lines, key=lambda line: line.split(" ")[1]))
    (remote / "packed-refs").write_text(f"# pack-refs with: sorted\n{packed}\n", encoding="ascii")


def _write(stream: io.BufferedWriter, run_id: str, moment_ms: int, runner: str) -> EndedRefs:
    """Write one run; ids are computed here, as fast-import writes the same bytes."""
    moment = rfc3339(dt.datetime.fromtimestamp(moment_ms / 1000, dt.UTC))
    request_commit, request_objects = commits.folder_commit(
        {commits.REQUEST_FILE: f'{{"id":"{run_id}"}}'.encode()},
        over=(), parents=(), time_unix_s=moment_ms // 1000, message=f"request {run_id}",
    )  # fmt: skip
    top, result_objects = commits.file_tree({b"manifest.json": f'{{"id":"{run_id}"}}'.encode()})
    result = commit(top.oid, (), moment_ms // 1000, f"result {run_id}")
    first = Claim.model_construct(
        id=run_id, request_oid=request_commit.oid, state="claimed", runner=runner, nonce=run_id.encode().hex()[:32],
        sequence=0, lease_s=60.0, time=moment,
    )  # fmt: skip
    last = first.model_copy(
        update={"state": "terminal", "nonce": run_id.encode().hex()[-32:], "sequence": 1, "reason": "passed",
                "exit_code": 0, "result_oid": result.oid},
    )  # fmt: skip
    head, head_objects = commits.claim_commit(first, ())
    end, end_objects = commits.claim_commit(last, (head.oid, result.oid))
    request_file, claim_file = b".mac-bridge/request.json", commits.CLAIM_FILE
    _write_commit(stream, request_commit, request_objects, request_file)
    _write_commit(stream, result, result_objects, b"manifest.json", mark=1)
    _write_commit(stream, head, head_objects, claim_file, mark=2)
    _write_commit(stream, end, end_objects, claim_file, parents=b"from :2\nmerge :1\n")
    branch = f"refs/heads/mac-bridge/{PRESET}-{run_id}"
    return EndedRefs(run_id, branch, request_commit.oid, end.oid)


def _write_commit(
    stream: io.BufferedWriter, made: GitObject, objects: list[GitObject], path: bytes, *, mark: int = 0,
    parents: bytes = b"",
) -> None:  # fmt: skip
    """Write a commit of one file; marks name what a later commit of the same run follows."""
    head, _, message = made.data.partition(b"\n\n")
    who = next(line for line in head.split(b"\n") if line.startswith(b"committer "))
    content = next(item for item in objects if item.kind == "blob").data
    named = b"mark :%d\n" % mark if mark else b""
    scratch = _SCRATCH.encode()
    stream.write(b"reset %b\ncommit %b\n%b%b\ndata %d\n%b" % (scratch, scratch, named, who, len(message), message))
    stream.write(b"%bM 100644 inline %b\ndata %d\n%b\n" % (parents, path, len(content), content))


def sizes(folder: Path) -> Iterator[int]:
    """Yield the bytes of each file of a repository."""
    yield from (path.stat().st_size for path in folder.rglob("*") if path.is_file())
