"""`mcp`, `agent`: the tools of agents, and the texts that tell an agent how."""

from __future__ import annotations

import signal
from importlib.metadata import version

from bridge.cli.mac.context import Invocation
from bridge.errors import UsageError, install_remedy


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
