"""A verdict for people and for tools: terminal table, markdown, JUnit, GitHub annotations.

Everything a report said is untrusted text here: it is escaped for where it goes. Decides nothing.
"""

from bridge.gate.render.github import annotations
from bridge.gate.render.junit import junit
from bridge.gate.render.markdown import markdown
from bridge.gate.render.table import claim_line, rows, table

__all__ = ["annotations", "claim_line", "junit", "markdown", "rows", "table"]
