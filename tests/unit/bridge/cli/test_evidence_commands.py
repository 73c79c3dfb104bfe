"""quote, verify and gate check say only what a result carries."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bridge import strictjson
from bridge.gate.identity import identity
from bridge.run.outcomes import ANSWER_CODES, JUDGED_DIFFERENTLY
from tests.fakes.scripted_host import PROBE, ScriptedHost
from tests.support.committed import SMOKE, unpacked
from tests.unit.bridge.cli.looking import claim, take

EVIDENCE = SMOKE
DOCS = Path(__file__).parents[4] / "docs"


@pytest.fixture
def host(requester):
    """Return a host that signs nothing, on a bus whose reader knows no key."""
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    return host


@pytest.fixture
def altered(tmp_path):
    """Return a published result of which the log was changed: nothing that the gate judges."""
    folder = unpacked(SMOKE, tmp_path / "altered")
    (folder / "log.txt").write_bytes(b"all tests passed\n")
    return folder


@pytest.mark.parametrize("decision", ["evidence", "valid", "rejected"])
def test_quote_refuses_loudly_whatever_a_claim_says_of_itself(requester, host, sent, decision):
    take(host, sent, decision=decision, claims=(claim(),))
    ran = requester.run("quote", "@last", "--json")
    assert ran.code != 0
    assert "faster" not in ran.out


def test_verify_checks_id_folder_and_our_own_bytes(requester, host, sent):
    take(host, sent)
    ran = requester.run("verify", "@last")
    assert ran.code == JUDGED_DIFFERENTLY  # the host's verdict is another gate's
    assert "unsigned bus: carries no signature" in ran.out
    folder = requester.folder / requester.run("open", "@last").out.strip()
    assert requester.run("verify", str(folder)).code == JUDGED_DIFFERENTLY
    (folder / "reports" / "probe.json").write_bytes(b"{}")
    ran = requester.run("verify", str(folder), "--json")
    assert ran.code == ANSWER_CODES["altered"]
    assert ran.document["data"]["ok"] is False
    assert any(row["name"] == "reports/probe.json" for row in ran.document["data"]["checks"] if not row["ok"])
    (folder / "extra.txt").symlink_to("/etc/passwd")
    assert "symbolic link" in requester.run("verify", str(folder)).err


def test_verify_judges_again_where_the_gate_is_the_same(requester, host, sent):
    take(host, sent, decision="evidence", claims=(claim(),), gate=identity())
    ran = requester.run("verify", "@last")
    assert ran.code == JUDGED_DIFFERENTLY
    assert "stored verdict: says quotable, but the same gate says refused, because" in ran.out
    assert "verdict: judged again with gate" in ran.out


def test_verify_says_both_verdicts_where_another_gate_judged(requester, host, sent):
    take(host, sent)
    ran = requester.run("verify", "@last")
    shown = ran.out
    assert ran.code == JUDGED_DIFFERENTLY
    assert "Refused, because" in shown
    assert "stored verdict: judged differently: the result says measured, by another gate" in shown


def test_verify_sees_that_the_bus_carries_another_history(requester, host, sent, tmp_path):
    take(host, sent)
    requester.run("fetch", "@last")
    request = next((requester.folder / "data" / "requests").glob("*.json"))
    document = json.loads(request.read_text())
    document["request"] = document["request"].replace('"smoke"', '"claim"')
    request.write_text(json.dumps(document))
    ran = requester.run("verify", sent)
    assert ran.code == ANSWER_CODES["altered"]
    assert "not the bytes this clone sent" in ran.out


def reseal(folder, **changed):
    """Write files of a result folder anew and make its manifest agree."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name, data in changed.items():
        (folder / name.replace("_", ".")).write_bytes(data)
    for entry in manifest["files"]:
        data = (folder / entry["path"]).read_bytes()
        entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    (folder / "manifest.json").write_bytes(strictjson.encode(manifest))


def test_a_result_of_an_older_version_still_verifies_but_a_reformatted_one_does_not(requester, host, sent):
    take(host, sent)
    folder = requester.folder / requester.run("open", "@last").out.strip()
    spec = json.loads((folder / "spec.json").read_bytes())
    older = {name: value for name, value in spec.items() if name != "labels"}
    assert older != spec
    reseal(folder, spec_json=strictjson.encode(older))
    ran = requester.run("verify", str(folder))
    assert (ran.code, "every digest recomputed" in ran.out) == (JUDGED_DIFFERENTLY, True), ran.out
    reseal(folder, spec_json=json.dumps(spec, indent=1).encode())
    ran = requester.run("verify", str(folder))
    assert ran.code == ANSWER_CODES["altered"]
    assert "spec.json: is not in canonical form" in ran.out


def test_gate_check_judges_folders_and_bare_reports_and_never_grants_evidence(requester, host, sent, tmp_path):
    take(host, sent, decision="evidence", claims=(claim(),))
    requester.run("fetch", sent)
    ran = requester.run("gate", "check", "data/runs", "--json")
    assert [row["verdict"]["id"] for row in ran.document["data"]] == [sent]
    assert ran.document["data"][0]["problems"] == []
    assert ran.document["data"][0]["verdict"]["decision"] != "evidence"
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(PROBE))
    for form in ("table", "markdown", "junit", "annotations"):
        assert requester.run("gate", "check", str(bare), "--format", form).out
    assert requester.run("gate", "check", str(bare), "--require", "evidence").code == 1
    assert requester.run("gate", "check", str(tmp_path / "nothing")).code == 2


def first_lines(requester, what):
    """Return what each command that is about a result says first of it, in its own words after the label."""
    commands = [["verify", what], ["quote", what], ["report", what], ["compare", what, what], ["gate", "check", what]]
    return {requester.run(*words).out.splitlines()[0] for words in commands}


def test_every_command_about_a_result_says_the_same_first_also_of_a_folder(requester, host, sent):
    take(host, sent, decision="evidence", claims=(claim(),))
    requester.run("fetch", "@last")
    folder = requester.run("open", "@last").out.strip()
    assert first_lines(requester, folder) == {f"result      {sent}   refused (smoke)   unsigned"}
    by_id = [requester.run(*words).out.splitlines()[0] for words in (["verify", sent], ["report", sent])]
    assert set(by_id) == first_lines(requester, folder)
    log = requester.folder / folder / "log.txt"
    log.write_bytes(log.read_bytes() + b"more\n")
    assert first_lines(requester, folder) == {f"result      {sent}   refused (smoke)   altered"}


def test_what_a_claim_rests_on_is_said_below_whose_result_it_is(requester, altered):
    explanations = [
        requester.run("gate", "explain", "identical_prompts", str(folder)).out for folder in (EVIDENCE, altered)
    ]
    assert [explanation.splitlines()[0].rpartition("   ")[2] for explanation in explanations] == [
        "key not pinned",
        "altered",
    ]


def test_what_stands_against_a_result_beside_its_verdict_is_in_every_format(requester, altered):
    def checked(form, *words):
        ran = requester.run("gate", "check", str(EVIDENCE), str(altered), "--format", form, *words)
        assert ran.code == 1
        return ran.out

    failed = [failure.get("message") for failure in ET.fromstring(checked("junit")).iter("failure")]
    assert {message.startswith(f"{altered}: log.txt: ") for message in failed} == {True}
    required = ET.fromstring(checked("junit", "--require", "evidence"))
    assert f"{EVIDENCE}: below evidence" in [failure.get("message") for failure in required.iter("failure")]
    assert f"::error title=evidence gate::{altered}: log.txt: " in checked("annotations")
    assert "altered: log.txt: " in next(line for line in checked("markdown").splitlines() if line.endswith("**"))


@pytest.mark.parametrize("words", [("G4-MARKS",), ("decode_speedup",)])
def test_a_page_of_a_rule_has_its_lines_in_json_too(requester, words):
    text = requester.run("gate", "explain", *words, "--json").document["data"]["text"]
    assert text.rstrip("\n") == requester.run("gate", "explain", *words).out.rstrip("\n")
    assert "\n" in text


def test_a_fresh_clone_verifies_and_quotes_committed_evidence_with_the_key_that_its_page_names(requester):
    commands = re.findall(r"^kakeya-mac (.*)$", (DOCS / "evidence" / "README.md").read_text("utf-8"), re.MULTILINE)
    assert [line.split()[0] for line in commands] == ["verify", "quote"] * 4
    printed = ""
    for line in commands:
        verb, place, *rest = line.split()
        ran = requester.run(verb, *map(str, sorted(DOCS.parent.glob(place))), *rest)
        assert ran.code == 0, ran.out + ran.err
        printed += ran.out
    assert "line-fit epochs=5 lr=0.1: final_loss 0.0061 squared error [0.0032, 0.0074] 96.9 %" in printed
    assert "prompts=humaneval-edit: in one sitting, 6 % of the machine used by others: decode faster: 1.52x" in printed
    assert "k3-fused-allmlx-code depth=0 prompts=code-structured: over 10 sittings in 1h32m: decode faster" in printed
    assert requester.run("quote", str(DOCS / "evidence" / "line-fit.tar.xz")).code == 1
