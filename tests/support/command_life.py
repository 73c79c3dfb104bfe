"""Which modules and lines a reader opens to follow one command from its start to its end.

`python -m tests.support.command_life` runs one command in the sandbox of this machine and prints, for each module of
the executor, how many lines the functions have that ran meanwhile in the process that watches it. Helpers that run as
programs of their own, and what is compared at import, are not counted.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType

from bridge.executor import running
from bridge.executor.interface import Hooks
from bridge.executor.sandbox import bubblewrap
from bridge.executor.trial import make_directory
from bridge.records.jobspec import SandboxSpec
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import OTHER_UID, Jobs

EXECUTOR = Path(running.__file__).parent


def followed(base: Path) -> dict[str, int]:
    """Return how many lines a reader reads, by module, in one command of an ordinary user's run in the sandbox.

    Args:
        base: a new folder that every user may enter.
    """
    uid = OTHER_UID if os.getuid() == 0 else None
    spec = Jobs(executor=None, base=base).spec("print('hello')", sandbox=SandboxSpec(mode="required", uid=uid))
    directory = make_directory(base / "run")
    quiet = Hooks(on_log=lambda _: None, should_stop=lambda: None)
    box = bubblewrap.enclose(spec, directory)
    run = running.RunExecution(spec, directory, quiet, secrets=(), confinement=box, clock=SystemClock())
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        execution = run.execute()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    assert execution.ok, execution.message
    lines: dict[str, set[int]] = {}
    for code in called:
        path = Path(code.co_filename)
        if path.is_relative_to(EXECUTOR) and not code.co_name.startswith("<"):
            last = max(line for _, _, line in code.co_lines() if line is not None)
            lines.setdefault(str(path.relative_to(EXECUTOR)), set()).update(range(code.co_firstlineno, last + 1))
    return {name: len(numbers) for name, numbers in sorted(lines.items())}


def main() -> None:
    """Print modules and lines, and what they come to."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        lines = followed(Path(name))
    for module, count in lines.items():
        print(f"{count:5} {module}")
    print(f"{sum(lines.values()):5} lines in {len(lines)} modules")


if __name__ == "__main__":
    main()
