"""What is made from the requester's table of commands: `--json` schemas, and the generated parts of the guides."""

from __future__ import annotations

import json
from pathlib import Path

from bridge.cli.documents import fill
from bridge.client.data import schemas

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("docs/guides/requester.md", "docs/guides/agent.md")


def generate() -> dict[str, str]:
    """Return the schemas, and each document with its generated parts made anew."""
    files = {
        f"bridge/client/schemas/{name}": json.dumps(schema, indent=2, sort_keys=True) + "\n"
        for name, schema in schemas().items()
    }
    files |= {name: fill((ROOT / name).read_text(encoding="utf-8")) for name in DOCUMENTS}
    return files
