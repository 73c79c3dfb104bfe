"""Run a program as it is, read its numbers out of what it prints and writes, and write the report that the gate reads.

Standard library only, and nothing of this package: it runs in the sandbox beside the program. argv: ``--@of FOLDER
PRESET --@run PROGRAM ...``; which numbers stand where is in FOLDER's workload.toml, whose digest every run has. The
word ``KAKEYA_SEED`` of the program's command line is replaced by the seed of the repeat.
"""

from __future__ import annotations

import contextlib
import csv
import filecmp
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OF = "--@of"
RUN = "--@run"
SEED = "KAKEYA_SEED"
LEAVE = "KAKEYA_LEAVE_WORK"  # set by who looks at what the program wrote
FILE_MAX_BYTES = 16 << 20  # of a file that is kept, or that a number is read from
COPIED_MAX_BYTES = 64 << 20  # of a file that the program reads; a larger one is a link
OUTPUT_MAX_BYTES = 8 << 20  # of stdout that numbers are looked for in: the last ones
_FAILED = 1
_HELD_S = 2.0  # after a program's end; then its log says what is waited for
_LEFT_OUT = ("__pycache__", "workload.toml")
_BY_TOOLS = re.compile(r"Thumbs\.db|desktop\.ini|#.*#")  # beside the hidden ones: files that no digest has
_BROUGHT = "brought"  # made beside the folder once all files are in it
_TICK_S = 0.02  # file systems stamp by the ticks of a clock
_MISSING = object()


class NumberError(Exception):
    """A declared number is not where it is declared; the message says what is there."""


def main(words: list[str]) -> int:
    """Run the program once; end as it does, with the code that shells have for a signal; in 1 where a number lacks."""
    of, run = words.index(OF), words.index(RUN)
    folder, preset = Path(words[of + 1]), words[of + 2]
    file = tomllib.loads((folder / "workload.toml").read_text("utf-8-sig"))
    top = Path(tempfile.mkdtemp(prefix="as-it-is-", dir=os.environ["TMPDIR"]))
    work = top / "work"
    bring_files(folder, work)
    (top / _BROUGHT).write_bytes(b"")
    time.sleep(_TICK_S)
    argv = [os.environ.get(SEED, word) if word == SEED else word for word in words[run + 1 :]]
    code, printed = run_program(argv, work)
    if code > 0:
        return code  # what it said itself says why
    if code < 0:
        sys.stderr.write(f"error: signal {-code} ended it: {signal.strsignal(-code)}\n")
        return 128 - code
    wrote = dict(written(work, folder))
    report, wrong = read_numbers(file, preset, printed, wrote)
    out = Path(os.environ["KAKEYA_OUT"])
    for line in keep_files(wrote, out, file.get("outputs", {}).get("keep", [])):
        sys.stderr.write(f"{line}\n")
    for line in wrong:
        sys.stderr.write(f"error: {line}\n")
    if LEAVE not in os.environ:
        shutil.rmtree(top, ignore_errors=True)  # a later repeat would have less room
    if wrong:
        return _FAILED
    Path(os.environ["KAKEYA_REPORT"]).write_text(json.dumps({"metrics": report}), "utf-8")
    return 0


def bring_files(folder: Path, work: Path) -> None:
    """Make a folder to work in that has every file of the workload, a copy of it: some programs pass over links."""
    work.mkdir()
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("."):
            continue
        if _BY_TOOLS.fullmatch(path.name) and not path.is_dir():
            continue
        if path.is_dir() and not (path / "pyvenv.cfg").exists():
            bring_files(path, work / path.name)
        elif path.is_file() and path.stat().st_size <= COPIED_MAX_BYTES:
            _copy(path, work / path.name)
        else:
            (work / path.name).symlink_to(path)


def _copy(path: Path, copy: Path) -> None:
    """Copy a file with the mode that it is made with: a sandbox without namespaces lets nobody change mode or times."""
    descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, path.stat().st_mode & 0o777 | 0o200)
    with path.open("rb") as source, os.fdopen(descriptor, "wb") as target:
        shutil.copyfileobj(source, target)


def written(work: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and place of each file that the program wrote, though it be the same again; no link is one."""
    brought = work.parent / _BROUGHT
    since_ns = brought.stat().st_mtime_ns if brought.exists() else math.inf
    for path in sorted(work.rglob("*")):
        name = path.relative_to(work)
        if path.is_file() and not path.is_symlink() and not _is_as_brought(path, folder / name, since_ns):
            yield str(name), path


def _is_as_brought(path: Path, brought: Path, since_ns: float) -> bool:
    return path.stat().st_mtime_ns <= since_ns and brought.is_file() and filecmp.cmp(path, brought, shallow=False)


def run_program(argv: list[str], work: Path) -> tuple[int, bytes]:
    """Run a program in a folder, its output shown as it comes; return its exit code and the end of its stdout."""
    environment = {name: value for name, value in os.environ.items() if name != "KAKEYA_REPORT"}
    environment |= {"PWD": str(work), "PYTHONUNBUFFERED": "1", "MPLBACKEND": "Agg"}
    try:
        # A shell's word for a program is looked for where shells look.
        program = subprocess.Popen(argv, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except OSError as error:
        sys.stderr.write(f"error: {argv[0]}: {error.strerror}\n")
        return 127, b""
    printed = bytearray()
    reading = threading.Thread(target=_pass_on, args=(program.stdout, printed))
    reading.start()
    code = program.wait()
    reading.join(_HELD_S)
    if reading.is_alive():
        sys.stderr.write("the program ended; what it started still has its output, and is waited for\n")
        sys.stderr.flush()
        reading.join()
    return code, bytes(printed)


def _pass_on(stream: io.BufferedReader, printed: bytearray) -> None:
    """Show what comes, and keep the end of it."""
    while block := stream.read1(1 << 16):
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        printed += block
        del printed[: max(0, len(printed) - OUTPUT_MAX_BYTES)]


def read_numbers(
    file: dict[str, Any], preset: str, printed: bytes, wrote: dict[str, Path]
) -> tuple[dict[str, float], list[str]]:
    """Return the numbers of a preset by name, and a line for each that is not there."""
    names = file["presets"][preset].get("metrics") or list(file.get("metrics", {}))
    numbers: dict[str, float] = {}
    wrong: list[str] = []
    for name in names:
        source = file["metrics"][name].get("number")
        if source is None:
            continue
        try:
            numbers[name] = read_number(source, printed, wrote)
        except NumberError as error:
            wrong.append(f"{name}: {error}")
    return numbers, wrong


def read_number(source: dict[str, Any], printed: bytes, wrote: dict[str, Path]) -> float:
    """Return one number.

    Args:
        source: where it stands: ``stdout`` (a pattern), or ``file`` with ``pattern``, ``pointer`` or ``column``.
        printed: the program's stdout.
        wrote: the files that it wrote, by name.

    Raises:
        NumberError: it is not there, or more than one is.
    """
    place = source.get("file", "stdout")
    text = (printed if "file" not in source else _file(wrote, place)).decode("utf-8-sig", "replace")
    if "pointer" in source:
        return _number(_at_pointer(text, source["pointer"], place), f"{source['pointer']} of {place}")
    if "column" in source:
        return _number(
            _in_column(text, source["column"], source.get("row", "last"), place), f"{source['column']!r} of {place}"
        )
    return _by_pattern(text, source.get("pattern") or source["stdout"], place)


def _file(wrote: dict[str, Path], name: str) -> bytes:
    path = wrote.get(name)
    if path is None:
        raise NumberError(f"the program wrote no {name}; it wrote {', '.join(list(wrote)[:8]) or 'no file'}")
    if path.stat().st_size > FILE_MAX_BYTES:
        raise NumberError(f"{name} has {path.stat().st_size} bytes, at most {FILE_MAX_BYTES} are read")
    return path.read_bytes()


def as_lines(text: str) -> str:
    """Return a text whose lines end in one way: a progress bar writes its states over one another, a line each."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _by_pattern(text: str, pattern: str, place: str) -> float:
    text = as_lines(text)
    matches = list(re.finditer(pattern, text, re.MULTILINE))
    if len(matches) != 1:
        lines = len(text.splitlines())
        where = "nothing" if not matches else f"{len(matches)} places ({', '.join(m[0][:40] for m in matches[:3])})"
        unread = "; stderr is not read" if place == "stdout" and not matches else ""
        write = f"write one that matches exactly one{unread}"
        raise NumberError(f"pattern {pattern!r} matches {where} in {lines} lines of {place}; {write}")
    return _number(matches[0][1], f"pattern {pattern!r} in {place}")


def _at_pointer(text: str, pointer: str, place: str) -> object:
    try:
        at = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NumberError(f"{place} is no JSON: {str(error)[:200]}") from error
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        inner: object = _MISSING
        if isinstance(at, dict):
            inner = at.get(name, _MISSING)
        elif isinstance(at, list) and name.isdecimal() and int(name) < len(at):
            inner = at[int(name)]
        if inner is _MISSING:
            keys = ", ".join(map(str, list(at)[:8])) if isinstance(at, dict) else f"a {type(at).__name__}"
            raise NumberError(f"nothing is at {pointer} of {place}; where {name!r} is looked for there is {keys}")
        at = inner
    return at


def rows_of(text: str) -> list[dict[str | Any, str | Any]]:
    """Return the rows of a table by column; what separates them is the one of comma, semicolon and tab in line 1."""
    csv.field_size_limit(FILE_MAX_BYTES)  # a cell may hold all that a model wrote
    first = text.splitlines()[0] if text.strip() else ""
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count)))


def _in_column(text: str, column: str, row: str, place: str) -> object:
    rows = rows_of(text)
    names = [name.strip() for name in (rows[0] if rows else {}) if name]
    if not rows or column not in names:
        raise NumberError(f"{place} has no column {column!r} with a row; it has {', '.join(names[:12]) or 'no rows'}")
    values = {(name or "").strip(): value for name, value in rows[0 if row == "first" else -1].items()}
    return values[column]


def _number(value: object, where: str) -> float:
    """Return a value as a number.

    Raises:
        NumberError: it is none, or not finite.
    """
    number = None
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    if number is None:
        raise NumberError(f"{json.dumps(value, default=str)[:60]} at {where} is no number")
    if not math.isfinite(number):
        raise NumberError(f"{number} at {where} is not finite")
    return number


def keep_files(wrote: dict[str, Path], out: Path, names: list[str]) -> list[str]:
    """Put the declared files where the runner takes them; return a line for each that stays behind."""
    left: list[str] = []
    for name in names:
        path = wrote.get(name)
        if path is None:
            if not (out / name).is_file():  # the program may know KAKEYA_OUT by itself
                left.append(f"{name}: the program did not write it, so it is not kept")
        elif path.stat().st_size > FILE_MAX_BYTES:
            left.append(f"{name}: {path.stat().st_size} bytes, at most {FILE_MAX_BYTES} are kept; make it smaller")
        else:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out / name)
    return left


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
