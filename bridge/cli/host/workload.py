"""`kakeya-runner workload`: write, check, try, allow, list and remove folders of one's own programs."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.bus.open.embedded import embedded_folder
from bridge.cli.host.control import stop_runner
from bridge.cli.host.places import policy_path
from bridge.cli.screen.answer import Answer, Line, Talk
from bridge.client.document.untrusted import clean_line
from bridge.diagnostics import Check, has_failed
from bridge.errors import REMEDY_MARK, UsageError, meant
from bridge.presets.workloads import problems
from bridge.presets.workloads.folder import FILE
from bridge.presets.workloads.template import remedy_for, write_folder
from bridge.presets.workloads.trial import Candidate, NotTriedError, try_preset, unlike_declared
from bridge.runner.policy.check import networks
from bridge.runner.policy.file import WORKLOADS_FILE, builtin_policy, load_policy
from bridge.runner.policy.model import Policy
from bridge.runner.policy.workloads import allowed, change_list, checked, write_list
from bridge.runner.state.folder import StateFolder
from bridge.system.process import run

if TYPE_CHECKING:
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import (
        PlaceOptions,
        StatusOptions,
        WorkloadCheckOptions,
        WorkloadNewOptions,
        WorkloadOptions,
        WorkloadTryOptions,
    )
    from bridge.presets.model import Preset

PLACE: Final = "workloads"
_TRY_S = 3600.0
_CHECK_S = 1.0
_MIDDLES = frozenset({"mean", "median"})
_OF_THE_BUS = ("files ", "next ")  # lines of a run that name what is thrown away with its bus


@dataclass(frozen=True)
class Shelf:
    """Which folders this host offers, and by what rules.

    Attributes:
        policy: the policy file, whether or not it is there.
        rules: what it says, else what the embedded runner goes by.
        listing: the file that names the folders.
    """

    policy: Path
    rules: Policy
    listing: Path

    def other_presets(self, folder: Path) -> list[str]:
        """Return the presets of the other allowed folders, broken ones left to their own check."""
        names: list[str] = []
        for other in allowed(self.listing):
            if other != folder and not any(check.level == "fail" for check in problems(other, self.rules.interpreter)):
                names += checked(other, self.rules.interpreter).presets
        return names

    def problems_of(self, folder: Path) -> list[Check]:
        """Return the mistakes of a folder."""
        return list(problems(folder, self.rules.interpreter, self.other_presets(folder)))

    def presets_of(self, folder: Path) -> Mapping[str, Preset]:
        """Return what a folder offers.

        Raises:
            UsageError: it has a mistake.
        """
        return checked(folder, self.rules.interpreter, self.other_presets(folder)).presets


def _shelf(options: PlaceOptions) -> Shelf:
    path = policy_path(options)
    if not path.exists():
        return Shelf(path, builtin_policy(os.environ), path.absolute().parent / WORKLOADS_FILE)
    rules = load_policy(path)
    return Shelf(path, rules, Path(str(rules.workloads)))


def find_folder(words: str, listing: Path) -> Path:
    """Return the folder that a command line names: a path, a name below ``workloads``, or that of an allowed one.

    Among them one that holds a workload comes first: a project may have another folder of the program's name.
    """
    given = Path(words)
    here = [place.resolve() for place in (given, Path.cwd() / PLACE / words) if place.is_dir()]
    holding = next((place for place in here if (place / FILE).is_file()), None)
    if holding is not None:
        return holding
    listed = (folder for folder in allowed(listing) if folder.name == words)
    return next(listed, here[0] if here else given.absolute())


def word_for(folder: Path, listing: Path) -> str:
    """Return the word of a command line that `find_folder` finds a folder by: its name, else its path."""
    return shlex.quote(folder.name if find_folder(folder.name, listing) == folder else str(folder))


def new(call: HostCall[WorkloadNewOptions]) -> Answer:
    """Write a folder that offers a program as it is."""
    options, shelf = call.options, _shelf(call.options)
    folder = Path(options.folder) if "/" in options.folder else Path.cwd() / PLACE / options.folder
    sources = [Path(word) for word in options.from_ or ()]
    written = write_folder(
        folder.absolute(),
        sources,
        python=_python(shelf.rules, sources),
        host_python=shelf.rules.interpreter,
        arguments=_words(options.arguments),
        choose=lambda candidates: choose_number(candidates, options.number),
        unit=options.unit,
    )
    lines: list[Line] = [*map(str, written.paths), *(Talk("note", clean_line(note)) for note in written.notes)]
    word = word_for(folder.resolve(), shelf.listing)
    return Answer(lines=[*lines, Talk("next", f"kakeya-runner workload check {word}")])


def _words(text: str | None) -> list[str]:
    """Return the words of a command line.

    Raises:
        UsageError: a quote is left open.
    """
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise UsageError(f"--arguments {text!r}: {error}", remedy="close the quote, as in a shell") from None


def choose_number(candidates: Sequence[Candidate], name: str | None) -> Candidate | None:
    """Return the number that is meant: the one that was named, else what somebody at a terminal says, else the last.

    The last row of a table is a number only where somebody says so: most tables are curves.

    Raises:
        UsageError: the program left none of that name.
    """
    if name is not None:
        if name == "none":
            return None
        chosen = next((candidate for candidate in candidates if candidate.name == name), None)
        if chosen is None:
            names = ", ".join(dict.fromkeys(candidate.name for candidate in candidates))
            raise UsageError(
                f"the program, run once, left no number {name!r}; it left {names or 'none'}",
                remedy=f"{'name one of those, or ' if names else ''}print it; --number none keeps files only",
            )
        return chosen
    likely = [candidate for candidate in candidates if "file" not in candidate.source]
    likely = likely or [candidate for candidate in candidates if "column" not in candidate.source]
    if not candidates or not sys.stdin.isatty():
        return _likeliest(likely) if likely else None
    for place, candidate in enumerate(candidates, start=1):
        print(f"{place:>3}  {candidate.name} {candidate.value:g}", file=sys.stderr)
    preferred = candidates.index(_likeliest(likely)) + 1 if likely else 0
    answer = input(f"which number is meant? [{preferred}; 0: none, files only] ").strip()
    place = int(answer) if answer.isdigit() and int(answer) <= len(candidates) else preferred
    return None if place == 0 else candidates[place - 1]


def _likeliest(candidates: Sequence[Candidate]) -> Candidate:
    """Return the middle of a JSON text's numbers where it names one, as benchmarks do, else the last number."""
    middles = [number for number in candidates if "pointer" in number.source and number.name in _MIDDLES]
    return middles[0] if middles and "pointer" in candidates[-1].source else candidates[-1]


def _python(rules: Policy, sources: Sequence[Path]) -> str:
    """Return the interpreter that a new folder names: of a virtual environment, else the first that is not the host's.

    Looked for are the one that is active, and `.venv` and `venv` here and beside the program.
    """
    own = Path(rules.interpreter).parent
    active = os.environ.get("VIRTUAL_ENV")
    beside = [place / name for place in (Path.cwd(), *(source.absolute().parent for source in sources[:1]))
              for name in (".venv", "venv")]  # fmt: skip
    places = [folder / "bin" for folder in ([Path(active)] if active else []) + beside]
    places += map(Path, os.environ.get("PATH", "").split(os.pathsep))
    interpreters = (place / name for place in places if place != own for name in ("python3", "python"))
    return next((str(path) for path in interpreters if _is_python(path)), rules.interpreter)


def _is_python(path: Path) -> bool:
    """Whether a path is an interpreter itself, and not a script that looks for one."""
    if not (path.is_absolute() and os.access(path, os.X_OK)):
        return False
    with path.open("rb") as stream:
        return stream.read(2) != b"#!"


def check(call: HostCall[WorkloadCheckOptions]) -> Answer:
    """Name every mistake of a folder; where it has none, run its programs for a second. 1 when something fails."""
    shelf = _shelf(call.options)
    folder = find_folder(call.options.folder, shelf.listing)
    checks = shelf.problems_of(folder)
    if not has_failed(checks):
        checks += _trials(folder, shelf.presets_of(folder), shelf.rules)
    failed, lines = has_failed(checks), [one_line(finding) for finding in checks]
    if not failed:
        names = ", ".join(shelf.presets_of(folder))
        word = word_for(folder, shelf.listing)
        lines.append(f"ok    {folder}: offers {names}; next: kakeya-runner workload allow {word}")
    data = {"folder": str(folder), "ok": not failed, "checks": [vars(finding) for finding in checks]}
    return Answer(data, lines, exit_code=1 if failed else 0)


def _trials(folder: Path, presets: Mapping[str, Preset], rules: Policy) -> Iterator[Check]:
    """Run the program of each of a folder's presets for a second, and yield what that shows."""
    for name, preset in presets.items():
        try:
            trial = try_preset(preset, rules.interpreter, _CHECK_S)
        except NotTriedError as error:
            yield Check(name, "warn", f"not tried: {error}", "kakeya-runner workload try runs it")
            continue
        wrote = "wrote its report" if trial.reported else "wrote no report to the file that KAKEYA_REPORT names"
        if trial.over:
            yield Check(name, "ok", f"still ran after {_CHECK_S:.0f}s, without a sandbox")
        elif trial.exit_code == 0:
            remedy = None if trial.reported else "write it there, or say where the number is: number = { stdout = ... }"
            yield Check(name, "ok" if trial.reported else "fail", f"ran, without a sandbox, and {wrote}", remedy)
            yield from unlike_declared(trial, folder)
        else:
            text = f"ended with {trial.exit_code} within {_CHECK_S:.0f}s, without a sandbox: {trial.said}"
            yield Check(name, "fail", text, remedy_for(trial).removeprefix("; ") or "correct the program")


def one_line(check: Check) -> str:
    """Return a mistake in one line: where, what, and the remedy."""
    remedy = "" if check.remedy is None or check.level == "ok" else f"{REMEDY_MARK}{check.remedy}"
    return clean_line(f"{check.level:<5} {check.name} {check.text}{remedy}")


def allow(call: HostCall[WorkloadOptions]) -> Answer:
    """Let this machine's runners offer a folder from now on.

    Raises:
        UsageError: the folder has a mistake.
    """
    shelf = _shelf(call.options)
    folder = find_folder(call.options.folder, shelf.listing)
    offers = shelf.presets_of(folder)
    change_list(shelf.listing, lambda folders: dict.fromkeys((*folders, folder)))
    is_there = shelf.policy.exists()
    served = f"with the policy {shelf.policy.absolute()}" if is_there else "this machine's own bus (--bus embedded)"
    texts = [one_line(finding) for finding in networks(shelf.rules, offers.values())]
    texts.append(f"allowed: {', '.join(offers)}; offered from now on by a runner that serves {served}, and by no other")
    following = Talk("next", f"kakeya-mac run {next(iter(offers))} --wait")
    return Answer(lines=[str(folder), *(Talk("note", text) for text in texts), following])


def remove(call: HostCall[WorkloadOptions]) -> Answer:
    """Offer a folder no longer.

    Raises:
        UsageError: it is not offered.
    """
    listing = _shelf(call.options).listing
    folder, before = find_folder(call.options.folder, listing), allowed(listing)
    if folder not in before:
        names = ", ".join(other.name for other in before) or "none"
        raise UsageError(f"{folder} is not allowed here; allowed: {names}", remedy="kakeya-runner workload list")
    change_list(listing, lambda folders: [other for other in folders if other != folder])
    return Answer(lines=[Talk("note", f"{folder} is no longer offered; its files stay as they are")])


def show_list(call: HostCall[StatusOptions]) -> Answer:
    """List the folders that are offered, each with its presets or its first mistake."""
    shelf = _shelf(call.options)
    rows, lines = [], []
    for folder in allowed(shelf.listing):
        checks = problems(folder, shelf.rules.interpreter)
        mistake = next((one_line(finding) for finding in checks if finding.level == "fail"), None)
        offers = [] if mistake else list(checked(folder, shelf.rules.interpreter).presets)
        rows.append({"folder": str(folder), "presets": offers, "problem": mistake})
        lines.append(f"{folder}: {mistake or ', '.join(offers)}")
    nothing = Talk("note", "no folder is offered here; kakeya-runner workload allow FOLDER")
    return Answer(rows, lines or [nothing])


def try_workload(call: HostCall[WorkloadTryOptions]) -> Answer:
    """Run a workload once on a bus of its own that is thrown away, as the embedded runner would."""
    options, shelf = call.options, _shelf(call.options)
    folder = find_folder(options.folder, shelf.listing)
    presets = checked(folder, shelf.rules.interpreter).presets
    preset = options.preset or next(iter(presets))
    if preset not in presets:
        raise UsageError(f"{folder.name} has no preset {preset!r}; {meant(preset, presets)}")
    with tempfile.TemporaryDirectory(prefix="kakeya-try-", ignore_cleanup_errors=True) as top:
        config = Path(top) / "config" / "kakeya"
        config.mkdir(parents=True)
        write_list(config / WORKLOADS_FILE, [folder])
        words = [word for value in options.param or () for word in ("-p", value)]
        argv = [sys.executable, "-P", "-m", "bridge.cli.mac.main", "run", preset, *words, "--bus", "embedded", "--wait"]
        places = {"XDG_CONFIG_HOME": f"{top}/config", "KAKEYA_DATA_DIR": f"{top}/data"}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("KAKEYA_")}
        try:
            done = run(argv, env=inherited | places, cwd=top, timeout_s=_TRY_S)
        finally:
            runner = StateFolder(embedded_folder(Path(top) / "data") / "runner")
            if runner.root.is_dir():  # it would serve for another minute, below a folder that goes
                stop_runner(runner, runs_too=True)
    call.output.note(done.stderr.decode("utf-8", "replace").removesuffix("\n"))
    printed = done.stdout.decode("utf-8", "replace").splitlines()
    lines = [line for line in printed if not line.startswith(_OF_THE_BUS)]
    following = f"{'next':<12}kakeya-runner workload allow {word_for(folder, shelf.listing)}"
    return Answer(lines=[*lines, following], exit_code=done.exit_code if done.exit_code is not None else 3)
