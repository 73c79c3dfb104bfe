"""`mcp`, `agent`: the tools of agents, and the texts that tell an agent how."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from bridge.cli.mac.context import Invocation
from bridge.cli.screen.answer import Answer, Line, Row, Talk
from bridge.client.document.parts import AgentFileRow
from bridge.client.document.untrusted import clean_line
from bridge.client.maintenance.agent_files import AGENTS, AgentFile, merged, server_entry
from bridge.errors import KakeyaError, UsageError, install_remedy
from bridge.system.durable import write_atomically
from bridge.version import VERSION

if TYPE_CHECKING:
    from bridge.cli.table.command import Options
    from bridge.cli.table.options import AgentOptions, McpOptions, ProgramsOptions


_BY_HAND: Final = "merge it by hand; nothing was written"


def agent(call: Invocation[AgentOptions]) -> Answer:
    """Return the section for AGENTS.md, or the agent skill."""
    from bridge.cli.table.documents import skill, snippet

    offers = offered_lines(call)
    return Answer(lines=[(skill(offers) if call.options.form == "skill" else snippet(offers)).rstrip("\n")])


def mcp(call: Invocation[McpOptions]) -> Answer:
    """Serve the tools of this clone's bus over stdin and stdout until the client closes them."""
    from bridge.cli.mac.agents.in_process import InProcess

    try:
        from bridge.mcp.server import serve
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("mcp", "anyio")):
            raise
        raise UsageError("the packages of the tools are not installed", remedy=install_remedy("mcp")) from error
    for number in (signal.SIGINT, signal.SIGTERM):  # the thread that reads stdin ends only with that, or with us
        signal.signal(number, signal.SIG_DFL)
    serve(InProcess(call), VERSION)
    return Answer()


def install(call: Invocation[ProgramsOptions]) -> Answer:
    """Put the tools, the skill and the section into the files of the named programs, beside what is there."""
    from bridge.cli.table.documents import skill, snippet

    offers = offered_lines(call)
    contents = {
        "server": server_entry("kakeya-mac"),
        "own server": server_entry(_program(call.environment)),
        "skill": skill(offers),
        "section": snippet(offers),
    }
    notes: list[Line] = []
    if contents["server"] != contents["own server"]:
        text = (
            "the files of this repository name kakeya-mac, as everybody who has it may commit them; a program started "
            f"elsewhere finds it once it is on the PATH: ln -s {shlex.quote(_program(call.environment))} ~/.local/bin/"
        )
        notes.append(Talk("note", text))
    return _merge(call, contents, notes)


def offered_lines(call: Invocation[Options]) -> list[str]:
    """Return what the bus of this clone offers of its own, a line each; nothing where it does not answer."""
    from bridge.cli.mac.presets import own_here

    try:
        own = own_here(call)
    except KakeyaError:
        return []
    return [clean_line(f"`{name}`: {preset.description} ({', '.join(preset.params) or 'no parameters'})")
            for name, preset in sorted(own.items())]  # fmt: skip


def _program(environment: Mapping[str, str]) -> str:
    """Return the name where any shell finds the program, else its path.

    A virtual environment that is active here, or that `uvx` made, is not on the PATH of a program started elsewhere.
    """
    here = Path(sys.executable).parent / "kakeya-mac"
    on_path = shutil.which("kakeya-mac", path=environment.get("PATH"))
    return str(here) if on_path is None or Path(on_path) == here else "kakeya-mac"


def uninstall(call: Invocation[ProgramsOptions]) -> Answer:
    """Take out of those files what `install` put there."""
    return _merge(call, dict.fromkeys(("server", "own server", "skill", "section"), ""))


@dataclass(frozen=True)
class _Change:
    """What becomes of one file; None is no file."""

    old: str | None
    new: str | None
    base: Path

    @property
    def word(self) -> Literal["unchanged", "written", "removed"]:
        return "unchanged" if self.new == self.old else "removed" if self.new is None else "written"

    def make(self, path: Path) -> None:
        """Write or remove the file; its permissions stay, and no folder is left empty."""
        if self.new == self.old:
            return
        if self.new is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
            write_atomically(path, self.new.encode(), mode=mode)
        else:
            path.unlink()
            if self.base in path.parents:
                with contextlib.suppress(OSError):  # the first folder that is not empty
                    for folder in itertools.takewhile(lambda folder: folder != self.base, path.parents):
                        folder.rmdir()


def _merge(call: Invocation[ProgramsOptions], contents: Mapping[str, str], notes: Sequence[Line] = ()) -> Answer:
    """Work out every file first, then write: one that cannot be merged leaves all as they were."""
    files = [file for name, of in AGENTS.items() if getattr(call.options, name) for file in of]
    if not files:
        raise UsageError("no program is named", remedy=f"add one or more of: --{', --'.join(AGENTS)}".replace("_", "-"))
    plan = dict(_planned(call, file, contents[file.content]) for file in files)
    for path, change in plan.items():
        change.make(path)
    rows = [AgentFileRow(str(path), change.word) for path, change in plan.items()]
    return Answer(rows, [*(Row(row.change, row.path) for row in rows), *notes])


def _planned(call: Invocation[ProgramsOptions], file: AgentFile, content: str) -> tuple[Path, _Change]:
    """Return a file and what becomes of it; two names of one file, as a link gives them, are one."""
    base = _base(call, file)
    named = base / file.path.removeprefix("~/")
    try:
        path = named.resolve()
    except RuntimeError as error:  # links in a circle, before Python 3.13
        raise UsageError(str(error), remedy=_BY_HAND) from None
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: it is no plain file", remedy=_BY_HAND)
    try:
        old = path.read_bytes().decode() if path.exists() else None
        new = merged(file, old, content)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: it is no UTF-8 text: {error}", remedy=_BY_HAND) from None
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", remedy=_BY_HAND) from None
    return path, _Change(old, new, base.resolve())


def _base(call: Invocation[ProgramsOptions], file: AgentFile) -> Path:
    if file.path.startswith("~/"):
        return Path(call.environment.get("HOME", str(Path.home())))
    repository = call.settings().repository
    return call.directory if repository is None else repository.top
