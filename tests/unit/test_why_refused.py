"""The page of refusals has the words of every call that refuses, where they are, and what to do."""

from __future__ import annotations

import ast

from bridge.gate.registry import rules
from tests.drift import ROOT
from tests.generated.refusals import KINDS, PAGE, Refusal, refusals, refusals_of

TEXT = (ROOT / PAGE).read_text("utf-8")
GATE = (ROOT / "docs" / "gate.md").read_text("utf-8")
MODULE = """
def refuse(name):
    why = f"{name} is closed" if name else "it is closed"
    raise PolicyRefusedError(why, remedy=remedy(name))

def remedy(name):
    if name:
        return f"open {name}"
    return "open it"

def revoked(why):
    return PolicyRefusedError(why)

revoked("its key " + "was revoked")
raise PolicyRefusedError(elsewhere.words())
raise ValueError("no refusal")
"""


def test_words_are_followed_through_names_arguments_and_what_functions_return() -> None:
    assert list(refusals_of(ast.parse(MODULE), "bridge/x.py")) == [
        Refusal("PolicyRefusedError", "bridge/x.py", "… is closed / it is closed", "open … / open it"),
        Refusal("PolicyRefusedError", "bridge/x.py", "its key was revoked", None),
    ]


def test_each_kind_is_there_with_its_place_and_what_to_do() -> None:
    by_kind = {kind.name: [refusal for refusal in refusals() if refusal.kind == kind.name] for kind in KINDS}
    assert {name for name, calls in by_kind.items() if not calls} == set()
    assert len(refusals()) > 120
    (disallowed,) = [refusal for refusal in refusals() if refusal.words.startswith("this host does not allow preset")]
    assert disallowed.path == "bridge/presets/resolution.py"
    assert disallowed.remedy == "the host's owner adds it to presets.allow in policy.toml"
    assert "- this host does not allow preset …; it allows … → the host's owner adds it to presets.allow" in TEXT


def test_every_check_of_the_gate_is_named_with_a_heading_to_go_to() -> None:
    judging = [rule.code for rule in rules().values() if rule.severity in {"reject", "violation"}]
    assert len(judging) > 70
    assert [code for code in judging if f"[{code}](gate.md#{code.lower()})" not in TEXT] == []
    assert [code for code in judging if f"### {code}\n" not in GATE] == []
