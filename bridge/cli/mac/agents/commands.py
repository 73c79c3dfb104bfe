"""`mcp`, `agent`: the tools of agents, and the texts that tell an agent how."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from bridge.cli.mac.context import Invocation
from bridge.client.maintenance.agent_files import AGENTS, AgentFile, server_entry
from bridge.errors import UsageError, install_remedy
from bridge.system.durable import write_atomically


def agent(call: Invocation) -> int:
    """Print the section for AGENTS.md, or the agent skill."""
    from bridge.cli.table.documents import skill, snippet

    call.output.data((skill() if call.args.form == "skill" else snippet()).rstrip("\n"))
    return 0


def mcp(call: Invocation) -> int:
    """Serve the tools of this clone's bus over stdin and stdout until the client closes them."""
    from bridge.cli.mac.agents.in_process import InProcess

    try:
        from bridge.mcp.server import serve
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("mcp", "anyio")):
            raise
        raise UsageError("the packages of the tools are not installed", remedy=install_remedy("mcp")) from error
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    serve(InProcess(call), version("kakeya"))
    return 0


def install(call: Invocation) -> int:
    """Put the tools, the skill and the section into the files of the named programs, beside what is there."""
    from bridge.cli.table.documents import skill, snippet

    command = "kakeya-mac" if shutil.which("kakeya-mac") else str(Path(sys.executable).parent / "kakeya-mac")
    return _merge(call, {"server": server_entry(command), "skill": skill(), "section": snippet()})


def uninstall(call: Invocation) -> int:
    """Take out of those files what `install` put there."""
    return _merge(call, dict.fromkeys(("server", "skill", "section"), ""))


def _merge(call: Invocation, contents: Mapping[str, str]) -> int:
    """Work out every file first, then write: one that cannot be merged leaves all as they were."""
    from bridge.client.document.envelope import of_data

    files = {one.path: one for name, of in AGENTS.items() if getattr(call.args, name) for one in of}
    if not files:
        raise UsageError(
            "no program is named", remedy=f"add one or more of: {', '.join(f'--{name}' for name in AGENTS)}"
        )
    plan = [(path, *_merged(path, one, contents[one.content])) for one in files.values() if (path := _place(call, one))]
    rows = []
    for path, old, new in plan:
        change = "unchanged" if new == old else "removed" if not new else "written"
        if new and new != old:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, new.encode(), mode=0o644)
        elif old and not new:
            path.unlink()
        call.output.row(change, str(path))
        rows.append({"path": str(path), "change": change})
    call.output.document(of_data(call.command.name, rows))
    return 0


def _place(call: Invocation, one: AgentFile) -> Path:
    if one.path.startswith("~/"):
        return Path(call.environment.get("HOME", str(Path.home())), one.path[2:])
    repository = call.settings().repository
    return (repository.top if repository is not None else call.directory) / one.path


def _merged(path: Path, one: AgentFile, content: str) -> tuple[str, str]:
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if not old and not content:
        return old, old
    try:
        return old, one.merge(old, content)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", remedy="merge it by hand; nothing was written") from None
