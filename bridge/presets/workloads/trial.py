"""Run a workload's program once on its owner's own account, and look at what it prints and writes.

Without a sandbox: it is the owner's program, started by the owner.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bridge.diagnostics import Check
from bridge.errors import ParameterError
from bridge.presets.model import PARAMETER_TOKEN, Preset
from bridge.presets.parameters import bind, render
from bridge.presets.workloads.file_text import line_of, parsed
from bridge.presets.workloads.folder import FILE
from bridge.presets.workloads.reading_program import LEAVE, OF, as_lines, rows_of, written
from bridge.records.workload import REPORT_FILE
from bridge.system.process import run

TRIAL_SEED: Final = "1"
PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_LABELLED: Final = re.compile(
    r"^(?P<before>[^\S\n]*(?P<label>(?![A-Za-z][^\S\n]+[-+.\d])[A-Za-z][\w /().%-]{0,40}?)[^\S\n]*[:=]?[^\S\n]+"
    r"|[^\S\n]*(?P<word>[A-Za-z]\w*)=)(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])",
    re.MULTILINE,
)
_WITHIN: Final = re.compile(r"[(,;\t] ?(?P<label>[A-Za-z]\w{1,30})[:=] ?(?P<number>[-+]?\d+(?:\.\d+)?)(?![\w.])")
_COUNTED: Final = re.compile(r"(?:^|[^\w.:,-])(?P<number>\d+(?:\.\d+)?) (?P<label>[a-z]{3,20})\b")
_NUMBER: Final = r"([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)"
_POINTERS_MOST: Final = 12
_READ_MAX_BYTES: Final = 1 << 20
_NOT_ITS_OWN: Final = (".", "__pycache__", "as-it-is-")
_BUILT: Final = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"!<arch>\n")  # programs, libraries, objects
_TABLES: Final = (".csv", ".tsv")


@dataclass(frozen=True)
class Candidate:
    """A number that a program left somewhere.

    Attributes:
        name: of the metric that it could be.
        source: where it stands, as workload.toml writes it.
        value: what it was this time.
    """

    name: str
    source: dict[str, str]
    value: float


@dataclass(frozen=True)
class Trial:
    """What a program did.

    Attributes:
        exit_code: -n where signal n ended it.
        over: whether it still ran when its time was over.
        last_line: of what it said, None where it said nothing.
        reported: whether it wrote the report that KAKEYA_REPORT names.
        files: what it wrote, from the folder that it ran in or from KAKEYA_OUT.
        numbers: those of a standard report, by name.
        beside: what it left in KAKEYA_OUT beside its report.
    """

    exit_code: int
    over: bool
    last_line: str | None
    reported: bool
    files: tuple[str, ...]
    candidates: tuple[Candidate, ...] = field(default=())
    numbers: dict[str, float] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """Its last line, or that there is none."""
        return self.last_line or "it said nothing"


class NotTriedError(Exception):
    """A preset cannot be run without more; the message says why."""


def try_preset(preset: Preset, interpreter: str, timeout_s: float) -> Trial:
    """Run the first command of a preset with its defaults, in a folder that is thrown away.

    Args:
        preset: of a workload.
        interpreter: the host's own Python.
        timeout_s: after which the program is ended.

    Raises:
        NotTriedError: it times two programs, or a parameter has no default.
    """
    command = next((command for command in preset.commands if command.launches is None), None)
    if command is None:
        raise NotTriedError("it is timed by turns, which a run does")
    try:
        params = bind(preset.params, {})
    except ParameterError as error:
        raise NotTriedError(error.message) from error
    with tempfile.TemporaryDirectory(prefix="kakeya-try-", ignore_cleanup_errors=True) as top:
        argv: list[str] = []
        for token in command.argv:
            parameter = PARAMETER_TOKEN.fullmatch(token)
            if parameter is not None:
                argv += render(parameter[1], preset.params[parameter[1]], params[parameter[1]])
            else:
                argv.append(interpreter if token == "${interpreter}" else token)  # noqa: S105
        return _run(argv, Path(top), timeout_s, preset.environment)


def unlike_declared(trial: Trial, folder: Path) -> Iterator[Check]:
    """Yield what would reject a run, numbers out of bounds and undeclared files, and declared files that are absent."""
    text = (folder / FILE).read_text("utf-8-sig")
    file, _ = parsed(text)
    if file is None or not trial.reported:
        return
    for name, metric in file.metrics.items():
        number = trial.numbers.get(name)
        if number is not None and metric.bounds is not None and not metric.bounds[0] <= number <= metric.bounds[1]:
            where = f"{FILE}:{line_of(text, ('metrics', name, 'bounds'))}"
            problem = f"metrics.{name} is {number:g}, outside of bounds = {list(metric.bounds)}"
            yield Check(where, "fail", f"{problem}: a run would be rejected", "correct the program or the bounds")
    where = f"{FILE}:{line_of(text, ('outputs', 'keep'))}"
    for name in file.outputs.keep:
        if name not in trial.files:
            wrote = ", ".join(trial.files[:8]) or "no file"
            yield Check(where, "warn", f"{name} is to be kept; the program wrote {wrote}", "correct one of the names")
        elif (trial.last_line or "").startswith(f"{name}: "):
            yield Check(where, "warn", f"{trial.last_line}", "let the program write less")
    for name in trial.beside:
        if name not in file.outputs.keep:
            problem = f"{name} is in KAKEYA_OUT and not in [outputs] keep: a run would be rejected"
            yield Check(where, "fail", problem, "add it to keep, or write it to the folder that the program runs in")


def _run(argv: list[str], top: Path, timeout_s: float, variables: dict[str, str]) -> Trial:
    out, work = top / "out", top / "work"
    out.mkdir()
    work.mkdir()
    environment = {
        "PATH": PATH, "LANG": "C.UTF-8", **variables, "HOME": str(top), "TMPDIR": str(work),
        "KAKEYA_OUT": str(out), "KAKEYA_REPORT": str(out / REPORT_FILE), "KAKEYA_SEED": TRIAL_SEED, LEAVE: "1",
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1",
    }  # fmt: skip
    done = run(argv, env=environment, cwd=work, timeout_s=timeout_s)
    lines = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace").split("\n")
    lines = [line for line in lines if line.strip()]
    printed = done.stdout.decode("utf-8-sig", "replace")
    brought = Path(argv[argv.index(OF) + 1]) if OF in argv else None
    files = {name: path for place in work.glob("as-it-is-*/work") if brought for name, path in written(place, brought)}
    files = {name: path for name, path in (*files.items(), *_files([work, out])) if _is_its_own(name, path)}
    return Trial(
        exit_code=done.exit_code,
        over=done.timed_out,
        last_line=lines[-1].strip()[:200] if lines else None,
        reported=(out / REPORT_FILE).is_file(),
        files=tuple(files),
        candidates=tuple(_candidates(printed, files)),
        numbers=_reported(out / REPORT_FILE),
        beside=tuple(name for name, _ in _files([out]) if name != REPORT_FILE and not _is_hidden(name)),
    )


def _reported(path: Path) -> dict[str, float]:
    """Return the numbers of a standard report; none of one of its owner's own form."""
    try:
        numbers = json.loads(path.read_bytes())["metrics"].items()
        return {str(name): float(value) for name, value in numbers if isinstance(value, int | float)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _files(folders: list[Path]) -> Iterator[tuple[str, Path]]:
    """Yield name and place of each file in folders."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield str(path.relative_to(folder)), path


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in Path(name).parts)  # left behind, and in nobody's way


def _is_its_own(name: str, path: Path) -> bool:
    """Whether the program wrote a file itself: neither Kakeya, nor Python's cache, nor a compiler did."""
    ours = Path(name).name == REPORT_FILE or any(part.startswith(_NOT_ITS_OWN) for part in Path(name).parts)
    return not ours and not _is_built(path)


def _is_built(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(8).startswith(_BUILT)


def _candidates(printed: str, files: dict[str, Path]) -> Iterator[Candidate]:
    """Yield the numbers that could be meant: what the program says last of each label, then files."""
    with contextlib.suppress(ValueError):
        for pointer, value in _pointers(json.loads(printed)):
            yield Candidate(_metric(pointer), {"pointer": pointer}, value)
        return
    yield from _labelled(as_lines(printed))
    for name, path in files.items():
        if path.stat().st_size > _READ_MAX_BYTES:
            continue
        with contextlib.suppress(ValueError):
            yield from _in_file(name, path)


def _labelled(printed: str) -> Iterator[Candidate]:
    """Yield the numbers of a text that stand behind a label; of a text that has none, those before one."""
    for match in _WITHIN.finditer(printed):
        pattern = rf"\b{re.escape(match['label'])}[:=] ?{_NUMBER}"
        if len(re.findall(pattern, printed)) == 1:
            yield Candidate(_metric(match["label"]), {"stdout": pattern}, float(match["number"]))
    labels = {(match["label"] or match["word"]): match for match in _LABELLED.finditer(printed)}
    for label, match in labels.items():
        before = re.escape(match["before"].strip()).replace(r"\ ", " ")
        pattern = rf"^\s*{before}\s*{_NUMBER}"
        if len(re.findall(pattern, printed, re.MULTILINE)) > 1:
            pattern += rf"(?![\s\S]*^\s*{before}\s*[-+]?[0-9.])"
        yield Candidate(_metric(label), {"stdout": pattern}, float(match["number"]))
    counted = {} if labels else {match["label"]: match for match in _COUNTED.finditer(printed)}
    for label, match in counted.items():
        if len(re.findall(rf"{_NUMBER} {label}\b", printed)) == 1:
            yield Candidate(_metric(label), {"stdout": rf"{_NUMBER} {label}\b"}, float(match["number"]))


def _in_file(name: str, path: Path) -> Iterator[Candidate]:
    if path.suffix == ".json":
        for pointer, value in _pointers(json.loads(path.read_text("utf-8-sig"))):
            yield Candidate(_metric(pointer), {"file": name, "pointer": pointer}, value)
    elif path.suffix in _TABLES:
        rows = rows_of(path.read_bytes().decode("utf-8-sig"))
        for column, cell in (rows[-1] if rows else {}).items():
            if not (column and column.strip()):  # the index of a data frame, or cells behind the last column
                continue
            with contextlib.suppress(ValueError, TypeError):
                yield Candidate(_metric(column), {"file": name, "column": column.strip()}, float(cell))


def _pointers(value: Any, at: str = "") -> list[tuple[str, float]]:
    """Return pointer and value of the numbers of a JSON text, at most a dozen, none of a list of numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [(at, float(value))] if at else []
    is_series = isinstance(value, list) and any(isinstance(item, int | float) for item in value)
    listed = enumerate(value[:2]) if isinstance(value, list) and not is_series else ()
    items = value.items() if isinstance(value, dict) else listed
    inner = (_pointers(item, f"{at}/{str(key).replace('~', '~0').replace('/', '~1')}") for key, item in items)
    return [pair for pairs in inner for pair in pairs][:_POINTERS_MOST]


def _metric(label: str) -> str:
    """Return the name of a metric for a label or a pointer."""
    is_pointer = label.startswith("/")
    word = label.rpartition("/")[2].replace("~1", "/").replace("~0", "~") if is_pointer else label
    word = re.sub(r"/ ?(?=(?:s|sec|second)\b)", " per ", word.lower())  # tokens/s
    return re.sub(r"[^a-z0-9]+", "_", word).strip("_")[:40] or "number"
