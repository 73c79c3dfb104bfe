"""`kakeya-runner workload`: write, check, try, allow, list and remove folders of one's own programs."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bridge.bus.open.embedded import embedded_folder
from bridge.cli.host.control import stop_runner
from bridge.diagnostics import Check, lines
from bridge.errors import UsageError
from bridge.presets.workloads import problems
from bridge.presets.workloads.template import remedy_for, write_folder
from bridge.presets.workloads.trial import Candidate, NotTriedError, try_preset, unlike_declared
from bridge.runner.policy.check import networks
from bridge.runner.policy.file import WORKLOADS_FILE, builtin_policy, load_policy
from bridge.runner.policy.model import Policy
from bridge.runner.policy.workloads import allowed, checked, write_list
from bridge.runner.state.folder import StateFolder
from bridge.system.process import run

PLACE = "workloads"
_TRY_S = 3600.0
_CHECK_S = 1.0
_MIDDLES = frozenset({"mean", "median"})
_OF_THE_BUS = ("files ", "next ")  # lines of a run that name what is thrown away with its bus
Say = Callable[[str], None]


def workload(arguments: argparse.Namespace, policy: Path, say: Say) -> int:
    """Do what the command line says; 1 when a folder has a mistake."""
    rules = load_policy(policy) if policy.exists() else builtin_policy(os.environ)
    listing = Path(str(rules.workloads)) if policy.exists() else policy.absolute().parent / WORKLOADS_FILE
    if arguments.action == "list":
        return _list(listing, rules, as_json=arguments.json)
    if arguments.folder is None:
        raise UsageError(f"workload {arguments.action} needs a name or a folder", remedy="kakeya-runner workload list")
    if arguments.action == "new":
        return _new(arguments, rules, say)
    folder = find_folder(arguments.folder, listing)
    if arguments.action == "check":
        return _check(folder, listing, rules, as_json=arguments.json)
    if arguments.action == "try":
        return _try(folder, rules, arguments)
    served = f"with the policy {policy.absolute()}" if policy.exists() else "this machine's own bus (--bus embedded)"
    return _allow(folder, listing, rules, served, say) if arguments.action == "allow" else _remove(folder, listing, say)


def find_folder(words: str, listing: Path) -> Path:
    """Return the folder that a command line names: a path, a name below ``workloads``, or that of an allowed one."""
    given = Path(words)
    for place in (given, Path.cwd() / PLACE / words):
        if place.is_dir():
            return place.resolve()
    return next((folder for folder in allowed(listing) if folder.name == words), given.absolute())


def _new(arguments: argparse.Namespace, rules: Policy, say: Say) -> int:
    name = arguments.folder
    folder = Path(name) if "/" in name else Path.cwd() / PLACE / name
    sources = [Path(word) for word in arguments.program]
    written = write_folder(
        folder.absolute(),
        sources,
        python=_python(rules, sources),
        host_python=rules.interpreter,
        arguments=_words(arguments.arguments),
        choose=lambda candidates: choose_number(candidates, arguments.number),
        unit=arguments.unit,
    )
    for path in written.paths:
        print(path)
    for note in written.notes:
        say(note)
    say(f"next: kakeya-runner workload check {folder.name}")
    return 0


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
                f"the program, run once, left no number {name!r}; it left {names or 'none at all'}",
                remedy="name one of those, or print it; --number none keeps files only",
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
    middles = [one for one in candidates if "pointer" in one.source and one.name in _MIDDLES]
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
    found = (place / name for place in places if place != own for name in ("python3", "python"))
    return next((str(path) for path in found if _is_python(path)), rules.interpreter)


def _is_python(path: Path) -> bool:
    """Whether a path is an interpreter itself, and not a script that looks for one."""
    if not (path.is_absolute() and os.access(path, os.X_OK)):
        return False
    with path.open("rb") as stream:
        return stream.read(2) != b"#!"


def _check(folder: Path, listing: Path, rules: Policy, *, as_json: bool) -> int:
    found = list(_findings(folder, listing, rules))
    if not any(check.level == "fail" for check in found):
        found += _tries(folder, listing, rules)
    failed = any(check.level == "fail" for check in found)
    if as_json:
        print(json.dumps({"folder": str(folder), "ok": not failed, "checks": [vars(check) for check in found]}))
        return 1 if failed else 0
    for check in found:
        print(one_line(check))
    if not failed:
        names = ", ".join(checked(folder, rules.interpreter, _others(folder, listing, rules)).presets)
        print(f"ok    {folder}: offers {names}; next: kakeya-runner workload allow {folder.name}")
    return 1 if failed else 0


def _tries(folder: Path, listing: Path, rules: Policy) -> Iterator[Check]:
    """Run each preset's program for a second, and yield what that shows."""
    for name, preset in checked(folder, rules.interpreter, _others(folder, listing, rules)).presets.items():
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
            text = f"ended with {trial.exit_code} within {_CHECK_S:.0f}s, without a sandbox: {trial.last_line}"
            yield Check(name, "fail", text, remedy_for(trial).removeprefix("; ") or "correct the program")


def one_line(check: Check) -> str:
    """Return a mistake in one line: where, what, and the remedy."""
    return " ".join(part.strip() for part in lines(check))


def _findings(folder: Path, listing: Path, rules: Policy) -> tuple[Check, ...]:
    return tuple(problems(folder, rules.interpreter, _others(folder, listing, rules)))


def _others(folder: Path, listing: Path, rules: Policy) -> list[str]:
    """Return the names of presets that other allowed workloads offer, broken ones left to their own check."""
    names: list[str] = []
    for other in allowed(listing):
        if other != folder and not any(one.level == "fail" for one in problems(other, rules.interpreter)):
            names += checked(other, rules.interpreter).presets
    return names


def _allow(folder: Path, listing: Path, rules: Policy, served: str, say: Say) -> int:
    offers = checked(folder, rules.interpreter, _others(folder, listing, rules)).presets
    before = allowed(listing)
    write_list(listing, (*before, *(() if folder in before else (folder,))))
    print(folder)
    for check in networks(rules, offers.values()):
        say(one_line(check))
    say(f"allowed: {', '.join(offers)}; offered from now on by a runner that serves {served}, and by no other")
    say(f"next: kakeya-mac run {next(iter(offers))} --wait")
    return 0


def _remove(folder: Path, listing: Path, say: Say) -> int:
    before = allowed(listing)
    if folder not in before:
        known = ", ".join(one.name for one in before) or "none"
        raise UsageError(f"{folder} is not allowed here; allowed: {known}", remedy="kakeya-runner workload list")
    write_list(listing, (one for one in before if one != folder))
    say(f"{folder} is no longer offered; its files stay as they are")
    return 0


def _list(listing: Path, rules: Policy, *, as_json: bool) -> int:
    found = []
    for folder in allowed(listing):
        wrong = next((one for one in problems(folder, rules.interpreter) if one.level == "fail"), None)
        offers = [] if wrong else list(checked(folder, rules.interpreter).presets)
        found.append({"folder": str(folder), "presets": offers, "problem": None if wrong is None else one_line(wrong)})
    if as_json:
        print(json.dumps(found))
        return 0
    for one in found:
        print(f"{one['folder']}: {one['problem'] or ', '.join(one['presets'])}")  # type: ignore[arg-type]
    return 0


def _try(folder: Path, rules: Policy, arguments: argparse.Namespace) -> int:
    """Run a workload once on a bus of its own that is thrown away, as the embedded runner would."""
    made = checked(folder, rules.interpreter)
    preset = arguments.preset or next(iter(made.presets))
    if preset not in made.presets:
        raise UsageError(f"{folder.name} has no preset {preset!r}; it has {', '.join(made.presets)}")
    with tempfile.TemporaryDirectory(prefix="kakeya-try-", ignore_cleanup_errors=True) as top:
        config = Path(top) / "config" / "kakeya"
        config.mkdir(parents=True)
        write_list(config / WORKLOADS_FILE, [folder])
        words = [word for one in arguments.param for word in ("-p", one)]
        argv = [sys.executable, "-P", "-m", "bridge.cli.mac.main", "run", preset, *words, "--bus", "embedded", "--wait"]
        places = {"XDG_CONFIG_HOME": f"{top}/config", "KAKEYA_DATA_DIR": f"{top}/data"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KAKEYA_")}
        try:
            done = run(argv, env=kept | places, cwd=top, timeout_s=_TRY_S)
        finally:
            runner = StateFolder(embedded_folder(Path(top) / "data") / "runner")
            if runner.root.is_dir():  # it would serve for another minute, below a folder that goes
                stop_runner(runner, runs_too=True)
        sys.stderr.write(done.stderr.decode("utf-8", "replace"))
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            if not line.startswith(_OF_THE_BUS):
                print(line)
        print(f"{'next':<12}kakeya-runner workload allow {folder.name}")
        return done.exit_code if done.exit_code is not None else 3
