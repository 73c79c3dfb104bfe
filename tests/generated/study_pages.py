"""Pages made from the committed reports of studies, and the parts of guides that are."""

from __future__ import annotations

import re
from typing import Final

from benchmarks.studies.claims import server_speeds
from benchmarks.studies.report import report_of
from benchmarks.studies.statistics.page import page
from tests.drift import ROOT

GUIDE: Final = "docs/guides/ten-minutes-server.md"
SPEEDS: Final = re.compile(r"(<!-- generated: server speeds -->\n).*?(<!-- end -->)", re.DOTALL)


def generate() -> dict[str, str]:
    """Return the pages by path."""
    lines = "".join(f"{line}\n" for line in server_speeds.table(report_of(server_speeds.STUDY.name).entries()))
    guide = (ROOT / GUIDE).read_text("utf-8")
    return {
        "docs/evidence/simulation.md": page(),
        GUIDE: SPEEDS.sub(lambda match: f"{match[1]}{lines}{match[2]}", guide),
    }
