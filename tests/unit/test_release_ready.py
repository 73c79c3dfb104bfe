"""A release tag asks for its version, its change log and an address for reports of weaknesses."""

from __future__ import annotations

import subprocess

import pytest

from tests.release_ready import missing, tags


def project(version: str = "1.2.3", address: str = "https://example.org/report") -> dict[str, object]:
    return {"project": {"version": version}, "tool": {"kakeya": {"disclosure": address}}}


def test_a_release_that_has_all_three_may_go():
    assert missing("v1.2.3", project(), "# Changelog\n\n## 1.2.3\n") == []
    assert missing("v1.2.3", project(address="mailto:a@example.org"), "## [1.2.3] - 2026-01-01\n") == []


@pytest.mark.parametrize("address", ["", "somebody", "http://example.org", "mailto:nobody"])
def test_without_an_address_for_reports_it_may_not(address):
    (said,) = missing("v1.2.3", project(address=address), "## 1.2.3\n")
    assert f"disclosure in pyproject.toml is '{address}'" in said


def test_each_thing_that_is_missing_is_named():
    first, second = missing("v1.2.4", project(), "## 1.2.40\n")
    assert "has version 1.2.3, the tag is v1.2.4" in first
    assert "no heading '## 1.2.4'" in second


def test_only_release_tags_of_the_commit_that_is_checked_out_count(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"], ["tag", "v0.9.0"]):
        subprocess.run([*git, *words], check=True)
    assert tags(tmp_path) == ["v0.9.0"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "two"], check=True)
    subprocess.run([*git, "tag", "other"], check=True)
    assert tags(tmp_path) == []
