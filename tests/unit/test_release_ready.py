"""A release tag asks for its version, its change log and an address for reports of weaknesses."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest
import yaml

from bridge.version import VERSION
from tests.drift import ROOT
from tests.release_ready import missing, on_main, tags


def project(version: str = "1.2.3", address: str = "https://example.org/report") -> dict[str, object]:
    return {"project": {"version": version}, "tool": {"kakeya": {"disclosure": address}}}


def test_a_release_that_has_all_three_may_go():
    assert missing("v1.2.3", project(), "# Changelog\n\n## 1.2.3\n") == []
    assert missing("v1.2.3", project(address="mailto:a@example.org"), "## [1.2.3] - 2026-01-01\n") == []


@pytest.mark.parametrize("address", ["", "somebody", "http://example.org", "mailto:nobody"])
def test_without_an_address_for_reports_it_may_not(address):
    (reason,) = missing("v1.2.3", project(address=address), "## 1.2.3\n")
    assert f"disclosure in pyproject.toml is '{address}'" in reason


def test_each_thing_that_is_missing_is_named():
    first, second = missing("v1.2.4", project(), "## 1.2.40\n")
    assert "has version 1.2.3, the tag is v1.2.4" in first
    assert "no heading '## 1.2.4'" in second


@pytest.mark.parametrize("heading", ["## 1.2.3-rc1", "## 1.2.3.post1", "## [1.2.3-rc1]", "## 1.2.3rc1"])
def test_the_heading_of_another_version_is_none_of_this_one(heading):
    (reason,) = missing("v1.2.3", project(), f"{heading}\n")
    assert "no heading '## 1.2.3'" in reason


@pytest.mark.parametrize("tag", ["v1.2", "v1", "v1.2.x"])
def test_a_tag_that_was_meant_for_a_release_and_is_none_is_refused(tag):
    (reason,) = missing(tag, project(version=tag[1:]), f"## {tag[1:]}\n")
    assert f"tag {tag} names no release" in reason


def test_the_workflow_starts_for_every_tag_that_is_a_release_and_for_no_other():
    (pattern,) = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())[True]["push"]["tags"]
    starts = re.compile(pattern.replace(".", r"\.").replace("*", ".*"))  # GitHub's + and [0-9] are those of re
    assert [tag for tag in ("v1.2.3", "v1.2.3-rc1", "v0.10.0", "v1.2", "v1", "vendor") if starts.fullmatch(tag)] == [
        "v1.2.3", "v1.2.3-rc1", "v0.10.0",
    ]  # fmt: skip


def test_only_release_tags_of_the_commit_that_is_checked_out_count(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "one"], ["tag", "v0.9.0"]):
        subprocess.run([*git, *words], check=True)
    assert tags(tmp_path) == ["v0.9.0"]
    assert on_main(tmp_path)
    subprocess.run([*git, "checkout", "-q", "-b", "aside"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "two"], check=True)
    subprocess.run([*git, "tag", "other"], check=True)
    assert tags(tmp_path) == []
    assert not on_main(tmp_path)


def test_the_program_says_the_version_that_is_released():
    written = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert written == VERSION
