"""The store of one clone: the requests it sent, and the results it has verified.

Layout below the state directory: ``requests/<id>.json`` (written before the push: a killed client goes on with
the same id and bytes) and ``runs/<short id>/`` (a result tree, written whole or not at all). Knows no bus.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge import strictjson
from bridge.bus.tree import Tree, check_path
from bridge.client.clone.packed import SUFFIX, is_packed, read_packed
from bridge.client.document.untrusted import clean_line
from bridge.errors import IntegrityError
from bridge.ids import is_id, short
from bridge.limits import REQUEST_MAX_BYTES, RESULT_MAX_BYTES, RESULT_MAX_FILES

if TYPE_CHECKING:
    from bridge.records.request import Request
    from bridge.system.clock import Clock

_DECIDED_S: Final = 30.0  # so long one command waits for another that decides whether to send
_FINDERS: Final = ".DS_Store"  # what macOS leaves in a folder that was looked at; no result holds a hidden file
_CLOSE: Final = frozenset({"x", "%"})  # units that stand right behind their number


@dataclass(frozen=True)
class Sent:
    """A request this clone sent, or was about to send: its exact bytes, and where to."""

    id: str
    ref: str
    route: str
    bus_id: str
    data: bytes
    signature: bytes | None = None

    def request(self) -> Request:
        """Return the request that the stored bytes hold."""
        from bridge.records.request import Request

        return Request.parse(self.data)


@dataclass(frozen=True)
class StoredEnding:
    """What a listing shows of a stored result, read without checking it: whoever decides by it asks `status`.

    Attributes:
        decision, metric: of its verdict, and the number of its primary claim; None where nothing was judged.
        ended: when the host wrote its record.
        asked_by: who asked, as the host says; ``unsigned`` without a signature that counted.
    """

    reason: str | None
    decision: str | None
    metric: str | None
    ended: str | None
    asked_by: str | None


class Store:
    """The folder of one clone (or of the user, outside of a clone)."""

    def __init__(self, state_dir: Path) -> None:
        self._requests = state_dir / "requests"
        self._runs = state_dir / "runs"
        self._sending = state_dir / "sending.lock"

    @contextmanager
    def deciding(self, clock: Clock) -> Iterator[None]:
        """Let one command at a time look what it sent and write down what it sends; one that hangs holds nobody up.

        Raises:
            OSError: the folder cannot be written to.
        """
        from bridge.system.durable import in_turn

        self._sending.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._sending, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with in_turn(descriptor, _DECIDED_S, clock):
            yield

    def remember(self, sent: Sent) -> None:
        """Write down a request before it is pushed."""
        from bridge.system.durable import write_atomically

        document = {
            "schema": 1,
            "id": sent.id,
            "ref": sent.ref,
            "route": sent.route,
            "bus_id": sent.bus_id,
            "request": sent.data.decode("utf-8"),
            "signature": None if sent.signature is None else sent.signature.decode("ascii"),
        }
        write_atomically(self._requests / f"{sent.id}.json", strictjson.encode(document))

    def sent(self, run_id: str) -> Sent | None:
        """Return a remembered request, or None; what cannot be read here is as good as none: its bus still knows."""
        path = self._requests / f"{run_id}.json"
        try:
            document: dict[str, Any] = strictjson.decode(path.read_bytes(), max_bytes=4 * REQUEST_MAX_BYTES)
            sent = Sent(
                id=document["id"],
                ref=document["ref"],
                route=document["route"],
                bus_id=document["bus_id"],
                data=document["request"].encode("utf-8"),
                signature=None if document.get("signature") is None else document["signature"].encode("ascii"),
            )
            sent.request()
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return None
        return sent

    def all_sent(self) -> Iterator[Sent]:
        """Yield remembered requests, newest first."""
        for run_id in sorted(self._sent_ids(), reverse=True):
            if (sent := self.sent(run_id)) is not None:
                yield sent

    def forget(self, run_id: str) -> None:
        """Remove a remembered request; no error when there is none."""
        (self._requests / f"{run_id}.json").unlink(missing_ok=True)

    def ids(self) -> set[str]:
        """Return every id known here, sent or fetched."""
        return self._sent_ids() | {run_id for run_id, _ in self.results()}

    def results(self) -> Iterator[tuple[str, Path]]:
        """Yield (run id, folder) of every stored result."""
        if self._runs.is_dir():
            for folder in sorted(self._runs.iterdir()):
                if not folder.name.startswith(".") and (run_id := id_in(folder)) is not None:
                    yield run_id, folder

    def folder(self, run_id: str) -> Path:
        """Return where a run's result lies or would lie; the full id is used where two short ids are the same."""
        plain = self._runs / short(run_id)
        if not plain.exists() or id_in(plain) in {run_id, None}:
            return plain
        return self._runs / run_id

    def has_result(self, run_id: str) -> bool:
        """Return whether this run's own result is stored."""
        return id_in(self.folder(run_id)) == run_id

    def write_result(self, run_id: str, tree: Tree) -> Path:
        """Write a verified result tree, whole or not at all, and return its folder."""
        from bridge.system.durable import write_folder_atomically

        for name in tree.files:
            check_path(name)
        folder = self.folder(run_id)
        write_folder_atomically(folder, tree.files)
        return folder

    def read_result(self, run_id: str) -> Tree:
        """Return a stored result tree."""
        return read_tree(self.folder(run_id))

    def read_ending(self, run_id: str) -> StoredEnding:
        """Return what a listing shows of a stored result; nothing of a file that is not as it was written."""
        folder = self.folder(run_id)
        record, verdict = (_json_object(folder / name) for name in ("run.json", "verdict.json"))
        decision, reason = _text(verdict, "decision"), _text(record, "reason")
        if reason == "passed" and decision in {None, "rejected"}:
            reason = "gate_rejected"
        claims = verdict.get("claims")
        return StoredEnding(reason, decision, _metric(claims), _moment(record, "ended"), _text(record, "principal"))

    def stored_request(self, run_id: str) -> Request | None:
        """Return the request that a stored result answers, not checked; None where nothing reads as one."""
        from bridge.records.request import Request

        try:
            data = (self.folder(run_id) / "request.json").read_bytes()
            return Request.parse(data, max_bytes=REQUEST_MAX_BYTES)
        except (OSError, ValueError):
            return None

    def remove_result(self, run_id: str) -> None:
        """Delete a stored result."""
        if self.has_result(run_id):
            import shutil

            shutil.rmtree(self.folder(run_id))

    def _sent_ids(self) -> set[str]:
        if not self._requests.is_dir():
            return set()
        return {path.stem for path in self._requests.glob("*.json") if is_id(path.stem)}


def _json_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: dict[str, Any], name: str) -> str | None:
    figure = value.get(name)
    return clean_line(figure) if isinstance(figure, str) else None


def _moment(value: dict[str, Any], name: str) -> str | None:
    """Return a time as it is written; None where that is none."""
    from bridge.system.clock import parse_rfc3339

    text = _text(value, name)
    try:
        parse_rfc3339(text or "")
    except ValueError:
        return None
    return text


def _metric(claims: object) -> str | None:
    """Return the primary claim as a number with its unit."""
    for claim in claims if isinstance(claims, list) else ():
        value = claim.get("value") if isinstance(claim, dict) and claim.get("role") == "primary" else None
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
            unit = _text(claim, "unit") or ""
            from bridge.launches.figures import UNITLESS, digits_of, shown

            number = shown(float(value), unit or UNITLESS, digits=digits_of(claim.get("detail")))
            return f"{number.value}{number.unit.strip() if unit in _CLOSE else number.unit}".strip()
    return None


def holds_result(path: Path) -> bool:
    """Return whether a path may be that of a result: a folder, or a packed file."""
    return path.is_dir() or is_packed(path)


def read_tree(folder: Path) -> Tree:
    """Return the result tree of a folder or of a packed file.

    In a folder symbolic links are refused, and what the Finder leaves in it is passed over.

    Raises:
        IntegrityError: a link, a pipe, too many files, too many bytes, a damaged file, or nothing that holds a tree.
    """
    if is_packed(folder):
        return read_packed(folder)
    if not folder.is_dir():
        expected = f"expected a result: a folder, or NAME{SUFFIX}"
        raise IntegrityError(f"{folder} is no folder; {expected}", remedy="kakeya-mac fetch ID")
    files: dict[str, bytes] = {}
    total = 0
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise IntegrityError(f"{path} is a symbolic link; a result tree holds regular files only")
        if path.is_dir() or path.name == _FINDERS:
            continue
        if not path.is_file():
            raise IntegrityError(f"{path} is a pipe or a device; a result tree holds regular files only")
        total += path.stat().st_size
        if len(files) >= RESULT_MAX_FILES or total > RESULT_MAX_BYTES:
            raise IntegrityError(f"{folder}: more than {RESULT_MAX_FILES} files or {RESULT_MAX_BYTES} bytes")
        files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return Tree(files)


def id_in(path: Path) -> str | None:
    """Return the id that a result in a folder or a packed file says of itself, None when it is no result."""
    try:
        packed = is_packed(path)
        manifest = read_packed(path).files["manifest.json"] if packed else (path / "manifest.json").read_bytes()
        run_id = strictjson.decode(manifest, max_bytes=RESULT_MAX_BYTES)["id"]
    except (OSError, ValueError, KeyError, TypeError, IntegrityError):
        return None
    return run_id if isinstance(run_id, str) and is_id(run_id) else None
