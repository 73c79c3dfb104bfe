"""Write a workload folder that already works: the owner's program as it is, or a small one to begin with.

What may be asked of it is read off the program's own options; what number is meant, off one run of it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge.errors import UsageError
from bridge.limits import REPORTS_MAX_COUNT
from bridge.presets.installed import registry
from bridge.presets.workloads import digests
from bridge.presets.workloads.folder import FILE, PLACEHOLDERS, SEED, read_folder, shebang
from bridge.presets.workloads.options import Option, options_of
from bridge.presets.workloads.trial import PATH, Candidate, NotTriedError, Trial, try_preset

REPORT: Final = "KAKEYA_REPORT"
TRIAL_S: Final = 60.0
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_KEPT_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*){0,3}")
_KEPT_MOST: Final = 16
_REPEATS: Final = 6  # of a program that takes a seed
_UNIT_MAX_CHARS: Final = 60
_LOWER: Final = re.compile(r"loss|err|time|second|latency|perplexity|_ms$|_s$|mse|rmse|mae|bytes|memory")
_HIGHER: Final = re.compile(r"acc|score|f1|auc|speed|throughput|per_s|reward|r2|passed|recall|precision")
_RATE: Final = re.compile(r"^(?!.*(err|loss|fail|miss)).*(per_(s|sec|second|minute|hour)$|throughput)")
_TARGET: Final = re.compile(r"^([A-Za-z0-9_-]+):(?!=)", re.MULTILINE)
_NO_COMMAND: Final = 127  # how a shell says that there is no such program
_NO_FILE: Final = re.compile(
    r"FileNotFoundError: .*: '(?P<file>[^/'][^']*)'$|No rule to make target '(?P<target>[^/'][^']*)'"
)
_TAKES_WORDS: Final = re.compile(r"getopt|argv|optparse|\$\{?[1-9@*]|--[a-z]", re.IGNORECASE)
_PROGRAM: Final = '''"""Begin with this: draw a number from the seed, and print it."""

import argparse
import random

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0, help="what the number is multiplied by")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
random.seed(options.seed)
print("score:", options.scale * sum(random.random() for _ in range(1000)) / 1000)
'''
Choose = Callable[[Sequence[Candidate]], Candidate | None]


@dataclass
class WrittenFolder:
    """What was written, and what its owner has to know of it.

    Attributes:
        paths: the files.
        notes: a line each: what became of the program's options, what it did when it was run.
    """

    paths: list[Path]
    notes: list[str] = field(default_factory=list)


def write_folder(
    folder: Path,
    sources: Sequence[Path],
    *,
    python: str,
    host_python: str,
    choose: Choose,
    arguments: Sequence[str] = (),
    unit: str | None = None,
) -> WrittenFolder:
    """Write a new folder; return what was written.

    Args:
        folder: absolute, not there yet.
        sources: the program to begin with, and files and folders that it reads, copied; none writes a small program.
        python: absolute path of the interpreter that is to run it, where it is Python.
        host_python: the runner's own.
        choose: says which of the numbers that the program left is meant; None for none.
        arguments: words that the program is started with, always.
        unit: of that number; None for a plain number.

    Raises:
        UsageError: the folder is there, its name is none, a file is not there, or the unit is no text of one line.
    """
    if _NAME.fullmatch(folder.name) is None:
        raise UsageError(f"got the name {folder.name!r}; expected lower-case letters, digits, - . _")
    if mark := PLACEHOLDERS.search(str(folder)):
        text = f"{folder} has {mark[0]} in its path, which in a command stands for a parameter"
        raise UsageError(text, remedy=f"choose a place without {mark[0]}")
    if folder.name in registry():
        raise UsageError(f"{folder.name!r} is the name of an installed preset", remedy="choose another name")
    if folder.exists():
        remedy = f"kakeya-runner workload check {shlex.quote(str(folder))}"
        raise UsageError(f"{folder} is there already", remedy=remedy)
    _check_sources(sources)
    if unit is not None and (not unit.strip() or not unit.isprintable() or len(unit) > _UNIT_MAX_CHARS):
        raise UsageError(f"got the unit {unit[:60]!r}; expected a word or two, e.g. --unit nats")
    if marked := next((word for word in arguments if PLACEHOLDERS.search(word)), None):
        raise UsageError(
            f"got the word {marked[:60]!r}; in workload.toml braces and $ stand for a parameter",
            remedy="put the line into a script of two lines, and name that with --from",
        )
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    try:
        return _filled(
            folder,
            sources,
            python=python,
            host_python=host_python,
            choose=choose,
            arguments=tuple(arguments),
            unit=unit,
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # the same line, put right, makes it anew
        raise


def _check_sources(sources: Sequence[Path]) -> None:
    """Refuse what cannot be copied as a program, or as what it reads.

    Raises:
        UsageError: a name is no text, the program is a folder, a file is not there, or is a device.
    """
    for source in sources:
        if not source.name.isprintable():
            text = f"the name {source.name!r} is no text of one line in UTF-8"
            raise UsageError(text, remedy="copy it under another name, and name that")
        if source.is_dir() and source == sources[0]:
            word = shlex.quote(str(source))
            raise UsageError(
                f"{source} is a folder, and the first --from is the program",
                remedy=f"--from {word}/PROGRAM, and --from {word} behind it where the program reads the folder",
            )
        if not source.exists():
            what = "program" if source == sources[0] else "file"
            raise UsageError(f"there is no {what} {source}", remedy="ls shows what is here; e.g. --from train.py")
        if not (source.is_file() or source.is_dir()):
            raise UsageError(f"{source} is a device or a pipe, which has no end", remedy="save what it gives as a file")


def _filled(
    folder: Path, sources: Sequence[Path], *, python: str, host_python: str, choose: Choose, arguments: Sequence[str],
    unit: str | None,
) -> WrittenFolder:  # fmt: skip
    """Copy the program into its new folder, run it once and write what it offers."""
    written = WrittenFolder([folder / FILE, *_copy(folder, sources)])
    script = written.paths[1]
    text = script.read_text("utf-8", "replace") if script.stat().st_size < 1 << 20 else ""
    options = list(options_of(text)) if script.suffix == ".py" or "python" in text[:80] else []
    options = [option for option in options if option.option not in arguments]
    runs = python if script.suffix == ".py" else _environment_of(script)
    draft = _Draft(folder.name, script, text, options, runs, unit, tuple(arguments))
    written.notes += _about_options(options)
    if not options and not arguments and script.name != "Makefile" and _TAKES_WORDS.search(text):
        written.notes.append(
            "options: only those of argparse and click are read; of others write {NAME} into argv, and params.NAME "
            'below it; of a seed "{seed}", and repeats = 6'
        )
    if draft.reports:
        _put(folder, draft.toml(reported=_reported_metric(text)))
        return written
    _put(folder, draft.toml(keep=("any",)))
    trial = _try(folder, host_python, written)
    candidates = [] if trial is None else list(trial.candidates)
    chosen = None if trial is None else choose(candidates)
    names = () if trial is None else tuple(name for name in trial.files if _KEPT_NAME.fullmatch(name))
    repeats = _REPEATS if chosen is not None and draft.seeded else 1
    most = min(_KEPT_MOST, REPORTS_MAX_COUNT // repeats - 1)
    files = names[:most]
    others = [candidate for candidate in candidates if candidate is not chosen]
    if chosen is None and not files:
        written.notes.append(
            "no number on stdout and no file is known: write [metrics.NAME] number = ... or [outputs] keep = ... there"
        )
    _put(folder, draft.toml(chosen=chosen, others=others, keep=files or (() if chosen else ("output.txt",))))
    written.notes += _about_result(chosen, others, files)
    if names[most:]:
        more = ", ".join(names[most:][:6])
        written.notes.append(f"left out of keep, which has room for {most} files a repeat: {more}")
    return written


def _copy(folder: Path, sources: Sequence[Path]) -> list[Path]:
    """Put the program and what it reads into the folder; return where they are, the program first."""
    if not sources:
        script = folder / "train.py"
        script.write_text(_PROGRAM, "utf-8")
        script.chmod(0o644)
        return [script]
    copies = [folder / source.name for source in sources]
    for source, copy in zip(sources, copies, strict=True):
        if source.is_dir():
            shutil.copytree(source, copy, ignore=lambda _folder, names: set(filter(digests.is_by_tools, names)))
            continue
        shutil.copyfile(source, copy)
        runs = copy.suffix != ".py" and os.access(source, os.X_OK)
        copy.chmod(0o755 if runs else 0o644)
    return copies


def _environment_of(script: Path) -> str | None:
    """Return the Python of the virtual environment that installed a script, by its first line; None where none did."""
    words = shebang(script)
    python = Path(words[0]) if words else Path()
    inside = python.is_absolute() and python.is_file() and (python.parent.parent / "pyvenv.cfg").is_file()
    return str(python) if inside and python.name.startswith("python") else None


def _put(folder: Path, text: str) -> None:
    (folder / FILE).write_text(text, "utf-8")
    (folder / FILE).chmod(0o644)


def _try(folder: Path, host_python: str, written: WrittenFolder) -> Trial | None:
    """Run the program once and note how that went; return None where it could not be run."""
    try:
        trial = try_preset(read_folder(folder, host_python).presets[folder.name], host_python, TRIAL_S)
    except (NotTriedError, OSError, ValueError) as error:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        written.notes.append(f"not run: {why}")
        return None
    if trial.over:
        written.notes.append(f"ran once, without a sandbox: ended after {TRIAL_S:.0f}s, where it still ran")
    elif trial.exit_code != 0:
        written.notes.append(
            f"ran once, without a sandbox: it failed with {trial.exit_code}: {trial.said}{remedy_for(trial)}"
        )
    else:
        written.notes.append("ran once, without a sandbox: it ended well")
    return trial


def remedy_for(trial: Trial) -> str:
    """Return what to do where a program did not find something; nothing where that is not what happened."""
    line = trial.last_line or ""
    if "ModuleNotFoundError" in line:
        return '; name the Python that has it: [environment] interpreter = "..."'
    if match := _NO_FILE.search(line):
        return (
            f"; bring it along, in a new folder, with one more --from {shlex.quote(match['file'] or match['target'])}"
        )
    if "Exec format error" in line:
        return "; begin the program with a line that names what runs it, as in: #!/bin/sh"
    if "Permission denied" in line and trial.exit_code == _NO_COMMAND:
        return "; chmod +x the program, and begin a script with a line such as: #!/bin/sh"
    if trial.exit_code == _NO_COMMAND:
        whole = "name its whole path, in sandbox.read_only of the policy"
        return f"; runs look in {PATH}: bring it along (--from), or {whole}"
    return ""


def _about_options(options: Sequence[Option]) -> list[str]:
    taken = [option.option for option in options if option.declared is not None]
    lines = [f"parameters: {', '.join(taken)}; narrow their bounds"] if taken else []
    lines += [f"{option.option} is given the seed of each repeat" for option in options if option.seed]
    return lines + [f"left out: {option.option}: {option.dropped}" for option in options if option.dropped is not None]


def _about_result(chosen: Candidate | None, others: Sequence[Candidate], files: Sequence[str]) -> list[str]:
    lines = [] if chosen is None else [f"the number is {chosen.name}, {chosen.value:g} this time"]
    if others:
        listed = ", ".join(f"{candidate.name} {candidate.value:g}" for candidate in others[:6])
        lines.append(f"other numbers, as comments in {FILE}: {listed}")
    return lines + ([f"files that are kept: {', '.join(files)}"] if files else [])


def _reported_metric(text: str) -> str:
    """Return the first key that a program writes below "metrics", else ``score``."""
    match = re.search(r"[\"']metrics[\"']\s*:\s*\{\s*[\"']([a-z0-9][a-z0-9._-]{0,62})[\"']", text)
    return match[1] if match else "score"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _key(name: str) -> str:
    """Return a name as a key of TOML, where a dot would begin a table."""
    return _quoted(name) if "." in name else name


@dataclass(frozen=True)
class _Draft:
    """What is known of a program before it was run."""

    name: str
    script: Path
    text: str
    options: Sequence[Option]
    python: str | None
    unit: str | None
    arguments: tuple[str, ...]

    @property
    def reports(self) -> bool:
        """Whether the program writes the report of a repeat itself."""
        return REPORT in self.text

    @property
    def seeded(self) -> bool:
        return SEED in self.text or any(option.seed for option in self.options)

    def toml(
        self,
        *,
        chosen: Candidate | None = None,
        others: Sequence[Candidate] = (),
        reported: str | None = None,
        keep: Sequence[str] = (),
    ) -> str:
        """Return the text of workload.toml."""
        words = [self.script.name, *self.arguments, *(word for option in self.options for word in option.words)]
        if self.script.name == "Makefile":
            targets = [name for name in _TARGET.findall(self.text) if name not in {"all", "clean", "install"}]
            words = (
                ["/usr/bin/make", "-s", *self.arguments]
                if self.arguments
                else ["/usr/bin/make", "-s", next((name for name in targets if "bench" in name), (*targets, "all")[0])]
            )
        if self.reports:
            words = [word for word in words if "{seed}" not in word]
        lines = ["schema = 1", f"name = {_quoted(self.name)}", ""]
        if self.python is not None:
            lines += ["[environment]", f"interpreter = {_quoted(self.python)}", ""]
        lines += [f"[presets.{_key(self.name)}]", f"description = {_quoted(f'Run {self.script.name}')}"]
        lines += [f"argv = [{', '.join(map(_quoted, words))}]"]
        taken_over = [option for option in self.options if option.declared is not None]
        lines += [f"params.{_key(option.name)} = {option.declared}" for option in taken_over]
        lines += ["limits.wall_s = 600.0", ""]
        if reported is not None:
            lines += self._metric(reported, f'pointer = "/metrics/{reported}"')
        if chosen is not None:
            lines += self._metric(chosen.name, f"number = {_source(chosen)}")
        taken = {None if chosen is None else chosen.name}
        for other in others:
            if other.name not in taken:
                taken.add(other.name)
                lines += [f"# {line}" for line in self._metric(other.name, f"number = {_source(other)}") if line] + [""]
        lines += ["[outputs]", f"keep = [{', '.join(map(_quoted, keep))}]", ""] if keep else []
        return "\n".join(lines).rstrip("\n") + "\n"

    def _metric(self, name: str, place: str) -> list[str]:
        rate = _RATE.search(name) is not None
        better = "lower" if _LOWER.search(name) and not rate else "higher" if rate or _HIGHER.search(name) else None
        if place.startswith("pointer"):
            better = better or "lower"
        lines = [f"[metrics.{_key(name)}]", place, f"unit = {_quoted(self.unit or '1')}"]
        lines += [] if better is None else [f'better = "{better}"']
        return [*lines, f"repeats = {_REPEATS}" if self.seeded or place.startswith("pointer") else "repeats = 1", ""]


def _source(candidate: Candidate) -> str:
    inner = ", ".join(
        f"{key} = '{value}'" if "'" not in value else f"{key} = {_quoted(value)}"
        for key, value in candidate.source.items()
    )
    return f"{{ {inner} }}"
