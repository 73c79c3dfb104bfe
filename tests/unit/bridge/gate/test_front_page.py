"""The findings that the front page shows are worded as the gate words them, each by a rule that there is."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from bridge.gate.registry import rules
from bridge.records.verdict import Premise

ROOT = Path(__file__).parents[4]
README = (ROOT / "README.md").read_text("utf-8")
FINDING = re.compile(r"^(?P<premise>[a-z]+) +(?P<code>G\d-[A-Z]+)  (?P<message>.+?)  \((?P<where>.+)\)$", re.MULTILINE)
REASON = re.compile(r"(?:because|;) (?P<message>[^;\n]+?) \((?P<code>G\d-[A-Z]+)\)")
FINDINGS = [match.groupdict() for match in FINDING.finditer(README)]
REASONS = sorted({(match["code"], match["message"]) for match in REASON.finditer(README)})


def template(node: ast.AST) -> str | None:
    """Return what a text or f-string of the source may come to, as a pattern; None for anything else."""
    if isinstance(node, ast.Constant):
        return re.escape(node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) or ".+?" for part in node.values)
    return None


@cache
def templates() -> tuple[str, ...]:
    """Return every text that the gate's sources can say."""
    patterns: list[str | None] = []
    for path in sorted((ROOT / "bridge" / "gate").rglob("*.py")):
        patterns += map(template, ast.walk(ast.parse(path.read_text("utf-8"))))
    return tuple(
        {pattern for pattern in patterns if pattern is not None and re.search("[a-z] [a-z]", pattern.replace("\\", ""))}
    )


def test_the_front_page_shows_findings_and_reasons() -> None:
    assert FINDINGS
    assert len(REASONS) >= 4


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding["code"])
def test_a_finding_of_the_front_page_is_worded_as_the_gate_words_it(finding: dict[str, str]) -> None:
    assert finding["premise"] in get_args(Premise)
    assert_worded(finding["code"], finding["message"])


@pytest.mark.parametrize(("code", "message"), REASONS)
def test_a_reason_of_the_front_page_is_worded_as_the_gate_words_it(code: str, message: str) -> None:
    assert_worded(code, message)


def assert_worded(code: str, message: str) -> None:
    assert code in rules()
    assert [pattern for pattern in templates() if re.fullmatch(pattern, message)], message
