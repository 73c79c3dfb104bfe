"""Read a workload folder: its file, what its programs are made of, and the presets that a host offers of it.

Stops at the first thing that is wrong; `problems` names all of them. Nothing of the folder is run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from bridge import strictjson
from bridge.launches.stopping import MODELS, PROCESS_PAIRS
from bridge.limits import REPORT_MAX_BYTES
from bridge.presets.model import CommandTemplate, Preset, Repeat, SeriesTemplate
from bridge.presets.parameters import CommitParameter
from bridge.presets.workloads import digests, servers
from bridge.presets.workloads.file import MetricTable, Numeric, PresetTable, TwoPrograms, WorkloadFile
from bridge.records.turns import LaunchSeries, StopRule
from bridge.records.workload import ConfirmedMetric, MetricDefinition, ProgramDigest, WorkloadDefinition

FILE: Final = "workload.toml"
SCHEMA: Final = "report.schema.json"
ARMS: Final = ("baseline", "candidate")
AGAINST: Final = "against"
_CALL_CHARS: Final = 60
PLACEHOLDERS: Final = re.compile(r"[{}$]")  # no path of a command holds one: it would stand for a parameter
SEPARATOR: Final = "--@"
BARE: Final = "-S"
OF: Final = f"{SEPARATOR}of"
RUN: Final = f"{SEPARATOR}run"
SEED: Final = "KAKEYA_SEED"
SEED_WORD: Final = "{seed}"
SYSTEM: Final = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/opt/homebrew/bin")
SEARCHED: Final = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"  # where the programs of scripts are looked for
_SHOWN: Final = frozenset({"folder", "timer", "reader", "input"})
SOLO_S: Final = 0.5  # each side of a program that takes turns itself, alone: its processor time is read around it
_FILE_MAX_BYTES: Final = 1 << 20
_PACKAGES: Final = ("lib/python3*/site-packages", "lib/python3/dist-packages", "local/lib/python3*/dist-packages")


@dataclass(frozen=True)
class WorkloadFolder:
    """A folder that can be run.

    Attributes:
        presets: what a host offers of it, by name.
        schema: JSON Schema of its reports; None for the standard report.
    """

    folder: Path
    file: WorkloadFile
    presets: Mapping[str, Preset]
    schema: dict[str, Any] | None
    programs: tuple[ProgramDigest, ...]


def read_folder(folder: Path, interpreter: str) -> WorkloadFolder:
    """Return the workload of a folder.

    Args:
        folder: absolute.
        interpreter: runs its scripts where the file names no program for that.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not what it has to be; pydantic's ValidationError is one too.
    """
    file, schema = read_file(folder / FILE), read_schema(folder)
    programs = tuple(programs_of(folder, file, interpreter))
    digest = _digest(file, schema, programs)
    made = {name: _preset(name, table, folder, file, interpreter, (schema, programs, digest))
            for name, table in file.presets.items()}  # fmt: skip
    return WorkloadFolder(folder, file, MappingProxyType(made), schema, programs)


def read_file(path: Path) -> WorkloadFile:
    """Return what a workload.toml says.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too long, not TOML, or says something else.
    """
    if path.stat().st_size > _FILE_MAX_BYTES:
        raise ValueError(f"{path.name} is longer than {_FILE_MAX_BYTES} bytes")
    return WorkloadFile.model_validate_json(json.dumps(tomllib.loads(path.read_bytes().decode("utf-8-sig"))))


def read_schema(folder: Path) -> dict[str, Any] | None:
    """Return the JSON Schema beside the file, None where there is none.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no strict JSON object.
    """
    path = folder / SCHEMA
    if not path.exists():
        return None
    value = strictjson.decode(path.read_bytes(), max_bytes=REPORT_MAX_BYTES)
    if not isinstance(value, dict):
        raise ValueError(f"{SCHEMA} holds a {type(value).__name__}, expected an object")  # noqa: TRY004
    return value


def program_argv(folder: Path, file: WorkloadFile, interpreter: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command line whose program is absolute: what runs a script, then the script."""
    if file.environment.binary is not None:
        return (_within(folder, file.environment.binary), *argv)
    path = _within(folder, argv[0])
    return (*runner_of(folder, file, interpreter, path), path, *argv[1:])


def runner_of(folder: Path, file: WorkloadFile, interpreter: str, path: str) -> tuple[str, ...]:
    """Return what runs a program of a folder: nothing where it runs by itself.

    A file that ends in ``.py`` is run by the environment's interpreter; where the file names none, by the host's own,
    without the packages that are installed there (``-S``). Any other script is run by what its first line names, and a
    text without such a line by the environment's interpreter.

    Args:
        folder: of the workload.
        file: its workload.toml.
        interpreter: the host's own.
        path: of the program, absolute.
    """
    python = interpreter_of(folder, file, interpreter)
    if path.endswith(".py"):
        return (python, BARE) if _is_bare(file) else (python,)
    if not (Path(path).is_relative_to(folder) and Path(path).is_file()):
        return ()
    words = shebang(Path(path))
    if words and words[0] == "env":
        words = words[1:]
    if words and re.fullmatch(r"python3?(\.\d+)?", words[0]):  # not an absolute one: that is what the file means
        return (python, BARE) if _is_bare(file) else (python, *words[1:])
    if words:
        return (shutil.which(words[0], path=SEARCHED) or words[0], *words[1:])
    if file.environment.interpreter is None or os.access(path, os.X_OK):
        return ()
    with Path(path).open("rb") as stream:
        return () if b"\0" in stream.read(4096) else (python,)


def shebang(path: Path) -> list[str]:
    """Return the words of a script's first line, ``env`` and its options by name alone; none where it is no script."""
    with path.open("rb") as stream:
        first = stream.readline(512)
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        return ["env", *(word for word in words[1:] if word != "-S")]
    return words


def _is_bare(file: WorkloadFile) -> bool:
    on = file.environment
    return on.interpreter is None and on.venv is None and on.binary is None


def interpreter_of(folder: Path, file: WorkloadFile, interpreter: str) -> str:
    """Return the absolute path of the Python that runs the folder's scripts.

    An environment may lie elsewhere, behind a link: a sandbox shows it where it is, and the link leads nowhere there.
    """
    if file.environment.venv is not None:
        return str(Path(_within(folder, file.environment.venv)).resolve() / "bin/python")
    return file.environment.interpreter or interpreter


def commands_in(file: WorkloadFile) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield where each command line of the file stands, and the command line as it is written."""
    for name, preset in file.presets.items():
        if preset.argv is not None:
            yield ("presets", name, "argv"), preset.argv
    for name, metric in file.metrics.items():
        for part in ("baseline", "candidate", "turns"):
            argv = None if metric.ratio is None else getattr(metric.ratio, part)
            if argv is not None:
                yield ("metrics", name, "ratio", part), argv
    if file.recompute is not None:
        yield ("recompute", "argv"), file.recompute.argv


def _own_argv(file: WorkloadFile) -> Iterator[str]:
    """Yield the program of each command line of the file, unless all are arguments of one binary."""
    if file.environment.binary is None:
        yield from (argv[0] for _, argv in commands_in(file))


def programs_of(folder: Path, file: WorkloadFile, interpreter: str) -> Iterator[ProgramDigest]:
    """Yield everything that runs, by digest: the programs' folders first, then what runs them and what they read.

    Raises:
        OSError: a file cannot be read.
        ValueError: a folder holds too many files.
    """
    programs = [program_argv(folder, file, interpreter, argv) for _, argv in commands_in(file)]
    own = [Path(word) for argv in programs for word in argv[:3] if Path(word).is_absolute() and Path(word).is_file()]
    runs = interpreter_of(folder, file, interpreter)
    scripted = {words[0] for name in _own_argv(file)
                if (words := runner_of(folder, file, interpreter, _within(folder, name)))} - {runs}  # fmt: skip
    outside = [path for path in own if str(path) not in {runs, *scripted} and not path.is_relative_to(folder)]
    tools = dict.fromkeys(path for path in outside if str(path.parent) in SYSTEM)
    elsewhere = dict.fromkeys(path.parent for path in outside if path not in tools)
    for place in (*elsewhere, folder):
        yield digests.of_folder("folder", place)
    yield from (digests.of_file("program", path) for path in tools)
    yield from (digests.of_file("interpreter", Path(os.path.realpath(path))) for path in sorted(scripted))
    scripts = any(
        metric.ratio is not None and metric.ratio.commits is not None and metric.ratio.commits[0].endswith(".py")
        for metric in file.metrics.values()
    )
    if scripts or any(argv[0] == runs for argv in programs):
        yield digests.of_file("interpreter", Path(os.path.realpath(runs)))
        if not _is_bare(file):
            yield from (digests.of_path("environment", path) for path in packages_of(runs))
    if file.servers is not None:
        yield from _programs_of_servers(folder, file, interpreter)
    if any(metric.ratio is not None and metric.ratio.turns is None for metric in file.metrics.values()):
        yield digests.of_file("timer", pair_program())
    if any(file.is_read(preset) for preset in file.presets.values()):
        yield digests.of_file("reader", reading_program())
    for pinned in file.inputs.values():
        yield digests.of_file("input", Path(_within(folder, pinned.path)))


def _programs_of_servers(folder: Path, file: WorkloadFile, interpreter: str) -> Iterator[ProgramDigest]:
    """Yield what holds and asks the servers, what they run, and the files of their models."""
    runs = interpreter_of(folder, file, interpreter)
    if file.servers is None:
        return
    yield from (digests.of_file("timer", path) for path in (servers.holder(), servers.asker()))
    lines = [
        servers.server_words(table, folder, _python(folder, file, interpreter)) for table in file.servers.sides.values()
    ]
    programs = dict.fromkeys(Path(words[0]) for words in lines if words)
    yield from (digests.of_file("program", path) for path in programs)
    if any(str(path) == runs for path in programs):
        yield digests.of_file("interpreter", Path(os.path.realpath(runs)))
        if not _is_bare(file):
            yield from (digests.of_path("environment", path) for path in packages_of(runs))
    elsewhere = (path.parent for path in programs if not path.is_relative_to(folder) and str(path) != runs)
    yield from (digests.of_folder("folder", path) for path in dict.fromkeys(elsewhere) if str(path) not in SYSTEM)
    own = () if file.servers.target is None else (file.servers.target,)
    for name in dict.fromkeys((*file.servers.files, *own)):
        yield digests.of_path("input", folder / name)


def _python(folder: Path, file: WorkloadFile, interpreter: str) -> tuple[str, ...]:
    """Return what runs a script, as words."""
    runs = interpreter_of(folder, file, interpreter)
    return (runs, BARE) if _is_bare(file) else (runs,)


def packages_of(interpreter: str) -> list[Path]:
    """Return the folders an interpreter imports installed packages from: a virtual environment's, or its own.

    What is installed editable lies elsewhere, and is named by itself.
    """
    at = Path(interpreter).parent
    home = at.parent if (at.parent / "pyvenv.cfg").is_file() else Path(os.path.realpath(interpreter)).parent.parent
    sites = sorted({path.resolve() for pattern in _PACKAGES for path in home.glob(pattern) if path.is_dir()})
    return [*sites, *sorted({path.resolve() for site in sites for path in digests.editable_in(site)})]


def pair_program() -> Path:
    """Return the program that starts two programs by turns; it needs the standard library only."""
    return Path(str(files("bridge.launches") / "pair_program.py"))


def reading_program() -> Path:
    """Return the program that runs another one as it is and reads its numbers; it needs the standard library only."""
    return Path(str(files("bridge.presets.workloads") / "reading_program.py"))


def _within(folder: Path, path: str) -> str:
    return os.path.normpath(folder / path)


def _digest(file: WorkloadFile, schema: dict[str, Any] | None, programs: tuple[ProgramDigest, ...]) -> str:
    """Return sha256 over what the owner wrote and what runs, wherever on the host that is."""
    made = sorted([program.role, program.sha256] for program in programs)
    return hashlib.sha256(strictjson.encode([file.model_dump(mode="json"), schema, made])).hexdigest()


def _preset(  # noqa: PLR0917 - one caller
    name: str, table: PresetTable, folder: Path, file: WorkloadFile, interpreter: str, made: tuple[Any, ...]
) -> Preset:
    """Return what a host offers under one name.

    Raises:
        ValueError: its parts do not fit together.
    """
    schema, programs, digest = made
    if file.servers is not None:
        return _servers_preset(name, table, folder, file, interpreter, made)
    metrics = {key: file.metrics[key] for key in (table.metrics or tuple(file.metrics))}
    confirms = tuple(_confirmed(metrics, file))
    definition = WorkloadDefinition(
        name=file.name,
        digest=digest,
        program=_label(table, file, metrics),
        metrics=tuple(_metric(key, metric) for key, metric in metrics.items()),
        confirms=confirms,
        report_schema=schema,
        keep=file.outputs.keep,
        programs=programs,
    )
    commands = tuple(_commands(name, folder, file, interpreter, metrics, confirmed=bool(confirms)))
    of_commits = any(metric.ratio is not None and metric.ratio.commits is not None for metric in metrics.values())
    against = {AGAINST: CommitParameter(type="commit", help="what to compare with, e.g. main")} if of_commits else {}
    return Preset(
        schema=1,
        name=name,
        status="ready",
        description=table.description,
        profiles=table.profiles,
        code="request" if of_commits else "host",
        params={**table.params, **against},
        commands=commands,
        limits=table.limits,
        sandbox=table.sandbox,
        environment=file.environment.variables,
        primary_claim=next(iter(metrics), None),
        workload=definition,
        read_only=tuple(dict.fromkeys(program.path for program in programs if program.role in _SHOWN)),
    )


def _servers_preset(  # noqa: PLR0917 - one caller
    name: str, table: PresetTable, folder: Path, file: WorkloadFile, interpreter: str, made: tuple[Any, ...]
) -> Preset:
    """Return what a host offers of its servers under one name."""
    schema, programs, digest = made
    assert file.servers is not None  # noqa: S101 - asked by the caller
    python = _python(folder, file, interpreter)
    called = _calls([side.command or (str(side.endpoint),) for side in file.servers.sides.values()])
    definition = WorkloadDefinition(
        name=file.name,
        digest=digest,
        program=" against ".join(reversed(called)),
        metrics=tuple(servers.servers_metrics(file.servers)),
        report_schema=schema,
        programs=programs,
        servers=servers.servers_definition(file.servers),
    )
    sandbox = (
        table.sandbox
        if not definition.servers or not definition.servers.endpoint
        else table.sandbox.evolve(network="host")
    )
    return Preset(
        schema=1,
        name=name,
        status="ready",
        description=table.description,
        profiles=table.profiles,
        params={servers.STREAMS: servers.streams_parameter(file.servers)},
        commands=(servers.servers_command(file.servers, folder, python),),
        limits=table.limits,
        sandbox=sandbox,
        environment=file.environment.variables,
        primary_claim=definition.metrics[0].name,
        workload=definition,
        read_only=tuple(dict.fromkeys(program.path for program in programs if program.role in _SHOWN)),
    )


def _label(table: PresetTable, file: WorkloadFile, metrics: Mapping[str, MetricTable]) -> str:
    """Return what people call the program of a preset."""
    if table.argv is not None:
        return Path(file.environment.binary or table.argv[0]).name
    pair = next((metric.ratio for metric in metrics.values() if metric.ratio is not None), None)
    if pair is not None and pair.commits is not None:
        return f"{Path(pair.commits[0]).name} of two commits"
    if pair is not None and pair.turns is not None:
        return Path(file.environment.binary or pair.turns[0]).name
    if pair is None or pair.candidate is None or pair.baseline is None:
        return file.name
    return " against ".join(_calls([pair.candidate, pair.baseline]))


def _calls(sides: Sequence[Sequence[str]]) -> list[str]:
    """Return programs as people call them, with what they are called with: one program may be both sides.

    A long one keeps its first words, and those that the other side lacks; where that leaves unlike ones alike, each has
    a digest of its words.
    """
    called = [_call(side, [word for other in sides if other is not side for word in other]) for side in sides]
    if len(set(called)) == len({tuple(side) for side in sides}):
        return called
    marks = [hashlib.sha256(json.dumps(list(side)).encode()).hexdigest()[:6] for side in sides]
    return [f"{call} #{mark}" for call, mark in zip(called, marks, strict=True)]


def _call(side: Sequence[str], others: Sequence[str]) -> str:
    words = (Path(side[0].strip("{}")).name, *side[1:])
    if len(" ".join(words)) <= _CALL_CHARS:
        return " ".join(words)
    most = _CALL_CHARS // 2 if others else _CALL_CHARS
    shown = [words[0]]
    for number, word in enumerate(words[1:], 1):
        if len(" ".join(words[: number + 1])) <= most or (others and word not in others):
            shown.append(word)
        elif shown[-1] != "…":
            shown.append("…")
    return " ".join(shown)[: 2 * _CALL_CHARS].rstrip()


def _metric(name: str, table: MetricTable) -> MetricDefinition:
    listed = table.share or table.count
    units = {"ratio": "ratio", "share": "share", "count": "items"}
    return MetricDefinition(
        name=name,
        aggregate=table.aggregate,
        unit=table.unit or units.get(table.aggregate, "1"),
        better=table.better or ("higher" if table.ratio is not None else None),
        pointer=table.pointer if table.number is None else f"/metrics/{name}",
        bounds=table.bounds,
        items=None if listed is None else listed.items,
        correct=None if listed is None else listed.correct,
        premises=table.premises,
        exact=table.exact,
        digits=table.digits,
    )


def _confirmed(metrics: Mapping[str, MetricTable], file: WorkloadFile) -> Iterator[ConfirmedMetric]:
    for name, way in () if file.recompute is None else file.recompute.confirms.items():
        if name in metrics and isinstance(way, Numeric):
            yield ConfirmedMetric(name=name, way="numeric", tolerance=way.numeric)
        elif name in metrics:
            yield ConfirmedMetric(name=name, way="exact")


def _commands(
    preset: str,
    folder: Path,
    file: WorkloadFile,
    interpreter: str,
    metrics: Mapping[str, MetricTable],
    *,
    confirmed: bool,
) -> Iterator[CommandTemplate]:
    table = file.presets[preset]
    reported = [metric for metric in metrics.values() if metric.ratio is None]
    repeat = Repeat(
        smoke=max((metric.times("smoke") for metric in reported), default=1),
        claim=max((metric.times("claim") for metric in reported), default=1),
    )
    if table.argv is not None:
        argv = program_argv(folder, file, interpreter, table.argv)
        if file.is_read(table):
            words = [SEED if word == SEED_WORD and "seed" not in table.params else word for word in argv]
            argv = ("${interpreter}", "-I", "-S", str(reading_program()), OF, str(folder), preset, RUN, *words)
        yield CommandTemplate(name="repeat", argv=argv, repeat=repeat, seeded=True)
    for name, metric in metrics.items():
        if metric.ratio is not None:
            argv, series = _timed(folder, file, interpreter, metric.ratio)
            yield CommandTemplate(name=name, argv=argv, launches=SeriesTemplate(smoke=series, claim=series))
    if confirmed and file.recompute is not None and table.argv is not None:
        argv = program_argv(folder, file, interpreter, file.recompute.argv)
        yield CommandTemplate(name="recompute", argv=argv, repeat=repeat, seeded=True, confirms=True)


def _timed(
    folder: Path, file: WorkloadFile, interpreter: str, pair: TwoPrograms
) -> tuple[tuple[str, ...], LaunchSeries]:
    """Return the command of a ratio and how it is launched: a pair of processes, or a process that takes turns."""
    if pair.turns is None:
        rule = StopRule(least=PROCESS_PAIRS.least, most=PROCESS_PAIRS.most)
        series = LaunchSeries(arms=ARMS, rule=rule, unit="samples", solo_s=0.0)
        return _pair(folder, file, interpreter, pair), series
    rule = StopRule(least=MODELS.least, most=MODELS.most)
    series = LaunchSeries(arms=ARMS, rule=rule, unit="samples", solo_s=SOLO_S)
    return program_argv(folder, file, interpreter, pair.turns), series


def _pair(folder: Path, file: WorkloadFile, interpreter: str, pair: TwoPrograms) -> tuple[str, ...]:
    """Return the command that starts two programs by turns."""
    argv: list[str] = ["${interpreter}", "-I", "-S", str(pair_program())]
    if pair.commits is not None:
        runs = interpreter_of(folder, file, interpreter)
        argv += [f"{SEPARATOR}commit", f"{{{AGAINST}}}"]
        argv += [] if pair.build is None else [f"{SEPARATOR}build", *pair.build]
        for arm, tree in zip(ARMS, ("base", "head"), strict=True):
            script = (runs, BARE) if pair.commits[0].endswith(".py") and _is_bare(file) else (runs,)
            own = (*script, *pair.commits) if pair.commits[0].endswith(".py") else pair.commits
            argv += [SEPARATOR + arm, f"{SEPARATOR}in", tree, *own]
        return tuple(argv)
    for arm, given in zip(ARMS, (pair.baseline, pair.candidate), strict=True):
        argv += [SEPARATOR + arm, *(() if given is None else program_argv(folder, file, interpreter, given))]
    return tuple(argv)
