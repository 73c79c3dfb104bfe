"""A release tag asks for its version, its change log and an address for reports of weaknesses."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest
import yaml

from bridge.version import VERSION
from tests.drift import ROOT
from tests.release import DIST, LICENCES
from tests.release_ready import Pages, missing, on_main, tags, unlicensed


def project(version: str = "1.2.3", address: str = "https://example.org/report") -> dict[str, object]:
    return {"project": {"version": version}, "tool": {"kakeya": {"disclosure": address}}}


def pages(heading: str = "## 1.2.3", version: str = "1.2.3") -> Pages:
    return Pages(f"# Changelog\n\n{heading}\n", f"{heading}\n", f'cff-version: 1.2.0\nversion: "{version}"\n')


def test_a_release_that_has_all_of_it_may_go():
    assert missing("v1.2.3", project(), pages()) == []
    assert missing("v1.2.3", project(address="mailto:a@example.org"), pages("## [1.2.3] - 2026-01-01")) == []


@pytest.mark.parametrize("address", ["", "somebody", "http://example.org", "mailto:nobody"])
def test_without_an_address_for_reports_it_may_not(address):
    (reason,) = missing("v1.2.3", project(address=address), pages())
    assert f"disclosure in pyproject.toml is '{address}'" in reason


def test_each_thing_that_is_missing_is_named():
    first, second, third, fourth = missing("v1.2.4", project(), pages("## 1.2.40"))
    assert "has version 1.2.3, the tag is v1.2.4" in first
    assert "CHANGELOG.md has no heading '## 1.2.4'" in second
    assert "docs/release-notes.md has no heading '## 1.2.4'" in third
    assert fourth == "CITATION.cff has version 1.2.3, expected 1.2.4: write it there"


@pytest.mark.parametrize("heading", ["## 1.2.3-rc1", "## 1.2.3.post1", "## [1.2.3-rc1]", "## 1.2.3rc1"])
def test_the_heading_of_another_version_is_none_of_this_one(heading):
    reasons = missing("v1.2.3", project(), pages(heading))
    assert len(reasons) == 2
    assert all("no heading '## 1.2.3'" in reason for reason in reasons)


@pytest.mark.parametrize("tag", ["v1.2", "v1", "v1.2.x"])
def test_a_tag_that_was_meant_for_a_release_and_is_none_is_refused(tag):
    (reason,) = missing(tag, project(version=tag[1:]), pages(f"## {tag[1:]}", tag[1:]))
    assert f"tag {tag} names no release" in reason


def test_the_workflow_starts_for_every_tag_that_is_a_release_and_for_no_other():
    (pattern,) = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())[True]["push"]["tags"]
    starts = re.compile(pattern.replace(".", r"\.").replace("*", ".*"))  # GitHub's + and [0-9] are those of re
    assert [tag for tag in ("v1.2.3", "v1.2.3-rc1", "v0.10.0", "v1.2", "v1", "vendor") if starts.fullmatch(tag)] == [
        "v1.2.3", "v1.2.3-rc1", "v0.10.0",
    ]  # fmt: skip


def test_the_workflow_hands_out_every_file_that_was_built_and_proven():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    steps = {name: job.get("steps", []) for name, job in jobs.items()}
    (proven,) = [step["with"]["subject-path"] for step in steps["build"] if "attest" in step.get("uses", "")]
    (stored,) = [step["with"] for step in steps["build"] if "upload-artifact" in step.get("uses", "")]
    (fetched,) = [step["with"] for step in steps["hand-out"] if "download-artifact" in step.get("uses", "")]
    (released,) = [step["run"].split() for step in steps["hand-out"] if "gh release create" in step.get("run", "")]

    assert proven in released, f"of {proven} something stays behind"
    assert proven == f"{fetched['path']}/*"
    assert (fetched["name"], f"{fetched['path']}/") == (stored["name"], stored["path"])
    assert DIST.name == fetched["path"]


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


def jobs_that_ask() -> list[tuple[str, str, int]]:
    """Return file, job and depth of checkout of every job that asks, by make, whether a tag may be released."""
    asks = re.compile(r"\bmake (.* )?(test|check|ci|release-ready)\b")
    named = []
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for name, job in yaml.safe_load(path.read_text("utf-8"))["jobs"].items():
            steps = job.get("steps", [])
            if any(asks.search(step.get("run", "")) for step in steps):
                (checkout,) = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
                named.append((path.name, name, checkout["with"].get("fetch-depth", 1)))
    return named


@pytest.mark.parametrize(("file", "job", "depth"), jobs_that_ask())
def test_each_job_that_asks_of_a_tag_has_the_main_that_it_has_to_be_on(tmp_path, file, job, depth):
    """As actions/checkout fetches a tag: with a depth its commit alone, without one all branches and tags."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q", "-b", "main", origin], check=True)
    for words in (["commit", "-q", "--allow-empty", "-m", "one"], ["tag", "v1.2.3"]):
        subprocess.run([*git, "-C", origin, *words], check=True)
    of_tag = ["--no-tags", f"--depth={depth}", origin.as_uri(), "+refs/tags/v1.2.3:refs/tags/v1.2.3"]
    of_all = [origin.as_uri(), "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"]
    subprocess.run([*git, "init", "-q", "-b", "unborn", clone], check=True)
    subprocess.run([*git, "-C", clone, "fetch", "-q", *(of_tag if depth else of_all)], check=True)
    subprocess.run([*git, "-C", clone, "checkout", "-q", "refs/tags/v1.2.3"], check=True)

    assert (tags(clone), on_main(clone)) == (["v1.2.3"], True), f"{job} of {file}"


def test_the_program_says_the_version_that_is_released():
    written = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert written == VERSION


def test_what_is_committed_lacks_nothing_of_a_release_but_the_owners_address():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    texts = [(ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "docs/release-notes.md", "CITATION.cff")]
    problems = missing(f"v{VERSION}", settings, Pages(*texts))
    assert [line for line in problems if "disclosure" not in line] == []


def test_the_licences_that_the_wheel_holds_go_out_beside_the_weights():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert sorted(LICENCES) == sorted(settings["project"]["license-files"])
    assert [name for name in LICENCES if not (ROOT / name).is_file()] == []


def test_every_model_that_is_shipped_has_a_licence_and_one_that_lacks_it_is_named(tmp_path):
    assert unlicensed() == []
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "model.safetensors").write_bytes(b"")
    assert unlicensed(tmp_path) == ["bare"]
    (tmp_path / "bare" / "MODEL_CARD.md").write_text("Weights of somebody.")
    assert unlicensed(tmp_path) == ["bare"]
