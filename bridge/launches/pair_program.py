"""Start two programs by turns, a process each, when the runner says so, and say how long each was on a processor.

Standard library only, and nothing of this package: it runs in the sandbox beside the programs. Speaks the protocol of
docs/turns.md. argv: ``[--@build PROGRAM ...] --@baseline [--@in FOLDER] PROGRAM ... --@candidate [--@in FOLDER]
PROGRAM ...``; what is built is built in each folder, once a run.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time

SEPARATOR = "--@"
FOLDER = "--@in"
BUILD = "build"
COMMIT = "commit"
LEAST_S = 4.0  # of a launch: beside it the pair that nobody counts, and the start, are short
PAIRS_MOST = 8
ORPHANS_S = 10.0  # for what a program leaves behind: it would work on in the other one's turn


def main(words: list[str]) -> int:
    """Run pairs until the runner says that the launch is over; end in 1 when a program fails."""
    arms = _arms(words)
    numbers = [int(os.environ[name]) for name in ("KAKEYA_TURN_ORDERS", "KAKEYA_TURN_ANSWERS")]
    for number in numbers:
        os.set_inheritable(number, False)  # the programs neither hear orders nor answer them
    with io.FileIO(numbers[0], "r") as orders, io.FileIO(numbers[1], "w") as answers:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KAKEYA_TURN_")}
        _build(arms.pop(BUILD, (None, []))[1], [folder for folder, _ in arms.values()], environment)
        _adopt()
        began_s = time.monotonic()
        for arm in sorted(arms):  # nobody counts these: files are read, caches are warm
            _run(arm, arms[arm], environment)
        pair_s = max(time.monotonic() - began_s, 1e-3)
        pairs = max(1, min(PAIRS_MOST, round(LEAST_S / pair_s)))
        _say(answers, event="ready", protocol=1, samples=pairs, calibration={})
        while (order := json.loads(_line(orders)))["event"] != "end":
            if order["event"] == "go":
                cpu_s = _run(order["arm"], arms[order["arm"]], environment)
                _say(answers, event="done", turn=order["turn"], tokens=1, over=True, cpu_s=cpu_s)
    return 0


def _arms(words: list[str]) -> dict[str, tuple[str | None, list[str]]]:
    """Return folder and command line of each arm."""
    arms: dict[str, tuple[str | None, list[str]]] = {}
    # What follows --@commit is for readers of the record.
    for word in words:
        if word.startswith(SEPARATOR) and word != FOLDER:
            name = word.removeprefix(SEPARATOR)
            arms[name] = (None, [])
        else:
            arms[name][1].append(word)
    arms.pop(COMMIT, None)
    return {name: (argv[1], argv[2:]) if argv[0] == FOLDER else (None, argv) for name, (_, argv) in arms.items()}


def _build(argv: list[str], folders: list[str | None], environment: dict[str, str]) -> None:
    """Build the trees of two commits, in the first launch only: the folders stay for the later ones."""
    for folder in folders if argv else ():
        done = os.path.join(folder or ".", ".built")
        if not os.path.exists(done):  # noqa: PTH110
            _run(BUILD, (folder, argv), environment)
            os.close(os.open(done, os.O_CREAT | os.O_WRONLY, 0o600))


def _run(arm: str, program: tuple[str | None, list[str]], environment: dict[str, str]) -> float:
    """Run one process, and whatever it leaves behind, to their end; return their processor seconds.

    Those of collected children are included. What is left behind is a child of this process once `_adopt` was called.
    """
    folder, argv = program
    child = os.fork()
    if child == 0:
        try:
            os.dup2(2, 1)
            if folder is not None:
                os.chdir(folder)
            os.execvpe(argv[0], argv, environment)  # noqa: S606 - this is the door, inside of a sandbox
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.stderr.write(f"{arm}: {argv[0]} ended with {os.waitstatus_to_exitcode(status)}\n")
        sys.exit(1)
    return usage.ru_utime + usage.ru_stime + _wait_for_orphans(f"{arm}: {argv[0]}")


def _adopt() -> None:
    """Let orphans below this process come to it: who works on behind a program's end works in its turn.

    Linux only. What a build leaves behind, such as its server, comes to nobody here.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _wait_for_orphans(program: str) -> float:
    """Wait until nothing of a program is left; return the processor seconds of what it had left behind."""
    cpu_s, until_s = 0.0, time.monotonic() + ORPHANS_S
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return cpu_s
        if pid:
            cpu_s += usage.ru_utime + usage.ru_stime
        elif time.monotonic() > until_s:
            sys.stderr.write(
                f"{program} ended, and what it started went on for {ORPHANS_S:g} s: no turn can "
                "end; start what lasts before, or switch it off\n"
            )
            sys.exit(1)
        else:
            time.sleep(0.0005)


def _line(orders: io.FileIO) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = orders.read(1)
        if not byte:
            sys.exit(1)
        line += byte
    return line


def _say(answers: io.FileIO, **fields: object) -> None:
    answers.write(json.dumps(fields).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
