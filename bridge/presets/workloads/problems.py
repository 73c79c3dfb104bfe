"""Say everything that is wrong with a workload folder, each in one line with file, line and remedy.

Runs nothing of the folder.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pydantic

from bridge.diagnostics import Check
from bridge.errors import UsageError, meant
from bridge.limits import REPORTS_MAX_COUNT
from bridge.presets.installed import registry
from bridge.presets.parameters import FloatParameter, IntParameter
from bridge.presets.workloads import digests
from bridge.presets.workloads.file import MetricTable, Numeric, PresetTable, WorkloadFile
from bridge.presets.workloads.file_text import Mistake, line_of, parsed
from bridge.presets.workloads.folder import (
    FILE,
    PLACEHOLDERS,
    SCHEMA,
    SEED_WORD,
    commands_in,
    interpreter_of,
    read_folder,
    runner_of,
)
from bridge.presets.workloads.servers import server_problems
from bridge.records.workload import REPORT_FILE

INTERVAL_LEAST: Final = 6
FOLDER_MAX_BYTES: Final = 1 << 30
_CREDENTIALS: Final = frozenset({"id_rsa", "id_ed25519", "id_ecdsa", "credentials", "secrets.toml", "token"})
_POINTER: Final = re.compile(r"(/([^~/]|~0|~1)*)+")
_FOLDERS: Final = frozenset({"HOME", "PWD", "TMPDIR"})  # of each run its own
_SEED: Final = b"KAKEYA_SEED"


class WorkloadError(UsageError):
    """A workload folder cannot be offered; the message names its first problem."""


def problems(folder: Path, interpreter: str, others: Iterable[str] = ()) -> Iterator[Check]:
    """Yield what is wrong with a workload folder, nothing when it can be offered.

    Args:
        folder: absolute.
        interpreter: runs its scripts where the file names no program for that.
        others: names of presets that other workloads of this host offer.
    """
    checks = list(_folder_problems(folder))
    yield from checks
    if any(check.level == "fail" for check in checks):
        return
    text = (folder / FILE).read_text("utf-8-sig", "replace")
    file, failed = parsed(text)
    yield from (Check(f"{FILE}:{line_of(text, where)}", "fail", problem, remedy) for where, problem, remedy in failed)
    if file is None:
        return
    every = [*_meaning(folder, file, others), *_programs(folder, file, interpreter)]
    yield from (Check(f"{FILE}:{line_of(text, where)}", "fail", problem, remedy) for where, problem, remedy in every)
    schema = list(_schema_problems(folder, file))
    yield from schema
    yield from (check for check in _warnings(folder, file, text))
    if not every and not schema:
        yield from _whole(folder, interpreter, text)


def _folder_problems(folder: Path) -> Iterator[Check]:
    if not folder.is_dir():
        yield Check("folder", "fail", f"{folder} is no folder", "kakeya-runner workload new NAME")
        return
    if not (folder / FILE).is_file():
        yield Check("folder", "fail", f"{folder} has no {FILE}", f"kakeya-runner workload new {folder.name or 'NAME'}")
        return
    if folder in {Path.home(), Path("/")} or Path.home().is_relative_to(folder):
        yield Check("folder", "fail", f"{folder} holds your home: a run would see all of it", "use a folder of its own")
        return
    if mark := PLACEHOLDERS.search(str(folder)):
        problem = f"{folder} has {mark[0]} in its path, which in a command stands for a parameter"
        yield Check("folder", "fail", problem, f"move it to a place without {mark[0]}")
        return
    yield from _rights(folder)
    total = 0
    environments = {config.parent for config in folder.glob("*/pyvenv.cfg")}
    for top, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(top, name) not in environments and name != "__pycache__"]
        for name in (*folders, *(name for name in names if not digests.is_by_tools(name))):
            path = Path(top, name)
            yield from _entry(folder, path)
            total += path.lstat().st_size
    if total > FOLDER_MAX_BYTES:
        problem = f"{total / 1e9:.1f} GB, at most {FOLDER_MAX_BYTES / 1e9:.1f} GB are digested before each run"
        yield Check("folder", "fail", problem, "move data out and pin it: [inputs] NAME = { path = ..., sha256 = ... }")


def _entry(folder: Path, path: Path) -> Iterator[Check]:
    """Yield what is wrong with one file or folder below it."""
    name = str(path.relative_to(folder))
    if path.is_symlink():
        to = path.resolve()
        if not path.exists() or not to.is_relative_to(folder):
            yield Check(name, "fail", f"a link to {to}, outside of the folder", "copy the file, or pin it as an input")
            return
    if path.name.startswith(".") and path.name not in {".gitignore", ".git"}:
        problem = "a hidden file: every run sees the folder, and its digest depends on it"
        yield Check(name, "fail", problem, f"move {path.name} out of the folder")
    elif path.name in _CREDENTIALS:
        yield Check(name, "fail", "the name of a credential: every run sees the folder", "move it out of the folder")
    yield from _rights(path, name)


def _rights(path: Path, name: str = "folder") -> Iterator[Check]:
    """Yield who else may change a file, and whether the user of runs cannot read it."""
    facts = path.stat()
    mode = stat.S_IMODE(facts.st_mode)
    if facts.st_uid not in {os.geteuid(), 0}:
        yield Check(
            name,
            "fail",
            f"belongs to uid {facts.st_uid}, the runner is uid {os.geteuid()}",
            f"chown {os.geteuid()} {shlex.quote(str(path))}",
        )
    if mode & 0o022:
        problem = f"others may change it: mode {mode:04o}, expected {'0755' if path.is_dir() else '0644'}"
        yield Check(name, "fail", problem, f"chmod go-w {shlex.quote(str(path))}")
    bits = 0o005 if path.is_dir() else 0o004
    if os.geteuid() == 0 and mode & bits != bits:
        problem = f"runs of a root runner are another user, who cannot read it: mode {mode:04o}"
        yield Check(name, "fail", problem, f"chmod o+{'rx' if path.is_dir() else 'r'} {shlex.quote(str(path))}")


def _meaning(folder: Path, file: WorkloadFile, others: Iterable[str]) -> Iterator[Mistake]:
    """Yield what has the right shape and does not fit together."""
    if file.name != folder.name:
        yield ("name",), f"name is {file.name!r}, its folder {folder.name!r}", f'write name = "{folder.name}"'
    taken = {*registry(), *others}
    for name, preset in file.presets.items():
        where = ("presets", name)
        if name in taken:
            yield where, f"preset {name!r} is there already on this host", "give it another name"
        unknown = sorted(set(preset.metrics) - set(file.metrics))
        if unknown:
            problem = f"presets.{name}.metrics names {unknown[0]!r}, which is not declared"
            yield (*where, "metrics"), problem, f"add [metrics.{unknown[0]}], or take it out"
            continue
        metrics = [file.metrics[key] for key in (preset.metrics or tuple(file.metrics))]
        if (
            file.servers is None
            and preset.argv is None
            and (not metrics or any(metric.ratio is None for metric in metrics))
        ):
            yield where, f"presets.{name} has no argv: nothing would run", 'add argv = ["..."]'
        yield from _read_or_reported(name, preset, metrics, file)
    if REPORT_FILE in file.outputs.keep:
        problem = f"outputs.keep names {REPORT_FILE}, which is the report itself"
        yield ("outputs", "keep"), problem, "let the program give the file another name"
    for name in file.environment.variables:
        if name.startswith(("KAKEYA_", "PYTHON")) or name in _FOLDERS:
            yield ("environment", "variables", name), f"the runner sets {name}", "use another name"
    for name, metric in file.metrics.items():
        yield from _metric(name, metric, standard=not (folder / SCHEMA).exists())
    yield from _recompute(file)


def _read_or_reported(
    name: str, preset: PresetTable, metrics: list[MetricTable], file: WorkloadFile
) -> Iterator[Mistake]:
    """Yield what is wrong with a program that is to be read, and to report itself."""
    ways = {metric.number is not None for metric in metrics if metric.ratio is None}
    if len(ways) > 1:
        problem = (
            f"presets.{name} has metrics with number, which is read off the program, and with pointer, which it reports"
        )
        yield ("presets", name), problem, "write number for all of them, or pointer for all of them"
    elif SEED_WORD in (preset.argv or ()) and "seed" not in preset.params and not file.is_read(preset):
        problem = f"presets.{name} hands out {SEED_WORD}, and its program reports by itself"
        yield (
            ("presets", name, "argv"),
            problem,
            'read os.environ["KAKEYA_SEED"] there, or write number in place of pointer',
        )


def _recompute(file: WorkloadFile) -> Iterator[Mistake]:
    if file.recompute is not None and not file.outputs.keep and not file.inputs:
        problem = (
            "there is nothing to compute it from: the command sees kept files, inputs and the seed, never a report"
        )
        yield ("recompute",), problem, 'add [outputs] keep = ["weights.json"], or pin an input'
    for name, way in () if file.recompute is None else file.recompute.confirms.items():
        where = ("recompute", "confirms")
        if name not in file.metrics:
            yield where, f"recompute confirms {name!r}, which is no metric", meant(name, file.metrics)
        elif way != "exact" and not isinstance(way, Numeric):
            yield where, f"{name} is confirmed {way!r}, which is for tokens", 'use "exact" or { numeric = 0.01 }'


def _metric(name: str, metric: MetricTable, *, standard: bool) -> Iterator[Mistake]:
    listed = metric.share or metric.count
    if metric.number is not None and not standard:
        problem = (
            f"metrics.{name}: number is read by the runner's program, which writes the standard report, not {SCHEMA}"
        )
        yield ("metrics", name, "number"), problem, f"delete {SCHEMA}, or write pointer"
    inner = None if metric.number is None else metric.number.pointer
    if inner is not None and _POINTER.fullmatch(inner) is None:
        yield (
            ("metrics", name, "number"),
            f"metrics.{name}: {inner!r} is no JSON pointer",
            'write e.g. "/test/accuracy"',
        )
    pointers = [("pointer", metric.pointer), ("items", None if listed is None else listed.items)]
    for key, pointer in pointers:
        if pointer is not None and _POINTER.fullmatch(pointer) is None:
            problem = f"metrics.{name}: {pointer!r} is no JSON pointer"
            yield ("metrics", name, key), problem, f'write {key} = "/metrics/{name}"'
        elif pointer is not None and standard and not pointer.startswith("/metrics/"):
            problem = f"metrics.{name}: without {SCHEMA} a report holds only what is below /metrics/, not {pointer}"
            yield ("metrics", name, key), problem, f'write "/metrics/{name}", or add {SCHEMA}'


def _programs(folder: Path, file: WorkloadFile, interpreter: str) -> Iterator[Mistake]:
    """Yield programs, environments and inputs that are not there."""
    yield from _environment(folder, file, interpreter)
    yield from () if file.servers is None else server_problems(file.servers, folder)
    for where, argv in commands_in(file):
        word = file.environment.binary or argv[0]
        path = Path(os.path.normpath(folder / word))
        runs = () if file.environment.binary is not None else runner_of(folder, file, interpreter, str(path))
        if word.startswith(("{", "$")):
            yield where, f"the program is {word!r}, which a request would choose", "write the program's name"
        elif not path.is_absolute() or (not Path(word).is_absolute() and not path.is_relative_to(folder)):
            yield where, f"program {word!r} is outside of the folder", "copy it here, or write its absolute path"
        elif not path.is_file():
            near = difflib.get_close_matches(word, [entry.name for entry in folder.iterdir()], n=1)
            yield where, f"program {word!r} is not there", f"did you mean {near[0]}?" if near else f"put it in {folder}"
        elif digests.is_by_tools(path.name):
            problem = f"program {word!r} has a name of what file managers and editors leave: no digest covers it"
            yield where, problem, "give it another name"
        elif not runs and not os.access(path, os.X_OK):
            yield where, f"program {word!r} may not be executed", f"chmod +x {shlex.quote(str(path))}"
        elif runs and not word.endswith(".py") and not os.access(runs[0], os.X_OK):
            problem = f"program {word!r} is a script of {runs[0]}, which is not installed"
            yield where, problem, f"install it, or correct the first line of {word}"
        for token in argv[1:]:
            if re.fullmatch(r"[^{}$]*", token) is None and re.fullmatch(r"\{[a-z0-9][a-z0-9._-]*\}", token) is None:
                problem = f"{token!r} mixes text and a placeholder"
                yield where, problem, 'write two words: "--lr", "{lr}"'
    yield from _inputs(folder, file)


def _inputs(folder: Path, file: WorkloadFile) -> Iterator[Mistake]:
    """Yield inputs that are not there, or not the pinned ones."""
    for name, pinned in file.inputs.items():
        path = folder / pinned.path
        if not path.is_file():
            yield ("inputs", name), f"input {pinned.path!r} is not there", "put it there, or correct path"
        elif (got := digests.file_digest(path)) != pinned.sha256:
            yield ("inputs", name), f"input {pinned.path!r} has digest {got[:12]}…, not the pinned one", f"pin {got}"


def _environment(folder: Path, file: WorkloadFile, interpreter: str) -> Iterator[Mistake]:
    on = file.environment
    runs = interpreter_of(folder, file, interpreter)
    key = next((key for key in ("venv", "interpreter") if getattr(on, key) is not None), "")
    if not Path(runs).is_absolute():
        yield (
            ("environment", key),
            f"interpreter {runs!r} is no absolute path",
            f"write what `command -v {runs}` prints",
        )
    elif not os.access(runs, os.X_OK) or not Path(runs).is_file():
        yield ("environment", key), f"{runs} cannot be run", "name a Python that is installed, or make the venv"
    elif _is_script(Path(runs)):
        problem = f"interpreter {runs} is a script that starts another one"
        yield ("environment", key), problem, f"write what `{runs} -c 'import sys; print(sys.executable)'` prints"
    if on.binary is not None and not (folder / on.binary).is_file():
        yield ("environment", "binary"), f"program {on.binary!r} is not there", f"build it in {folder}"


def _is_script(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"#!"


def _schema_problems(folder: Path, file: WorkloadFile) -> Iterator[Check]:
    """Yield what is wrong with the JSON Schema of the reports."""
    path = folder / SCHEMA
    if not path.exists():
        return
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        value = json.loads(path.read_bytes())
        Draft202012Validator.check_schema(value)
    except json.JSONDecodeError as error:
        yield Check(f"{SCHEMA}:{error.lineno}", "fail", f"not JSON: {error.msg}", "fix that line")
        return
    except (ValueError, RecursionError) as error:
        yield Check(SCHEMA, "fail", f"not JSON: {str(error)[:120]}", "write it with a JSON library")
        return
    except SchemaError as error:
        at = "/".join(map(str, error.absolute_path))
        yield Check(SCHEMA, "fail", f"no JSON Schema 2020-12: {error.message[:160]} (at /{at})", "correct that keyword")
        return
    if not isinstance(value, dict):
        yield Check(SCHEMA, "fail", "a schema of anything: expected an object", 'begin with {"type": "object"}')
        return
    if "$ref" in json.dumps(value) and re.search(r'"\$ref": "(?!#)', json.dumps(value)):
        yield Check(SCHEMA, "fail", "it refers to another document, which nobody would fetch", "copy it into $defs")
        return
    for name, metric in file.metrics.items():
        listed = metric.share or metric.count
        pointer = metric.pointer or (None if listed is None else listed.items)
        if pointer is not None and (why := _unreachable(value, pointer)) is not None:
            yield Check(SCHEMA, "fail", f"metrics.{name} stands at {pointer}: {why}", "make pointer and schema agree")


def _unreachable(schema: Mapping[str, Any], pointer: str) -> str | None:
    """Return why no report of this schema has anything there, None when one may."""
    at: Any = schema
    for part in pointer.split("/")[1:]:
        inner = at.get("properties", {}) if isinstance(at, Mapping) else {}
        if part in inner:
            at = inner[part]
        elif isinstance(at, Mapping) and at.get("additionalProperties") is False:
            return f"the schema allows no {part!r} there"
        else:
            return None
    return None


def _warnings(folder: Path, file: WorkloadFile, text: str) -> Iterator[Check]:
    """Yield what can be run, and whose number will not be quotable; equal repeats stop it."""
    several = [name for name, metric in file.metrics.items() if metric.aggregate in {"median", "mean"}
               and metric.times("claim") > 1]  # fmt: skip
    given = any(SEED_WORD in (preset.argv or ()) for preset in file.presets.values())
    seeded = given or any(_SEED in path.read_bytes() for path in _programs_in(folder, file))
    if several and not seeded:
        problem = f"metrics.{several[0]} is repeated, and no program of it reads KAKEYA_SEED: all repeats are equal"
        remedy = 'seed with os.environ["KAKEYA_SEED"], or hand it over: "--seed", "{seed}"; or write repeats = 1'
        yield Check(f"{FILE}:{line_of(text, ('metrics', several[0]))}", "fail", problem, remedy)
    for name, metric in file.metrics.items():
        if metric.aggregate in {"median", "mean"} and metric.times("claim") < INTERVAL_LEAST:
            problem = (
                f"metrics.{name}: {metric.times('claim')} repeats have no 95 % interval, {INTERVAL_LEAST} have one"
            )
            equal = "" if seeded else '; first hand over "{seed}" in argv: without it all repeats are equal'
            remedy = f"repeats = {INTERVAL_LEAST}{equal}"
            yield Check(f"{FILE}:{line_of(text, ('metrics', name))}", "warn", problem, remedy)
    yield from _refused_values(file, text)
    yield from _more_files_than_taken(file, text)


def _refused_values(file: WorkloadFile, text: str) -> Iterator[Check]:
    """Yield parameters whose range has negative numbers, none of which a request could name."""
    for name, preset in file.presets.items():
        for key, parameter in preset.params.items():
            if isinstance(parameter, IntParameter | FloatParameter) and parameter.min < 0 and not parameter.allow_dash:
                where = ("presets", name, "params", key)
                problem = f"{'.'.join(where)}: min is {parameter.min}, and a value that begins with - is refused"
                remedy = "write allow_dash = true if the program takes one, or min = 0"
                yield Check(f"{FILE}:{line_of(text, where)}", "warn", problem, remedy)


def _more_files_than_taken(file: WorkloadFile, text: str) -> Iterator[Check]:
    """Yield presets whose repeats may leave so many files that the run is rejected."""
    for name, preset in file.presets.items():
        metrics = [file.metrics[key] for key in preset.metrics or tuple(file.metrics) if key in file.metrics]
        times = [metric.times(profile) for metric in metrics if metric.ratio is None for profile in preset.profiles]
        repeats, declared = max(times, default=1), len(file.outputs.keep)
        if preset.argv is not None and repeats * (1 + declared) > REPORTS_MAX_COUNT:
            problem = f"presets.{name}: {repeats} repeats may leave {repeats * (1 + declared)} files, reports included"
            remedy = f"keep at most {REPORTS_MAX_COUNT // repeats - 1} files, e.g. one archive of them"
            where = f"{FILE}:{line_of(text, ('outputs', 'keep'))}"
            yield Check(where, "warn", f"{problem}; of more than {REPORTS_MAX_COUNT} a run is rejected", remedy)


def _programs_in(folder: Path, file: WorkloadFile) -> Iterator[Path]:
    """Yield the files of a folder, and the programs that it names by absolute paths."""
    yield from (path for path in digests.files_of(folder) if path.name != FILE)
    named = (Path(argv[0]) for _, argv in commands_in(file) if file.environment.binary is None)
    yield from (path for path in named if path.is_absolute() and path.is_file() and os.access(path, os.R_OK))


def _whole(folder: Path, interpreter: str, text: str) -> Iterator[Check]:
    """Build everything, and yield what only then shows."""
    try:
        read_folder(folder, interpreter)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        problem = str(first["msg"]).removeprefix("Value error, ")
        yield Check(
            f"{FILE}:{line_of(text, ('presets',))}", "fail", problem, "make argv and params name the same parameters"
        )
    except (OSError, ValueError) as error:
        yield Check("folder", "fail", str(error)[:200], "correct it")
