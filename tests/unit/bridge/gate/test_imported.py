"""Code that was imported from somewhere else than the tree or the installation on record is other code."""

from __future__ import annotations

import pytest

from bridge.gate.judging import judge
from tests.corpus.gate.breaks import BREAKS, honest

HOME = "/opt/kakeya/lib/python3.11/site-packages/engine"


def findings(case) -> list[tuple[str, str]]:
    verdict = judge(case.run_id, case.seal().files(), case.record_value(), case.spec_value(), authority="host")
    return [(finding.severity, finding.message) for finding in verdict.findings if finding.code == "G2-CODE"]


@pytest.fixture
def host():
    return honest("smoke")


@pytest.fixture
def request_code():
    """A run of request code, honest about where it came from: only its trust is held against it."""
    return BREAKS["G2-TRUST"]()


def test_both_kinds_of_code_pass_where_they_belong(host, request_code):
    assert findings(host) == []
    assert findings(request_code) == []


@pytest.mark.parametrize("form", ["{home}", "{home}.py", "{home}/__init__.py"])
def test_a_package_is_found_by_its_folder_its_init_or_as_one_file(host, form):
    host.record["imported"]["path"] = form.format(home=HOME)

    assert findings(host) == []


def test_request_code_from_the_hosts_installation_is_rejected(request_code):
    request_code.record["imported"]["path"] = f"{HOME}/__init__.py"

    assert findings(request_code)[0][0] == "reject"
    assert "not from the request's tree" in findings(request_code)[0][1]


def test_a_tree_without_a_harness_is_tested_by_the_hosts_own(request_code):
    request_code.record["imported"]["path"] = f"{HOME}/__init__.py"
    request_code.spec["outputs"] = [{**output, "kind": "test_suite"} for output in request_code.spec["outputs"]]
    assert findings(request_code) == []

    request_code.record["imported"]["path"] = "/tmp/engine/__init__.py"
    assert findings(request_code)[0][0] == "reject"


@pytest.mark.parametrize("path", ["{work}/engine/__init__.py", "/tmp/engine/__init__.py", HOME + "/../evil.py"])
def test_host_code_from_anywhere_else_is_rejected(host, path):
    host.record["imported"]["path"] = path.format(work=host.record["imported"]["work"])

    assert findings(host)[0][0] == "reject"
    assert "not from the host's own" in findings(host)[0][1]


def test_a_host_without_an_installation_cannot_have_run_it(host):
    host.record["imported"]["installation"] = None

    assert findings(host)[0][0] == "reject"


@pytest.mark.parametrize(("base", "severity"), [("host", "violation"), ("request_code", "reject")])
def test_not_knowing_is_no_proof(base, severity, request):
    case = request.getfixturevalue(base)
    case.record["imported"] = None

    assert [finding[0] for finding in findings(case)] == [severity]


def test_another_module_or_another_runs_folder_is_no_answer(host):
    host.record["imported"]["module"] = "json"
    host.record["imported"]["work"] = "${STATE}/runs/another/files/work"

    assert len(findings(host)) == 2
