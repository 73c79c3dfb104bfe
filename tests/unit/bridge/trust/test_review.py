"""The files that docs/security-review.md names are all that sign or verify, and few enough to read."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "security-review.md").read_text("utf-8")
LISTED = re.findall(r"^\| \d+ \| \[(\S+)\]", PAGE, re.MULTILINE)
# What signs or verifies, by where it comes from: whoever uses one of these makes or checks a signature.
LIBRARIES = ("cryptography", "securesystemslib", "tuf")
CALLS = {"agent_sign", "signer_of", "verify_delegate", "verify_signature", "load_ssh_private_key"}
LINES_MAX = 2_500


def uses(source: str) -> list[str]:
    """Return what in a module makes or checks a signature."""
    signature_uses = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            signature_uses += [alias.name for alias in node.names if alias.name.split(".")[0] in LIBRARIES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES:
            signature_uses.append(str(node.module))
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            signature_uses += [name] if name in CALLS else []
        elif isinstance(node, ast.Constant) and node.value == "-Y":
            signature_uses.append("ssh-keygen -Y")
    return signature_uses


def test_every_call_that_signs_or_verifies_lies_in_the_ten_files() -> None:
    using = {str(path.relative_to(ROOT)): uses(path.read_text("utf-8")) for path in (ROOT / "bridge").rglob("*.py")}
    assert len(LISTED) == 10
    assert {
        path: signature_uses for path, signature_uses in using.items() if signature_uses and path not in LISTED
    } == {}
    assert sum(bool(using[path]) for path in LISTED) >= 6  # the test finds them where they are


def test_a_call_elsewhere_would_be_found() -> None:
    assert uses("from cryptography.hazmat.primitives.asymmetric import ed25519") != []
    assert uses("def f(root, data): root.verify_delegate('targets', data, {})") == ["verify_delegate"]
    assert uses("argv = ['ssh-keygen', '-Y', 'verify']") == ["ssh-keygen -Y"]
    assert uses("import json") == []


def test_the_room_of_trust_can_be_read_in_an_afternoon() -> None:
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in (ROOT / "bridge" / "trust").glob("*.py"))
    assert lines <= LINES_MAX
